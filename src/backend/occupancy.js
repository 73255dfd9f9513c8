// occupancy.js: rooms and users with connections in the fleet, if webhooks record their
// transitions. For others, each worker has to be asked (worker/fleet.js).
//
// Workers report their counts a few times a second (webhook-reporter.js), and a killed worker
// counts until another one has cleaned up after it. A room that has just emptied is listed with 0
// connections until its transition is recorded. If a client comes back before, there is no
// transition, and a receiver that read the state in between would take the room for vacated for
// good.

/** These events need to know whether a room is occupied. */
export const FOLLOWED = /** @type {const} */ (['room.occupied', 'room.vacated', 'cache.missed']);

const USERS = /** @type {const} */ (['user.connected', 'user.disconnected']);
/** Users of a door's apps: no endpoint asks for them. */
const USER_OF_APP = /^~[A-Za-z0-9-]+:/;

/**
 * @typedef {object} RoomPage a page of rooms, in the order of their names
 * @property {string} prefix of their names; '' for all
 * @property {string} after a name: only rooms after it; '' for the first page
 * @property {number} limit rooms
 */

/** @typedef {{room: string, connections: number}} OccupiedRoom */

/**
 * The backend's part. All calls reject with a BrokerError if the backend is unavailable.
 * @typedef {object} OccupancyStore
 * @property {(room: string) => Promise<number>} connectionsIn
 * @property {(page: RoomPage) => Promise<OccupiedRoom[]>} occupied rooms that have not been vacated
 * @property {(users: readonly string[]) => Promise<string[]>} online which of them are connected
 */

export class FleetOccupancy {
  /**
   * @param {OccupancyStore} store
   * @param {Pick<import('../config/webhooks.js').WebhookSettings, 'covers'|'coversPrefix'>}
   *   webhooks
   */
  constructor(store, webhooks) {
    this.store = store;
    this.webhooks = webhooks;
  }

  /** Is the room's count known? @param {string} room */
  covers(room) {
    return FOLLOWED.some((type) => this.webhooks.covers(type, room));
  }

  /**
   * Are the counts of all rooms with the prefix known?
   * @param {string} prefix @param {string|null} [except] a prefix of rooms to ignore
   */
  coversPrefix(prefix, except = null) {
    return FOLLOWED.some((type) => this.webhooks.coversPrefix(type, prefix, except));
  }

  /** Is it known whether the user is connected? @param {string} user */
  coversUser(user) {
    return USERS.some((type) => this.webhooks.covers(type)) && !isUserOfApp(user);
  }

  /** @param {string} room that is covered */
  count(room) {
    return this.store.connectionsIn(room);
  }

  /**
   * @param {Partial<RoomPage>} page with a covered prefix
   * @returns {Promise<OccupiedRoom[]>} fewer than `limit` if there are no others
   */
  list({ prefix = '', after = '', limit = 100 }) {
    return this.store.occupied({ prefix, after, limit });
  }

  /** @param {readonly string[]} users that are covered */
  online(users) {
    return this.store.online(users);
  }
}

/** @param {string} user */
export function isUserOfApp(user) {
  return USER_OF_APP.test(user);
}
