// idempotency-keys.js: the idempotency keys of a server, in memory, for rooms with and without
// history.
//
// A key is kept for at least IDEMPOTENCY_MS. There are two generations, so that a whole one can be
// dropped at once: early, and counted, if there are too many keys.

import { IDEMPOTENCY_MS } from '../broker.js';

/** If more than 800 keys a second arrive for IDEMPOTENCY_MS, the oldest are forgotten early. */
const MAX_KEYS = 500_000;

/** @import { Position } from '../broker.js' */

/**
 * @typedef {object} First
 * @property {Position|null} position null in a room without history
 * @property {string} fingerprint may be empty
 * @property {boolean} [isRecorded] for webhooks
 */

export class IdempotencyKeys {
  /** @type {Map<string, First & {untilMs: number}>} */
  #young = new Map();
  /** @type {Map<string, First & {untilMs: number}>} */
  #old = new Map();
  #begunMs = Number.NEGATIVE_INFINITY;

  /** @param {number} [max] 2 or more */
  constructor(max = MAX_KEYS) {
    this.max = max;
    /** Keys that may have been forgotten early. */
    this.lost = 0;
  }

  /**
   * @param {string} room @param {string} key @param {number} nowMs
   * @returns {First|null} null: the key is new
   */
  find(room, key, nowMs) {
    const name = nameOfKey(room, key);
    const first = this.#young.get(name) ?? this.#old.get(name);
    return first === undefined || first.untilMs <= nowMs ? null : first;
  }

  /** @param {string} room @param {string} key @param {First} first @param {number} nowMs */
  set(room, key, { position, fingerprint }, nowMs) {
    this.sweep(nowMs);
    if (this.#young.size >= this.max / 2) {
      // Some may have expired, but an exact count is not worth a walk over all of them.
      this.lost += this.#old.size;
      this.#turn(nowMs);
    }
    const untilMs = nowMs + IDEMPOTENCY_MS;
    this.#young.set(nameOfKey(room, key), { position, fingerprint, untilMs });
  }

  /**
   * @param {string} room @param {string} key @param {number} nowMs
   * @returns {boolean} false if the publish with this key has been recorded for webhooks before
   */
  recordOnce(room, key, nowMs) {
    const first = this.find(room, key, nowMs);
    if (first === null) return true;
    if (first.isRecorded) return false;
    first.isRecorded = true;
    return true;
  }

  get isEmpty() {
    return this.#young.size + this.#old.size === 0;
  }

  /** Frees expired keys; the owner calls it regularly. @param {number} nowMs */
  sweep(nowMs) {
    // Keys of the old generation are older than the young one, so they have expired.
    if (nowMs - this.#begunMs >= IDEMPOTENCY_MS) this.#turn(nowMs);
  }

  /** @param {number} nowMs */
  #turn(nowMs) {
    this.#old = this.#young;
    this.#young = new Map();
    this.#begunMs = nowMs;
  }
}

/** Do the payloads differ? @param {First} first @param {string} fingerprint may be empty */
export function isConflict(first, fingerprint) {
  return fingerprint !== '' && first.fingerprint !== '' && fingerprint !== first.fingerprint;
}

/** @param {string} room @param {string} key */
function nameOfKey(room, key) {
  // A room's name has no space.
  return `${room} ${key}`;
}
