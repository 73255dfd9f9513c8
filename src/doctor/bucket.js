// bucket.js: tries the bucket for large messages: stores a small object, reads it, and deletes it.

import { randomBytes } from 'node:crypto';

/**
 * @typedef {object} BucketState
 * @property {{ms: number, fault: string}|null} bucket the time of the trial, and why it failed; null
 *   if no bucket is configured
 */

/**
 * @param {Pick<import('../config/settings.js').Config, 'blobs'|'blobTimeoutMs'>} config
 * @returns {Promise<BucketState>} the fault has neither credentials nor a signed URL
 */
export async function readBucket({ blobs, blobTimeoutMs: timeoutMs }) {
  if (blobs === null) return { bucket: null };
  const { Bucket } = await import('../blobs/bucket.js');
  const { Signer } = await import('../blobs/signer.js');
  const bucket = new Bucket({
    url: blobs.url,
    signer: new Signer(blobs),
    timeoutMs,
    observe() {},
  });
  const key = `doctor/${randomBytes(16).toString('hex')}`;
  const body = randomBytes(1024);
  const signal = AbortSignal.timeout(4 * timeoutMs);
  const startedMs = performance.now();
  const elapsedMs = () => Math.round(performance.now() - startedMs);
  try {
    const contentType = 'application/octet-stream';
    await bucket.put(key, body, { bytes: body.length, contentType, signal });
    const read = await bucket.get(key, signal, async (parts) => {
      const all = [];
      for await (const part of parts) all.push(part);
      return Buffer.concat(all);
    });
    await bucket.delete(key, signal);
    const fault = read.equals(body) ? '' : 'it returned other bytes than it was given';
    return { bucket: { ms: elapsedMs(), fault } };
  } catch (error) {
    return { bucket: { ms: elapsedMs(), fault: /** @type {Error} */ (error).message } };
  }
}
