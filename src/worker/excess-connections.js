// excess-connections.js: closes connections of an address or a user, the newest first, when all
// servers together have too many of them (backend/embedded/fleet-places.js).
//
// An order names how many connections may stay, so repeating it changes nothing. The orders of a
// turn share a walk over all connections: a list by address would cost each connection memory.

import { CLOSES } from '../protocol/codes.js';
import { USER_PREFIX } from '../protocol/place-keys.js';

const CLOSE_OF = Object.freeze({ address: CLOSES.ADDRESS_LIMIT, user: CLOSES.USER_LIMIT });

/** @import { Connection } from '../hub/connection.js' */

export class ExcessConnections {
  /** Connections that may stay, by key. @type {Map<string, number>} */
  #orders = new Map();

  /**
   * @param {object} parts @param {Pick<import('../hub/hub.js').Hub, 'connections'>} parts.hub
   * @param {Pick<import('../auth/lobby.js').Lobby, 'connections'>|null} parts.lobby null: no tokens
   *   are configured
   * @param {import('./turn.js').Line<() => void>} parts.surveys walks over rooms and connections
   * @param {import('./close-all.js').CloseAll} parts.closeAll
   * @param {Pick<import('../observability/counters.js').Counters, 'fleetLimitCloses'>}
   *   parts.counters
   */
  constructor({ hub, lobby, surveys, closeAll, counters }) {
    this.hub = hub;
    this.lobby = lobby;
    this.surveys = surveys;
    this.closeAll = closeAll;
    this.counters = counters;
  }

  /** @param {string} key of an address or a user @param {number} connections that may stay */
  keepConnections(key, connections) {
    if (this.#orders.size === 0) this.surveys.push(() => this.#closeNewest());
    this.#orders.set(key, connections);
  }

  #closeNewest() {
    const orders = this.#orders;
    this.#orders = new Map();
    /** @type {Map<string, Connection[]>} */
    const found = new Map([...orders.keys()].map((key) => [key, []]));
    for (const connection of this.hub.connections) sort(connection, found);
    for (const connection of this.lobby?.connections ?? []) sort(connection, found);
    for (const [key, connections] of found) {
      const keep = /** @type {number} */ (orders.get(key));
      // An earlier order of this walk may have closed some.
      const open = connections.filter(({ isOpen }) => isOpen);
      const kind = key.startsWith(USER_PREFIX) ? 'user' : 'address';
      const newest = open.sort((a, b) => a.number - b.number).slice(keep);
      this.counters.fleetLimitCloses[kind] += newest.length;
      this.closeAll(newest, CLOSE_OF[kind]);
    }
  }
}

/** @param {Connection} connection @param {ReadonlyMap<string, Connection[]>} found by key */
function sort(connection, found) {
  const { isOpen, address, session } = connection;
  if (!isOpen) return;
  found.get(address)?.push(connection);
  const key = session.lease?.key;
  if (key !== undefined) found.get(key)?.push(connection);
}
