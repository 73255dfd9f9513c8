// probe.js: a socket that the guards examine.

import { connect } from 'node:net';

/**
 * Calls back with a TCP socket that has its handle and never connects. Node creates the handle at
 * once and connects in a later step. The socket is destroyed before that step.
 * @template T @param {(socket: import('node:net').Socket) => T} look @returns {T}
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
