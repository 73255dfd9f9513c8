// websocket.js: the WebSocket transport. `ws` keeps the rules of the protocol, this file writes
// frames, and frame-reader.js reads simple frames.
//
// The hub's frames are written past ws's sender, which would build a header for each receiver
// (socket-writer.js). ws itself writes only close frames, to the same socket, so the order holds. A
// reply has one receiver. It is built in one buffer of the process that is free again when the
// kernel has taken the bytes.
//
// frame-reader.js limits the bytes and frames of a client before ws gets them.
//
// Every listener is one shared function that finds its connection on the WebSocket, so a connection
// needs no closure.

import { WebSocket, WebSocketServer } from 'ws';
import { plainOnly, useFastPath } from '../config/fast-paths.js';
import { Connection } from '../hub/connection.js';
import { CLOSES } from '../protocol/codes.js';
import { THRESHOLD_BYTES } from '../protocol/deflate.js';
import { encodeShutdown } from '../protocol/encode.js';
import { FORMAT } from '../protocol/format.js';
import {
  frameAround,
  PING_FRAME,
  pongFrame,
  textFrame,
  writeFrameAround,
} from '../protocol/frame.js';
import { descriptorOf, directWriteFault } from './fast/direct-write.js';
import { sharedReadsFault } from './fast/shared-reads.js';
import { wsListenerFault } from './fast/ws-listener.js';
import { FeedStream } from './feed-stream.js';
import { FrameReader } from './frame-reader.js';
import { offerBytes, pendingBytesOf, queueBytes } from './socket-writer.js';

/**
 * The subprotocol that a client may ask for by name. A client that names none speaks it as well.
 */
export const SUBPROTOCOL = 'fanfare';
/** How long ws waits for the peer's close frame before it destroys the socket. */
const CLOSE_TIMEOUT_MS = 5000;
/** Pongs per second to one peer. RFC 6455 5.5.3 lets the server answer only the latest ping. */
const MAX_PONGS_PER_SECOND = 10;
/**
 * Pings in a row whose pong had no room. After that many, the server gives up a peer that never
 * reads.
 */
const MAX_UNSENT_PONGS = 60;
/**
 * Number of fragments that a message may have, plus one for each KB of the largest message.
 * Browsers and libraries cut large messages at 1,300 bytes or more.
 */
const MIN_MAX_FRAGMENTS = 64;
const BYTES_PER_FRAGMENT = 1024;
/**
 * TLS reports bytes as sent in a later step of the event loop. Without this allowance, a peer would
 * get no ping or pong in the same step as a message.
 */
const TLS_PENDING_BYTES = 65_536;
/** The buffer for replies. A longer reply gets a buffer of its own. */
const scratch = Buffer.allocUnsafeSlow(16_384);
const NOTHING = Buffer.alloc(0);

/**
 * Neither side keeps a context. That saves 118 KB per connection, and one compressed frame serves
 * all receivers. ws inflates incoming messages; protocol/deflate.js compresses outgoing frames.
 */
const DEFLATE = {
  serverNoContextTakeover: true,
  clientNoContextTakeover: true,
  threshold: THRESHOLD_BYTES,
};

/** @typedef {import('../hub/connection.js').Transport} Transport */
/** @typedef {import('node:net').Socket} Socket */

/**
 * ws's WebSocket and the hub's transport in one object, instead of two objects per connection.
 * @implements {Transport}
 */
class ServerWebSocket extends WebSocket {
  /** Given right after the upgrade. @type {Connection} */
  // @ts-expect-error: no listener runs before
  connection = undefined;
  /** @type {Socket} */
  // @ts-expect-error: the same
  socket = undefined;
  /** @type {import('../hub/slow-consumers.js').SlowConsumers} */
  // @ts-expect-error: the same
  slowConsumers = undefined;
  /** The socket's descriptor; -1 if direct writes are not possible (TLS keeps state in between). */
  descriptor = -1;
  /** @type {number} */
  format = FORMAT.FRAMES;
  /**
   * True if bytes may wait in the socket's stream. ws writes to it as well, but only close frames,
   * and nothing follows those.
   */
  mayLag = false;
  /** Bytes that wait in the socket's stream although the peer reads. */
  usualPendingBytes = 0;
  /** Null until the peer pings. @type {{second: number, sent: number, unsent: number}|null} */
  pongs = null;

  get pendingBytes() {
    return pendingBytesOf(this);
  }

  /** @param {Buffer} frames */
  write(frames) {
    const written = offerBytes(this, frames, frames.length);
    if (written < frames.length)
      queueBytes(this, written === 0 ? frames : frames.subarray(written));
  }

  /** @param {string} text */
  sendText(text) {
    this.write(textFrame(text));
  }

  /** @param {number} reconnectAfterMs */
  sendShutdown(reconnectAfterMs) {
    this.sendText(encodeShutdown(reconnectAfterMs));
  }

  /**
   * @param {Buffer} before
   * @param {Buffer} source
   * @param {number} start
   * @param {number} end
   * @param {string} after
   */
  sendAround(before, source, start, end, after) {
    const length = writeFrameAround(scratch, before, source, start, end, after);
    if (length === 0) return this.write(frameAround(before, source, start, end, after));
    const written = offerBytes(this, scratch, length);
    if (written < length) queueBytes(this, Buffer.from(scratch.subarray(written, length)));
  }

  /**
   * Closes the connection. ws calls this too, if the peer begins the close or breaks the protocol;
   * nothing follows then.
   * @override
   * @param {number} [code]
   * @param {string|Buffer} [reason]
   */
  close(code, reason) {
    this.connection?.markClosed();
    super.close(code, reason);
  }

  /** Whether the peer reads slower than the server writes. */
  get isBehind() {
    return this.pendingBytes > this.usualPendingBytes;
  }

  /** @override */
  ping() {
    // If a socket has unsent bytes, it gets no ping, because those bytes test the peer as well.
    // slow-consumers.js closes it by their age.
    if (this.connection.isOpen && !this.isBehind) this.write(PING_FRAME);
  }

  /** @override @param {Buffer} body of the peer's ping */
  pong(body) {
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

/** @typedef {import('../auth/credentials.js').Credentials} Credentials */
/**
 * Decides on a connection by its token.
 * @typedef {Pick<import('../auth/authentication.js').Authentication, 'enter'|'leave'>} Entrance
 */

export class WebSockets {
  /**
   * @param {object} parts
   * @param {import('../config/settings.js').Config} parts.config
   * @param {import('../hub/hub.js').Hub} parts.hub
   * @param {import('../commands/index.js').Commands} parts.commands
   * @param {import('../hub/heartbeat.js').Heartbeat} parts.heartbeat
   * @param {((allowance: {fullAt: number}) => boolean)|null} [parts.admitFrame] takes a token for a
   *   frame that is not a whole message; null if frames are not limited
   * @param {Entrance|null} [parts.entrance] null if no tokens are configured; every connection then
   *   belongs to the hub from its handshake on
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ config, hub, commands, heartbeat, admitFrame = null, entrance = null, counters }) {
    this.hub = hub;
    this.heartbeat = heartbeat;
    this.entrance = entrance;
    this.address = '';
    /** @type {Credentials|null} */
    this.credentials = null;
    /** @type {Socket|null} */
    this.socket = null;
    /** @type {FeedStream|null} */
    this.stream = null;
    this.counters = counters;
    this.writesDirectly = useFastPath(
      'direct_write',
      config,
      counters,
      plainOnly(config, directWriteFault),
    );
    const isShared = useFastPath(
      'shared_reads',
      config,
      counters,
      plainOnly(config, sharedReadsFault),
    );
    // If reads are not shared, Node may continue to read a paused socket, and its end would
    // overtake the bytes that wait for their turn.
    this.takesListener = useFastPath(
      'ws_listener',
      config,
      counters,
      plainOnly(config, () => (isShared ? wsListenerFault() : 'it needs shared_reads')),
    );
    const options = {
      noServer: true,
      clientTracking: false,
      perMessageDeflate: config.compression === 'on' && DEFLATE,
      maxPayload: config.maxMessageBytes,
      // RFC 6455 4.2.2: if there is no common subprotocol, the answer names none.
      handleProtocols: (/** @type {Set<string>} */ offered) =>
        offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false,
      maxFragments: Math.max(
        MIN_MAX_FRAGMENTS,
        Math.ceil(config.maxMessageBytes / BYTES_PER_FRAGMENT),
      ),
      autoPong: false, // it costs a closure per connection, and our `pong` is bounded
      closeTimeout: CLOSE_TIMEOUT_MS,
      WebSocket: ServerWebSocket,
    };
    this.server = new WebSocketServer(options);
    this.websocketOnUpgrade = this.websocketOnUpgrade.bind(this);

    // Listeners that need more than their WebSocket. Created once per server, shared by all
    // connections.
    /**
     * @param {WebSocket} websocket
     * @param {Buffer} text a part of the read: to be used before it returns
     */
    const onText = (websocket, text) => {
      const { connection } = /** @type {ServerWebSocket} */ (websocket);
      connection.markAlive();
      if (connection.isOpen) commands.receive(connection, text);
    };
    const reader = (this.reader = new FrameReader({
      maxMessageBytes: config.maxMessageBytes,
      onText,
      onFault(websocket, fault) {
        counters.readerCloses[fault]++;
        const { connection } = /** @type {ServerWebSocket} */ (websocket);
        connection.close(fault === 'overload' ? CLOSES.OVERLOAD : CLOSES.POLICY);
      },
      onWaiting(websocket) {
        // The peer's pong may be among the waiting bytes.
        /** @type {ServerWebSocket} */ (websocket).connection.markAlive();
      },
      admitFrame,
      counters,
      isShared,
    }));
    /**
     * Gets the messages that the reader left to ws.
     * @this {WebSocket}
     * @param {Buffer} data
     * @param {boolean} isBinary
     */
    this.websocketOnMessage = function websocketOnMessage(data, isBinary) {
      const { connection } = /** @type {ServerWebSocket} */ (this);
      if (!isBinary) return onText(this, data);
      connection.markAlive();
      connection.close(CLOSES.UNSUPPORTED_DATA);
    };
    /**
     * The peer broke the protocol. ws sends the right close code, and `close` follows.
     * @this {WebSocket}
     */
    this.websocketOnError = function websocketOnError() {
      reader.discard(/** @type {ServerWebSocket} */ (this).socket);
    };
    /** @this {WebSocket} */
    this.websocketOnClose = function websocketOnClose() {
      const { connection, socket } = /** @type {ServerWebSocket} */ (this);
      reader.discard(socket);
      if (entrance === null) hub.remove(connection);
      else entrance.leave(connection);
      heartbeat.remove(connection);
    };
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    this.reader.sweep(nowMs);
  }

  /**
   * Takes over a socket whose handshake has been admitted.
   * @param {import('node:http').IncomingMessage} request
   * @param {Socket} socket
   * @param {Buffer} head
   * @param {string} address the client's
   * @param {Credentials|null} [credentials] of the handshake's token
   */
  upgrade(request, socket, head, address, credentials = null) {
    // handleUpgrade calls back before it returns.
    this.address = address;
    this.credentials = credentials;
    this.socket = socket;
    if (this.takesListener)
      return this.server.handleUpgrade(request, socket, head, this.websocketOnUpgrade);
    if (head.length > 0) socket.unshift(head);
    const stream = (this.stream = new FeedStream(socket));
    this.server.handleUpgrade(request, stream, NOTHING, this.websocketOnUpgrade);
  }

  /**
   * @param {WebSocket} websocket
   * @param {import('node:http').IncomingMessage} request
   */
  websocketOnUpgrade(websocket, request) {
    const ws = /** @type {ServerWebSocket} */ (websocket);
    const connection = new Connection(ws, this.address);
    ws.connection = connection;
    const socket = (ws.socket = /** @type {Socket} */ (this.socket));
    ws.slowConsumers = this.hub.slowConsumers;
    if (this.writesDirectly) ws.descriptor = descriptorOf(socket);
    ws.mayLag = ws.socket.writableLength > 0; // the answer to the handshake
    if ('encrypted' in socket) ws.usualPendingBytes = TLS_PENDING_BYTES;
    // If the client cannot inflate with the usual window of 32 KB, it gets uncompressed frames,
    // which are always allowed.
    const offer = request.headers['sec-websocket-extensions'];
    if (ws.extensions !== '' && !offer?.includes('server_max_window_bits'))
      ws.format = FORMAT.DEFLATED;
    ws.on('message', this.websocketOnMessage);
    ws.on('ping', websocketOnPing);
    ws.on('pong', websocketOnPong);
    ws.on('error', this.websocketOnError);
    ws.on('close', this.websocketOnClose);
    if (!this.reader.attach(socket, ws, this.stream ?? socket))
      this.counters.fastPaths.ws_listener = 'ws has not exactly one listener for data';
    this.heartbeat.add(connection);
    if (this.entrance === null) this.hub.add(connection);
    else this.entrance.enter(connection, this.credentials);
  }
}

/** @this {WebSocket} @param {Buffer} body */
function websocketOnPing(body) {
  const { connection } = /** @type {ServerWebSocket} */ (this);
  connection.markAlive();
  if (connection.isOpen) this.pong(body);
}

/** @this {WebSocket} */
function websocketOnPong() {
  /** @type {ServerWebSocket} */ (this).connection.markAlive();
}
