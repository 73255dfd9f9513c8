// occupancy.js: which rooms have connections over the fleet, and how many, as the backend knows it.
//
// It knows the rooms whose edges are recorded for webhooks. For others, each worker has to be asked
// (worker/fleet.js). Workers report their counts a few times a second (edges.js), and a worker that
// was killed counts until it has been cleared up.

/** Events for which it has to be known whether a room is occupied. */
export const FOLLOWED = /** @type {const} */ (['room.occupied', 'room.vacated', 'cache.missed']);

/**
 * A page of rooms, in the order of their names.
 * @typedef {object} RoomPage
 * @property {string} prefix of their names; '' for all
 * @property {string} after a name: only rooms behind it; '' for the first page
 * @property {number} limit rooms
 */

/** @typedef {{room: string, connections: number}} OccupiedRoom */

/**
 * The backend's part. All calls reject with a BrokerError if the backend is unavailable.
 * @typedef {object} OccupancyStore
 * @property {(room: string) => Promise<number>} connectionsIn
 * @property {(page: RoomPage) => Promise<OccupiedRoom[]>} occupied rooms with connections
 */

export class Occupancy {
  /**
   * @param {OccupancyStore} store
   * @param {Pick<import('../config/webhooks.js').WebhookSettings, 'covers'|'coversPrefix'>} webhooks
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
   * @param {string} prefix @param {string|null} [except] rooms with this prefix do not matter
   */
  coversPrefix(prefix, except = null) {
    return FOLLOWED.some((type) => this.webhooks.coversPrefix(type, prefix, except));
  }

  /** @param {string} room one that is covered @returns {Promise<number>} connections */
  count(room) {
    return this.store.connectionsIn(room);
  }

  /**
   * @param {Partial<RoomPage>} page whose prefix is covered; 100 rooms if it has no limit
   * @returns {Promise<OccupiedRoom[]>} fewer than `limit`: there are no others
   */
  list({ prefix = '', after = '', limit = 100 }) {
    return this.store.occupied({ prefix, after, limit });
  }
}
