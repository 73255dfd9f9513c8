// token-place.js: finds the token of a handshake.
//
//   Authorization: Bearer <token>
//   Sec-WebSocket-Protocol: fanfare, fanfare.token.<token>     browsers can set no other header
//   /ws?token=<token>                                          ends up in logs
//
// If there are several, the first of these places counts. A token may also come in `hello`.

const BEARER = /^Bearer +([^ ]+) *$/i;
const SUBPROTOCOL_PREFIX = 'fanfare.token.';

/** @param {{headers: import('node:http').IncomingHttpHeaders, url?: string}} request */
export function tokenOf({ headers, url = '' }) {
  const bearer = BEARER.exec(headers.authorization ?? '');
  if (bearer !== null) return bearer[1];
  const offered = headers['sec-websocket-protocol'];
  if (offered?.includes(SUBPROTOCOL_PREFIX)) {
    for (const name of offered.split(',')) {
      const trimmed = name.trim();
      if (trimmed.startsWith(SUBPROTOCOL_PREFIX)) return trimmed.slice(SUBPROTOCOL_PREFIX.length);
    }
  }
  const query = url.indexOf('?');
  if (query < 0 || !url.includes('token=', query)) return null;
  return new URLSearchParams(url.slice(query + 1)).get('token');
}
