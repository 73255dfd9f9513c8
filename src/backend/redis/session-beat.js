// session-beat.js: when a session's heartbeat is due.

export class SessionBeat {
  #isTimerDue = false;
  /** When the last answered heartbeat was sent. */
  #sentMs = Number.NEGATIVE_INFINITY;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;

  /** @param {number} intervalMs @param {() => void} onDue */
  constructor(intervalMs, onDue) {
    this.intervalMs = intervalMs;
    this.onDue = onDue;
  }

  start() {
    // Random, so that a fleet that starts together does not send its heartbeats together.
    const wait = this.intervalMs * (0.9 + 0.2 * Math.random());
    this.#timer = setTimeout(() => {
      this.hurry();
      this.start();
    }, wait).unref();
  }

  stop() {
    clearTimeout(this.#timer);
  }

  /** The next heartbeat is due now. */
  hurry() {
    this.#isTimerDue = true;
    this.onDue();
  }

  /** @param {number} patienceMs after which a heartbeat is late, whatever the timer says */
  isDue(patienceMs) {
    return this.#isTimerDue || performance.now() - this.#sentMs > patienceMs;
  }

  /** @param {number} sentMs when the answered heartbeat was sent */
  answered(sentMs) {
    this.#isTimerDue = false;
    this.#sentMs = sentMs;
  }
}
