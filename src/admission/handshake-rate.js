// handshake-rate.js: limits the new connections and plain requests of one address, per worker.
//
// A handshake costs a worker as much as a hundred messages, so a client that connects and hangs up
// needs a separate limit. The check comes before any byte is read. An address has a token bucket
// until the bucket is full again.

import { Rate } from './rate.js';
import { TokenBucket } from './rate-limit.js';

/**
 * Largest number of buckets. Beyond it the oldest bucket is deleted, and its address may use a
 * burst again.
 */
const MAX_ADDRESSES = 65_536;
/** Buckets examined for each new one, so that full buckets are deleted without a timer. */
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
   * @param {number} nowMs of a monotonic clock
   * @returns {number} 0 if a token was taken; otherwise the seconds until there is one
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
