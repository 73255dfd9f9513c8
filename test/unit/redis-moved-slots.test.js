// redis-moved-slots.test.js: subscriptions that Redis Cluster has ended because their slot has moved.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ReplyError } from 'ioredis';
import { RedisCluster } from '../../src/backend/redis/cluster.js';
import { slotOf } from '../../src/backend/redis/slots.js';
import { Subscriber } from '../../src/backend/redis/subscriber.js';

const [ONE, OTHER] = ['room:{1}', 'room:{2}'];

/**
 * @param {{ssubscribe: (...channels: string[]) => Promise<unknown>}} redis
 * @param {string[]} moved gets the channels that may have missed messages
 */
function subscriberOf(redis, moved) {
  return new Subscriber({
    connection: /** @type {any} */ ({ redis, isWritable: true, describe: String, destroy() {} }),
    isSharded: true,
    roomLingerMs: 100,
    timeoutMs: 1500,
    onLive() {},
    onRefused() {},
    onMoved: (channels) => void moved.push(...channels),
  });
}

async function build() {
  /** @type {string[]} */
  const sent = [];
  /** @type {string[]} */
  const moved = [];
  /** @type {Set<string>} */
  const refused = new Set();
  const redis = {
    /** @param {string[]} channels */
    ssubscribe: async (...channels) => {
      sent.push(...channels);
      if (channels.some((channel) => refused.has(channel)))
        throw new ReplyError('MOVED 1 127.0.0.1:7001');
    },
  };
  const subscriber = subscriberOf(redis, moved);
  for (const channel of [ONE, OTHER]) subscriber.subscribe(channel).catch(() => {}); // not live yet
  subscriber.restore();
  await turn();
  assert.deepEqual(sent.splice(0).sort(), [ONE, OTHER]);
  return { subscriber, sent, moved, refused };
}

test('a slot that left and is back before anybody looked is subscribed again', async () => {
  const { subscriber, sent, moved } = await build();
  subscriber.countEnded();
  assert.deepEqual(
    subscriber.takeMoved(() => true),
    [],
  );
  subscriber.confirmAgain();
  await turn();
  await turn();
  // ioredis does not say which one has ended.
  assert.deepEqual(sent.sort(), [ONE, OTHER]);
  assert.deepEqual(moved.sort(), [ONE, OTHER], 'messages may have been missed');
  subscriber.confirmAgain();
  await turn();
  assert.equal(sent.length, 2, 'once');
});

for (const isEarly of [true, false])
  test(`a slot that moved needs no other subscription, if Redis says so ${isEarly ? 'before' : 'after'} the look`, async () => {
    const { subscriber, sent } = await build();
    if (isEarly) subscriber.countEnded();
    const taken = subscriber.takeMoved((slot) => slot !== slotOf(ONE));
    assert.deepEqual(
      taken.map(({ channel }) => channel),
      [ONE],
    );
    subscriber.confirmAgain();
    if (!isEarly) subscriber.countEnded();
    subscriber.confirmAgain();
    await turn();
    await turn();
    assert.deepEqual(sent, []);
  });

test('a refused subscription, which ioredis reports as well, ends no other', async () => {
  const { subscriber, sent, refused } = await build();
  refused.add('room:{3}');
  subscriber.subscribe('room:{3}').catch(() => {}); // the next look decides
  subscriber.countEnded();
  await turn();
  await turn();
  subscriber.confirmAgain();
  await turn();
  assert.deepEqual(sent, ['room:{3}']);
  subscriber.lose();
});

/** Redis answers each channel when the test says so. */
function buildManual() {
  /** @type {Map<string, {resolve: (value?: unknown) => void, reject: (error: Error) => void}>} */
  const asked = new Map();
  /** @type {string[]} */
  const moved = [];
  const redis = {
    /** @param {string} channel */
    ssubscribe: (channel) =>
      new Promise((resolve, reject) => asked.set(channel, { resolve, reject })),
  };
  const subscriber = subscriberOf(redis, moved);
  subscriber.restore();
  /** @param {string} channel */
  const answer = async (channel, error = '') => {
    const { resolve, reject } = /** @type {any} */ (asked.get(channel));
    asked.delete(channel);
    if (error === '') resolve();
    else reject(new ReplyError(error));
    await turn();
  };
  return { subscriber, asked, moved, answer };
}

test('a slot that left and is back while the same chunk has other slots without an answer is subscribed again', async () => {
  const { subscriber, asked, moved, answer } = buildManual();
  await turn();
  const joining = [ONE, OTHER].map((channel) => subscriber.subscribe(channel));
  await turn();
  await answer(ONE);
  // Redis ends the subscription, and the look finds the slot here again.
  subscriber.countEnded();
  subscriber.takeMoved(() => true);
  subscriber.confirmAgain();
  await turn();
  assert.deepEqual([...asked.keys()].sort(), [ONE, OTHER], 'nobody hears it otherwise');
  await answer(ONE);
  await answer(OTHER);
  await Promise.all(joining);
  assert.deepEqual(moved, [ONE], 'messages may have been missed');
});

test('a refusal that is looked at before the other answers of its chunk is counted once', async () => {
  const { subscriber, asked, answer } = buildManual();
  await turn();
  for (const channel of [ONE, OTHER]) subscriber.subscribe(channel).catch(() => {});
  await turn();
  subscriber.countEnded(); // ioredis reports the refusal, too
  await answer(ONE, 'MOVED 1 127.0.0.1:7001');
  subscriber.takeMoved((slot) => slot !== slotOf(ONE));
  subscriber.confirmAgain();
  await answer(OTHER);
  // A slot that leaves later and is back.
  subscriber.countEnded();
  subscriber.takeMoved(() => true);
  subscriber.confirmAgain();
  await turn();
  assert.deepEqual([...asked.keys()], [OTHER], 'nobody hears it otherwise');
  subscriber.lose();
});

test('a slot that left and is back while a new connection still subscribes is subscribed again', async () => {
  const { subscriber, asked, answer } = buildManual();
  subscriber.lose();
  for (const channel of [ONE, OTHER]) subscriber.subscribe(channel).catch(() => {}); // not live yet
  subscriber.restore();
  await answer(ONE);
  subscriber.countEnded();
  subscriber.takeMoved(() => true);
  subscriber.confirmAgain();
  await answer(OTHER);
  assert.ok(subscriber.isLive);
  await turn();
  assert.ok(asked.has(ONE), 'nobody hears it otherwise');
  subscriber.lose();
});

test('a look that began before a confirmation does not say that Redis has ended it', async () => {
  const { subscriber, asked, answer } = buildManual();
  await turn();
  const joining = subscriber.subscribe(OTHER);
  await turn();
  await answer(OTHER);
  await joining;
  // The slot left and is back. Meanwhile another slot is away, and the look sees that, ...
  subscriber.countEnded();
  const askedMs = performance.now();
  subscriber.subscribe(ONE).catch(() => {});
  await turn();
  // ... but it is back before its answer comes.
  await answer(ONE);
  subscriber.takeMoved((slot) => slot !== slotOf(ONE), askedMs);
  subscriber.confirmAgain();
  await turn();
  assert.deepEqual([...asked.keys()], [OTHER], 'nobody hears it otherwise');
  subscriber.lose();
});

test('an end that an old map foretold, and that never comes, does not make up for another', async () => {
  const { subscriber, sent, moved } = await build();
  await new Promise((resolve) => setTimeout(resolve, 2));
  const stale = (/** @type {number} */ slot) => slot !== slotOf(ONE);
  const taken = subscriber.takeMoved(stale, performance.now());
  subscriber.adopt(taken); // the next map is right
  await turn();
  await turn();
  assert.deepEqual(sent.splice(0), [ONE]);
  moved.splice(0);
  // Now a slot leaves and is back.
  subscriber.countEnded();
  subscriber.confirmAgain();
  await turn();
  await turn();
  assert.deepEqual(sent.sort(), [ONE, OTHER]);
  assert.deepEqual(moved.sort(), [ONE, OTHER]);
});

test('an answer in one read with the end of its connection confirms nothing', async () => {
  const { subscriber, asked, answer } = buildManual();
  await turn();
  const joining = subscriber.subscribe(ONE);
  await turn();
  const answered = answer(ONE);
  subscriber.lose();
  await assert.rejects(joining, { code: 'UNAVAILABLE' });
  await answered;
  subscriber.restore();
  assert.deepEqual([...asked.keys()], [ONE], 'nobody hears it otherwise');
});

test('a channel whose slot had no node may have missed publications until a node serves it', async () => {
  const { subscriber, asked, moved, answer } = buildManual();
  await turn();
  /** @type {(number|string|null)[][]} */
  let map = [];
  const node = {
    isUp: true,
    probeChannel: '',
    subscriptions: subscriber,
    commands: { isWritable: true, redis: { cluster: async () => map } },
  };
  const cluster = new RedisCluster({
    settings: /** @type {any} */ ({ addresses: [] }),
    timeoutMs: 1500,
    makeNode: () => assert.fail('no other node'),
    probeChannelOf: (tag) => `probe:{${tag}}`,
    onUpdate() {},
    onAway: (reason) => assert.fail(reason),
  });
  cluster.nodes.set('127.0.0.1:7001', /** @type {any} */ (node));
  cluster.addresses.set('127.0.0.1:7001', { host: '127.0.0.1', port: 7001 });
  /** @param {[first: number, last: number][]} ranges */
  const look = async (ranges) => {
    map = ranges.map((range) => [...range, /** @type {any} */ (['127.0.0.1', 7001])]);
    cluster.askedMs = Number.NEGATIVE_INFINITY;
    cluster.stale(null);
    await turn();
  };
  await look([[0, 16383]]);
  const joining = cluster.subscribe(ONE);
  await turn();
  await answer(ONE);
  await joining;
  const slot = slotOf(ONE);
  await look([
    [0, slot - 1],
    [slot + 1, 16383],
  ]);
  assert.equal(cluster.isUp, false);
  await look([[0, 16383]]);
  assert.ok(cluster.isUp, 'rooms are compared with Redis now, and the channel is not heard yet');
  await turn();
  assert.deepEqual([...asked.keys()], [ONE]);
  await answer(ONE);
  assert.deepEqual(moved, [ONE]);
});
