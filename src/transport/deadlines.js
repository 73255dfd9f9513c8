// deadlines.js: sockets whose time runs, oldest first. One timer looks at the oldest.

/** Overdue items that one sweep handles. The next sweep follows soon if there are more. */
const MAX_PER_SWEEP = 100;
/** Shortest and longest time between two sweeps. */
const MIN_SWEEP_MS = 20;
const MAX_SWEEP_MS = 1000;
/** A sweep that is later than this shows that the worker was blocked. */
const LATE_MS = 500;

/** @template {object} T */
export class Deadlines {
  /** When the time of each began, in that order, on the clock of #nowMs(). @type {Map<T, number>} */
  #since = new Map();
  /** How long the worker was blocked when a sweep was due. This time counts for no item. */
  #blockedMs = 0;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;

  /**
   * @param {number} limitMs
   * @param {(item: T, deadlineMs: number) => boolean} onOverdue ends the item, which leaves; false:
   *   it gets the same time again
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

  /** Its time begins now. @param {T} item that is not here */
  add(item) {
    this.#since.set(item, this.#nowMs());
    this.#arm();
  }

  /** @param {T} item */
  delete(item) {
    this.#since.delete(item);
  }

  /** No more sweeps until the next item. */
  stop() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #arm(leastMs = MIN_SWEEP_MS) {
    if (this.#timer !== undefined) return;
    for (const sinceMs of this.#since.values()) {
      const dueMs = sinceMs + this.limitMs - this.#nowMs();
      const waitMs = Math.min(MAX_SWEEP_MS, Math.max(leastMs, dueMs));
      const sweepMs = performance.now() + waitMs;
      // After all readable sockets: if the worker was blocked, its clients are not late.
      this.#timer = setTimeout(
        () => setImmediate(() => this.#sweep(performance.now() - sweepMs)),
        waitMs,
      ).unref();
      return;
    }
  }

  /** It stands still while the worker is blocked. */
  #nowMs() {
    return performance.now() - this.#blockedMs;
  }

  /**
   * What has arrived meanwhile has a moment to be handled. A worker that is blocked again and again
   * ends its items, too: the clock goes on. @param {number} lateMs
   */
  #postpone(lateMs) {
    this.#blockedMs += lateMs;
    const nowMs = this.#nowMs();
    // Some came after the block, and before this sweep.
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
