// webhook-recording.test.js: a worker's reports for webhooks, and that they cost nothing without
// endpoints. contract/webhook-transitions tests the backends' part.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Sessions } from '../../src/auth/sessions.js';
import { RedisEventStore } from '../../src/backend/redis/event-store.js';
import { WebhookReporter } from '../../src/backend/webhook-reporter.js';
import { Connection } from '../../src/hub/connection.js';
import { createCounters } from '../../src/observability/counters.js';
import { Publisher } from '../../src/operations/publisher.js';
import { Tail } from '../../src/worker/tail.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, QUIET } from '../helpers/hub.js';
import { StreamBroker } from '../helpers/stream-broker.js';

const src = fileURLToPath(new URL('../../src/', import.meta.url));

/** Every file that starts with these, by imports that are always carried out. @param {string[]} paths */
function loadedWith(paths) {
  const found = new Set(paths);
  for (const path of found) {
    const text = readFileSync(`${src}${path}`, 'utf8');
    for (const [, specifier] of text.matchAll(/^(?:import|export)\b[^;]*?'(\.[^']+)';/gms))
      found.add(posix.join(posix.dirname(path), specifier));
  }
  return found;
}

test('without endpoints, nothing that records is loaded', () => {
  const loaded = loadedWith([
    'main.js',
    'primary/primary.js',
    'worker/process.js',
    'backend/redis/index.js',
    'backend/embedded/index.js',
  ]);
  for (const path of ['backend/redis/presence.js', 'operations/publisher.js', 'worker/entry.js'])
    assert.ok(loaded.has(path), path);
  for (const path of [
    'backend/webhook-reporter.js',
    'backend/occupancy.js',
    'backend/redis/room-index.js',
    'backend/redis/event-store.js',
    'backend/redis/recording.js',
    'backend/redis/occupancy-store.js',
    'backend/redis/event-queue.js',
    'backend/embedded/event-store.js',
    'backend/embedded/event-recorder.js',
    'backend/embedded/event-queue.js',
  ])
    assert.equal(loaded.has(path), false, path);
});

/** A hub whose broker confirms at once, and its reports about rooms. */
function build({ subscribe = () => Promise.resolve() } = {}) {
  /** @type {string[]} */
  const told = [];
  let latest = 0;
  const reporter = {
    /** @param {string} room @param {number} connections */
    count(room, connections) {
      if (connections > 0 !== latest > 0 || connections < 0) told.push(`${room} ${connections}`);
      latest = connections;
    },
  };
  // Rooms named h… have history.
  const broker = Object.assign(new StreamBroker(), { subscribe });
  const historyOf = (/** @type {string} */ room) =>
    room.startsWith('h') ? { size: 1, ttlMs: 1000 } : null;
  const { hub } = buildHub({ config: configOf({}), broker, historyOf, reporter });
  const connect = () => {
    const connection = new Connection(new FakeTransport(), '127.0.0.1');
    hub.addConnection(connection);
    return connection;
  };
  return { hub, connect, told };
}

test('a room is occupied from its first client to its last one, whoever watches', (t) => {
  const { hub, connect, told } = build();
  const tail = new Tail({ hub, room: 'room', onLines() {}, onEnd() {} });
  t.after(() => tail.close());
  tail.start();
  assert.deepEqual(told, []);
  const [a, b] = [connect(), connect()];
  hub.join(a, 'room', QUIET);
  hub.join(b, 'room', QUIET);
  hub.leave(a, /** @type {import('../../src/hub/room.js').HubRoom} */ (hub.rooms.get('room')));
  assert.deepEqual(told, ['room 1']);
  hub.removeConnection(b);
  assert.deepEqual(told, ['room 1', 'room 0']);
  // The watcher keeps the room open.
  assert.ok(hub.rooms.has('room'));
  tail.close();
  assert.equal(hub.rooms.has('room'), false);
  assert.deepEqual(told, ['room 1', 'room 0']);
});

test('in a room with history each client counts, from its join or its announcement on', async () => {
  const { hub, connect, told } = build();
  const [a, b] = [connect(), connect()];
  const join = (/** @type {Connection} */ connection) =>
    new Promise((resolve) => hub.join(connection, 'h', { ...QUIET, onJoined: resolve }));
  const joined = join(a);
  assert.deepEqual(told, ['h 1']);
  await joined;
  hub.removeConnection(a);
  assert.deepEqual(told.splice(0), ['h 1', 'h 0']);
  hub.announce(b, 'h', Promise.resolve());
  await join(b);
  assert.deepEqual(told, ['h 1']);
  hub.removeConnection(b);
  assert.deepEqual(told, ['h 1', 'h 0']);
});

test('a room whose subscription fails is left again', async () => {
  const { hub, connect, told } = build({ subscribe: () => Promise.reject(new Error('away')) });
  await new Promise((resolve) =>
    hub.join(connect(), 'room', { ...QUIET, onRefused: () => resolve(undefined) }),
  );
  assert.deepEqual(told, ['room 1', 'room 0']);
});

for (const name of ['room', 'h'])
  test(`a watcher whose subscription to ${name} fails was no client that has left`, async () => {
    const { hub, told } = build({ subscribe: () => Promise.reject(new Error('away')) });
    await new Promise((resolve) =>
      new Tail({ hub, room: name, onLines() {}, onEnd: () => resolve(undefined) }).start(),
    );
    assert.deepEqual([told, hub.rooms.has(name)], [[], false]);
  });

test('a count is reported 200 ms after its first change, and falls to 0 before the room is left', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  /** @type {string[]} */
  const told = [];
  const reporter = new WebhookReporter({
    store: {
      start: async () => {},
      close: async () => {},
      enter: (tag) => void told.push(`+${tag}`),
      exit: (tag) => void told.push(`-${tag}`),
      count: (tag, count) => void told.push(`${tag} ${count}`),
      publish() {},
      connectionsIn: async () => 0,
      occupied: async () => [],
      online: async () => [],
    },
    covers: () => false,
    counts: (room) => room === '~7:a',
    lingerMs: 600_000,
  });
  for (const count of [1, 2, 3]) reporter.count('~7:a', count);
  reporter.count('~7:b', 1);
  t.mock.timers.tick(199);
  assert.deepEqual(told.splice(0), ['+~7:a']);
  t.mock.timers.tick(1);
  assert.deepEqual(told.splice(0), ['~7:a 3']);
  reporter.count('~7:a', 0);
  reporter.count('~7:a', 0);
  t.mock.timers.tick(200);
  assert.deepEqual(told.splice(0), ['~7:a 0'], 'it lingers, without connections');
  reporter.count('~7:a', 0);
  t.mock.timers.tick(200);
  assert.deepEqual(told.splice(0), []);
  reporter.count('~7:a', 1);
  t.mock.timers.tick(200);
  assert.deepEqual(told.splice(0), ['~7:a 1'], 'it had not been left');
});

test('a user is connected from the first session to the last one', () => {
  /** @type {string[]} */
  const told = [];
  const sessions = new Sessions({
    revocations: { isRevoked: () => false },
    counters: createCounters().auth,
    closeAll() {},
    reporter: {
      connect: (user) => void told.push(`+${user}`),
      disconnect: (user) => void told.push(`-${user}`),
    },
  });
  const begin = () => {
    const connection = new Connection(new FakeTransport(), '127.0.0.1');
    const expiresAtMs = Date.now() + 60_000;
    const identity = /** @type {import('../../src/auth/claims.js').Identity} */ ({
      user: 'ann',
      expiresAtMs,
    });
    sessions.begin(connection, identity, null);
    return connection;
  };
  const [a, b] = [begin(), begin()];
  sessions.end(a);
  sessions.end(a);
  assert.deepEqual(told, ['+ann']);
  sessions.end(b);
  sessions.end(b);
  begin();
  assert.deepEqual(told, ['+ann', '-ann', '+ann']);
});

test('a message is reported when the broker has accepted it, in the rooms that are asked for', async () => {
  /** @type {object[]} */
  const reported = [];
  /** @type {string[]} */
  const answered = [];
  const publisher = new Publisher({
    ...{ config: configOf(), historyOf: () => null, log: { error() {} } },
    broker: {
      publish: async (room) => {
        if (room === 'chat.away') throw new Error('away');
        return room === 'chat.h' ? { epoch: 'e', offset: 3 } : undefined;
      },
    },
    hub: { rooms: new Map() },
    phase: { isSettling: false },
    counters: createCounters(),
    recorder: {
      coversMessages: (room) => room.startsWith('chat.'),
      publish: (room, message) => void reported.push({ room, ...message }),
    },
  });
  const connection = new Connection(new FakeTransport(), '127.0.0.1');
  const listener = {
    /** @type {import('../../src/operations/publisher.js').PublishListener['onPublished']} */
    onPublished: (_connection, id) => void answered.push(`${id}`),
    /** @type {import('../../src/operations/publisher.js').PublishListener['onRefused']} */
    onRefused: (_connection, id) => void answered.push(`no ${id}`),
  };
  const payload = Buffer.from('{"text":"h\u00e9"}');
  const message = {
    ...{ source: payload, start: 0, end: payload.length, sender: 'ann', except: '' },
    ...{ key: undefined, owner: 'ann', app: null, mayPublish: true },
  };
  for (const [id, room] of ['chat.a', 'chat.h', 'other', 'chat.away'].entries())
    publisher.publishFor(listener, connection, id, room, { ...message, idempotencyKey: room });
  assert.deepEqual(reported, []);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(answered.sort(), ['0', '1', '2', 'no 3']);
  const shown = { sender: 'ann', payload: '{"text":"h\u00e9"}', audience: '' };
  // The key as the broker has it: another user may use the same one.
  assert.deepEqual(reported, [
    { room: 'chat.a', ...shown, offset: undefined, key: undefined, idempotencyKey: 'ann chat.a' },
    { room: 'chat.h', ...shown, offset: 3, key: undefined, idempotencyKey: 'ann chat.h' },
  ]);
});

/** WebhookReporter over a Redis that answers when the test lets it. */
function heldEdges() {
  /** @type {string[]} */
  const recorded = [];
  /** @type {((error?: Error) => void)[]} */
  const held = [];
  const answer = () =>
    new Promise((resolve, reject) =>
      held.push((error) => (error === undefined ? resolve(0) : reject(error))),
    );
  const recording = {
    keys: { ofFleet: () => '' },
    partitionOf: () => 1,
    recordMessages(/** @type {string} */ room) {
      recorded.push(room);
      return answer();
    },
    countLost() {
      recorded.push('lost');
      return answer();
    },
  };
  const log = { info() {}, warn() {} };
  const connection = { describe: String, redis: { defineCommand() {} } };
  const reporter = new RedisEventStore(
    /** @type {any} */ ({ recording, announce: null, connection, prefix: '', workerId: '', log }),
  );
  Object.assign(reporter, { occupancy: { close() {} }, rooms: { close() {} } });
  const publish = (/** @type {string} */ room) =>
    reporter.publish(room, /** @type {any} */ ({ fields: '' }));
  return { reporter, recorded, held, publish };
}

test('a message that comes while lost ones are counted is recorded without another', async () => {
  const { recorded, held, publish } = heldEdges();
  publish('a');
  await turn();
  held[0](new Error('away'));
  await turn();
  publish('b');
  held[1]();
  await turn();
  await turn();
  assert.deepEqual(recorded, ['a', 'lost', 'b']);
});

test('a worker that ends has recorded its messages, also those behind others', async () => {
  const { reporter, recorded, held, publish } = heldEdges();
  publish('a');
  await turn();
  publish('b');
  let isClosed = false;
  const closed = reporter.close().then(() => {
    isClosed = true;
  });
  await turn();
  assert.deepEqual([recorded, isClosed], [['a'], false]);
  held[0]();
  await turn();
  assert.deepEqual([recorded, isClosed], [['a', 'b'], false]);
  held[1]();
  await closed;
});
