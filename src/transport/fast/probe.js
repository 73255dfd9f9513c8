// probe.js: a socket for the guards to look at.

import { connect } from 'node:net';

/**
 * Calls back with a TCP socket that has its handle and never connects: Node makes the handle at
 * once and connects in a later step, which destroying the socket prevents.
 * @template T
 * @param {(socket: import('node:net').Socket) => T} look
 * @returns {T}
 */
export function probe(look) {
  const socket = connect({ host: '127.0.0.1', port: 1 });
  socket.on('error', () => {});
  try {
    return look(socket);
  } finally {
    socket.destroy();
  }
}
