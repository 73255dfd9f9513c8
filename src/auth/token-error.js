// token-error.js: the reasons for which a token is refused: a closed set, because it labels a
// metric. Neither message nor `why` nor `cause` holds any text of the token or of a key: all of
// them may be logged, and sent to the client.

import { REFUSALS } from '../protocol/codes.js';

/** @typedef {typeof import('../observability/counters.js').TOKEN_REFUSALS[number]} Reason */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @typedef {'INVALID_TOKEN'|'NO_APP'|'TOKEN_EXPIRED'|'TOKEN_NOT_YET_VALID'|'UNAVAILABLE'} Code */

/**
 * The error code of each reason, for the client, and its usual cause in words.
 * @type {Readonly<Record<Reason, readonly [Code, string]>>}
 */
// biome-ignore format: one row for each reason
const REASONS = Object.freeze({
  oversized: ['INVALID_TOKEN', 'it has more than 8192 bytes'],
  malformed: ['INVALID_TOKEN', 'it is not a JWT (three parts of base64url, the first two JSON objects)'],
  /** the configuration does not allow the algorithm, or no key fits it */
  algorithm: ['INVALID_TOKEN', 'its algorithm is not allowed (JWT_ALGORITHMS), or fits no configured key'],
  unknown_key: ['INVALID_TOKEN', 'the JWKS has no key with its kid and algorithm'],
  signature: ['INVALID_TOKEN', 'it was not signed with a configured key'],
  expired: ['TOKEN_EXPIRED', 'exp has passed'],
  /** `nbf` or `iat` is in the future: final only if it is by more than MAX_AHEAD_S */
  not_yet_valid: ['INVALID_TOKEN', 'nbf or iat is ahead of the server clock'],
  /** valid for longer than the configuration allows */
  lifetime: ['INVALID_TOKEN', 'it is valid for longer than JWT_MAX_LIFETIME_S permits'],
  audience: ['INVALID_TOKEN', 'aud has none of JWT_AUDIENCE'],
  issuer: ['INVALID_TOKEN', 'iss is none of JWT_ISSUER'],
  /** a claim is missing or has another shape than documented */
  claims: ['INVALID_TOKEN', 'a claim is missing or malformed'],
  kind: ['INVALID_TOKEN', 'it is a subscription token (claim channel), and a connection token is needed'],
  app: ['NO_APP', 'app is unknown or disabled, or this door has no apps'],
  revoked: ['INVALID_TOKEN', 'it has been revoked'],
  keys_unavailable: ['UNAVAILABLE', 'the JWKS cannot be read now'],
  /** this worker does not know yet which tokens are revoked */
  revocations_unavailable: ['UNAVAILABLE', 'the revocations cannot be read now'],
  overload: ['UNAVAILABLE', 'too many tokens are being verified'],
});

/** A token was refused: an error with the fields of a Refusal. @implements {Refusal} */
export class TokenError extends Error {
  /** When the token was issued; null: unknown. @type {number|null} */
  issuedAtS = null;
  /** `why`, if clients get it; '' if not. */
  told = '';

  /**
   * @param {Reason} reason
   * @param {object} [about]
   * @param {string} [about.why] the cause in words, without any text of the token
   * @param {string} [about.claim] the faulty one
   * @param {number} [about.retryAfterS] for this token; 0: never
   */
  constructor(reason, { why = REASONS[reason][1], claim = '', retryAfterS } = {}) {
    // A token that becomes valid in time is no invalid one.
    const isEarly = reason === 'not_yet_valid' && (retryAfterS ?? 0) > 0;
    const code = isEarly ? 'TOKEN_NOT_YET_VALID' : REASONS[reason][0];
    super(REFUSALS[code].message);
    this.name = 'TokenError';
    this.reason = reason;
    this.code = code;
    this.why = why;
    this.claim = claim;
    this.retryAfterS = retryAfterS ?? REFUSALS[code].retryAfterS ?? 0;
  }

  /** Notes when the token was issued. @param {unknown} iat */
  date(iat) {
    if (typeof iat === 'number') this.issuedAtS = iat;
  }

  /** Tells the client the cause as well. @returns {this} */
  tell() {
    this.told = this.why;
    this.message = `${REFUSALS[this.code].message.replace(/\.$/, '')}: ${this.why}.`;
    return this;
  }
}

/** @param {string} claim @param {string} what is wrong with it @returns {TokenError} */
export function claimFault(claim, what) {
  return new TokenError('claims', { claim, why: `claim ${claim}: ${what}` });
}
