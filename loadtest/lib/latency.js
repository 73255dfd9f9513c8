// latency.js: latencies, counted in the benchmark's buckets (an error below 1.6 %) and put into
// words.

import { BUCKETS, bucketOf, percentileMs } from '../bench/histogram.js';

/**
 * @typedef {{pairs: number[], maxMs: number}} Drained bucket, count, bucket, count … of the buckets
 *   that hold any
 */

export class Latency {
  constructor() {
    this.buckets = new Float64Array(BUCKETS);
    this.maxMs = 0;
  }

  /** @param {number} ms */
  add(ms) {
    this.buckets[bucketOf(Math.max(0, ms * 1000))]++;
    if (ms > this.maxMs) this.maxMs = ms;
  }

  /** @param {{buckets: ArrayLike<number>, maxMs: number}} other another process's */
  merge({ buckets, maxMs }) {
    for (let i = 0; i < BUCKETS; i++) this.buckets[i] += buckets[i];
    this.maxMs = Math.max(this.maxMs, maxMs);
  }

  /** @returns {number} how many were counted */
  get count() {
    return this.buckets.reduce((sum, n) => sum + n, 0);
  }

  /**
   * @param {number} percent 95 for the 95th percentile
   * @returns {number|null} milliseconds; null where nothing was counted
   */
  percentile(percent) {
    return this.count === 0
      ? null
      : Math.min(percentileMs(this.buckets, percent / 100), this.maxMs);
  }

  /** What was counted since the last call, to send to another process. @returns {Drained} */
  drain() {
    /** @type {Drained} */
    const drained = { pairs: [], maxMs: this.maxMs };
    for (let i = 0; i < BUCKETS; i++) {
      if (this.buckets[i] > 0) drained.pairs.push(i, this.buckets[i]);
    }
    this.buckets.fill(0);
    this.maxMs = 0;
    return drained;
  }

  /** @param {Drained} drained */
  addDrained({ pairs, maxMs }) {
    for (let i = 0; i < pairs.length; i += 2) this.buckets[pairs[i]] += pairs[i + 1];
    this.maxMs = Math.max(this.maxMs, maxMs);
  }

  /** @returns {string} p50, p95, p99 and the largest */
  toString() {
    const [p50, p95, p99] = [0.5, 0.95, 0.99].map((share) =>
      percentileMs(this.buckets, share).toFixed(1),
    );
    return `p50 ${p50} ms, p95 ${p95} ms, p99 ${p99} ms, max ${this.maxMs.toFixed(1)} ms`;
  }
}
