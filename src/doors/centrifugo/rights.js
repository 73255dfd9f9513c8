// rights.js: may a client subscribe, publish, read presence or history? Its token decides, and
// FANFARE_CENTRIFUGO_ALLOW adds rights for all. Without tokens all is permitted, also without a
// token if FANFARE_AUTH is `optional`. Hooks are asked afterwards.
//
// Private channels and those for named users are guarded: what all clients may do holds there only
// for clients that pass the guard, and the guard is the same for every command. A client passes it
// as one of the named users, or by its subscription. Beyond that its token must name the right.

import { ALL_ROOMS, Rights } from '../../auth/rights.js';
import { isPrivate, roomPatternsOf, usersOf } from './codec/channels.js';

/** @import { RoomRight } from '../../auth/rights.js' */
/** @import { Config } from '../../config/settings.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { CentrifugoClient } from './client.js' */

const NAMES = Object.freeze({
  subscribe: 'join',
  publish: 'publish',
  presence: 'presence',
  history: 'history',
});

export class ClientRights {
  /** @param {Config} config */
  constructor({ centrifugo, auth }) {
    this.isOpen = auth === 'off';
    /** @type {Record<RoomRight, string[]>} */
    const lists = { join: [], publish: [], presence: [], history: [], audience: [] };
    for (const { right, pattern } of centrifugo?.allow ?? [])
      lists[/** @type {RoomRight} */ (NAMES[right])].push(...roomPatternsOf(pattern));
    this.allowed = new Rights(lists);
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client @param {RoomRight} right
   * @param {string} channel @param {string} room of the channel
   */
  has(connection, client, right, channel, room) {
    const users = usersOf(channel);
    if (users === null && !isPrivate(channel))
      return this.#hasInOpenChannel(connection, client, right, room);
    const isNamed = !isPrivate(channel) && client.user !== '' && users?.includes(client.user);
    if (right === 'join') return isNamed === true;
    if (isNamed || client.subscriptionTo(channel) !== null)
      return this.#hasInOpenChannel(connection, client, right, room);
    const { identity } = client;
    // A user whom a hook has named has no token.
    return identity !== null && identity.rights !== ALL_ROOMS && identity.rights[right].has(room);
  }

  /**
   * @param {Connection} connection @param {CentrifugoClient} client @param {RoomRight} right
   * @param {string} room
   */
  #hasInOpenChannel({ session }, { identity }, right, room) {
    if (identity === null && this.isOpen) return true;
    if (this.allowed[right].has(room)) return true;
    // What the backend has granted counts, too.
    if (right === 'join' && !session.isAnonymous) return session.mayJoin(room);
    return identity === null || identity.rights[right].has(room);
  }
}
