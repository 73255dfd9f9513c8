// fault.js: refusals of the HTTP API.

import { nearest } from '../../config/nearest.js';
import { API_ERRORS } from '../../protocol/codes.js';
import { toHttp } from '../../protocol/refusal.js';

/** @import { ApiErrorCode } from '../../protocol/codes.js' */
/** @import { Position } from '../../protocol/position.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */

/** A handler throws it to refuse a request. @implements {Refusal} */
export class ApiFault extends Error {
  /**
   * @param {ApiErrorCode} code
   * @param {{field?: string, message?: string, retryAfterS?: number, position?: Position}} [details]
   *   `field`: the faulty field of the body, parameter of the query or header; `message`: in place
   *   of that of the code; `position`: with CONFLICT
   */
  constructor(code, { field, message, retryAfterS, position } = {}) {
    super(message ?? API_ERRORS[code].message);
    this.name = 'ApiFault';
    this.code = code;
    this.field = field;
    this.position = position;
    this.retryAfterS = retryAfterS ?? API_ERRORS[code].retryAfterS ?? 0;
  }
}

/** @param {string} what a field, parameter, header @param {string} rule what is allowed */
export function ruleText(what, rule) {
  return `${what}: ${rule}.`;
}

/** @param {string} name of a parameter or a header @param {string} rule @returns {ApiFault} */
export function badValue(name, rule) {
  return new ApiFault('INVALID_REQUEST', { field: name, message: ruleText(name, rule) });
}

/** @returns {ApiFault} in place of an answer that may lack something */
export function incomplete() {
  const message = 'Not known: a worker has not answered. Try again.';
  return new ApiFault('UNAVAILABLE', { message });
}

/**
 * A route that changes nothing: while the broker is unavailable, there is nothing that was "not
 * accepted".
 * @template C, R @param {(call: C) => Promise<R>} handle @returns {(call: C) => Promise<R>}
 */
export function asRead(handle) {
  return async (call) => {
    try {
      return await handle(call);
    } catch (error) {
      const { name, code } = /** @type {Error & {code?: string}} */ (error);
      if (name !== 'BrokerError' || code !== 'UNAVAILABLE') throw error;
      const message = 'Not known: the server or its broker is unavailable. Try again.';
      throw Object.assign(new ApiFault('UNAVAILABLE', { message }), { cause: error });
    }
  };
}

/**
 * @param {string} kind of the name: field, parameter @param {string} name that the request has
 * @param {readonly string[]} known names
 */
export function unknownText(kind, name, known) {
  const meant = nearest(name, known);
  const hint =
    meant !== ''
      ? ` Did you mean ${meant}?`
      : known.length === 0
        ? ' There are none.'
        : ` The ${kind}s are ${known.join(', ')}.`;
  return `Unknown ${kind} ${name}.${hint}`;
}

/** The status for other doors, which lack the header that says how to authenticate here. @param {ApiFault} fault */
export function statusOf(fault) {
  const { status, headers: all } = toHttp(fault);
  const { 'WWW-Authenticate': _, ...headers } = all;
  return { status, headers };
}

/** Errors of the backend and of the bucket that have a row of their own. */
const KNOWN_CODES = new Set([
  'UNAVAILABLE',
  'OUTCOME_UNKNOWN',
  'IDEMPOTENCY_CONFLICT',
  'CONFLICT',
  'STATE_FULL',
  'NO_UPLOAD',
  'PAYLOAD_TOO_LARGE',
  'REQUEST_TIMEOUT',
]);

/**
 * Turns an error of the backend or the bucket into a refusal. Its `explanation` is for the client.
 * @param {unknown} error
 * @param {{error(fields: object, text: string): void}} log for errors that nobody expects
 * @returns {ApiFault}
 */
export function faultOf(error, log) {
  if (error instanceof ApiFault) return error;
  const {
    code = '',
    explanation: message,
    position,
  } = /** @type {{code?: string, explanation?: string, position?: Position}} */ (error);
  if (KNOWN_CODES.has(code))
    return new ApiFault(/** @type {ApiErrorCode} */ (code), { message, position });
  // A door's client publishes to a room with state.
  if (code === 'INVALID_MESSAGE_FORMAT') return invalidKey(/** @type {Error} */ (error).message);
  log.error({ err: error }, 'HTTP API: a request failed');
  return new ApiFault('INTERNAL_ERROR');
}

/**
 * A message that its room does not take.
 * @param {Refusal} refused by MessageRules @param {string} [path] of its fields in the body
 */
export function messageFault({ code, message, field = 'payload' }, path = '') {
  return code === 'MESSAGE_TOO_LARGE'
    ? new ApiFault('PAYLOAD_TOO_LARGE', { message })
    : new ApiFault('INVALID_FIELD', {
        field: path + field,
        message: `${path}${field}: ${message}`,
      });
}

/** @param {string} rule */
function invalidKey(rule) {
  return new ApiFault('INVALID_FIELD', { field: 'key', message: ruleText('key', rule) });
}
