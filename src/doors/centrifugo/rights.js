// rights.js: may a client subscribe, publish, read presence or history? Its token decides, and
// FANFARE_CENTRIFUGO_ALLOW adds rights for all. Without tokens all is permitted, also without a
// token if FANFARE_AUTH is `optional`. Hooks are asked afterwards.

import { Rights } from '../../auth/rights.js';
import { roomPatternsOf } from './channels.js';

/** @import { RoomRight } from '../../auth/rights.js' */
/** @import { Config } from '../../config/settings.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { Client } from './client.js' */

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
    const lists = { join: [], publish: [], presence: [], history: [] };
    for (const { right, pattern } of centrifugo?.allow ?? [])
      lists[/** @type {RoomRight} */ (NAMES[right])].push(...roomPatternsOf(pattern));
    this.allowed = new Rights(lists);
  }

  /**
   * @param {Connection} connection @param {Client} client @param {RoomRight} right
   * @param {string} room
   */
  has({ session }, { identity }, right, room) {
    if (identity === null && this.isOpen) return true;
    if (this.allowed[right].has(room)) return true;
    // What the backend has granted counts, too.
    if (right === 'join' && !session.isAnonymous) return session.mayJoin(room);
    return identity === null || identity.rights[right].has(room);
  }
}
