// slow-consumers.js: what happens to a connection that reads slower than it is sent to.
//
// Only a connection with unsent bytes ever comes here, so that the others pay nothing. A connection
// is a slow consumer when more than maxUnsentBytes wait for it, or the oldest of them longer than
// maxUnsentAgeMs. Its policy: `close` with 4003, or `drop`: frames are left out until it has caught
// up. Where the room has history it is always closed: it comes back and recovers, and nothing is
// skipped silently. Once a second `sweep` looks at those that lag: at the age of connections
// nothing is sent to any more, and at the sum over the worker, which above its budget is shed, the
// largest first. (The kernel takes some 4 MB per reader before the first byte waits here.)
//
// The transport calls `queue` for all bytes that the kernel does not take at once. So the limits
// hold for every reply and every push, whoever wrote it, and a connection is known to lag from its
// first unsent byte on. `admit` is asked before a publication is written, because only publications
// may be left out.
//
// The policy `drop` does not end a connection for its age alone. If such a connection takes no byte
// at all for `maxStallMs`, it is closed too, because the heartbeat does not ping a socket with
// unsent bytes.

import { CLOSES } from '../protocol/codes.js';

/**
 * A closed slow consumer never reads its close frame; without this, ws would hold its buffers for
 * its close time-out.
 */
const TERMINATE_AFTER_MS = 2000;

/**
 * How far a lagging connection has got: when all bytes that waited at `sinceMs` are sent, it starts
 * anew.
 * @typedef {object} Lag
 * @property {number} sinceMs
 * @property {number} mark bytes handed to the transport by then
 * @property {number} handed bytes handed to the transport until now
 * @property {number} taken how many of `handed` the kernel had taken when the sweep last saw that
 *   number change
 * @property {number} takenMs when that was
 */

/** @typedef {import('./connection.js').Connection} Connection */

export class SlowConsumers {
  /**
   * @param {object} parts
   * @param {import('../config/settings.js').Config} parts.config
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {number} parts.budgetBytes unsent bytes a whole worker may hold
   * @param {() => number} [parts.clock] ms, monotonic
   */
  constructor({ config, counters, budgetBytes, clock = () => performance.now() }) {
    this.maxBytes = config.maxUnsentBytes;
    this.maxAgeMs = config.maxUnsentAgeMs;
    this.policy = config.slowConsumer;
    // As long as the heartbeat takes to find a peer that gives no sign of life.
    this.maxStallMs = Math.max(this.maxAgeMs, config.pingIntervalMs + config.pongTimeoutMs);
    this.counters = counters;
    this.budgetBytes = budgetBytes;
    this.clock = clock;
    /** @type {Set<Connection>} */
    this.lagging = new Set();
  }

  /**
   * May this publication be added to the bytes that wait for the connection? If not, the policy has
   * been applied.
   * @param {Connection} connection
   * @param {number} bytes
   * @param {boolean} [isOwed] may it not be left out?
   */
  admit(connection, bytes, isOwed = false) {
    if (!connection.isOpen) return false;
    const pending = connection.transport.pendingBytes;
    if (pending === 0 || this.#isWithin(connection, pending, bytes)) return true;
    if (this.policy === 'drop' && !isOwed) this.counters.slow.dropped++;
    else this.#close(connection, 'closed');
    return false;
  }

  /**
   * The kernel does not take these bytes now. May they wait? If not, the connection is closed as a
   * slow consumer. On an empty stream any number may wait, because the kernel may have taken the
   * start of a frame.
   * @param {Connection} connection
   * @param {number} bytes
   */
  queue(connection, bytes) {
    const pending = connection.transport.pendingBytes;
    if (pending === 0) {
      this.#begin(connection, bytes);
      return true;
    }
    if (!connection.isOpen) return false;
    if (!this.#isWithin(connection, pending, bytes)) {
      this.#close(connection, 'closed');
      return false;
    }
    /** @type {Lag} */ (connection.lag).handed += bytes;
    return true;
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
      const lag = this.#follow(connection, pending);
      const isOld = now - lag.sinceMs > this.maxAgeMs;
      if (isOld && (this.policy === 'close' || this.#isStalled(lag, pending, now)))
        this.#close(connection, 'closed');
      else total += pending;
    }
    if (total > this.budgetBytes) this.#shed(total);
  }

  /** @param {Connection} connection one that has closed, or caught up */
  forget(connection) {
    connection.lag = null;
    this.lagging.delete(connection);
  }

  /**
   * @param {Connection} connection
   * @param {number} pending above 0
   * @param {number} bytes to be added
   */
  #isWithin(connection, pending, bytes) {
    const { sinceMs } = this.#follow(connection, pending);
    return pending + bytes <= this.maxBytes && this.clock() - sinceMs <= this.maxAgeMs;
  }

  /**
   * @param {Connection} connection
   * @param {number} pending
   * @returns {Lag}
   */
  #follow(connection, pending) {
    const { lag } = connection;
    // If what waited when we last looked has been sent, the oldest byte is younger than that look.
    return lag === null || lag.handed - pending >= lag.mark
      ? this.#begin(connection, pending)
      : lag;
  }

  /**
   * @param {Connection} connection
   * @param {number} pending bytes that wait now, all of them young
   * @returns {Lag}
   */
  #begin(connection, pending) {
    const now = this.clock();
    this.lagging.add(connection);
    return (connection.lag = {
      sinceMs: now,
      mark: pending,
      handed: pending,
      taken: 0,
      takenMs: now,
    });
  }

  /**
   * Has the kernel taken nothing for `maxStallMs`?
   * @param {Lag} lag
   * @param {number} pending
   * @param {number} now
   */
  #isStalled(lag, pending, now) {
    const taken = lag.handed - pending;
    if (taken !== lag.taken) {
      lag.taken = taken;
      lag.takenMs = now;
    }
    return now - lag.takenMs > this.maxStallMs;
  }

  /** @param {number} total */
  #shed(total) {
    const largest = [...this.lagging].sort(
      (a, b) => b.transport.pendingBytes - a.transport.pendingBytes,
    );
    for (const connection of largest) {
      if (total <= this.budgetBytes) return;
      total -= connection.transport.pendingBytes;
      this.#close(connection, 'shed');
    }
  }

  /**
   * @param {Connection} connection
   * @param {'closed'|'shed'} consequence
   */
  #close(connection, consequence) {
    this.counters.slow[consequence]++;
    this.forget(connection);
    connection.close(CLOSES.SLOW_CONSUMER);
    setTimeout(
      () => connection.transport.terminate(),
      consequence === 'shed' ? 0 : TERMINATE_AFTER_MS,
    ).unref();
  }
}
