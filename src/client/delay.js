// delay.js: whether and when a client reconnects, as pure functions.
//
// The server's delay wins: after a drain it has spread its clients evenly over a window. Otherwise
// it is full jitter, a random part of a time that doubles with each attempt: with a common part,
// the clients of a dead server would return at the same time.

/** setTimeout fires at once if a delay is longer than this. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;
/** After close code 1013, overload. */
const OVERLOAD_MS = 10_000;
/** After close code 1011, internal error. */
const INTERNAL_MS = 1000;

/** The peer closed on purpose (1000, 4500 to 4999), or the client would break a rule again. */
const STOPS = /^(100[023789]|4[5-9])/;

/**
 * @param {number} code a close code; 1006 if the connection broke without one
 * @returns {boolean} false if a new connection would end in the same way
 */
export function mayReconnect(code) {
  return !STOPS.test(`${code}`);
}

/**
 * @param {object} [parts] @param {number} [parts.code] the close code
 * @param {number} [parts.attempt] connections lost in a row, without this one
 * @param {number} [parts.retryAfterMs] the delay that the server named
 * @param {number} [parts.firstDelayMs] upper end of the first delay
 * @param {number} [parts.maxDelayMs] upper end of every later one
 * @returns {number} milliseconds from the close to the next attempt
 */
export function reconnectDelay({
  code = 1006,
  attempt = 0,
  retryAfterMs = -1,
  firstDelayMs = 1000,
  maxDelayMs = 30_000,
} = {}) {
  if (retryAfterMs >= 0) return Math.min(retryAfterMs, MAX_TIMEOUT_MS);
  const leastMs = code === 1013 ? OVERLOAD_MS : code === 1011 ? INTERNAL_MS : 0;
  const longestMs = Math.min(maxDelayMs, firstDelayMs * 2 ** attempt);
  return leastMs + Math.random() * Math.max(longestMs, leastMs);
}
