// shared-periods.js: two periods that the couriers of all servers share through the queue.
//   leaves paused   A worker drains: leaves wait, because its clients return
//   uncertain       An endpoint gets a gap event and reads the state again. It may see there that a
//                   user left, while that event still waits. If the user's return cancelled the
//                   event, the endpoint would never hear of the return. So for this period, no
//                   transition cancels a waiting opposite
//
// A courier asks for both once a second. Without an answer for FRESH_MS it is uncertain, too. A gap
// event is sent only when its period is older than FRESH_MS, so by then every courier acts on it.

import { repeatTogether } from './together.js';

const ASK_MS = 1000;
const FRESH_MS = 2500;
/** Longer than FRESH_MS and the longest time limit of a request. */
const UNCERTAIN_MS = 40_000;

export class SharedPeriods {
  #end = () => {};
  #leavesPausedUntilMs = Number.NEGATIVE_INFINITY;
  #uncertainSinceMs = Number.NEGATIVE_INFINITY;
  #uncertainUntilMs = Number.NEGATIVE_INFINITY;
  /** When the last answered `ask` began. */
  #heardMs = Number.NEGATIVE_INFINITY;

  /**
   * @param {object} parts
   * @param {Pick<import('./queue.js').EventQueue, 'pauseLeaves'|'makeUncertain'|'periods'>}
   *   parts.queue
   * @param {() => number} parts.now
   * @param {() => void} parts.onUncertain waiting transitions become uncertain
   */
  constructor({ queue, now, onUncertain }) {
    this.queue = queue;
    this.now = now;
    this.onUncertain = onUncertain;
  }

  /** Leaves wait until this time. */
  get leavesPausedUntilMs() {
    return this.#leavesPausedUntilMs;
  }

  /** May a transition cancel its opposite? */
  get isCertain() {
    const nowMs = this.now();
    return nowMs >= this.#uncertainUntilMs && nowMs - this.#heardMs <= FRESH_MS;
  }

  /** Call it after the first `ask` has resolved. */
  start() {
    // Together with the partitions, which log it when the queue is unreachable.
    this.#end = repeatTogether(ASK_MS, this.now, () => this.ask().catch(() => {}));
  }

  close() {
    this.#end();
  }

  /** Rejects if the queue is unreachable. */
  async ask() {
    const beganMs = this.now();
    const { leavesMs, uncertainMs } = await this.queue.periods();
    this.#learnPause(leavesMs);
    this.#learnUncertainty(uncertainMs);
    this.#heardMs = Math.max(this.#heardMs, beganMs);
  }

  /** A worker of this server begins to drain. @param {number} ms until its clients are back */
  pauseLeaves(ms) {
    this.#learnPause(ms);
    // If the queue is unreachable, leaves are not recorded either.
    this.queue.pauseLeaves(ms).catch(() => {});
  }

  /** Resolves when no courier cancels transitions any more. Rejects like `ask`. */
  async makeUncertain() {
    await this.queue.makeUncertain(UNCERTAIN_MS);
    this.#learnUncertainty(UNCERTAIN_MS);
    const waitMs = this.#uncertainSinceMs + FRESH_MS - this.now();
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
  }

  /** @param {number} ms that are left */
  #learnPause(ms) {
    if (ms > 0) this.#leavesPausedUntilMs = Math.max(this.#leavesPausedUntilMs, this.now() + ms);
  }

  /** @param {number} ms that are left */
  #learnUncertainty(ms) {
    if (ms <= 0) return;
    const nowMs = this.now();
    const isNew = nowMs >= this.#uncertainUntilMs;
    this.#uncertainUntilMs = Math.max(this.#uncertainUntilMs, nowMs + ms);
    if (!isNew) return;
    this.#uncertainSinceMs = nowMs;
    this.onUncertain();
  }
}
