// presence-redis.test.js: presence when Redis forgets, refuses or is down, and when workers die.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createBackend } from '../../src/backend/redis/index.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { createCounters } from '../../src/observability/counters.js';
import { redisSettings, startRedis } from '../harness/redis.js';
import { until } from '../harness/server.js';
import { machineAt } from '../helpers/machine.js';
import {
  CONFIG,
  HEARTBEAT_MS,
  LONG_TTL_MS,
  MAX_MEMBERS,
  SETTLE_MS,
  started,
  TIMEOUT_MS,
  Worker,
} from '../helpers/presence-workers.js';
import { announcements, configOf, log } from './suite.js';

/** @typedef {import('../../src/backend/redis/presence.js').RedisPresence} RedisPresence */

/** Silence after which a worker is dead, in the tests that wait for it. */
const TTL_MS = 1500;

/** The same if a worker must repair its own entries. */
const NEVER_MS = 600_000;

const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always'];

/**
 * @param {{settings: import('../../src/config/redis.js').RedisSettings}} redis
 * @param {import('../../src/backend/redis/index.js').PresenceTimes} [times]
 */
function redisWorker(redis, times) {
  const counters = createCounters();
  const { broker, presence } = createBackend(
    {
      config: configOf({
        ...CONFIG,
        redis: redis.settings,
        redisPrefix: 'contract:',
        redisTimeoutMs: 1000,
      }),
      log,
      counters,
      workerId: 'worker',
      historyRules: new RoomRules([]),
      announcements,
      machine: machineAt(''),
      events: { onPublishLag() {}, onRoundTrip() {} },
    },
    { presenceTimes: { heartbeatMs: HEARTBEAT_MS, ttlMs: TTL_MS, settleMs: SETTLE_MS, ...times } },
  );
  assert.ok(presence);
  return { broker, presence, counters, kill: () => broker.node?.commands.close() };
}

/**
 * @param {string} behaviour
 * @param
 *   {(redis: import('../harness/redis.js').RedisServer, attach: (...rooms: string[]) => Promise<Worker & {counters: import('../../src/observability/counters.js').Counters, parts: ReturnType<typeof redisWorker>}>) => Promise<void>}
 *   body
 * @param {{args?: string[], ttlMs?: number}} [options]
 */
function withRedis(behaviour, body, { args, ttlMs = TTL_MS } = {}) {
  test(`redis: ${behaviour}`, { timeout: TIMEOUT_MS }, async (t) => {
    const redis = await startRedis(t, { args });
    await body(redis, async (...rooms) => {
      const parts = redisWorker(redis, { ttlMs });
      return Object.assign(await started(t, new Worker(parts), rooms), {
        counters: parts.counters,
        parts,
      });
    });
  });
}

/**
 * Takes a worker's presence away until another one hears it again. Only workers that have returned
 * hear announcements.
 * @param {Worker} worker @param {Worker} listener
 */
function comesBackAfter(worker, listener) {
  const presence = /** @type {RedisPresence} */ (worker.presence);
  const setUp = presence.setUp.bind(presence);
  presence.setUp = (isUp) => {
    if (!isUp) return;
    void until(() => listener.broker.state === 'up').then(() => {
      presence.setUp = setUp;
      setUp(worker.broker.state === 'up');
    });
  };
}

/**
 * No key of presence is left but the heartbeats.
 * @param {import('../harness/redis.js').RedisServer} redis
 */
async function leftovers(redis) {
  const keys = (await redis.cli('--raw', 'KEYS', 'contract:presence:*'))
    .split('\n')
    .filter((key) => key !== '');
  return keys.filter((key) => !/\{\*\}:(workers|dead|cleared|mark)$/.test(key));
}

withRedis(
  'a worker that was taken for dead puts its users back, and nothing is left of its old name',
  async (redis, attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    a.join('room', 'ann');
    b.join('room', 'bob');
    await until(() => b.events.length === 2);
    const presence = /** @type {RedisPresence} */ (a.presence);
    // Like a frozen worker, a sends no heartbeat until it has been cleared. One that comes earlier
    // would put the users back in time, without events.
    presence.session.beat.stop();
    /** @type {RedisPresence} */ (b.presence).died(presence.session.name);
    await until(() => b.events.length === 3, 5000, 'leave');
    presence.session.beat.start();
    await until(() => b.events.length === 4, 5000, 'join');
    assert.deepEqual(b.events.slice(2), ['room -ann', 'room +ann']);
    await until(() => b.counters.presenceReaped === 1); // counted behind the announcements
    assert.equal(await b.read('room'), '2: ann bob');
    a.presence.leave('room', 'ann');
    b.presence.leave('room', 'bob');
    await until(async () => (await leftovers(redis)).length === 0);
  },
  { ttlMs: NEVER_MS },
);

withRedis(
  'after Redis has lost everything, workers write and announce their users again, and the leaves',
  async (redis, attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    a.join('room', 'ann');
    a.join('room', 'leaver');
    b.join('room', 'bob');
    await until(() => a.events.length === 3 && b.events.length === 3);
    await redis.kill();
    await until(() => a.broker.state === 'degraded' && b.broker.state === 'degraded');
    await assert.rejects(a.presence.read('room'), { code: 'UNAVAILABLE' });
    a.presence.leave('room', 'leaver');
    a.join('room', 'new');
    a.join('room', 'passer-by');
    a.presence.leave('room', 'passer-by');
    comesBackAfter(a, b);
    await redis.restart();
    await until(async () => (await b.read('room').catch(() => '')) === '3: ann bob new');
    await until(() => b.events.length === 7);
    const events = ['room +ann', 'room +bob', 'room +new', 'room -leaver'];
    assert.deepEqual(b.events.slice(3).sort(), events);
  },
);

withRedis(
  'after Redis has lost everything, a list and the events that follow it are right, whoever returns last',
  async (redis, attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    for (const user of ['ann', 'amy']) a.join('room', user);
    for (const user of ['bob', 'ben']) b.join('room', user);
    await until(() => a.events.length === 4 && b.events.length === 4);
    await redis.kill();
    await until(() => a.broker.state === 'degraded' && b.broker.state === 'degraded');
    // b returns after a, and after a's list has been read.
    const presence = /** @type {RedisPresence} */ (b.presence);
    const setUp = presence.setUp.bind(presence);
    presence.setUp = () => {};
    await redis.restart();
    await until(async () => (await a.read('room').catch(() => '')) === '2: amy ann');
    await until(() => a.events.length === 6);
    setUp(true);
    await until(() => a.events.length === 8);
    assert.deepEqual(a.events.slice(6).sort(), ['room +ben', 'room +bob']);
    assert.equal(await a.read('room'), '4: amy ann ben bob');
  },
);

withRedis(
  'after an outage without loss, workers write and announce only the changes',
  async (redis, attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    a.join('room', 'ann');
    a.join('room', 'leaver');
    b.join('room', 'bob');
    await until(() => b.events.length === 3);
    await redis.stop();
    await until(() => a.broker.state === 'degraded' && b.broker.state === 'degraded');
    a.presence.leave('room', 'leaver');
    a.join('room', 'new');
    comesBackAfter(a, b);
    await redis.restart();
    await until(() => b.events.length === 5);
    assert.deepEqual(b.events.slice(3).sort(), ['room +new', 'room -leaver']);
    assert.equal(await b.read('room'), '3: ann bob new');
  },
  { args: DURABLE, ttlMs: NEVER_MS },
);

withRedis(
  'after an outage a worker with an older member does not replace the latest one',
  async (_redis, attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    a.join('room', 'ann', 'older');
    await until(async () => (await b.read('room')) === '1: older');
    b.join('room', 'ann', 'latest');
    await until(async () => (await a.read('room')) === '1: latest');
    // As if Redis may have lost the writes: both workers write all their users again.
    for (const { presence } of [b, a]) {
      const { session } = /** @type {RedisPresence} */ (presence);
      const { name } = session;
      session.doubt();
      await presence.read('room');
      await until(() => session.name !== name && session.past.length === 0);
      assert.equal(await b.read('room'), '1: latest');
    }
  },
);

withRedis(
  'a worker that has stood still for longer than the time-out does not judge others by it',
  async (redis, attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    b.join('room', 'bob');
    await until(async () => (await a.read('room')) === '1: bob');
    const [standing, other] = [a, b].map(
      ({ presence }) => /** @type {RedisPresence} */ (presence).session,
    );
    // Both stand still, as those of one machine do.
    for (const session of [standing, other]) session.beat.stop();
    const age = async (/** @type {string} */ name) => {
      const last = Number(await redis.cli('ZSCORE', 'contract:presence:{*}:workers', name));
      const [seconds, micros] = (await redis.cli('TIME')).split('\n').map(Number);
      return seconds * 1000 + micros / 1000 - last;
    };
    const { name } = other;
    await until(async () => (await age(standing.name)) > TTL_MS && (await age(name)) > TTL_MS);
    await standing.pulse();
    assert.equal(standing.dead.isClearing, false);
    assert.ok((await age(name)) > TTL_MS, 'it is still among the workers');
    // From now on its own heartbeats prove that Redis was there.
    await standing.pulse();
    assert.deepEqual(standing.dead.clearing, [name]);
  },
);

withRedis(
  'an outage longer than the time-out of heartbeats removes no user',
  async (redis, attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    a.join('room', 'ann');
    b.join('room', 'bob');
    await until(() => a.events.length === 2 && b.events.length === 2);
    const goneMs = performance.now();
    await redis.stop();
    await until(
      () =>
        performance.now() - goneMs > LONG_TTL_MS + 500 &&
        a.broker.state !== 'up' &&
        b.broker.state !== 'up',
    );
    await redis.restart();
    await until(async () => (await b.read('room').catch(() => '')) === '2: ann bob');
    await until(async () => (await a.read('room').catch(() => '')) === '2: ann bob');
    // Both old names are cleared up after by their owners.
    await until(
      async () =>
        (await redis.cli('KEYS', 'contract:presence:{room}:users:*')).split('\n').length === 2,
    );
    assert.deepEqual(b.events.slice(2), []);
    assert.deepEqual(a.events.slice(2), []);
    assert.equal(a.counters.presenceReaped + b.counters.presenceReaped, 0);
  },
  { args: DURABLE, ttlMs: LONG_TTL_MS },
);

withRedis(
  'after a flush, users are restored, and a leave right after it is announced',
  async (redis, attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    for (const user of ['ann', 'leaver']) a.join('room', user);
    b.join('room', 'bob');
    await until(() => a.events.length === 3 && b.events.length === 3);
    await redis.cli('FLUSHALL');
    a.presence.leave('room', 'leaver');
    await until(async () => (await b.read('room').catch(() => '')) === '2: ann bob');
    await until(() => b.events.length === 6, 5000, `${b.events}`);
    assert.deepEqual(b.events.slice(3).sort(), ['room +ann', 'room +bob', 'room -leaver']);
  },
);

withRedis(
  'the heartbeat notices a flush without a push, and the users are restored',
  async (redis, attach) => {
    const a = await attach('room');
    a.join('room', 'ann');
    await a.read('room');
    await a.parts.broker.node?.commands.redis.call('CLIENT', 'TRACKING', 'OFF');
    await redis.cli('FLUSHALL');
    await until(async () => (await a.read('room')) === '1: ann');
    await a.got(['room +ann', 'room +ann']);
  },
);

withRedis(
  'a user who leaves while the address leads to another Redis has left when it leads back',
  async (redis, attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    for (const user of ['ann', 'leaver']) a.join('room', user);
    b.join('room', 'bob');
    await until(() => a.events.length === 3 && b.events.length === 3);
    const swap = async () => {
      const before = await redis.cli('GET', 'contract:presence:{*}:mark');
      await redis.cli('SWAPDB', '0', '1');
      await until(async () => {
        const now = await redis.cli('GET', 'contract:presence:{*}:mark');
        return now !== '' && now !== before;
      });
    };
    await swap();
    await until(async () => (await b.read('room').catch(() => '')) === '3: ann bob leaver');
    a.presence.leave('room', 'leaver');
    await until(async () => (await b.read('room').catch(() => '')) === '2: ann bob');
    b.events.length = 0;
    await swap();
    await until(async () => (await b.read('room').catch(() => '')) === '2: ann bob');
    await until(() => b.events.includes('room -leaver'), 5000, `${b.events}`);
    // Nothing is left of the names that the workers had before.
    await until(
      async () =>
        (await redis.cli('KEYS', 'contract:presence:{room}:users:*')).split('\n').length === 2,
    );
    assert.equal(a.counters.presenceReaped + b.counters.presenceReaped, 0);
  },
  { ttlMs: NEVER_MS },
);

withRedis(
  'a Redis that refuses to write is asked again, and nothing is lost',
  async (redis, attach) => {
    const a = await attach('room');
    a.join('room', 'ann');
    await a.read('room');
    await redis.cli('CONFIG', 'SET', 'maxmemory', '1');
    a.join('room', 'bob');
    a.presence.leave('room', 'ann');
    await assert.rejects(a.presence.read('room'), { code: 'UNAVAILABLE' });
    await redis.cli('CONFIG', 'SET', 'maxmemory', '0');
    await until(async () => (await a.read('room').catch(() => '')) === '1: bob');
    assert.deepEqual(a.events.slice().sort(), ['room +ann', 'room +bob', 'room -ann']);
  },
);

withRedis(
  'a user whose join is missing in an older copy of the data is announced as gone, and no other is',
  async (redis, attach) => {
    const a = await attach('room');
    const b = await attach('room');
    a.join('room', 'ann');
    a.join('room', 'bob');
    a.join('room', 'cid');
    await a.read('room');
    b.join('room', 'bob');
    await b.read('room');
    await b.got(['room +ann', 'room +bob', 'room +cid']);
    const presence = /** @type {RedisPresence} */ (a.presence);
    const { name } = presence.session;
    presence.setUp(false);
    presence.leave('room', 'ann');
    presence.leave('room', 'bob');
    const key = (/** @type {string} */ tail) => `contract:presence:{room}:${tail}`;
    await redis.cli('HDEL', key('members'), 'ann', 'cid');
    await redis.cli('HDEL', key('owners'), 'ann', 'cid');
    await redis.cli('HINCRBY', key('owners'), 'bob', '-1');
    await redis.cli('DEL', key(`users:${name}`));
    presence.setUp(true);
    // Before Redis has it again.
    presence.leave('room', 'cid');
    await until(() => b.events.length >= 5, 5000, `${b.events}`);
    assert.deepEqual(b.events.slice(3).sort(), ['room -ann', 'room -cid']);
    assert.equal(await b.read('room'), '1: bob');
    await until(async () => (await leftovers(redis)).every((one) => !one.endsWith(name)));
    assert.equal(b.events.length, 5);
  },
  { ttlMs: NEVER_MS },
);

test('redis: events that Redis refused to publish are announced when it permits them', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  await redis.cli(
    'ACL',
    'SETUSER',
    'limited',
    'on',
    '>pw',
    'allkeys',
    'allchannels',
    'allcommands',
  );
  const settings = redisSettings({ REDIS_URL: `redis://limited:pw@127.0.0.1:${redis.port}` });
  const parts = redisWorker({ settings }, { ttlMs: NEVER_MS });
  const a = await started(t, new Worker(parts), []);
  const b = await started(t, new Worker(redisWorker(redis, { ttlMs: NEVER_MS })), ['room']);
  const { presenceEvents } = parts.counters;
  a.join('room', 'ann');
  a.join('room', 'cid');
  await b.got(['room +ann', 'room +cid']);
  // The changes themselves are permitted, and so are the probes: Redis refuses the events of the
  // room alone.
  await redis.cli(
    'ACL',
    'SETUSER',
    'limited',
    'resetchannels',
    '&contract:probe:*',
    '&contract:workers',
    '&contract:census',
  );
  a.join('room', 'bob');
  a.presence.leave('room', 'ann');
  await until(() => parts.presence.hasFailed);
  assert.deepEqual({ ...presenceEvents }, { join: 2, leave: 0, suppressed: 0 });
  assert.equal(await b.read('room'), '2: bob cid');
  // A new name in between must not forget them.
  parts.presence.session.doubt();
  await until(() => parts.presence.session.isSure);
  await redis.cli('ACL', 'SETUSER', 'limited', 'allchannels');
  await until(() => b.events.length === 4, 5000, `${b.events}`);
  assert.deepEqual(b.events.slice(2).sort(), ['room +bob', 'room -ann']);
  assert.equal(await a.read('room'), '2: bob cid');
  assert.deepEqual({ ...presenceEvents }, { join: 3, leave: 1, suppressed: 0 });
});

withRedis(
  'a count reads no members, except together with a list',
  async (redis, attach) => {
    const a = await attach();
    a.join('room', 'ann');
    a.join('room', 'bob');
    await redis.cli('CONFIG', 'RESETSTAT');
    await a.presence.recorded('room');
    assert.equal((await a.presence.read('room', true)).count, 2);
    assert.doesNotMatch(await redis.cli('INFO', 'commandstats'), /cmdstat_hvals/);
    const [count, list] = [a.presence.read('room', true), a.read('room')];
    assert.equal((await count).count, 2);
    assert.equal(await list, '2: ann bob');
    assert.equal((await a.presence.read('empty', true)).count, 0);
  },
  { ttlMs: NEVER_MS },
);

withRedis(
  '5,000 users that join one room are few calls, and nothing is left of them afterwards',
  async (redis, attach) => {
    const a = await attach('room');
    await redis.cli('CONFIG', 'RESETSTAT');
    for (let i = 0; i < 5000; i++) a.join('room', `user-${i}`);
    assert.equal(await a.read('room'), '5000');
    const calls = Number(
      /cmdstat_evalsha:calls=(\d+)/.exec(await redis.cli('INFO', 'commandstats'))?.[1],
    );
    assert.ok(calls < 50, `${calls} calls`);
    assert.equal(a.counters.presenceEvents.join, MAX_MEMBERS);
    assert.equal(a.counters.presenceEvents.suppressed, 5000 - MAX_MEMBERS);
    for (let i = 0; i < 5000; i++) a.presence.leave('room', `user-${i}`);
    assert.equal(await a.read('room'), '0: ');
    await until(async () => (await leftovers(redis)).length === 0);
  },
  { ttlMs: NEVER_MS },
);

withRedis(
  'one of the workers that see a death clears up, and whoever comes later does no harm',
  async (_redis, attach) => {
    const workers = [await attach('room'), await attach('room'), await attach('room')];
    const [a, b, c] = workers;
    for (let i = 0; i < 4; i++) a.join('room', `user-${i}`);
    await until(() => c.events.length === 4);
    const { name } = /** @type {RedisPresence} */ (a.presence).session;
    a.kill();
    /** @type {RedisPresence} */ (b.presence).died(name);
    /** @type {RedisPresence} */ (c.presence).died(name);
    await until(() => c.events.length === 8);
    await until(() => b.counters.presenceReaped + c.counters.presenceReaped === 1);
    assert.equal(new Set(c.events).size, 8);
    assert.equal(await c.read('room'), '0: ');
  },
);
