// holds.js: two times that the couriers of all servers share through the queue.
//   leaves   a worker drains: events of those who left are kept back, because its clients return
//   doubt    an endpoint gets a gap and reads the state again. It may learn there that somebody left
//            whose event still waits. If a return cancelled that event, the endpoint would not hear
//            of the return. So no edge cancels its opposite that waited in this time
//
// A courier asks for both once a second. If it has not heard of them for FRESH_MS, it is in doubt,
// too. A gap is sent only when its doubt is older than that, so every courier acts on it by then.

const ASK_MS = 1000;
const FRESH_MS = 2500;
/** Longer than FRESH_MS and the longest time limit of a request. */
const DOUBT_MS = 40_000;

export class Holds {
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  #leavesUntilMs = Number.NEGATIVE_INFINITY;
  #doubtSinceMs = Number.NEGATIVE_INFINITY;
  #doubtUntilMs = Number.NEGATIVE_INFINITY;
  /** When the last question that was answered began. */
  #heardMs = Number.NEGATIVE_INFINITY;

  /**
   * @param {object} parts
   * @param {Pick<import('./queue.js').EventQueue, 'hold'|'doubt'|'held'>} parts.queue
   * @param {() => number} parts.now
   * @param {() => void} parts.onDoubt a doubt begins: the edges that wait now are not certain
   */
  constructor({ queue, now, onDoubt }) {
    this.queue = queue;
    this.now = now;
    this.onDoubt = onDoubt;
  }

  /** Who left is kept back until this time. */
  get leavesUntilMs() {
    return this.#leavesUntilMs;
  }

  /** May an edge cancel its opposite? */
  get isSure() {
    const nowMs = this.now();
    return nowMs >= this.#doubtUntilMs && nowMs - this.#heardMs <= FRESH_MS;
  }

  /** Call it after the first `ask` was answered. */
  start() {
    // The lanes log that the queue is unreachable.
    this.#timer = setInterval(() => this.ask().catch(() => {}), ASK_MS);
    this.#timer.unref();
  }

  close() {
    clearInterval(this.#timer);
  }

  /** Rejects if the queue is unreachable. */
  async ask() {
    const beganMs = this.now();
    const { leavesMs, doubtMs } = await this.queue.held();
    this.#learnLeaves(leavesMs);
    this.#learnDoubt(doubtMs);
    this.#heardMs = Math.max(this.#heardMs, beganMs);
  }

  /** A worker of this server begins to drain. Its clients come back within the time. @param {number} ms */
  holdLeaves(ms) {
    this.#learnLeaves(ms);
    // If the queue is unreachable, nobody records who left.
    this.queue.hold(ms).catch(() => {});
  }

  /** Resolves when no courier cancels edges any more, for a request. Rejects as `ask`. */
  async doubt() {
    await this.queue.doubt(DOUBT_MS);
    this.#learnDoubt(DOUBT_MS);
    const waitMs = this.#doubtSinceMs + FRESH_MS - this.now();
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
  }

  /** @param {number} ms that are left */
  #learnLeaves(ms) {
    if (ms > 0) this.#leavesUntilMs = Math.max(this.#leavesUntilMs, this.now() + ms);
  }

  /** @param {number} ms that are left */
  #learnDoubt(ms) {
    if (ms <= 0) return;
    const nowMs = this.now();
    const isNew = nowMs >= this.#doubtUntilMs;
    this.#doubtUntilMs = Math.max(this.#doubtUntilMs, nowMs + ms);
    if (!isNew) return;
    this.#doubtSinceMs = nowMs;
    this.onDoubt();
  }
}
