// blob-error.js: the errors of uploads. The HTTP API has a row for each code.

/** @typedef {'UNAVAILABLE'|'NO_UPLOAD'|'PAYLOAD_TOO_LARGE'|'REQUEST_TIMEOUT'} BlobCode */

const BUCKET_DOWN = 'Not accepted: the bucket is unavailable. Try again.';

export class BlobError extends Error {
  /**
   * @param {BlobCode} code @param {string} message without a URL's query and without credentials
   * @param {unknown} [cause]
   * @param {{explanation?: string}} [options] `explanation`: for the client; undefined: the bucket is
   *   the cause, or the code says it all
   */
  constructor(code, message, cause, { explanation } = {}) {
    super(message, { cause });
    this.name = 'BlobError';
    this.code = code;
    /** The explanation for the client; undefined: the code says it all. */
    this.explanation = explanation ?? (code === 'UNAVAILABLE' ? BUCKET_DOWN : undefined);
  }
}
