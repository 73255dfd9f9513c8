// slow-consumers.js: what happens to a connection that reads slower than it is sent to.
//
// Only a connection with unsent bytes ever comes here, so that the others pay nothing. A connection is a slow consumer
// when more than maxUnsentBytes wait for it, or the oldest of them longer than maxUnsentAgeMs. Its policy: `close` with
// 4003, or `drop`: frames are left out until it has caught up. Where the room has history it is always closed: it comes
// back and recovers, and nothing is skipped silently. Once a second `sweep` looks at those that lag: at the
// age of connections nothing is sent to any more, and at the sum over the worker, which above its budget is shed, the
// largest first. (The kernel takes some 4 MB per reader before the first byte waits here.)

import { CLOSES } from '../codes.js';

/** A closed slow consumer never reads its close frame; without this, ws would hold its buffers for its close time-out. */
const TERMINATE_AFTER_MS = 2000;

/**
 * How far a lagging connection has got: when all bytes that waited at `sinceMs` are sent, it starts anew.
 * @typedef {object} Lag
 * @property {number} sinceMs
 * @property {number} mark bytes handed to the transport by then
 * @property {number} handed bytes handed to the transport until now
 */

/** @typedef {import('./connection.js').Connection} Connection */

export class SlowConsumers {
  /**
   * @param {object} parts
   * @param {import('../config.js').Config} parts.config
   * @param {import('../stats.js').Stats} parts.stats
   * @param {number} parts.budgetBytes unsent bytes a whole worker may hold
   * @param {() => number} [parts.clock] ms, monotonic
   */
  constructor({ config, stats, budgetBytes, clock = () => performance.now() }) {
    this.maxBytes = config.maxUnsentBytes;
    this.maxAgeMs = config.maxUnsentAgeMs;
    this.policy = config.slowConsumer;
    this.stats = stats;
    this.budgetBytes = budgetBytes;
    this.clock = clock;
    /** @type {Set<Connection>} */
    this.lagging = new Set();
  }

  /**
   * May these bytes be added to what already waits for this connection? Where not, the policy has been applied.
   * @param {Connection} connection
   * @param {number} bytes
   * @param {boolean} [isOwed] may they not be left out?
   */
  admit(connection, bytes, isOwed = false) {
    if (!connection.isOpen) return false;
    const pending = connection.transport.pendingBytes;
    if (pending === 0) return true;
    const lag = this.#follow(connection, pending);
    if (pending + bytes <= this.maxBytes && this.clock() - lag.sinceMs <= this.maxAgeMs) {
      lag.handed += bytes;
      return true;
    }
    if (this.policy === 'drop' && !isOwed) this.stats.slow.dropped++;
    else this.#close(connection, 'closed');
    return false;
  }

  /** Call once a second. */
  sweep() {
    const now = this.clock();
    let total = 0;
    for (const connection of this.lagging) {
      const pending = connection.isOpen ? connection.transport.pendingBytes : 0;
      if (pending === 0) {
        this.forget(connection);
        continue;
      }
      const ageMs = now - this.#follow(connection, pending).sinceMs;
      if (ageMs > this.maxAgeMs && this.policy === 'close') this.#close(connection, 'closed');
      else total += pending;
    }
    if (total > this.budgetBytes) this.#shed(total);
  }

  /** @param {Connection} connection one that has closed, or caught up */
  forget(connection) {
    connection.lag = null;
    this.lagging.delete(connection);
  }

  /** @param {Connection} connection @param {number} pending @returns {Lag} */
  #follow(connection, pending) {
    const { lag } = connection;
    if (lag === null) {
      this.lagging.add(connection);
      connection.lag = { sinceMs: this.clock(), mark: pending, handed: pending };
      return connection.lag;
    }
    if (lag.handed - pending >= lag.mark) {
      // What waited when we last looked has been sent: the oldest byte is younger than that.
      lag.sinceMs = this.clock();
      lag.mark = pending;
      lag.handed = pending;
    }
    return lag;
  }

  /** @param {number} total */
  #shed(total) {
    const largest = [...this.lagging].sort((a, b) => b.transport.pendingBytes - a.transport.pendingBytes);
    for (const connection of largest) {
      if (total <= this.budgetBytes) return;
      total -= connection.transport.pendingBytes;
      this.#close(connection, 'shed');
    }
  }

  /** @param {Connection} connection @param {'closed'|'shed'} consequence */
  #close(connection, consequence) {
    this.stats.slow[consequence]++;
    this.forget(connection);
    connection.close(CLOSES.SLOW_CONSUMER);
    setTimeout(() => connection.transport.terminate(), consequence === 'shed' ? 0 : TERMINATE_AFTER_MS).unref();
  }
}
