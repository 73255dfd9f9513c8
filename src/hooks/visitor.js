// visitor.js: a connection as hooks see it, until onDisconnect has been called.

/** @import { Connection } from '../hub/connection.js' */
/** @import { HookConnection } from './types.js' */

/** @implements {HookConnection} */
export class Visitor {
  /** Null until it is open. @type {Connection|null} */
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

  /** The connection has opened. @param {Connection} connection */
  open(connection) {
    this.#connection = connection;
  }

  /**
   * onConnect has let it in, or a later token. Data that is undefined changes nothing.
   * @param {{user: string|null, info: Buffer|null, data: unknown}} answer `user`: null: not named
   */
  welcome({ user, info, data }) {
    if (data !== undefined) this.data = data;
    if (user === null) return;
    this.#user = user;
    this.#info = info ?? this.#info;
  }

  /** The connection loses its session: its user stays as it was. */
  close() {
    this.#remember();
  }

  leave() {
    this.isGone = true;
  }

  /** A token that comes after the handshake brings a session. */
  #remember() {
    const session = this.#connection?.session;
    if (session === undefined || session.isAnonymous) return;
    this.#user = session.user;
    this.#info = session.identity.info;
  }
}
