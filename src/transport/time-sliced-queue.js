// time-sliced-queue.js: work that comes in bursts, done a few milliseconds in each turn of the
// event loop, so that everything else goes on in between.

/** Items that are done with and still in the list, at most. */
const COMPACT_FROM = 1000;

/** @template T */
export class TimeSlicedQueue {
  /**
   * @param {(item: T) => void} act
   * @param {number} sliceMs of a turn; at least one item is done
   * @param {number} [maxItems] of a turn
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

  /** @param {T} item that is done in its turn, in this or a later turn of the event loop */
  push(item) {
    this.items.push(item);
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(this.run);
  }

  run() {
    const end = performance.now() + this.sliceMs;
    // An item that `act` pushes waits for the next turn.
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
