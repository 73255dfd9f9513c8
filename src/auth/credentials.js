// credentials.js: the result of checking a token.

/** @typedef {import('./claims.js').Identity} Identity */
/** @typedef {import('./session.js').Lease} Lease */

/**
 * The result of checking a token: an identity, or a refusal.
 * @typedef {object} Credentials
 * @property {Identity|null} identity
 * @property {Lease|null} lease a place among the connections of the user, to be released
 * @property {Refusal|null} refusal
 */

/**
 * @typedef {object} Refusal
 * @property {import('../protocol/codes.js').ErrorCode} error
 * @property {number} retryAfterS 0: waiting does not help
 * @property {{code: number, reason: string}} close for a connection that has no other session
 * @property {string} [message] for the client, in place of that of the error
 * @property {'hooks'} [by] a hook refuses; otherwise the token is refused
 */

export {};
