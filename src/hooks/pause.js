// pause.js: when a backend of hooks gets no requests because it fails.
//
//   up -- 20 failures in a row --> paused for a second --> one request tries
//    ^-------------------- answered ----------------------------' '-- failed: paused again
//
// Each call of a pause is refused at once. Otherwise all would wait until the deadline, and a
// backend that is overloaded would get requests whose clients have gone.

const FAILURES = 20;
const PAUSE_MS = 1000;
/** Workers and servers do not try at the same moment. */
const JITTER = 0.2;

export class BackendPause {
  #failures = 0;
  #untilMs = 0;
  /** Is the request that tries under way? */
  #isTrying = false;

  /**
   * @param {object} parts @param {string} parts.origin of the backend
   * @param {import('../observability/counters.js').HookCounters} parts.counters
   * @param {Pick<import('pino').Logger, 'info'|'error'>} parts.log
   * @param {() => number} [parts.now] ms, monotonic
   */
  constructor({ origin, counters, log, now = () => performance.now() }) {
    this.origin = origin;
    this.counters = counters;
    this.log = log;
    this.now = now;
  }

  get #isDown() {
    return this.#failures >= FAILURES;
  }

  /** May a request go out? If so, `end` has to follow. */
  begin() {
    if (!this.#isDown) return true;
    if (this.#isTrying || this.now() < this.#untilMs) return false;
    this.#isTrying = true;
    return true;
  }

  /** @param {boolean} isAnswered @param {string} [why] it failed */
  end(isAnswered, why) {
    const { origin } = this;
    const wasDown = this.#isDown;
    this.#isTrying = false;
    this.#failures = isAnswered ? 0 : this.#failures + 1;
    if (wasDown && !this.#isDown) {
      this.counters.paused--;
      this.log.info({ origin }, 'hooks: the backend answers again');
    }
    if (!wasDown && this.#isDown) {
      this.counters.paused++;
      this.log.error({ origin, why }, `hooks: ${FAILURES} failures in a row, trying once a second`);
    }
    if (this.#isDown && this.now() >= this.#untilMs)
      this.#untilMs = this.now() + PAUSE_MS * (1 - JITTER + 2 * JITTER * Math.random());
  }
}
