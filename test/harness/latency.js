// latency.js: latencies, counted in buckets.
//
// Exact below 128 microseconds, then 64 buckets an octave (an error below 1.6 %). The rule is that
// of bench/client/client.c, so that the counts of all clients can be added. No library has these
// buckets: hdr-histogram-js would need its own in the C client, too.

export const BUCKETS = 2048;

/** @param {number} us microseconds, not negative */
export function bucketOf(us) {
  if (us < 128) return us | 0;
  const shift = 25 - Math.clz32(Math.min(us, 0x7fffffff));
  return Math.min(BUCKETS - 1, 128 + (shift - 1) * 64 + ((us >>> shift) & 63));
}

/** The middle of a bucket, in microseconds. @param {number} bucket */
export function middleOf(bucket) {
  if (bucket < 128) return bucket;
  const shift = Math.floor((bucket - 128) / 64) + 1;
  return (((bucket - 128) % 64) + 64) * 2 ** shift + 2 ** (shift - 1);
}

/**
 * Adds the counts of a client process ("bucket:count,…") to `into`.
 * @param {Float64Array} into @param {string} text
 */
export function addHistogram(into, text) {
  if (text === '') return;
  for (const pair of text.split(',')) {
    const colon = pair.indexOf(':');
    into[Number(pair.slice(0, colon))] += Number(pair.slice(colon + 1));
  }
}

/**
 * @param {Float64Array} histogram
 * @param {number} share 0.95 for the 95th percentile
 * @returns {number} milliseconds; NaN if nothing was counted
 */
export function percentileMs(histogram, share) {
  let total = 0;
  for (const count of histogram) total += count;
  if (total === 0) return Number.NaN;
  const wanted = Math.min(total - 1, Math.floor(total * share));
  let seen = 0;
  for (let bucket = 0; bucket < histogram.length; bucket++) {
    seen += histogram[bucket];
    if (seen > wanted) return middleOf(bucket) / 1000;
  }
  return Number.NaN;
}

/**
 * @param {ArrayLike<number>} histogram counts by bucket
 * @returns {number} milliseconds; NaN if nothing was counted
 */
export function meanMs(histogram) {
  let [total, sum] = [0, 0];
  for (let i = 0; i < histogram.length; i++) {
    total += histogram[i];
    sum += histogram[i] * middleOf(i);
  }
  return sum / total / 1000;
}

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
   * @returns {number|null} milliseconds; null if nothing was counted
   */
  percentile(percent) {
    return this.count === 0
      ? null
      : Math.min(percentileMs(this.buckets, percent / 100), this.maxMs);
  }

  /** The counts since the last call, to send to another process. @returns {Drained} */
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
