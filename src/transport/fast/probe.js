// probe.js: a socket for guards to examine.

import { connect } from 'node:net';

/**
 * Calls back with a TCP socket that has its handle already (Node creates it at once). It is
 * destroyed before it connects, in a later step.
 * @template T @param {(socket: import('node:net').Socket) => T} look
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
