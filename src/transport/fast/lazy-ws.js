// lazy-ws.js: passes a socket to ws long after its handshake, when the connection needs ws. Until
// then frame-reader.js reads frames, and the transport writes them.
//
// Private: the constructor of WebSocket without an address, and its method `setSocket`.

import { Duplex } from 'node:stream';
import { WebSocket, WebSocketServer } from 'ws';
import { takeWsListener } from './ws-listener.js';

const NOTHING = Buffer.alloc(0);

/** @import { Socket } from 'node:net' */

/**
 * @typedef {new (address: null, protocols: undefined, options: object) => WebSocket & {
 *   setSocket?: (socket: Socket, head: Buffer, options: object) => void,
 * }} Constructor
 */

/** Tries a ping and a close on a stream in memory. @returns {string} '', or the reason */
export function lazyWsFault() {
  /** @type {Buffer[]} */
  const written = [];
  const stream = new Duplex({
    read() {},
    write(bytes, _encoding, done) {
      written.push(bytes);
      done();
    },
  });
  const { options } = new WebSocketServer({ noServer: true, autoPong: false });
  const socket = /** @type {Socket} */ (/** @type {unknown} */ (stream));
  try {
    const websocket = openWebSocket(WebSocket, socket, options);
    const listener = takeWsListener(stream);
    if (listener === null) return 'ws has not exactly one listener for data';
    let pings = 0;
    websocket.on('ping', () => pings++);
    websocket.on('error', () => {});
    listener.call(stream, Buffer.from([0x89, 0x80, 0, 0, 0, 0])); // a masked, empty ping
    if (pings !== 1) return 'ws does not read the bytes that its listener gets';
    websocket.close(1000);
    return Buffer.concat(written).toString('hex') === '880203e8' ? '' : 'ws writes no close frame';
  } catch (error) {
    return `ws takes no socket without a handshake: ${error}`;
  } finally {
    stream.destroy();
  }
}

/**
 * @template {typeof WebSocket} T
 * @param {T} WebSocketClass @param {Socket} socket whose handshake is answered
 * @param {object} options of the WebSocketServer
 * @returns {InstanceType<T>} open; it listens to the socket
 * @throws {TypeError} this version of ws has another constructor, or no `setSocket`
 */
export function openWebSocket(WebSocketClass, socket, options) {
  const Class = /** @type {Constructor} */ (/** @type {unknown} */ (WebSocketClass));
  const websocket = new Class(null, undefined, options);
  const { setSocket } = websocket;
  if (setSocket === undefined) throw new TypeError('WebSocket has no method setSocket');
  setSocket.call(websocket, socket, NOTHING, options);
  return /** @type {InstanceType<T>} */ (/** @type {unknown} */ (websocket));
}
