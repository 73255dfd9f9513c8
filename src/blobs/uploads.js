// uploads.js: puts payloads into the bucket, and checks those that backends put there.
//
//   a body through Fanfare:   store -> PUT, or parts of 5 MiB if its length is unknown -> claim
//   a body past Fanfare:      announce -> signed PUT by the backend -> verify -> claim
//
// The object is in the bucket before its claim is published. If it is never published, the bucket's
// lifecycle rule deletes it. Uploads and checks have their own limit, so a slow bucket does not
// block other requests.

import { createHash } from 'node:crypto';
import { sizeText } from '../protocol/refusal.js';
import { BlobError } from './blob-error.js';
import { MeteredBody } from './metered-body.js';
import { announcedBy, newKey, newUploadKey } from './object-keys.js';

/** The smallest part in S3, except for the last one. */
const PART_BYTES = 5_242_880;
/** S3 takes no more, so a body of unknown length has at most 50 GB. */
const MAX_PARTS = 10_000;
/** An announced upload must be put and published within this time. */
const ANNOUNCED_S = 3600;
const DAY_MS = 86_400_000;

/** @import { Claim } from '../protocol/claim.js' */

/**
 * An upload that a backend may put into the bucket itself.
 * @typedef {object} Announced
 * @property {string} upload its key
 * @property {'PUT'} method @property {string} url
 * @property {Record<string, string>} headers that the backend must send
 * @property {number} expires ms since 1970
 */

/**
 * @typedef {object} UploadCounters
 * @property {Record<'stored'|'announced'|'verified'|'refused'|'failed'|'aborted', number>} uploads
 * @property {number} storedBytes @property {number} inFlight gauge
 */

export class Uploads {
  /**
   * @param {object} parts @param {import('./bucket.js').Bucket} parts.bucket
   * @param {import('./signer.js').Signer} parts.signer
   * @param {string} parts.publicUrl of the bucket @param {number} parts.maxBytes of an object
   * @param {number} parts.maxUploads at once @param {number} parts.timeoutMs of an upload
   * @param {UploadCounters} parts.counters
   */
  constructor({ bucket, signer, publicUrl, maxBytes, maxUploads, timeoutMs, counters }) {
    this.bucket = bucket;
    this.signer = signer;
    this.publicUrl = publicUrl;
    this.maxBytes = maxBytes;
    this.maxUploads = maxUploads;
    this.timeoutMs = timeoutMs;
    this.counters = counters;
  }

  get isBusy() {
    return this.counters.inFlight >= this.maxUploads;
  }

  /**
   * @param {AsyncIterable<Buffer>|Buffer} body @param {object} options
   * @param {number} [options.bytes] undefined if the length is unknown
   * @param {string} options.contentType
   * @returns {Promise<Claim>} Rejects with a BlobError, or with the error of the body.
   */
  store(body, { bytes, contentType }) {
    return this.#inPlace('stored', async (signal) => {
      const key = newKey(Date.now());
      if (Buffer.isBuffer(body)) {
        this.#checkSize(body.length);
        const sha256 = createHash('sha256').update(body).digest('hex');
        await this.bucket.put(key, body, { bytes: body.length, contentType, signal });
        return this.#stored({ key, bytes: body.length, sha256, contentType });
      }
      const metered = new MeteredBody(body, this.maxBytes);
      if (bytes === undefined) await this.#storeParts(key, metered, contentType, signal);
      else {
        this.#checkSize(bytes);
        await this.bucket.put(key, metered, { bytes, contentType, signal });
      }
      return this.#stored({ key, bytes: metered.bytes, sha256: metered.sha256(), contentType });
    });
  }

  /**
   * Stores a body of unknown length in parts, each collected in memory, because S3 requires the
   * length of each request.
   * @param {string} key @param {MeteredBody} body @param {string} contentType
   * @param {AbortSignal} signal
   */
  async #storeParts(key, body, contentType, signal) {
    const { bucket } = this;
    /** @type {Buffer[]} */
    let collected = [];
    let bytes = 0;
    /** @type {string[]} */
    const etags = [];
    let id = '';
    const putPart = async () => {
      if (etags.length === MAX_PARTS) throw new BlobError('PAYLOAD_TOO_LARGE', 'too many parts');
      const part = Buffer.concat(collected);
      collected = [];
      bytes = 0;
      if (id === '') id = await bucket.beginParts(key, contentType, signal);
      etags.push(await bucket.putPart(key, id, etags.length + 1, part, signal));
    };
    try {
      for await (const piece of untilAborted(body, signal)) {
        collected.push(piece);
        bytes += piece.length;
        if (bytes >= PART_BYTES) await putPart();
      }
      if (id === '') {
        const all = Buffer.concat(collected);
        return await bucket.put(key, all, { bytes, contentType, signal });
      }
      if (bytes > 0) await putPart();
      await bucket.completeParts(key, id, etags, signal);
    } catch (error) {
      // If this fails, too, the bucket's lifecycle rule deletes the parts.
      if (id !== '')
        bucket.abortParts(key, id, AbortSignal.timeout(this.bucket.timeoutMs)).catch(() => {});
      throw error;
    }
  }

  /** @param {{bytes: number, sha256: string, contentType: string}} payload @returns {Announced} */
  announce({ bytes, sha256, contentType }) {
    this.#checkSize(bytes);
    const nowMs = Date.now();
    const upload = newUploadKey(nowMs, bytes, sha256);
    // The bucket compares them with the body. HTTP clients set `content-length`, also signed.
    const headers = {
      'content-type': contentType,
      'x-amz-checksum-sha256': Buffer.from(sha256, 'hex').toString('base64'),
    };
    const url = this.signer.url(
      {
        method: 'PUT',
        url: `${this.publicUrl}/${upload}`,
        headers: { ...headers, 'content-length': String(bytes) },
        nowMs,
      },
      ANNOUNCED_S,
    );
    this.counters.uploads.announced++;
    const expires = Math.floor(nowMs / 1000) * 1000 + ANNOUNCED_S * 1000;
    return { upload, method: 'PUT', url, headers, expires };
  }

  /**
   * Checks that an upload is in the bucket as announced. If the bucket does not know the SHA-256 of
   * its objects, the worker reads the object.
   * @param {string} upload @returns {Promise<Claim>} Rejects with NO_UPLOAD or UNAVAILABLE.
   */
  verify(upload) {
    return this.#inPlace('verified', async (signal) => {
      const announced = announcedBy(upload);
      // Recent, so that the object outlives the messages in the room's history.
      const isCurrent = announced !== null && Date.now() - announced.dayMs < 2 * DAY_MS;
      const found = isCurrent ? await this.bucket.head(upload, signal) : null;
      if (announced === null || found === null || found.bytes !== announced.bytes)
        throw new BlobError('NO_UPLOAD', 'no such upload');
      const sha256 =
        found.sha256 ?? (await this.bucket.get(upload, signal, (body) => hashOf(body)));
      if (sha256 !== announced.sha256) throw new BlobError('NO_UPLOAD', 'different content');
      return { key: upload, bytes: found.bytes, sha256, contentType: found.contentType };
    });
  }

  /** @param {number} bytes */
  #checkSize(bytes) {
    if (bytes <= this.maxBytes) return;
    const explanation = sizeText('The payload', bytes, this.maxBytes, 'FANFARE_BLOB_MAX_BYTES');
    throw new BlobError('PAYLOAD_TOO_LARGE', explanation, undefined, { explanation });
  }

  /** @param {Claim} claim */
  #stored(claim) {
    this.counters.storedBytes += claim.bytes;
    return claim;
  }

  /**
   * Runs an upload or check within the bounds of number and time.
   * @template T
   * @param {'stored'|'verified'} result @param {(signal: AbortSignal) => Promise<T>} work
   */
  async #inPlace(result, work) {
    const { counters, timeoutMs } = this;
    if (this.isBusy) {
      counters.uploads.refused++;
      throw new BlobError('UNAVAILABLE', 'too many uploads at once', undefined, {
        explanation: 'Not accepted: too many uploads are under way. Try again.',
      });
    }
    counters.inFlight++;
    const abort = new AbortController();
    const timer = setTimeout(
      () => abort.abort(new BlobError('REQUEST_TIMEOUT', 'the upload took too long')),
      timeoutMs,
    );
    try {
      const done = await work(abort.signal);
      counters.uploads[result]++;
      return done;
    } catch (error) {
      const { code } = /** @type {{code?: string}} */ (error);
      counters.uploads[code === 'UNAVAILABLE' ? 'failed' : 'aborted']++;
      throw error;
    } finally {
      clearTimeout(timer);
      counters.inFlight--;
    }
  }
}

/**
 * Ends a body when the signal aborts, even if the body is silent.
 * @param {AsyncIterable<Buffer>} body @param {AbortSignal} signal
 */
async function* untilAborted(body, signal) {
  signal.throwIfAborted();
  const iterator = body[Symbol.asyncIterator]();
  /** @type {Promise<never>} */
  const aborted = new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  aborted.catch(() => {});
  for (;;) {
    const { done, value } = await Promise.race([iterator.next(), aborted]);
    if (done) return;
    yield value;
  }
}

/** @param {AsyncIterable<Buffer>} body */
async function hashOf(body) {
  const hash = createHash('sha256');
  for await (const part of body) hash.update(part);
  return hash.digest('hex');
}
