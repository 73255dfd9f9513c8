// results.js: parts that several results share.

/** @import { SubscribeResult } from './codec/messages.js' */

/** A `ttl` has 32 bits, one of them perhaps a sign in an SDK: 68 years. */
const MAX_TTL_S = 2 ** 31 - 1;

/** @param {number} endS in seconds since 1970; 0: never */
export function expiryOf(endS) {
  if (endS === 0) return {};
  const ttl = Math.ceil(endS - Date.now() / 1000);
  return { expires: true, ttl: Math.min(Math.max(1, ttl), MAX_TTL_S) };
}

/**
 * @param {{epoch: string, offset: number}|null} joined null: the channel has no history
 * @returns {SubscribeResult}
 */
export function positionOf(joined) {
  if (joined === null) return {};
  const { epoch, offset } = joined;
  return { recoverable: true, positioned: true, epoch, offset };
}
