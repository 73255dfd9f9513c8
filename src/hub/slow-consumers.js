// slow-consumers.js: limits for connections that read slower than the worker writes to them.
//
// Only connections with unsent bytes come here, so that the others pay nothing. A connection is a
// slow consumer if more than maxUnsentBytes wait for it, or if the oldest byte waits longer than
// maxUnsentAgeMs. The policy is `close` (4003) or `drop`: the worker leaves publications out until
// the connection has caught up. In a room with history the connection is always closed. The client
// comes back and recovers, and no publication is skipped silently. `sweep` runs once a second and
// checks all lagging connections: their age, and the sum of their bytes. If the sum is above the
// worker's budget, the largest are closed first. (The kernel takes some 4 MB per reader before the
// first byte waits here.)
//
// The transport calls `queue` for all bytes that the kernel does not take at once. So the limits
// hold for every reply and every push, and a connection counts as lagging from its first unsent
// byte on. The outbox calls `admit` before it writes a publication, because only publications may
// be left out.
//
// The policy `drop` does not end a connection for its age alone. If such a connection takes no byte
// at all for `maxStallMs`, it is closed too, because the heartbeat does not ping a socket with
// unsent bytes.

import { CLOSES } from '../protocol/codes.js';

/**
 * A closed slow consumer does not read its close frame. Without this, ws would hold the buffers
 * until its own close time-out.
 */
const TERMINATE_AFTER_MS = 2000;

/**
 * The progress of a lagging connection. When all bytes that waited at `sinceMs` have been sent, a
 * new measurement begins.
 * @typedef {object} Lag
 * @property {number} sinceMs
 * @property {number} handedThen bytes handed to the transport up to `sinceMs`
 * @property {number} handed bytes handed to the transport until now
 * @property {number} taken bytes of `handed` that the kernel had taken when `sweep` last saw this
 *   number change
 * @property {number} takenMs the time of that change
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
    /** @type {Map<Connection, Lag>} */
    this.lagging = new Map();
  }

  /**
   * May this publication be added to the bytes that wait for the connection? If not, the worker has
   * applied the policy.
   * @param {Connection} connection
   * @param {number} bytes
   * @param {boolean} [isOwed] is it a publication that may not be left out?
   */
  admit(connection, bytes, isOwed = false) {
    if (!connection.isOpen) return false;
    const pending = connection.transport.pendingBytes;
    if (pending === 0) return true;
    if (this.#isWithin(this.#follow(connection, pending), pending, bytes)) return true;
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
    const lag = this.#follow(connection, pending);
    if (!this.#isWithin(lag, pending, bytes)) {
      this.#close(connection, 'closed');
      return false;
    }
    lag.handed += bytes;
    return true;
  }

  /** Call once a second. */
  sweep() {
    const now = this.clock();
    let total = 0;
    for (const connection of this.lagging.keys()) {
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

  /** @param {Connection} connection one that has closed or caught up; may be called twice */
  forget(connection) {
    this.lagging.delete(connection);
  }

  /**
   * @param {Lag} lag
   * @param {number} pending above 0
   * @param {number} bytes to be added
   */
  #isWithin({ sinceMs }, pending, bytes) {
    return pending + bytes <= this.maxBytes && this.clock() - sinceMs <= this.maxAgeMs;
  }

  /**
   * @param {Connection} connection
   * @param {number} pending
   * @returns {Lag}
   */
  #follow(connection, pending) {
    const lag = this.lagging.get(connection);
    // If all bytes that waited at the last check have been sent, the oldest byte is younger.
    return lag === undefined || lag.handed - pending >= lag.handedThen
      ? this.#begin(connection, pending)
      : lag;
  }

  /**
   * @param {Connection} connection
   * @param {number} pending bytes that wait; their age counts from now
   * @returns {Lag}
   */
  #begin(connection, pending) {
    const now = this.clock();
    const lag = { sinceMs: now, handedThen: pending, handed: pending, taken: 0, takenMs: now };
    this.lagging.set(connection, lag);
    return lag;
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
    const largest = [...this.lagging.keys()].sort(
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
