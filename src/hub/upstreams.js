// upstreams.js: finds the stream of a client that sends its messages in other requests. Only this
// client knows the session, so a request that names it is from this client. Requests may arrive at
// any worker (worker/fleet.js).

import { randomBytes } from 'node:crypto';

/** 16 random bytes cannot be guessed. */
const SESSION_BYTES = 16;

/** @import { Connection } from './connection.js' */
/**
 * Takes a client's messages, and may keep them.
 * @typedef {(connection: Connection, messages: Buffer) => void} Receive
 */

export class Upstreams {
  /** Open streams by session. @type {Map<string, {connection: Connection, receive: Receive}>} */
  #open = new Map();
  /** Their sessions. @type {Map<Connection, string>} */
  #sessions = new Map();

  get size() {
    return this.#open.size;
  }

  /** @param {Connection} connection @param {Receive} receive @returns {string} the session */
  openSession(connection, receive) {
    const session = randomBytes(SESSION_BYTES).toString('base64url');
    this.#open.set(session, { connection, receive });
    this.#sessions.set(connection, session);
    return session;
  }

  /** @param {Connection} connection whose stream is closed */
  closeSession(connection) {
    this.#open.delete(this.#sessions.get(connection) ?? '');
    this.#sessions.delete(connection);
  }

  /** Returns false if the session is not here. @param {string} session @param {Buffer} messages */
  deliver(session, messages) {
    const stream = this.#open.get(session);
    if (stream === undefined) return false;
    const { connection, receive } = stream;
    connection.markAlive();
    try {
      if (connection.isOpen) receive(connection, messages);
    } catch (error) {
      connection.fail(error);
    }
    return true;
  }
}
