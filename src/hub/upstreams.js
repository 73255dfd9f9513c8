// upstreams.js: finds the stream of a client that sends its messages in other requests. Only the
// client knows the session of its stream: a request that names it speaks for that client. The
// request may arrive at any worker (worker/fleet.js).

import { randomBytes } from 'node:crypto';

/** 16 random bytes cannot be guessed. */
const SESSION_BYTES = 16;

/** Takes messages of a client. They may be kept. @typedef {(messages: Buffer) => void} Receive */

export class Upstreams {
  /** By session. @type {Map<string, Receive>} */
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

  /**
   * @param {string} session as a request names it @param {Buffer} messages
   * @returns {boolean} false: it is not of this worker
   */
  deliver(session, messages) {
    const receive = this.#open.get(session);
    receive?.(messages);
    return receive !== undefined;
  }
}
