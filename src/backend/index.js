// index.js: chooses the backend, and loads no other.
//
// A further backend needs a folder with an index.js (backend.js is the contract), a line in
// BACKENDS, and its settings.

import { RelayLink } from './embedded/relay-link.js';
import { WorkerPlaces } from './embedded/worker-places.js';

/** @import { Config } from '../config/settings.js' */
/** @import { Backend, BackendParts, CreateBackend } from './backend.js' */

/**
 * @typedef {object} Choice
 * @property {(config: Config) => boolean} isChosen
 * @property {(isRecorded: boolean) => Promise<CreateBackend>} load
 */

/**
 * Backends by priority: the first one chosen is used. Only it is loaded, as loading ioredis takes
 * a fifth of a worker's start. The recorder for webhooks is loaded only if there are endpoints.
 * @type {readonly Choice[]}
 */
const BACKENDS = [
  { isChosen: ({ redis }) => redis !== null, load: loadRedis },
  { isChosen: () => true, load: loadEmbedded },
];

/** @param {boolean} isRecorded @returns {Promise<CreateBackend>} */
async function loadRedis(isRecorded) {
  const { createBackend: create } = await import('./redis/index.js');
  const recorder = isRecorded ? await import('./redis/event-store.js') : null;
  return (parts) => create(parts, { recorder });
}

/** @param {boolean} isRecorded @returns {Promise<CreateBackend>} */
async function loadEmbedded(isRecorded) {
  const { createBackend: create } = await import('./embedded/index.js');
  const recorder = isRecorded ? await import('./embedded/event-store.js') : null;
  return (parts) => create(parts, { recorder });
}

/** A worker's backend, its link to the primary, and its places, which the primary counts. */
class WorkerBackend {
  /**
   * @param {WorkerPlaces} places @param {Backend} backend
   * @param {import('./webhook-reporter.js').WebhookReporter|null} reporter null if nothing is recorded for webhooks
   * @param {import('./occupancy.js').FleetOccupancy|null} occupancy connections in rooms, over the fleet
   */
  constructor(places, { broker, presence, revocations, close }, reporter, occupancy) {
    this.addresses = places;
    this.broker = broker;
    this.presence = presence;
    this.revocations = revocations;
    this.reporter = reporter;
    this.occupancy = occupancy;
    this.closeBackend = close;
  }

  /**
   * Connects to the primary. Rejects if there is no primary. Call it before the broker starts.
   * @param {object} listeners
   * @param {() => void} listeners.onLost the link has ended, although `close` was not called
   * @param {(key: string, connections: number) => void} listeners.onKeep an address or user has too
   *   many connections on all servers together: close the newest until this many are left
   */
  async open({ onLost, onKeep }) {
    const { link } = this.addresses;
    this.addresses.listen({ onKeep });
    link.listen({ onClose: onLost });
    await link.open();
  }

  /** Call it at each beat of the worker. */
  beat() {
    this.addresses.link.watchNow();
    this.broker.beat?.();
  }

  /** Closes presence, the broker and the link, in this order. May be called twice. */
  async close() {
    await this.reporter?.close();
    await this.closeBackend();
    await this.addresses.link.close();
  }
}

/** @param {Omit<BackendParts, 'machine'> & {relayPath: string}} parts */
export async function createBackend({ relayPath, ...parts }) {
  const choice = /** @type {Choice} */ (BACKENDS.find(({ isChosen }) => isChosen(parts.config)));
  const { webhooks, roomLingerMs: lingerMs } = parts.config;
  const create = await choice.load(webhooks !== null);
  const machine = new WorkerPlaces(new RelayLink({ path: relayPath, log: parts.log }));
  const backend = create({ ...parts, machine });
  if (webhooks === null || !backend.eventStore)
    return new WorkerBackend(machine, backend, null, null);
  const { WebhookReporter } = await import('./webhook-reporter.js');
  const covers = webhooks.covers.bind(webhooks);
  const counts = webhooks.counts.bind(webhooks);
  const reporter = new WebhookReporter({ store: backend.eventStore, covers, counts, lingerMs });
  const { FleetOccupancy } = await import('./occupancy.js');
  return new WorkerBackend(
    machine,
    backend,
    reporter,
    new FleetOccupancy(backend.eventStore, webhooks),
  );
}

/**
 * The queue of recorded events, for a courier of a server with Redis.
 * @param {Parameters<typeof import('./redis/event-queue.js').openEventQueue>[0]} parts
 */
export async function openEventQueue(parts) {
  return (await import('./redis/event-queue.js')).openEventQueue(parts);
}
