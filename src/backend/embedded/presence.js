// presence.js: presence on one machine. The relay in the primary (relay-server.js) has the Members
// of all workers. When a link ends, it removes those of its worker, which then exits.

/**
 * If the link has ended, changes are dropped and reads reject with a BrokerError.
 * @implements {Presence}
 */
export class EmbeddedPresence {
  /** @param {RelayClient} link opened and closed by its owner */
  constructor(link) {
    this.link = link;
  }

  async start() {}

  async close() {
    this.link.exitAll();
  }

  /** @param {string} room @param {string} user @param {Buffer} member */
  join(room, user, member) {
    this.link.enter(room, user, member);
  }

  /** @param {string} room @param {string} user */
  leave(room, user) {
    this.link.exit(room, user);
  }

  /** The relay handles messages in order. */
  recorded() {
    return this.link.confirm();
  }

  /** @param {string} room @param {boolean} [isCount] @returns {Promise<PresenceSnapshot>} */
  read(room, isCount = false) {
    if (!isCount) return this.link.members(room);
    return this.link.usersIn(room).then((count) => ({ count, members: null }));
  }
}

/** @import { Presence, PresenceSnapshot } from '../presence.js' */
/** @import { RelayClient } from './relay-client.js' */
