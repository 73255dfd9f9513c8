// origin.js: may pages of this origin connect?
//
// Browsers let any page open a WebSocket to any server and say in Origin whose page it is; only the
// server can refuse. A request without an Origin is no browser's, which could claim any, and is let
// in: nothing here is granted by a cookie. `null` (a sandboxed frame, a file) is anybody's page:
// with an allow-list it is refused, and can't be listed.

/**
 * @param {readonly string[]} allowedOrigins as loadConfig normalised them; empty: all
 * @returns {(origin: string|undefined) => boolean} compares exactly, as RFC 6454 5 says, so that no
 *   suffix passes for its host
 */
export function createOriginCheck(allowedOrigins) {
  if (allowedOrigins.length === 0) return () => true;
  const allowed = new Set(allowedOrigins);
  return (origin) => origin === undefined || allowed.has(origin);
}
