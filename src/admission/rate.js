// rate.js: a token bucket.
//
// A bucket that holds `burst` tokens and refills evenly needs one number: when it will be full
// (GCRA, ATM Forum TM 4.0, 4.4.3). Each token taken moves that time by the time a token takes to
// refill. If it lies `burst` tokens ahead, the bucket is empty. So no timer and no second field,
// and a full bucket can be deleted.
//
// Times are counted in units of 1/perMinute ms. One token is then always 60,000 units: whole
// numbers, without drift.

const TOKEN = 60_000;
/** A message takes a token for each started block of this size. */
export const BYTES_PER_TOKEN = 4096;

/** Capacity and refill of buckets. The callers keep the buckets themselves. */
export class Rate {
  /** @param {number} perMinute @param {number} burst */
  constructor(perMinute, burst) {
    this.perMinute = perMinute;
    this.depth = burst * TOKEN;
  }

  /**
   * At most the bucket's capacity, because otherwise a large message would never pass.
   * @param {number} bytes
   */
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
   * @returns {number} 0 if the tokens are there; otherwise whole seconds until they are
   */
  waitFor(allowance, nowMs, cost, onCredit) {
    const missing = onCredit ? cost - this.depth : cost;
    return this.has(allowance, nowMs, missing) ? 0 : this.retryAfter(allowance, nowMs, missing);
  }

  /**
   * Takes the tokens. The caller has checked that the bucket holds them.
   * @param {{fullAt: number}} allowance @param {number} nowMs @param {number} [cost]
   */
  take(allowance, nowMs, cost = TOKEN) {
    allowance.fullAt = Math.max(allowance.fullAt, Math.floor(nowMs * this.perMinute)) + cost;
  }

  /**
   * Takes tokens that are not there, too: a bucket may owe as much as it holds.
   * @param {{fullAt: number}} allowance @param {number} nowMs @param {number} cost
   */
  owe(allowance, nowMs, cost) {
    const now = Math.floor(nowMs * this.perMinute);
    allowance.fullAt = Math.min(Math.max(allowance.fullAt, now) + cost, now + 2 * this.depth);
  }

  /**
   * @param {{fullAt: number}} allowance @param {number} nowMs @param {number} [cost]
   * @returns {number} whole seconds until the bucket holds that many tokens, at least 1
   */
  retryAfter(allowance, nowMs, cost = TOKEN) {
    const wait = allowance.fullAt + cost - this.depth - Math.floor(nowMs * this.perMinute);
    return Math.max(1, Math.ceil(wait / (1000 * this.perMinute)));
  }

  /** Full: a new one may replace it. @param {{fullAt: number}} allowance @param {number} nowMs */
  isFull(allowance, nowMs) {
    return allowance.fullAt <= nowMs * this.perMinute;
  }
}
