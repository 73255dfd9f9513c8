// slow-consumers.js: limits for connections that read slower than the worker writes to them.
//
// Only connections with unsent bytes come here. A slow consumer has more than maxUnsentBytes
// waiting, or a byte older than maxUnsentAgeMs. The policy is `close` (4003) or `drop`:
// publications are left out until the connection has caught up. `sweep` checks the age once a
// second, and the sum: above the worker's budget, the largest are closed first. (The kernel takes
// some 4 MB per reader before the first byte waits here.)
//
// Few messages of rooms with history wait (`isLittle`). Beyond LITTLE_BYTES the member lags, which
// costs no memory, and gets them later (recovery/lagging-members.js). Only a message of a plain
// room closes it for the age of its bytes. Replies, presence events and other pushes to it may wait
// up to maxUnsentBytes.
//
// The transport calls `queue` for all bytes that the kernel does not take at once. The outbox calls
// `admit` before it writes a publication of a plain room, because only those may be left out.
//
// With `drop`, or in a room with history, age alone ends no connection. One that takes no byte for
// `maxStallMs` is closed, because the heartbeat does not ping a socket with unsent bytes.

import { CLOSES } from '../protocol/codes.js';

/** Slow consumers do not read their close frame: ws would hold the buffers for longer. */
const TERMINATE_AFTER_MS = 2000;
/**
 * Unsent bytes with which a member of a room with history does not lag: a burst that the kernel
 * takes a moment later costs no second copy, and TLS reports bytes as sent one step late.
 */
const LITTLE_BYTES = 64 * 1024;

/**
 * The progress of a connection with unsent bytes. When all bytes that waited at `sinceMs` have been
 * sent, a new measurement begins.
 * @typedef {object} Lag
 * @property {number} sinceMs
 * @property {number} handedThen bytes handed to the transport up to `sinceMs`
 * @property {number} handed bytes handed to the transport until now
 * @property {number} taken bytes of `handed` that the kernel had taken when `sweep` last saw this
 *   number change
 * @property {number} takenMs the time of that change
 */

/** @import { Connection } from './connection.js' */

export class SlowConsumers {
  /**
   * @param {object} parts @param {import('../config/settings.js').Config} parts.config
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
   * May this publication wait for the connection? If not, the worker has applied the policy.
   * @param {Connection} connection @param {number} bytes
   */
  admit(connection, bytes) {
    if (!connection.isOpen) return false;
    const pending = connection.transport.pendingBytes;
    if (pending === 0) return true;
    const { sinceMs } = this.#follow(connection, pending);
    if (this.#isSmall(pending, bytes) && this.#isYoung(sinceMs)) return true;
    if (this.policy === 'drop') this.counters.slow.dropped++;
    else this.#close(connection, 'closed');
    return false;
  }

  /**
   * May a member of a room with history have these waiting, too, without lagging?
   * @param {Connection} connection @param {number} bytes
   */
  isLittle({ transport }, bytes) {
    return transport.pendingBytes + bytes <= Math.min(LITTLE_BYTES, this.maxBytes);
  }

  /**
   * May bytes wait that the kernel does not take now? If not, the connection is closed as a slow
   * consumer. On an empty stream any number may: the kernel may have taken the start of a frame.
   * @param {Connection} connection @param {number} bytes
   */
  queue(connection, bytes) {
    const pending = connection.transport.pendingBytes;
    if (pending === 0) {
      this.#begin(connection, bytes);
      return true;
    }
    if (!connection.isOpen) return false;
    const lag = this.#follow(connection, pending);
    const mayBeOld = connection.hasHistory;
    if (!this.#isSmall(pending, bytes) || !(mayBeOld || this.#isYoung(lag.sinceMs))) {
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
      if (!this.#isYoung(lag.sinceMs) && this.#mustEnd(connection, lag, pending, now))
        this.#close(connection, 'closed');
      else total += pending;
    }
    if (total > this.budgetBytes) this.#shed(total);
  }

  /** @param {Connection} connection one that has closed or caught up; may be called twice */
  forget(connection) {
    this.lagging.delete(connection);
  }

  /** @param {number} pending above 0 @param {number} bytes to be added */
  #isSmall(pending, bytes) {
    return pending + bytes <= this.maxBytes;
  }

  /** @param {number} sinceMs */
  #isYoung(sinceMs) {
    return this.clock() - sinceMs <= this.maxAgeMs;
  }

  /** @param {Connection} connection @param {Lag} lag @param {number} pending @param {number} now */
  #mustEnd(connection, lag, pending, now) {
    const mayBeOld = this.policy === 'drop' || connection.hasHistory;
    return !mayBeOld || this.#isStalled(lag, pending, now);
  }

  /** @param {Connection} connection @param {number} pending @returns {Lag} */
  #follow(connection, pending) {
    const lag = this.lagging.get(connection);
    // If all bytes that waited at the last check have been sent, the oldest byte is younger.
    return lag === undefined || lag.handed - pending >= lag.handedThen
      ? this.#begin(connection, pending)
      : lag;
  }

  /** @param {Connection} connection @param {number} pending bytes, whose age counts from now */
  #begin(connection, pending) {
    const now = this.clock();
    const lag = { sinceMs: now, handedThen: pending, handed: pending, taken: 0, takenMs: now };
    this.lagging.set(connection, lag);
    return lag;
  }

  /**
   * Is nothing taken for maxStallMs? @param {Lag} lag @param {number} pending @param {number} now
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

  /** @param {Connection} connection @param {'closed'|'shed'} consequence */
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
