// token-times.js: the claims `exp`, `nbf` and `iat`, for the tokens of all doors.
//
// Clocks differ. A token is accepted from LEEWAY_S before its beginning to LEEWAY_S after its end.
// If the beginning is further ahead, up to MAX_AHEAD_S, the signer's clock is probably wrong: the
// token is refused for now, and its client is told when to return.

import { claimFault, TokenError } from './token-error.js';

/** Times in a token may be off by this much. */
export const LEEWAY_S = 5;
/** A token that begins later than this is refused for good. */
export const MAX_AHEAD_S = 300;
/** The year 5138 in seconds, but 1973 in milliseconds. */
const MILLISECONDS_FROM = 1e11;

/**
 * @typedef {object} Rules
 * @property {number} maxLifetimeS Infinity: not limited
 * @property {boolean} needsEnd `exp` may not be absent @property {boolean} needsStart nor `iat`
 */

/**
 * @param {Record<string, unknown>} claims @param {number} nowS @param {Rules} rules
 * @returns {{exp: number|undefined, iat: number|undefined}} @throws {TokenError}
 */
export function readTimes(claims, nowS, { maxLifetimeS, needsEnd, needsStart }) {
  const exp = readTime(claims, 'exp');
  const nbf = readTime(claims, 'nbf');
  const iat = readTime(claims, 'iat');
  if (exp === undefined && needsEnd) throw claimFault('exp', 'it is missing');
  if (exp !== undefined && exp <= nowS - LEEWAY_S)
    throw new TokenError('expired', {
      claim: 'exp',
      why: `exp passed ${Math.floor(nowS - exp)} s ago`,
    });
  if (iat === undefined && needsStart) throw claimFault('iat', 'it is missing');
  const start = Math.max(nbf ?? 0, iat ?? 0);
  if (start > nowS + LEEWAY_S) throw notYetValid(start === iat ? 'iat' : 'nbf', start, nowS);
  if (exp !== undefined && exp - Math.min(iat ?? nowS, nowS) > maxLifetimeS + LEEWAY_S) {
    const from = iat === undefined ? 'ahead' : 'after iat';
    const lifetimeS = Math.ceil(exp - Math.min(iat ?? nowS, nowS));
    const why = `exp is ${lifetimeS} s ${from}${unitOf(exp)}, JWT_MAX_LIFETIME_S permits ${maxLifetimeS}`;
    throw new TokenError('lifetime', { claim: 'exp', why });
  }
  return { exp, iat };
}

/**
 * RFC 7519 2, NumericDate: seconds, perhaps with a fraction. In JSON, 1e999 is infinite.
 * @param {Record<string, unknown>} claims @param {string} name
 * @returns {number|undefined} @throws {TokenError}
 */
export function readTime(claims, name) {
  const value = claims[name];
  if (value === undefined) return undefined;
  if (typeof value !== 'number') throw claimFault(name, 'it is not a number');
  if (!Number.isFinite(value) || value < 0)
    throw claimFault(name, 'it is not a number of seconds since 1970');
  return value;
}

/** @param {'iat'|'nbf'} claim @param {number} start @param {number} nowS */
function notYetValid(claim, start, nowS) {
  const waitS = Math.ceil(start - LEEWAY_S - nowS);
  const why = `${claim} is ${Math.ceil(start - nowS)} s ahead of the server clock${unitOf(start)}`;
  return new TokenError('not_yet_valid', {
    ...{ claim, why },
    retryAfterS: start - nowS <= MAX_AHEAD_S ? waitS : 0,
  });
}

/** @param {number} time */
function unitOf(time) {
  return time >= MILLISECONDS_FROM ? ' (milliseconds? JWT has seconds)' : '';
}
