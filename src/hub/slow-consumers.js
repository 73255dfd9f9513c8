// slow-consumers.js: limits for connections that read slower than the worker writes.
//
// Only connections with unsent bytes come here. A slow consumer has more than maxUnsentBytes, or a
// byte that is older than maxUnsentAgeMs. The policy `close` closes it with 4003; `drop` skips
// publications until it has caught up. `sweep` checks the ages once a second, and the total: above
// the worker's budget it closes the largest first. (The kernel takes some 4 MB per reader before
// the first byte waits here.)
//
// In a room with history few bytes wait (`isLittle`). Above LITTLE_BYTES the member lags, which
// costs no memory, and gets the messages later (recovery/lagging-members.js). The age of its bytes
// closes it only when a plain room has a message for it. Other pushes and replies may wait, up to
// maxUnsentBytes.
//
// The transport calls `queue` for all bytes that the kernel does not take at once. The outbox calls
// `admit` before it writes a publication of a plain room, because only those may be skipped.
//
// With `drop`, or in a room with history, age alone closes no connection. One that takes no byte
// for `maxStallMs` is closed, because the heartbeat does not ping a socket with unsent bytes.

import { CLOSES } from '../protocol/codes.js';

/** Slow consumers do not read their close frame, and ws would keep the buffers for longer. */
const TERMINATE_AFTER_MS = 2000;
/**
 * A member of a room with history does not lag below this: the kernel may take a burst a moment
 * later, and TLS reports bytes as sent one step late.
 */
const LITTLE_BYTES = 64 * 1024;

/**
 * The progress of a connection with unsent bytes. When all bytes that waited at `sinceMs` have been
 * sent, a new measurement begins.
 * @typedef {object} Lag
 * @property {number} sinceMs
 * @property {number} handedThen bytes handed to the transport up to `sinceMs`
 * @property {number} handed bytes handed to the transport until now
 * @property {number} taken bytes that the kernel had taken when `sweep` last looked
 * @property {number} takenMs when `sweep` last saw `taken` change
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
    // The heartbeat needs this time to find a dead peer.
    this.maxStallMs = Math.max(this.maxAgeMs, config.pingIntervalMs + config.pongTimeoutMs);
    this.counters = counters;
    this.budgetBytes = budgetBytes;
    this.clock = clock;
    /** @type {Map<Connection, Lag>} */
    this.lagging = new Map();
  }

  /**
   * May this publication wait for the connection? If not, the policy has been applied.
   * @param {Connection} connection @param {number} bytes
   */
  admitBytes(connection, bytes) {
    if (!connection.isOpen) return false;
    const pending = connection.transport.pendingBytes;
    if (pending === 0) return true;
    const { sinceMs } = this.#follow(connection, pending);
    if (this.#isSmall(pending, bytes) && this.#isYoung(sinceMs)) return true;
    if (this.policy === 'drop') this.counters.slow.dropped++;
    else this.#closeSlow(connection, 'closed');
    return false;
  }

  /**
   * May these bytes wait, too, before a member of a room with history lags?
   * @param {Connection} connection @param {number} bytes
   */
  isLittle({ transport }, bytes) {
    return transport.pendingBytes + bytes <= Math.min(LITTLE_BYTES, this.maxBytes);
  }

  /**
   * May these bytes wait for the kernel? If not, the connection is closed as a slow consumer. If
   * nothing waits yet, any number may, because the kernel may have taken the start of a frame.
   * @param {Connection} connection @param {number} bytes
   */
  queue(connection, bytes) {
    const pending = connection.transport.pendingBytes;
    if (pending === 0) {
      this.#beginStall(connection, bytes);
      return true;
    }
    if (!connection.isOpen) return false;
    const lag = this.#follow(connection, pending);
    const mayBeOld = connection.hasHistory;
    if (!this.#isSmall(pending, bytes) || !(mayBeOld || this.#isYoung(lag.sinceMs))) {
      this.#closeSlow(connection, 'closed');
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
        this.#closeSlow(connection, 'closed');
      else total += pending;
    }
    if (total > this.budgetBytes) this.#shed(total);
  }

  /** @param {Connection} connection closed, or caught up; may be called twice */
  forget(connection) {
    this.lagging.delete(connection);
  }

  /** @param {number} pending @param {number} bytes to be added */
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
    // If all bytes that waited at `sinceMs` have been sent, the oldest byte is younger.
    return lag === undefined || lag.handed - pending >= lag.handedThen
      ? this.#beginStall(connection, pending)
      : lag;
  }

  /** @param {Connection} connection @param {number} pending bytes that age from now on */
  #beginStall(connection, pending) {
    const now = this.clock();
    const lag = { sinceMs: now, handedThen: pending, handed: pending, taken: 0, takenMs: now };
    this.lagging.set(connection, lag);
    return lag;
  }

  /** Nothing taken for maxStallMs? @param {Lag} lag @param {number} pending @param {number} now */
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
      this.#closeSlow(connection, 'shed');
    }
  }

  /** @param {Connection} connection @param {'closed'|'shed'} consequence */
  #closeSlow(connection, consequence) {
    this.counters.slow[consequence]++;
    this.forget(connection);
    connection.close(CLOSES.SLOW_CONSUMER);
    setTimeout(
      () => connection.transport.terminate(),
      consequence === 'shed' ? 0 : TERMINATE_AFTER_MS,
    ).unref();
  }
}
