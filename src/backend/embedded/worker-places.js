// worker-places.js: what a worker tells the primary of its machine with every backend: its places
// (server-places.js), reports about those of all servers (fleet-places.js), and the name of its
// session in Redis.

import { BrokerError } from '../errors.js';
import { Tally } from './tally.js';

/** @import { FleetRules, Places } from '../places.js' */
/** @import { RelayLink } from './relay-link.js' */
/** @import { FromRelay } from './relay-wire.js' */

/**
 * @typedef {object} PlacesListeners
 * @property {(name: string) => void} onSessionLost another worker of this machine has died; `name`
 *   is the one it gave to `nameSession`
 * @property {(isCarrier: boolean) => void} onCarry this worker starts or stops carrying its
 *   server's reports (see `volunteer`)
 * @property {(report: Buffer) => void} onReport a report for all servers; valid during the call
 * @property {(key: string, connections: number) => void} onKeep close the newest connections of the
 *   key until this many are left
 */

/** @implements {Places} */
export class WorkerPlaces {
  /** @type {PlacesListeners['onSessionLost']} */
  onSessionLost = () => {};
  /** @type {PlacesListeners['onCarry']} */
  onCarry = () => {};
  /** @type {PlacesListeners['onReport']} */
  onReport = () => {};
  /** @type {PlacesListeners['onKeep']} */
  onKeep = () => {};

  #held = new Tally();
  /** Requested and not answered, also if nobody waits for the answer any more. */
  #asked = new Tally();
  #hasResigned = false;

  /** @param {RelayLink} link opened and closed by its owner */
  constructor(link) {
    this.link = link;
    link.listen({
      onControl: (message) => this.#receive(message),
      // Lets the relay compare its count with this one.
      onProbe: () => {
        const [held, asked] = [this.#held.total, this.#asked.total];
        return { type: 'held', request: 0, held, asked };
      },
    });
  }

  /** Replaces the listeners that are given. @param {Partial<PlacesListeners>} listeners */
  listen(listeners) {
    Object.assign(this, listeners);
  }

  /**
   * Counts a connection of a client address, user or app, over all workers of this server.
   * @param {string} key @param {number} cap
   * @param {boolean} force counts the connection even above the cap
   * @returns `connections` of the key now
   */
  async acquire(key, cap, force) {
    this.#asked.add(key, 1);
    try {
      // Sent also while the relay is unavailable: it may answer before the handshake's deadline.
      const { ok, value } = await this.link.ask(
        { type: 'acquire', request: 0, key, cap, force },
        ({ ok: isLate }) => {
          this.#asked.add(key, -1);
          // The caller has stopped waiting, so it does not know of the place.
          if (isLate) this.#giveBack(key);
        },
      );
      this.#asked.add(key, -1);
      if (ok) this.#held.add(key, 1);
      return { admitted: ok, connections: value };
    } catch (error) {
      // Any other request was never sent, so no answer will come.
      const isSent = error instanceof BrokerError && error.code === 'OUTCOME_UNKNOWN';
      if (!isSent) this.#asked.add(key, -1);
      throw error;
    }
  }

  /** @param {string} key that was acquired */
  release(key) {
    // If the link has ended, the relay has released everything this worker held.
    if (!this.link.isOpen) return;
    if (this.#held.countOf(key) === 0) {
      this.link.log.error('released a place that is not held');
      return;
    }
    this.#held.add(key, -1);
    this.#giveBack(key);
  }

  /** @param {string} key */
  #giveBack(key) {
    this.link.tell({ type: 'release', key });
  }

  /**
   * Offers to carry this server's reports to the others (fleet-places.js).
   * @param {FleetRules} rules of this worker's configuration
   */
  volunteer(rules) {
    if (!this.#hasResigned) this.link.tell({ type: 'volunteer', rules });
  }

  /** Withdraws the offer for good, because this worker drains. */
  resign() {
    this.#hasResigned = true;
    this.link.tell({ type: 'resign' });
  }

  /** @param {Buffer} report from any server, for the relay */
  passReport(report) {
    this.link.tell({ type: 'report', report: report.toString('base64') });
  }

  /**
   * When this worker dies, the relay sends the name to another worker of the machine.
   * @param {string} name of its session in a shared store; empty if it no longer has users there
   */
  nameSession(name) {
    this.link.tell({ type: 'name', name });
  }

  /** @param {FromRelay} message */
  #receive(message) {
    switch (message.type) {
      case 'gone':
        this.onSessionLost(message.name);
        break;
      case 'tell-places':
        this.#tellAll();
        break;
      case 'carry':
        this.onCarry(message.isCarrier);
        break;
      case 'report':
        this.onReport(Buffer.from(message.report, 'base64'));
        break;
      case 'keep':
        this.onKeep(message.key, message.connections);
    }
  }

  #tellAll() {
    const keys = new Set([...this.#held.byKey.keys(), ...this.#asked.byKey.keys()]);
    /** @type {[key: string, places: {held: number, asked: number}][]} */
    const places = Array.from(keys, (key) => [
      key,
      { held: this.#held.countOf(key), asked: this.#asked.countOf(key) },
    ]);
    this.link.tell({ type: 'places', places });
  }
}
