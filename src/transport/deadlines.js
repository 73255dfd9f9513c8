// deadlines.js: sockets whose time runs, oldest first. One timer looks at the oldest.

/** Overdue items that one sweep handles. The next sweep follows soon if there are more. */
const MAX_PER_SWEEP = 100;
/** Shortest and longest time between two sweeps. */
const MIN_SWEEP_MS = 20;
const MAX_SWEEP_MS = 1000;

/** @template {object} T */
export class Deadlines {
  /** When the time of each began, in that order. @type {Map<T, number>} */
  #since = new Map();
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
    this.#since.set(item, performance.now());
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

  #arm() {
    if (this.#timer !== undefined) return;
    for (const sinceMs of this.#since.values()) {
      const dueMs = sinceMs + this.limitMs - performance.now();
      // The sweep runs after all readable sockets: if the worker was blocked, its clients are not
      // late.
      this.#timer = setTimeout(
        () => setImmediate(() => this.#sweep()),
        Math.min(MAX_SWEEP_MS, Math.max(MIN_SWEEP_MS, dueMs)),
      ).unref();
      return;
    }
  }

  #sweep() {
    this.#timer = undefined;
    const nowMs = performance.now();
    let handled = 0;
    for (const [item, sinceMs] of this.#since) {
      const deadlineMs = sinceMs + this.limitMs;
      if (deadlineMs > nowMs || handled++ === MAX_PER_SWEEP) break;
      if (this.onOverdue(item, deadlineMs)) continue;
      this.#since.delete(item);
      this.#since.set(item, nowMs);
    }
    this.#arm();
  }
}
