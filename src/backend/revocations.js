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
 * @property {number} keepUntilMs milliseconds since 1970; then the revocation may be forgotten. From
 *   KEPT_MS on: see there
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

/** The most revocations in force at once. */
export const MAX_REVOCATIONS = 100_000;

/**
 * Added to the time of a revocation that is kept past it, because tokens that it refuses may have
 * no end, or one that does not tell their age. It leaves only when a full list needs a place. As a
 * time it is in the year 128,000, so stores need no second field, and older servers keep it, too.
 */
export const KEPT_MS = 4e15;
/** Kept always: a full list refuses new revocations instead. */
export const KEPT_ALWAYS_MS = 2 * KEPT_MS;
/** Places that a full list makes at once. */
const MAX_FORGOTTEN = 1000;

/**
 * May a full list forget it?
 * @param {Revocation} revocation @param {number} nowMs
 */
export function mayMakeRoom({ keepUntilMs }, nowMs) {
  return (keepUntilMs < KEPT_MS ? keepUntilMs : keepUntilMs - KEPT_MS) <= nowMs;
}

/**
 * Makes room in a full list: forgets those whose time is over or, if there are none, some that were
 * kept past it: those that were added first.
 * @param {Map<string, Revocation>} known @param {number} nowMs
 */
export function makeRoom(known, nowMs) {
  const { size } = known;
  for (const [key, { keepUntilMs }] of known) if (keepUntilMs <= nowMs) known.delete(key);
  if (known.size < size) return;
  let forgotten = 0;
  for (const [key, one] of known) {
    if (!mayMakeRoom(one, nowMs)) continue;
    known.delete(key);
    if (++forgotten >= MAX_FORGOTTEN) return;
  }
}

/** @param {Revocation} revocation @returns {string} equal for the same user or token */
export function revocationKey({ user, tokenId }) {
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
