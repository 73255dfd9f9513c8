// rate.js: a token bucket.
//
// A bucket of `burst` tokens that refills evenly needs one number: when it will be full (GCRA, ATM
// Forum TM 4.0, 4.4.3). Each token taken moves that time by the refill time of a token. If it is
// `burst` tokens ahead, the bucket is empty. So there is no timer, and full buckets can go.
//
// Times have units of 1/perMinute ms, so a token is always 60,000 units: whole numbers, no drift.

import { numberText } from '../protocol/refusal.js';

const TOKEN = 60_000;
/** A message takes a token for each started block of this size. */
export const BYTES_PER_TOKEN = 4096;

/** Capacity and refill. Callers keep the buckets. */
export class Rate {
  /** @param {number} perMinute @param {number} burst */
  constructor(perMinute, burst) {
    this.perMinute = perMinute;
    this.burst = burst;
    this.depth = burst * TOKEN;
  }

  /** The rate, as clients read it that it refuses. */
  get text() {
    return `${numberText(this.perMinute)} a minute, ${numberText(this.burst)} at once`;
  }

  /** The cost of a message: at most the capacity, or a large one would never pass. @param {number} bytes */
  costOf(bytes) {
    return Math.min(this.depth, TOKEN * Math.max(1, Math.ceil(bytes / BYTES_PER_TOKEN)));
  }

  /** @param {{fullAt: number}} allowance @param {number} nowMs @param {number} [cost] tokens */
  has(allowance, nowMs, cost = TOKEN) {
    const now = Math.floor(nowMs * this.perMinute);
    return Math.max(allowance.fullAt, now) + cost - now <= this.depth;
  }

  /**
   * @param {{fullAt: number}} allowance @param {number} nowMs @param {number} cost
   * @param {boolean} onCredit may the bucket owe as much as it holds?
   * @returns {number} 0 if there are enough tokens; otherwise whole seconds until then
   */
  waitFor(allowance, nowMs, cost, onCredit) {
    const missing = onCredit ? cost - this.depth : cost;
    return this.has(allowance, nowMs, missing) ? 0 : this.retryAfter(allowance, nowMs, missing);
  }

  /**
   * Takes tokens, after `has`.
   * @param {{fullAt: number}} allowance @param {number} nowMs @param {number} [cost]
   */
  take(allowance, nowMs, cost = TOKEN) {
    allowance.fullAt = Math.max(allowance.fullAt, Math.floor(nowMs * this.perMinute)) + cost;
  }

  /**
   * Takes tokens even if there are not enough: a bucket may owe up to its capacity.
   * @param {{fullAt: number}} allowance @param {number} nowMs @param {number} cost
   */
  owe(allowance, nowMs, cost) {
    const now = Math.floor(nowMs * this.perMinute);
    allowance.fullAt = Math.min(Math.max(allowance.fullAt, now) + cost, now + 2 * this.depth);
  }

  /**
   * @param {{fullAt: number}} allowance @param {number} nowMs @param {number} [cost]
   * @returns {number} whole seconds until there are enough tokens, at least 1
   */
  retryAfter(allowance, nowMs, cost = TOKEN) {
    const wait = allowance.fullAt + cost - this.depth - Math.floor(nowMs * this.perMinute);
    return Math.max(1, Math.ceil(wait / (1000 * this.perMinute)));
  }

  /** A full one may be deleted. @param {{fullAt: number}} allowance @param {number} nowMs */
  isRefilled(allowance, nowMs) {
    return allowance.fullAt <= nowMs * this.perMinute;
  }
}
