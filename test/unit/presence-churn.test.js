// presence-churn.test.js: users who join and leave faster than Redis answers leave nothing behind
// in the worker.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { MemberStore } from '../../src/backend/redis/member-store.js';
import { RedisPresence } from '../../src/backend/redis/presence.js';
import { ShardVisits } from '../../src/backend/redis/shard-visits.js';
import { createCounters } from '../../src/observability/counters.js';

/** Presence over a Redis: the test gives the answers to `sadd` and to changes. */
function build() {
  /** @type {(() => void)[]} */
  const waiting = [];
  /** The changes, as `room change user`. @type {string[]} */
  const said = [];
  /** What Redis has, as `key user`. @type {Set<string>} */
  const written = new Set();
  /** Sessions that the next heartbeat takes over. @type {string[]} */
  const dead = [];
  /** Sessions that have been cleared. @type {string[]} */
  const cleared = [];
  /** Redis does not know the session at the next heartbeat, and refuses these events next. */
  const next = {
    isNew: 0,
    refused: /** @type {unknown[]} */ ([]),
    breaks: false,
    failsReads: false,
  };
  const later = (/** @type {unknown} */ answer) =>
    new Promise((resolve) => void waiting.push(() => resolve(answer)));
  const redis = {
    defineCommand() {},
    sadd: () => later(1),
    srem: async () => 1,
    srandmember: async () => [],
    presenceHeartbeat: async () => {
      const { isNew } = next;
      next.isNew = 0;
      return ['mark', isNew, dead.splice(0)];
    },
    presenceCleared: async (/** @type {string[]} */ ...args) => cleared.push(args[2]),
    presenceReadBuffer: async () => {
      if (next.failsReads) throw new Error('Command timed out');
      return [0, []];
    },
    presenceMembersBuffer: (/** @type {(string|number|Buffer)[]} */ ...args) => {
      const changes = args.slice(9);
      for (let i = 0; i < changes.length; i += 3) {
        said.push(`${args[0]} ${changes[i]} ${changes[i + 1]}`);
        const isLeave = String(changes[i]).toLowerCase().includes('leave');
        written[isLeave ? 'delete' : 'add'](`${args[2]} ${changes[i + 1]}`);
      }
      if (next.breaks) return Promise.reject(new Error('the answer is lost'));
      return later([0, 0, 0, 0, next.refused.splice(0), 0]);
    },
  };
  const connection = { isWritable: true, redis: /** @type {any} */ (redis), describe: String };
  const counters = createCounters();
  const store = new MemberStore({
    connection,
    prefix: '',
    channelOf: (room) => room,
    publishCommand: 'PUBLISH',
    maxMembers: 10,
    announcements: { join: Buffer.from('+'), leave: Buffer.from('-'), count: Buffer.from('#') },
    counters,
    recording: null,
  });
  const presence = new RedisPresence({
    connection,
    prefix: '',
    store,
    workerId: 'worker',
    counters,
    log: { info() {}, warn() {} },
  });
  const answer = async () => {
    for (let i = 0; i < 20; i++) {
      for (const resolve of waiting.splice(0)) resolve();
      await turn();
    }
  };
  return { presence, said, written, dead, cleared, next, counters, waiting, answer };
}

const member = Buffer.from('{}');

/** @param {import('node:test').TestContext} t */
async function beginSession(t) {
  const built = build();
  const { presence, answer } = built;
  t.after(() => presence.close());
  presence.setUp(true);
  await answer();
  return { ...built, first: presence.session.name };
}

test('users who join and leave while Redis is busy are forgotten, and the others are announced', async (t) => {
  const { presence, said, answer } = build();
  t.after(() => presence.close());
  presence.setUp(true);
  presence.join('first', 'ann', member);
  presence.join('first', 'bob', member);
  await turn();
  await turn();
  // Redis holds the round back: two changes are under way.
  for (let i = 0; i < 20_000; i++) {
    presence.join(`room-${i}`, 'u', member);
    presence.join(`room-${i}`, 'u', member);
    presence.leave(`room-${i}`, 'u');
  }
  presence.join('first', 'eve', member);
  presence.leave('first', 'eve');
  presence.leave('first', 'bob');
  presence.join('second', 'kim', member);
  assert.deepEqual([...presence.rooms.keys()], ['first', 'second']);
  assert.ok(presence.changed.size <= 2);
  await answer();
  const key = (/** @type {string} */ room) => `presence:{${room}}:members`;
  assert.deepEqual(said, [
    `${key('first')} join ann`,
    // Bob may have been left out or announced, but must not be left behind.
    ...said.filter((line) => line === `${key('first')} join bob`),
    ...said.filter((line) => line === `${key('first')} leave bob`),
    `${key('second')} join kim`,
  ]);
  assert.deepEqual([presence.changed.size, presence.rooms.size], [0, 2]);
  // Leaves of users that Redis has are announced, and so is a user who comes back.
  presence.leave('first', 'ann');
  presence.join('first', 'ann', member);
  presence.leave('first', 'ann');
  presence.leave('second', 'kim');
  said.length = 0;
  await answer();
  assert.deepEqual(said, [`${key('first')} leave ann`, `${key('second')} leave kim`]);
  assert.deepEqual([presence.changed.size, presence.rooms.size], [0, 0]);
});

test('a user who comes and goes within a round leaves no work behind', async (t) => {
  const { presence, waiting, answer } = build();
  t.after(() => presence.close());
  // Work that never ends would never return to the event loop, nor to this test.
  const { rooms } = presence.session;
  const remove = rooms.remove.bind(rooms);
  let rounds = 0;
  rooms.remove = (...args) => {
    if (++rounds > 100) throw new Error('the rounds do not end');
    return remove(...args);
  };
  presence.setUp(true);
  presence.join('first', 'ann', member);
  presence.join('second', 'kim', member);
  await turn();
  for (const resolve of waiting.splice(0)) resolve(); // the rooms are registered
  await turn();
  assert.equal(waiting.length, 2);
  presence.join('first', 'bob', member);
  waiting.shift()?.(); // ann is written, and kim is not
  await turn();
  presence.leave('first', 'bob');
  await answer();
  assert.equal(rounds, 1);
  assert.equal(presence.changed.size, 0);
});

test('a worker that closes clears its own session, and takes on no other', async () => {
  const { presence, dead, cleared, counters, answer } = build();
  presence.setUp(true);
  presence.join('room', 'ann', member);
  await answer();
  const { name } = presence.session;
  dead.push('other:1');
  await presence.close();
  assert.deepEqual(cleared, [name]);
  assert.equal(counters.presenceReaped, 0);
});

test('a session that others may have considered dead is not used again, though it has no users', async (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const { presence, cleared, next, answer, first } = await beginSession(t);
  // Redis was unavailable for a moment: the session is as good as before.
  presence.setUp(false);
  presence.setUp(true);
  await answer();
  assert.equal(presence.session.name, first);
  // The worker stood still, and another one has begun to clear its session.
  now += 40_000;
  next.isNew = 1;
  presence.session.beat.hurry();
  await answer();
  presence.join('room', 'ann', member);
  await answer();
  assert.notEqual(presence.session.name, first);
  assert.deepEqual(cleared, [first]);
});

test('a session that others declared dead while its heartbeat was under way is not used', async (t) => {
  const { presence, cleared, next, answer, first } = await beginSession(t);
  presence.setUp(false);
  next.isNew = 1;
  presence.setUp(true);
  presence.join('room', 'ann', member);
  await answer();
  assert.notEqual(presence.session.name, first);
  assert.deepEqual(cleared, [first]);
});

test('a user whose join Redis refused to publish is announced, also after a leave and a join', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { presence, said, next, answer } = build();
  t.after(() => presence.close());
  presence.setUp(true);
  presence.join('room', 'ann', member);
  next.refused = [1, 'ann', member];
  await answer();
  presence.leave('room', 'ann');
  presence.join('room', 'ann', member);
  said.length = 0;
  t.mock.timers.tick(1000);
  await answer();
  assert.deepEqual(said, ['presence:{room}:members announceJoin ann']);
});

test('a user who leaves before a new session has written it is not written under that session', async (t) => {
  const { presence, said, written, waiting, answer } = build();
  t.after(() => presence.close());
  presence.setUp(true);
  // Sixteen calls are under way at once, so the last room has to wait.
  for (let i = 0; i <= 16; i++) presence.join(`room-${i}`, 'ann', member);
  await answer();
  presence.setUp(false);
  presence.setUp(true);
  while (waiting.length === 0) await turn();
  said.length = 0;
  for (const resolve of waiting.splice(0)) resolve(); // the rooms are registered
  while (said.length === 0) await turn();
  assert.equal(said.length, 16);
  presence.leave('room-16', 'ann');
  await answer();
  const left = [...written].filter((one) => one.startsWith('presence:{room-16}'));
  assert.deepEqual(left, []);
  assert.equal(presence.rooms.size, 16);
});

test('a user who leaves during an outage is announced if Redis may have heard of the join', async (t) => {
  const { presence, said, next, answer } = build();
  t.after(() => presence.close());
  presence.setUp(true);
  next.breaks = true;
  presence.join('room', 'ann', member);
  await answer();
  presence.setUp(false);
  next.breaks = false;
  presence.leave('room', 'ann');
  presence.join('room', 'eve', member); // nobody has heard of this one
  presence.leave('room', 'eve');
  said.length = 0;
  presence.setUp(true);
  await answer();
  assert.deepEqual(said, ['presence:{room}:members leaveLost ann']);
  assert.deepEqual([presence.changed.size, presence.rooms.size], [0, 0]);
});

test('after a list that could not be read, lists are read again without any change of users', async (t) => {
  const { presence, next } = await beginSession(t);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  next.failsReads = true;
  await assert.rejects(presence.read('room'), { code: 'UNAVAILABLE' });
  next.failsReads = false;
  await turn();
  await assert.rejects(presence.read('room'), { code: 'UNAVAILABLE' }, 'before the retry');
  t.mock.timers.tick(1000);
  await turn();
  assert.deepEqual(await presence.read('room'), { count: 0, members: [] });
});

test('a session that begins just when all primaries were visited has them visited again', async () => {
  for (let microtasks = 0; microtasks < 16; microtasks++) {
    let looks = 0;
    /** @type {(() => void)[]} */
    const claims = [];
    const redis = {
      defineCommand() {},
      eval: async () => `mark ${++looks}`,
      presenceVisits: () => new Promise((resolve) => void claims.push(() => resolve([0]))),
    };
    const visits = new ShardVisits({
      connection: {
        isWritable: true,
        redis,
        describe: String,
        primaries: () => [{ redis: /** @type {any} */ (redis), tag: '0', hasFleetSlot: true }],
      },
      prefix: '',
      visitor: 'a',
      held: [],
      onFound: async () => {},
      log: { info() {}, warn: (fields) => assert.fail(String(fields)) },
    });
    visits.check();
    await turn();
    for (const answer of claims.splice(0)) answer();
    for (let i = 0; i < microtasks; i++) await null;
    visits.check();
    await turn();
    for (const answer of claims.splice(0)) answer();
    await turn();
    assert.equal(looks, 2, `after ${microtasks} microtasks`);
    assert.ok(visits.isIdle);
  }
});
