// pusher-waiting.test.js: refusals that pass, by Pusher's door: subscriptions that wait for a hook or a
// busy worker, and apps at their limit of connections.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PusherClient } from '../../src/doors/pusher/client.js';
import { socketIdOf } from '../../src/doors/pusher/codec/socket-id.js';
import { Quotas } from '../../src/doors/pusher/quotas.js';
import { PusherSubscriptions } from '../../src/doors/pusher/subscribe.js';
import { WaitingSubscriptions } from '../../src/doors/pusher/waiting.js';
import { createCounters } from '../../src/observability/counters.js';
import { channelText } from '../../src/protocol/pusher-signature.js';
import { refusal } from '../../src/protocol/refusal.js';
import { hmac } from '../helpers/pusher.js';

/** @typedef {import('../../src/protocol/refusal.js').Refusal} Refusal */

const APP = /** @type {any} */ ({
  ...{ id: '1', key: 'k', secrets: ['s'], maxChannelLength: 200 },
  ...{ maxPresenceMembers: 1, maxMemberBytes: 100 },
});

/** Subscriptions with a hook, rooms and limits that the test chooses. */
function build() {
  const state = {
    /** @type {Refusal|null} */ hook: null,
    isFull: false,
    isChannelFull: false,
    mayEnter: true,
    asked: 0,
    /** Gets the hook's answer, to give it later. @type {((answer: () => void) => void)|null} */
    hold: null,
  };
  /** @type {Map<string, Set<unknown>>} */
  const members = new Map();
  const joins = {
    isIn: (/** @type {unknown} */ _connection, /** @type {string} */ name) => members.has(name),
    unsubscribe: (/** @type {unknown} */ _connection, /** @type {string} */ name) =>
      members.delete(name),
    subscribe(
      /** @type {unknown} */ connection,
      /** @type {string} */ name,
      /** @type {any} */ { enter, onJoined, onRefused },
    ) {
      const answer = () => {
        if (members.has(name)) return onRefused(refusal('ALREADY_JOINED'));
        if (state.hook !== null) return onRefused(state.hook);
        if (!state.mayEnter) return onRefused(refusal('ROOM_LIMIT'));
        if (state.isFull) return onRefused(refusal('READS_WAIT'));
        const join = () => {
          members.set(name, new Set([connection]));
          onJoined(null, 0);
        };
        if (enter === undefined) join();
        else enter({ onJoined: join });
      };
      state.asked++;
      if (state.hold === null) answer();
      else state.hold(answer);
    },
  };
  const services = {
    config: { pusher: null },
    counters: createCounters(),
    operations: { joins },
  };
  const subscriptions = new PusherSubscriptions(
    /** @type {any} */ (services),
    /** @type {any} */ ({
      left() {},
      subscribe: (/** @type {any} */ { onJoined, onRefused }) => {
        if (state.isChannelFull) onRefused('full');
        else onJoined('{}', null);
        return null;
      },
    }),
    () => {},
    () => {},
  );
  const client = new PusherClient(APP);
  const sent = /** @type {string[]} */ ([]);
  const connection = /** @type {any} */ ({
    ...{ isOpen: true, id: 'AAAAAAAA1' },
    send: (/** @type {string} */ text) => sent.push(JSON.parse(text).event),
  });
  const message = (/** @type {string} */ event, data = {}) =>
    /** @type {any} */ ({ event, data: { channel: 'news', ...data }, dataSource: '{}' });
  return {
    ...{ state, sent, connection, subscriptions },
    subscribe: () => subscriptions.subscribe(connection, client, message('pusher:subscribe')),
    enter: (/** @type {string} */ channel) => {
      const member = '{"user_id":"ann"}';
      const auth = `k:${hmac('s', channelText(socketIdOf(connection.id), channel, member))}`;
      const data = { channel, channel_data: member, auth };
      subscriptions.subscribe(connection, client, message('pusher:subscribe', data));
    },
    unsubscribe: () => subscriptions.unsubscribe(connection, client, message('pusher:unsubscribe')),
    later: () => subscriptions.waiting.sweep(performance.now() + 60_000),
  };
}

const SUCCEEDED = 'pusher_internal:subscription_succeeded';
const ERROR = 'pusher:subscription_error';

for (const [name, begin, end] of /** @type {const} */ ([
  [
    'a hook that fails',
    (/** @type {any} */ state) => (state.hook = refusal('HOOK_FAILED')),
    (/** @type {any} */ state) => (state.hook = null),
  ],
  [
    'a worker with too many reads',
    (/** @type {any} */ state) => (state.isFull = true),
    (/** @type {any} */ state) => (state.isFull = false),
  ],
]))
  test(`${name} delays a subscription, and is asked again until it has recovered`, () => {
    const { state, sent, subscribe, later, subscriptions } = build();
    begin(state);
    subscribe();
    later();
    assert.deepEqual([sent, state.asked, subscriptions.waiting.size], [[], 2, 1]);
    end(state);
    later();
    assert.deepEqual([sent, state.asked, subscriptions.waiting.size], [[SUCCEEDED], 3, 0]);
    later();
    assert.equal(state.asked, 3);
  });

test('a full presence channel is told once, and entered when a member has left', () => {
  const { state, sent, enter, later, subscriptions } = build();
  state.isChannelFull = true;
  enter('presence-a');
  later();
  assert.deepEqual([sent, subscriptions.waiting.size], [[ERROR], 1]);
  state.isChannelFull = false;
  later();
  assert.deepEqual([sent, subscriptions.waiting.size], [[ERROR, SUCCEEDED], 0]);
});

test('what does not pass is answered at once: a denial, and too many channels', () => {
  const { state, sent, subscribe, subscriptions } = build();
  state.hook = refusal('DENIED', 'no');
  subscribe();
  state.hook = null;
  state.mayEnter = false;
  subscribe();
  assert.deepEqual([sent, subscriptions.waiting.size], [[ERROR, ERROR], 0]);
});

test('a waiting subscription ends with an unsubscribe, a denial, another one, or its connection', () => {
  const { state, sent, subscribe, unsubscribe, later, subscriptions, connection } = build();
  const { waiting } = subscriptions;
  state.hook = refusal('HOOK_FAILED');
  subscribe();
  unsubscribe();
  assert.equal(waiting.size, 0);
  subscribe();
  subscribe();
  assert.equal(waiting.size, 1, 'the later one waits');
  waiting.forget(connection);
  assert.equal(waiting.size, 0);
  subscribe();
  state.hook = refusal('DENIED');
  later();
  assert.deepEqual([sent, waiting.size], [[ERROR], 0]);
  state.hook = refusal('HOOK_FAILED');
  subscribe();
  connection.isOpen = false;
  later();
  assert.equal(waiting.size, 0);
});

test('two attempts at a channel that fail after each other wait once', () => {
  const { state, subscribe, unsubscribe, subscriptions } = build();
  /** @type {(() => void)[]} */
  const answers = [];
  state.hold = (answer) => answers.push(answer);
  state.hook = refusal('HOOK_FAILED');
  subscribe();
  subscribe();
  for (const answer of answers) answer();
  assert.equal(subscriptions.waiting.size, 1);
  unsubscribe();
  assert.equal(subscriptions.waiting.size, 0);
});

test('a connection that an attempt closes makes no further ones, and a fault closes only its own', () => {
  const waiting = new WaitingSubscriptions();
  const tried = /** @type {string[]} */ ([]);
  const closed = /** @type {any} */ ({ isOpen: true });
  const faulty = /** @type {any} */ ({ isOpen: true, fail: () => tried.push('failed') });
  const last = /** @type {any} */ ({ isOpen: true });
  waiting.add(closed, 'a', 0, () => {
    tried.push('a');
    closed.isOpen = false;
  });
  waiting.add(closed, 'b', 0, () => tried.push('b'));
  waiting.add(faulty, 'a', 0, () => {
    throw new Error('a fault');
  });
  waiting.add(last, 'a', 0, () => tried.push('last'));
  waiting.sweep(performance.now() + 10_000);
  assert.deepEqual([tried, waiting.size], [['a', 'failed', 'last'], 0]);
});

test('attempts come after a random time of 2 to 4 s, then up to twice as long, at most 30 s', () => {
  for (const random of [0, 0.999]) {
    const waiting = new WaitingSubscriptions(() => random);
    const connection = /** @type {any} */ ({ isOpen: true });
    for (const [attempt, longestMs] of [4000, 8000, 16_000, 30_000, 30_000].entries()) {
      let tries = 0;
      const nowMs = performance.now();
      waiting.add(connection, 'a', attempt, () => tries++);
      const dueMs = ((1 + random) / 2) * longestMs;
      waiting.sweep(nowMs + dueMs - 500);
      assert.equal(tries, 0, `${attempt} too early`);
      waiting.sweep(nowMs + dueMs + 500);
      assert.equal(tries, 1, `${attempt}`);
    }
  }
});

test('a sweep has a bound, and so have all that wait, and those of a connection', () => {
  const one = new WaitingSubscriptions();
  const single = /** @type {any} */ ({});
  for (let i = 0; i < 128; i++) assert.ok(one.add(single, `c${i}`, 0, () => {}));
  assert.equal(
    one.add(single, 'more', 0, () => {}),
    false,
  );
  const waiting = new WaitingSubscriptions();
  const connections = /** @type {any[]} */ (
    Array.from({ length: 20_000 }, () => ({ isOpen: true }))
  );
  let tries = 0;
  for (const connection of connections) assert.ok(waiting.add(connection, 'a', 0, () => tries++));
  assert.equal(
    waiting.add(/** @type {any} */ ({}), 'a', 0, () => {}),
    false,
  );
  waiting.sweep(performance.now() + 10_000);
  assert.deepEqual([tries, waiting.size], [500, 19_500]);
});

test('a full app refuses for good only after it was full for longer than dead connections count', () => {
  const quotas = new Quotas({ pingIntervalMs: 30_000, pongTimeoutMs: 10_000 });
  const refusedAt = (/** @type {number[]} */ ...seconds) =>
    seconds.map((second) => quotas.refused('1', second * 1000));
  const F = false;
  assert.deepEqual(refusedAt(0, 10, 20, 30, 40, 50, 51), [F, F, F, F, F, F, true]);
  quotas.admitted('1');
  assert.deepEqual(refusedAt(60, 70), [F, F], 'a place was free');
  // Nobody asked for a while, so nobody knows whether there were places.
  assert.deepEqual(refusedAt(80, 90, 130, 140), [F, F, F, F]);
  assert.equal(quotas.refused('2', 141_000), false, 'another app');
});
