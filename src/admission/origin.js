// origin.js: checks whether pages of an origin may connect.
//
// Browsers let any page open a WebSocket to any server, and send the page's origin. A request
// without one is not from a browser: it could claim any origin, and cookies grant nothing, so it is
// admitted. Any page can have the origin `null` (a sandboxed frame, a file), so an allow-list
// cannot contain it.

import { originMatcher } from '../config/origins.js';

/**
 * @param {readonly string[]} allowedOrigins as loadConfig normalised them; empty: all
 * @returns {(origin: string|undefined) => boolean}
 */
export function createOriginCheck(allowedOrigins) {
  if (allowedOrigins.length === 0) return () => true;
  const isAllowed = originMatcher(allowedOrigins);
  return (origin) => origin === undefined || isAllowed(origin);
}
