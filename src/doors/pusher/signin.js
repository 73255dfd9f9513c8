// signin.js: pusher:signin.
//
// After a sign-in the connection gets the user's events without a subscription, and the limit of
// connections per user applies. It is present in the user's room, which makes the user online.

import { asciiJson, Identity, MAX_SENDER_BYTES } from '../../auth/claims.js';
import { sessionUserOf } from '../../protocol/app-names.js';
import { roomOfUser } from '../../protocol/pusher-channels.js';
import { checkAuth, userText } from '../../protocol/pusher-signature.js';
import { PUSHER_CLOSES } from './codec/closes.js';
import { signedInText } from './codec/frames.js';
import { fieldsOf, readObject } from './codec/messages.js';
import { socketIdOf } from './codec/socket-id.js';

const MAX_USER_LENGTH = 128;
const MAX_ROOM_LENGTH = 512;
/** @type {readonly unknown[]} */
const NO_IDS = Object.freeze([]);

/** @import { Connection } from '../../hub/connection.js' */
/** @import { App } from '../../config/pusher.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { PusherClient, Handler, SignedInUser } from './client.js' */

export class SignIn {
  /**
   * @param {DoorServices} services
   * @param {(connection: Connection, client: PusherClient) => void} onSignedIn
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
    const isValid =
      typeof data === 'string' &&
      checkAuth(app, auth, userText(socketIdOf(connection.id), data)) === 'ok';
    const user = isValid ? readUser(app, data) : null;
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
      this.onSignedIn(connection, client);
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
}

/** @param {App} app @param {string} data verified @returns {SignedInUser|null} */
function readUser(app, data) {
  const parsed = readObject(data);
  if (parsed === null) return null;
  const { id: value, watchlist } = parsed.value;
  const id = typeof value === 'number' ? (parsed.sourceOf('id') ?? '') : value;
  if (typeof id !== 'string' || id === '' || id.length > MAX_USER_LENGTH) return null;
  if (Buffer.from(id).toString() !== id) return null; // halves of surrogate pairs
  if (asciiJson(sessionUserOf(app, id)).length > MAX_SENDER_BYTES) return null;
  if (roomOfUser(app, id).length > MAX_ROOM_LENGTH) return null;
  const listed = Array.isArray(watchlist) ? watchlist : NO_IDS;
  if (!listed.every(isId)) return null;
  return { id, info: parsed.sourceOf('user_info') ?? null, watchlist: listed.map(String) };
}

/** @param {unknown} value */
function isId(value) {
  return typeof value === 'string' || typeof value === 'number';
}
