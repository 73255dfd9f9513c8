// tls-reset.js: resets the TCP connection below a TLS socket.
//
// Node's resetAndDestroy() refuses TLS sockets. After a plain destroy() the kernel sends the rest
// for some two minutes, so a publish of unknown outcome could take effect after later ones. Without
// this path a TLS socket is only closed.
//
// Private: `socket._handle._parent`, which is the handle of the TCP connection, and its `reset`.

/** @import { TLSSocket } from 'node:tls' */
/** @typedef {{reset?: () => void, close: () => void}} Handle */

/** @param {TLSSocket} socket connected @returns {string} why it cannot be reset, or '' */
export function tlsResetFault(socket) {
  return typeof handleBelow(socket)?.reset === 'function'
    ? ''
    : 'TLS sockets have no method _handle._parent.reset';
}

/** Destroys the socket and its unsent bytes. @param {TLSSocket} socket */
export function resetTls(socket) {
  const tcp = handleBelow(socket);
  if (typeof tcp?.reset === 'function') tcp.close = tcp.reset;
  socket.destroy();
}

/** @param {TLSSocket} socket @returns {Handle|undefined} */
function handleBelow(socket) {
  return /** @type {{_handle?: {_parent?: Handle}}} */ (/** @type {unknown} */ (socket))._handle
    ?._parent;
}
