// deadlines.js: sockets with a time limit, oldest first. One timer checks the oldest.

/** Items that one sweep handles. If more are overdue, the next sweep follows soon. */
const MAX_PER_SWEEP = 100;
/** Shortest and longest time between two sweeps. */
const MIN_SWEEP_MS = 20;
const MAX_SWEEP_MS = 1000;
/** If a sweep is later than this, the worker was blocked. */
const LATE_MS = 500;

/** @template {object} T */
export class Deadlines {
  /** When the time of each item began, on the clock of #nowMs(). @type {Map<T, number>} */
  #since = new Map();
  /** How long the worker has been blocked. This time does not count. */
  #blockedMs = 0;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;

  /**
   * @param {number} limitMs
   * @param {(item: T, deadlineMs: number) => boolean} onOverdue deletes the item; false: it gets
   *   the same time again
   */
  constructor(limitMs, onOverdue) {
    this.limitMs = limitMs;
    this.onOverdue = onOverdue;
  }

  get size() {
    return this.#since.size;
  }

  /** @returns {IterableIterator<T>} oldest first */
  [Symbol.iterator]() {
    return this.#since.keys();
  }

  /** @param {T} item */
  has(item) {
    return this.#since.has(item);
  }

  /** @param {T} item whose time begins now */
  add(item) {
    this.#since.set(item, this.#nowMs());
    this.#arm();
  }

  /** @param {T} item */
  delete(item) {
    this.#since.delete(item);
  }

  /** No more sweeps until the next item. */
  cancelSweep() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #arm(leastMs = MIN_SWEEP_MS) {
    if (this.#timer !== undefined) return;
    for (const sinceMs of this.#since.values()) {
      const dueMs = sinceMs + this.limitMs - this.#nowMs();
      const waitMs = Math.min(MAX_SWEEP_MS, Math.max(leastMs, dueMs));
      const sweepMs = performance.now() + waitMs;
      // After the reads of this turn: if the worker was blocked, its clients are not late.
      this.#timer = setTimeout(
        () => setImmediate(() => this.#sweep(performance.now() - sweepMs)),
        waitMs,
      ).unref();
      return;
    }
  }

  /** This clock stops while the worker is blocked. */
  #nowMs() {
    return performance.now() - this.#blockedMs;
  }

  /**
   * Leaves a moment to handle what has arrived. Even if the worker is blocked again and again, the
   * clock goes on in between, so items do end.
   * @param {number} lateMs
   */
  #postpone(lateMs) {
    this.#blockedMs += lateMs;
    const nowMs = this.#nowMs();
    // Items may have been added after the block, and before this sweep.
    for (const [item, sinceMs] of this.#since) if (sinceMs > nowMs) this.#since.set(item, nowMs);
    this.#arm(LATE_MS);
  }

  /** @param {number} lateMs */
  #sweep(lateMs) {
    this.#timer = undefined;
    if (lateMs > LATE_MS) return this.#postpone(lateMs);
    const nowMs = this.#nowMs();
    let handled = 0;
    for (const [item, sinceMs] of this.#since) {
      const deadlineMs = sinceMs + this.limitMs;
      if (deadlineMs > nowMs || handled++ === MAX_PER_SWEEP) break;
      if (this.onOverdue(item, deadlineMs + this.#blockedMs)) continue;
      this.#since.delete(item);
      this.#since.set(item, nowMs);
    }
    this.#arm();
  }
}
