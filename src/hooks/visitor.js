// visitor.js: a connection as hooks see it, from onConnect to onDisconnect.

/** @import { Connection } from '../hub/connection.js' */
/** @import { HookConnection } from './types.js' */

/** @implements {HookConnection} */
export class Visitor {
  /** Null until it opens. @type {Connection|null} */
  #connection = null;
  /** @type {string|null} */
  #user;
  /** @type {Buffer|null} */
  #info;

  /**
   * @param {object} parts
   * @param {string} parts.address @param {import('./types.js').Transport} parts.transport
   * @param {string|null} [parts.user] @param {Buffer|null} [parts.info] JSON
   */
  constructor({ address, transport, user = null, info = null }) {
    this.address = address;
    this.transport = transport;
    this.#user = user;
    this.#info = info;
    /** @type {any} */
    this.data = undefined;
    /** Has onDisconnect been called? */
    this.isGone = false;
  }

  get id() {
    return this.#connection?.id ?? '';
  }

  get user() {
    this.#remember();
    return this.#user;
  }

  get info() {
    this.#remember();
    return this.#info === null ? undefined : JSON.parse(String(this.#info));
  }

  /** @param {Connection} connection */
  open(connection) {
    this.#connection = connection;
  }

  /**
   * Applies the answer of onConnect. Undefined data and a null user change nothing.
   * @param {{user: string|null, info: Buffer|null, data: unknown}} answer
   */
  welcome({ user, info, data }) {
    if (data !== undefined) this.data = data;
    if (user === null) return;
    this.#user = user;
    this.#info = info ?? this.#info;
  }

  /** Keeps the user when the connection loses its session. */
  close() {
    this.#remember();
  }

  leave() {
    this.isGone = true;
  }

  /** A token sent after the handshake names the user in the session. */
  #remember() {
    const session = this.#connection?.session;
    if (session === undefined || session.isAnonymous) return;
    this.#user = session.user;
    this.#info = session.identity.info;
  }
}
