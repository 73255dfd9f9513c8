// room-users.js: the users behind this worker's connections, in rooms with presence. A user with
// several connections here counts once: presence gets the first join and the last leave.

import { encodeMember } from '../protocol/encode.js';
import { UserLists } from './user-lists.js';

/** @import { Presence } from '../backend/presence.js' */
/** @import { Connection } from './connection.js' */

/** @typedef {Pick<Presence, 'join'|'leave'|'recorded'|'read'>} PresenceStore */

/**
 * A list that follows the room's events (roster.js).
 * @typedef {object} Follower
 * @property {(publication: Buffer) => Buffer} arrive takes an event of kind PRESENCE; returns what
 *   goes to the outbox
 * @property {() => void} doubt an event was lost
 * @property {(connection: Connection) => void} onLeft a connection has left the room, or was never
 *   more than announced there
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

  /** @type {PresenceStore['read']} */
  read(room, isCount) {
    return this.presence.read(room, isCount);
  }

  /** Presence.recorded, except that it never rejects: an outage delays joins. @param {string} room */
  async recorded(room) {
    try {
      await this.presence.recorded(room);
    } catch {
      // Views of rooms are read again after an outage.
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
    /** Null: no client has asked for the list yet. @type {UserLists|null} */
    this.lists = null;
    /** The list that members follow; null: none does. @type {Follower|null} */
    this.roster = null;
  }

  /** @param {Follower|null} roster null: nobody follows the list any more */
  follow(roster) {
    this.roster = roster;
  }

  /**
   * Takes an event on its way to the outbox.
   * @param {Buffer} publication of kind PRESENCE
   * @param {boolean} isFull will the outbox drop it? @returns {Buffer} for the outbox
   */
  arrive(publication, isFull) {
    this.lists?.onEvent(publication);
    const { roster } = this;
    if (roster === null) return publication;
    if (!isFull) return roster.arrive(publication);
    roster.doubt();
    return publication;
  }

  /** Events may be missing. */
  doubt() {
    this.lists?.doubt();
    this.roster?.doubt();
  }

  /** Reads the users for the answer to a client. */
  readList() {
    this.lists ??= new UserLists(() => this.tracker.read(this.room));
    return this.lists.read();
  }

  /** @param {Connection} connection */
  has(connection) {
    return this.users.has(connection);
  }

  /**
   * @param {Connection} connection a member of the room, not yet among the users
   * @param {string} user @param {Buffer|null} info JSON, copied
   * @param {Buffer} [member] as encodeMember writes it; a door may append fields of its own
   */
  join(connection, user, info, member = encodeMember(user, info)) {
    const { presence, counters } = this.tracker;
    // JSON, because users that differ only in lone surrogates would be equal in UTF-8.
    const key = JSON.stringify(user);
    const before = this.connections.get(key) ?? 0;
    if (before === 0) counters.presenceMembers++;
    this.users.set(connection, key);
    this.connections.set(key, before + 1);
    presence.join(this.room, key, member);
  }

  /**
   * Shows other information about a user who stays.
   * @param {Connection} connection may have no user, if it only watches
   * @param {Buffer} member as above
   */
  update(connection, member) {
    const key = this.users.get(connection);
    if (key !== undefined) this.tracker.presence.join(this.room, key, member);
  }

  /** Another connection takes over the user. @param {Connection} former @param {Connection} next */
  replace(former, next) {
    const key = this.users.get(former);
    if (key === undefined) return;
    this.users.delete(former);
    this.users.set(next, key);
  }

  /** @param {string} user */
  isHere(user) {
    return this.connections.has(JSON.stringify(user));
  }

  /** @param {Connection} connection @returns {string|null} null: it has no user here */
  userOf(connection) {
    const key = this.users.get(connection);
    return key === undefined ? null : JSON.parse(key);
  }

  /** @param {string} user @returns {Connection[]} */
  connectionsOf(user) {
    const key = JSON.stringify(user);
    if (!this.connections.has(key)) return [];
    return [...this.users.keys()].filter((connection) => this.users.get(connection) === key);
  }

  /** @param {ReadonlySet<string>} wanted users as JSON @param {Set<string>} found gets those here */
  findUsers(wanted, found) {
    const { connections } = this;
    const [fewer, more] =
      wanted.size < connections.size ? [wanted, connections] : [connections, wanted];
    for (const key of fewer.keys()) if (more.has(key)) found.add(key);
  }

  /** @param {Connection} connection may have no user, if it only watches */
  leave(connection) {
    const key = this.users.get(connection);
    if (key !== undefined) this.#deleteUser(connection, key);
    this.roster?.onLeft(connection);
  }

  /** @param {Connection} connection @param {string} key of its user */
  #deleteUser(connection, key) {
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
