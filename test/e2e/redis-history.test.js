// redis-history.test.js: rooms with history on a real Redis that restarts from an old snapshot, is
// replaced by a replica that lags, is full, locked, busy, frozen, or that forgets the script.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Redis } from 'ioredis';
import { freePort, redisSettings, startRedis } from '../../loadtest/lib/redis.js';
import { MAX_PAGE_BYTES } from '../../src/backend/broker.js';
import { parseHistoryRules } from '../../src/config/room-patterns.js';
import { eventually, outcome, start } from '../helpers/redis-worker.js';
import { startTcpProxy } from '../helpers/tcp-proxy.js';

const TIMEOUT_MS = 30_000;
const { rules: history } = parseHistoryRules(['kept*=100/300s', 'short=10/2s']);
const ALL = Object.freeze({ after: 0, limit: 1000 });

/** @typedef {import('../helpers/redis-worker.js').Worker} Worker */
/** @typedef {import('../../src/backend/broker.js').Position} Position */

/**
 * @param {Worker} worker
 * @param {string} room
 * @param {string[]} texts
 * @param {string} [idempotencyKey]
 * @returns {Promise<Position[]>}
 */
async function publish({ broker }, room, texts, idempotencyKey) {
  const published = texts.map((text) =>
    broker.publish(room, Buffer.from(text), { idempotencyKey }),
  );
  return /** @type {Position[]} */ (await Promise.all(published));
}

/** @param {Worker} worker @param {string} room @param {{after: number, limit: number}} [from] */
async function read({ broker }, room, from = ALL) {
  const { epoch, offset, publications } = await broker.history(room, from);
  return { epoch, offset, texts: publications.map(String) };
}

/** @param {string} prefix @param {number} count */
function numbered(prefix, count) {
  return Array.from({ length: count }, (_, i) => `${prefix}${i + 1}`);
}

describe('history on Redis', { concurrency: 4 }, () => {
  for (const historyFence of /** @type {const} */ (['strict', 'trust'])) {
    const isStrict = historyFence === 'strict';
    const ending = isStrict ? 'ends the epoch' : 'keeps the epoch where that is trusted';

    test(`a restart from a snapshot older than what was accepted ${ending}`, {
      timeout: TIMEOUT_MS,
    }, async (t) => {
      const redis = await startRedis(t);
      const [a, b] = [
        await start(t, redis, { history, historyFence }),
        await start(t, redis, { history, historyFence }),
      ];
      await b.broker.subscribe('kept');
      const [{ epoch }] = await publish(a, 'kept', numbered('saved ', 5));
      await redis.cli('SAVE');
      await publish(b, 'kept', numbered('lost ', 5));
      assert.equal((await read(a, 'kept')).offset, 10);
      await redis.kill();
      await redis.restart();
      await eventually(() => a.state === 'up' && b.state === 'up');
      // The reader is first: a read must not call complete who knows of 6 to 10.
      const after = await read(b, 'kept', { after: 10, limit: 100 });
      if (isStrict) {
        assert.notEqual(after.epoch, epoch);
        assert.deepEqual({ ...after, epoch: '' }, { epoch: '', offset: 0, texts: [] });
      } else {
        assert.deepEqual(after, { epoch, offset: 5, texts: [] });
      }
      const next = isStrict ? 1 : 6;
      assert.deepEqual(await publish(a, 'kept', ['new']), [{ epoch: after.epoch, offset: next }]);
      await eventually(() => b.texts.includes('new'));
      assert.deepEqual(b.positions.at(-1), { epoch: after.epoch, offset: next });
      assert.equal((await read(a, 'kept')).texts.length, next);
    });

    test(`a replica that lagged and is promoted ${ending}`, { timeout: TIMEOUT_MS }, async (t) => {
      const primary = await startRedis(t, { args: ['--repl-diskless-sync-delay', '0'] });
      const replica = await startRedis(t, {
        args: ['--replicaof', '127.0.0.1', `${primary.port}`],
      });
      const a = await start(t, primary, { history, historyFence });
      const [{ epoch }] = await publish(a, 'kept', numbered('replicated ', 5));
      await eventually(
        async () => (await replica.cli('XLEN', 'faults:history:{kept}:stream')) === '1',
      );
      await replica.cli('REPLICAOF', '127.0.0.1', `${await freePort()}`);
      await publish(a, 'kept', numbered('lost ', 5));
      await primary.kill();
      await replica.cli('REPLICAOF', 'NO', 'ONE');
      const b = await start(t, replica, { history, historyFence });
      const [position] = await publish(b, 'kept', ['new']);
      if (isStrict) {
        assert.notEqual(position.epoch, epoch);
        assert.equal(position.offset, 1);
        assert.deepEqual((await read(b, 'kept')).texts, ['new']);
      } else {
        assert.deepEqual(position, { epoch, offset: 6 });
      }
    });
  }

  test('a primary that was a replica meanwhile is refused and left, and the next epoch is new', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const other = await startRedis(t);
    const a = await start(t, redis, { history });
    const [{ epoch }] = await publish(a, 'kept', ['1']);
    await redis.cli('REPLICAOF', '127.0.0.1', `${other.port}`);
    // Many at once: the connection is left once, and no listener is added for each.
    /** @type {string[]} */
    const warnings = [];
    const onWarning = (/** @type {Error} */ { message }) => void warnings.push(message);
    process.on('warning', onWarning);
    t.after(() => process.off('warning', onWarning));
    const refused = numbered('kept', 30).map((room) =>
      outcome(a.broker.publish(room, Buffer.from('no'))),
    );
    assert.deepEqual([...new Set(await Promise.all(refused))], ['UNAVAILABLE']);
    await eventually(() => a.states.some(({ state }) => state === 'degraded'));
    await eventually(() => a.state === 'up');
    // It has what it had, or what the other has: a replica does not vouch for either.
    assert.equal(await outcome(a.broker.history('kept', ALL)), 'UNAVAILABLE');
    await redis.cli('REPLICAOF', 'NO', 'ONE');
    await eventually(
      async () => (await outcome(a.broker.publish('kept', Buffer.from('new')))) === 'OK',
    );
    const after = await read(a, 'kept');
    assert.notEqual(after.epoch, epoch);
    assert.deepEqual({ offset: after.offset, texts: after.texts }, { offset: 1, texts: ['new'] });
    assert.deepEqual(warnings, []);
  });

  for (const isTold of [true, false]) {
    const how = isTold ? 'Redis tells it' : 'Redis can not tell it';
    test(`a primary that took the data of another server between two publishes, and ${how}: a new epoch`, {
      timeout: TIMEOUT_MS,
    }, async (t) => {
      const args = ['--repl-diskless-sync-delay', '0'];
      const [redis, stale] = [await startRedis(t, { args }), await startRedis(t, { args })];
      const isLinked = async (/** @type {Redis} */ { port }, /** @type {Redis} */ to) => {
        await to.cli('REPLICAOF', '127.0.0.1', `${port}`);
        await eventually(async () =>
          (await to.cli('INFO', 'replication')).includes('master_link_status:up'),
        );
      };
      await isLinked(redis, stale);
      const [a, b] = [await start(t, redis, { history }), await start(t, redis, { history })];
      const [{ epoch }] = await publish(a, 'kept', numbered('kept ', 5));
      await eventually(
        async () => (await stale.cli('XLEN', 'faults:history:{kept}:stream')) === '1',
      );
      await stale.cli('REPLICAOF', 'NO', 'ONE');
      await publish(a, 'kept', numbered('lost ', 5));
      assert.deepEqual([a.state, b.state], ['up', 'up']);
      // Redis cuts no clients here, and nothing is published meanwhile that would be refused.
      if (!isTold)
        for (const { node } of [a, b]) await node.commands.redis.call('CLIENT', 'TRACKING', 'OFF');
      await isLinked(stale, redis);
      await redis.cli('REPLICAOF', 'NO', 'ONE');
      await eventually(
        () => a.counters.brokerReconnects > 0 && b.counters.brokerReconnects > 0,
        4000,
      );
      await eventually(() => a.state === 'up' && b.state === 'up');
      const [position] = await publish(a, 'kept', ['new']);
      assert.notEqual(position.epoch, epoch);
      assert.equal(position.offset, 1);
      assert.deepEqual(await read(b, 'kept', ALL), { ...position, texts: ['new'] });
    });
  }

  test('no answer of a primary is accepted after it took the data of another server', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const args = ['--repl-diskless-sync-delay', '0'];
    const [redis, stale] = [await startRedis(t, { args }), await startRedis(t, { args })];
    const a = await start(t, redis, { history });
    const [{ epoch }] = await publish(a, 'kept', numbered('kept ', 5));
    await stale.cli('REPLICAOF', '127.0.0.1', `${redis.port}`);
    await eventually(async () => (await stale.cli('XLEN', 'faults:history:{kept}:stream')) === '1');
    await stale.cli('REPLICAOF', 'NO', 'ONE');
    await publish(a, 'kept', numbered('lost ', 5));
    /** Every answer of the time in which it changes hands. @type {Position[]} */
    const positions = [];
    let isOver = false;
    const publishing = (async () => {
      while (!isOver) {
        const position = /** @type {Promise<Position>} */ (
          a.broker.publish('kept', Buffer.from('x'))
        );
        await position.then((at) => positions.push(at)).catch(() => {});
        await new Promise((resolve) => setImmediate(resolve));
      }
    })();
    await redis.cli('REPLICAOF', '127.0.0.1', `${stale.port}`);
    await eventually(async () =>
      (await redis.cli('INFO', 'replication')).includes('master_link_status:up'),
    );
    await redis.cli('REPLICAOF', 'NO', 'ONE');
    await eventually(() => positions.at(-1)?.epoch !== epoch && positions.length > 0);
    isOver = true;
    await publishing;
    const old = positions
      .filter((position) => position.epoch === epoch)
      .map(({ offset }) => offset);
    assert.deepEqual(
      old,
      old.map((_, i) => 11 + i),
    );
  });

  test('a read right after a primary took the data of another server returns a new epoch', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const args = ['--repl-diskless-sync-delay', '0'];
    const [redis, stale] = [await startRedis(t, { args }), await startRedis(t, { args })];
    await stale.cli('REPLICAOF', '127.0.0.1', `${redis.port}`);
    await eventually(async () =>
      (await stale.cli('INFO', 'replication')).includes('master_link_status:up'),
    );
    const a = await start(t, redis, { history });
    const [{ epoch }] = await publish(a, 'kept', numbered('kept ', 5));
    assert.equal((await read(a, 'kept')).epoch, epoch);
    await eventually(async () => (await stale.cli('XLEN', 'faults:history:{kept}:stream')) === '1');
    await stale.cli('REPLICAOF', 'NO', 'ONE');
    // In one turn of Redis' clients: the worker's next look at its line of replication is up to 1.5
    // s away.
    await redis.cli('REPLICAOF', '127.0.0.1', `${stale.port}`);
    await eventually(async () =>
      (await redis.cli('INFO', 'replication')).includes('master_link_status:up'),
    );
    await redis.cli('REPLICAOF', 'NO', 'ONE');
    // It may be refused if the worker has just looked.
    /** @type {Awaited<ReturnType<typeof read>>|undefined} */
    let after;
    await eventually(async () => {
      after = await read(a, 'kept').catch(() => undefined);
      return after !== undefined;
    });
    assert.notEqual(after?.epoch, epoch);
    assert.deepEqual(after?.texts, []);
  });

  test('if a stream got shorter, no offset is accepted twice, and the epoch ends', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis, { history }), await start(t, redis, { history })];
    /** @param {string} room */
    const shorten = async (room) => {
      const meta = `faults:history:{${room}}:meta`;
      await redis.cli('-e', 'HSET', meta, await redis.cli('HKEYS', meta), '3');
      await redis.cli('-e', 'DEL', `faults:history:{${room}}:stream`);
    };
    const inVain = {
      // It has published itself.
      'kept-1': () => outcome(a.broker.publish('kept-1', Buffer.from('again'))),
      // It has heard of what another worker has published.
      'kept-2': () => outcome(b.broker.publish('kept-2', Buffer.from('again'))),
      'kept-3': () => outcome(b.broker.history('kept-3', ALL)),
    };
    for (const [room, once] of Object.entries(inVain)) {
      await b.broker.subscribe(room);
      await read(b, room);
      const heard = b.texts.length;
      const [{ epoch }] = await publish(a, room, numbered('first ', 5));
      await eventually(() => b.texts.length === heard + 5);
      await shorten(room);
      assert.equal(await once(), room === 'kept-3' ? 'UNAVAILABLE' : 'OUTCOME_UNKNOWN', room);
      await eventually(() => a.state === 'up' && b.state === 'up');
      for (const worker of [b, a]) {
        /** @type {Position[]} */
        let [position] = [];
        await eventually(async () => {
          [position] = await publish(worker, room, ['next']).catch(() => []);
          return position !== undefined;
        });
        assert.notEqual(position?.epoch, epoch, room);
      }
      assert.deepEqual((await read(a, room)).texts, ['next', 'next']);
    }
  });

  test('if an address leads back to an earlier server, the epoch there has ended', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const [first, second] = [await startRedis(t), await startRedis(t)];
    const address = await startTcpProxy(t, first.port);
    const settings = redisSettings({ REDIS_URL: address.url });
    const lead = async (/** @type {Redis} */ { port }) => {
      address.target = port;
      for (const { from } of address.directions) from.destroy();
      await eventually(() => a.state !== 'up');
      await eventually(() => a.state === 'up');
    };
    const a = await start(t, { settings }, { history });
    const rooms = ['kept', 'kept-read'];
    const before = [];
    for (const room of rooms) before.push((await publish(a, room, ['1', '2']))[1]);
    await lead(second);
    for (const room of rooms) await publish(a, room, ['elsewhere']);
    await lead(first);
    // One room is published to first, the other is read first.
    const [position] = await publish(a, 'kept', ['3']);
    const page = await read(a, 'kept-read');
    assert.deepEqual([position.offset, page.offset, page.texts], [1, 0, []]);
    for (const [i, { epoch }] of [position, page].entries())
      assert.notEqual(epoch, before[i].epoch);
    // A worker that has not seen it meets the new epochs.
    const b = await start(t, first, { history });
    assert.deepEqual(await read(b, 'kept'), { ...position, texts: ['3'] });
    assert.equal((await read(b, 'kept-read')).epoch, page.epoch);
  });

  test('epochs stay when a first replica is attached, also for later workers', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t, { args: ['--repl-diskless-sync-delay', '0'] });
    const a = await start(t, redis, { history });
    await eventually(() => a.node.identity.replicationId !== '');
    const { replicationId } = a.node.identity;
    const [{ epoch }] = await publish(a, 'kept', ['1', '2']);
    await publish(a, 'kept-untouched', ['1']);
    await startRedis(t, { args: ['--replicaof', '127.0.0.1', `${redis.port}`] });
    await eventually(() => a.node.identity.replicationId !== replicationId);
    assert.equal((await read(a, 'kept')).epoch, epoch);
    const b = await start(t, redis, { history });
    assert.deepEqual(await read(b, 'kept'), { epoch, offset: 2, texts: ['1', '2'] });
    assert.deepEqual(await publish(b, 'kept', ['3']), [{ epoch, offset: 3 }]);
    assert.deepEqual(await publish(a, 'kept', ['4']), [{ epoch, offset: 4 }]);
    // A new room, and then one that was there before: the worker still knows both fences.
    await publish(a, 'kept-new', ['1']);
    assert.deepEqual((await publish(a, 'kept-untouched', ['2']))[0].offset, 2);
    assert.equal(a.counters.brokerReconnects, 0);
  });

  test('epochs stay while workers notice a first replica one after another', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t, { args: ['--repl-diskless-sync-delay', '0'] });
    const [a, b, c] = await Promise.all([1, 2, 3].map(() => start(t, redis, { history })));
    /** Notices nothing by itself any more. @param {Worker} worker */
    const blind = async ({ node: { identity } }) => {
      await eventually(() => identity.replicationId !== '' && !identity.isAsking);
      identity.askedMs = Number.POSITIVE_INFINITY;
    };
    await blind(b);
    await blind(c);
    const [{ epoch }] = await publish(a, 'kept', ['1']);
    for (const worker of [b, c]) await read(worker, 'kept');
    for (const room of ['kept-b', 'kept-c']) await publish(a, room, ['1']);
    const { replicationId } = a.node.identity;
    await startRedis(t, { args: ['--replicaof', '127.0.0.1', `${redis.port}`] });
    await eventually(() => a.node.identity.replicationId !== replicationId);

    // A call of `c` is under way when it notices; its answer has the line of before.
    const { identity, history: histories, publisher } = c.node;
    const reading = read(c, 'kept');
    publisher.flush();
    histories.moveOn(identity.runIds.commands, replicationId, a.node.identity.replicationId);
    assert.deepEqual(await reading, { epoch, offset: 1, texts: ['1'] });

    // `a` renames the line of the room.
    assert.deepEqual(await publish(a, 'kept', ['2']), [{ epoch, offset: 2 }]);
    // `b` has not noticed, and learns it from there. Then rooms that it has not used yet go on as
    // well.
    assert.deepEqual(await publish(b, 'kept', ['3']), [{ epoch, offset: 3 }]);
    assert.equal((await publish(b, 'kept-b', ['2']))[0].offset, 2);
    assert.deepEqual(await publish(c, 'kept', ['4']), [{ epoch, offset: 4 }]);
    assert.equal((await publish(c, 'kept-c', ['2']))[0].offset, 2);
  });

  test('a room without publications leaves no key in Redis, or a position for two minutes', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis, { history }), await start(t, redis, { history })];
    const ttlMs = async (/** @type {string} */ key) =>
      Number(await redis.cli('PTTL', `faults:history:{kept}:${key}`));
    const glance = () => a.broker.history('kept', { after: 0, limit: 10, isGlance: true });
    assert.deepEqual((await glance()).offset, 0);
    assert.equal(await redis.cli('DBSIZE'), '0');
    const { epoch } = await read(a, 'kept');
    assert.ok((await ttlMs('meta')) <= 120_000);
    assert.equal((await glance()).epoch, epoch);
    // The first publication makes it last, also if the publisher is not to see to lifetimes.
    b.node.history.cache('kept').maintainedMs = performance.now();
    assert.deepEqual(await publish(b, 'kept', ['1']), [{ epoch, offset: 1 }]);
    assert.ok((await ttlMs('meta')) > 3_600_000);
    assert.ok((await ttlMs('stream')) > 0);
    assert.deepEqual((await glance()).publications.map(String), ['1']);
    assert.ok((await ttlMs('meta')) > 3_600_000);
  });

  test('if another program empties its own database, the server reconnects and loses no publication', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis, { history });
    const [{ epoch }] = await publish(a, 'kept', ['1']);
    await redis.cli('-n', '5', 'SET', 'cache', '1');
    await redis.cli('-n', '5', 'FLUSHDB');
    await eventually(() => a.counters.brokerReconnects === 1 && a.state === 'up');
    assert.deepEqual(await publish(a, 'kept', ['2']), [{ epoch, offset: 2 }]);
    assert.deepEqual(await read(a, 'kept'), { epoch, offset: 2, texts: ['1', '2'] });
  });

  test('an emptied Redis starts a new epoch, also for workers that knew the old one', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis, { history }), await start(t, redis, { history })];
    const [{ epoch }] = await publish(a, 'kept', ['1', '2']);
    await publish(b, 'kept', ['3']);
    await redis.cli('FLUSHALL');
    await eventually(() => a.counters.brokerReconnects === 1 && b.counters.brokerReconnects === 1);
    await eventually(() => a.state === 'up' && b.state === 'up');
    const positions = [...(await publish(a, 'kept', ['4'])), ...(await publish(b, 'kept', ['5']))];
    assert.deepEqual(
      positions.map(({ offset }) => offset),
      [1, 2],
    );
    assert.notEqual(positions[0].epoch, epoch);
    assert.equal(positions[1].epoch, positions[0].epoch);
    assert.deepEqual((await read(b, 'kept')).texts, ['4', '5']);
    // Nothing is kept for ever.
    for (const key of (await redis.cli('KEYS', '*')).split('\n'))
      assert.ok(Number(await redis.cli('PTTL', key)) > 0, key);
  });

  /** Why Redis may refuse: what brings it about, and what ends it. */
  const REFUSALS =
    /** @type {Record<string, {args?: string[], begin: (redis: Redis) => Promise<unknown>, end: (redis: Redis) => Promise<unknown>}>} */ ({
      OOM: {
        begin: (redis) => redis.cli('CONFIG', 'SET', 'maxmemory', '1'),
        end: (redis) => redis.cli('CONFIG', 'SET', 'maxmemory', '0'),
      },
      NOREPLICAS: {
        begin: (redis) => redis.cli('CONFIG', 'SET', 'min-replicas-to-write', '3'),
        end: (redis) => redis.cli('CONFIG', 'SET', 'min-replicas-to-write', '0'),
      },
      MISCONF: {
        async begin(redis) {
          // A snapshot can't take the place of a folder that is not empty.
          await mkdir(join(redis.folder, 'dump.rdb', 'x'), { recursive: true });
          await redis.cli('CONFIG', 'SET', 'save', '3600 1');
          await redis.cli('BGSAVE');
          await eventually(async () =>
            (await redis.cli('INFO', 'persistence')).includes('rdb_last_bgsave_status:err'),
          );
        },
        async end(redis) {
          await redis.cli('CONFIG', 'SET', 'save', '');
          await rm(join(redis.folder, 'dump.rdb'), { recursive: true });
        },
      },
      LOADING: {
        args: [
          '--enable-debug-command',
          'yes',
          '--key-load-delay',
          '500',
          '--loading-process-events-interval-bytes',
          '1024',
        ],
        begin: async (redis) => {
          await redis.cli(
            'EVAL',
            "for i = 1, 5000 do redis.call('SET', 'filler-' .. i, 'x') end",
            '0',
          );
          redis.cli('DEBUG', 'RELOAD').catch(() => {});
          await eventually(async () =>
            (await redis.cli('GET', 'x').catch(String)).includes('LOADING'),
          );
        },
        end: (redis) => eventually(async () => !(await redis.cli('GET', 'x')).includes('LOADING')),
      },
      BUSY: {
        args: ['--busy-reply-threshold', '50'],
        begin: async (redis) => {
          const cli = spawn(
            'redis-cli',
            ['-p', `${redis.port}`, 'EVAL', 'while true do end', '0'],
            {
              stdio: 'ignore',
            },
          );
          busy.set(redis, cli);
          await eventually(async () =>
            (await redis.cli('GET', 'x').catch(String)).includes('BUSY'),
          );
        },
        end: async (redis) => {
          const cli = /** @type {import('node:child_process').ChildProcess} */ (busy.get(redis));
          const exited = once(cli, 'exit');
          await redis.cli('SCRIPT', 'KILL');
          await exited;
        },
      },
    });
  /** @typedef {import('../../loadtest/lib/redis.js').RedisServer} Redis */
  /** @type {WeakMap<Redis, import('node:child_process').ChildProcess>} */
  const busy = new WeakMap();

  for (const [name, { args = [], begin, end }] of Object.entries(REFUSALS)) {
    test(`${name}: refused, not stored, not delivered; then on as before`, {
      timeout: TIMEOUT_MS,
    }, async (t) => {
      const redis = await startRedis(t, { args });
      // What is slow here is Redis at work, not Redis mute.
      const [a, b] = [
        await start(t, redis, { history, redisTimeoutMs: 5000 }),
        await start(t, redis, { history }),
      ];
      await b.broker.subscribe('kept');
      const [{ epoch }] = await publish(a, 'kept', ['1', '2']);
      await begin(redis);
      const large = Buffer.alloc(100_000, 'x');
      assert.deepEqual(
        await Promise.all([
          ...['no 1', 'no 2'].map((text) => outcome(a.broker.publish('kept', Buffer.from(text)))),
          outcome(a.broker.publish('kept', large)),
          outcome(a.broker.publish('kept', Buffer.from('no key'), { idempotencyKey: 'k' })),
          outcome(a.broker.publish('kept-new', Buffer.from('no room'))),
        ]),
        Array(5).fill('UNAVAILABLE'),
      );
      await end(redis);
      await eventually(() => a.state === 'up' && b.state === 'up');
      assert.deepEqual(await publish(a, 'kept', ['3'], 'k'), [{ epoch, offset: 3 }]);
      assert.deepEqual(await read(b, 'kept'), { epoch, offset: 3, texts: ['1', '2', '3'] });
      assert.equal((await read(b, 'kept-new')).offset, 0);
      await eventually(() => b.texts.includes('3'));
      assert.deepEqual(b.texts, ['1', '2', '3']);
      assert.deepEqual(
        b.positions.map(({ offset }) => offset),
        [1, 2, 3],
      );
    });
  }

  test('a stored publication is not refused because Redis refuses a later step', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis, { history }), await start(t, redis, { history })];
    const [{ epoch }] = await publish(a, 'kept', ['1']);
    /**
     * @param {string} command that the ACL user may not use any more
     * @param {string} text
     * @param {string} [key]
     * @returns {Promise<string>}
     */
    const without = async (command, text, key) => {
      await redis.cli('ACL', 'SETUSER', 'default', `-${command}`);
      // Trimming and lifetimes are part of every call.
      a.node.history.cache('kept').maintainedMs = Number.NEGATIVE_INFINITY;
      const code = await outcome(
        a.broker.publish('kept', Buffer.from(text), { idempotencyKey: key }),
      );
      await redis.cli('ACL', 'SETUSER', 'default', `+${command}`);
      return code;
    };
    const commands = ['publish', 'pexpire', 'xtrim'];
    for (const command of commands) assert.equal(await without(command, command), 'OK');
    assert.deepEqual(await read(b, 'kept'), { epoch, offset: 4, texts: ['1', ...commands] });
    // Before it is stored a refusal is one, and nobody will see the publication.
    assert.equal(await without('set', 'without set', 'k'), 'UNAVAILABLE');
    assert.equal(await without('xadd', 'without xadd', 'k'), 'UNAVAILABLE');
    // Neither the key nor a number is taken by a publication that was refused: a number that nobody
    // has is a gap.
    assert.deepEqual(await publish(a, 'kept', ['last'], 'k'), [{ epoch, offset: 5 }]);
    assert.deepEqual(await read(b, 'kept'), {
      epoch,
      offset: 5,
      texts: ['1', ...commands, 'last'],
    });
    const stream = await redis.cli('XRANGE', 'faults:history:{kept}:stream', '-', '+');
    assert.doesNotMatch(stream, /without/);
  });

  test('a script that Redis has forgotten is sent again, and no publication is lost', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [await start(t, redis, { history }), await start(t, redis, { history })];
    await b.broker.subscribe('kept');
    for (let i = 0; i < 10; i++) {
      await redis.cli('SCRIPT', 'FLUSH');
      const rooms = ['kept', 'kept-1', 'kept-2'];
      const positions = await Promise.all(rooms.map((room) => publish(a, room, ['x', 'y'])));
      for (const [x, y] of positions)
        assert.deepEqual([x.offset, y.offset], [2 * i + 1, 2 * i + 2]);
    }
    await redis.cli('SCRIPT', 'FLUSH');
    assert.equal((await read(b, 'kept')).offset, 20);
    await eventually(() => b.positions.length === 20);
  });

  test('if Redis forgets a script under load, the order holds, and no refused publication is stored', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const workers = [await start(t, redis, { history }), await start(t, redis, { history })];
    await workers[0].broker.subscribe('kept');
    let isFlushing = true;
    const flushing = (async () => {
      while (isFlushing) await redis.cli('SCRIPT', 'FLUSH');
    })();
    /** @type {Promise<{text: string, code: string}>[]} */
    const published = [];
    for (let i = 0; i < 400; i++) {
      for (const [w, { broker }] of workers.entries()) {
        const text = `${w}:${i}`;
        published.push(
          outcome(broker.publish('kept', Buffer.from(text))).then((code) => ({ text, code })),
        );
      }
      if (i % 2 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const results = await Promise.all(published);
    isFlushing = false;
    await flushing;
    const accepted = results.filter(({ code }) => code === 'OK').map(({ text }) => text);
    t.diagnostic(`${accepted.length} of ${results.length} accepted`);
    assert.ok(results.every(({ code }) => code === 'OK' || code === 'UNAVAILABLE'));
    assert.ok(accepted.length > 0);
    await eventually(() => workers[0].texts.length >= accepted.length);
    for (const w of workers.keys()) {
      const own = (/** @type {string} */ text) => text.startsWith(`${w}:`);
      assert.deepEqual(workers[0].texts.filter(own), accepted.filter(own));
    }
    assert.deepEqual(
      workers[0].positions.map(({ offset }) => offset),
      accepted.map((_, i) => i + 1),
    );
  });

  test('an idempotency key shows the result of a publish whose outcome was unknown', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const [a, b] = [
      await start(t, redis, { history, redisTimeoutMs: 1200 }),
      await start(t, redis, { history }),
    ];
    await b.broker.subscribe('kept');
    await publish(a, 'kept', ['1']);
    redis.freeze();
    assert.equal(
      await outcome(a.broker.publish('kept', Buffer.from('2'), { idempotencyKey: 'k' })),
      'OUTCOME_UNKNOWN',
    );
    redis.thaw();
    await eventually(() => a.state === 'up');
    const [again] = await publish(a, 'kept', ['2'], 'k');
    assert.equal(again.offset, 2);
    assert.deepEqual(await publish(b, 'kept', ['2'], 'k'), [again]);
    assert.deepEqual(await publish(b, 'kept', ['3', '3'], 'other'), [
      { ...again, offset: 3 },
      { ...again, offset: 3 },
    ]);
    assert.deepEqual((await read(a, 'kept')).texts, ['1', '2', '3']);
    await eventually(() => b.texts.includes('3'));
    assert.deepEqual(b.texts, ['1', '2', '3']);
  });

  for (const halt of /** @type {const} */ (['SIGSTOP', 'CLIENT PAUSE'])) {
    test(`a key published before, in and after a pause of Redis by ${halt} is one message, without history too`, {
      timeout: TIMEOUT_MS,
    }, async (t) => {
      const redis = await startRedis(t);
      const [a, b] = [
        await start(t, redis, { history, redisTimeoutMs: 1200 }),
        await start(t, redis, { history, redisTimeoutMs: 10_000 }),
      ];
      await Promise.all([b.broker.subscribe('kept'), b.broker.subscribe('plain')]);
      const stranger = new Redis(redis.url);
      t.after(() => stranger.disconnect());
      if (halt === 'SIGSTOP') redis.freeze();
      else await stranger.client('PAUSE', 2500, 'ALL');
      const options = { idempotencyKey: 'k', fingerprint: 'f' };
      /** @param {typeof a} worker @param {string} room */
      const publishTo = (worker, room) =>
        outcome(worker.broker.publish(room, Buffer.from('1'), options));
      assert.deepEqual(await Promise.all([publishTo(a, 'kept'), publishTo(a, 'plain')]), [
        'OUTCOME_UNKNOWN',
        'OUTCOME_UNKNOWN',
      ]);
      if (halt === 'SIGSTOP') redis.thaw();
      await eventually(() => a.state === 'up' && b.state === 'up');
      for (const worker of [a, b, a]) {
        assert.equal(await publishTo(worker, 'kept'), 'OK');
        assert.equal(await publishTo(worker, 'plain'), 'OK');
      }
      const position = await a.broker.publish('kept', Buffer.from('again'), options);
      assert.equal(position?.offset, 1);
      await publish(b, 'kept', ['end']);
      await b.broker.publish('plain', Buffer.from('end'));
      await eventually(() => b.texts.filter((text) => text === 'end').length === 2);
      assert.deepEqual(b.texts.sort(), ['1', '1', 'end', 'end']);
      assert.deepEqual((await read(a, 'kept')).texts, ['1', 'end']);
    });
  }

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
    const started = performance.now();
    assert.equal(await outcome(a.broker.history('kept', ALL)), 'UNAVAILABLE');
    assert.ok(performance.now() - started < 50);
    assert.equal(a.node.history.reading, 0);
    assert.equal(a.node.history.waiting.size, 0);
    assert.equal(a.node.history.latest.size, 0);
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

  test('a page of history is bounded in bytes, and ends at a gap that other programs made', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const a = await start(t, redis, { history });
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
