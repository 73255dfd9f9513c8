// stand-in.test.js: a door joins a stand-in while it has not answered its client, and puts the
// connection in its place afterwards (HubRoom.replace).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Connection } from '../../src/hub/connection.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { QUIET } from '../helpers/hub.js';
import { build, payloads, publication } from '../helpers/hub-members.js';
import { build as buildWithPresence } from '../helpers/recovery.js';

/** @typedef {import('../../src/hub/room.js').HubRoom} Room */

/** A member in the place of a connection: publications leave out both of them together. */
class StandIn extends Connection {
  /** @override */
  transport = new FakeTransport();

  /** @param {Connection} connection */
  constructor(connection) {
    super(new FakeTransport(), '');
    this.number = connection.number;
  }
}

/** Numbers from 0 to 1, the same for the same seed (mulberry32). @param {number} seed */
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Makes each write of a transport last, so that a flush over many members yields. */
function slow(/** @type {FakeTransport} */ transport) {
  const write = transport.write.bind(transport);
  transport.write = (frames) => {
    const end = performance.now() + 0.05;
    while (performance.now() < end);
    write(frames);
  };
}

test('a connection takes the place of its stand-in, and gets what follows', async () => {
  const { hub, connect } = build();
  const [one, two] = [connect(), connect()];
  const standIn = new StandIn(one.connection);
  hub.join(standIn, 'r', QUIET);
  hub.join(two.connection, 'r', QUIET);
  const room = /** @type {Room} */ (hub.rooms.get('r'));
  hub.broadcast('r', publication('held'));
  hub.broadcast('r', publication('own', one.connection.id));
  await turn();
  room.replace(standIn, one.connection);
  assert.deepEqual([room.has(standIn), room.has(one.connection)], [false, true]);
  assert.equal(room.connectionCount, 2);
  hub.broadcast('r', publication('next'));
  await turn();
  assert.deepEqual(payloads(standIn.transport), ['held'], 'not its own');
  assert.deepEqual(payloads(one.transport), ['next']);
  hub.leave(one.connection, room);
  hub.leave(two.connection, room);
  assert.equal(hub.rooms.has('r'), false, 'nobody is left behind');
});

for (const seed of [1, 2, 3]) {
  test(`while flushes yield, clients get each message once and in order (seed ${seed})`, async (t) => {
    const { hub, connect, outbox, turn: scheduler } = build();
    let restedMs = 0;
    scheduler.clock = () => performance.now() + restedMs;
    /** A turn after which the room has rested, so that flushes follow each other. */
    const nextTurn = () => {
      restedMs += 10;
      outbox.slot.wake();
      return turn();
    };
    const next = random(seed);
    const pick = (/** @type {number} */ n) => Math.floor(next() * n);
    /** @type {{connection: Connection, transport: FakeTransport}[]} */
    const others = Array.from({ length: 300 }, connect);
    for (const { connection, transport } of others) {
      slow(transport);
      hub.join(connection, 'big', QUIET);
    }
    const room = /** @type {Room} */ (hub.rooms.get('big'));
    /** @type {{standIn: StandIn, connection: Connection, transport: FakeTransport, isIn: boolean, first: number, held: number}[]} */
    const clients = [];
    const replace = (/** @type {typeof clients[number]} */ client) => {
      room.replace(client.standIn, client.connection);
      client.isIn = true;
      client.held = payloads(client.standIn.transport).length;
    };
    let sent = 0;
    let inFlight = 0;
    for (let step = 0; step < 400; step++) {
      const kind = pick(10);
      const client = clients[pick(Math.max(1, clients.length))];
      if (kind < 3) hub.broadcast('big', publication(sent++));
      else if (kind < 5) {
        const { connection, transport } = connect();
        slow(transport);
        const standIn = new StandIn(connection);
        slow(standIn.transport);
        clients.push({ standIn, connection, transport, isIn: false, first: sent, held: 0 });
        hub.join(standIn, 'big', QUIET);
      } else if (kind < 7 && client !== undefined && !client.isIn) {
        if (room.flight !== null) inFlight++;
        replace(client);
      } else if (kind < 8 && others.length > 250) {
        const [left] = others.splice(pick(others.length), 1);
        hub.leave(left.connection, room);
      } else await nextTurn();
    }
    for (const client of clients) if (!client.isIn) replace(client);
    while (room.isQueued) await nextTurn();
    assert.ok(inFlight > 5, `${inFlight} replaced while a flush had yielded`);
    t.diagnostic(`${clients.length} clients, ${sent} messages, ${inFlight} replaced in a flush`);
    for (const { standIn, transport, first, held } of clients) {
      assert.equal(payloads(standIn.transport).length, held, 'nothing once it is replaced');
      const got = [...payloads(standIn.transport), ...payloads(transport)];
      // Messages that waited when it joined may come, too: it is a member of the next flush.
      const begin = got.length === 0 ? sent : got[0];
      assert.ok(begin <= first);
      assert.deepEqual(
        got,
        Array.from({ length: sent - begin }, (_, i) => begin + i),
      );
    }
  });
}

test('a user in presence goes over to the connection', async () => {
  const { hub, connect } = buildWithPresence({ covers: () => true });
  const { connection } = connect();
  const standIn = new StandIn(connection);
  hub.join(standIn, 'p', QUIET);
  const room = /** @type {Room} */ (hub.rooms.get('p'));
  room.users?.join(standIn, 'ann', null);
  room.replace(standIn, connection);
  assert.deepEqual(room.users?.connectionsOf('ann'), [connection]);
  hub.removeConnection(connection);
  assert.equal(hub.rooms.has('p'), false);
});
