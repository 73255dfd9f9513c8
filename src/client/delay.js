// delay.js: whether and when a client reconnects.
//
// A delay from the server wins: when it drains, it spreads its clients over a window. Otherwise the
// delay is a random part of a time that doubles (full jitter), so that clients of a dead server do
// not return together.

import { INTERNAL_MS, MAX_TIMEOUT_MS, OVERLOAD_MS } from './limits.js';

/**
 * @param {number} code close code; 1006 if there was none
 * @returns {boolean} false if a new connection would end in the same way
 */
export function mayReconnect(code) {
  // The peer closed on purpose (1000, 4500 to 4999), or the client broke the protocol.
  return !/^(100[023789]|4[5-9])/.test(/** @type {any} */ (code));
}

/**
 * @param {number} attempt connections lost in a row, without this one
 * @param {object} [bounds] @param {number} [bounds.firstDelayMs] upper end of the first delay
 * @param {number} [bounds.maxDelayMs] upper end of every later one
 * @param {number} [code] the close code
 * @param {any} [retryAfterMs] the delay that the server named, if it is a number
 * @returns {number} milliseconds from the close to the next attempt
 */
export function reconnectDelay(
  attempt,
  { firstDelayMs = 1000, maxDelayMs = 30_000 } = {},
  code,
  retryAfterMs,
) {
  if (retryAfterMs >= 0) return Math.min(retryAfterMs, MAX_TIMEOUT_MS);
  const leastMs = code === 1013 ? OVERLOAD_MS : code === 1011 ? INTERNAL_MS : 0;
  const longestMs = Math.min(maxDelayMs, firstDelayMs * 2 ** attempt);
  return leastMs + Math.random() * Math.max(leastMs, longestMs);
}
