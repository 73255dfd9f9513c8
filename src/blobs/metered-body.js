// metered-body.js: counts and hashes the bytes of a body on their way into the bucket.

import { createHash } from 'node:crypto';
import { sizeText } from '../protocol/refusal.js';
import { BlobError } from './blob-error.js';

/** @implements {AsyncIterable<Buffer>} */
export class MeteredBody {
  #hash = createHash('sha256');
  bytes = 0;
  /** The reason if the body ends early. @type {unknown} */
  fault;

  /** @param {AsyncIterable<Buffer>} source @param {number} maxBytes */
  constructor(source, maxBytes) {
    this.source = source;
    this.maxBytes = maxBytes;
  }

  /** The hash in hexadecimal digits. Call it once, at the end. */
  sha256() {
    return this.#hash.digest('hex');
  }

  async *[Symbol.asyncIterator]() {
    try {
      for await (const part of this.source) {
        this.bytes += part.length;
        if (this.bytes > this.maxBytes) {
          const explanation = sizeText('The body', null, this.maxBytes, 'FANFARE_BLOB_MAX_BYTES');
          throw new BlobError('PAYLOAD_TOO_LARGE', explanation, undefined, { explanation });
        }
        this.#hash.update(part);
        yield part;
      }
    } catch (error) {
      this.fault = error;
      throw error;
    }
  }
}
