// ws-listener.js: takes ws's `data` listener of a socket, which the frame reader then calls with
// the socket as `this`.
//
// Private: ws has exactly one `data` listener on its socket, and is fed by calling it.

import { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';

/** @typedef {(this: Duplex, bytes: Buffer) => void} DataListener */

/** Tries a ping on a stream in memory. @returns {string} '', or the reason */
export function wsListenerFault() {
  const stream = new Duplex({ read() {}, write: (_bytes, _encoding, done) => done() });
  const headers = {
    upgrade: 'websocket',
    connection: 'upgrade',
    'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
    'sec-websocket-version': '13',
  };
  const request = /** @type {import('node:http').IncomingMessage} */ (
    /** @type {unknown} */ ({ method: 'GET', url: '/', headers })
  );
  let fault = 'ws does not complete a handshake at once';
  const server = new WebSocketServer({ noServer: true, autoPong: false });
  server.handleUpgrade(request, stream, Buffer.alloc(0), (websocket) => {
    const listener = takeWsListener(stream);
    fault = 'ws has not exactly one listener for data';
    if (listener === null) return;
    fault = 'ws does not read the bytes that its listener gets';
    websocket.on('ping', () => {
      fault = '';
    });
    websocket.on('error', () => {});
    listener.call(stream, Buffer.from([0x89, 0x80, 0, 0, 0, 0])); // a masked, empty ping
  });
  stream.destroy();
  return fault;
}

/**
 * @param {Duplex} socket that ws reads
 * @returns {DataListener|null} null: nothing has changed, because ws reads in another way
 */
export function takeWsListener(socket) {
  const listeners = /** @type {DataListener[]} */ (socket.listeners('data'));
  if (listeners.length !== 1) return null;
  socket.removeListener('data', listeners[0]);
  return listeners[0];
}
