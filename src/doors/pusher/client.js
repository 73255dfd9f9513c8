// client.js: a connection's state in this door.

/** @import { App } from '../../config/pusher.js' */
/** @import { Lease } from '../../auth/session.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { Message } from './codec/messages.js' */
/** @import { SignedInUser } from './codec/signed.js' */

/**
 * Handles one event's messages.
 * @typedef {(connection: Connection, client: PusherClient, message: Message) => void} Handler
 */

/** What a bucket bounds: pings, or client events. @typedef {'pings'|'events'} Bucket */

// A server has very many clients, most of them idle. So buckets are created at their first use,
// and the client itself is the bucket that every client needs.
export class PusherClient {
  /** Bucket for CommandRate. A double, so that V8 updates it in place. */
  fullAt = -0.5;
  /** @type {SignedInUser|null} */
  user = null;
  /** @type {{fullAt: number}|null} */
  #pings = null;
  /** @type {{fullAt: number}|null} */
  #events = null;

  /** @param {App} app @param {Lease|null} lease of its place among the app's connections */
  constructor(app, lease) {
    this.app = app;
    this.lease = lease;
  }

  /** @param {SignedInUser} user */
  signIn(user) {
    this.user = user;
  }

  /** The sign-in has failed. */
  signOut() {
    this.user = null;
  }

  /** @param {Bucket} bucket full at first */
  bucket(bucket) {
    if (bucket === 'pings') {
      this.#pings ??= { fullAt: -0.5 };
      return this.#pings;
    }
    this.#events ??= { fullAt: -0.5 };
    return this.#events;
  }
}
