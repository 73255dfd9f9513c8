// presence.js: presence on one machine. The relay in the primary (relay-server.js) has the Members
// of all workers. When a link ends, it removes those of its worker, which then exits.

import { deferred } from '../deferred.js';
import { readMembers } from './relay-wire.js';

/**
 * If the link has ended, changes are dropped and reads reject with a BrokerError.
 * @implements {Presence}
 */
export class EmbeddedPresence {
  /**
   * Rooms whose members are requested next: one at a time, because an answer may be large.
   * @type {Map<string, Deferred<PresenceSnapshot>>}
   */
  #wanted = new Map();
  #isReading = false;

  /**
   * @param {RelayLink} link opened and closed by its owner
   * @param {RelayPublisher} publisher of the link
   */
  constructor(link, publisher) {
    this.link = link;
    this.publisher = publisher;
  }

  async start() {}

  async close() {
    this.link.tell({ type: 'exit-all' });
  }

  /** @param {string} room @param {string} user @param {Buffer} member */
  join(room, user, member) {
    this.link.tell({ type: 'enter', room, user, member: member.toString('base64') });
  }

  /** @param {string} room @param {string} user */
  leave(room, user) {
    this.link.tell({ type: 'exit', room, user });
  }

  /** The relay handles messages in order. */
  recorded() {
    return this.publisher.confirm();
  }

  /** @param {string} room @param {boolean} [isCount] @returns {Promise<PresenceSnapshot>} */
  read(room, isCount = false) {
    const refusal = this.link.refusal();
    if (refusal !== null) return Promise.reject(refusal);
    if (isCount) return this.#ask(room, true);
    let list = this.#wanted.get(room);
    if (list === undefined) {
      list = deferred();
      this.#wanted.set(room, list);
      if (!this.#isReading) this.#readLists();
    }
    return list.promise;
  }

  async #readLists() {
    this.#isReading = true;
    // Also those that are added meanwhile.
    for (const [room, { resolve, reject }] of this.#wanted) {
      this.#wanted.delete(room);
      await this.#ask(room, false).then(resolve, reject);
    }
    this.#isReading = false;
  }

  /** @param {string} room @param {boolean} isCount */
  async #ask(room, isCount) {
    return readMembers((await this.link.ask({ type: 'who', request: 0, room, isCount })).body);
  }
}

/** @import { Deferred } from '../deferred.js' */
/** @import { Presence, PresenceSnapshot } from '../presence.js' */
/** @import { RelayLink } from './relay-link.js' */
/** @import { RelayPublisher } from './relay-publisher.js' */
