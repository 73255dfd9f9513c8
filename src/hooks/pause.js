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

  /**
   * @param {object} parts @param {string} parts.origin of the backend
   * @param {import('../observability/counters.js').HookCounters} parts.counters
   * @param {Pick<import('pino').Logger, 'info'|'error'>} parts.log
   */
  constructor({ origin, counters, log }) {
    this.origin = origin;
    this.counters = counters;
    this.log = log;
  }

  /** May a request go out? `end` follows if it shows whether the backend works. */
  begin() {
    if (this.#failures < FAILURES) return true;
    if (performance.now() < this.#untilMs) return false;
    this.#pause(); // for all others
    return true;
  }

  /** @param {boolean} isAnswered @param {string} [why] it failed */
  end(isAnswered, why) {
    const { origin, counters, log } = this;
    const wasDown = this.#failures >= FAILURES;
    this.#failures = isAnswered ? 0 : this.#failures + 1;
    const isDown = this.#failures >= FAILURES;
    if (isDown === wasDown) return;
    counters.paused += isDown ? 1 : -1;
    if (!isDown) return log.info({ origin }, 'hooks: the backend answers again');
    this.#pause();
    log.error({ origin, why }, `hooks: ${FAILURES} failures in a row, trying once a second`);
  }

  #pause() {
    this.#untilMs = performance.now() + PAUSE_MS * (1 - JITTER + 2 * JITTER * Math.random());
  }
}
