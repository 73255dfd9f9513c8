// courier.js: a courier of webhooks with a queue in memory, an endpoint that answers as the test
// says, and a clock that the test turns.

import pino from 'pino';
import { WebhookDelivery } from '../../src/webhooks/delivery.js';
import { MemoryQueue } from './memory-queue.js';

export const OK = Object.freeze({ outcome: 'delivered', error: '', retryAfterMs: null });
export const FAILED = Object.freeze({ outcome: 'failed', error: 'status 500', retryAfterMs: null });
export const BUSY = Object.freeze({
  outcome: 'unavailable',
  error: 'status 503',
  retryAfterMs: null,
});
/** The receiver has crashed, and its proxy says so. */
export const CRASHED = Object.freeze({ ...BUSY, error: 'status 502', isSuspect: true });

/** @typedef {import('../../src/webhooks/request.js').Result} Result */
/** @typedef {{id: string, type: string, data: Record<string, any>, atMs: number}} Received */

/** The test whose clock stands still. */
const options = { clock: /** @type {unknown} */ (null) };

/** Lets all promises settle while the clock stands still. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

/**
 * A courier with a clock that the test turns.
 * @param {import('node:test').TestContext} t
 * @param {object} [options]
 * @param {Partial<import('../../src/config/webhooks.js').Endpoint>} [options.endpoint]
 * @param {(message: Received, attempt: number) => unknown} [options.answer] a Result, or a promise
 * @param {MemoryQueue} [options.queue]
 * @param {() => number} [options.now] ascending, in ms
 */
export function courier(
  t,
  { endpoint = {}, answer = () => OK, queue = new MemoryQueue(), now = () => Date.now() } = {},
) {
  if (options.clock !== t) {
    t.mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: 1_700_000_000_000 });
    options.clock = t;
  }
  /** @type {Received[]} */
  const requests = [];
  const settings = {
    name: 'one',
    url: 'http://localhost/',
    secrets: ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'],
    types: /** @type {any} */ ([
      'room.occupied',
      'room.vacated',
      'member.joined',
      'member.left',
      'user.connected',
      'message.published',
    ]),
    rooms: ['*'],
    graceMs: 3000,
    maxAgeS: 86_400,
    maxPending: 10_000,
    timeoutMs: 15_000,
    concurrency: 4,
    pusher: null,
    ...endpoint,
  };
  let isDead = false;
  const connected = queue.connect();
  for (const [name, method] of Object.entries(connected))
    Object.assign(connected, {
      [name]: (/** @type {never[]} */ ...args) =>
        isDead ? new Promise(() => {}) : /** @type {Function} */ (method)(...args),
    });
  const delivery = new WebhookDelivery({
    queue: connected,
    endpoints: [settings],
    requester: {
      post: async (_settings, { id, body }) => {
        const { type, data } = JSON.parse(body);
        const message = { id, type, data, atMs: Date.now() - 1_700_000_000_000 };
        requests.push(message);
        return /** @type {Result} */ (await answer(message, requests.length));
      },
    },
    now,
    random: () => 0.5,
    log: pino({ level: 'silent' }),
  });
  delivery.start();
  const one = /** @type {NonNullable<ReturnType<typeof delivery.endpoints.get>>} */ (
    delivery.endpoints.get('one')
  );
  const advance = async (/** @type {number} */ ms, stepMs = 50) => {
    await settle();
    for (let passed = 0; passed < ms; passed += stepMs) {
      t.mock.timers.tick(Math.min(stepMs, ms - passed));
      await settle();
    }
  };
  /** `joined u1` */
  const seen = () =>
    requests.map(({ type, data }) => `${type.split('.')[1]} ${data.user ?? data.room}`);
  /** As SIGKILL: it calls the queue no more. */
  const kill = () => {
    isDead = true;
  };
  return { delivery, endpoint: one, queue, requests, advance, seen, kill };
}

/** @param {string} user @param {string} [room] */
export const joined = (user, room = 'r') => ({
  type: /** @type {const} */ ('member.joined'),
  room,
  user,
});
/** @param {string} user @param {string} [room] */
export const left = (user, room = 'r') => ({
  type: /** @type {const} */ ('member.left'),
  room,
  user,
});
/** @param {unknown} payload @param {string} [room] */
export const message = (payload, room = 'r') => ({
  type: /** @type {const} */ ('message.published'),
  room,
  payload,
});
