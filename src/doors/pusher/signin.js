// signin.js: pusher:signin.
//
// After a sign-in the connection gets the user's events without a subscription, and the limit of
// connections per user applies. It is present in the user's room, which makes the user online.

import { Identity } from '../../auth/claims.js';
import { sessionUserOf } from '../../protocol/app-names.js';
import { roomOfUser } from '../../protocol/pusher-channels.js';
import { PUSHER_CLOSES } from './codec/closes.js';
import { errorText, signedInText, watchlistText } from './codec/frames.js';
import { fieldsOf } from './codec/messages.js';
import { readUser } from './codec/signed.js';

const MAX_WATCHED = 100;
const TOO_MANY = 4302;

/** @import { App } from '../../config/pusher.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { PusherClient, Handler } from './client.js' */
/** @import { SignedInUser } from './codec/signed.js' */

export class SignIn {
  /**
   * @param {DoorServices} services
   * @param {(connection: Connection) => void} onSignedIn
   * @param {(connection: Connection) => void} onUnavailable
   * @param {(connection: Connection, refused: import('../../protocol/refusal.js').Refusal) => void} onRefused
   *   the user has no place now
   */
  constructor(services, onSignedIn, onUnavailable, onRefused) {
    this.services = services;
    this.onSignedIn = onSignedIn;
    this.onUnavailable = onUnavailable;
    this.onRefused = onRefused;
  }

  /** @type {Handler} */
  signIn = (connection, client, message) => {
    const { app } = client;
    const { auth, user_data: data } = fieldsOf(message);
    const user = readUser(connection.id, app, auth, data);
    if (user === null || (client.user !== null && client.user.id !== user.id)) {
      this.services.counters.errors.PERMISSION_DENIED++;
      return connection.close(PUSHER_CLOSES.UNAUTHORIZED);
    }
    const text = signedInText(String(data));
    if (client.user !== null) return connection.send(text);
    client.signIn(user);
    const identity = Identity.named(sessionUserOf(app, user.id), null);
    this.services.operations.identities.signIn(connection, identity, (refused) => {
      if (refused === null) return this.#enter(connection, client, user, text);
      client.signOut();
      this.onRefused(connection, refused);
    });
  };

  /**
   * @param {Connection} connection @param {PusherClient} client @param {SignedInUser} user
   * @param {string} text of the reply
   */
  #enter(connection, client, user, text) {
    const { hub, operations } = this.services;
    const { identities, joins, lane, replies } = operations;
    const { app } = client;
    const name = roomOfUser(app, user.id);
    const onOnline = () => {
      if (!connection.isOpen) return;
      connection.send(text);
      this.onSignedIn(connection);
      this.#watch(connection, app, user.watchlist);
    };
    joins.subscribe(connection, name, {
      since: null,
      who: null,
      isOwn: true,
      onJoined: () => {
        const users = hub.rooms.get(name)?.users;
        if (!connection.isOpen || users == null) return;
        const wasHere = users.isHere(user.id);
        users.join(connection, user.id, null);
        if (wasHere) return onOnline();
        // Otherwise a leave elsewhere could tell watchers that the user is offline.
        lane.awaitJoin(connection, hub.tracker.recorded(name).then(onOnline));
      },
      onRefused: (refused) => {
        client.signOut();
        identities.signOut(connection);
        replies.refuse(connection, refused);
        this.onUnavailable(connection);
      },
    });
  }

  /**
   * Tells the client which users of its watch list are online.
   * @param {Connection} connection @param {App} app @param {readonly string[]} watchlist
   */
  #watch(connection, app, watchlist) {
    const listed = [...new Set(watchlist)];
    if (listed.length === 0) return;
    if (listed.length > MAX_WATCHED) {
      const text = `A watch list has at most ${MAX_WATCHED} users. The others are left out.`;
      connection.send(errorText(TOO_MANY, text));
    }
    const users = new Map(
      listed.slice(0, MAX_WATCHED).map((user) => [user, roomOfUser(app, user)]),
    );
    this.services.operations.watchLists.beginWatch(connection, users, {
      onChange: (online) => connection.send(watchlistText(online)),
      onUnavailable: () => this.onUnavailable(connection),
    });
  }
}
