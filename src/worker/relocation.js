// relocation.js: closes single connections so that their clients reconnect: at their maximum age,
// and in a rebalance (primary/balance.js).
//
// 1. The connection gets SERVER_SHUTDOWN with its own reconnectAfterMs.
// 2. GRACE_MS later the worker closes it, so commands under way get their answers.
//
// If its door has no such notice, the client returns at once, so the close is later by that time.
// At most MAX_PENDING relocations are under way. A worker that drains, lags or has no broker
// relocates none, because its clients might not be able to join their rooms again.

import { CLOSES } from '../protocol/codes.js';

/** Time between the notice and the close: a round trip of most clients. */
const GRACE_MS = 500;
/** The most connections that are closed in GRACE_MS. */
export const MAX_PENDING = 500;
/** When clients return: soon, because the server is healthy. */
const RECONNECT_MS = { min: 100, max: 1000 };
/** Between two checks of the pending connections. */
const STEP_MS = { min: 20, max: 100 };

/** Causes of relocations: the keys of `counters.relocated`. */
const CAUSES = Object.freeze({ age: CLOSES.AGE, rebalance: CLOSES.REBALANCE });

/** @typedef {keyof typeof CAUSES} Cause */
/** @import { Connection } from '../hub/connection.js' */

export class Relocations {
  /**
   * @param {object} parts @param {Pick<import('../hub/hub.js').Hub, 'connections'>} parts.hub
   * @param {() => boolean} parts.isSteady could this worker take the clients back?
   * @param {Pick<import('../observability/counters.js').Counters, 'relocated'>} parts.counters
   */
  constructor({ hub, isSteady, counters }) {
    this.hub = hub;
    this.isSteady = isSteady;
    this.counters = counters;
    /** @type {Map<Connection, {cause: Cause, dueMs: number}>} */
    this.pending = new Map();
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
  }

  /** Drops pending relocations: the drain closes these connections, too. */
  close() {
    clearTimeout(this.timer);
    this.pending.clear();
  }

  /** Closes a connection at its maximum age. @param {Connection} connection @param {number} [nowMs] */
  closeAged(connection, nowMs = performance.now()) {
    if (this.isSteady()) this.#announce(connection, 'age', nowMs);
  }

  /** Relocates connections at random. @param {number} count @param {number} [nowMs] */
  rebalance(count, nowMs = performance.now()) {
    if (!this.isSteady()) return;
    const { connections } = this.hub;
    // The same connection may be drawn twice; then fewer move in this second.
    for (let i = 0; i < count && connections.length > 0; i++)
      this.#announce(
        connections[Math.floor(Math.random() * connections.length)],
        'rebalance',
        nowMs,
      );
  }

  /** @param {Connection} connection @param {Cause} cause @param {number} nowMs */
  #announce(connection, cause, nowMs) {
    const { pending } = this;
    if (!connection.isOpen || pending.has(connection) || pending.size >= MAX_PENDING) return;
    const { min, max } = RECONNECT_MS;
    const afterMs = min + Math.floor(Math.random() * (max - min));
    const isTold = connection.announceShutdown(afterMs);
    pending.set(connection, { cause, dueMs: nowMs + GRACE_MS + (isTold ? 0 : afterMs) });
    if (pending.size === 1) this.#startTimer(GRACE_MS);
  }

  /** @param {number} ms */
  #startTimer(ms) {
    this.timer = setTimeout(() => this.closeDue(performance.now()), ms);
    this.timer.unref();
  }

  /** Closes the connections whose time has come. @param {number} nowMs */
  closeDue(nowMs) {
    clearTimeout(this.timer);
    let nextMs = Number.POSITIVE_INFINITY;
    for (const [connection, { cause, dueMs }] of this.pending) {
      if (dueMs > nowMs) {
        nextMs = Math.min(nextMs, dueMs);
        continue;
      }
      this.pending.delete(connection);
      if (!connection.isOpen) continue;
      this.counters.relocated[cause]++;
      connection.close(CAUSES[cause]);
    }
    if (this.pending.size > 0)
      this.#startTimer(Math.min(Math.max(nextMs - nowMs, STEP_MS.min), STEP_MS.max));
  }
}
