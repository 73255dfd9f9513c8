// handshake-rate.js: limits new connections and plain requests by address, per worker. A handshake
// costs as much as a hundred messages, so its limit is checked before any byte is read.

import { Rate } from './rate.js';
import { BucketTable } from './rate-limit.js';

/** @import { Counters } from '../observability/counters.js' */

/** Buckets to examine for each new one, so that full buckets are deleted without a timer. */
const SWEEP_STEP = 2;

export class HandshakeRate {
  #addresses;

  /** @param {number} perMinute @param {number} burst @param {Counters} counters */
  constructor(perMinute, burst, counters) {
    this.rate = new Rate(perMinute, burst);
    this.#addresses = new BucketTable(() => counters.addressesForgotten++);
  }

  get addresses() {
    return this.#addresses.size;
  }

  /**
   * @param {string} address as limits count it @param {number} nowMs monotonic
   * @returns {number} 0 if a token was taken; otherwise the seconds until there is one
   */
  takeHandshake(address, nowMs) {
    const { rate } = this;
    const addresses = this.#addresses;
    if (!addresses.has(address)) addresses.sweep((one) => rate.isRefilled(one, nowMs), SWEEP_STEP);
    const bucket = addresses.bucketOf(address);
    if (!rate.has(bucket, nowMs)) return rate.retryAfter(bucket, nowMs);
    rate.take(bucket, nowMs);
    return 0;
  }
}
