// lobby.js: connections that still have to authenticate. They are in no room and not in the hub,
// and get only replies. After some time the worker closes them.
//
// The close code depends on what the client did. If it sent commands, but no token, it has none:
// 4502, and it stops. If it sent nothing, a phone may have been asleep, or the uplink may have
// stalled. If its token is still being checked, the server is slow. Both pass, so the client
// returns: 4011.

import { CLOSES } from '../protocol/codes.js';

/** @import { Connection } from '../hub/connection.js' */

export class Lobby {
  /** Deadlines, the earliest first. @type {Map<Connection, number>} */
  #guests = new Map();
  /** Guests that sent commands, but no token. @type {Set<Connection>} */
  #tokenless = new Set();
  /** For the earliest deadline of when it was set. @type {NodeJS.Timeout|undefined} */
  #timer = undefined;

  /**
   * @param {object} parts @param {number} parts.max connections; above it the oldest is closed
   * @param {number} parts.timeoutMs since the handshake
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {() => number} [parts.now] ms, monotonic
   */
  constructor({ max, timeoutMs, counters, now = () => performance.now() }) {
    this.max = max;
    this.timeoutMs = timeoutMs;
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
    this.#guests.set(connection, this.now() + this.timeoutMs);
    this.#timer ??= setTimeout(() => this.#closeOverdue(), this.timeoutMs).unref();
    connection.hold();
    this.counters.unauthenticated++;
  }

  /**
   * A guest has sent a command. Other connections are ignored.
   * @param {Connection} connection @param {boolean} hasToken
   */
  received(connection, hasToken) {
    if (hasToken) this.#tokenless.delete(connection);
    else if (this.#guests.has(connection)) this.#tokenless.add(connection);
  }

  /** @param {Connection} connection @returns {boolean} false: it is no guest */
  removeGuest(connection) {
    if (!this.#guests.delete(connection)) return false;
    this.#tokenless.delete(connection);
    connection.letGo();
    this.counters.unauthenticated--;
    return true;
  }

  #closeOverdue() {
    const nowMs = this.now();
    this.#timer = undefined;
    for (const [connection, deadlineMs] of this.#guests) {
      if (deadlineMs > nowMs) {
        this.#timer = setTimeout(() => this.#closeOverdue(), deadlineMs - nowMs).unref();
        return;
      }
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
