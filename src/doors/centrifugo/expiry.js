// expiry.js: subscriptions that end at a time, unless a new token comes before.

/** @import { Connection } from '../../hub/connection.js' */

export class Expiries {
  /** By the second since 1970 at which they are looked at. @type {Map<number, {connection: Connection, channel: string}[]>} */
  #seconds = new Map();
  #sweptS = Math.floor(Date.now() / 1000);

  /** @param {number} endS @param {Connection} connection @param {string} channel */
  add(endS, connection, channel) {
    const second = Math.max(Math.ceil(endS), this.#sweptS + 1);
    const entry = { connection, channel };
    const others = this.#seconds.get(second);
    if (others === undefined) this.#seconds.set(second, [entry]);
    else others.push(entry);
  }

  /**
   * Call it once a second.
   * @param {(connection: Connection, channel: string) => void} look called for each whose time has
   *   come, though it may have been prolonged or ended since
   */
  sweep(look) {
    const nowS = Math.floor(Date.now() / 1000);
    if (nowS - this.#sweptS > this.#seconds.size) {
      for (const second of [...this.#seconds.keys()]) if (second <= nowS) this.#take(second, look);
    } else for (let second = this.#sweptS + 1; second <= nowS; second++) this.#take(second, look);
    this.#sweptS = Math.max(this.#sweptS, nowS);
  }

  /** @param {number} second @param {(connection: Connection, channel: string) => void} look */
  #take(second, look) {
    const entries = this.#seconds.get(second);
    this.#seconds.delete(second);
    for (const { connection, channel } of entries ?? []) look(connection, channel);
  }
}
