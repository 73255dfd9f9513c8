// stall-aware-clock.js: time as far as this process has lived through it.
//
// Deadlines of others are measured on it. When this process stands still (a long garbage
// collection, SIGSTOP, a starved machine) answers wait unread in its sockets, and a wall clock
// would hold the silence against whoever has answered. So a gap between two ticks counts for
// MAX_STEP_MS at most, and after one the listener is left out once: the event loop first reads what
// has arrived.

const MAX_STEP_MS = 500;

export class StallAwareClock {
  /**
   * @param {number} tickMs its resolution
   * @param {(nowMs: number) => void} onTick
   */
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
