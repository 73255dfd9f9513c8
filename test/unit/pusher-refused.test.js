// pusher-refused.test.js: refusals by admission that clients of Pusher get inside the WebSocket.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppPlaces } from '../../src/auth/app-places.js';
import { closeOfRefusal, PUSHER_CLOSES } from '../../src/doors/pusher/codec/closes.js';
import { createCounters } from '../../src/observability/counters.js';
import { isOfAdmission, LateCloses } from '../../src/operations/late-closes.js';
import { REFUSALS } from '../../src/protocol/codes.js';
import { refusal } from '../../src/protocol/refusal.js';

const MAX_WAITING = 5000;

/** @typedef {import('../../src/protocol/codes.js').RefusalCode} RefusalCode */

/** A connection that has just opened. */
class Opened {
  /** @type {import('../../src/doors/pusher/codec/closes.js').PusherClose[]} */
  closes = [];

  /** @param {any} close */
  close(close) {
    this.closes.push(close);
  }
}

/** @param {() => number} [random] */
function build(random) {
  const phase = { isDraining: false, isSettling: false };
  const broker = { state: /** @type {'up'|'down'} */ ('up') };
  const refused = new LateCloses({
    ...{ phase, broker, random, closeOf: closeOfRefusal },
    closeAll: (connections, close) => {
      for (const connection of connections) {
        connection.close(close);
        refused.forgetConnection(connection);
      }
    },
  });
  /** @param {RefusalCode} code @returns {any} */
  const open = (code) => {
    const connection = /** @type {any} */ (new Opened());
    refused.refuseGuest(connection, refusal(code));
    return connection;
  };
  /** @returns {any} a connection that was refused something for the broker */
  const lack = () => {
    const connection = /** @type {any} */ (Object.assign(new Opened(), { isOpen: true }));
    refused.refuseMember(connection, refusal('UNAVAILABLE'));
    return connection;
  };
  return { refused, phase, broker, open, lack };
}

test('limits, load and origins are told inside; tokens and hooks have their own way; short memory is HTTP', () => {
  const inside = Object.keys(REFUSALS).filter((code) =>
    isOfAdmission(refusal(/** @type {RefusalCode} */ (code))),
  );
  assert.deepEqual(inside.sort(), [
    'handshakes_per_ip',
    'hooks',
    'loop_lag',
    'origin',
    'per_ip',
    'service_unavailable',
    'tokens',
    'uncounted',
  ]);
});

test('who was refused something in an outage comes back when it is over, at a random time', () => {
  let next = 0;
  const { refused, broker, lack } = build(() => next);
  broker.state = 'down';
  const began = performance.now();
  const connection = lack();
  next = 0.5;
  refused.sweep(began + 60_000);
  broker.state = 'up';
  refused.sweep(began + 63_000);
  assert.deepEqual(connection.closes, []);
  refused.sweep(began + 64_500);
  assert.deepEqual(
    connection.closes.map((/** @type {{code: number}} */ { code }) => code),
    [4100],
  );
});

test('a refusal comes after a random time of at most 8 s, with its text and 4100', () => {
  let next = 0;
  const { refused, open } = build(() => next);
  const began = performance.now();
  const first = open('handshakes_per_ip');
  next = 0.5;
  const middle = open('per_ip');
  next = 1;
  const last = open('loop_lag');
  assert.deepEqual(first.closes, [], 'not at once');
  refused.sweep(began + 3500);
  assert.deepEqual([first.closes.length, middle.closes.length, last.closes.length], [1, 0, 0]);
  refused.sweep(began + 4500);
  assert.deepEqual([middle.closes.length, last.closes.length], [1, 0]);
  refused.sweep(began + 8500);
  refused.sweep(began + 9500);
  for (const [connection, code] of /** @type {const} */ ([
    [first, 'handshakes_per_ip'],
    [middle, 'per_ip'],
    [last, 'loop_lag'],
  ])) {
    assert.equal(connection.closes.length, 1);
    const [close] = connection.closes;
    assert.equal(close.code, 4100);
    assert.deepEqual(JSON.parse(close.notice), {
      event: 'pusher:error',
      data: { message: REFUSALS[code].message, code: 4100 },
    });
  }
});

test('a client that does not wait in silence is refused at once', () => {
  const { refused, open } = build(() => 1);
  const [one, other] = [open('per_ip'), open('per_ip')];
  refused.endGuest(one);
  refused.endGuest(/** @type {any} */ (new Opened()));
  assert.deepEqual([one.closes.length, other.closes.length], [1, 0]);
});

test('beyond 5,000 that wait, a connection to a full app is closed at once', () => {
  const { open } = build();
  for (let i = 0; i < MAX_WAITING; i++) assert.equal(open('APP_LIMIT').closes.length, 0);
  assert.deepEqual(
    open('APP_LIMIT').closes.map((/** @type {{code: number}} */ { code }) => code),
    [4100],
  );
});

test('beyond 5,000 that wait, the answer is HTTP', () => {
  const { refused, open, lack } = build(() => 1);
  // These are members of rooms, and do not count.
  lack();
  const refusals = Array.from({ length: MAX_WAITING - 1 }, () => open('per_ip'));
  assert.equal(refused.takes(refusal('per_ip')), true);
  open('per_ip');
  assert.equal(refused.takes(refusal('per_ip')), false);
  refused.forgetConnection(refusals[0]);
  assert.equal(refused.takes(refusal('per_ip')), true);
  assert.equal(refused.takes(refusal('memory')), false);
});

test('a worker that drains sends its clients to another one, at once', () => {
  const { refused, phase, open, lack } = build(() => 1);
  const waiting = open('per_ip');
  const member = lack();
  phase.isDraining = true;
  refused.sweep(performance.now());
  assert.deepEqual(waiting.closes, [PUSHER_CLOSES.RESTART]);
  assert.deepEqual(open('service_unavailable').closes, [PUSHER_CLOSES.RESTART]);
  const late = open('per_ip');
  refused.closeGuests();
  assert.deepEqual(late.closes, [PUSHER_CLOSES.RESTART]);
  assert.deepEqual(member.closes, [], 'the drain spreads the closes of others');
});

test('a full app is full for good only after it was so for longer than dead connections count', async (t) => {
  let nowMs = 0;
  let admitted = false;
  t.mock.method(performance, 'now', () => nowMs);
  const counters = createCounters();
  Object.assign(counters.apps.connections, { 1: 0, 2: 0 });
  const places = new AppPlaces({
    config: { pingIntervalMs: 30_000, pongTimeoutMs: 10_000 },
    places: { acquire: async () => ({ admitted, connections: 1 }), release() {} },
    counters: counters.auth,
    appCounters: counters.apps,
  });
  /** @param {string} id @param {number[]} seconds when it is asked for a place */
  const isFullAt = async (id, ...seconds) => {
    const app = /** @type {any} */ ({ id, maxConnections: 1 });
    const answers = [];
    for (const second of seconds) {
      nowMs = second * 1000;
      await places.takePlace(app, { identity: null, lease: null });
      answers.push(places.isFullForGood(app));
    }
    return answers;
  };
  const F = false;
  assert.deepEqual(await isFullAt('1', 0, 10, 20, 30, 40, 50, 51), [F, F, F, F, F, F, true]);
  admitted = true;
  await isFullAt('1', 52);
  admitted = false;
  assert.deepEqual(await isFullAt('1', 60, 70), [F, F], 'a place was free');
  // Nobody asked for a while, so nobody knows whether there were places.
  assert.deepEqual(await isFullAt('1', 80, 90, 130, 140), [F, F, F, F]);
  assert.deepEqual(await isFullAt('2', 141), [F], 'another app');
  assert.equal(counters.auth.closes.app_limit, 14);
});
