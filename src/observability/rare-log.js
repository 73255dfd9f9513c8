// rare-log.js: at most one log line a minute for events that may occur thousands of times. The
// first is logged at once; the next line has the number of those in between.

const INTERVAL_MS = 60_000;
/** Pairs of a text and a source. Further sources of a text share its line. */
const MAX_KINDS = 1000;

/** @typedef {{warn(fields: object, text: string): void}} Log */

export class RareLog {
  /** @param {Log} log @param {() => number} [clock] ms, monotonic */
  constructor(log, clock = () => performance.now()) {
    this.log = log;
    this.clock = clock;
    /** The kinds of lines by text and source. A source has few texts. @type {Map<string, {nextMs: number, unsaid: number}>} */
    this.kinds = new Map();
  }

  /**
   * @param {object} fields @param {string} text a constant
   * @param {string} [source] has a line of its own each minute, such as a client's address
   */
  warn(fields, text, source = '') {
    const now = this.clock();
    const name = this.#nameOf(text, source, now);
    const kind = this.kinds.get(name);
    if (kind !== undefined && now < kind.nextMs) {
      kind.unsaid++;
      return;
    }
    // A map keeps the order of insertions, so the oldest kinds are its first.
    this.kinds.delete(name);
    this.kinds.set(name, { nextMs: now + INTERVAL_MS, unsaid: 0 });
    this.log.warn({ ...fields, unsaid: kind?.unsaid ?? 0 }, text);
  }

  /** @param {string} text @param {string} source @param {number} now */
  #nameOf(text, source, now) {
    const name = source === '' ? text : `${text} ${source}`;
    if (this.kinds.size < MAX_KINDS || this.kinds.has(name)) return name;
    for (const [other, { nextMs }] of this.kinds) {
      if (now < nextMs) break;
      this.kinds.delete(other);
    }
    return this.kinds.size < MAX_KINDS ? name : text;
  }
}
