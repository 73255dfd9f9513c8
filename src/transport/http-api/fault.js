// fault.js: a refusal of the HTTP API, and the answer that it becomes.

import { API_ERRORS } from '../../protocol/codes.js';

/** Seconds after which a request that met a busy server is worth a retry. */
const RETRY_S = 1;

/** @typedef {import('../../protocol/codes.js').ApiErrorCode} ApiErrorCode */

/** A handler throws it to refuse a request. */
export class ApiFault extends Error {
  /**
   * @param {ApiErrorCode} code
   * @param {{field?: string, retryAfterS?: number}} [details] `field`: the faulty field of the body
   */
  constructor(code, { field, retryAfterS } = {}) {
    super(API_ERRORS[code].message);
    this.name = 'ApiFault';
    this.code = code;
    this.field = field;
    this.retryAfterS = retryAfterS ?? (code === 'UNAVAILABLE' ? RETRY_S : 0);
  }

  get status() {
    return API_ERRORS[this.code].status;
  }

  /** The fields `error` and `message`, and `field` if there is one. */
  toJSON() {
    return { error: this.code, message: this.message, field: this.field };
  }

  /** @returns {{status: number, headers: Record<string, string>, body: string}} */
  toAnswer() {
    /** @type {Record<string, string>} */
    const headers = {};
    if (this.retryAfterS > 0) headers['Retry-After'] = String(this.retryAfterS);
    if (this.code === 'UNAUTHORIZED') headers['WWW-Authenticate'] = 'Bearer'; // RFC 9110 15.5.2
    return { status: this.status, headers, body: JSON.stringify(this) };
  }
}

/** Errors of the backend and of the bucket that have a row of their own. */
const KNOWN_CODES = new Set([
  'UNAVAILABLE',
  'OUTCOME_UNKNOWN',
  'IDEMPOTENCY_CONFLICT',
  'NO_UPLOAD',
  'PAYLOAD_TOO_LARGE',
  'REQUEST_TIMEOUT',
]);

/**
 * Turns an error of the backend or the bucket into a refusal.
 * @param {unknown} error
 * @param {{error(fields: object, text: string): void}} log for errors that nobody expects
 * @returns {ApiFault}
 */
export function faultOf(error, log) {
  if (error instanceof ApiFault) return error;
  const { code = '' } = /** @type {{code?: string}} */ (error);
  if (KNOWN_CODES.has(code)) return new ApiFault(/** @type {ApiErrorCode} */ (code));
  log.error({ err: error }, 'HTTP API: a request failed');
  return new ApiFault('INTERNAL_ERROR');
}
