// lobby.js: connections that have to authenticate and have not done so yet.
//
// They are in no room and in no list of the hub: nothing is sent to them but replies. Each has 5 s
// from its handshake; then the worker closes it with 4502. While a token of a connection is being
// verified, the commands behind the token wait here, in order.

import { CLOSES } from '../protocol/codes.js';

/** From the handshake on. */
const TIMEOUT_MS = 5000;
/** Commands behind a token. A client that sends more is closed. */
const MAX_WAITING_BYTES = 65_536;
/** The same for all connections together. */
const MAX_ALL_WAITING_BYTES = 16 * 1024 * 1024;
/** Memory of a waiting command beside its bytes. */
const COMMAND_BYTES = 128;

/** @typedef {import('../hub/connection.js').Connection} Connection */

/** @typedef {{deadlineMs: number, isVerifying: boolean, commands: Buffer[], bytes: number}} Guest */

export class Lobby {
  /** In the order of their deadlines. @type {Map<Connection, Guest>} */
  #guests = new Map();
  #waitingBytes = 0;

  /**
   * @param {object} parts
   * @param {number} parts.max connections; one more, and the oldest is closed
   * @param {import('../observability/counters.js').AuthCounters} parts.counters
   * @param {() => number} [parts.now] a clock in ms that never goes back
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
      for (const oldest of this.#guests.keys()) {
        this.#timeOut(oldest);
        break;
      }
    }
    const deadlineMs = this.now() + TIMEOUT_MS;
    this.#guests.set(connection, { deadlineMs, isVerifying: false, commands: [], bytes: 0 });
    connection.hold();
    this.counters.unauthenticated = this.#guests.size;
  }

  /**
   * A connection leaves: it has authenticated, or is gone. May be called twice.
   * @param {Connection} connection
   * @returns {Buffer[]} the commands that have waited
   */
  remove(connection) {
    const guest = this.#guests.get(connection);
    if (guest === undefined) return [];
    this.#guests.delete(connection);
    connection.letGo();
    this.#waitingBytes -= guest.bytes;
    this.counters.unauthenticated = this.#guests.size;
    return guest.commands;
  }

  /**
   * A token of the connection is being verified: the commands behind it wait.
   * @param {Connection} connection
   */
  beginVerifying(connection) {
    const guest = this.#guests.get(connection);
    if (guest !== undefined) guest.isVerifying = true;
  }

  /**
   * @param {Connection} connection
   * @param {Buffer} data a command; copied
   * @returns {boolean} false: no token is being verified, so the command does not wait
   */
  keep(connection, data) {
    const guest = this.#guests.get(connection);
    if (guest === undefined || !guest.isVerifying) return false;
    const bytes = data.length + COMMAND_BYTES;
    if (
      guest.bytes + bytes > MAX_WAITING_BYTES ||
      this.#waitingBytes + bytes > MAX_ALL_WAITING_BYTES
    ) {
      this.counters.closes.overflow++;
      connection.close(CLOSES.OVERLOAD);
      return true;
    }
    guest.commands.push(Buffer.from(data));
    guest.bytes += bytes;
    this.#waitingBytes += bytes;
    return true;
  }

  /** Closes the connections whose time is over. Call it several times a second. */
  sweep() {
    const nowMs = this.now();
    for (const [connection, { deadlineMs }] of this.#guests) {
      if (deadlineMs > nowMs) return;
      this.#timeOut(connection);
    }
  }

  /** The worker drains. */
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
