// watchlist.js: tells a signed-in connection which users of its list are online. A user is online
// while the user's room has members on any server.

import { roomOfUser } from '../../protocol/pusher-channels.js';
import { errorText, watchlistText } from './codec/frames.js';

const MAX_WATCHED = 100;
const TOO_MANY = 4302;

/** @import { Connection } from '../../hub/connection.js' */
/** @import { PusherClient } from './client.js' */
/** @import { PusherPresence } from './presence.js' */
/** @import { RoomListener } from './presence.js' */
/** @typedef {readonly [room: string, listener: RoomListener]} Watched */

export class Watchlists {
  /** @type {Map<Connection, readonly Watched[]>} */
  #watched = new Map();

  /** @param {PusherPresence} presence @param {(connection: Connection) => void} onUnavailable */
  constructor(presence, onUnavailable) {
    this.presence = presence;
    this.onUnavailable = onUnavailable;
  }

  /** @param {Connection} connection which has signed in @param {PusherClient} client */
  begin(connection, { app, user }) {
    const users = [...new Set(user?.watchlist ?? [])];
    if (users.length === 0 || this.#watched.has(connection)) return;
    if (users.length > MAX_WATCHED) {
      const text = `A watch list has at most ${MAX_WATCHED} users. The others are left out.`;
      connection.send(errorText(TOO_MANY, text));
    }
    const listed = users.slice(0, MAX_WATCHED);
    /** Whether a user is online, once it is known. @type {Map<string, boolean>} */
    const known = new Map();
    const watched = listed.map((one) => {
      const listener = (/** @type {boolean|null} */ isOnline) => {
        if (isOnline === null) return this.onUnavailable(connection);
        if (known.get(one) === isOnline) return;
        const isComplete = known.size === listed.length;
        known.set(one, isOnline);
        if (isComplete) connection.send(textOf(new Map([[one, isOnline]])));
        else if (known.size === listed.length) connection.send(textOf(known));
      };
      return /** @type {Watched} */ ([roomOfUser(app, one), listener]);
    });
    this.#watched.set(connection, watched);
    for (const [room, listener] of watched) this.presence.watch(room, listener);
  }

  /** @param {Connection} connection */
  end(connection) {
    for (const [room, listener] of this.#watched.get(connection) ?? [])
      this.presence.unwatch(room, listener);
    this.#watched.delete(connection);
  }
}

/** @param {ReadonlyMap<string, boolean>} known */
function textOf(known) {
  const users = [...known.keys()];
  return watchlistText(
    users.filter((user) => known.get(user)),
    users.filter((user) => !known.get(user)),
  );
}
