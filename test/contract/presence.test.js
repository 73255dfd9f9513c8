// presence.test.js: the promises of presence, against every backend.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RelayServer } from '../../src/backend/embedded/relay-server.js';
import { until } from '../harness/server.js';
import { openMachine } from '../helpers/machine.js';
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
import { LONG_ROOMS, log, startServer } from './suite.js';

/** @typedef {import('../../src/backend/presence.js').Presence} Presence */
/** @typedef {import('../../src/backend/broker.js').Broker} Broker */
/** @typedef {import('../../src/backend/redis/broker.js').RedisBroker} RedisBroker */
/** @typedef {import('node:test').TestContext} TestContext */

/**
 * How a worker of each backend ends without a goodbye.
 * @type
 *   {Record<string, (backend: {broker: Broker, presence: Presence, machine: import('../../src/backend/embedded/worker-places.js').WorkerPlaces}) => void>}
 */
const KILL = {
  memory: ({ presence }) => void presence.close(),
  embedded: ({ machine }) => void machine.link.socket?.destroy(),
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

  it('a join that is recorded outlasts the leave of another worker', async (attach) => {
    const [a, b, c] = [await attach(), await attach(), await attach('room')];
    a.join('room', 'ann');
    await a.presence.recorded('room');
    for (let round = 0; round < 20; round++) {
      const [from, to] = round % 2 === 0 ? [a, b] : [b, a];
      to.join('room', 'ann');
      await to.presence.recorded('room');
      from.presence.leave('room', 'ann');
    }
    a.join('room', 'end');
    await c.got(['room +ann', 'room +end']);
    assert.equal(await c.read('room'), '2: ann end');
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

  it('names of rooms have up to 512 characters', async (attach) => {
    const [a, b] = [await attach(...LONG_ROOMS), await attach()];
    for (const room of LONG_ROOMS) {
      b.join(room, 'ann');
      assert.equal(await b.read(room), '1: ann');
      assert.equal(await a.read(room), '1: ann');
      b.presence.leave(room, 'ann');
      assert.equal(await b.read(room), '0: ');
    }
    await a.got(LONG_ROOMS.flatMap((room) => [`${room} +ann`, `${room} -ann`]));
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

  it('a count sees the same users as a list, and brings no members', async (attach) => {
    const [a, b] = [await attach(), await attach()];
    a.join('room', 'ann');
    a.join('room', 'bob');
    assert.deepEqual(await a.presence.read('room', true), { count: 2, members: null });
    b.join('room', 'bob');
    a.presence.leave('room', 'ann');
    await a.presence.recorded('room');
    assert.deepEqual(await b.presence.read('room', true), { count: 1, members: null });
    assert.equal((await b.presence.read('nobody', true)).count, 0);
  });

  it('a list with more bytes than 16 MB is only counted', async (attach) => {
    const [a, b] = [await attach(), await attach()];
    const member = 'm'.repeat(4 * 1024 * 1024);
    for (const user of ['ann', 'bob', 'cid', 'dan']) {
      a.join('room', user, member);
      assert.notEqual((await a.presence.read('room')).members, null);
    }
    a.join('room', 'eve', 'm');
    assert.equal(await a.read('room'), '5');
    assert.equal(await b.read('room'), '5');
    a.presence.leave('room', 'ann');
    await a.presence.recorded('room');
    assert.equal((await b.presence.read('room')).members?.length, 4);
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

test('embedded: the relay reports the session of a dead worker to the others, or to the next one', async (t) => {
  const relay = new RelayServer({ log });
  await relay.start();
  t.after(() => relay.close());
  const open = () => openMachine(t, relay.path);
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
  await until(() => [...relay.places.holders].map(({ name }) => name).join() === 'a-2,b-1,');
  await c.link.close();
  a.link.socket?.destroy();
  await until(() => told.length > 0);
  assert.deepEqual(told, ['b a-2']);
  b.link.socket?.destroy();
  await until(() => relay.places.holders.size === 0);
  const d = await open();
  const gone = new Promise((resolve) => {
    d.listen({ onSessionLost: resolve });
  });
  d.nameSession('d-1');
  assert.equal(await gone, 'b-1');
});
