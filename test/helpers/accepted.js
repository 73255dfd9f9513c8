// accepted.js: a socket that tests hand to a transport, with the listeners of a port that has
// accepted it.

import { HANDSHAKE, listenTo, Upgraded } from '../../src/transport/accepted-socket.js';

const port = { readable() {}, ended() {}, data() {}, closed() {} };

/** @param {import('node:net').Socket} socket */
export function accepted(socket) {
  const tracked = /** @type {import('../../src/transport/accepted-socket.js').TrackedSocket} */ (
    socket
  );
  tracked[HANDSHAKE] = /** @type {any} */ (new Upgraded(port, /** @type {any} */ (null)));
  listenTo(tracked);
  return tracked;
}
