import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Connection } from '../../src/hub/connection.js';
import { createCounters } from '../../src/observability/counters.js';
import { USER_PREFIX } from '../../src/protocol/place-keys.js';
import { createCloseAll } from '../../src/worker/close-all.js';
import { ExcessConnections } from '../../src/worker/excess-connections.js';
import { Turn } from '../../src/worker/turn.js';
import { FakeTransport } from '../helpers/fake-transport.js';

const ADDRESS = '192.0.2.1';
const USER = `${USER_PREFIX}alice`;
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** A connection, and the codes with which it was closed. */
class Client {
  /** @param {string} address @param {string} [key] of its user */
  constructor(address, key) {
    this.transport = new FakeTransport();
    this.connection = new Connection(this.transport, address);
    if (key !== undefined)
      this.connection.beginSession(
        /** @type {import('../../src/auth/session.js').Session} */ (
          /** @type {unknown} */ ({ lease: { key, release() {} } })
        ),
      );
  }

  get isOpen() {
    return this.connection.isOpen;
  }
}

/** @param {readonly Client[]} clients @param {readonly Client[]} [guests] in the lobby */
function build(clients, guests = []) {
  const counters = createCounters();
  const connectionsOf = (/** @type {readonly Client[]} */ those) =>
    those.map(({ connection }) => connection);
  // The clock stands still, so no share is spent, however busy the machine is.
  const eventLoop = new Turn({ clock: () => 0 });
  const excess = new ExcessConnections({
    // The hub's list has no order.
    hub: { connections: connectionsOf(clients).reverse() },
    lobby: { connections: connectionsOf(guests).values() },
    surveys: eventLoop.line('surveys', (act) => act()),
    closeAll: createCloseAll(eventLoop),
    counters,
  });
  return { excess, closes: counters.fleetLimitCloses };
}

test('the newest connections of an address are closed, those in the lobby included', async () => {
  const clients = Array.from({ length: 5 }, () => new Client(ADDRESS));
  const stranger = new Client('192.0.2.2');
  const guest = new Client(ADDRESS);
  const { excess, closes } = build([...clients, stranger], [guest]);
  excess.keepConnections(ADDRESS, 3);
  await turn();
  assert.deepEqual(
    [...clients, stranger, guest].map(({ isOpen }) => isOpen),
    [true, true, true, false, false, true, false],
  );
  assert.deepEqual(guest.transport.closed, {
    code: 4008,
    reason: 'connection limit of the address',
  });
  assert.deepEqual(closes, { address: 3, user: 0 });
});

test('an order that comes again closes no further connection', async () => {
  const clients = Array.from({ length: 4 }, () => new Client(ADDRESS));
  const { excess, closes } = build(clients);
  for (let i = 0; i < 3; i++) {
    excess.keepConnections(ADDRESS, 2);
    await turn();
  }
  assert.equal(clients.filter(({ isOpen }) => isOpen).length, 2);
  assert.equal(closes.address, 2);
});

test('the connections of a user are closed with 4009, and each is counted once', async () => {
  const clients = Array.from({ length: 4 }, () => new Client(ADDRESS, USER));
  const { excess, closes } = build([...clients, new Client(ADDRESS, `${USER_PREFIX}bob`)]);
  excess.keepConnections(USER, 1);
  await turn();
  assert.equal(clients.filter(({ isOpen }) => isOpen).length, 1);
  assert.equal(clients[3].transport.closed?.code, 4009);
  excess.keepConnections(ADDRESS, 0);
  excess.keepConnections(USER, 0);
  await turn();
  assert.deepEqual(closes, { address: 2, user: 3 });
});
