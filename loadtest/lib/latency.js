// latency.js: latencies, counted in the benchmark's buckets (an error below 1.6 %) and put into words.

import { BUCKETS, bucketOf, percentileMs } from '../bench/histogram.js';

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

  /** @returns {string} p50, p95, p99 and the largest */
  toString() {
    const [p50, p95, p99] = [0.5, 0.95, 0.99].map((share) => percentileMs(this.buckets, share).toFixed(1));
    return `p50 ${p50} ms, p95 ${p95} ms, p99 ${p99} ms, max ${this.maxMs.toFixed(1)} ms`;
  }
}
