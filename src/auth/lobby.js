// lobby.js: connections that still have to authenticate. They are in no room and not in the hub,
// and get only replies. After 5 s the worker closes them.
//
// The close code depends on what the client did. If it sent commands, but no token, it has none:
// 4502, and it stops. If it sent nothing, a phone may have been asleep, or the uplink may have
// stalled. If its token is still being checked, the server is slow. Both pass, so the client
// returns: 4011.

import { CLOSES } from '../protocol/codes.js';

/** Since the handshake. */
const TIMEOUT_MS = 5000;

/** @import { Connection } from '../hub/connection.js' */

export class Lobby {
  /** Deadlines, the earliest first. @type {Map<Connection, number>} */
  #guests = new Map();
  /** Guests that sent commands, but no token. @type {Set<Connection>} */
  #tokenless = new Set();

  /**
   * @param {object} parts @param {number} parts.max connections; above it the oldest is closed
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {() => number} [parts.now] ms, monotonic
   */
  constructor({ max, counters, now = () => performance.now() }) {
    this.max = max;
    this.counters = counters;
    this.now = now;
  }

  get size() {
    return this.#guests.size;
  }

  get connections() {
    return this.#guests.keys();
  }

  /** @param {Connection} connection */
  admitGuest(connection) {
    if (this.#guests.size >= this.max) {
      const [oldest] = this.#guests.keys();
      this.#timeOut(oldest, CLOSES.CLIENT_TIMEOUT);
    }
    this.#guests.set(connection, this.now() + TIMEOUT_MS);
    connection.hold();
    this.counters.unauthenticated = this.#guests.size;
  }

  /**
   * A guest has sent a command. Other connections are ignored.
   * @param {Connection} connection @param {boolean} hasToken
   */
  received(connection, hasToken) {
    if (hasToken) this.#tokenless.delete(connection);
    else if (this.#guests.has(connection)) this.#tokenless.add(connection);
  }

  /** May be called twice. @param {Connection} connection */
  removeGuest(connection) {
    if (!this.#guests.delete(connection)) return;
    this.#tokenless.delete(connection);
    connection.letGo();
    this.counters.unauthenticated = this.#guests.size;
  }

  /** Closes overdue connections. Call it several times a second. */
  sweep() {
    const nowMs = this.now();
    for (const [connection, deadlineMs] of this.#guests) {
      if (deadlineMs > nowMs) return;
      this.#timeOut(connection, this.#closeOf(connection));
    }
  }

  close() {
    for (const connection of this.#guests.keys()) connection.close(CLOSES.DRAIN);
  }

  /** @param {Connection} connection that is overdue */
  #closeOf(connection) {
    return this.#tokenless.has(connection) ? CLOSES.AUTH_TIMEOUT : CLOSES.CLIENT_TIMEOUT;
  }

  /** @param {Connection} connection @param {import('../protocol/codes.js').Close} close */
  #timeOut(connection, close) {
    this.removeGuest(connection);
    this.counters.closes.timeout++;
    connection.close(close);
  }
}
