// publisher.js: a backend that publishes numbered messages at a steady rate through the load balancer.
//
// It asks for each message until a server has accepted it: a message is lost only if a server has
// said that it has it. A repetition bears the idempotency key of the first attempt where the API
// has such keys.

import { Agent, request } from 'node:http';
import { API_KEY, APP, roomOf } from './settings.js';

const RETRY_MS = 200;
const TIMEOUT_MS = 5000;
const TEXT = 'x'.repeat(80);

/** @typedef {{n: number, text: string}} Data */
/** @typedef {(room: string, data: Data) => Promise<unknown>} Publish */

const JSON_TYPE = { 'Content-Type': 'application/json' };

/** @type {Record<string, (port: number, agent: Agent) => Publish|Promise<Publish>>} */
export const PUBLISHERS = {
  fanfare: (port, agent) => (room, payload) =>
    post(
      port,
      agent,
      '/api/publish',
      { room, payload },
      {
        Authorization: `Bearer ${API_KEY}`,
        'Idempotency-Key': `deploy-${payload.n}`,
      },
    ),
  fanfareCentrifugo: (port, agent) => (channel, data) =>
    post(port, agent, '/centrifugo/api/publish', toCentrifugo(channel, data), {
      'X-API-Key': API_KEY,
    }),
  centrifugo: (port, agent) => (channel, data) =>
    post(port, agent, '/api/publish', toCentrifugo(channel, data), { 'X-API-Key': API_KEY }),
  pusher: async (port) => {
    const { default: Pusher } = await import('pusher');
    const { id: appId, key, secret } = APP;
    const pusher = new Pusher({
      ...{ appId, key, secret, host: '127.0.0.1', port: String(port), useTLS: false },
      timeout: TIMEOUT_MS,
    });
    return (channel, data) => pusher.trigger(channel, 'message', data);
  },
  plain: (port, agent) => (room, data) => post(port, agent, '/publish', { room, data }, {}),
};

/** @param {string} channel @param {Data} data */
const toCentrifugo = (channel, data) => ({
  channel,
  data,
  idempotency_key: `deploy-${data.n}`,
});

export class Publisher {
  /** @type {Publish|Promise<Publish>} */
  #publish;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  /** @type {Set<Promise<void>>} */
  #pending = new Set();
  #isOver = false;
  /** Accepted messages by room. @type {Map<number, number[]>} */
  accepted = new Map();
  sent = 0;
  repeated = 0;

  /** @param {string} kind @param {number} port @param {number} rooms */
  constructor(kind, port, rooms) {
    this.#publish = PUBLISHERS[kind](port, new Agent({ keepAlive: true }));
    this.rooms = rooms;
  }

  /** @param {number} perSecond */
  start(perSecond) {
    this.#timer = setInterval(() => {
      const done = this.#send(this.sent++).finally(() => this.#pending.delete(done));
      this.#pending.add(done);
    }, 1000 / perSecond);
  }

  /** Sends no more, and waits for the answers. */
  async stop() {
    clearInterval(this.#timer);
    const timer = setTimeout(() => {
      this.#isOver = true;
    }, 2 * TIMEOUT_MS);
    await Promise.all(this.#pending);
    clearTimeout(timer);
  }

  /** @param {number} n */
  async #send(n) {
    const room = n % this.rooms;
    while (!this.#isOver) {
      try {
        const publish = await this.#publish;
        await publish(roomOf(room), { n, text: TEXT });
        const all = this.accepted.get(room) ?? [];
        all.push(n);
        this.accepted.set(room, all);
        return;
      } catch {
        this.repeated++;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }
}

/**
 * @param {number} port @param {Agent} agent @param {string} path
 * @param {object} body @param {Record<string, string>} headers
 * @returns {Promise<void>}
 */
function post(port, agent, path, body, headers) {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify(body);
    const sent = request(
      {
        ...{ host: '127.0.0.1', port, path, agent, method: 'POST', timeout: TIMEOUT_MS },
        headers: { ...JSON_TYPE, 'Content-Length': Buffer.byteLength(text), ...headers },
      },
      (response) => {
        let answer = '';
        response.setEncoding('utf8').on('data', (part) => {
          answer += part;
        });
        response.on('end', () => {
          // Centrifugo answers errors with 200, too.
          if (response.statusCode === 200 && !/^\{"error"/.test(answer)) resolve();
          else reject(new Error(`${response.statusCode} ${answer}`));
        });
      },
    );
    sent.on('error', reject);
    sent.on('timeout', () => sent.destroy(new Error('timed out')));
    sent.end(text);
  });
}
