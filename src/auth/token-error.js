// token-error.js: the reasons for which a token is refused: a closed set, because it labels a
// metric. Neither message nor `cause` holds any text of the token or of a key: both may be logged.

import { REFUSALS } from '../protocol/codes.js';

/** @typedef {typeof import('../observability/counters.js').TOKEN_REFUSALS[number]} Reason */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @typedef {'INVALID_TOKEN'|'NO_APP'|'TOKEN_EXPIRED'|'UNAVAILABLE'} Code */

/** The error code of each reason, for the client. @type {Readonly<Record<Reason, Code>>} */
const REASONS = Object.freeze({
  /** longer than MAX_TOKEN_BYTES */
  oversized: 'INVALID_TOKEN',
  /** not three parts of base64url with a JSON object in the first two */
  malformed: 'INVALID_TOKEN',
  /** the configuration does not allow the algorithm, or no key fits it */
  algorithm: 'INVALID_TOKEN',
  /** the JWKS does not have the key that the token names */
  unknown_key: 'INVALID_TOKEN',
  signature: 'INVALID_TOKEN',
  expired: 'TOKEN_EXPIRED',
  /** `nbf` or `iat` lies in the future */
  not_yet_valid: 'INVALID_TOKEN',
  /** valid for longer than the configuration allows */
  lifetime: 'INVALID_TOKEN',
  audience: 'INVALID_TOKEN',
  issuer: 'INVALID_TOKEN',
  /** a claim is missing or has another shape than documented */
  claims: 'INVALID_TOKEN',
  /** a subscription token for one channel, where a connection token is needed */
  kind: 'INVALID_TOKEN',
  /** it names an app that is unknown or disabled, or its door has no apps */
  app: 'NO_APP',
  revoked: 'INVALID_TOKEN',
  /** the JWKS cannot be asked now */
  keys_unavailable: 'UNAVAILABLE',
  /** this worker does not know yet which tokens are revoked */
  revocations_unavailable: 'UNAVAILABLE',
  /** too many tokens are being verified */
  overload: 'UNAVAILABLE',
});

/** A token was refused: an error with the fields of a Refusal. @implements {Refusal} */
export class TokenError extends Error {
  /** @param {Reason} reason @param {number} [retryAfterS] for this token; 0: never */
  constructor(reason, retryAfterS = REFUSALS[REASONS[reason]].retryAfterS ?? 0) {
    super(REFUSALS[REASONS[reason]].message);
    this.name = 'TokenError';
    this.reason = reason;
    this.retryAfterS = retryAfterS;
    this.code = REASONS[reason];
  }
}
