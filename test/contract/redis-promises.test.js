// redis-promises.test.js: promises of the broker over Redis while Redis refuses, falls silent or is
// another one than before.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import pino from 'pino';
import { RedisConnection } from '../../src/backend/redis/connection.js';
import { createBackend } from '../../src/backend/redis/index.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { createCounters } from '../../src/observability/counters.js';
import { encodeKeyed } from '../../src/protocol/publication.js';
import { redisSettings, startRedis } from '../harness/redis.js';
import { machineAt } from '../helpers/machine.js';
import { startTcpProxy } from '../helpers/tcp-proxy.js';
import { announcements, configOf, eventually, log as silent, Worker } from './suite.js';

/** @typedef {import('node:test').TestContext} TestContext */

const limit = { timeout: 60_000 };
const TIMEOUT_MS = 400;
/** @type {import('../../src/config/room-patterns.js').Rule<import('../../src/config/room-patterns.js').HistoryRule>[]} */
const HISTORY = [
  { pattern: 'h.*', value: { size: 100, ttlMs: 60_000 } },
  { pattern: 's.*', value: { size: 100, ttlMs: 60_000, state: { everyMs: 0, maxBytes: 10_000 } } },
];

/**
 * @param {TestContext} t
 * @param {string} url of Redis, or of a wire to it
 * @param {import('pino').Logger} [log]
 */
async function start(t, url, log = silent) {
  const { broker } = createBackend({
    config: configOf({
      redis: redisSettings({ REDIS_URL: url }),
      redisPrefix: 'promises:',
      redisTimeoutMs: TIMEOUT_MS,
      history: HISTORY,
    }),
    log,
    counters: createCounters(),
    workerId: 'worker',
    historyRules: new RoomRules(HISTORY),
    announcements,
    machine: machineAt(''),
    events: { onPublishLag() {}, onRoundTrip() {} },
  });
  const worker = new Worker(broker);
  t.after(() => broker.close());
  await broker.start(worker);
  // A busy machine answers later than TIMEOUT_MS now and then, and a server starts all the same.
  await eventually(() => broker.state === 'up');
  return worker;
}

/** @param {Promise<unknown>} published @returns {Promise<string>} */
const outcome = (published) =>
  published.then(
    () => 'accepted',
    ({ code }) => code,
  );

for (const [room, right] of [
  ['plain', 'publish'],
  ['h.room', 'xadd'],
])
  test(`redis: what an ACL without ${right} refuses is not delivered later`, limit, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis.url), await start(t, redis.url)];
    await b.broker.subscribe(room);
    await redis.cli('ACL', 'SETUSER', 'default', `-${right}`);
    for (let i = 0; i < 5; i++)
      assert.equal(await outcome(a.broker.publish(room, Buffer.from(`no${i}`))), 'UNAVAILABLE');
    await redis.cli('ACL', 'SETUSER', 'default', `+${right}`);
    await eventually(() => a.broker.state === 'up');
    assert.equal(await outcome(a.broker.publish(room, Buffer.from('yes'))), 'accepted');
    await eventually(() => b.texts.length > 0);
    assert.deepEqual(b.texts, [`${room} yes`]);
  });

test(
  'redis: in a room with history, accepted is what the history has, delivered or not',
  limit,
  async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis.url);
    await redis.cli('ACL', 'SETUSER', 'default', '-publish');
    const accepted = [];
    for (let i = 0; i < 5; i++)
      if ((await outcome(a.broker.publish('h.room', Buffer.from(`${i}`)))) === 'accepted')
        accepted.push(`${i}`);
    const { publications } = await a.broker.history('h.room', { after: 0, limit: 10 });
    assert.deepEqual(publications.map(String), accepted);
  },
);

/** What a kind of room writes, and the rights without which Redis refuses a publish with a key. */
const REFUSED = {
  room: [['set'], ['publish']],
  'h.room': [['set'], ['xadd'], ['xadd', 'del']],
  's.room': [['set'], ['hset'], ['hset', 'del']],
};

for (const [room, all] of Object.entries(REFUSED))
  for (const rights of all)
    test(
      `redis: ${room}: what an ACL without ${rights.join(' and ')} refuses may be sent again with its idempotency key`,
      limit,
      async (t) => {
        const redis = await startRedis(t);
        const [a, b] = [await start(t, redis.url), await start(t, redis.url)];
        await b.broker.subscribe(room);
        const textOf = (/** @type {string} */ text) =>
          room === 's.room'
            ? encodeKeyed(1, 'ann', 'key', Buffer.from(`"${text}"`), 0, text.length + 2)
            : text;
        const publish = (/** @type {string} */ text, /** @type {string} */ idempotencyKey = '') =>
          a.broker.publish(room, Buffer.from(textOf(text)), { idempotencyKey });
        await publish('first');
        await redis.cli('ACL', 'SETUSER', 'default', ...rights.map((right) => `-${right}`));
        assert.equal(await outcome(publish('once', 'key')), 'UNAVAILABLE');
        await redis.cli('ACL', 'SETUSER', 'default', ...rights.map((right) => `+${right}`));
        await eventually(() => a.broker.state === 'up');
        const position = await publish('once', 'key');
        assert.deepEqual(await publish('once', 'key'), position);
        await publish('end');
        await eventually(() => b.texts.some((text) => text.includes('end')));
        assert.equal(b.texts.length, 3, b.texts.join());
      },
    );

test('redis: if it refuses what it is asked, the log says why, once a minute', limit, async (t) => {
  const redis = await startRedis(t);
  /** @type {Record<string, unknown>[]} */
  const lines = [];
  const log = pino({ level: 'warn' }, { write: (line) => lines.push(JSON.parse(line)) });
  const a = await start(t, redis.url, log);
  lines.length = 0;
  await redis.cli('CONFIG', 'SET', 'maxmemory', '1');
  for (let i = 0; i < 3; i++)
    assert.equal(await outcome(a.broker.publish('h.room', Buffer.from('text'))), 'UNAVAILABLE');
  assert.equal(lines.length, 1, JSON.stringify(lines));
  assert.equal(lines[0].msg, 'Redis refuses a publish or read');
  assert.match(String(lines[0].reason), /^OOM /);
});

for (const side of ['reader', 'publisher'])
  test(
    `redis: on a silent wire of the ${side} nothing is promised, and nothing arrives after later messages`,
    limit,
    async (t) => {
      const redis = await startRedis(t);
      const proxy = await startTcpProxy(t, redis.port);
      const [publisher, reader] = [
        await start(t, side === 'publisher' ? proxy.url : redis.url),
        await start(t, side === 'reader' ? proxy.url : redis.url),
      ];
      const cut = side === 'publisher' ? publisher : reader;
      await reader.broker.subscribe('room');
      await publisher.broker.publish('room', Buffer.from('0'));
      await eventually(() => reader.texts.length === 1);
      proxy.change({ isSilent: true });
      const outcomes = [];
      while (cut.broker.state === 'up') {
        outcomes.push(
          await outcome(publisher.broker.publish('room', Buffer.from(`${outcomes.length + 1}`))),
        );
        // What is refused at once takes no turn of the event loop, and no state would ever change.
        await turn();
      }
      // Whatever came before, the state says so from then on, and publishing refuses at once.
      const refused = await outcome(cut.broker.publish('room', Buffer.from('refused')));
      assert.equal(refused, 'UNAVAILABLE');
      if (side === 'publisher') assert.deepEqual(new Set(outcomes), new Set(['OUTCOME_UNKNOWN']));
      else assert.deepEqual(new Set(outcomes), new Set(['accepted']));
      proxy.change({});
      await eventually(() => cut.broker.state === 'up');
      // It became unavailable once and came back once: it did not say `up` in between.
      assert.deepEqual(cut.states, ['up', 'degraded', 'up']);
      assert.equal(await outcome(publisher.broker.publish('room', Buffer.from('end'))), 'accepted');
      await eventually(() => reader.texts.includes('room end'));
      await publisher.broker.publish('room', Buffer.from('last'));
      await eventually(() => reader.texts.includes('room last'));
      assert.equal(reader.texts.indexOf('room last'), reader.texts.length - 1);
      assert.equal(reader.texts.indexOf('room end'), reader.texts.length - 2);
      assert.ok(!reader.texts.includes('room refused'));
    },
  );

test(
  'redis: an address that leads to another Redis and back has another epoch each time',
  limit,
  async (t) => {
    const [first, second] = [await startRedis(t), await startRedis(t)];
    const proxy = await startTcpProxy(t, first.port);
    const a = await start(t, proxy.url);
    await a.broker.subscribe('h.room');
    const position = async () => {
      const published = await a.broker.publish('h.room', Buffer.from('x'));
      return /** @type {import('../../src/protocol/position.js').Position} */ (published);
    };
    const before = await position();
    const look = () => a.broker.history('h.room', { after: 0, limit: 10 });
    const lead = async (/** @type {import('../harness/redis.js').RedisServer} */ redis) => {
      proxy.target = redis.port;
      const changes = a.states.length;
      proxy.cut();
      await eventually(() => a.states.length >= changes + 2 && a.broker.state === 'up');
    };
    await lead(second);
    const meanwhile = await position();
    assert.notEqual(meanwhile.epoch, before.epoch);
    await lead(first);
    const page = await look();
    // The first Redis lacks publications of the second: a position there proves nothing now.
    assert.notEqual(page.epoch, before.epoch);
    assert.notEqual(page.epoch, meanwhile.epoch);
  },
);

test('redis: reading rooms that nobody has published to leaves no keys', limit, async (t) => {
  const redis = await startRedis(t);
  const { broker } = await start(t, redis.url);
  await broker.publish('h.used', Buffer.from('x'));
  const keys = await redis.cli('DBSIZE');
  await Promise.all(
    Array.from({ length: 500 }, async (_, i) => {
      const from = { after: 0, limit: i % 2 === 0 ? 10 : 0, isGlance: true };
      const { offset, publications } = await broker.history(`h.${i}`, from);
      assert.deepEqual([offset, publications], [0, []]);
    }),
  );
  assert.equal(await redis.cli('DBSIZE'), keys);
});

for (const part of ['values', 'log', 'sums', 'removed'])
  test(`redis: a state of which Redis has evicted the ${part} begins again`, limit, async (t) => {
    const redis = await startRedis(t);
    const { broker } = await start(t, redis.url);
    const set = (/** @type {string} */ key, text = '1') =>
      broker.publish('s.room', encodeKeyed(1, 'me', key, Buffer.from(text), 0, text.length));
    await set('a');
    await set('b', 'null');
    const whole = () => broker.history('s.room', { after: 0, limit: 100, isForward: true });
    const before = await whole();
    assert.equal(before.publications.length, 2);
    await redis.cli('DEL', `promises:state:{s.room}:${part}`);
    await set('c');
    const { epoch, offset, publications } = await whole();
    assert.notEqual(epoch, before.epoch);
    assert.deepEqual([offset, publications.length], [1, 1]);
  });

test(
  'redis: a connection that Redis ends again and again is made more and more slowly',
  limit,
  async (t) => {
    const redis = await startRedis(t);
    const connection = new RedisConnection({
      settings: redis.settings,
      name: 'ended',
      timeoutMs: TIMEOUT_MS,
      onReady: () => {
        connection.prove();
        if (connection.attempts < 5) connection.redis.stream.destroy();
      },
      onAway: () => {},
    });
    t.after(() => connection.close());
    connection.open();
    await eventually(() => connection.attempts === 5 && connection.isReady);
    // It has lived for longer.
    connection.readyMs -= 1000;
    connection.redis.stream.destroy();
    await eventually(() => connection.attempts === 1);
  },
);
