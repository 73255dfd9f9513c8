// fault-counts.js: counts the faults of a connection, to close a client that repeats them.

/** A connection's faults are counted over this time. */
const FAULT_PERIOD_MS = 10_000;

/** @import { Connection } from '../hub/connection.js' */

/** Connections without faults cost nothing. */
export class FaultCounts {
  /** @param {number} max per connection in FAULT_PERIOD_MS */
  constructor(max) {
    this.max = max;
    /** @type {WeakMap<Connection, {count: number, sinceMs: number}>} */
    this.counts = new WeakMap();
  }

  /** Counts one more. @param {Connection} connection @returns {boolean} true: above the limit */
  isTooMany(connection) {
    const now = performance.now();
    let faults = this.counts.get(connection);
    if (faults === undefined || now - faults.sinceMs > FAULT_PERIOD_MS) {
      faults = { count: 0, sinceMs: now };
      this.counts.set(connection, faults);
    }
    return ++faults.count > this.max;
  }
}
