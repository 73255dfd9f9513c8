// client.js: what the door knows of one connection.

/** @import { App } from '../../config/pusher.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { Message } from './messages.js' */

/**
 * Handles a message of one event.
 * @typedef {(connection: Connection, client: Client, message: Message) => void} Handler
 */

/**
 * @typedef {object} SignedInUser
 * @property {string} id
 * @property {string|null} info JSON
 * @property {readonly string[]} watchlist ids
 */

/** Which bucket: of pings, of commands, or of client events. @typedef {'pings'|'commands'|'events'} Bucket */

export class Client {
  /** Null before the first use. @type {Record<Bucket, {fullAt: number}>|null} */
  #buckets = null;

  /** @param {App} app @param {(() => void)|null} [leave] gives back its place among those of the app */
  constructor(app, leave = null) {
    this.app = app;
    this.onLeave = leave;
    /** @type {SignedInUser|null} */
    this.user = null;
  }

  /** The connection is gone. Call it once. */
  leave() {
    this.onLeave?.();
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
    this.#buckets ??= {
      pings: { fullAt: -0.5 },
      commands: { fullAt: -0.5 },
      events: { fullAt: -0.5 },
    };
    return this.#buckets[bucket];
  }
}
