// credentials.js: the result of checking a token.

/** @typedef {import('./claims.js').Identity} Identity */
/** @typedef {import('./session.js').Lease} Lease */

/**
 * The result of checking a token: an identity, or a refusal.
 * @typedef {object} Credentials
 * @property {Identity|null} identity
 * @property {Lease|null} lease a place among the connections of the user, to be released
 * @property {import('../protocol/refusal.js').Refusal|null} refusal
 */

export {};
