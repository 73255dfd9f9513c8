// relay-overload.test.js: the relay and its links when one end stands still or reads too slowly.

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import pino from 'pino';
import { EmbeddedBroker } from '../../src/backend/embedded/broker.js';
import { EmbeddedPresence } from '../../src/backend/embedded/presence.js';
import { RelayLink } from '../../src/backend/embedded/relay-link.js';
import { RelayRequests } from '../../src/backend/embedded/relay-requests.js';
import { RelayServer } from '../../src/backend/embedded/relay-server.js';
import { MessageWriter, OP } from '../../src/backend/embedded/relay-wire.js';
import { until } from '../harness/server.js';
import { countersOf, openMachine, openWorker } from '../helpers/machine.js';

const log = pino({ level: 'silent' });
const OPTIONS = { timeout: 20_000 };
const RULE = Object.freeze({ size: 1000, ttlMs: 60_000 });
const historyOf = (/** @type {string} */ room) => (room.startsWith('kept') ? RULE : null);
const ADDRESS = '10.0.0.1';

/** @typedef {import('node:test').TestContext} TestContext */

/**
 * @param {TestContext} t @param {Partial<ConstructorParameters<typeof RelayServer>[0]>} [options]
 */
async function startRelay(t, options) {
  const relay = new RelayServer({ log, historyOf, ...options });
  await relay.start();
  t.after(() => relay.close());
  return relay;
}

/** A relay in a process of its own, which can be stopped and continued. @param {TestContext} t */
async function forkRelay(t) {
  const script = `
    import pino from 'pino';
    import { RelayServer } from ${JSON.stringify(new URL('../../src/backend/embedded/relay-server.js', import.meta.url).href)};
    import { countersOf } from ${JSON.stringify(new URL('../helpers/machine.js', import.meta.url).href)};
    const relay = new RelayServer({ log: pino({ level: 'silent' }) });
    await relay.start();
    process.send(relay.path);
    process.on('message', (message) => (message === 'stats' ? process.send(countersOf(relay)) : relay.close().then(() => process.exit(0))));
  `;
  const child = fork('-', { execArgv: ['--input-type=module', '--eval', script] });
  const exited = once(child, 'exit');
  t.after(async () => {
    child.kill('SIGCONT');
    if (child.connected) child.send('close');
    await exited;
  });
  const [path] = await once(child, 'message');
  return {
    path,
    stop: () => child.kill('SIGSTOP'),
    go: () => child.kill('SIGCONT'),
    async counters() {
      child.send('stats');
      return (await once(child, 'message'))[0];
    },
  };
}

/**
 * @param {TestContext} t
 * @param {string} path
 * @param {Partial<ConstructorParameters<typeof RelayLink>[0]>} [timings]
 */
async function openLink(t, path, timings) {
  const link = new RelayLink({ path, log, ...timings });
  await link.open();
  t.after(() => link.close());
  return link;
}

/**
 * A worker that subscribes a room and reads nothing.
 * @param {TestContext} t @param {RelayServer} relay @param {string} room
 */
async function deafWorker(t, relay, room) {
  const before = countersOf(relay).rooms;
  const socket = connect(relay.path);
  t.after(() => socket.destroy());
  await once(socket, 'connect');
  socket.pause();
  const writer = new MessageWriter();
  writer.hello(4711);
  writer.control({ type: 'subscribe', request: 1, room });
  writer.writeTo(socket);
  await until(() => countersOf(relay).rooms > before);
  return socket;
}

test('places granted after the worker has stopped waiting are given back', OPTIONS, async (t) => {
  const relay = await forkRelay(t);
  const places = await openMachine(t, relay.path, { watchMs: 100, requestTimeoutMs: 400 });
  await places.acquire(ADDRESS, 3, false);
  relay.stop();
  const asked = [places.acquire(ADDRESS, 3, false), places.acquire(ADDRESS, 3, false)];
  await Promise.all(asked.map((one) => assert.rejects(one, { code: 'OUTCOME_UNKNOWN' })));
  relay.go();
  await until(
    async () => (await places.acquire(ADDRESS, 3, false)).connections === 2,
    5000,
    'two places given back',
  );
  places.release(ADDRESS);
  places.release(ADDRESS);
  await places.link.ask({ type: 'count', request: 0 });
  assert.equal((await relay.counters()).addresses, 0);
});

test('a beat that comes with the timer of the link asks once, and neither ends a silence too early', (t) => {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  /** @type {boolean[]} */
  const answering = [];
  const requests = new RelayRequests({
    ...{ watchMs: 1000, awayMs: 1500, timeoutMs: 60_000 },
    onAnswering: (isAnswering) => answering.push(isAnswering),
  });
  requests.start();
  const look = (/** @type {number} */ ms) => {
    now += ms;
    return requests.look();
  };
  assert.deepEqual([look(1000), look(1), look(400)], [true, false, false]);
  requests.add().promise.catch(() => {});
  assert.deepEqual([look(599), look(1000)], [true, true]);
  // This process is stalled: what has arrived is read before the second look counts.
  assert.deepEqual([look(9000), look(0)], [false, false]);
  assert.deepEqual(answering, []);
  assert.deepEqual([look(1000), answering], [true, [false]]);
});

test('a place that was never asked for does not count as asked', OPTIONS, async (t) => {
  const relay = await startRelay(t);
  const places = await openMachine(t, relay.path, { watchMs: 60_000 });
  const { link } = places;
  const asked = () =>
    /** @type {{asked: number}} */ (/** @type {unknown} */ (link.onProbe())).asked;
  await assert.rejects(places.acquire(ADDRESS, Number.NaN, false), RangeError);
  assert.equal(asked(), 0);
  // The relay does not read.
  Object.defineProperty(link.socket, 'writableLength', { value: 2 ** 30 });
  await assert.rejects(places.acquire(ADDRESS, 3, false), { code: 'UNAVAILABLE' });
  assert.equal(asked(), 0);
});

test('the users of a dead worker leave as fast as the others read that', OPTIONS, async (t) => {
  const head = { join: Buffer.from('+'), leave: Buffer.from('-'), count: Buffer.from('#') };
  const presence = { maxMembers: 10, announcements: head };
  // The users take 3 MB.
  const relay = await startRelay(t, { presence, maxPendingBytes: 2 ** 21 });
  const dying = await openWorker(t, relay);
  const other = await openWorker(t, relay);
  const member = Buffer.alloc(1024, 'x');
  const rooms = Array.from({ length: 3000 }, (_, i) => `room-${i}`);
  /** @type {string[]} */
  const left = [];
  other.link.listen({ onPublication: (room, event) => event[0] === 0x2d && left.push(room) });
  await Promise.all(rooms.map((room) => other.broker.subscribe(room)));
  for (const [i, room] of rooms.entries()) {
    dying.presence.join(room, 'ann', member);
    if (i % 500 === 0) await dying.publisher.confirm();
  }
  await dying.publisher.confirm();
  dying.link.socket?.destroy();
  await until(() => left.length === rooms.length);
  assert.deepEqual(left, rooms);
  assert.equal(countersOf(relay).droppedLinks, 0);
});

test('if the counts of places differ, the relay adopts that of the worker', OPTIONS, async (t) => {
  const relay = await startRelay(t);
  const own = await openMachine(t, relay.path, { watchMs: 10 });
  const other = await openMachine(t, relay.path, { watchMs: 10 });
  await own.acquire('kept', 9, false);
  await other.acquire('kept', 9, false);
  await own.acquire('lost', 9, false);
  const { places } = relay;
  const [holder] = places.holders;
  // As after a bug: three places that no connection holds, and one place that is held but was
  // forgotten.
  for (let i = 0; i < 3; i++) places.take(holder, 'leaked');
  places.giveBack(holder, 'lost');
  await until(() => places.counts.countOf('leaked') === 0 && places.counts.countOf('lost') === 1);
  assert.equal(places.counts.countOf('kept'), 2);
  assert.equal(relay.places.reconciled, 4);
  own.release('kept');
  own.release('lost');
  other.release('kept');
  await until(() => countersOf(relay).addresses === 0);
  // Places asked for and not answered are no difference.
  const before = relay.places.reconciled;
  for (let i = 0; i < 200; i++) {
    await own.acquire(`10.0.1.${i}`, 9, false);
    if (i % 2) own.release(`10.0.1.${i}`);
  }
  await until(() => countersOf(relay).addresses === 100);
  assert.equal(relay.places.reconciled, before);
});

test(
  'a stalled relay makes the broker degraded, and its first answer makes it up again',
  OPTIONS,
  async (t) => {
    const relay = await forkRelay(t);
    const link = await openLink(t, relay.path, {
      watchMs: 100,
      awayMs: 300,
      requestTimeoutMs: 60_000,
    });
    /** @type {string[]} */
    const states = [];
    const broker = new EmbeddedBroker({ link, roomLingerMs: 0 });
    const presence = new EmbeddedPresence(link, broker.publisher);
    t.after(() => broker.close());
    /** @type {string[]} */
    const got = [];
    await broker.start({
      onPublication: (_room, publication) => got.push(String(publication)),
      onState: (state) => states.push(state),
    });
    await broker.subscribe('room');
    await broker.publish('room', Buffer.from('1'));
    relay.stop();
    const written = broker.publish('room', Buffer.from('2'));
    await until(() => broker.state === 'degraded', 5000, 'degraded');
    await assert.rejects(broker.publish('room', Buffer.from('3')), { code: 'UNAVAILABLE' });
    await assert.rejects(broker.subscribe('other'), { code: 'UNAVAILABLE' });
    await assert.rejects(broker.countConnections(), { code: 'UNAVAILABLE' });
    await assert.rejects(presence.read('room'), { code: 'UNAVAILABLE' });
    relay.go();
    await written;
    await until(() => broker.state === 'up', 5000, 'up');
    await broker.publish('room', Buffer.from('4'));
    await until(() => got.length === 3);
    assert.deepEqual(got, ['1', '2', '4']);
    assert.deepEqual(states, ['up', 'degraded', 'up']);
  },
);

test('a stalled relay is detected while it is idle', OPTIONS, async (t) => {
  const relay = await forkRelay(t);
  const link = await openLink(t, relay.path, { watchMs: 50, awayMs: 200 });
  const away = new Promise((resolve) => link.listen({ onAnswering: resolve }));
  relay.stop();
  assert.equal(await away, false);
  const back = new Promise((resolve) => link.listen({ onAnswering: resolve }));
  relay.go();
  assert.equal(await back, true);
});

test(
  'publications for a worker that reads too slowly are left out and counted, and it keeps its link',
  OPTIONS,
  async (t) => {
    const relay = await startRelay(t, { maxBacklogBytes: 1024 * 1024 });
    const { publisher } = await openWorker(t, relay);
    const deaf = await deafWorker(t, relay, 'room');
    let most = 0;
    for (let i = 0; i < 1000; i++) {
      await publisher.publish('room', Buffer.alloc(10_000));
      most = Math.max(most, countersOf(relay).pendingBytes);
    }
    assert.ok(most < 2 * 1024 * 1024, `${most} bytes`);
    const { plain, history } = relay.bus.leftOut;
    assert.ok(plain > 500 && history === 0, `${plain} ${history}`);
    assert.equal(countersOf(relay).droppedLinks, 0);
    assert.equal(countersOf(relay).workers, 2);
    // It reads again, and gets all later publications.
    deaf.resume();
    await until(() => countersOf(relay).pendingBytes === 0);
    const read = deaf.bytesRead;
    await publisher.publish('room', Buffer.alloc(10_000));
    await until(() => deaf.bytesRead > read + 10_000);
    assert.deepEqual(relay.bus.leftOut, { plain, history: 0 });
  },
);

test('in a room with history, publications left out can still be read', OPTIONS, async (t) => {
  const relay = await startRelay(t, { maxBacklogBytes: 256 * 1024 });
  const { append } = await openWorker(t, relay);
  const reader = await openWorker(t, relay);
  /** @type {number[]} */
  const offsets = [];
  reader.link.listen({ onPublication: (_room, _one, offset) => offsets.push(offset) });
  await reader.broker.subscribe('kept');
  reader.link.socket?.pause();
  for (let i = 0; i < 300; i++) await append('kept', '', Buffer.alloc(10_000));
  assert.ok(relay.bus.leftOut.history > 100);
  reader.link.socket?.resume();
  await until(() => countersOf(relay).pendingBytes === 0);
  await append('kept', '', Buffer.alloc(10));
  // A follower finds the gap by the next offset, as after every loss, and reads the missing part.
  await until(() => offsets.at(-1) === 301);
  const gapAt = offsets.findIndex((offset, i) => offset !== i + 1);
  assert.ok(gapAt > 0);
  const { publications } = await reader.broker.history('kept', { after: gapAt, limit: 1000 });
  assert.equal(publications.length, 301 - gapAt);
});

test(
  'a worker that reads none of its answers loses its link and is reported as hung',
  OPTIONS,
  async (t) => {
    /** @type {number[]} */
    const hung = [];
    const relay = await startRelay(t, {
      maxPendingBytes: 1024 * 1024,
      onHung: (pid) => hung.push(pid),
    });
    const deaf = await deafWorker(t, relay, 'room');
    deaf.on('error', () => {});
    let isClosed = false;
    deaf.on('close', () => (isClosed = true));
    const writer = new MessageWriter();
    while (!isClosed && countersOf(relay).droppedLinks === 0) {
      for (let i = 1; i <= 1000; i++) writer.number(OP.SYNC, i);
      writer.writeTo(deaf);
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.deepEqual(hung, [4711]);
    assert.equal(countersOf(relay).workers, 0);
  },
);
