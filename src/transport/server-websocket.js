// server-websocket.js: the hub's transport on a socket, with or without a WebSocket of ws.
//
// The hub's frames are written past ws's sender, which would build a header for each receiver
// (socket-writer.js). All replies are built in one buffer, which is free again once the kernel has
// taken the bytes.
//
// The handshake decides for the life of a connection whether it has a WebSocket of ws: with an
// extension it has one, which reads frames and closes. ws writes only close frames, to the same
// socket, so the order is kept. All other connections close here (RFC 6455 7):
//
//           close(), the peer's close frame, a protocol error
//   OPEN ------------------------------------------------------> CLOSING ---> CLOSED
//        send the close frame                the socket is closed, by the peer or after 5 s
//
// Listeners are shared functions that find their connection on `this`, which saves closures.

import { WebSocket } from 'ws';
import { Connection } from '../hub/connection.js';
import {
  closeFrame,
  closeFrameOf,
  frameAround,
  PING_FRAME,
  pongFrame,
  textFrame,
  writeFrameAround,
} from '../protocol/frame.js';
import { TRANSPORT } from './accepted-socket.js';
import { lendDescriptor } from './fast/direct-write.js';
import { offerBytes, pendingBytesOf, queueBytes, whenDrained } from './socket-writer.js';

/** Pongs per second to one peer. RFC 6455 5.5.3 lets the server answer only the latest ping. */
const MAX_PONGS_PER_SECOND = 10;
/** After this many pings in a row without room for a pong, the server closes the socket. */
const MAX_UNSENT_PONGS = 60;
/** TLS reports bytes as sent one step late, and they must not hold back a ping or pong. */
const TLS_PENDING_BYTES = 65_536;
/** The buffer for replies. A longer reply gets a buffer of its own. */
const scratch = Buffer.allocUnsafeSlow(16_384);

/** @import { Transport } from '../hub/connection.js' */
/** @import { Door } from '../hub/door.js' */
/** @typedef {import('node:net').Socket & {[TRANSPORT]?: ServerWebSocket}} Socket */
/**
 * The parts that all WebSockets share.
 * @typedef {object} Owner
 * @property {boolean} writesDirectly @property {import('../hub/hub.js').Hub} hub
 * @property {import('./deadlines.js').Deadlines<ServerWebSocket>} closing without ws
 * @property {(socket: Socket) => boolean} delaysEnd true: bytes wait, and `ended` is called again
 * @property {(websocket: ServerWebSocket, text: Buffer) => void} onText
 * @property {(websocket: ServerWebSocket, bytes: Buffer) => void} onBinary
 * @property {(socket: Socket) => void} discardReads drops further bytes
 * @property {(websocket: ServerWebSocket) => void} closed
 */

export class WsPart extends WebSocket {
  /** Null until the handshake is answered. @type {ServerWebSocket|null} */
  transport = null;

  /** @param {ServerWebSocket} transport */
  setTransport(transport) {
    this.transport = transport;
  }

  /**
   * Nothing may follow. ws calls it, too, when the peer closes or breaks the protocol.
   * @override @param {number} [code] @param {string|Buffer} [reason]
   */
  close(code, reason) {
    this.transport?.connection.markClosed();
    super.close(code, reason);
  }
}

/** @implements {Transport} */
export class ServerWebSocket {
  /**
   * @param {Owner} owner @param {Socket} socket whose handshake is answered, or soon will be
   * @param {string} address the client's @param {Door} door
   */
  constructor(owner, socket, address, door) {
    this.owner = owner;
    this.door = door;
    this.socket = socket;
    socket[TRANSPORT] = this;
    /** @type {Connection} */
    this.connection = new Connection(this, address);
    /** Null for life, or set at the handshake. @type {WsPart|null} */
    this.ws = null;
    /** The state of a connection without ws, as ws numbers it. @type {number} */
    this.state = WebSocket.OPEN;
    /** -1 if direct writes are not possible, as with TLS. @type {number} */
    this.descriptor = owner.writesDirectly ? lendDescriptor(socket) : -1;
    /** @type {number} */
    this.format = door.format;
    /** May bytes wait in the socket's stream? (Close frames of ws do not count.) */
    this.mayLag = false;
    /** Bytes that may wait in the stream although the peer reads. */
    this.usualPendingBytes = 'encrypted' in socket ? TLS_PENDING_BYTES : 0;
    /** Null until the peer pings. @type {{second: number, sent: number, unsent: number}|null} */
    this.pongs = null;
  }

  /** @param {WsPart} ws that listens to the socket @param {number} [format] of the frames */
  setWs(ws, format = this.format) {
    this.format = format;
    this.mayLag ||= this.socket.writableLength > 0; // ws may have answered the handshake
    this.ws = ws;
    ws.setTransport(this);
    ws.on('message', websocketOnMessage);
    ws.on('ping', websocketOnPing);
    ws.on('pong', websocketOnPong);
    ws.on('error', websocketOnError);
    ws.on('close', websocketOnClose);
  }

  /** The peer sends no more. (ws listens itself.) */
  ended() {
    if (this.owner.delaysEnd(this.socket)) return;
    this.state = WebSocket.CLOSING;
    this.socket.end();
  }

  /** The socket is closed; ws emits its own `close`. */
  closed() {
    if (this.ws !== null) return;
    this.state = WebSocket.CLOSED;
    this.owner.closed(this);
  }

  get slowConsumers() {
    return this.owner.hub.slowConsumers;
  }

  /** @returns {number} */
  get pendingBytes() {
    return pendingBytesOf(this);
  }

  /** The state, as ws numbers it. @returns {number} */
  get readyState() {
    return this.ws === null ? this.state : this.ws.readyState;
  }

  /** @param {Buffer} frames */
  write(frames) {
    const written = offerBytes(this, frames, frames.length);
    if (written < frames.length)
      queueBytes(this, written === 0 ? frames : frames.subarray(written));
  }

  /** @param {() => void} act */
  whenDrained(act) {
    whenDrained(this, act);
  }

  /** @param {string} text */
  sendText(text) {
    this.write(textFrame(text));
  }

  /** @param {Buffer} message which the door frames */
  sendBytes(message) {
    if (this.door.frame !== undefined) this.write(this.door.frame(message));
  }

  /** @param {number} reconnectAfterMs */
  sendShutdown(reconnectAfterMs) {
    const text = this.door.encodeShutdown(reconnectAfterMs);
    if (text !== null) this.sendText(text);
    return text !== null;
  }

  /** @type {Transport['sendAround']} */
  sendAround(before, source, start, end, after) {
    const length = writeFrameAround(scratch, before, source, start, end, after);
    if (length === 0) return this.write(frameAround(before, source, start, end, after));
    const written = offerBytes(this, scratch, length);
    if (written < length) queueBytes(this, Buffer.from(scratch.subarray(written, length)));
  }

  /** Sends the answer to the handshake. @param {string} head ASCII */
  sendHead(head) {
    const length = scratch.write(head, 'latin1');
    const written = offerBytes(this, scratch, length);
    if (written === length) return;
    this.mayLag = true;
    this.socket.write(Buffer.from(scratch.subarray(written, length)));
  }

  /** @param {number} [code] @param {string|Buffer} [reason] */
  close(code, reason) {
    if (this.ws !== null) return this.ws.close(code, reason);
    this.#close(closeFrame(code, reason));
  }

  /** The peer has closed. @param {Buffer} body of its frame, valid: the answer has the same */
  answerClose(body) {
    this.#close(closeFrameOf(body));
    this.socket.end();
  }

  /** The peer has broken the protocol. @param {number} code */
  refuse(code) {
    this.#close(closeFrame(code));
    this.socket.end();
  }

  /** Sends a close frame, unless the connection is closing already. @param {Buffer} frame */
  #close(frame) {
    this.connection.markClosed();
    if (this.state !== WebSocket.OPEN) return;
    this.state = WebSocket.CLOSING;
    const written = offerBytes(this, frame, frame.length);
    if (written < frame.length) this.socket.write(frame.subarray(written));
    this.owner.closing.add(this);
  }

  /** @param {unknown} error */
  failed(error) {
    this.owner.hub.onFailed(this.connection, error);
  }

  terminate() {
    if (this.ws !== null) return this.ws.terminate();
    this.state = WebSocket.CLOSING;
    this.socket.destroy();
  }

  get isBehind() {
    return this.pendingBytes > this.usualPendingBytes;
  }

  ping() {
    // Unsent bytes test the peer as well as a ping: slow-consumers.js closes the connection if they
    // get too old, or if the kernel takes none of them.
    const { door, connection } = this;
    if (this.isBehind) connection.markAlive();
    else if (!connection.isOpen) return;
    else if (door.ping === undefined) this.write(PING_FRAME);
    else if (!door.ping(connection)) connection.markAlive();
  }

  /** @param {Buffer} body of the peer's ping */
  onPing(body) {
    this.connection.markAlive();
    if (this.connection.isOpen) this.#pong(body);
  }

  onPong() {
    this.connection.markAlive();
  }

  /** @param {Buffer} body */
  #pong(body) {
    this.pongs ??= { second: 0, sent: 0, unsent: 0 };
    const { pongs } = this;
    if (this.isBehind) {
      if (++pongs.unsent > MAX_UNSENT_PONGS) this.terminate();
      return;
    }
    pongs.unsent = 0;
    const second = Math.floor(performance.now() / 1000);
    if (second !== pongs.second) {
      pongs.second = second;
      pongs.sent = 0;
    }
    if (++pongs.sent <= MAX_PONGS_PER_SECOND) this.write(pongFrame(body));
  }
}

/** @this {WebSocket} @param {Buffer} data @param {boolean} isBinary */
function websocketOnMessage(data, isBinary) {
  const { transport } = /** @type {WsPart} */ (this);
  if (transport === null) return;
  if (isBinary) transport.owner.onBinary(transport, data);
  else transport.owner.onText(transport, data);
}

/** The peer broke the protocol: ws sends the close code, then emits `close`. @this {WebSocket} */
function websocketOnError() {
  const { transport } = /** @type {WsPart} */ (this);
  if (transport !== null) transport.owner.discardReads(transport.socket);
}

/** @this {WebSocket} @param {Buffer} body */
function websocketOnPing(body) {
  /** @type {WsPart} */ (this).transport?.onPing(body);
}

/** @this {WebSocket} */
function websocketOnPong() {
  /** @type {WsPart} */ (this).transport?.onPong();
}

/** @this {WebSocket} */
function websocketOnClose() {
  const { transport } = /** @type {WsPart} */ (this);
  transport?.owner.closed(transport);
}
