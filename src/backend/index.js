// index.js: chooses the backend by configuration, and joins it to the machine's relay.
//
// A further backend needs a folder with an index.js (backend.js is the contract), a line in
// BACKENDS, and its settings.

import { RelayClient } from './embedded/relay-client.js';

/** @import { Config } from '../config/settings.js' */
/** @import { Backend, BackendParts, CreateBackend } from './backend.js' */

/**
 * The backends by priority: the first with a true condition is used. Each is loaded only if it is
 * used, because ioredis takes a fifth of a worker's start.
 * @type
 *   {readonly {isChosen: (config: Config) => boolean, load: () => Promise<{createBackend: CreateBackend}>}[]}
 */
const BACKENDS = Object.freeze([
  { isChosen: ({ redis }) => redis !== null, load: () => import('./redis/index.js') },
  { isChosen: () => true, load: () => import('./embedded/index.js') },
]);

/**
 * A worker's backend together with its link to the primary. With every backend, the primary counts
 * the connections of each client address.
 */
class WorkerBackend {
  /** @param {RelayClient} relay @param {Backend} backend */
  constructor(relay, { broker, presence, revocations, close }) {
    this.addresses = relay;
    this.broker = broker;
    this.presence = presence;
    this.revocations = revocations;
    this.closeBackend = close;
  }

  /**
   * Connects to the primary. Rejects if there is no primary. Call it before the broker starts.
   * @param {object} listeners
   * @param {() => void} listeners.onLost the link has ended, although `close` was not called
   * @param {(key: string, connections: number) => void} listeners.onKeep all servers together have
   *   too many connections of an address or user: close the newest until so many are left
   */
  async open({ onLost, onKeep }) {
    this.addresses.listen({ onClose: onLost, onKeep });
    await this.addresses.open();
  }

  /** Closes presence, the broker and the link, in this order. May be called twice. */
  async close() {
    await this.closeBackend();
    await this.addresses.close();
  }
}

/**
 * @param {Omit<BackendParts, 'machine'> & {relayPath: string}} parts `relayPath`: the socket of the
 *   primary's relay
 * @returns {Promise<WorkerBackend>}
 */
export async function createBackend({ relayPath, ...parts }) {
  const choice = /** @type {typeof BACKENDS[number]} */ (
    BACKENDS.find(({ isChosen }) => isChosen(parts.config))
  );
  const backend = await choice.load();
  const machine = new RelayClient({ path: relayPath, log: parts.log });
  return new WorkerBackend(machine, backend.createBackend({ ...parts, machine }));
}
