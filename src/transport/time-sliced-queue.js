// time-sliced-queue.js: spreads bursts of work over turns of the event loop. Each turn spends a few
// milliseconds on it, so that other work continues in between.

/** Largest number of finished items that are still in the list. */
const COMPACT_FROM = 1000;

/** @template T */
export class TimeSlicedQueue {
  /**
   * @param {(item: T) => void} act
   * @param {number} sliceMs time per turn; at least one item is done
   * @param {number} [maxItems] per turn
   */
  constructor(act, sliceMs, maxItems = Number.POSITIVE_INFINITY) {
    this.act = act;
    this.sliceMs = sliceMs;
    this.maxItems = maxItems;
    /** @type {T[]} */
    this.items = [];
    this.next = 0;
    this.isScheduled = false;
    this.run = this.run.bind(this);
  }

  /** @param {T} item to be done in this or a later turn of the event loop */
  push(item) {
    this.items.push(item);
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.run);
  }

  run() {
    const end = performance.now() + this.sliceMs;
    // If `act` pushes an item, that item waits for the next turn.
    let left = Math.min(this.maxItems, this.items.length - this.next);
    do {
      this.act(this.items[this.next++]);
    } while (--left > 0 && performance.now() < end);
    const isDone = this.next === this.items.length;
    if (isDone || this.next >= COMPACT_FROM) {
      this.items.splice(0, this.next);
      this.next = 0;
    }
    this.isScheduled = !isDone;
    if (!isDone) setImmediate(this.run);
  }
}
