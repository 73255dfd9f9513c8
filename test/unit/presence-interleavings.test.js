// presence-interleavings.test.js: users of workers whose Redis is unavailable, loses data or refuses
// events, in any order: the list in Redis becomes right, and so does each list with its events.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { MemberStore } from '../../src/backend/redis/member-store.js';
import { RedisPresence } from '../../src/backend/redis/presence.js';
import { createCounters } from '../../src/observability/counters.js';
import { inAllOrders, inOrder } from '../helpers/interleavings.js';
import { ScheduledRedis } from '../helpers/scheduled-redis.js';
import { RedisServer } from '../simulation/redis/server.js';

const RUNS = 60;
const ROOMS = ['a', 'b'];
const USERS = ['"ann"', '"bob"'];
const WORKERS = ['A', 'B'];
const TTL_MS = 6000;
const HEARTBEAT_MS = 2000;
/** Retries, heartbeats and the clearing of dead sessions (15 s) are over after these. */
const CALM_MS = Array(12).fill(2500);

/** @typedef {import('../helpers/interleavings.js').Scheduler} Scheduler */
/** @typedef {{what: 'join'|'leave'|'read'|'beat', user: string, room: string}} Step */
/** What becomes of the data of a Redis that ends. @typedef {'kept'|'lost'|'older'} Data */
/**
 * @typedef {{redis: Data}|{breaks: number}|{refusesEvents: true}|{kills: true, isTold: boolean}|{passMs: number}}
 *   Fault
 */

/** @type {fc.Arbitrary<Step>} */
const step = fc.record({
  what: fc.constantFrom('join', 'join', 'join', 'leave', 'leave', 'read', 'beat'),
  user: fc.constantFrom(...USERS),
  room: fc.constantFrom('a', 'a', 'a', ...ROOMS),
});
/** @type {fc.Arbitrary<Fault>} */
const fault = fc.oneof(
  fc.record({
    redis: /** @type {fc.Arbitrary<Data>} */ (fc.constantFrom('kept', 'lost', 'older')),
  }),
  fc.record({ breaks: fc.nat(WORKERS.length - 1) }),
  fc.record({ refusesEvents: fc.constant(/** @type {const} */ (true)) }),
  fc.record({ kills: fc.constant(/** @type {const} */ (true)), isTold: fc.boolean() }),
  fc.record({ passMs: fc.constantFrom(1000, TTL_MS, 4 * TTL_MS) }),
);

/** A worker, and the users that its clients say they are. */
class Worker {
  /** @param {Scheduler} s @param {RedisServer} server @param {string} name */
  constructor(s, server, name) {
    this.name = name;
    this.redis = new ScheduledRedis(s, server, name);
    this.isKilled = false;
    /** Rooms and users, with the number of the latest join. @type {Map<string, number>} */
    this.users = new Map();
    this.joins = 0;
    const counters = createCounters();
    const store = new MemberStore({
      connection: this.redis,
      prefix: '',
      channelOf: (room) => room,
      publishCommand: 'PUBLISH',
      maxMembers: 10,
      announcements: { join: Buffer.from('+'), leave: Buffer.from('-'), count: Buffer.from('#') },
      counters,
      recording: null,
    });
    this.presence = new RedisPresence({
      connection: this.redis,
      prefix: '',
      store,
      workerId: name,
      counters,
      log: { info() {}, warn() {} },
      heartbeatMs: HEARTBEAT_MS,
      ttlMs: TTL_MS,
      settleMs: 1000,
    });
  }

  /** @param {Step} step */
  take({ what, user, room }) {
    const key = `${room} ${user}`;
    if (this.isKilled) return;
    if (what === 'join') {
      this.users.set(key, ++this.joins);
      this.presence.join(room, user, memberOf(user));
    } else if (what === 'leave' && this.users.delete(key)) this.presence.leave(room, user);
    else if (what === 'beat') this.presence.session.beat.hurry();
    else if (what === 'read') this.#read(room);
  }

  /** An answer has the users who joined here before, unless they have left. @param {string} room */
  #read(room) {
    const before = new Map(this.users);
    this.presence.read(room).then(
      ({ members }) => {
        const found = (members ?? []).map(String);
        for (const [key, join] of before) {
          if (!key.startsWith(room) || this.users.get(key) !== join) continue;
          const user = key.slice(room.length + 1);
          assert.ok(found.includes(String(memberOf(user))), `${this.name} reads no ${key}`);
        }
      },
      () => {}, // unavailable
    );
  }

  connect() {
    if (this.isKilled) return;
    this.redis.isWritable = true;
    this.presence.setUp(false);
    this.presence.setUp(true);
  }

  kill() {
    this.isKilled = true;
    this.users.clear();
    this.redis.cut();
    this.presence.setUp(false);
    this.presence.session.beat.stop();
  }
}

/** @param {string} user */
const memberOf = (user) => Buffer.from(`{"user":${user}}`);

/** Two workers with one Redis, and all that it has ever published. */
class Scene {
  /** @param {Scheduler} s @param {Clock} clock @param {Draws} draws */
  constructor(s, clock, draws) {
    this.s = s;
    this.clock = clock;
    const random = () => Number(draws.next().value) / 1000;
    this.server = new RedisServer({ now: () => clock.nowMs, random });
    this.workers = WORKERS.map((name) => new Worker(s, this.server, name));
    /** @type {{room: string, isJoin: boolean, user: string}[]} */
    this.events = [];
    /** Lists of all rooms at some moment, and the number of events before. @type {[number, string][]} */
    this.lists = [];
    /** Lists up to here may stay wrong, and are read again after an outage. */
    this.excused = 0;
    /** Lists before Redis lost data last. */
    this.lostAt = 0;
    this.saved = this.server.keys.snapshot();
    this.#listen();
    for (const { presence, redis } of this.workers) {
      presence.start();
      redis.onServed = () => this.lists.push([this.events.length, this.list()]);
      // A worker that does not hear of a refused event cannot repeat it.
      redis.onLost = (reply) => {
        if (Array.isArray(reply) && Array.isArray(reply[4]) && reply[4].length > 0)
          this.excused = this.lists.length;
      };
      presence.setUp(true);
    }
  }

  #listen() {
    const session = /** @type {any} */ ({
      send: (/** @type {any} */ { items }) => this.#hear(items),
    });
    for (const room of ROOMS) this.server.channels.set(room, new Set([session]));
  }

  /** @param {[string, string, string]} push a batch of publications */
  #hear([, room, body]) {
    const bytes = Buffer.from(body, 'latin1');
    for (let at = 0; at < bytes.length; at += 4 + bytes.readUInt32BE(at)) {
      const text = bytes.toString('utf8', at + 4, at + 4 + bytes.readUInt32BE(at));
      const user = JSON.stringify(JSON.parse(text.slice(1)).user);
      this.events.push({ room, isJoin: text[0] === '+', user });
    }
  }

  /** The rooms and users in Redis. */
  list() {
    const { keys } = this.server.keys;
    const lines = ROOMS.flatMap((room) => {
      const members = /** @type {any} */ (keys.get(`presence:{${room}}:members`))?.value;
      return members === undefined ? [] : [...members.keys()].map((user) => `${room} ${user}`);
    });
    return lines.sort().join(', ');
  }

  /** @param {Fault} fault */
  strike(fault) {
    const { s, workers, server } = this;
    if ('breaks' in fault) this.#break(workers[fault.breaks]);
    else if ('passMs' in fault) this.clock.pass(fault.passMs);
    else if ('redis' in fault) this.#restart(fault.redis);
    else if ('kills' in fault) {
      const [other, worker] = workers;
      const { name } = worker.presence.session;
      // It dies before it has written again what Redis lost, so nobody knows who has left.
      const written = this.list().split(', ');
      const isUnwritten = [...worker.users.keys()].some((key) => !written.includes(key));
      if (isUnwritten) this.excused = Math.max(this.excused, this.lostAt);
      // What Redis refused to publish, only this worker knows.
      if (owesEvents(worker.presence)) this.excused = this.lists.length;
      worker.kill();
      if (fault.isTold && name !== '')
        inOrder(s, [['A: is told of the death of B', () => other.presence.died(name)]]);
    } else {
      const user = server.users.get('default');
      user?.apply('resetchannels');
      inOrder(s, [['Redis: allows events again', () => user?.apply('&*')]]);
    }
  }

  /** Requests and answers on their way are lost. @param {Worker} worker */
  #break(worker) {
    worker.redis.cut();
    if (worker.isKilled) return;
    const { name, presence } = worker;
    inOrder(this.s, [
      [`${name}: notices`, () => presence.setUp(false)],
      [`${name}: connects`, () => worker.connect()],
    ]);
  }

  /** @param {Data} data */
  #restart(data) {
    for (const worker of this.workers) this.#break(worker);
    if (data === 'kept') return;
    this.server.restart(data === 'lost' ? null : this.saved);
    this.#listen();
    this.lostAt = this.lists.length;
    // Nobody knows any more who has left with a killed worker.
    if (this.workers.some(({ isKilled }) => isKilled)) this.excused = this.lists.length;
  }

  async calm() {
    for (const ms of CALM_MS) {
      this.clock.pass(ms);
      await this.s.waitIdle();
    }
  }

  check() {
    const wanted = new Set(this.workers.flatMap(({ users }) => [...users.keys()]));
    const list = [...wanted].sort().join(', ');
    assert.equal(this.list(), list, 'the list in Redis');
    for (const [at, text] of this.lists.slice(this.excused)) {
      const seen = new Set(text === '' ? [] : text.split(', '));
      for (const { room, isJoin, user } of this.events.slice(at))
        seen[isJoin ? 'add' : 'delete'](`${room} ${user}`);
      assert.equal([...seen].sort().join(', '), list, `a list (${text}), with the events since`);
    }
    for (const { name, presence, isKilled } of this.workers) {
      if (isKilled) continue;
      assert.equal(presence.changed.size, 0, `${name} has unwritten changes`);
      const { past, dead } = presence.session;
      assert.deepEqual([past, dead.hasWork], [[], false], `${name} has sessions to clear`);
    }
    const left = [...this.server.keys.keys.keys()].filter((key) => key.includes(':users:'));
    for (const key of left)
      assert.ok(
        this.workers.some(
          ({ presence, isKilled }) => !isKilled && key.endsWith(`:${presence.session.name}`),
        ),
        `${key} has no owner`,
      );
  }
}

/** @param {RedisPresence} presence */
function owesEvents({ rooms }) {
  return [...rooms.values()].some(({ users, changes }) =>
    [...users.values(), ...changes.values()].some(({ isRefused }) => isRefused === true),
  );
}

/** @typedef {{next: () => {value?: number}}} Draws */
/** @typedef {{nowMs: number, pass: (ms: number) => void}} Clock */

test('the list in Redis, and each list with the events since, become right after any trouble', async (t) => {
  const { timers } = t.mock;
  timers.enable({ apis: ['setTimeout'] });
  const clock = {
    nowMs: 1_700_000_000_000,
    pass(/** @type {number} */ ms) {
      clock.nowMs += ms;
      timers.tick(ms);
    },
  };
  t.mock.method(performance, 'now', () => clock.nowMs);
  t.mock.method(Math, 'random', () => 0.5);
  await inAllOrders(
    [
      fc.infiniteStream(fc.nat(999)),
      fc.array(fc.array(step, { maxLength: 6 }), { minLength: 2, maxLength: 2 }),
      fc.array(fault, { maxLength: 4 }),
      fc.boolean(),
    ],
    async (s, draws, steps, faults, isSaved) => {
      timers.reset();
      timers.enable({ apis: ['setTimeout'] });
      const scene = new Scene(s, clock, draws);
      for (const [i, worker] of scene.workers.entries())
        inOrder(
          s,
          steps[i].map((one) => [
            `${worker.name}: ${one.what} ${one.room} ${one.user}`,
            () => worker.take(one),
          ]),
        );
      inOrder(
        s,
        faults.map((one) => [JSON.stringify(one), () => scene.strike(one)]),
      );
      if (isSaved)
        inOrder(s, [['Redis: saves', () => void (scene.saved = scene.server.keys.snapshot())]]);
      await s.waitIdle();
      await scene.calm();
      scene.check();
      for (const { presence } of scene.workers) presence.session.beat.stop();
    },
    RUNS,
  );
});
