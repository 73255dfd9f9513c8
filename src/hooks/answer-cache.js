// answer-cache.js: answers of backends that may be used again, for the seconds that they name.
//
// Time alone ends an answer, and a new worker begins without any. Bounded in number and bytes: the
// oldest make room. Answers are kept as texts, because the memory of an object cannot be told.

const MAX_ANSWERS = 10_000;
const MAX_BYTES = 8 * 1024 * 1024;
/** Memory of an answer, without its text. */
const ANSWER_BYTES = 256;
const CHARACTER_BYTES = 2;

/** @typedef {{text: string, endMs: number}} Kept */

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

  /** @param {string} name of the question @returns {string|undefined} the text of the answer */
  find(name) {
    const kept = this.#kept.get(name);
    if (kept === undefined) return undefined;
    if (kept.endMs <= this.now()) return this.#remove(name, kept);
    this.counters.hit++;
    return kept.text;
  }

  /** @param {string} name @param {string} text @param {number} seconds */
  keep(name, text, seconds) {
    const old = this.#kept.get(name); // the same was asked twice at once
    if (old !== undefined) this.#remove(name, old);
    this.#kept.set(name, { text, endMs: this.now() + 1000 * seconds });
    this.#bytes += bytesOf(text);
    this.counters.stored++;
    for (const [other, kept] of this.#kept) {
      if (this.#kept.size <= MAX_ANSWERS && this.#bytes <= MAX_BYTES) break;
      if (kept.endMs > this.now()) this.counters.evicted++;
      this.#remove(other, kept);
    }
  }

  /** @param {string} name @param {Kept} kept @returns {undefined} */
  #remove(name, { text }) {
    this.#kept.delete(name);
    this.#bytes -= bytesOf(text);
  }
}

/** @param {string} text */
const bytesOf = (text) => CHARACTER_BYTES * text.length + ANSWER_BYTES;
