// redis-history-epochs.test.js: rooms with history or state on a real Redis that restarts from an old
// snapshot, is replaced by a replica that lags, or is emptied: no offset is given twice.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { freePort, redisSettings, startRedis } from '../harness/redis.js';
import { ALL, history, numbered, publish, read, TIMEOUT_MS } from '../helpers/redis-history.js';
import { eventually, outcome, start } from '../helpers/redis-worker.js';
import { change } from '../helpers/state-broker.js';
import { startTcpProxy } from '../helpers/tcp-proxy.js';

/** @typedef {import('../helpers/redis-worker.js').Worker} Worker */
/** @typedef {import('../../src/backend/broker.js').HistoryPage} HistoryPage */
/** @typedef {import('../../src/backend/broker.js').Position} Position */
/** @typedef {import('../../src/backend/broker.js').ReadRequest} ReadRequest */

/** @typedef {import('../harness/redis.js').RedisServer} RedisServer */

describe('epochs of histories on Redis', { concurrency: 4 }, () => {
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
      // The reader is first: a read must not call a client complete that knows of 6 to 10.
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

  test('a state outlives a restart of Redis with its data, in a new epoch', {
    timeout: TIMEOUT_MS,
  }, async (t) => {
    const redis = await startRedis(t);
    const value = { size: 10, ttlMs: 300_000, state: { everyMs: 0, maxBytes: 1e6 } };
    const rules = { history: [{ pattern: 'state', value }] };
    const [a, b] = [await start(t, redis, rules), await start(t, redis, rules)];
    const set = async (/** @type {string} */ key, /** @type {unknown} */ payload) =>
      /** @type {Position} */ (await a.broker.publish('state', change(key, payload)));
    const read = async (/** @type {Partial<ReadRequest>} */ from) => {
      const page = await b.broker.history('state', { ...ALL, isForward: true, ...from });
      const { offsets, isWhole } = /** @type {NonNullable<HistoryPage['state']>} */ (page.state);
      return { epoch: page.epoch, offset: page.offset, offsets, isWhole };
    };
    for (const key of ['x', 'y', 'x']) await set(key, 1);
    const { epoch: first } = await set('y', null);
    let former = first;
    // The second time Redis has forgotten the first change of the epoch.
    await redis.cli('SAVE');
    for (const isGlance of [true, false]) {
      const reconnects = [a, b].map(({ counters }) => counters.brokerReconnects);
      await redis.kill();
      await redis.restart();
      await eventually(() =>
        [a, b].every(
          ({ state, counters }, i) => state === 'up' && counters.brokerReconnects > reconnects[i],
        ),
      );
      const since = isGlance ? {} : { since: { epoch: former, offset: 4 } };
      const page = await read({ isGlance, ...since });
      const { epoch } = page;
      assert.ok(![first, former].includes(epoch));
      assert.deepEqual(page, { epoch, offset: 4, offsets: [3, 4], isWhole: !isGlance });
      assert.deepEqual(await set('z', 2), { epoch, offset: 5 });
      const next = await read({ since: { epoch, offset: 4 } });
      assert.deepEqual(next, { epoch, offset: 5, offsets: [5], isWhole: false });
      former = epoch;
    }
  });

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
    await eventually(() => a.state === 'degraded');
    // It has its own data or the other's: a replica proves neither.
    assert.equal(await outcome(a.broker.history('kept', ALL)), 'UNAVAILABLE');
    // What it takes for a room without history reaches no worker on the primary.
    await eventually(() => a.counters.brokerReconnects > 1);
    assert.equal(await outcome(a.broker.publish('plain', Buffer.from('no'))), 'UNAVAILABLE');
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
      const isLinked = async (
        /** @type {RedisServer} */ { port },
        /** @type {RedisServer} */ to,
      ) => {
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
      // It has received publications of another worker.
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
    const lead = async (/** @type {RedisServer} */ { port }) => {
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
});
