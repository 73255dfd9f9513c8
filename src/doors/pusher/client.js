// client.js: what the door knows of one connection.

/** @import { App } from '../../config/pusher.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { Message } from './messages.js' */

/**
 * Handles one event's messages.
 * @typedef {(connection: Connection, client: Client, message: Message) => void} Handler
 */

/**
 * @typedef {object} SignedInUser
 * @property {string} id @property {string|null} info JSON
 * @property {readonly string[]} watchlist ids
 */

/** Which bucket of its own: of pings, or of client events. @typedef {'pings'|'events'} Bucket */

// A server holds very many of these, most of them idle, so buckets come with their first use, and
// the one that every client needs is the client itself.
export class Client {
  /** Its bucket of commands, as CommandRate has it. A double, so that V8 updates it in place. */
  fullAt = -0.5;
  /** @type {SignedInUser|null} */
  user = null;
  /** @type {{fullAt: number}|null} */
  #pings = null;
  /** @type {{fullAt: number}|null} */
  #events = null;

  /** @param {App} app @param {boolean} [hasPlace] among the limited connections of the app */
  constructor(app, hasPlace = false) {
    this.app = app;
    this.hasPlace = hasPlace;
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
