// connection-failures.test.js: building or sending one connection's bytes throws. That costs this
// connection, and neither the worker nor another member, whoever was writing at that moment.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Connection } from '../../src/hub/connection.js';
import { Heartbeat } from '../../src/hub/heartbeat.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { drain } from '../../src/worker/drain.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, QUIET, receive } from '../helpers/hub.js';
import { StreamBroker } from '../helpers/stream-broker.js';

/** With three of them in a row, the third makes a member lag that does not read. */
const LARGE = 'x'.repeat(30_000);
const FAULT = new Error('planted');

const publication = (/** @type {unknown} */ payload) => {
  const json = Buffer.from(JSON.stringify(payload));
  return encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'me', json, 0, json.length);
};

async function settle() {
  for (let i = 0; i < 80; i++) await turn();
}

/** A hub in which rooms named h… have history, and all rooms presence. */
function build() {
  /** @type {string[]} */
  const warnings = [];
  const broker = new StreamBroker();
  const parts = buildHub({
    config: configOf(),
    broker,
    historyOf: (room) => (room.startsWith('h') ? { size: 100, ttlMs: 60_000 } : null),
    presence: {
      join() {},
      leave() {},
      async recorded() {},
      read: async () => ({ count: 1, members: [/** @type {any} */ (null)] }),
    },
    log: { debug() {}, warn: (_fields, text) => void warnings.push(text), error() {} },
  });
  parts.scheduler.close();
  broker.onPublication = (...args) => parts.hub.broadcast(...args);
  const connect = () => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '127.0.0.1');
    parts.hub.addConnection(connection);
    const say = (/** @type {object} */ message) => receive(parts.commands, connection, message);
    const payloads = () =>
      transport
        .messages()
        .filter(({ type }) => type === 'message')
        .map(({ payload }) => payload);
    return { connection, transport, say, payloads };
  };
  const publish = async (/** @type {string} */ room, /** @type {unknown} */ payload) => {
    broker.accept(room, publication(payload));
    broker.deliver();
    await settle();
  };
  return { ...parts, warnings, broker, connect, publish };
}

/** @param {{transport: FakeTransport}} member whose writes fail from now on */
function plant({ transport }) {
  transport.write = () => {
    throw FAULT;
  };
}

/** @param {{connection: Connection, transport: FakeTransport}} member */
function assertLost({ connection, transport }) {
  assert.deepEqual(transport.failures, [FAULT]);
  assert.equal(transport.closed?.code, 1011);
  assert.ok(!connection.isOpen);
}

test('a throw at a flush costs that member; it is counted, and logged once a minute', async () => {
  const { hub, connect, counters, warnings } = build();
  const members = Array.from({ length: 5 }, connect);
  for (const { connection } of members) hub.join(connection, 'plain', QUIET);
  await settle();
  plant(members[1]);
  plant(members[4]);
  hub.broadcast('plain', publication(1));
  await settle();
  hub.broadcast('plain', publication(2));
  await settle();
  for (const i of [0, 2, 3]) assert.deepEqual(members[i].payloads(), [1, 2]);
  for (const i of [1, 4]) assertLost(members[i]);
  assert.equal(counters.connectionFailures, 2);
  assert.deepEqual(warnings, ['a connection failed: it is closed']);
  assert.equal(counters.queueDepth, 0);
});

test('a member that leaves the room in the middle of the flush moves nobody out of it', async () => {
  const { hub, connect } = build();
  const members = Array.from({ length: 4 }, connect);
  for (const { connection } of members) hub.join(connection, 'plain', QUIET);
  await settle();
  plant(members[0]);
  members[0].transport.close = () => hub.removeConnection(members[0].connection);
  hub.broadcast('plain', publication(1));
  await settle();
  for (const member of members.slice(1)) assert.deepEqual(member.payloads(), [1]);
});

test('a throw in a step of a lagging member costs that member, and the others catch up', async () => {
  const { connect, publish, counters } = build();
  const members = [connect(), connect()];
  for (const member of members) member.say({ type: 'join', room: 'h' });
  await settle();
  for (const { transport } of members) transport.isStuck = true;
  for (let i = 0; i < 4; i++) await publish('h', `${i}${LARGE}`);
  assert.equal(counters.laggingMembers, 2);
  plant(members[0]);
  for (const { transport } of members) transport.drain();
  await settle();
  assertLost(members[0]);
  assert.equal(members[1].payloads().length, 4);
});

test('a throw in one replay costs that connection, and the joins after it are answered', async () => {
  const { connect, publish, scheduler } = build();
  const first = connect();
  first.say({ type: 'join', room: 'h' });
  await publish('h', 1);
  const { epoch } = /** @type {import('../../src/recovery/room-sync.js').RoomSync} */ (
    scheduler.syncs.get('h')
  );
  const members = [connect(), connect()];
  plant(members[0]);
  for (const member of members)
    member.say({ type: 'join', room: 'h', since: { epoch, offset: 0 } });
  await settle();
  assertLost(members[0]);
  assert.deepEqual(members[1].payloads(), [1]);
  // Joins that wait for the subscription are decided together.
  const waiting = [connect(), connect()];
  plant(waiting[0]);
  for (const member of waiting) member.say({ type: 'join', room: 'h2' });
  await settle();
  assertLost(waiting[0]);
  assert.equal(waiting[1].transport.messages().at(-1).type, 'joined');
});

test('a throw in the answer to a join, or to a read, costs that connection', async () => {
  const { hub, connect } = build();
  const [joining, other, reader] = [connect(), connect(), connect()];
  const fail = () => {
    throw FAULT;
  };
  hub.join(joining.connection, 'plain', { ...QUIET, onJoined: fail });
  hub.join(other.connection, 'plain', QUIET);
  await settle();
  assertLost(joining);
  assert.ok(other.connection.isOpen);
  reader.say({ type: 'join', room: 'plain', presence: false });
  await settle();
  // The store's list has a member that cannot be encoded.
  reader.say({ type: 'presence', room: 'plain' });
  await settle();
  assert.equal(reader.transport.closed?.code, 1011);
  assert.equal(reader.transport.failures.length, 1);
});

test('a throw at a ping, a notice or a goodbye costs that connection, and all others get theirs', async () => {
  const { hub, connect, counters, outbox, outageNotice, scheduler, phase, ...built } = build();
  const heartbeat = new Heartbeat({ intervalMs: 500, timeoutMs: 250, counters });
  const members = Array.from({ length: 4 }, connect);
  const [pinged, noticed, drained, healthy] = members;
  for (const { connection } of members) {
    connection.greet();
    heartbeat.watchConnection(connection);
  }
  pinged.transport.ping = () => {
    throw FAULT;
  };
  for (let i = 1; i <= 2; i++) heartbeat.pingDue(i * 250);
  assertLost(pinged);
  assert.equal(healthy.transport.pings, 1);

  plant(noticed);
  outageNotice.startAway();
  outageNotice.onState('up');
  await settle();
  assertLost(noticed);
  assert.equal(healthy.transport.messages().at(-1).degraded, false);

  plant(drained);
  const ended = drain({
    hub,
    outbox,
    commands: built.commands,
    lane: built.operations.lane,
    scheduler,
    phase,
    othersAccept: false,
    windowMs: 1,
    deadlineMs: performance.now() + 1,
  });
  await ended;
  assertLost(drained);
  assert.equal(healthy.transport.closed?.code, 1012);
});

test('a close that throws terminates the connection', () => {
  const { connect } = build();
  const { connection, transport } = connect();
  transport.close = () => {
    throw FAULT;
  };
  connection.close({ code: 1012, reason: 'service restart' });
  assert.ok(transport.terminated);
  assert.deepEqual(transport.failures, [FAULT]);
});
