// stall-aware-clock.js: a monotonic clock that skips time in which the process was stalled.
//
// It measures how long others take. While this process is stalled (garbage collection, SIGSTOP),
// their answers wait unread in its sockets. So a tick that is late counts for at most MAX_LATE_MS
// more than planned, and does not call the listener: the event loop first reads the answers.
//
// The listener says what is due next. If that is nothing soon, the clock rests until then, because
// each wake-up costs some 80 us. `hurry` ends the rest. The worker's beat ticks in a rest, and what
// is due waits a moment for it, so both share their wake-ups.

export const MAX_LATE_MS = 450;
/** Longer than the pause between two beats. */
const MAX_REST_MS = 1100;
/** What is due in a rest may wait this long for the beat. */
const TOGETHER_MS = 100;

export class StallAwareClock {
  /** As of the last tick. */
  #nowMs = 0;
  #tickedMs = 0;
  /** From `#tickedMs` to the next tick. */
  #waitMs = 0;
  /** @type {NodeJS.Timeout|undefined} */
  #timer = undefined;

  /**
   * @param {{tickMs: number, restMs?: number}} times its resolution, and its longest rest
   * @param {(nowMs: number) => number} onTick returns when it wants to be called again, on this clock
   */
  constructor({ tickMs, restMs = MAX_REST_MS }, onTick) {
    this.tickMs = tickMs;
    this.restMs = Math.min(restMs, MAX_REST_MS);
    this.onTick = onTick;
  }

  start() {
    this.#tickedMs = performance.now();
    this.#wait(this.tickMs);
  }

  close() {
    clearTimeout(this.#timer);
    this.#waitMs = 0;
  }

  /** The process is awake: ticks if the clock rests. */
  beat() {
    if (this.#waitMs <= this.tickMs) return;
    clearTimeout(this.#timer);
    this.#tick();
  }

  /** At most `tickMs` old. */
  get nowMs() {
    // A read may be the first to see a stall. The tick must not be due at once after it, either.
    if (this.#waitMs > this.tickMs && !this.#advance()) this.#wait(this.tickMs);
    return this.#nowMs;
  }

  /** Something is due sooner than the listener knew: the next tick comes in `tickMs`. */
  hurry() {
    if (this.#waitMs <= this.tickMs) return;
    this.#advance();
    this.#wait(this.tickMs);
  }

  /** @returns {boolean} false: the process was stalled */
  #advance() {
    const now = performance.now();
    const step = now - this.#tickedMs;
    const longest = this.#waitMs + MAX_LATE_MS;
    this.#tickedMs = now;
    this.#nowMs += Math.min(step, longest);
    this.#waitMs -= step;
    return step <= longest;
  }

  /** @param {number} ms */
  #wait(ms) {
    clearTimeout(this.#timer);
    this.#waitMs = ms;
    this.#timer = setTimeout(() => this.#tick(), ms).unref();
  }

  #tick() {
    const isOnTime = this.#advance();
    const ms = (isOnTime ? this.onTick(this.#nowMs) : 0) - this.#nowMs;
    this.#wait(ms > this.tickMs ? Math.min(ms + TOGETHER_MS, this.restMs) : this.tickMs);
  }
}
