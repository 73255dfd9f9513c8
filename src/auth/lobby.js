// lobby.js: connections that still have to authenticate. They are in no room and not in the hub,
// and get only replies. After 5 s the worker closes them with 4502.

import { CLOSES } from '../protocol/codes.js';

/** Since the handshake. */
const TIMEOUT_MS = 5000;

/** @import { Connection } from '../hub/connection.js' */

export class Lobby {
  /** Deadlines, the earliest first. @type {Map<Connection, number>} */
  #guests = new Map();

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
  add(connection) {
    if (this.#guests.size >= this.max) {
      const [oldest] = this.#guests.keys();
      this.#timeOut(oldest);
    }
    this.#guests.set(connection, this.now() + TIMEOUT_MS);
    connection.hold();
    this.counters.unauthenticated = this.#guests.size;
  }

  /** May be called twice. @param {Connection} connection */
  remove(connection) {
    if (!this.#guests.delete(connection)) return;
    connection.letGo();
    this.counters.unauthenticated = this.#guests.size;
  }

  /** Closes overdue connections. Call it several times a second. */
  sweep() {
    const nowMs = this.now();
    for (const [connection, deadlineMs] of this.#guests) {
      if (deadlineMs > nowMs) return;
      this.#timeOut(connection);
    }
  }

  close() {
    for (const connection of this.#guests.keys()) connection.close(CLOSES.DRAIN);
  }

  /** @param {Connection} connection */
  #timeOut(connection) {
    this.remove(connection);
    this.counters.closes.timeout++;
    connection.close(CLOSES.AUTH_TIMEOUT);
  }
}
