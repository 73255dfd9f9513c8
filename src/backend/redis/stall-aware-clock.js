// stall-aware-clock.js: a monotonic clock that skips time in which the process was stalled.
//
// It measures how long others take. While this process is stalled (garbage collection, SIGSTOP),
// their answers wait unread in its sockets. So a gap between ticks counts for at most MAX_STEP_MS,
// and its tick does not call the listener: the event loop first reads the answers.

const MAX_STEP_MS = 500;

export class StallAwareClock {
  /** @param {number} tickMs its resolution @param {(nowMs: number) => void} onTick */
  constructor(tickMs, onTick) {
    this.tickMs = tickMs;
    this.onTick = onTick;
    /** As of the last tick. */
    this.nowMs = 0;
    this.tickedMs = 0;
    /** @type {NodeJS.Timeout|null} */
    this.timer = null;
  }

  start() {
    this.tickedMs = performance.now();
    this.timer = setInterval(() => this.#tick(), this.tickMs).unref();
  }

  close() {
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
  }

  #tick() {
    const now = performance.now();
    const step = now - this.tickedMs;
    this.tickedMs = now;
    this.nowMs += Math.min(step, MAX_STEP_MS);
    if (step <= MAX_STEP_MS) this.onTick(this.nowMs);
  }
}
