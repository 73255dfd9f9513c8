// answer-cache.js: answers of backends that may be used again, for the seconds that they name.
//
// Time alone ends an answer, and a new worker begins without any. Bounded in number and bytes: the
// oldest make room.

const MAX_ANSWERS = 10_000;
const MAX_BYTES = 8 * 1024 * 1024;
/** Memory of an answer, without its JSON. */
const ANSWER_BYTES = 256;

/** @typedef {{answer: unknown, bytes: number, endMs: number}} Kept */

export class AnswerCache {
  /** By the name of the question, oldest first. @type {Map<string, Kept>} */
  #kept = new Map();
  #bytes = 0;

  /**
   * @param {import('../observability/counters.js').HookCounters['cache']} counters
   * @param {() => number} [now] ms, monotonic
   */
  constructor(counters, now = () => performance.now()) {
    this.counters = counters;
    this.now = now;
  }

  /** @param {string} name of the question @returns {Kept|undefined} */
  find(name) {
    const kept = this.#kept.get(name);
    if (kept === undefined) return undefined;
    if (kept.endMs <= this.now()) return this.#remove(name, kept);
    this.counters.hit++;
    return kept;
  }

  /** @param {string} name @param {unknown} answer @param {number} size of its JSON @param {number} seconds */
  keep(name, answer, size, seconds) {
    const old = this.#kept.get(name); // the same was asked twice at once
    if (old !== undefined) this.#remove(name, old);
    const bytes = size + ANSWER_BYTES;
    this.#kept.set(name, { answer, bytes, endMs: this.now() + 1000 * seconds });
    this.#bytes += bytes;
    this.counters.stored++;
    for (const [other, kept] of this.#kept) {
      if (this.#kept.size <= MAX_ANSWERS && this.#bytes <= MAX_BYTES) break;
      if (kept.endMs > this.now()) this.counters.evicted++;
      this.#remove(other, kept);
    }
  }

  /** @param {string} name @param {Kept} kept @returns {undefined} */
  #remove(name, { bytes }) {
    this.#kept.delete(name);
    this.#bytes -= bytes;
  }
}
