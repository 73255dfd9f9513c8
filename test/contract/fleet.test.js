// fleet.test.js: surveys of a fleet (src/worker/fleet.js), over every backend. The workers are hubs
// with fake transports, each with a backend of its own.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RateLimiter } from '../../src/admission/rate-limit.js';
import { RefusedNames } from '../../src/admission/refused.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { Connection } from '../../src/hub/connection.js';
import { EVERYONE } from '../../src/hub/hub.js';
import { encodeNotice, encodePublication, KIND } from '../../src/protocol/publication.js';
import { createCloseAll } from '../../src/worker/close-all.js';
import { Fleet } from '../../src/worker/fleet.js';
import { FleetMember } from '../../src/worker/fleet-member.js';
import { decodeRequest } from '../../src/worker/fleet-wire.js';
import { Tail } from '../../src/worker/tail.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, describeWorker, QUIET, receive } from '../helpers/hub.js';
import { BACKENDS, configOf, eventually, sideBySide, startServer } from './suite.js';

/** @typedef {import('node:test').TestContext} TestContext */

const HISTORY = [{ pattern: 'h.*', value: { size: 10, ttlMs: 60_000 } }];
const PRESENCE = [{ pattern: 'p.*', value: /** @type {const} */ (true) }];

/** A worker: its hub, and its view of the fleet. */
class Member {
  /**
   * @param {Awaited<ReturnType<Awaited<ReturnType<typeof startServer>>>>} backend
   * @param {{deadlineMs?: number}} options
   */
  constructor({ broker, presence }, { deadlineMs }) {
    const history = new RoomRules(HISTORY);
    const presenceRules = new RoomRules(PRESENCE);
    const config = configOf({ maxRoomsPerConnection: 30, messagesBurst: 1 });
    const covers = (/** @type {string} */ room) => presenceRules.ruleFor(room) !== null;
    const historyOf = (/** @type {string} */ room) => history.ruleFor(room);
    const parts = buildHub({ config, broker, historyOf, presence: presence ?? undefined, covers });
    this.broker = broker;
    this.presence = presence;
    this.hub = parts.hub;
    this.turn = parts.turn;
    this.commands = parts.commands;
    this.counters = parts.counters;
    this.scheduler = parts.scheduler;
    this.limiter = new RateLimiter(config, parts.counters);
    this.fleet = new Fleet({
      hub: this.hub,
      broker,
      occupancy: null,
      historyOf,
      tracker: this.hub.tracker,
      member: new FleetMember({
        hub: this.hub,
        joins: parts.operations.joins,
        sessions: null,
        scheduler: this.scheduler,
        refused: new RefusedNames(),
        limiter: this.limiter,
        surveys: parts.turn.line('surveys', (act) => act()),
        closeAll: createCloseAll(parts.turn),
        describe: describeWorker,
      }),
      counters: parts.counters,
      deadlineMs,
    });
  }

  async start() {
    await this.broker.start({
      onPublication: this.hub.broadcast.bind(this.hub),
      onState() {},
    });
    await this.presence?.start();
    await this.hub.start();
  }

  /** @param {string[]} rooms @param {string} [user] in rooms with presence */
  async client(rooms, user) {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '127.0.0.1');
    this.hub.addConnection(connection);
    for (const room of rooms) {
      const presence = user === undefined ? false : { user };
      receive(this.commands, connection, { type: 'join', room, presence });
    }
    const count = () => transport.messages().filter(({ type }) => type === 'joined').length;
    await eventually(() => count() === rooms.length);
    return { connection, transport };
  }
}

/**
 * @param {TestContext} t
 * @param {string} backend
 * @param {number} count of workers
 * @param {{deadlineMs?: number}} [options]
 */
async function fleetOf(t, backend, count, options = { deadlineMs: 5000 }) {
  const make = await startServer(t, backend, { history: HISTORY, presence: PRESENCE });
  /** @type {Member[]} */
  const members = [];
  for (let i = 0; i < count; i++) {
    const member = new Member(await make(), options);
    await member.start();
    t.after(() => {
      member.scheduler.close();
      member.fleet.close();
    });
    members.push(member);
  }
  await eventually(async () => (await members[0].broker.countWorkers()) === count);
  return members;
}

/** @type {Map<string, (() => void)[]>} */
const tests = new Map(BACKENDS.map((backend) => [backend, []]));

for (const [backend, ofBackend] of tests) {
  /** @param {string} behaviour @param {(t: TestContext) => Promise<void>} body */
  const it = (behaviour, body) => {
    ofBackend.push(() => {
      test(`${backend}: ${behaviour}`, { timeout: 40_000 }, async (t) => body(t));
    });
  };

  it('the rooms of all workers are listed by name, with their connections', async (t) => {
    const [a, b, c] = await fleetOf(t, backend, 3);
    await a.client(['m', 'z']);
    await b.client(['m', 'b']);
    await b.client(['m']);
    await c.client(['h.1']);
    const all = await a.fleet.rooms();
    assert.deepEqual(all, {
      rooms: [
        { room: 'b', connections: 1 },
        { room: 'h.1', connections: 1 },
        { room: 'm', connections: 3 },
        { room: 'z', connections: 1 },
      ],
      isPartial: false,
    });
    const page = await c.fleet.rooms({ after: 'b', limit: 2 });
    assert.deepEqual(
      page.rooms.map(({ room }) => room),
      ['h.1', 'm'],
    );
    assert.deepEqual(await b.fleet.rooms({ prefix: 'h' }), {
      rooms: [{ room: 'h.1', connections: 1 }],
      isPartial: false,
    });
  });

  it('a room has its connections, its users and its position', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    await a.client(['p.1'], 'alice');
    await b.client(['p.1', 'h.1'], 'alice');
    await b.client(['p.1'], 'bob');
    const position = await a.broker.publish('h.1', Buffer.alloc(20));
    // A cluster that has just begun refuses some presence writes, and reads pause with them.
    await eventually(async () => {
      const room = await a.fleet.room('p.1').catch(unlessUnavailable);
      return room?.users === 2;
    });
    assert.deepEqual(await a.fleet.room('p.1'), {
      room: 'p.1',
      connections: 3,
      users: 2,
      hasHistory: false,
      position: null,
      isPartial: false,
    });
    assert.deepEqual(await b.fleet.room('h.1'), {
      room: 'h.1',
      connections: 1,
      users: null,
      hasHistory: true,
      position,
      isPartial: false,
    });
    assert.equal((await a.fleet.room('nowhere')).connections, 0);
  });

  it('the connections of a user are listed with their rooms, and workers describe themselves', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    const { connection } = await a.client(['p.1', 'm'], 'alice');
    await b.client(['p.2'], 'alice');
    await b.client(['p.2'], 'bob');
    const { count, listed, isPartial } = await b.fleet.connections({ user: 'alice' });
    assert.deepEqual([count, isPartial], [2, false]);
    const { connectedAt, ...row } = rowOf(listed, connection);
    assert.deepEqual(row, {
      id: connection.id,
      address: '127.0.0.1',
      transport: 'websocket',
      roomCount: 2,
      rooms: ['p.1', 'm'],
      server: 'test',
      user: '',
      unsentBytes: 0,
      worker: 0,
      laggingRooms: 0,
      refusedMessages: 0,
    });
    const age = Date.now() - (connectedAt ?? 0);
    assert.ok(age > -2000 && age < 20_000, `${age} ms`);
    assert.deepEqual(await a.fleet.workers(), {
      workers: [describeWorker(), describeWorker()],
      isPartial: false,
    });
  });

  it('connections are found by address, by room and by id, on every worker', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    const { connection } = await a.client(['m', 'n']);
    await b.client(['m']);
    const from = await b.fleet.connections({ address: '127.0.0.1' });
    assert.deepEqual([from.count, from.listed.length, from.isPartial], [2, 2, false]);
    assert.equal((await b.fleet.connections({ address: '127.0.0.2' })).count, 0);
    const members = await b.fleet.connections({ room: 'm' });
    assert.deepEqual([members.count, members.listed.length, members.isPartial], [2, 2, false]);
    const [member] = (await b.fleet.connections({ room: 'n' })).listed;
    assert.equal(member.id, connection.id);
    assert.equal((await b.fleet.connections({ room: 'nowhere' })).count, 0);
    const one = await b.fleet.connections({ connectionId: connection.id });
    assert.deepEqual([one.count, one.listed[0]?.id], [1, connection.id]);
  });

  it('a connection shows its unsent bytes, its lag, its refusals and its first rooms', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    const rooms = Array.from({ length: 25 }, (_, i) => `m.${i}`);
    const { connection, transport } = await a.client(rooms);
    transport.pendingBytes = 700;
    connection.beginLag();
    const hourMs = 3_600_000;
    Object.assign(connection, { openedS: connection.openedS - hourMs / 1000 });
    const nowMs = performance.now();
    for (let i = 0; i < 3; i++) a.limiter.admitMessage(connection, '127.0.0.1', nowMs);
    const [row] = (await b.fleet.connections({ connectionId: connection.id })).listed;
    assert.deepEqual(
      [row.unsentBytes, row.laggingRooms, row.refusedMessages, row.roomCount, row.rooms],
      [700, 1, 2, 25, rooms.slice(0, 20)],
    );
    const age = Date.now() - (row.connectedAt ?? 0);
    assert.ok(age > hourMs - 2000 && age < hourMs + 20_000, `${age} ms`);
    // The refusals of a minute that has ended do not count.
    assert.equal(a.limiter.refusedOf(connection, nowMs + 60_001), 0);
  });

  it('a connection of another door shows the door and its app', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    const { connection, transport } = await a.client(['m']);
    const appOf = (/** @type {object} */ one) => (one === connection ? '123' : null);
    transport.door = { ...transport.door, name: 'pusher', appOf };
    const [row] = (await b.fleet.connections({ connectionId: connection.id })).listed;
    assert.deepEqual([row.transport, row.app], ['pusher', '123']);
  });

  it('a list of connections is bounded on each worker, and in sum', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    for (const { hub } of [a, b])
      for (let i = 0; i < 110; i++) {
        const connection = new Connection(new FakeTransport(), '192.0.2.1');
        hub.addConnection(connection);
        hub.join(connection, 'm', QUIET);
      }
    for (const target of [{ room: 'm' }, { address: '192.0.2.1' }]) {
      const some = await a.fleet.connections(target);
      assert.deepEqual([some.count, some.listed.length], [220, 100]);
      const more = await a.fleet.connections(target, 1000);
      assert.deepEqual([more.count, more.listed.length], [220, 200]);
      assert.equal(new Set(more.listed.map(({ id }) => id)).size, 200);
    }
  });

  it('the largest and the busiest rooms come first, over all workers', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    await a.client(['large', 'busy', 'alone']);
    await b.client(['large', 'busy']);
    await b.client(['large']);
    const windowOf = (/** @type {number} */ nowMs) => {
      for (const { hub } of [a, b]) hub.sweep(nowMs);
    };
    windowOf(10_000);
    const publication = encodePublication(KIND.MESSAGE, 0, 0, '', Buffer.from('1'), 0, 1);
    const heard = (/** @type {string} */ room) =>
      [a, b].map(({ hub }) => hub.rooms.get(room)?.heard ?? 0);
    for (let i = 0; i < 5; i++) await a.broker.publish('busy', publication);
    await a.broker.publish('alone', publication);
    await eventually(() => `${[...heard('busy'), ...heard('alone')]}` === '5,5,1,0');
    // A window that has not ended has no rate.
    assert.equal((await a.fleet.top('messages', 1)).rooms[0].messagesPerSecond, 0);
    windowOf(20_000);
    assert.deepEqual(await b.fleet.top('messages', 2), {
      rooms: [
        { room: 'busy', connections: 2, messagesPerSecond: 0.5 },
        { room: 'alone', connections: 1, messagesPerSecond: 0.1 },
      ],
      isPartial: false,
    });
    const { rooms } = await a.fleet.top('connections', 2);
    assert.deepEqual(
      rooms.map(({ room, connections }) => `${room} ${connections}`),
      ['large 3', 'busy 2'],
    );
    windowOf(40_000);
    assert.equal((await b.fleet.top('messages', 1)).rooms[0].messagesPerSecond, 0);
  });

  it('those who are refused most come first, over all workers', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    const ofMember = (/** @type {Member} */ { fleet }) =>
      /** @type {RefusedNames} */ (fleet.member.refused);
    for (let i = 0; i < 3; i++) ofMember(a).countRefusal('messages', '192.0.2.1', 'alice');
    ofMember(b).countRefusal('connections', '192.0.2.1');
    for (let i = 0; i < 5; i++) ofMember(b).countRefusal('connections', '192.0.2.2');
    assert.deepEqual(await a.fleet.refused(), {
      addresses: [
        ['192.0.2.2', 5, 0],
        ['192.0.2.1', 1, 3],
      ],
      users: [['alice', 0, 3]],
      forgotten: 0,
      isPartial: false,
    });
  });

  it('an operator who watches a room gets its messages, and is counted nowhere', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    /** @type {string[]} */
    const texts = [];
    let left = 0;
    let isOpen = false;
    const tail = new Tail({
      hub: a.hub,
      room: 'm',
      onLines: (lines, leftNow) => {
        isOpen = true;
        left += leftNow;
        texts.push(...lines.map(({ text }) => text));
      },
      onEnd: () => assert.fail('the tail ended'),
    });
    tail.start();
    t.after(() => tail.close());
    await eventually(() => isOpen);
    assert.equal((await b.fleet.room('m')).connections, 0);
    assert.deepEqual((await b.fleet.rooms()).rooms, []);
    assert.deepEqual(await b.fleet.connections({ room: 'm' }), {
      count: 0,
      listed: [],
      isPartial: false,
    });
    const { transport } = await b.client(['m']);
    const count = 200;
    // At once: one after the other they may take so long that all are shown.
    await Promise.all(
      Array.from({ length: count }, (_, i) => {
        const payload = Buffer.from(String(i));
        const message = encodePublication(KIND.MESSAGE, 0, 0, 'x', payload, 0, payload.length);
        return b.broker.publish('m', message);
      }),
    );
    await eventually(() => texts.length + left === count);
    assert.ok(left > 0 && texts.length >= 20, `${texts.length} shown, ${left} left out`);
    const messages = transport.messages().filter(({ type }) => type === 'message');
    assert.deepEqual(JSON.parse(texts[0]), messages[0]);
    assert.equal((await a.fleet.room('m')).connections, 1);
    tail.close();
    assert.equal(a.hub.rooms.has('m'), false);
  });

  it('users with a connection on any worker are online', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    await a.client(['p.1'], 'alice');
    await b.client(['p.2'], 'bób "x"');
    const asked = ['carol', 'bób "x"', 'alice'];
    assert.deepEqual(await a.fleet.online(asked), {
      users: ['bób "x"', 'alice'],
      isPartial: false,
    });
    assert.deepEqual((await b.fleet.online([])).users, []);
  });

  it('a user is disconnected on all workers, a connection by its id, others stay', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    const mine = [await a.client(['p.1', 'p.2'], 'alice'), await b.client(['p.1'], 'alice')];
    const other = await b.client(['p.1'], 'bob');
    assert.equal(await a.fleet.disconnect({ user: 'alice' }), 2);
    for (const { transport } of mine)
      assert.deepEqual(transport.closed, { code: 4503, reason: 'disconnected' });
    assert.equal(other.transport.closed, null);
    assert.equal(await a.fleet.disconnect({ connectionId: other.connection.id }, 4005), 1);
    assert.deepEqual(other.transport.closed, { code: 4005, reason: 'rate limited' });
    assert.equal(await a.fleet.disconnect({ connectionId: 'another-0' }), 0);
  });

  it('a connection that closes while its user is looked for is joined to nothing', async (t) => {
    const [a] = await fleetOf(t, backend, 1);
    const { connection } = await a.client(['p.1'], 'alice');
    const { connection: other } = await a.client([]);
    // After 500 rooms a walk looks at the clock, and goes on when it may.
    for (let i = 0; i < 500; i++) a.hub.join(other, `m.${i}`, QUIET);
    /** @type {Promise<() => void>} */
    const pause = new Promise((resolve) => {
      Object.assign(a.fleet.member, { surveys: { isSpent: () => true, push: resolve } });
    });
    const joined = a.fleet.join('alice', ['p.2']);
    const goOn = await pause;
    a.hub.removeConnection(connection);
    goOn();
    assert.equal(await joined, 0);
    assert.deepEqual([a.hub.rooms.has('p.2'), connection.roomCount], [false, 0]);
  });

  it('a user is joined to rooms and removed from them, on all workers', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    const mine = [await a.client(['p.1'], 'alice'), await b.client(['p.1'], 'alice')];
    const full = await b.client(
      ['p.1', ...Array.from({ length: 29 }, (_, i) => `x.${i}`)],
      'alice',
    );
    assert.equal(await a.fleet.join('alice', ['p.1', 'h.1']), 2);
    for (const { transport } of mine) {
      await eventually(() => transport.messages().some(({ room }) => room === 'h.1'));
      assert.equal(transport.messages().at(-1)?.type, 'joined');
    }
    assert.equal((await a.fleet.room('h.1')).connections, 2);
    assert.ok(full.transport.messages().every(({ type }) => type === 'joined'));
    assert.equal(await b.fleet.leave('alice', ['h.1']), 2);
    for (const { transport } of mine) {
      const left = { type: 'left', room: 'h.1', reason: 'removed' };
      await eventually(() => transport.messages().some(({ type }) => type === 'left'));
      assert.deepEqual(transport.messages().at(-1), left);
    }
    assert.equal((await a.fleet.room('h.1')).connections, 0);
    assert.equal(await b.fleet.leave('alice', ['h.1']), 0);
  });

  it('a deleted history begins a new epoch, and no client is recovered across it', async (t) => {
    const [a, b, c] = await fleetOf(t, backend, 3);
    const members = [await a.client(['h.1']), await b.client(['h.1'])];
    const position = await publish(a, 'h.1', '"old"');
    await publish(b, 'h.2', '"kept"');
    for (const { transport } of members)
      await eventually(() => transport.messages().some(({ payload }) => payload === 'old'));
    await c.fleet.deleteHistory('h.1');
    const page = await c.broker.history('h.1', { after: 0, limit: 10 });
    assert.notEqual(page.epoch, position.epoch);
    assert.deepEqual([page.offset, page.publications], [0, []]);
    assert.equal((await a.broker.history('h.2', { after: 0, limit: 10 })).offset, 1);
    for (const { hub, commands } of [a, b]) {
      const transport = new FakeTransport();
      const connection = new Connection(transport, '127.0.0.1');
      hub.addConnection(connection);
      const since = { epoch: position.epoch, offset: 0 };
      receive(commands, connection, { type: 'join', room: 'h.1', since });
      await eventually(() => transport.messages().length > 0);
      assert.equal(transport.messages()[0].recovered, false);
      assert.ok(transport.messages().every(({ payload }) => payload !== 'old'));
    }
    for (const { transport } of members) {
      await eventually(() => transport.messages().some(({ type }) => type === 'resync'));
      const resync = transport.messages().find(({ type }) => type === 'resync');
      assert.deepEqual([resync.epoch, resync.offset], [page.epoch, 0]);
    }
    assert.deepEqual(await publish(a, 'h.1', '"new"'), { epoch: page.epoch, offset: 1 });
    for (const { transport } of members) {
      await eventually(() => transport.messages().some(({ payload }) => payload === 'new'));
      assert.equal(transport.messages().at(-1)?.offset, 1);
    }
  });

  it('a history without publications is deleted without effect', async (t) => {
    const [a] = await fleetOf(t, backend, 1);
    await a.fleet.deleteHistory('h.1');
    assert.equal((await publish(a, 'h.1', '1')).offset, 1);
  });

  it('without the answer of a worker a read is partial, and an action unknown', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2, { deadlineMs: 100 });
    await a.client(['p.1'], 'alice');
    await b.client(['p.1'], 'alice');
    b.hub.listenForNotices(KIND.SURVEY, () => true);
    assert.deepEqual(await a.fleet.rooms(), {
      rooms: [{ room: 'p.1', connections: 1 }],
      isPartial: true,
    });
    assert.equal((await a.fleet.online(['alice'])).isPartial, true);
    const members = await a.fleet.connections({ room: 'p.1' });
    assert.deepEqual([members.count, members.isPartial], [1, true]);
    await assert.rejects(a.fleet.disconnect({ user: 'alice' }), { code: 'OUTCOME_UNKNOWN' });
    assert.equal(a.counters.surveys.partial, 4);
    // A connection is on one worker. If that worker answers, the others do not matter.
    const { connection } = await a.client(['r']);
    assert.equal((await a.fleet.connections({ connectionId: connection.id })).isPartial, false);
    assert.equal(await a.fleet.disconnect({ connectionId: connection.id }), 1);
    assert.equal(connection.isOpen, false);
    const disconnect = a.fleet.disconnect({ connectionId: connection.id });
    await assert.rejects(disconnect, { code: 'OUTCOME_UNKNOWN' });
  });

  it('a worker that has closed is not waited for', async (t) => {
    const [a, b] = await fleetOf(t, backend, 2);
    await b.broker.close();
    await eventually(async () => (await a.broker.countWorkers()) === 1);
    assert.equal((await a.fleet.rooms()).isPartial, false);
    await assert.rejects(b.fleet.rooms(), { code: 'UNAVAILABLE' });
  });
}

sideBySide(tests);

/**
 * @param {Member} member
 * @param {string} room with history
 * @param {string} json
 */
async function publish({ broker }, room, json) {
  const payload = Buffer.from(json);
  const position = await broker.publish(
    room,
    encodePublication(KIND.MESSAGE, 0, 0, '', payload, 0, payload.length),
  );
  assert.ok(position, room);
  return position;
}

/** A member of a fleet of one, on the backend in memory. @param {TestContext} t */
async function alone(t) {
  const [member] = await fleetOf(t, 'memory', 1);
  return member;
}

const SURVEY = 'abcdefghijklmnop';
const OTHER = '*ponmlkjihgfedcba';

for (const [name, text] of /** @type {[string, string][]} */ ([
  ['no JSON', '['],
  ['no list', '{}'],
  ['null', 'null'],
  ['too few fields', JSON.stringify([SURVEY, OTHER, 'rooms'])],
  ['another reply room', JSON.stringify([SURVEY, 'chat.1', 'room', { room: 'a' }])],
  ['the room of all as reply room', JSON.stringify([SURVEY, '*', 'room', { room: 'a' }])],
  ['another verb', JSON.stringify([SURVEY, OTHER, 'constructor', {}])],
  ['no arguments', JSON.stringify([SURVEY, OTHER, 'rooms', null])],
  ['a limit of 0', JSON.stringify([SURVEY, OTHER, 'rooms', { prefix: '', after: '', limit: 0 }])],
  [
    'a limit above the bound',
    JSON.stringify([SURVEY, OTHER, 'rooms', { prefix: '', after: '', limit: 1e9 }]),
  ],
  [
    'too many users',
    JSON.stringify([SURVEY, OTHER, 'online', { users: Array.from({ length: 1001 }, String) }]),
  ],
  [
    'another close code',
    JSON.stringify([SURVEY, OTHER, 'disconnect', { user: 'a', connectionId: null, code: 1006 }]),
  ],
  [
    'a user and a connection',
    JSON.stringify([SURVEY, OTHER, 'disconnect', { user: 'a', connectionId: 'b', code: 4503 }]),
  ],
  [
    'a room and an address',
    JSON.stringify([SURVEY, OTHER, 'find', { address: 'a', connectionId: null, room: 'r' }]),
  ],
  [
    'neither room, address nor connection',
    JSON.stringify([SURVEY, OTHER, 'find', { address: null, connectionId: null, room: null }]),
  ],
  ['an invalid room', JSON.stringify([SURVEY, OTHER, 'join', { user: 'a', rooms: ['no spaces'] }])],
  ['a long text', `["${'x'.repeat(2 ** 20)}"]`],
])) {
  test(`a forged request with ${name} is dropped and counted`, async (t) => {
    const { hub, counters } = await alone(t);
    hub.broadcast(EVERYONE, encodeNotice(KIND.SURVEY, text));
    assert.equal(counters.malformed, 1);
  });
}

test('a request without a payload is dropped and counted', async (t) => {
  const { hub, counters } = await alone(t);
  for (const bytes of [[KIND.SURVEY], [KIND.ANSWER], [KIND.SURVEY, ...Array(11).fill(255)]])
    hub.broadcast(EVERYONE, Buffer.from(bytes));
  assert.equal(counters.malformed, 3);
});

test('forged answers are dropped, and a survey waits for the true ones', async (t) => {
  const [a, b] = await fleetOf(t, 'memory', 2);
  await b.client(['r']);
  /** @type {string[]} */
  const forgeries = [];
  const { hub, fleet } = a;
  b.hub.listenForNotices(KIND.SURVEY, (publication) => {
    const [survey, replyRoom] = JSON.parse(publication.toString('utf8', 12));
    for (const rows of [7, [['no room!', 1]], [['r', -1]], [['r', 1], 2], 'x'])
      forgeries.push(JSON.stringify([survey, SURVEY, rows]));
    forgeries.push(JSON.stringify([survey, 'x', []]), JSON.stringify([survey, SURVEY]));
    forgeries.push(JSON.stringify([SURVEY, SURVEY, []]));
    for (const text of forgeries) hub.broadcast(replyRoom, encodeNotice(KIND.ANSWER, text));
    const answer = JSON.stringify([survey, b.fleet.name, [['r', 1]]]);
    hub.broadcast(replyRoom, encodeNotice(KIND.ANSWER, answer));
    // The second of the same worker counts no more.
    hub.broadcast(replyRoom, encodeNotice(KIND.ANSWER, answer));
    return true;
  });
  assert.deepEqual(await fleet.rooms(), {
    rooms: [{ room: 'r', connections: 1 }],
    isPartial: false,
  });
  assert.equal(a.counters.malformed, forgeries.length - 1);
});

test('surveys under way are bounded', async (t) => {
  const { fleet, counters } = await alone(t);
  const surveys = Array.from({ length: 1001 }, () => fleet.room('r'));
  const results = await Promise.allSettled(surveys);
  const refused = results.filter(({ status }) => status === 'rejected');
  assert.equal(refused.length, 1);
  assert.equal(counters.surveys.refused, 1);
});

test('the arguments of a survey are checked before it is sent', async (t) => {
  const { fleet } = await alone(t);
  await assert.rejects(fleet.rooms({ limit: 1001 }), RangeError);
  await assert.rejects(fleet.disconnect({ user: '' }), RangeError);
  await assert.rejects(fleet.join('a', ['no spaces']), RangeError);
});

/** @param {import('../../src/worker/turn.js').Turn} turn */
function spendAtEachLook(turn) {
  let nowMs = 0;
  turn.clock = () => {
    nowMs += 0.2;
    return nowMs;
  };
}

test('a survey of 20,000 rooms takes slices of a turn', async (t) => {
  const { fleet, hub, turn } = await alone(t);
  spendAtEachLook(turn);
  const connection = new Connection(new FakeTransport(), '127.0.0.1');
  hub.addConnection(connection);
  for (let i = 0; i < 20_000; i++) hub.join(connection, `r.${i}`, QUIET);
  let turns = 0;
  let isDone = false;
  const count = () => {
    turns++;
    if (!isDone) setImmediate(count);
  };
  const page = fleet.rooms({ limit: 3 });
  setImmediate(count);
  const { rooms } = await page;
  isDone = true;
  assert.deepEqual(
    rooms.map(({ room }) => room),
    ['r.0', 'r.1', 'r.10'],
  );
  assert.ok(turns >= 5, `${turns} turns`);
});

test('a search of 20,000 connections takes slices of a turn', async (t) => {
  const { fleet, hub, turn } = await alone(t);
  spendAtEachLook(turn);
  for (let i = 0; i < 20_000; i++)
    hub.addConnection(new Connection(new FakeTransport(), i % 2 === 0 ? '192.0.2.1' : '192.0.2.2'));
  let turns = 0;
  let isDone = false;
  const count = () => {
    turns++;
    if (!isDone) setImmediate(count);
  };
  const search = fleet.connections({ address: '192.0.2.2' });
  setImmediate(count);
  const found = await search;
  isDone = true;
  assert.deepEqual([found.count, found.listed.length], [10_000, 100]);
  assert.ok(turns >= 5, `${turns} turns`);
});

test('the request of an older worker, which searches no rooms, is understood', () => {
  const args = { address: '192.0.2.1', connectionId: null };
  const request = decodeRequest(JSON.stringify([SURVEY, OTHER, 'find', args]));
  assert.deepEqual(request?.args, args);
});

/** @param {import('../../src/worker/fleet-wire.js').UserConnection[]} listed @param {Connection} connection */
function rowOf(listed, { id }) {
  const row = listed.find((one) => one.id === id);
  assert.ok(row, id);
  return row;
}

/** @param {{code?: string}} error */
function unlessUnavailable(error) {
  if (error.code !== 'UNAVAILABLE') throw error;
  return null;
}
