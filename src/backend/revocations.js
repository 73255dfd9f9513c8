// revocations.js: the contract of a backend's list of revoked tokens, and its text form.
//
// The list outlives workers and servers. Workers hold a copy (auth/revocations.js) and announce
// additions with a publication of kind REVOCATION. If a worker misses one, it finds the addition at
// its next read.

/**
 * @typedef {object} Revocation exactly one of `user` and `tokenId` is a string
 * @property {string|null} user @property {string|null} tokenId
 * @property {number} issuedBeforeMs if `user` is set: tokens issued later are not revoked; if
 *   `tokenId` is set: 0
 * @property {number} keepUntilMs milliseconds since 1970; then the revocation may be forgotten
 */

/**
 * @typedef {object} RevocationStore
 * @property {(revocation: Revocation) => Promise<boolean>} add Resolves when the revocation will
 *   survive a restart of this server, with false if the list is full. Adding a revocation twice is
 *   harmless. Rejects with a BrokerError: UNAVAILABLE if it was certainly not added, else
 *   OUTCOME_UNKNOWN
 * @property {() => Promise<Revocation[]>} read resolves with all revocations in force, or rejects
 *   with a BrokerError
 */

/** In force at once. */
export const MAX_REVOCATIONS = 100_000;

/** @param {Revocation} revocation @returns {string} equal for the same user or token */
export function keyOf({ user, tokenId }) {
  return user === null ? `t${tokenId}` : `u${user}`;
}

/** @param {Revocation} revocation @returns {string} one line; equal for equal revocations */
export function encodeRevocation({ user, tokenId, issuedBeforeMs, keepUntilMs }) {
  return JSON.stringify([user, tokenId, issuedBeforeMs, keepUntilMs]);
}

/** @param {string} text @returns {Revocation|null} null: not ours, or cut off */
export function decodeRevocation(text) {
  /** @type {unknown} */
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  // A newer version may have appended fields.
  if (!Array.isArray(value) || value.length < 4) return null;
  const [user, tokenId, issuedBeforeMs, keepUntilMs] = value;
  const hasUser = typeof user === 'string' && tokenId === null;
  const hasToken = typeof tokenId === 'string' && user === null;
  if (!hasUser && !hasToken) return null;
  if (!Number.isSafeInteger(issuedBeforeMs) || !Number.isSafeInteger(keepUntilMs)) return null;
  return { user, tokenId, issuedBeforeMs, keepUntilMs };
}
