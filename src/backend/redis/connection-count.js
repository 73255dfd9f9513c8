// connection-count.js: counts the fleet's connections, of which each worker reports its own.

import { TRAVEL_MS } from '../membership.js';

/** The longest wait of `count`, even in a large fleet. */
const MAX_SETTLE_MS = 250;
const MAX_CONNECTIONS = 999_999_999;

export class ConnectionCount {
  /** The connections of this worker. */
  own = 0;
  #others = 0;
  /** When another worker's count last changed. */
  #movedMs = Number.NEGATIVE_INFINITY;
  /** @type {Promise<number>|null} */
  #settling = null;

  get total() {
    return this.own + this.#others;
  }

  /** @param {number} connections of this worker @returns {boolean} is that a change? */
  setOwn(connections) {
    const isChange = connections !== this.own;
    this.own = connections;
    return isChange;
  }

  /** @param {unknown} connections of another worker @param {number} before @returns {boolean} */
  read(connections, before) {
    if (!Number.isInteger(connections)) return false;
    const count = /** @type {number} */ (connections);
    if (count < 0 || count > MAX_CONNECTIONS) return false;
    if (count !== before) this.#movedMs = performance.now();
    this.#others += count - before;
    return true;
  }

  /** @param {number} connections of a worker that is gone */
  forget(connections) {
    this.#others -= connections;
  }

  /**
   * Resolves with the total. After a change on another worker it waits for the next report, which
   * may be held back: a client that opens a thousand connections and then asks sees them all.
   * @param {{intervalMs: number}} fleet `intervalMs`: between two reports of a worker
   */
  count({ intervalMs }) {
    const wait =
      Math.min(MAX_SETTLE_MS, intervalMs + TRAVEL_MS) - (performance.now() - this.#movedMs);
    if (wait <= 0) return Promise.resolve(this.total);
    this.#settling ??= new Promise((resolve) => {
      setTimeout(() => {
        this.#settling = null;
        resolve(this.total);
      }, wait).unref();
    });
    return this.#settling;
  }
}
