// expiry.js: subscriptions, and connections without a user, which expire unless a new token
// arrives. Each has one entry, which is removed when it ends otherwise.

/** @import { Connection } from '../../hub/connection.js' */

/**
 * @typedef {object} Expiry
 * @property {Connection} connection @property {string} channel '': the connection itself
 * @property {number} second since 1970
 */

export class Expiries {
  /** Expiries by second. @type {Map<number, Set<Expiry>>} */
  #seconds = new Map();
  #sweptS = Math.floor(Date.now() / 1000);

  /**
   * @param {number} atS since 1970 @param {Connection} connection @param {string} channel
   * @returns {Expiry}
   */
  add(atS, connection, channel) {
    const second = Math.max(Math.ceil(atS), this.#sweptS + 1);
    const expiry = { connection, channel, second };
    const others = this.#seconds.get(second);
    if (others === undefined) this.#seconds.set(second, new Set([expiry]));
    else others.add(expiry);
    return expiry;
  }

  /** May be called twice. @param {Expiry|null} expiry */
  remove(expiry) {
    if (expiry === null) return;
    const others = this.#seconds.get(expiry.second);
    if (others?.delete(expiry) && others.size === 0) this.#seconds.delete(expiry.second);
  }

  get size() {
    let size = 0;
    for (const expiries of this.#seconds.values()) size += expiries.size;
    return size;
  }

  /**
   * Call it once a second.
   * @param {(connection: Connection, channel: string) => void} expire
   */
  sweep(expire) {
    const nowS = Math.floor(Date.now() / 1000);
    if (nowS - this.#sweptS > this.#seconds.size) {
      // After the clock jumped, there may be fewer entries than seconds.
      for (const second of [...this.#seconds.keys()])
        if (second <= nowS) this.#take(second, expire);
    } else {
      for (let second = this.#sweptS + 1; second <= nowS; second++) this.#take(second, expire);
    }
    this.#sweptS = Math.max(this.#sweptS, nowS);
  }

  /** @param {number} second @param {(connection: Connection, channel: string) => void} expire */
  #take(second, expire) {
    const expiries = this.#seconds.get(second) ?? [];
    this.#seconds.delete(second);
    for (const { connection, channel } of expiries) expire(connection, channel);
  }
}
