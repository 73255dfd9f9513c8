// upstreams.js: finds the stream of a client that sends its messages in other requests. Only this
// client knows the session, so a request that names it is from this client. Requests may arrive at
// any worker (worker/fleet.js).

import { randomBytes } from 'node:crypto';

/** 16 random bytes cannot be guessed. */
const SESSION_BYTES = 16;

/** Takes a client's messages, and may keep them. @typedef {(messages: Buffer) => void} Receive */

export class Upstreams {
  /** Open streams by session. @type {Map<string, Receive>} */
  #open = new Map();

  get size() {
    return this.#open.size;
  }

  /** @param {Receive} receive @returns {string} the session, until `close` */
  open(receive) {
    const session = randomBytes(SESSION_BYTES).toString('base64url');
    this.#open.set(session, receive);
    return session;
  }

  /** @param {string} session */
  close(session) {
    this.#open.delete(session);
  }

  /** Returns false if the session is not here. @param {string} session @param {Buffer} messages */
  deliver(session, messages) {
    const receive = this.#open.get(session);
    receive?.(messages);
    return receive !== undefined;
  }
}
