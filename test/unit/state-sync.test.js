// state-sync.test.js: members of rooms with state on one worker, beside a Map that says what they
// must have.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { Connection } from '../../src/hub/connection.js';
import { encodeKeyed } from '../../src/protocol/publication.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, receive } from '../helpers/hub.js';
import { StateBroker } from '../helpers/state-broker.js';
import { away } from '../helpers/stream-broker.js';

const ROOM = 's';
/** With three of them in a row, the third makes a member lag that does not read. */
const LARGE = 'x'.repeat(30_000);
/** Ten seconds, in ticks of the wheel. */
const TEN_SECONDS = 40;

/** Waits until promises and flushes have run. */
async function settle(rounds = 4) {
  for (let i = 0; i < rounds; i++) await turn();
}

/** A hub in which all rooms have state. */
function build({ size = 100, maxBytes = 1e7, everyMs = 0, isManual = false } = {}) {
  const broker = new StateBroker({ size, maxBytes, isManual });
  const clock = { now: 1000 };
  const rule = { size, ttlMs: 60_000, state: { everyMs, maxBytes } };
  /** @type {[Connection, number][]} */
  const charged = [];
  const parts = buildHub({
    config: configOf({}),
    broker,
    historyOf: (room) => (room.startsWith('s') ? rule : null),
    clock: () => clock.now,
    charge: (connection, bytes) => void charged.push([connection, bytes]),
  });
  parts.turn.clock = () => clock.now;
  broker.onPublication = (...args) => parts.hub.broadcast(...args);
  const tick = async (/** @type {number} */ count) => {
    for (let i = 0; i < count; i++) {
      clock.now += 250;
      parts.scheduler.wheel.tick();
      await settle(2);
    }
  };
  const publish = (/** @type {string} */ key, /** @type {unknown} */ payload) =>
    broker.set(ROOM, key, payload);
  return { ...parts, broker, clock, charged, tick, publish, connect: () => new Reader(parts) };
}

/** A client as the protocol describes it. */
class Reader {
  /** @param {Pick<ReturnType<typeof buildHub>, 'hub'|'commands'>} worker */
  constructor({ hub, commands }) {
    this.commands = commands;
    this.transport = new FakeTransport();
    this.connection = new Connection(this.transport, '127.0.0.1');
    hub.addConnection(this.connection);
    /** @type {Map<string, unknown>} */
    this.map = new Map();
    /** The last offset of each key in the epoch. @type {Map<string, number>} */
    this.offsets = new Map();
    /** @type {{epoch: string, offset: number}|null} */
    this.at = null;
    this.epoch = '';
    this.last = 0;
    this.seen = 0;
    this.isIn = false;
    this.isSynced = false;
    /** @type {(position: {epoch: string, offset: number}) => void} */
    this.onSynced = () => {};
    this.counts = { recovered: 0, anew: 0, resets: 0, synced: 0, messages: 0 };
  }

  /** @param {object} message */
  say(message) {
    receive(this.commands, this.connection, message);
  }

  /** @param {{epoch: string, offset: number}|null} [since] @param {Map<string, unknown>} [map] */
  join(since = null, map = new Map()) {
    this.map = new Map(map);
    this.at = since;
    this.say({ type: 'join', room: ROOM, ...(since === null ? {} : { since }) });
  }

  get bytes() {
    return this.transport.writes.reduce((sum, { length }) => sum + length, 0);
  }

  /** Reads what has come since the last look. */
  read() {
    const messages = this.transport.messages();
    for (const message of messages.slice(this.seen)) this.#take(message);
    this.seen = messages.length;
    return this;
  }

  /** @param {any} message */
  #take({ type, room, epoch, offset, key, payload, recovered }) {
    if (room !== ROOM) return;
    if (type === 'joined') {
      this.isIn = true;
      this.epoch = epoch;
      if (recovered) {
        this.counts.recovered++;
        assert.equal(epoch, this.at?.epoch, 'recovered in another epoch');
        this.last = /** @type {{offset: number}} */ (this.at).offset;
      } else this.#empty('anew');
    } else if (type === 'reset') {
      assert.ok(this.isIn, 'reset outside the room');
      this.epoch = epoch;
      this.#empty('resets');
    } else if (type === 'message') {
      assert.ok(this.isIn, 'a message outside the room');
      this.counts.messages++;
      assert.equal(epoch, this.epoch, 'a message of another epoch');
      assert.ok(offset > this.last, `${offset} behind ${this.last}`);
      this.last = offset;
      if (payload === null) this.map.delete(key);
      else this.map.set(key, payload);
      this.at = { epoch, offset };
    } else if (type === 'synced') {
      this.counts.synced++;
      assert.equal(epoch, this.epoch);
      assert.ok(offset >= this.last, `synced ${offset} behind ${this.last}`);
      assert.ok(!this.isSynced, 'synced twice');
      this.isSynced = true;
      this.last = offset;
      this.at = { epoch, offset };
      this.onSynced(this.at);
    } else if (type === 'left') this.isIn = false;
    else assert.notEqual(type, 'resync');
  }

  /** @param {'anew'|'resets'} why */
  #empty(why) {
    this.counts[why]++;
    this.map.clear();
    this.isSynced = false;
    this.last = 0;
    this.at = null;
  }
}

/** @param {StateBroker} broker @returns {Map<string, unknown>} */
function truthOf(broker) {
  const { publications } = broker.look(ROOM, { after: 0, limit: 1e6 });
  /** @type {Map<string, unknown>} */
  const truth = new Map();
  for (const publication of publications) {
    const text = publication.toString('utf8', 14);
    const end = publication.readUInt32BE(7);
    const value = JSON.parse(text.slice(end));
    if (value !== null) truth.set(JSON.parse(`"${text.slice(0, end)}"`), value);
  }
  return truth;
}

/** @param {ReadonlyMap<string, unknown>} map */
const sorted = (map) => [...map].sort();

test('a join brings each key once with its newest value, then synced, then changes', async () => {
  const { broker, publish, connect } = build();
  for (const [key, value] of [
    ['a', 1],
    ['b', 2],
    ['a', 3],
    ['c', 4],
    ['b', null],
  ])
    publish(String(key), value);
  broker.announcements = [];
  const reader = connect();
  reader.join();
  await settle();
  const texts = reader.transport.messages().map(({ type, key, offset }) => [type, key, offset]);
  assert.deepEqual(texts, [
    ['joined', undefined, 5],
    ['message', 'a', 3],
    ['message', 'c', 4],
    ['message', 'b', 5],
    ['synced', undefined, 5],
  ]);
  publish('d', 6);
  broker.deliver();
  await settle();
  assert.deepEqual(sorted(reader.read().map), [
    ['a', 3],
    ['c', 4],
    ['d', 6],
  ]);
});

test('a flush has each key once, and the first of a burst is not delayed', async () => {
  const { broker, publish, connect, counters } = build();
  const reader = connect();
  reader.join();
  await settle();
  for (let i = 0; i < 100; i++) publish(`k${i % 4}`, i);
  broker.deliver();
  await settle();
  reader.read();
  assert.deepEqual([reader.counts.messages, reader.last], [4, 100]);
  assert.equal(counters.conflated, 96);
  assert.equal(counters.queueDepth, 0);
});

test('with an interval a member gets ten writes a second of 10,000 changes', async () => {
  const { broker, publish, connect, clock, outbox } = build({ everyMs: 100 });
  const reader = connect();
  reader.join();
  await settle();
  const before = reader.transport.writes.length;
  for (let ms = 0; ms < 1000; ms += 10) {
    for (let i = 0; i < 100; i++) publish(`k${i}`, ms + i / 100);
    broker.deliver();
    outbox.slot.wake();
    await settle();
    clock.now += 10;
  }
  const writes = reader.transport.writes.length - before;
  assert.equal(writes, 10, `${writes} writes`);
  clock.now += 100;
  outbox.slot.wake();
  await settle();
  assert.deepEqual(sorted(reader.read().map), sorted(truthOf(broker)));
  assert.equal(reader.counts.messages, 1100);
});

test('values superseded while a room waits for its interval do not fill the outbox', async () => {
  // 6 MB of distinct values are more than half of the outbox.
  for (const keys of [1, 200]) {
    const { broker, publish, connect, outbox, counters, clock } = build({
      size: 200,
      everyMs: 60_000,
    });
    const member = connect();
    member.join();
    await settle();
    publish('k0', 'at once');
    broker.deliver();
    await settle();
    for (let i = 0; i < 1200; i++) {
      publish(`k${i % keys}`, `${i} ${LARGE}`);
      broker.deliver();
      const most = Math.min(2 * keys * 30_200, 8 * 1024 * 1024) + 30_200;
      assert.ok(outbox.bytes <= most, `${outbox.bytes} bytes of ${keys} keys`);
    }
    assert.ok(counters.queueDepth <= 2 * keys + 1, `${counters.queueDepth} wait`);
    const { epoch, offset } = broker.stream(ROOM);
    const current = connect();
    current.join({ epoch, offset });
    await settle();
    assert.deepEqual([current.read().counts.recovered, current.at], [1, { epoch, offset }]);
    clock.now += 60_000;
    for (let i = 0; i < 40; i++) {
      outbox.slot.wake();
      await settle();
    }
    assert.deepEqual(sorted(member.read().map), sorted(truthOf(broker)));
    assert.deepEqual([member.counts.messages, counters.conflated], [keys + 1, 1200 - keys]);
    assert.deepEqual([outbox.bytes, counters.queueDepth, counters.overflowed], [0, 0, 0]);
  }
});

test('a conflation while a room waits looks at no more than twice the messages that have come', async () => {
  const { broker, publish, connect, hub } = build({ everyMs: 60_000 });
  connect().join();
  await settle();
  const room = /** @type {import('../../src/hub/room.js').HubRoom} */ (hub.rooms.get(ROOM));
  const { conflate } = room;
  let looks = 0;
  room.conflate = () => {
    looks += room.waiting.length;
    return conflate.call(room);
  };
  for (let i = 0; i < 5000; i++) publish(`k${i % 100}`, i);
  broker.deliver();
  assert.ok(looks > 4800 && looks <= 10_000, `${looks} looks at 5,000 messages`);
});

test('a member that sleeps gets each changed key once, and no more bytes than the state has', async () => {
  const { broker, publish, connect } = build();
  const [reader, other] = [connect(), connect()];
  for (const one of [reader, other]) one.join();
  await settle();
  reader.transport.isStuck = true;
  for (let round = 0; round < 30; round++) {
    for (let key = 0; key < 5; key++) publish(`k${key}`, `${round} ${LARGE}`);
    broker.deliver();
    await settle();
  }
  publish('k0', null);
  broker.deliver();
  await settle();
  const asleep = reader.bytes;
  reader.transport.drain();
  await settle(40);
  assert.ok(reader.bytes - asleep < 5 * 31_000, `${reader.bytes - asleep} bytes`);
  for (const one of [reader, other])
    assert.deepEqual(sorted(one.read().map), sorted(truthOf(broker)));
  assert.equal(other.counts.messages, 151);
});

test('a member that catches up during a flush is an ordinary one at its end, whatever is superseded meanwhile', async () => {
  const { broker, publish, connect, hub, counters, clock } = build();
  const readers = Array.from({ length: 200 }, connect);
  for (const reader of readers) {
    reader.join();
    const { transport } = reader;
    const { write } = transport;
    transport.write = (frames) => {
      clock.now += 0.1; // so that flushes yield
      write.call(transport, frames);
    };
  }
  await settle(100);
  const { transport } = readers[0];
  transport.isStuck = true;
  for (let i = 0; i < 4; i++) {
    publish('k', `${i} ${LARGE}`);
    broker.deliver();
    await settle(60);
    clock.now += 10; // the rest after a flush is over
  }
  const room = /** @type {import('../../src/hub/room.js').HubRoom} */ (hub.rooms.get(ROOM));
  assert.deepEqual([counters.laggingMembers, room.flight], [1, null]);
  publish('other', 1);
  broker.deliver();
  while (room.flight === null) await turn();
  publish('k', 'waits');
  broker.deliver();
  transport.drain();
  await settle(2);
  for (let i = 0; i < 4; i++) publish('k', `${i} ${LARGE}`);
  broker.deliver();
  assert.deepEqual([counters.laggingMembers, room.waiting.length < 5], [1, true]);
  assert.ok(room.flight !== null, 'the flush is under way');
  const lagging = /** @type {NonNullable<typeof room.sync>['lagging']} */ (room.sync?.lagging);
  assert.ok(lagging);
  let left = -1;
  const { resume } = lagging;
  lagging.resume = () => {
    resume.call(lagging);
    if (left < 0) left = counters.laggingMembers;
  };
  await settle(60);
  assert.equal(left, 0);
  for (const reader of readers)
    assert.deepEqual(sorted(reader.read().map), sorted(truthOf(broker)));
});

test('steps are small, and each waits until the kernel has taken the one before', async () => {
  const { broker, publish, connect } = build();
  for (let key = 0; key < 20; key++) publish(`k${key}`, LARGE);
  broker.announcements = [];
  const reader = connect();
  reader.transport.isStuck = true;
  reader.join();
  await settle();
  const sizes = [];
  while (reader.transport.pendingBytes > 0) {
    sizes.push(reader.transport.pendingBytes);
    reader.transport.drain(true);
    await settle();
  }
  assert.ok(Math.max(...sizes) < 70_000, `${sizes}`);
  assert.ok(sizes.length >= 10, `${sizes.length} steps`);
  assert.deepEqual([reader.read().map.size, reader.isSynced], [20, true]);
});

test('a slow reader gets the state once, also while removed keys are forgotten', async () => {
  const { broker, publish, connect } = build({ size: 40 });
  for (let key = 0; key < 20; key++) publish(`k${key}`, LARGE);
  let churned = 0;
  const churn = () => {
    publish(`c${++churned}`, 1);
    publish(`c${churned}`, null);
    broker.deliver();
  };
  for (let i = 0; i < 50; i++) churn();
  const reader = connect();
  reader.transport.isStuck = true;
  reader.join();
  await settle();
  const readSlowly = async () => {
    for (let step = 0; step < 30 && !reader.read().isSynced; step++) {
      reader.transport.drain(true);
      churn();
      await settle();
    }
    return [reader.isSynced, reader.map.size, reader.counts.resets];
  };
  assert.deepEqual(await readSlowly(), [true, 20, 0]);
  assert.ok(broker.log(ROOM).floor > 0);
  // It falls behind, until its position proves nothing.
  for (let key = 0; key < 20; key++) publish(`k${key}`, LARGE);
  for (let i = 0; i < 50; i++) churn();
  await settle();
  reader.isSynced = false;
  assert.deepEqual(await readSlowly(), [true, 20, 1]);
});

test('a client that continues from 0 may have keys, and gets `reset` if their removal is forgotten', async () => {
  // A stream of events from several rooms has one id for the events that leave together.
  const { broker, publish, connect } = build({ size: 4 });
  publish('a', 1);
  for (const key of ['b', 'c', 'd']) publish(key, LARGE);
  publish('a', null);
  broker.announcements = [];
  const { epoch } = broker.stream(ROOM);
  const reader = connect();
  reader.transport.isStuck = true;
  reader.join({ epoch, offset: 0 }, new Map([['a', 1]]));
  await settle();
  for (let i = 0; i < 4; i++) publish(`gone${i}`, null);
  broker.deliver();
  await settle();
  assert.equal(reader.read().counts.recovered, 1);
  reader.transport.drain();
  await settle(20);
  assert.deepEqual([...reader.read().map.keys()], ['b', 'c', 'd']);
  assert.equal(reader.counts.resets, 1);
});

test('a new epoch is a reset and the new state, also for a member that sleeps', async () => {
  const { broker, publish, connect, tick, counters } = build();
  const [reader, asleep] = [connect(), connect()];
  for (const one of [reader, asleep]) one.join();
  publish('old', 1);
  broker.deliver();
  await settle();
  asleep.transport.isStuck = true;
  asleep.transport.pendingBytes = 1;
  broker.forget(ROOM);
  publish('new', 2);
  broker.announcements = [];
  await tick(TEN_SECONDS);
  assert.equal(counters.resyncs, 1);
  asleep.transport.drain();
  await settle(20);
  for (const one of [reader, asleep]) {
    assert.deepEqual(sorted(one.read().map), [['new', 2]]);
    assert.deepEqual([one.counts.resets, one.counts.synced], [1, 2]);
  }
});

test('a position before a forgotten removal brings the whole state', async () => {
  const { broker, publish, connect } = build({ size: 2 });
  publish('a', 1);
  const { epoch } = broker.stream(ROOM);
  publish('b', 1);
  for (const key of ['a', 'b', 'c']) publish(key, null);
  broker.announcements = [];
  const [late, current] = [connect(), connect()];
  late.join({ epoch, offset: 2 }, new Map([['a', 1]]));
  current.join({ epoch, offset: 3 });
  await settle();
  assert.deepEqual([late.read().counts.anew, late.map.size], [1, 0]);
  assert.equal(current.read().counts.recovered, 1);
});

test('a worker reads the whole state if a removal in its gap is forgotten', async () => {
  const { broker, publish, connect, tick } = build({ size: 2 });
  const member = connect();
  member.join();
  publish('a', 1);
  broker.deliver();
  await settle();
  const { epoch } = broker.stream(ROOM);
  for (const key of ['b', 'c']) publish(key, null);
  for (const key of ['a', 'd']) publish(key, null);
  broker.announcements = []; // lost
  await tick(TEN_SECONDS + 1);
  assert.deepEqual(member.read().at, { epoch, offset: 5 });
  // The removal of c is forgotten.
  const late = connect();
  late.join({ epoch, offset: 1 }, new Map([['c', 1]]));
  await settle();
  assert.deepEqual([late.read().counts.anew, late.map.has('c')], [1, false]);
});

test('at `synced` the map is whole, also while changes wait for the interval, and none of them comes twice', async () => {
  const { broker, publish, connect, clock, outbox, counters, tick } = build({ everyMs: 60_000 });
  const set = async (/** @type {[string, unknown][]} */ ...changes) => {
    for (const [key, value] of changes) publish(key, value);
    broker.deliver();
    await settle();
  };
  const passInterval = async () => {
    clock.now += 60_000;
    outbox.slot.wake();
    await settle(10);
  };
  const member = connect();
  member.join();
  await settle();
  await set(['total', 1], ['other', 1]);
  const { epoch } = broker.stream(ROOM);
  await set(['total', 2], ['late', 2], ['late', null]);
  const [fresh, back, current] = [connect(), connect(), connect()];
  fresh.join();
  back.join({ epoch, offset: 0 });
  current.join({ epoch, offset: 2 }, new Map(Object.entries({ total: 1, other: 1 })));
  await settle();
  const now = [
    ['other', 1],
    ['total', 2],
  ];
  for (const one of [fresh, back, current]) {
    assert.deepEqual([one.read().isSynced, sorted(one.map)], [true, now]);
    assert.deepEqual(one.at, { epoch, offset: 5 });
  }
  assert.deepEqual(sorted(member.read().map).at(-1), ['total', 1]);
  await set(['total', 3]);
  assert.equal(fresh.read().map.get('total'), 2, 'it has to wait as all members');
  const readers = [member, fresh, back, current];
  const before = readers.map((one) => one.counts.messages);
  await passInterval();
  await passInterval();
  const all = readers.map((one) => one.read().counts.messages);
  assert.deepEqual(
    all.map((count, i) => count - before[i]),
    [2, 1, 1, 1],
  );
  assert.deepEqual([counters.syncingMembers, counters.laggingMembers], [0, 0]);
  // They are ordinary members now: one write each, and again after a reset.
  await set(['total', 4]);
  await set(['total', 5]);
  broker.forget(ROOM);
  publish('new', 1);
  broker.announcements = [];
  await tick(TEN_SECONDS);
  await set(['total', 6]);
  const last = connect();
  last.join();
  await passInterval();
  for (const one of [...readers, last]) {
    assert.deepEqual(sorted(one.read().map), sorted(truthOf(broker)));
    assert.equal(one.isSynced, true);
  }
  assert.equal(counters.syncingMembers, 0);
});

test('joins cost the bytes behind their position, unless the first was accepted shortly before', async () => {
  const { broker, publish, connect, charged, scheduler } = build();
  publish('a', LARGE);
  const json = Buffer.from(JSON.stringify(LARGE));
  const recent = encodeKeyed(Date.now(), 'me', 'b', json, 0, json.length);
  broker.log(ROOM).put(broker.accept(ROOM, recent).offset, recent);
  const { epoch } = broker.stream(ROOM);
  broker.announcements = [];
  const costs = [];
  for (const offset of [null, 0, 1, 2]) {
    const reader = connect();
    reader.join(offset === null ? null : { epoch, offset });
    await settle();
    assert.equal(reader.read().counts.recovered, offset === null ? 0 : 1);
    costs.push(charged.splice(0).map(([, bytes]) => Math.floor(bytes / LARGE.length)));
  }
  assert.deepEqual(costs, [[2], [2], [], []]);
  assert.equal(scheduler.isOverloaded, false);
});

test('copies of states are bounded, and closed rooms have none', async () => {
  const { broker, publish, connect, scheduler, counters, hub } = build();
  for (let key = 0; key < 10; key++) publish(`k${key}`, LARGE);
  broker.announcements = [];
  const reader = connect();
  reader.join();
  await settle();
  assert.ok(counters.stateBytes > 300_000);
  const before = counters.stateBytes;
  for (let key = 0; key < 10; key++) publish(`small${key}`, 1);
  broker.deliver();
  await settle();
  // A small entry takes more memory than its bytes.
  assert.ok(counters.stateBytes - before > 10 * 500, `${counters.stateBytes - before} bytes`);
  scheduler.maxStateBytes = 300_000;
  assert.equal(scheduler.isOverloaded, true);
  const other = connect();
  other.say({ type: 'join', room: 's2' });
  await settle();
  assert.equal(other.transport.messages()[0].error, 'UNAVAILABLE');
  hub.removeConnection(reader.connection);
  assert.deepEqual([counters.stateBytes, counters.syncingMembers], [0, 0]);
});

test('copies that grow in open rooms are bounded: the members of the largest are closed', async () => {
  const { broker, publish, connect, scheduler, counters, hub } = build();
  const closeAll = (
    /** @type {readonly Connection[]} */ members,
    /** @type {{code: number, reason: string}} */ close,
  ) => {
    for (const member of members) member.close(close);
  };
  const [reader, other, bystander] = [connect(), connect(), connect()];
  for (const one of [reader, other]) one.join();
  bystander.say({ type: 'join', room: 's2' });
  broker.set('s2', 'k', LARGE);
  for (let key = 0; key < 9; key++) publish(`k${key}`, LARGE);
  broker.deliver();
  await settle();
  // Joins open no other room, and those that are open go on.
  scheduler.maxStateBytes = counters.stateBytes;
  assert.equal(scheduler.shedState(closeAll), null);
  for (let key = 9; key < 12; key++) publish(`k${key}`, LARGE);
  broker.deliver();
  await settle();
  assert.equal(scheduler.shedState(closeAll), ROOM);
  assert.deepEqual(
    [reader, other, bystander].map(({ transport }) => transport.closed?.code),
    [1013, 1013, undefined],
  );
  assert.equal(counters.stateCloses, 2);
  // Until they have gone nobody else is closed.
  assert.equal(scheduler.shedState(closeAll), null);
  for (const { connection } of [reader, other]) hub.removeConnection(connection);
  assert.ok(counters.stateBytes < 40_000, `${counters.stateBytes} bytes`);
  assert.equal(scheduler.shedState(closeAll), null);
  assert.equal(bystander.connection.isOpen, true);
});

test('a message without a key or an offset in a room with state reaches nobody', async () => {
  const { connect, hub, counters } = build();
  const reader = connect();
  reader.join();
  await settle();
  hub.broadcast(ROOM, Buffer.from([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x31]));
  await settle();
  assert.equal(counters.malformed, 1);
  assert.equal(reader.read().counts.messages, 0);
});

/** @typedef {{kind: string, a: number, b: number}} Step */

const KINDS = [
  ...Array.from({ length: 8 }, () => 'publish'),
  ...Array.from({ length: 4 }, () => 'remove'),
  ...Array.from({ length: 8 }, () => 'deliver'),
  ...['lose', 'swap', 'repeat', 'newEpoch'],
  ...['join', 'join', 'rejoin', 'rejoin', 'rejoin', 'leave', 'close'],
  ...['subscribed', 'subscribed', 'answer', 'answer', 'answer', 'answer', 'failRead'],
  ...['stick', 'stick', 'drain', 'drain', 'drain', 'turn', 'turn', 'turn', 'turn', 'tick', 'full'],
];

class Model {
  /** @param {number} everyMs */
  constructor(everyMs) {
    this.built = build({ size: 6, everyMs, isManual: true });
    this.maxWaiting = 1000;
    this.built.outbox.isFull = (room) => {
      const isFull = room.waiting.length >= this.maxWaiting;
      // It may have room again before the clients read.
      if (isFull) this.isCut = true;
      return isFull;
    };
    /** @type {(Reader|null)[]} */
    this.readers = [null, null, null, null];
    /** What clients kept. @type {{at: Reader['at'], map: Map<string, unknown>}[]} */
    this.past = [];
    /** @type {import('../helpers/stream-broker.js').Announcement[]} */
    this.delivered = [];
    this.next = 0;
    this.totals = { recovered: 0, anew: 0, resets: 0, synced: 0, messages: 0, lags: 0, whole: 0 };
    /** All changes. @type {{epoch: string, offset: number, key: string, payload: unknown}[]} */
    this.history = [];
    /** May the worker's copy lack a key, because the outbox was full within a page of the store? */
    this.isCut = false;
  }

  /** @param {string} key @param {unknown} payload */
  publish(key, payload) {
    const position = this.built.publish(key, payload);
    if (position !== null) this.history.push({ ...position, key, payload });
  }

  /** @param {{epoch: string, offset: number}} position @returns {Map<string, unknown>} the state there */
  stateAt({ epoch, offset }) {
    /** @type {Map<string, unknown>} */
    const state = new Map();
    for (const change of this.history) {
      if (change.epoch !== epoch || change.offset > offset) continue;
      if (change.payload === null) state.delete(change.key);
      else state.set(change.key, change.payload);
    }
    return state;
  }

  /** Clients read what has come. */
  read() {
    const sync = this.built.hub.rooms.get(ROOM)?.sync;
    const isInStep = sync?.isInStep ?? true;
    const wasCut = this.isCut;
    this.isCut = sync?.isBehind === true || (this.isCut && !isInStep);
    for (const reader of this.readers) {
      if (reader === null) continue;
      reader.onSynced = (position) => {
        if (wasCut || this.isCut) return;
        this.totals.whole++;
        assert.deepEqual(sorted(reader.map), sorted(this.stateAt(position)), 'whole at `synced`');
      };
      reader.read();
    }
  }

  /** @param {number} i */
  drop(i) {
    const reader = this.readers[i];
    if (reader === null) return;
    reader.read();
    this.built.hub.removeConnection(reader.connection);
    if (reader.isIn) this.past.push({ at: reader.at, map: reader.map });
    for (const key of /** @type {(keyof Reader['counts'])[]} */ (Object.keys(reader.counts)))
      this.totals[key] += reader.counts[key];
    this.readers[i] = null;
  }

  /** @param {Step} step */
  async run({ kind, a, b }) {
    const { broker, connect, tick, counters, clock } = this.built;
    const i = a % this.readers.length;
    const reader = this.readers[i];
    switch (kind) {
      case 'publish':
        this.publish(`k${a % 9}`, b % 7 === 0 ? `${++this.next} ${LARGE}` : ++this.next);
        break;
      case 'remove':
        this.publish(`k${a % 9}`, null);
        break;
      case 'deliver':
        this.delivered = broker.announcements.slice(0, 1 + (a % 4));
        return broker.deliver(1 + (a % 4));
      case 'lose':
        return void broker.announcements.splice(0, 1 + (a % 5));
      case 'swap':
        if (broker.announcements.length > 1)
          broker.announcements.push(/** @type {any} */ (broker.announcements.shift()));
        break;
      case 'repeat':
        return void broker.announcements.unshift(...this.delivered);
      case 'newEpoch':
        if (a % 8 === 0) broker.forget(ROOM);
        break;
      case 'join':
      case 'rejoin': {
        if (reader !== null) break;
        const kept = kind === 'rejoin' ? this.past[b % (this.past.length || 1)] : undefined;
        const joining = connect();
        this.readers[i] = joining;
        joining.join(kept?.at ?? null, kept?.map);
        break;
      }
      case 'leave':
        if (reader === null) break;
        reader.say({ type: 'leave', room: ROOM });
        break;
      case 'close':
        return this.drop(i);
      case 'subscribed':
        return broker.subscribing.shift()?.resolve();
      case 'answer':
        return broker.answer();
      case 'failRead':
        return broker.reads.shift()?.reject(away());
      case 'stick':
        if (reader !== null) reader.transport.isStuck = true;
        break;
      case 'drain':
        reader?.transport.drain(b % 2 === 0);
        break;
      case 'turn':
        clock.now += 20;
        this.built.outbox.slot.wake();
        await settle(2);
        break;
      case 'tick':
        return tick(1 + (a % 4));
      case 'full':
        this.maxWaiting = a % 3 === 0 ? 2 : 1000;
    }
    if (counters.laggingMembers > 0) this.totals.lags++;
  }

  /** All faults end: every member has what the store has. */
  async heal() {
    const { broker, tick, counters, hub, outbox } = this.built;
    this.maxWaiting = 1000;
    broker.isManual = false;
    for (let round = 0; round < 3; round++) {
      for (const { resolve } of broker.subscribing.splice(0)) resolve();
      while (broker.reads.length > 0) broker.answer();
      broker.deliver();
      for (const reader of this.readers) reader?.transport.drain();
      outbox.slot.wake();
      await tick(TEN_SECONDS + 8);
      outbox.slot.wake();
      await settle(20);
    }
    const truth = sorted(truthOf(broker));
    for (const [i, reader] of this.readers.entries()) {
      if (reader === null) continue;
      reader.read();
      if (reader.isIn && reader.connection.isOpen) {
        assert.deepEqual(sorted(reader.map), truth, `client ${i} differs from the store`);
        assert.ok(reader.isSynced, `client ${i} was never told that it has everything`);
      }
      this.drop(i);
    }
    assert.deepEqual(
      [
        hub.rooms.size,
        counters.stateBytes,
        counters.syncingMembers,
        counters.laggingMembers,
        counters.queueDepth,
      ],
      [1, 0, 0, 0, 0],
    );
  }
}

test('whatever happens, each key moves forward only, and in the end every member has the state', async () => {
  const totals = { recovered: 0, anew: 0, resets: 0, synced: 0, messages: 0, lags: 0, whole: 0 };
  const step = fc.record({ kind: fc.constantFrom(...KINDS), a: fc.nat(1000), b: fc.nat(1000) });
  const isReached = () => Object.values(totals).every((total) => total > 15);
  const runs = () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 60, maxLength: 250, size: 'max' }),
        fc.constantFrom(0, 0, 100),
        async (steps, everyMs) => {
          const model = new Model(everyMs);
          for (const one of steps) {
            await model.run(one);
            model.read();
          }
          await model.heal();
          for (const key of /** @type {(keyof typeof totals)[]} */ (Object.keys(totals)))
            totals[key] += model.totals[key];
        },
      ),
      {
        numRuns: Number(process.env.RUNS ?? 200),
        plugins: [fc.interruptAfterTimeLimit(60_000, { failOnInterrupt: true })],
      },
    );
  // The runs must reach the interesting states. Members lag in few stories, and in one of ten rounds
  // in none.
  for (let rounds = 0; rounds < 5 && !isReached(); rounds++) await runs();
  assert.ok(isReached(), JSON.stringify(totals));
});
