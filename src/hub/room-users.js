// room-users.js: the users behind this worker's connections, in rooms with presence. A user with
// several connections here counts once: presence gets the first join and the last leave.

import { encodeMember } from '../protocol/encode.js';

/** @import { Connection } from './connection.js' */

/**
 * The hub's part of the contract of presence.
 * @typedef {object} PresenceStore
 * @property {(room: string, user: string, member: Buffer) => void} join
 * @property {(room: string, user: string) => void} leave
 * @property {(room: string) => Promise<void>} recorded
 * @property {(room: string, isCount?: boolean) => Promise<{count: number, members: Buffer[]|null}>}
 *   read
 */

export class PresenceTracker {
  /**
   * @param {object} parts @param {PresenceStore} parts.presence
   * @param {(room: string) => boolean} parts.covers does the room have presence?
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ presence, covers, counters }) {
    this.presence = presence;
    this.covers = covers;
    this.counters = counters;
  }

  /** @param {string} room @returns {RoomUsers|null} null: the room has no presence */
  usersOf(room) {
    return this.covers(room) ? new RoomUsers(this, room) : null;
  }

  /** @param {string} room @param {boolean} [isCount] their number is enough: may have no members */
  read(room, isCount) {
    return this.presence.read(room, isCount);
  }

  /**
   * Waits until the store has all earlier joins of this worker in the room. Until then another
   * worker may announce that such a user leaves. Never rejects: if the store is unavailable, it
   * gets the joins later.
   * @param {string} room
   */
  async recorded(room) {
    try {
      await this.presence.recorded(room);
    } catch {
      // The views of rooms are read again after an outage.
    }
  }
}

/** If no room has presence. @type {Pick<PresenceTracker, 'covers'|'usersOf'|'read'|'recorded'>} */
export const NO_PRESENCE = Object.freeze({
  covers: () => false,
  usersOf: () => null,
  read: async () => ({ count: 0, members: [] }),
  recorded: async () => {},
});

/** @typedef {typeof NO_PRESENCE} Tracker */

export class RoomUsers {
  /** @param {PresenceTracker} tracker @param {string} room */
  constructor(tracker, room) {
    this.tracker = tracker;
    this.room = room;
    /** @type {Map<Connection, string>} */
    this.users = new Map();
    /** The number of connections of each user. @type {Map<string, number>} */
    this.connections = new Map();
  }

  /** @param {Connection} connection */
  has(connection) {
    return this.users.has(connection);
  }

  /**
   * @param {Connection} connection a member of the room, and not among the users
   * @param {string} user @param {Buffer|null} info JSON, copied
   * @param {Buffer} [member] as encodeMember writes it; a door may append fields of its own
   */
  join(connection, user, info, member = encodeMember(user, info)) {
    const { presence, counters } = this.tracker;
    // As JSON, because users that differ only in halves of surrogate pairs are the same in UTF-8.
    const key = JSON.stringify(user);
    const before = this.connections.get(key) ?? 0;
    if (before === 0) counters.presenceMembers++;
    this.users.set(connection, key);
    this.connections.set(key, before + 1);
    presence.join(this.room, key, member);
  }

  /** Another connection takes over the user. @param {Connection} former @param {Connection} next */
  replace(former, next) {
    const key = this.users.get(former);
    if (key === undefined) return;
    this.users.delete(former);
    this.users.set(next, key);
  }

  /** @param {string} user @returns {boolean} has the user a connection here? */
  isHere(user) {
    return this.connections.has(JSON.stringify(user));
  }

  /** @param {Connection} connection @returns {string|null} its user; null: it is none */
  userOf(connection) {
    const key = this.users.get(connection);
    return key === undefined ? null : JSON.parse(key);
  }

  /** @param {string} user @returns {Connection[]} the user's connections */
  connectionsOf(user) {
    const key = JSON.stringify(user);
    if (!this.connections.has(key)) return [];
    return [...this.users.keys()].filter((connection) => this.users.get(connection) === key);
  }

  /** @param {ReadonlySet<string>} wanted users as JSON @param {Set<string>} found */
  find(wanted, found) {
    const { connections } = this;
    const [fewer, more] =
      wanted.size < connections.size ? [wanted, connections] : [connections, wanted];
    for (const key of fewer.keys()) if (more.has(key)) found.add(key);
  }

  /** @param {Connection} connection one that leaves; a watcher is no user */
  leave(connection) {
    const key = this.users.get(connection);
    if (key === undefined) return;
    this.users.delete(connection);
    const left = /** @type {number} */ (this.connections.get(key)) - 1;
    if (left > 0) {
      this.connections.set(key, left);
      return;
    }
    this.connections.delete(key);
    this.tracker.counters.presenceMembers--;
    this.tracker.presence.leave(this.room, key);
  }
}
