// blob-error.js: the errors of uploads. The HTTP API has a row for each code.

/** @typedef {'UNAVAILABLE'|'NO_UPLOAD'|'PAYLOAD_TOO_LARGE'|'REQUEST_TIMEOUT'} BlobCode */

export class BlobError extends Error {
  /**
   * @param {BlobCode} code
   * @param {string} message without a URL's query and without credentials
   * @param {unknown} [cause]
   */
  constructor(code, message, cause) {
    super(message, { cause });
    this.name = 'BlobError';
    this.code = code;
  }
}
