// results.js: parts that several results share.

/** @import { SubscribeResult } from './messages.js' */

/** @param {number} endS in seconds since 1970; 0: never */
export function expiryOf(endS) {
  if (endS === 0) return {};
  return { expires: true, ttl: Math.max(1, Math.ceil(endS - Date.now() / 1000)) };
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
