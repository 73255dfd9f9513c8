// redis-history-writes.test.js: publishes to rooms with history on a real Redis that is full, locked,
// busy, frozen, or forgets the script.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Redis } from 'ioredis';
import { startRedis } from '../harness/redis.js';
import { history, publish, read, TIMEOUT_MS } from '../helpers/redis-history.js';
import { eventually, outcome, start } from '../helpers/redis-worker.js';

/** @typedef {import('../harness/redis.js').RedisServer} RedisServer */

describe('publishes to histories on Redis', { concurrency: 4 }, () => {
  /** Why Redis may refuse: the cause, and its end. */
  const REFUSALS =
    /** @type {Record<string, {args?: string[], begin: (redis: RedisServer) => Promise<unknown>, end: (redis: RedisServer) => Promise<unknown>}>} */ ({
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

  /** @type {WeakMap<RedisServer, import('node:child_process').ChildProcess>} */
  const busy = new WeakMap();

  for (const [name, { args = [], begin, end }] of Object.entries(REFUSALS)) {
    test(`${name}: refused, not stored, not delivered; then on as before`, {
      timeout: TIMEOUT_MS,
    }, async (t) => {
      const redis = await startRedis(t, { args });
      // Redis is slow here because it works, not because it is unreachable.
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
    // Before the publication is stored, a refusal is final, and no client will see it.
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
});
