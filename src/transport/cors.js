// cors.js: which pages may read the answers of the public port
// (https://fetch.spec.whatwg.org/#http-cors-protocol).

import { originMatcher } from '../config/origins.js';

/** How long a browser keeps the answer to a preflight. */
const PREFLIGHT_S = 86_400;

/** @import { Answer } from '../protocol/refusal.js' */
/** @import { IncomingMessage } from 'node:http' */
/** @typedef {Readonly<Record<string, string>>} Headers */

/**
 * Headers for all answers.
 * @param {readonly string[]} allowedOrigins empty: all
 * @param {boolean} [allowsCredentials] from listed origins; native clients use no cookies
 * @returns {(request: Pick<IncomingMessage, 'headers'>) => Headers}
 */
export function createCorsHeaders(allowedOrigins, allowsCredentials = false) {
  const exposed = 'Fanfare-Error, Fanfare-Error-Message, Retry-After';
  if (allowedOrigins.length === 0) {
    const headers = Object.freeze({
      'Access-Control-Allow-Origin': '*',
      'Access-Control-Expose-Headers': exposed,
    });
    return () => headers;
  }
  const isAllowed = originMatcher(allowedOrigins);
  /** @type {Headers} */
  const more = allowsCredentials ? { 'Access-Control-Allow-Credentials': 'true' } : {};
  return ({ headers: { origin } }) => {
    if (origin === undefined || !isAllowed(origin)) return VARY;
    return {
      ...VARY,
      'Access-Control-Allow-Origin': origin,
      'Access-Control-Expose-Headers': exposed,
      ...more,
    };
  };
}

/** @type {Headers} */
const VARY = Object.freeze({ Vary: 'Origin' });

/**
 * Answers a browser that asks whether a page may send a request.
 * @param {Headers} common @param {string} methods @param {string} headers that it may set
 * @returns {Answer}
 */
export function preflightAnswer(common, methods, headers) {
  return {
    status: 204,
    headers: {
      ...common,
      'Access-Control-Allow-Methods': methods,
      'Access-Control-Allow-Headers': headers,
      'Access-Control-Max-Age': String(PREFLIGHT_S),
    },
    body: '',
  };
}
