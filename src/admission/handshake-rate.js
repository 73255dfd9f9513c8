// handshake-rate.js: how many new connections and plain requests one address may make, in this
// worker.
//
// A handshake costs a worker as much as a hundred messages, so a client that connects and hangs up
// needs a limit of its own. The check comes before anything is read. An address has a token bucket
// while the bucket is not full.

import { Rate, TokenBucket } from './rate-limit.js';

/**
 * Addresses with a bucket. Beyond that number the oldest bucket is forgotten: its address may use a
 * burst again.
 */
const MAX_ADDRESSES = 65_536;
/** Buckets looked at for each new one, so that full ones go without a timer. */
const SWEEP_STEP = 2;

export class HandshakeRate {
  /** @type {Map<string, TokenBucket>} */
  #addresses = new Map();
  /** @type {MapIterator<[string, TokenBucket]>} */
  #sweeping = this.#addresses.entries();

  /**
   * @param {number} perMinute that a bucket refills
   * @param {number} burst that a bucket holds
   * @param {import('../observability/counters.js').Counters} counters
   */
  constructor(perMinute, burst, counters) {
    this.rate = new Rate(perMinute, burst);
    this.counters = counters;
  }

  /** Number of addresses that have a bucket. */
  get addresses() {
    return this.#addresses.size;
  }

  /**
   * Takes a token of the address if there is one.
   * @param {string} address as limits count it
   * @param {number} nowMs of a clock that never goes back
   * @returns {number} 0: taken; else the seconds until there is a token
   */
  take(address, nowMs) {
    let allowance = this.#addresses.get(address);
    if (allowance === undefined) {
      this.#sweep(nowMs);
      allowance = new TokenBucket();
      this.#addresses.set(address, allowance);
    }
    if (!this.rate.has(allowance, nowMs)) return this.rate.retryAfter(allowance, nowMs);
    this.rate.take(allowance, nowMs);
    return 0;
  }

  /** @param {number} nowMs */
  #sweep(nowMs) {
    for (let i = Math.min(SWEEP_STEP, this.#addresses.size); i > 0; i--) {
      const next = this.#sweeping.next();
      if (next.done) {
        this.#sweeping = this.#addresses.entries();
        continue;
      }
      const [address, allowance] = next.value;
      if (this.rate.isFull(allowance, nowMs)) this.#addresses.delete(address);
    }
    if (this.#addresses.size < MAX_ADDRESSES) return;
    for (const oldest of this.#addresses.keys()) {
      this.#addresses.delete(oldest);
      break;
    }
    this.counters.addressesForgotten++;
  }
}
