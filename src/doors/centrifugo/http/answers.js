// answers.js: the errors of Centrifugo's server API, as its SDKs read them.

import { ApiFault, faultOf, statusOf } from '../../../transport/http-api/fault.js';
import { DoorError } from '../codec/errors.js';

/** The codes of our own faults. Others are 107. */
const CODES = /** @type {Readonly<Record<string, number>>} */ (
  Object.freeze({
    UNAUTHORIZED: 101,
    NOT_FOUND: 104,
    METHOD_NOT_ALLOWED: 104,
    NO_HISTORY: 108,
    NO_PRESENCE: 108,
    RATE_LIMIT_EXCEEDED: 111,
    IDEMPOTENCY_CONFLICT: 113,
    INTERNAL_ERROR: 100,
    UNAVAILABLE: 100,
    OUTCOME_UNKNOWN: 100,
    REQUEST_TIMEOUT: 100,
  })
);
/** Statuses in the error mode `transport`. Others are 500. */
const STATUSES = /** @type {Readonly<Record<number, number>>} */ (
  Object.freeze({ 102: 404, 104: 404, 107: 400, 108: 400, 112: 416, 113: 409 })
);
const BAD_REQUEST = 107;

/** @import { Answer } from '../../../protocol/refusal.js' */
/** @import { Log } from '../../../transport/http-api/call.js' */
/** @typedef {{code: number, message: string}} ErrorBody */

/** Ends a request with another status than 200. */
export class StatusFault extends ApiFault {
  /** @param {ErrorBody} error */
  constructor(error) {
    super('INVALID_REQUEST', { message: error.message });
    this.error = error;
    this.status = STATUSES[error.code] ?? 500;
  }
}

/**
 * Any status but 200: HTTP itself, the key, a limit, or what is no JSON.
 * @param {ApiFault} fault @returns {Answer}
 */
export function toAnswer(fault) {
  if (fault instanceof StatusFault)
    return { status: fault.status, headers: {}, body: JSON.stringify(fault.error) };
  const { status, headers } = statusOf(fault);
  return { status, headers, body: JSON.stringify({ error: bodyOf(fault) }) };
}

/** Does the status tell it in each mode? @param {unknown} error @returns {error is ApiFault} */
export function hasStatus(error) {
  return (
    error instanceof ApiFault &&
    (error.code === 'INVALID_JSON' || error.code === 'RATE_LIMIT_EXCEEDED')
  );
}

/** @param {unknown} error that a method has thrown @param {Log} log @returns {ErrorBody} */
export function errorOf(error, log) {
  if (error instanceof DoorError) return { code: error.code, message: error.message };
  return bodyOf(faultOf(error, log));
}

/** @param {ApiFault} fault @returns {ErrorBody} */
function bodyOf({ code, message }) {
  return { code: CODES[code] ?? BAD_REQUEST, message };
}
