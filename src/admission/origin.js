// origin.js: checks whether pages of an origin may connect.
//
// Browsers let any page open a WebSocket to any server, and send the page's origin. A request
// without one is not from a browser: it could claim any origin, and cookies grant nothing, so it is
// admitted. Any page can have the origin `null` (a sandboxed frame, a file), so an allow-list
// cannot contain it.

/**
 * @param {readonly string[]} allowedOrigins as loadConfig normalised them; empty: all
 * @returns {(origin: string|undefined) => boolean} compares exactly (RFC 6454 5)
 */
export function createOriginCheck(allowedOrigins) {
  if (allowedOrigins.length === 0) return () => true;
  const allowed = new Set(allowedOrigins);
  return (origin) => origin === undefined || allowed.has(origin);
}
