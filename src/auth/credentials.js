// credentials.js: the result of checking a token.

/** @import { Identity } from './claims.js' */
/** @import { Lease } from './session.js' */

/**
 * The result of checking a token: an identity, or a refusal.
 * @typedef {object} Credentials
 * @property {Identity|null} identity
 * @property {Lease|null} lease a place among the connections of the user, to be released
 * @property {import('../protocol/refusal.js').Refusal|null} refusal
 */

export {};
