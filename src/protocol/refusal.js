// refusal.js: a refusal as HTTP answer, error reply or close, by its row in codes.js.

import { CLOSES, REFUSALS } from './codes.js';

/** @import { RefusalCode } from './codes.js' */
/** @import { Position } from './position.js' */
/** @typedef {{status: number, headers: Readonly<Record<string, string>>, body: string}} Answer */

/**
 * @typedef {object} Refusal
 * @property {RefusalCode} code
 * @property {number} retryAfterS whole seconds; 0: waiting does not help
 * @property {string} message for the client
 * @property {string} [field] the faulty one, in an HTTP answer
 * @property {Position} [position] the room's, with CONFLICT
 */

/**
 * @param {RefusalCode} code @param {string} [message] instead of the usual one
 * @param {number} [retryAfterS] the same @returns {Refusal}
 */
export function refusal(
  code,
  message = REFUSALS[code].message,
  retryAfterS = REFUSALS[code].retryAfterS ?? 0,
) {
  return { code, retryAfterS, message };
}

/**
 * Up to doubles the time, so that refused clients do not return together.
 * @param {Refusal} refused @param {() => number} [random] @returns {Refusal}
 */
export function spread({ code, retryAfterS, message }, random = Math.random) {
  const extraS = retryAfterS === 0 ? 0 : Math.floor(random() * (retryAfterS + 1));
  return { code, retryAfterS: retryAfterS + extraS, message };
}

/**
 * Names the error. Clients know by it that Fanfare has answered, and not a proxy, so they may stop
 * if there is no `Retry-After`.
 */
export const ERROR_HEADER = 'Fanfare-Error';

/** The value of the field `error`. @param {Pick<Refusal, 'code'>} refused */
export function errorOf({ code }) {
  return REFUSALS[code].error ?? code;
}

/** @param {Refusal} refused @returns {Answer} */
export function toHttp({ code, retryAfterS, message, field, position }) {
  const { status = 400, headers: usual } = REFUSALS[code];
  /** @type {Record<string, string>} */
  const headers = { ...usual, [ERROR_HEADER]: errorOf({ code }) };
  if (retryAfterS > 0) headers['Retry-After'] = String(retryAfterS);
  if (status === 401) headers['WWW-Authenticate'] = 'Bearer'; // RFC 9110 15.5.2
  const body = JSON.stringify({ error: errorOf({ code }), message, field, position });
  return { status, headers, body };
}

/**
 * @param {Refusal} refused
 * @param {string|number|undefined} id of the command; undefined: it has none
 * @param {number} timestamp ms since 1970
 */
export function toReply({ code, retryAfterS, message, position }, id, timestamp) {
  const error = errorOf({ code });
  const retryAfter = retryAfterS || undefined;
  return JSON.stringify({ type: 'error', error, message, position, retryAfter, id, timestamp });
}

const NUMBER = new Intl.NumberFormat('en');

/** @param {number} number @returns {string} with commas: 102,400 */
export function numberText(number) {
  return NUMBER.format(number);
}

/**
 * What a refusal for a size says.
 * @param {string} what @param {number|null} bytes null: not known, because the rest was not read
 * @param {number} max @param {string} setting
 */
export function sizeText(what, bytes, max, setting) {
  const size = bytes === null ? 'is over' : `has ${numberText(bytes)} bytes, over`;
  return `${what} ${size} the limit of ${numberText(max)} bytes (${setting}).`;
}

/** Shows what a client has sent in a message for it. @param {string} text */
export function quoted(text) {
  return JSON.stringify(text.length > MAX_QUOTED ? `${text.slice(0, MAX_QUOTED)}…` : text);
}

const MAX_QUOTED = 64;

/** @param {Pick<Refusal, 'code'>} refused */
export function toClose({ code }) {
  return REFUSALS[code].close ?? CLOSES.INTERNAL;
}
