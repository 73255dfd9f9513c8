// holds.js: two periods that the couriers of all servers share through the queue.
//   leaves   A worker drains: leaves are held back, because its clients return
//   doubt    An endpoint gets a gap event and reads the state again. It may see there that a user
//            left, while that event still waits. If the user's return cancelled the event, the
//            endpoint would never hear of the return. So for this period, no edge cancels a waiting
//            opposite
//
// A courier asks for both once a second. Without an answer for FRESH_MS it is in doubt, too. A gap
// event is sent only when its doubt is older than FRESH_MS, so by then every courier acts on it.

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
  /** When the last answered `ask` began. */
  #heardMs = Number.NEGATIVE_INFINITY;

  /**
   * @param {object} parts
   * @param {Pick<import('./queue.js').EventQueue, 'hold'|'doubt'|'held'>} parts.queue
   * @param {() => number} parts.now
   * @param {() => void} parts.onDoubt a doubt begins: waiting edges become uncertain
   */
  constructor({ queue, now, onDoubt }) {
    this.queue = queue;
    this.now = now;
    this.onDoubt = onDoubt;
  }

  /** Leaves are held back until this time. */
  get leavesUntilMs() {
    return this.#leavesUntilMs;
  }

  /** May an edge cancel its opposite? */
  get isSure() {
    const nowMs = this.now();
    return nowMs >= this.#doubtUntilMs && nowMs - this.#heardMs <= FRESH_MS;
  }

  /** Call it after the first `ask` has resolved. */
  start() {
    // The lanes log it when the queue is unreachable.
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

  /** A worker of this server begins to drain. @param {number} ms until its clients are back */
  holdLeaves(ms) {
    this.#learnLeaves(ms);
    // If the queue is unreachable, leaves are not recorded either.
    this.queue.hold(ms).catch(() => {});
  }

  /** Resolves when all couriers have stopped cancelling edges. Rejects like `ask`. */
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
