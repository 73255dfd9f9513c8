// http-listeners.js: takes the listeners through which Node's HTTP server reads a socket.
//
// The public port decides when a new socket is read and how many bytes the parser gets at once. It
// calls the server's own `connection` listener, then the `data` listener that this one sets.
//
// Private: an HTTP server has exactly one `connection` listener of its own, and that listener sets
// exactly one `data` listener on the socket, which works without a `this`.

import { Duplex } from 'node:stream';
import { createServer } from '../node-http.js';

/** @import { Server } from 'node:http' */
/** @import { Duplex as Stream } from 'node:stream' */
/** @typedef {(this: Server, socket: Stream) => void} ConnectionListener */
/** @typedef {(bytes: Buffer) => void} Parse */

/** Tries a request on a stream in memory. @returns {string} '', or the reason */
export function httpListenersFault() {
  let fault = 'the HTTP server does not parse what its listener gets';
  const server = createServer((_request, response) => {
    fault = '';
    response.end();
  });
  const connect = takeConnectionListener(server);
  if (connect === null) return 'HTTP servers have not exactly one listener for connections';
  const stream = new Duplex({ read() {}, write: (_bytes, _encoding, done) => done() });
  const parse = speakHttp(server, connect, stream);
  if (parse === null) return 'HTTP servers have not exactly one listener for data';
  parse(Buffer.from('GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'));
  stream.destroy();
  return fault;
}

/**
 * Removes a server's own listener for connections, and returns it.
 * @param {Server} server as Node created it
 * @returns {ConnectionListener|null} null: nothing has changed
 */
export function takeConnectionListener(server) {
  const listeners = /** @type {ConnectionListener[]} */ (server.listeners('connection'));
  if (listeners.length !== 1) return null;
  server.removeListener('connection', listeners[0]);
  return listeners[0];
}

/**
 * Starts HTTP on a socket. It reads the bytes that are passed to the returned function.
 * @param {Server} server @param {ConnectionListener} connect the server's
 * @param {Stream} socket without a listener for data
 * @returns {Parse|null} null: the socket speaks HTTP, but has not exactly one listener for data
 */
export function speakHttp(server, connect, socket) {
  connect.call(server, socket);
  const listeners = /** @type {Parse[]} */ (socket.listeners('data'));
  if (listeners.length !== 1) return null;
  socket.removeListener('data', listeners[0]);
  return listeners[0];
}
