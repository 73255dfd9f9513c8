// redis-history-reads.test.js: reads and position checks of rooms with history on a real Redis, and
// their bounds.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { MAX_PAGE_BYTES } from '../../src/backend/broker.js';
import { freePort, startRedis } from '../harness/redis.js';
import { atOnce } from '../helpers/at-once.js';
import { ALL, history, numbered, publish, read, TIMEOUT_MS } from '../helpers/redis-history.js';
import { eventually, outcome, start } from '../helpers/redis-worker.js';

describe('reads of histories on Redis', { concurrency: 4 }, () => {
  test('a read fails at once without Redis, and in time if Redis does not answer', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis, { history, redisTimeoutMs: 1200 });
    await publish(a, 'kept', ['1']);
    redis.freeze();
    const outcomes = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        outcome(a.broker.history('kept', { after: 0, limit: i % 2 })),
      ),
    );
    assert.deepEqual(new Set(outcomes), new Set(['UNAVAILABLE']));
    redis.thaw();
    await eventually(() => a.state === 'up');
    assert.deepEqual((await read(a, 'kept')).texts, ['1']);
    await redis.kill();
    await eventually(() => a.state === 'degraded');
    assert.equal(await atOnce(outcome(a.broker.history('kept', ALL))), 'UNAVAILABLE');
    assert.equal(a.node.history.reading, 0);
    assert.equal(a.node.history.waiting.size, 0);
    assert.equal(a.node.history.latest.size, 0);
  });

  test('a page below a position costs Redis and the network what it returns, at every depth', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis, { history });
    // One entry for each message, so that the stream is long.
    for (let i = 1; i <= 3000; i++) await publish(a, 'deep', [String(i).padEnd(1000)]);
    const { epoch } = await a.broker.history('deep', { after: 0, limit: 1 });
    const sent = async () => {
      const stats = await redis.cli('INFO', 'stats');
      return Number(/total_net_output_bytes:(\d+)/.exec(stats)?.[1]);
    };
    // The first read of a connection sends the script.
    const [idle, begin] = [await sent(), await sent()];
    const noise = begin - idle;
    /** @type {number[]} */
    const costs = [];
    for (const offset of [3001, 2000, 1000, 50, 21, 1]) {
      const before = await sent();
      const page = await a.broker.history('deep', {
        after: 0,
        limit: 20,
        before: { epoch, offset },
      });
      assert.equal(page.publications.length, Math.min(20, offset - 1));
      assert.equal(page.hasOlder, offset > 21);
      costs.push((await sent()) - before - noise);
    }
    const [empty] = costs.slice(-1);
    for (const cost of costs.slice(0, -1)) assert.ok(cost > 20_000 && cost < 25_000, `${costs}`);
    assert.ok(empty < 3000, `${costs}`);
    const stats = await redis.cli('INFO', 'commandstats');
    t.diagnostic(`bytes sent: ${costs}; ${/cmdstat_evalsha:.*/.exec(stats)?.[0]}`);
  });

  test('many reads take turns, and all are answered', { timeout: TIMEOUT_MS }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis, { history });
    const { history: part } = a.node;
    await publish(a, 'kept', numbered('', 100));
    const reads = Array.from({ length: 3000 }, (_, i) =>
      read(a, 'kept', { after: 50, limit: i % 3 === 0 ? 100 : 0 }),
    );
    assert.ok(part.reading <= 512 && part.waiting.size > 0);
    const live = publish(a, 'kept', ['101']);
    for (const [i, { texts, offset }] of (await Promise.all(reads)).entries()) {
      assert.ok(offset === 100 || offset === 101);
      assert.equal(texts.length, i % 3 === 0 ? offset - 50 : 0);
    }
    assert.equal((await live)[0].offset, 101);
    assert.equal(part.reading, 0);
  });

  test('a stream is bounded in Redis, by its size and its time', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis, { history });
    const stream = 'faults:history:{short}:stream';
    for (let i = 0; i < 500; i++) await publish(a, 'short', ['x'.repeat(500)]);
    const length = Number(await redis.cli('XLEN', stream));
    // Eight fill a node of 4096 bytes; nodes are trimmed as a whole.
    assert.ok(length >= 10 && length <= 30, `${length}`);
    const ttl = Number(await redis.cli('PTTL', stream));
    assert.ok(ttl > 1900 && ttl <= 2500, `${ttl}`);
    assert.ok(Number(await redis.cli('PTTL', 'faults:history:{short}:meta')) > 86_000_000);
    // Batches too are trimmed, by their publications.
    for (let i = 0; i < 100; i++) await publish(a, 'short', numbered('y', 20));
    assert.ok(Number(await redis.cli('XLEN', stream)) <= 20);
    assert.deepEqual((await read(a, 'short')).texts, numbered('y', 20).slice(10));
  });

  test('a stream is bounded also if most publications are refused or repeated', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis, { history });
    const body = Buffer.from('x'.repeat(500));
    const [key, expect] = ['key', { epoch: '', offset: 1_000_000 }];
    await a.broker.publish('short', body, { idempotencyKey: key });
    for (const unused of [{ expect }, { idempotencyKey: key }]) {
      for (let i = 0; i < 100; i++) {
        for (let n = 0; n < 3; n++) await outcome(a.broker.publish('short', body, unused));
        await a.broker.publish('short', body);
      }
      const length = Number(await redis.cli('XLEN', 'faults:history:{short}:stream'));
      assert.ok(length >= 10 && length <= 30, `${length}`);
    }
  });

  test('a page of history is bounded in bytes, and ends at a gap that other programs made', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis, { history, redisTimeoutMs: 10_000 }); // 16 MB in one command
    const megabyte = Buffer.alloc(1024 * 1024, 'm');
    for (let i = 0; i < 12; i++) await a.broker.publish('kept', megabyte);
    const { offset, publications } = await a.broker.history('kept', ALL);
    assert.equal(offset, 12);
    assert.equal(publications.length, Math.floor(MAX_PAGE_BYTES / (megabyte.length + 32)));
    await a.broker.publish('kept', Buffer.alloc(2 * MAX_PAGE_BYTES, 'h'));
    assert.equal((await a.broker.history('kept', ALL)).publications.length, 1);
    for (const text of numbered('', 5)) await publish(a, 'kept', [text]);
    await redis.cli('XDEL', 'faults:history:{kept}:stream', '15');
    assert.deepEqual(await read(a, 'kept').then(({ texts }) => texts), ['3', '4', '5']);
  });

  test('a large publication that is gone before it is fetched leaves a gap in the offsets', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis, { history }), await start(t, redis, { history })];
    await b.broker.subscribe('kept');
    const { fetch } = b.broker.inbox;
    b.broker.inbox.fetch = async (...reference) => {
      await redis.cli('XDEL', 'faults:history:{kept}:stream', '2');
      return fetch(...reference);
    };
    const large = Buffer.alloc(100_000, 'x');
    await Promise.all([
      ...['1'].map((text) => publish(a, 'kept', [text])),
      a.broker.publish('kept', large),
      publish(a, 'kept', ['3']),
    ]);
    await eventually(() => b.texts.includes('3'));
    assert.deepEqual(
      b.positions.map(({ offset }) => offset),
      [1, 3],
    );
    assert.equal(b.counters.skipped, 1);
    assert.deepEqual((await read(a, 'kept')).texts, ['3']);
  });

  /** Asks for the position alone, as the check of a quiet room does. */
  const POSITION = Object.freeze({ after: 0, limit: 0 });

  /**
   * Starts a worker that has read the positions of these rooms, each with one publication.
   * @param {import('node:test').TestContext} t
   * @param {string[]} args of Redis
   * @param {string[]} rooms
   * @param {object} [config]
   */
  async function withPositions(t, args, rooms, config = {}) {
    const redis = await startRedis(t, { args });
    const worker = await start(t, redis, { history, ...config });
    await Promise.all(rooms.map((room) => publish(worker, room, ['1'])));
    const positions = () => Promise.all(rooms.map((room) => read(worker, room, POSITION)));
    const known = await positions();
    return { redis, worker, positions, known };
  }

  for (const isOff of [false, true]) {
    const how = isOff ? 'without fast paths' : 'with fast paths';
    test(`the position checks of a tick are reads behind one write, which the append-only file does not have: ${how}`, {
      timeout: TIMEOUT_MS,
    }, async (t) => {
      const { redis, positions, known } = await withPositions(
        t,
        ['--appendonly', 'yes'],
        numbered('kept', 50),
        isOff ? { fastPaths: 'off' } : {},
      );
      const aofBytes = async () =>
        /aof_current_size:(\d+)/.exec(await redis.cli('INFO', 'persistence'))?.[1];
      const before = await aofBytes();
      await redis.cli('CONFIG', 'RESETSTAT');
      assert.deepEqual(await positions(), known);
      const calls = [
        ...(await redis.cli('INFO', 'commandstats')).matchAll(
          /cmdstat_(hget|pexpire|evalsha):calls=(\d+)/g,
        ),
      ].map(([, name, count]) => [name, Number(count)]);
      assert.deepEqual(Object.fromEntries(calls), { hget: 50, pexpire: 1 });
      assert.equal(await aofBytes(), before);
    });
  }

  test('a position is refused by a primary without its replicas, and by one that became a replica', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const { redis, worker, positions, known } = await withPositions(t, [], ['kept']);
    const refused = () => outcome(worker.broker.history('kept', POSITION));
    await redis.cli('CONFIG', 'SET', 'min-replicas-to-write', '1');
    assert.equal(await refused(), 'UNAVAILABLE');
    await redis.cli('CONFIG', 'SET', 'min-replicas-to-write', '0');
    assert.deepEqual(await positions(), known);
    await redis.cli('REPLICAOF', '127.0.0.1', `${await freePort()}`);
    assert.equal(await refused(), 'UNAVAILABLE');
  });

  test('a position check notices a room that Redis has lost, and a publication of another worker', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const { redis, worker, positions, known } = await withPositions(t, [], ['kept']);
    const other = await start(t, redis, { history });
    await publish(other, 'kept', ['2']);
    assert.deepEqual(await positions(), [{ ...known[0], offset: 2 }]);
    await redis.cli('DEL', 'faults:history:{kept}:meta');
    const { epoch, offset } = await read(worker, 'kept', POSITION);
    assert.notEqual(epoch, known[0].epoch);
    assert.equal(offset, 0);
  });

  test('a position check extends the lifetime of meta from time to time', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const { redis, worker, positions, known } = await withPositions(t, [], ['kept']);
    const meta = 'faults:history:{kept}:meta';
    await redis.cli('PEXPIRE', meta, '60000');
    assert.deepEqual(await positions(), known);
    assert.ok(Number(await redis.cli('PTTL', meta)) <= 60_000);
    worker.node.history.cache('kept').renewalMs = performance.now();
    assert.deepEqual(await positions(), known);
    assert.ok(Number(await redis.cli('PTTL', meta)) > 80_000_000);
  });
});
