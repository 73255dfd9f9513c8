// histogram.js: latencies in buckets, as the client processes count them.
//
// Exact below 128 microseconds, then 64 buckets an octave (an error below 1.6 %). client/client.c
// has the same rule.

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
 * Adds what a client process wrote ("bucket:count,…") to `into`.
 * @param {Float64Array} into
 * @param {string} text
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
 * @returns {number} milliseconds; NaN where nothing was counted
 */
export function percentileMs(histogram, share) {
  let total = 0;
  for (const count of histogram) total += count;
  const wanted = Math.min(total - 1, Math.floor(total * share));
  let seen = 0;
  for (let bucket = 0; bucket < histogram.length; bucket++) {
    seen += histogram[bucket];
    if (seen > wanted) return middleOf(bucket) / 1000;
  }
  return Number.NaN;
}
