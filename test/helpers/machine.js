// machine.js: a worker's ends of a relay: its places, and the parts of its backend.

import pino from 'pino';
import { EmbeddedBroker } from '../../src/backend/embedded/broker.js';
import { EmbeddedPresence } from '../../src/backend/embedded/presence.js';
import { RelayLink } from '../../src/backend/embedded/relay-link.js';
import { OP } from '../../src/backend/embedded/relay-wire.js';
import { WorkerPlaces } from '../../src/backend/embedded/worker-places.js';

const log = pino({ level: 'silent' });

/**
 * @param {string} path of the relay's socket
 * @param {Partial<ConstructorParameters<typeof RelayLink>[0]>} [options]
 * @returns {WorkerPlaces} its `link` is not open yet
 */
export function machineAt(path, options) {
  return new WorkerPlaces(new RelayLink({ path, log, ...options }));
}

/**
 * @param {import('node:test').TestContext} t it closes the link at its end
 * @param {string} path @param {Parameters<typeof machineAt>[1]} [options]
 */
export async function openMachine(t, path, options) {
  const machine = machineAt(path, options);
  await machine.link.open();
  t.after(() => machine.link.close());
  return machine;
}

/**
 * A worker of the embedded backend, whose broker has started and drops publications.
 * @param {import('node:test').TestContext} t
 * @param {{path: string}} relay
 * @param {Parameters<typeof machineAt>[1] & {historyOf?: import('../../src/backend/broker.js').HistoryOf}} [options]
 */
export async function openWorker(t, relay, { historyOf, ...options } = {}) {
  const places = await openMachine(t, relay.path, options);
  const { link } = places;
  const broker = new EmbeddedBroker({ link, roomLingerMs: 0, historyOf });
  await broker.start({ onPublication() {}, onState() {} });
  const { publisher } = broker;
  const presence = new EmbeddedPresence(link, publisher);
  return { places, link, broker, publisher, presence, append: appender(publisher) };
}

/**
 * Publishes to rooms with history.
 * @param {import('../../src/backend/embedded/relay-publisher.js').RelayPublisher} publisher
 * @returns {(room: string, key: string, publication: Buffer) => Promise<import('../../src/backend/broker.js').Position>}
 */
export function appender(publisher) {
  return (room, key, publication) =>
    publisher.decide(OP.APPEND, room, key, publication, key !== '');
}

/** @param {import('../../src/backend/embedded/relay-server.js').RelayServer} relay */
export function countersOf({ bus, places, droppedLinks }) {
  let pendingBytes = 0;
  for (const link of bus.links) pendingBytes += link.pendingBytes;
  return {
    workers: bus.links.size,
    rooms: bus.rooms.size,
    addresses: places.counts.byKey.size,
    connections: bus.connections,
    pendingBytes,
    droppedLinks,
  };
}
