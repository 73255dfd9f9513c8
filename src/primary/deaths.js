// deaths.js: counts unexpected deaths of workers. They decide the pause before a replacement, the
// crash loop, and when to give up.
//
// - The pause is 100 ms. It doubles with each further death within a minute, up to 5 s.
// - CRASH_LOOP_DEATHS within a minute are a crash loop: a log line, a metric, an alert. The server
//   continues, because clients that overload workers must not stop it.
// - The server stops only if no worker serves and MAX_FAILED_STARTS new ones in a row failed.

const FIRST_RESTART_MS = 100;
const LONGEST_RESTART_MS = 5000;
const CRASH_LOOP_DEATHS = 5;
const CRASH_LOOP_WINDOW_MS = 60_000;
/** The pause has then reached its maximum. */
const MAX_RECENT_DEATHS = 16;
const MAX_FAILED_STARTS = 5;

export class Deaths {
  /** @param {import('pino').Logger} log */
  constructor(log) {
    this.log = log;
    /** `crashed` and `hung`: workers that were ready. `start`: workers that were not. */
    this.byCause = { crashed: 0, hung: 0, start: 0 };
    /** Deaths in the last CRASH_LOOP_WINDOW_MS. @type {number[]} */
    this.recentMs = [];
    /** Since a new worker last became ready. */
    this.failedStarts = 0;
    this.isCrashLoopLogged = false;
  }

  /** @param {'crashed'|'hung'|'start'} cause */
  recordDeath(cause) {
    const now = performance.now();
    this.byCause[cause]++;
    if (cause === 'start') this.failedStarts++;
    this.recentMs = [
      ...this.recentMs.filter((atMs) => now - atMs < CRASH_LOOP_WINDOW_MS),
      now,
    ].slice(-MAX_RECENT_DEATHS);
    if (!this.isCrashLoop() || this.isCrashLoopLogged) return;
    this.isCrashLoopLogged = true;
    this.log.error(
      { deaths: this.byCause },
      `${CRASH_LOOP_DEATHS} workers died within ${CRASH_LOOP_WINDOW_MS / 1000} s, continuing with the rest`,
    );
  }

  workerStarted() {
    this.failedStarts = 0;
  }

  isCrashLoop() {
    const firstMs = this.recentMs.at(-CRASH_LOOP_DEATHS);
    return firstMs !== undefined && performance.now() - firstMs < CRASH_LOOP_WINDOW_MS;
  }

  /** Logs the end of a crash loop. Call it about once a second. */
  checkCrashLoop() {
    if (!this.isCrashLoopLogged || this.isCrashLoop()) return;
    this.isCrashLoopLogged = false;
    this.log.info('crash loop over: fewer than five deaths in the last minute');
  }

  get isHopeless() {
    return this.failedStarts >= MAX_FAILED_STARTS;
  }

  get restartPauseMs() {
    return Math.min(FIRST_RESTART_MS * 2 ** (this.recentMs.length - 1), LONGEST_RESTART_MS);
  }
}
