// webhook-edges.test.js: each backend records an event for webhooks if and only if it happened, and
// once, whoever dies.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startRedis } from '../../loadtest/lib/redis.js';
import { Edges } from '../../src/backend/edges.js';
import * as embeddedRecorder from '../../src/backend/embedded/edges.js';
import { EmbeddedEventQueue } from '../../src/backend/embedded/event-queue.js';
import { EventRecorder } from '../../src/backend/embedded/event-recorder.js';
import { createBackend as createEmbedded } from '../../src/backend/embedded/index.js';
import { RelayClient } from '../../src/backend/embedded/relay-client.js';
import { RelayServer } from '../../src/backend/embedded/relay-server.js';
import { Occupancy } from '../../src/backend/occupancy.js';
import * as redisRecorder from '../../src/backend/redis/edges.js';
import { openEventQueue } from '../../src/backend/redis/event-queue.js';
import { createBackend as createRedis } from '../../src/backend/redis/index.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { DOOR_TYPES, EVENT_TYPES, WebhookSettings } from '../../src/config/webhooks.js';
import { createCounters } from '../../src/observability/counters.js';
import { encodeMember } from '../../src/protocol/encode.js';
import { LANES } from '../../src/webhooks/queue.js';
import { startSentinels, until } from '../helpers/redis-sentinel.js';
import { TOPOLOGIES } from '../helpers/redis-topologies.js';
import { announcements, configOf, eventually, LINGER_MS, log, sideBySide } from './suite.js';

/** @typedef {import('../../src/webhooks/queue.js').WebhookEvent} WebhookEvent */
/** @typedef {import('../../src/webhooks/queue.js').EventQueue} EventQueue */
/** @typedef {import('../../src/config/redis.js').RedisSettings} RedisSettings */
/** @typedef {import('../../src/backend/redis/broker.js').RedisBroker} RedisBroker */
/** @typedef {import('node:test').TestContext} TestContext */

/** A Sentinel's failover takes some 10 s. */
const TIMEOUT_MS = 60_000;
/** A silent worker is dead after a time that no test waits for: the relay reports each death. */
const TIMES = { heartbeatMs: 200, ttlMs: 600_000, settleMs: 300 };
/** The same if the relay dies, too. */
const TTL_MS = 3000;

/** @type {(() => unknown)[]} */
const ends = [];
after(() => Promise.all(ends.map((end) => end())));

/** @param {Partial<import('../../src/config/webhooks.js').Endpoint> & {countedApps?: string[]}} wanted */
function settingsOf({ types = EVENT_TYPES, rooms = ['*'], countedApps = [] }) {
  const endpoint = /** @type {import('../../src/config/webhooks.js').Endpoint} */ ({
    types,
    rooms,
    pusher: null,
  });
  return new WebhookSettings([endpoint], false, countedApps);
}

/** A fleet: its servers share their records. */
class Fleet {
  /**
   * @param {TestContext} t
   * @param {RedisSettings|null} redis
   * @param {string} prefix
   * @param {WebhookSettings} webhooks
   */
  constructor(t, redis, prefix, webhooks) {
    this.t = t;
    this.redis = redis;
    this.config = configOf({
      redis,
      redisPrefix: prefix,
      redisTimeoutMs: 1000,
      webhooks,
      presence: [{ pattern: '*', value: true }],
      history: [{ pattern: 'h.*', value: { size: 10, ttlMs: 60_000 } }],
    });
    this.memory = new EmbeddedEventQueue();
    const opened = redis === null ? null : openEventQueue({ config: this.config });
    if (opened !== null) t.after(opened.close);
    /** @type {EventQueue} */
    this.queue = opened?.queue ?? this.memory;
    this.workers = 0;
    /** The recorder; null: as without endpoints. @type {typeof redisRecorder|null} */
    this.recorder = redisRecorder;
    this.times = TIMES;
    this.lingerMs = LINGER_MS;
  }

  /** @returns {Promise<() => Promise<Worker>>} starts the workers of one server */
  async server() {
    const { t, config } = this;
    const rules = new RoomRules(config.history);
    const covers = /** @type {WebhookSettings} */ (config.webhooks).covers.bind(config.webhooks);
    const counts = /** @type {WebhookSettings} */ (config.webhooks).counts.bind(config.webhooks);
    const recorder = this.redis === null ? new EventRecorder({ covers, queue: this.memory }) : null;
    const presence = { maxMembers: config.presenceMaxMembers, announcements };
    const relay = new RelayServer({
      log,
      historyOf: (room) => rules.of(room),
      presence,
      recorder,
    });
    await relay.start();
    t.after(() => relay.close());
    return async () => {
      const machine = new RelayClient({ path: relay.path, log });
      await machine.open();
      const parts = {
        config,
        log,
        counters: createCounters(),
        workerId: `worker-${++this.workers}`,
        historyRules: new RoomRules(config.history),
        announcements,
        machine,
        events: { onPublishLag() {}, onRoundTrip() {} },
      };
      const backend =
        this.redis === null
          ? createEmbedded(parts, { recorder: embeddedRecorder })
          : createRedis(parts, { recorder: this.recorder, presenceTimes: this.times });
      const store = backend.edges ?? NOBODY;
      assert.ok(backend.presence);
      const edges = new Edges({ store, covers, counts, lingerMs: this.lingerMs });
      const settings = /** @type {WebhookSettings} */ (config.webhooks);
      const occupancy = new Occupancy(store, settings);
      const { presence } = backend;
      const worker = new Worker({ ...backend, presence, edges, occupancy, machine });
      t.after(() => worker.close());
      await backend.broker.start(worker);
      await backend.presence.start();
      await edges.start();
      return worker;
    };
  }

  /** Everything recorded so far, by room in order. @returns {Promise<WebhookEvent[]>} */
  async events() {
    /** @type {WebhookEvent[]} */
    const all = [];
    for (let lane = 0; lane < LANES; lane++)
      for (const { body } of await this.queue.read(lane, null, 100_000)) all.push(JSON.parse(body));
    return all;
  }

  /** Waits for this many events. @param {number} count */
  async reached(count) {
    await eventually(() =>
      this.events().then(
        (events) => events.length >= count,
        () => false,
      ),
    );
  }

  /**
   * Waits for this many events, and for the time in which one more would come.
   * @param {number} count
   * @returns {Promise<string[]>} each as `type room user`
   */
  async recorded(count) {
    await this.reached(count);
    await new Promise((resolve) => setTimeout(resolve, 3 * LINGER_MS));
    return (await this.events()).map(textOf);
  }
}

/** @type {import('../../src/backend/edges.js').EdgeStore} */
const NOBODY = {
  start: async () => {},
  close: async () => {},
  enter() {},
  exit() {},
  count() {},
  publish() {},
  connectionsIn: async () => 0,
  occupied: async () => [],
  online: async () => [],
};

class Worker {
  /**
   * @param
   *   {Omit<import('../../src/backend/backend.js').Backend, 'edges'> & {presence: import('../../src/backend/presence.js').Presence, edges: Edges, occupancy: Occupancy, machine: RelayClient}}
   *   parts
   */
  constructor(parts) {
    this.broker = parts.broker;
    this.presence = parts.presence;
    this.edges = parts.edges;
    this.occupancy = parts.occupancy;
    this.machine = parts.machine;
    this.closeBackend = parts.close;
    /** Counts that were sent to a room. @type {number[]} */
    this.told = [];
    this.onPublication = (/** @type {string} */ _room, /** @type {Buffer} */ publication) => {
      if (publication[0] === 0x23) this.told.push(Number(publication.toString('latin1', 1)));
    };
  }

  onState() {}

  /** @param {string} room @param {string} user @param {unknown} [info] */
  join(room, user, info) {
    const bytes = info === undefined ? null : Buffer.from(JSON.stringify(info));
    this.presence.join(room, JSON.stringify(user), encodeMember(user, bytes));
  }

  /** @param {string} room @param {string} user */
  leave(room, user) {
    this.presence.leave(room, JSON.stringify(user));
  }

  /** The process is gone, without a word. */
  kill() {
    const { node, cluster, client } = /** @type {RedisBroker} */ (this.broker);
    node?.close();
    cluster?.close();
    client?.close();
    this.edges.lingering.clear();
    clearTimeout(this.edges.timer);
    this.machine.socket?.destroy();
  }

  async close() {
    await this.edges.close();
    await this.closeBackend();
    await this.machine.close();
  }
}

/** @param {WebhookEvent} event */
function textOf({ type, room = '', user = '' }) {
  return `${type} ${room} ${user}`.replace(/ +/g, ' ').trim();
}

/** Numbers of one sequence ascend by 1. @param {WebhookEvent[]} events */
function assertSequences(events) {
  /** @type {Map<string, number>} */
  const latest = new Map();
  for (const { room, user, type, epoch, seq } of events) {
    const key = type.startsWith('user.') ? `u ${user} ${epoch}` : `${room} ${epoch}`;
    assert.equal(seq, (latest.get(key) ?? 0) + 1, key);
    latest.set(key, seq);
  }
}

const KINDS = ['redis', 'redis cluster'];
/** @type {Map<string, Promise<RedisSettings>>} */
const started = new Map();
/** They begin at the end of this file. @type {Map<string, (() => void)[]>} */
const testsOf = new Map();
const lifetime = { after: (/** @type {() => unknown} */ end) => ends.push(end) };
let prefixes = 0;

/**
 * @param {TestContext} t @param {string} kind @param {Parameters<typeof settingsOf>[0]} [wanted]
 */
async function fleetOf(t, kind, wanted = {}) {
  let redis = null;
  if (kind !== 'embedded') {
    if (!started.has(kind)) started.set(kind, TOPOLOGIES[kind](lifetime));
    redis = /** @type {RedisSettings} */ (await started.get(kind));
  }
  return new Fleet(t, redis, `contract-edges-${++prefixes}:`, settingsOf(wanted));
}

/**
 * @param {string} behaviour
 * @param {(fleet: Fleet, t: TestContext) => Promise<void>} body
 * @param {Parameters<typeof settingsOf>[0]} [wanted]
 */
function it(behaviour, body, wanted) {
  for (const kind of ['embedded', ...KINDS])
    only(kind, behaviour, async (t) => body(await fleetOf(t, kind, wanted), t));
}

/**
 * @param {string} kind of backend
 * @param {string} behaviour
 * @param {(t: TestContext) => Promise<void>} body
 */
function only(kind, behaviour, body) {
  const tests = testsOf.get(kind) ?? [];
  testsOf.set(kind, tests);
  tests.push(() => {
    test(`${kind}: ${behaviour}`, { timeout: TIMEOUT_MS }, body);
  });
}

it('the first join and the last leave of a user are recorded once, over two workers', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  a.join('room', 'ann', { colour: 'red' });
  await fleet.reached(1);
  b.join('room', 'ann');
  b.join('room', 'bob "b"');
  await fleet.reached(2);
  a.leave('room', 'ann');
  await fleet.recorded(2);
  b.leave('room', 'ann');
  b.leave('room', 'bob "b"');
  assert.deepEqual(await fleet.recorded(4), [
    'member.joined room ann',
    'member.joined room bob "b"',
    'member.left room ann',
    'member.left room bob "b"',
  ]);
  const events = await fleet.events();
  assertSequences(events);
  assert.deepEqual(
    events.map(({ count }) => count),
    [1, 2, 1, 0],
  );
  assert.deepEqual(events[0].info, { colour: 'red' });
  assert.equal('info' in events[1], false);
  assert.ok(events.every(({ at }) => Math.abs(Date.now() - at) < 60_000));
});

it('a room is occupied once and vacated once, over two workers', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  a.edges.count('room', 1);
  a.edges.count('room', 2);
  await fleet.reached(1);
  b.edges.count('room', 1);
  b.edges.count('other', 1);
  await fleet.recorded(2);
  a.edges.count('room', 0);
  await fleet.recorded(2);
  b.edges.count('room', 0);
  const texts = await fleet.recorded(3);
  assert.deepEqual(texts.sort(), [
    'room.occupied other',
    'room.occupied room',
    'room.vacated room',
  ]);
  assertSequences(await fleet.events());
});

it('a room that empties and fills again on a worker causes no event', async (fleet) => {
  const a = await (await fleet.server())();
  for (let attempt = 1; ; attempt++) {
    const [room, user] = [`room-${attempt}`, `user-${attempt}`];
    a.edges.count(room, 1);
    a.edges.connect(user);
    await fleet.reached(2 * attempt);
    let longestMs = 0;
    for (let i = 0; i < 20; i++) {
      const leftMs = performance.now();
      a.edges.count(room, 0);
      a.edges.disconnect(user);
      await new Promise((resolve) => setTimeout(resolve, LINGER_MS / 5));
      a.edges.count(room, 1);
      a.edges.connect(user);
      longestMs = Math.max(longestMs, performance.now() - leftMs);
    }
    // A busy machine may wake this test too late: then the room was really empty.
    if (longestMs > LINGER_MS / 2) continue;
    const texts = (await fleet.recorded(2 * attempt)).filter((text) =>
      text.endsWith(`-${attempt}`),
    );
    assert.deepEqual(texts.sort(), [`room.occupied ${room}`, `user.connected ${user}`]);
    return;
  }
});

it('the first and the last connection of a user are recorded, whatever the name', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  const users = ['ann', 'a}b{c', '"\\é\u0000', '\u{1F600}', 'lane-3'];
  for (const user of users) a.edges.connect(user);
  await fleet.reached(users.length);
  for (const user of users) b.edges.connect(user);
  await fleet.recorded(users.length);
  for (const user of users) a.edges.disconnect(user);
  await fleet.recorded(users.length);
  for (const user of users) b.edges.disconnect(user);
  await fleet.recorded(2 * users.length);
  const events = await fleet.events();
  assertSequences(events);
  for (const name of users)
    assert.deepEqual(
      events.filter(({ user }) => user === name).map(({ type }) => type),
      ['user.connected', 'user.disconnected'],
    );
});

it('events of a room have one sequence, whatever their kind', async (fleet) => {
  const a = await (await fleet.server())();
  a.edges.count('room', 1);
  await fleet.reached(1);
  a.join('room', 'ann');
  await fleet.reached(2);
  a.edges.publish('room', { sender: 'ann', payload: '{"text":"hé"}', offset: undefined });
  await fleet.reached(3);
  a.leave('room', 'ann');
  await fleet.reached(4);
  a.edges.count('room', 0);
  assert.deepEqual(await fleet.recorded(5), [
    'room.occupied room',
    'member.joined room ann',
    'message.published room',
    'member.left room ann',
    'room.vacated room',
  ]);
  const events = await fleet.events();
  assertSequences(events);
  const { from, payload, offset } = events[2];
  assert.deepEqual(
    { from, payload, offset },
    { from: 'ann', payload: { text: 'hé' }, offset: undefined },
  );
});

it('a worker with 500 members is killed: 500 leave, once, and the room is vacated once', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  a.edges.count('room', 500);
  for (let i = 0; i < 500; i++) {
    a.join('room', `user-${i}`);
    a.edges.connect(`user-${i}`);
  }
  // This one stays.
  b.join('room', 'user-0');
  b.edges.connect('user-0');
  await fleet.recorded(1001);
  a.kill();
  const texts = (await fleet.recorded(2000)).sort();
  const count = (/** @type {string} */ type) =>
    texts.filter((text) => text.startsWith(type)).length;
  assert.deepEqual(
    ['member.joined', 'member.left', 'room.occupied', 'room.vacated', 'user.c', 'user.d'].map(
      count,
    ),
    [500, 499, 1, 1, 500, 499],
  );
  assert.equal(new Set(texts).size, texts.length);
  assertSequences(await fleet.events());
});

it('a worker that drains leaves everything, once', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  for (const one of [a, b]) one.edges.count('room', 1);
  a.edges.count('other', 1);
  a.join('room', 'ann');
  a.edges.connect('ann');
  await fleet.recorded(4);
  await a.close();
  assert.deepEqual((await fleet.recorded(7)).slice().sort(), [
    'member.joined room ann',
    'member.left room ann',
    'room.occupied other',
    'room.occupied room',
    'room.vacated other',
    'user.connected ann',
    'user.disconnected ann',
  ]);
});

it('the offset of a message is recorded, and of a large payload only the size', async (fleet) => {
  const a = await (await fleet.server())();
  const large = JSON.stringify('é'.repeat(10_000));
  a.edges.publish('h.room', { sender: 'ann', payload: '1', offset: 7 });
  a.edges.publish('h.room', { sender: 'ann', payload: large, offset: 8 });
  await fleet.reached(2);
  const [small, big] = await fleet.events();
  assert.deepEqual([small.payload, small.offset, small.bytes], [1, 7, undefined]);
  assert.deepEqual([big.payload, big.offset, big.bytes], [undefined, 8, 20_002]);
});

const COUNTED_ROOM = '~7:a';
const REPORTED = [...EVENT_TYPES.slice(0, 2), ...DOOR_TYPES];

it(
  'what a door reports is recorded in the order of its room',
  async (fleet) => {
    const a = await (await fleet.server())();
    const data = '{"text":"hé"}';
    a.edges.report(
      '~7:private-a',
      'client.event',
      { event: 'client-"x"', socket_id: '1.2', user_id: undefined },
      { data },
    );
    a.edges.report('~7:private-a', 'client.event', { event: 'long' }, { data: 'é'.repeat(9000) });
    a.edges.report('other', 'client.event', { event: 'client-y' }, { data });
    await fleet.recorded(2);
    const [small, large] = await fleet.events();
    const { seq, epoch, at, ...rest } = small;
    assert.deepEqual(rest, {
      type: 'client.event',
      room: '~7:private-a',
      event: 'client-"x"',
      socket_id: '1.2',
      data,
    });
    assert.deepEqual(
      [large.data, large.bytes, large.seq, large.epoch],
      [undefined, 18_002, 2, epoch],
    );
    assert.ok(seq === 1 && at > 0);
  },
  { types: REPORTED, rooms: ['~7:*'] },
);

it(
  'an event with a mark is recorded once over two workers, until the mark changes or the room is vacated',
  async (fleet) => {
    const worker = await fleet.server();
    const [a, b] = [await worker(), await worker()];
    const room = '~7:cache-a';
    for (const one of [a, b]) {
      one.edges.count(room, 1);
      await fleet.recorded(1);
    }
    const missed = (/** @type {Worker} */ one, /** @type {string} */ mark) =>
      one.edges.report(room, 'cache.missed', {}, { mark });
    for (const one of [a, b, a]) missed(one, 'epoch:0');
    assert.deepEqual(await fleet.recorded(2), [`room.occupied ${room}`, `cache.missed ${room}`]);
    missed(b, 'epoch:1');
    await fleet.recorded(3);
    for (const one of [a, b]) one.edges.count(room, 0);
    await fleet.recorded(4);
    a.edges.count(room, 1);
    await fleet.recorded(5);
    missed(a, 'epoch:1');
    assert.deepEqual((await fleet.recorded(6)).slice(2), [
      `cache.missed ${room}`,
      `room.vacated ${room}`,
      `room.occupied ${room}`,
      `cache.missed ${room}`,
    ]);
    assertSequences(await fleet.events());
  },
  { types: REPORTED, rooms: ['~7:*'] },
);

it(
  'a room that is followed for its misses alone causes no other event',
  async (fleet) => {
    const a = await (await fleet.server())();
    for (const mark of ['e:0', 'e:0']) {
      a.edges.count('~7:cache-a', 1);
      await new Promise((resolve) => setTimeout(resolve, 3 * LINGER_MS));
      a.edges.report('~7:cache-a', 'cache.missed', {}, { mark });
      a.edges.count('~7:cache-a', 0);
      await new Promise((resolve) => setTimeout(resolve, 3 * LINGER_MS));
    }
    const texts = await fleet.recorded(2);
    assert.deepEqual(texts, ['cache.missed ~7:cache-a', 'cache.missed ~7:cache-a']);
  },
  { types: ['cache.missed'], rooms: ['~7:*'] },
);

it(
  'a counted room is told how many connections all workers have, also after a death',
  async (fleet) => {
    const worker = await fleet.server();
    const [a, b] = [await worker(), await worker()];
    await a.broker.subscribe(COUNTED_ROOM);
    for (let n = 1; n <= 30; n++) a.edges.count(COUNTED_ROOM, n);
    a.edges.count('~7:presence-a', 2);
    a.edges.count('~8:a', 2);
    await eventually(() => a.told.length === 1);
    b.edges.count(COUNTED_ROOM, 3);
    await eventually(() => a.told.length === 2);
    b.edges.count(COUNTED_ROOM, 0); // it is left after the linger
    await eventually(() => a.told.length === 3);
    b.edges.count(COUNTED_ROOM, 4);
    await eventually(() => a.told.length === 4);
    b.kill();
    await eventually(() => a.told.length === 5);
    a.edges.count(COUNTED_ROOM, 31);
    a.edges.count(COUNTED_ROOM, 30); // within the time in which changes are one
    await fleet.recorded(6);
    assert.deepEqual(a.told, [30, 33, 30, 34, 30]);
    const events = await fleet.events();
    assert.deepEqual(
      events.map(({ type, room, count }) => `${type} ${room} ${count ?? ''}`.trim()),
      [
        `room.occupied ${COUNTED_ROOM}`,
        ...a.told.map((count) => `room.counted ${COUNTED_ROOM} ${count}`),
      ],
    );
    assertSequences(events);
  },
  { types: ['room.occupied', 'room.counted'], rooms: [`${COUNTED_ROOM}*`], countedApps: ['7'] },
);

it(
  'a large room is told its count at most every five seconds, and the last one in the end',
  async (fleet) => {
    const a = await (await fleet.server())();
    await a.broker.subscribe(COUNTED_ROOM);
    a.edges.count(COUNTED_ROOM, 101);
    await eventually(() => a.told.length === 1);
    const toldMs = performance.now();
    a.edges.count(COUNTED_ROOM, 102);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    a.edges.count(COUNTED_ROOM, 103);
    await eventually(() => a.told.length === 2);
    assert.ok(performance.now() - toldMs > 4500, `${performance.now() - toldMs} ms`);
    assert.deepEqual(a.told, [101, 103]);
    // No endpoint asks for events.
    assert.deepEqual(await fleet.events(), []);
  },
  { types: [], countedApps: ['7'] },
);

it('users of a door are recorded for nobody', async (fleet) => {
  const a = await (await fleet.server())();
  for (const user of ['~7:ann', '~ann']) a.edges.connect(user);
  assert.deepEqual(await fleet.recorded(1), ['user.connected ~ann']);
});

it(
  'only the rooms and kinds that an endpoint asks for are recorded',
  async (fleet) => {
    const a = await (await fleet.server())();
    assert.equal(a.edges.hasMessages, false);
    a.edges.count('chat.1', 1);
    a.edges.count('other', 1);
    a.join('chat.1', 'ann');
    a.edges.connect('ann');
    assert.deepEqual(await fleet.recorded(1), ['room.occupied chat.1']);
  },
  { types: ['room.occupied', 'room.vacated'], rooms: ['chat.*'] },
);

it('rooms are listed by name with the connections of all workers, in pages', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  // A client of a cluster connects to the node of these keys in its own time.
  await eventually(async () => (await b.occupancy.list({}).catch(() => null))?.length === 0);
  a.edges.connect('chat');
  for (const [room, count] of /** @type {const} */ ([
    ['chat', 1],
    ['chat-2', 2],
    ['chat.1', 3],
    ['chat.10', 4],
    ['chat.2', 5],
    ['other', 6],
  ])) {
    a.edges.count(room, count);
    if (count % 2 === 0) b.edges.count(room, 10);
  }
  const page = async (/** @type {Parameters<Occupancy['list']>[0]} */ wanted) =>
    (await b.occupancy.list(wanted)).map(({ room, connections }) => `${room} ${connections}`);
  await eventually(async () => (await page({})).join() === (await page({ limit: 6 })).join());
  await eventually(async () => (await page({ prefix: 'other' })).join() === 'other 16');
  assert.deepEqual(await page({ prefix: 'chat', limit: 4 }), [
    'chat 1',
    'chat-2 12',
    'chat.1 3',
    'chat.10 14',
  ]);
  assert.deepEqual(await page({ prefix: 'chat', after: 'chat.10' }), ['chat.2 5']);
  assert.deepEqual(await page({ prefix: 'chat.', after: 'a' }), [
    'chat.1 3',
    'chat.10 14',
    'chat.2 5',
  ]);
  assert.deepEqual(await page({ prefix: 'chat', after: 'other' }), []);
  assert.deepEqual(await page({ after: 'chat.2', limit: 1 }), ['other 16']);
  assert.equal(await a.occupancy.count('chat-2'), 12);
  assert.equal(await a.occupancy.count('cha'), 0);
});

it('the state that is read is that of the edges: who left a moment ago is there', async (fleet) => {
  fleet.lingerMs = 800;
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  const read = async () => ({
    rooms: (await b.occupancy.list({})).map(({ room, connections }) => `${room} ${connections}`),
    users: await b.occupancy.online(['ann', 'bob', 'a"b']),
  });
  a.edges.count('room', 1);
  a.edges.connect('a"b');
  a.edges.connect('ann');
  await fleet.reached(3);
  assert.deepEqual(await read(), { rooms: ['room 1'], users: ['ann', 'a"b'] });
  // If they came back now, no event would say so.
  a.edges.count('room', 0);
  a.edges.disconnect('ann');
  await eventually(async () => (await read()).rooms.join() === 'room 0');
  assert.deepEqual((await read()).users, ['ann', 'a"b']);
  assert.equal((await fleet.events()).length, 3);
  a.edges.count('room', 1);
  a.edges.connect('ann');
  await eventually(async () => (await read()).rooms.join() === 'room 1');
  a.edges.count('room', 0);
  a.edges.disconnect('ann');
  for (;;) {
    const { rooms, users } = await read();
    const events = (await fleet.events()).map(textOf);
    if (rooms.length === 0) assert.ok(events.includes('room.vacated room'));
    if (!users.includes('ann')) assert.ok(events.includes('user.disconnected ann'));
    if (rooms.length === 0 && users.join() === 'a"b') break;
  }
});

it('a count follows the joins and leaves within a worker, and goes with a killed one', async (fleet) => {
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  const is = (/** @type {number} */ count) =>
    eventually(async () => (await b.occupancy.count('room').catch(() => null)) === count);
  a.edges.count('room', 1);
  await is(1);
  a.edges.count('room', 200);
  b.edges.count('room', 3);
  await is(203);
  b.edges.count('room', 0);
  await is(200);
  a.edges.count('room', 0);
  await is(0);
  await eventually(async () => (await b.occupancy.list({})).length === 0);
  a.edges.count('room', 7);
  b.edges.count('room', 2);
  await is(9);
  for (let i = 0; i < 200; i++) a.edges.count(`room-${i}`, 1);
  await eventually(async () => (await b.occupancy.list({ limit: 1000 })).length === 201);
  a.kill();
  await eventually(async () => (await b.occupancy.list({ limit: 1000 })).length === 1);
  assert.deepEqual(await b.occupancy.list({}), [{ room: 'room', connections: 2 }]);
});

it('after random moves of three workers, one of which dies, pages of rooms are the truth', async (fleet) => {
  const worker = await fleet.server();
  const workers = [await worker(), await worker(), await worker()];
  /** @type {Map<string, number>[]} */
  const here = workers.map(() => new Map());
  let seed = 7;
  const random = (/** @type {number} */ below) => {
    seed = (seed * 48_271) % 0x7fffffff;
    return seed % below;
  };
  for (let step = 0; step < 4000; step++) {
    const who = step > 3000 ? 1 + random(2) : random(3);
    const room = `room-${random(300)}`;
    const count = random(4);
    here[who].set(room, count);
    workers[who].edges.count(room, count);
    if (step % 200 === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    if (step === 3000) workers[0].kill();
  }
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const counts of here.slice(1))
    for (const [room, count] of counts) sums.set(room, (sums.get(room) ?? 0) + count);
  const truth = [...sums]
    .filter(([, count]) => count > 0)
    .map(([room, count]) => `${room} ${count}`)
    .sort();
  const listed = async () => {
    const all = [];
    for (let after = ''; ; ) {
      const rooms = await workers[1].occupancy.list({ after, limit: 90 });
      for (const { room, connections } of rooms) all.push(`${room} ${connections}`);
      if (rooms.length < 90) return all.sort();
      after = rooms[89].room;
    }
  };
  await eventually(async () => (await listed()).join() === truth.join());
});

it('random joins and leaves of three workers, one of which dies, end in the truth', async (fleet) => {
  const worker = await fleet.server();
  const workers = [await worker(), await worker(), await worker()];
  /** Users by worker and room. @type {Set<string>[]} */
  const here = workers.map(() => new Set());
  for (let step = 0; step < 600; step++) {
    const who = step > 400 ? 1 + (step % 2) : step % 3;
    const [room, user] = [`room-${step % 7}`, `user-${(step * 7) % 11}`];
    const key = `${room} ${user}`;
    if (here[who].delete(key)) workers[who].leave(room, user);
    else {
      here[who].add(key);
      workers[who].join(room, user);
    }
    if (step % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    if (step === 400) workers[0].kill();
  }
  const truth = [...new Set([...here[1], ...here[2]])].sort();
  /** The state that a receiver of all events has. */
  const state = async () => {
    /** @type {Set<string>} */
    const present = new Set();
    for (const { type, room, user } of await fleet.events()) {
      const key = `${room} ${user}`;
      // Each user comes and goes in turn.
      assert.equal(present.has(key), type === 'member.left', `${type} ${key}`);
      if (!present.delete(key)) present.add(key);
    }
    return [...present].sort();
  };
  await eventually(async () => `${await state().catch(() => [])}` === `${truth}`);
  await new Promise((resolve) => setTimeout(resolve, 3 * LINGER_MS));
  assert.deepEqual(await state(), truth);
  assertSequences(await fleet.events());
});

// Only on Redis: several servers, outages, and their cost.

only(
  'redis',
  'two servers record a room once, and one clears up after the other has died as a whole',
  async (t) => {
    const fleet = await fleetOf(t, 'redis');
    fleet.times = { ...TIMES, ttlMs: TTL_MS };
    const [one, two] = [await fleet.server(), await fleet.server()];
    const [a, b] = [await one(), await two()];
    for (const worker of [a, b]) {
      worker.edges.count('room', 1);
      worker.edges.connect('ann');
      worker.join('room', 'ann');
    }
    a.join('room', 'bob');
    a.edges.count('alone', 1);
    await fleet.recorded(5);
    // No other server learns of it: the machine is gone, too.
    a.machine.nameSession('');
    a.kill();
    const texts = await fleet.recorded(7);
    assert.deepEqual(texts.sort(), [
      'member.joined room ann',
      'member.joined room bob',
      'member.left room bob',
      'room.occupied alone',
      'room.occupied room',
      'room.vacated alone',
      'user.connected ann',
    ]);
    assertSequences(await fleet.events());
  },
);

only(
  'redis',
  'edges of an outage are recorded when Redis returns, and those it still has are not',
  async (t) => {
    const redis = await startRedis(t, { args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
    const fleet = new Fleet(t, redis.settings, 'contract-outage:', settingsOf({}));
    const worker = await fleet.server();
    const [a, b] = [await worker(), await worker()];
    a.edges.count('stays', 1);
    b.edges.count('left', 1);
    a.join('stays', 'ann');
    a.join('stays', 'leaver');
    await fleet.recorded(4);
    await redis.stop();
    await eventually(() => a.broker.state === 'degraded' && b.broker.state === 'degraded');
    a.leave('stays', 'leaver');
    a.edges.count('new', 1);
    a.join('stays', 'new');
    b.edges.count('left', 0);
    await redis.restart();
    const texts = await fleet.recorded(8);
    assert.deepEqual(texts.sort(), [
      'member.joined stays ann',
      'member.joined stays leaver',
      'member.joined stays new',
      'member.left stays leaver',
      'room.occupied left',
      'room.occupied new',
      'room.occupied stays',
      'room.vacated left',
    ]);
  },
);

only(
  'redis',
  'after Redis has lost everything, a receiver of all events has the truth, in new lives',
  async (t) => {
    const redis = await startRedis(t);
    const fleet = new Fleet(t, redis.settings, 'contract-loss:', settingsOf({}));
    const a = await (await fleet.server())();
    a.edges.count('room', 1);
    a.edges.connect('ann');
    a.join('room', 'ann');
    await fleet.reached(3);
    const before = await fleet.events();
    await redis.cli('FLUSHALL');
    await fleet.recorded(3);
    const again = await fleet.events();
    assert.deepEqual(again.map(textOf).sort(), before.map(textOf).sort());
    assertSequences(again);
    const latest = Math.max(...before.map(({ epoch }) => Number(epoch)));
    assert.ok(again.every(({ epoch }) => Number(epoch) > latest));
    assert.deepEqual(await a.occupancy.list({}), [{ room: 'room', connections: 1 }]);
  },
);

only(
  'redis cluster',
  'a worker that dies between the recording and the lane loses nothing',
  async (t) => {
    const fleet = await fleetOf(t, 'redis cluster');
    const worker = await fleet.server();
    const [a, b] = [await worker(), await worker()];
    b.edges.count('other', 1);
    await fleet.reached(1);
    const { recording } = /** @type {redisRecorder.RedisEdges} */ (a.edges.store);
    recording.move = async () => {
      throw new Error('the process ends here');
    };
    a.edges.count('room', 1);
    a.edges.connect('ann');
    for (let i = 0; i < 300; i++) a.join('room', `user-${i}`);
    const outbox = recording.keys.of('room', 'outbox');
    const { redis } = /** @type {any} */ (recording);
    await eventually(async () => (await redis.llen(outbox)) >= 301);
    assert.equal((await fleet.events()).length, 1);
    a.kill();
    const texts = await fleet.recorded(605);
    assert.equal(new Set(texts).size, 605);
    assertSequences(await fleet.events());
  },
);

for (const topology of /** @type {const} */ (['redis', 'redis cluster']))
  only(
    topology,
    'a message is recorded without its payload while the lane has a backlog',
    async (t) => {
      const fleet = await fleetOf(t, topology);
      const a = await (await fleet.server())();
      const payload = '{"a":",\\"payload\\":","payload":1,"seq":2,"é":0}';
      for (let i = 0; i < 1100; i++)
        a.edges.publish('room', { sender: ',\\"payload\\":', payload, offset: undefined });
      a.join('room', 'ann');
      await fleet.reached(1101);
      const events = await fleet.events();
      const messages = events.filter(({ type }) => type === 'message.published');
      assert.deepEqual(messages[900].payload, JSON.parse(payload));
      const { payload: none, bytes, from, seq } = messages[1099];
      assert.deepEqual([none, bytes, from], [undefined, Buffer.byteLength(payload), ',"payload":']);
      assert.ok(seq >= 1100);
      assertSequences(events);
    },
  );

only(
  'redis',
  'a join costs the same commands whether or not webhooks cover the members',
  async (t) => {
    /** @param {Parameters<typeof settingsOf>[0]|null} wanted */
    const commandsOf = async (wanted) => {
      const fleet = await fleetOf(t, 'redis', wanted ?? { types: [] });
      if (wanted === null) fleet.recorder = null;
      const a = await (await fleet.server())();
      const { node } = /** @type {RedisBroker} */ (a.broker);
      const { redis } = /** @type {NonNullable<typeof node>} */ (node).commands;
      await a.presence.read('room');
      /** @type {string[]} */
      const sent = [];
      const send = redis.sendCommand.bind(redis);
      redis.sendCommand = (command, ...rest) => {
        if (!['info', 'publish'].includes(command.name)) sent.push(command.name);
        return send(command, ...rest);
      };
      for (const room of ['room', 'other']) {
        a.join(room, 'ann');
        a.edges.count(room, 1);
        await a.presence.read(room);
      }
      return sent.map((name) => name.replace('evalsha', 'eval'));
    };
    const without = await commandsOf(null);
    // Of each room: its registration, the change, the read.
    assert.deepEqual(without, ['sadd', 'eval', 'eval', 'sadd', 'eval', 'eval']);
    assert.deepEqual(await commandsOf({ types: ['member.joined', 'member.left'] }), without);
  },
);

only(
  'redis by Sentinel',
  'after a failover the state of a receiver is the truth, and a gap is known',
  async (t) => {
    const { primary, settings } = await startSentinels(t);
    const fleet = new Fleet(t, settings, 'contract-failover:', settingsOf({}));
    const worker = await fleet.server();
    const workers = [await worker(), await worker()];
    const here = workers.map(() => new Set());
    let step = 0;
    const change = () => {
      const who = step % 2;
      const [room, user] = [`room-${step % 5}`, `user-${(step * 7) % 23}`];
      const key = `${room} ${user}`;
      if (here[who].delete(key)) workers[who].leave(room, user);
      else {
        here[who].add(key);
        workers[who].join(room, user);
      }
      step++;
    };
    workers[0].edges.count('room-0', 1);
    for (let i = 0; i < 100; i++) change();
    await fleet.reached(50);
    // A courier has seen the mark of this primary.
    await fleet.queue.release(0, Number(await fleet.queue.acquire(0)));
    for (let i = 0; i < 100; i++) change();
    await primary.kill();
    await eventually(() => workers.every(({ broker }) => broker.state === 'degraded'));
    for (let i = 0; i < 51; i++) change();
    workers[0].edges.count('room-0', 0);
    workers[1].edges.count('room-1', 1);
    await until(async () => workers.every(({ broker }) => broker.state === 'up'));
    for (let i = 0; i < 20; i++) change();

    // The state of a receiver that counts the latest event of a user or room.
    const stateOf = async () => {
      /** @type {Map<string, string>} */
      const latest = new Map();
      for (const { type, room, user = '' } of await fleet.events())
        latest.set(`${room} ${user}`.trim(), type);
      return [...latest]
        .flatMap(([key, type]) => (/joined|occupied/.test(type) ? [key] : []))
        .sort();
    };
    const truth = [...new Set([...here[0], ...here[1], 'room-1'])].sort();
    await until(async () => `${await stateOf().catch(() => [])}` === `${truth}`);
    await until(() =>
      fleet.queue.acquire(0).then(
        (fence) => fence !== null,
        () => false,
      ),
    );
    assert.equal((await fleet.queue.lost(0)).count, 1);
  },
);

sideBySide(testsOf);
