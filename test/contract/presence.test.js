// presence.test.js: the contract of presence (src/backend/presence.js), for every backend, and how
// presence over Redis survives outages.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redisSettings, startRedis } from '../../loadtest/lib/redis.js';
import { until } from '../../loadtest/lib/server.js';
import { RelayClient } from '../../src/backend/embedded/relay-client.js';
import { RelayServer } from '../../src/backend/embedded/relay-server.js';
import { createBackend } from '../../src/backend/redis/index.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { createCounters } from '../../src/observability/counters.js';
import { announcements, configOf, log, startServer } from './suite.js';

/** @typedef {import('../../src/backend/presence.js').Presence} Presence */
/** @typedef {import('../../src/backend/broker.js').Broker} Broker */
/** @typedef {import('../../src/backend/redis/broker.js').RedisBroker} RedisBroker */
/** @typedef {import('../../src/backend/redis/presence.js').RedisPresence} RedisPresence */
/** @typedef {import('node:test').TestContext} TestContext */

const MAX_MEMBERS = 5;
const TIMEOUT_MS = 20_000;
/** Silence after which a worker is dead, in the tests that wait for it. */
const TTL_MS = 1500;
/**
 * The same if other workers return slowly from an outage, or announce thousands of users.
 */
const LONG_TTL_MS = 3000;
/** The same if a worker must repair its own entries. */
const NEVER_MS = 600_000;
const HEARTBEAT_MS = 200;
const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always'];
const SETTLE_MS = 300;

/**
 * A worker: its broker, its presence and its events. `kill` ends it without cleaning up.
 */
class Worker {
  /** @param {{broker: Broker, presence: Presence, kill: () => void}} parts */
  constructor({ broker, presence, kill }) {
    this.broker = broker;
    this.presence = presence;
    this.kill = kill;
    /** `room +member` or `room -member`. @type {string[]} */
    this.events = [];
    /** @param {string} room @param {Buffer} publication */
    this.onPublication = (room, publication) => void this.events.push(`${room} ${publication}`);
  }

  onState() {}

  /** @param {string} room @param {string} user @param {string} [member] */
  join(room, user, member = user) {
    this.presence.join(room, user, Buffer.from(member));
  }

  /**
   * @param {string} room
   * @returns {Promise<string>} `count: members`, sorted
   */
  async read(room) {
    const { count, members } = await this.presence.read(room);
    return members === null ? `${count}` : `${count}: ${members.map(String).sort().join(' ')}`;
  }

  /** @param {string[]} events all its events so far; in order within a room */
  async got(events) {
    await until(
      () => this.events.length >= events.length,
      5000,
      `${events.length} events (${this.events})`,
    );
    assert.deepEqual(this.events, events);
  }
}

/** @type {Partial<import('../../src/config/settings.js').Config>} */
const CONFIG = Object.freeze({
  presence: [{ pattern: '*', value: /** @type {const} */ (true) }],
  presenceMaxMembers: MAX_MEMBERS,
});

/**
 * How a worker of each backend ends without a goodbye.
 * @type
 *   {Record<string, (backend: {broker: Broker, presence: Presence, machine: RelayClient}) => void>}
 */
const KILL = {
  memory: ({ presence }) => void presence.close(),
  embedded: ({ machine }) => void machine.socket?.destroy(),
  redis: ({ broker }) => void (/** @type {RedisBroker} */ (broker).node?.commands.close()),
};

for (const name of Object.keys(KILL)) {
  suite(name, async (t) => {
    const presenceTimes = { heartbeatMs: HEARTBEAT_MS, ttlMs: LONG_TTL_MS, settleMs: SETTLE_MS };
    const make = await startServer(t, name, CONFIG, { presenceTimes });
    return async () => {
      const { broker, presence, machine } = await make();
      assert.ok(presence);
      return { broker, presence, kill: () => KILL[name]({ broker, presence, machine }) };
    };
  });
}

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
      machine: new RelayClient({ path: '', log }),
      events: { onPublishLag() {}, onRoundTrip() {} },
    },
    { presenceTimes: { heartbeatMs: HEARTBEAT_MS, ttlMs: TTL_MS, settleMs: SETTLE_MS, ...times } },
  );
  assert.ok(presence);
  return { broker, presence, counters, kill: () => broker.node?.commands.close() };
}

/**
 * @param {string} name
 * @param
 *   {(t: TestContext) => Promise<() => Promise<{broker: Broker, presence: Presence, kill: () => void}>>}
 *   prepare
 */
function suite(name, prepare) {
  /**
   * @param {string} behaviour
   * @param {(worker: (...rooms: string[]) => Promise<Worker>) => Promise<void>} body
   */
  const it = (behaviour, body) => {
    test(`${name}: ${behaviour}`, { timeout: TIMEOUT_MS }, async (t) => {
      const make = await prepare(t);
      await body(async (...rooms) => started(t, new Worker(await make()), rooms));
    });
  };

  it('the first join and the last leave of a user reach the room on every worker', async (attach) => {
    const [a, b] = [await attach('room'), await attach('room', 'other')];
    a.join('room', 'ann');
    await b.got(['room +ann']);
    b.join('room', 'ann');
    b.join('room', 'bob');
    await a.got(['room +ann', 'room +bob']);
    a.presence.leave('room', 'ann');
    assert.equal(await a.read('room'), '2: ann bob');
    b.presence.leave('room', 'ann');
    b.presence.leave('room', 'bob');
    await a.got(['room +ann', 'room +bob', 'room -ann', 'room -bob']);
    await b.got(a.events);
    assert.equal(await a.read('room'), '0: ');
  });

  it('a repeated join, or a leave without a join, changes nothing', async (attach) => {
    const a = await attach('room');
    a.presence.leave('room', 'ann');
    a.join('room', 'ann');
    await a.read('room');
    a.join('room', 'ann');
    assert.equal(await a.read('room'), '1: ann');
    a.presence.leave('room', 'ann');
    await a.read('room');
    a.presence.leave('room', 'ann');
    assert.equal(await a.read('room'), '0: ');
    await a.got(['room +ann', 'room -ann']);
  });

  it('the member shown is the latest one, from any worker', async (attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    a.join('room', 'ann', 'ann 1');
    await a.read('room');
    b.join('room', 'ann', 'ann 2');
    assert.equal(await b.read('room'), '1: ann 2');
    assert.equal(await a.read('room'), '1: ann 2');
    b.presence.leave('room', 'ann');
    await b.read('room');
    a.presence.leave('room', 'ann');
    await a.got(['room +ann 1', 'room -ann 2']);
  });

  it('a read sees all earlier changes of its own worker, and rooms are separate', async (attach) => {
    const a = await attach();
    for (let i = 0; i < 20; i++) {
      a.join(`room-${i}`, 'ann');
      a.join(`room-${i}`, 'bob');
      a.presence.leave(`room-${i}`, 'ann');
      assert.equal(await a.read(`room-${i}`), '1: bob');
    }
    assert.equal(await a.read('nobody'), '0: ');
  });

  it('a large room is counted and not listed, and its events are left out', async (attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    const users = Array.from({ length: MAX_MEMBERS }, (_, i) => `user-${i}`);
    for (const user of users) {
      a.join('room', user);
      await a.read('room');
    }
    assert.equal(await b.read('room'), `${MAX_MEMBERS}: ${users.join(' ')}`);
    b.join('room', 'one-more');
    assert.equal(await b.read('room'), `${MAX_MEMBERS + 1}`);
    b.presence.leave('room', 'one-more');
    assert.equal(await b.read('room'), `${MAX_MEMBERS}: ${users.join(' ')}`);
    a.presence.leave('room', 'user-0');
    await b.got([...users.map((user) => `room +${user}`), 'room -user-0']);
  });

  it('any user name and any bytes of a member are stored', async (attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    const user = JSON.stringify(`é\u0000"\ud800 ${'ü'.repeat(100)}`);
    const member = `{"user":${user},"info":${JSON.stringify('\u{1F600}'.repeat(200))}}`;
    a.join('room', user, member);
    await b.got([`room +${member}`]);
    assert.equal(await b.read('room'), `1: ${member}`);
    a.presence.leave('room', user);
    await b.got([`room +${member}`, `room -${member}`]);
  });

  it('events arrive in the order of the changes on every worker', async (attach) => {
    const [a, b, c] = [await attach('room'), await attach('room'), await attach('room')];
    for (let i = 0; i < 20; i++) {
      a.join('room', 'ann');
      b.join('room', 'ann');
      b.join('room', `b-${i}`);
      if (i % 3 === 0) await a.read('room');
      a.presence.leave('room', 'ann');
      b.presence.leave('room', 'ann');
      b.presence.leave('room', `b-${i}`);
      if (i % 5 === 0) await b.read('room');
    }
    await Promise.all([a.read('room'), b.read('room')]);
    a.join('room', 'end');
    await until(() => [a, b, c].every(({ events }) => events.at(-1) === 'room +end'));
    assert.deepEqual(b.events, a.events);
    assert.deepEqual(c.events, a.events);
    // Each user comes and goes in turn.
    const here = new Set();
    for (const event of a.events) {
      const user = event.slice('room +'.length);
      assert.equal(here.has(user), event.startsWith('room -'), event);
      if (!here.delete(user)) here.add(user);
    }
    assert.deepEqual([...here], ['end']);
  });

  it('close removes the users of the worker, and those of other workers stay', async (attach) => {
    const [a, b] = [await attach('room', 'other'), await attach('room', 'other')];
    a.join('room', 'ann');
    a.join('other', 'ann');
    a.join('room', 'both');
    b.join('room', 'both');
    assert.equal(await a.read('room'), '2: ann both');
    await b.read('room');
    await a.presence.close();
    await a.presence.close();
    await until(() => b.events.filter((event) => event.includes('-')).length === 2);
    assert.deepEqual(b.events.filter((event) => event.includes('-')).sort(), [
      'other -ann',
      'room -ann',
    ]);
    assert.equal(await b.read('room'), '1: both');
  });

  it('the users of a worker that dies leave, once', async (attach) => {
    const [a, b, c] = [await attach('room'), await attach('room'), await attach('room')];
    a.join('room', 'ann');
    a.join('room', 'both');
    b.join('room', 'both');
    await Promise.all([a.read('room'), b.read('room')]);
    await until(() => c.events.length === 2);
    a.kill();
    await until(() => c.events.length === 3);
    assert.equal(c.events[2], 'room -ann');
    b.presence.leave('room', 'both');
    await c.got([...c.events.slice(0, 3), 'room -both']);
    assert.equal(await c.read('room'), '0: ');
  });

  it('4,000 users that join at once are all present, each with one event', async (attach) => {
    const [a, b] = [await attach('room'), await attach('room')];
    const rooms = Array.from({ length: 600 }, (_, i) => `room-${i}`);
    await Promise.all(rooms.map((room) => b.broker.subscribe(room)));
    for (const room of rooms) for (let i = 0; i < 5; i++) a.join(room, `user-${i}`);
    for (let i = 0; i < 1000; i++) a.join('room', `user-${i}`);
    assert.equal(await a.read('room'), '1000');
    await until(() => b.events.length >= 3005);
    assert.equal(new Set(b.events).size, 3005);
    await a.presence.close();
    await until(() => b.events.length >= 6010);
    assert.equal(new Set(b.events).size, 6010);
    assert.equal(await b.read('room'), '0: ');
  });
}

/**
 * @param {TestContext} t
 * @param {Worker} worker
 * @param {string[]} rooms that it subscribes
 */
async function started(t, worker, rooms) {
  t.after(async () => {
    await worker.presence.close();
    await worker.broker.close();
  });
  await worker.presence.start();
  await worker.broker.start(worker);
  await Promise.all(rooms.map((room) => worker.broker.subscribe(room)));
  return worker;
}

// Faults that only Redis causes.

/**
 * @param {string} behaviour
 * @param
 *   {(redis: import('../../loadtest/lib/redis.js').RedisServer, attach: (...rooms: string[]) => Promise<Worker & {counters: import('../../src/observability/counters.js').Counters, parts: ReturnType<typeof redisWorker>}>) => Promise<void>}
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
 * @param {import('../../loadtest/lib/redis.js').RedisServer} redis
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
    presence.session.stop();
    /** @type {RedisPresence} */ (b.presence).died(presence.session.name);
    await until(() => b.events.length === 3, 5000, 'leave');
    presence.session.start();
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
    // What a worker does when Redis may have lost its writes; both write all their users again.
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
    for (const session of [standing, other]) session.stop();
    const age = async (/** @type {string} */ name) => {
      const last = Number(await redis.cli('ZSCORE', 'contract:presence:{*}:workers', name));
      const [seconds, micros] = (await redis.cli('TIME')).split('\n').map(Number);
      return seconds * 1000 + micros / 1000 - last;
    };
    const { name } = other;
    await until(async () => (await age(standing.name)) > TTL_MS && (await age(name)) > TTL_MS);
    await standing.pulse();
    assert.deepEqual(standing.clearing, []);
    assert.ok((await age(name)) > TTL_MS, 'it is still among the workers');
    // From now on its own heartbeats prove that Redis was there.
    await standing.pulse();
    assert.deepEqual(standing.clearing, [name]);
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

test('embedded: the relay reports the session of a dead worker to the others, or to the next one', async (t) => {
  const relay = new RelayServer({ log });
  await relay.start();
  t.after(() => relay.close());
  const open = async () => {
    const link = new RelayClient({ path: relay.path, log });
    await link.open();
    t.after(() => link.close());
    return link;
  };
  const [a, b, c] = [await open(), await open(), await open()];
  /** @type {string[]} */
  const told = [];
  b.listen({ onSessionLost: (name) => void told.push(`b ${name}`) });
  for (const [link, name] of /** @type {const} */ ([
    [a, 'a-1'],
    [b, 'b-1'],
    [c, 'c-1'],
  ]))
    link.nameSession(name);
  a.nameSession('a-2');
  c.nameSession('');
  await until(() => [...relay.links].map(({ name }) => name).join() === 'a-2,b-1,');
  await c.close();
  a.socket?.destroy();
  await until(() => told.length > 0);
  assert.deepEqual(told, ['b a-2']);
  b.socket?.destroy();
  await until(() => relay.links.size === 0);
  const d = await open();
  const gone = new Promise((resolve) => {
    d.listen({ onSessionLost: resolve });
  });
  d.nameSession('d-1');
  assert.equal(await gone, 'b-1');
});
