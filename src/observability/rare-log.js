// rare-log.js: at most one log line a minute for events that may occur thousands of times. The
// first is logged at once; the next line has the number of those in between.

const INTERVAL_MS = 60_000;

/** @typedef {{warn(fields: object, text: string): void}} Log */

export class RareLog {
  /** @param {Log} log @param {() => number} [clock] ms, monotonic */
  constructor(log, clock = () => performance.now()) {
    this.log = log;
    this.clock = clock;
    /** By text. The source has few texts. @type {Map<string, {nextMs: number, unsaid: number}>} */
    this.kinds = new Map();
  }

  /** @param {object} fields @param {string} text a constant */
  warn(fields, text) {
    const now = this.clock();
    const kind = this.kinds.get(text);
    if (kind !== undefined && now < kind.nextMs) {
      kind.unsaid++;
      return;
    }
    this.kinds.set(text, { nextMs: now + INTERVAL_MS, unsaid: 0 });
    this.log.warn({ ...fields, unsaid: kind?.unsaid ?? 0 }, text);
  }
}
