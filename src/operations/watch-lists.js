// watch-lists.js: tells a connection which users of its list are online. A user is online while the
// user's room has members on any server.

/** @import { Connection } from '../hub/connection.js' */
/** @import { RoomListener, RosterJoins } from './roster-joins.js' */
/** @typedef {readonly [room: string, listener: RoomListener]} Watched */

/**
 * @typedef {object} WatchListener
 * @property {(online: ReadonlyMap<string, boolean>) => void} onChange by user: all of the list at
 *   first, then each change
 * @property {() => void} onUnavailable nothing more is known of one of them
 */

export class WatchLists {
  /** @type {Map<Connection, readonly Watched[]>} */
  #watched = new Map();

  /** @param {Pick<RosterJoins, 'watch'|'unwatch'>} rosters */
  constructor(rosters) {
    this.rosters = rosters;
  }

  /**
   * A connection has one list, until it ends.
   * @param {Connection} connection @param {ReadonlyMap<string, string>} users their rooms, by user
   * @param {WatchListener} listener
   */
  beginWatch(connection, users, { onChange, onUnavailable }) {
    if (this.#watched.has(connection)) return;
    /** Whether a user is online, once it is known. @type {Map<string, boolean>} */
    const known = new Map();
    const watched = [...users].map(([user, room]) => {
      const listener = (/** @type {boolean|null} */ isOnline) => {
        if (isOnline === null) return onUnavailable();
        if (known.get(user) === isOnline) return;
        const isComplete = known.size === users.size;
        known.set(user, isOnline);
        if (isComplete) onChange(new Map([[user, isOnline]]));
        else if (known.size === users.size) onChange(known);
      };
      return /** @type {Watched} */ ([room, listener]);
    });
    this.#watched.set(connection, watched);
    for (const [room, listener] of watched) this.rosters.watch(room, listener, connection);
  }

  /** @param {Connection} connection that ends; it may have no list */
  endWatch(connection) {
    for (const [room, listener] of this.#watched.get(connection) ?? [])
      this.rosters.unwatch(room, listener);
    this.#watched.delete(connection);
  }
}
