// websocket.js: answers handshakes of WebSockets, and has the parts that all of them share.
//
// If the client offers no extension, this file answers, and the connection never needs `ws`
// (server-websocket.js). Otherwise `ws` negotiates and answers, and handles the client's frames.

import { hash } from 'node:crypto';
import { WebSocketServer } from 'ws';
import { plainOnly, useFastPath } from '../config/fast-paths.js';
import { CLOSES } from '../protocol/codes.js';
import { THRESHOLD_BYTES } from '../protocol/deflate.js';
import { FORMAT } from '../protocol/format.js';
import { leaveToWs } from './accepted-socket.js';
import { Deadlines } from './deadlines.js';
import { directWriteFault } from './fast/direct-write.js';
import { sharedReadsFault } from './fast/shared-reads.js';
import { FeedStream } from './feed-stream.js';
import { FrameReader } from './frame-reader.js';
import { ServerWebSocket, WsPart } from './server-websocket.js';

/** How long a closed connection waits for the peer to close before its socket is destroyed. */
const CLOSE_TIMEOUT_MS = 5000;
/** A message may have this many fragments, or one for each KB of the largest message. */
const MIN_MAX_FRAGMENTS = 64;
/** Clients cut at 1,300 bytes or more. */
const BYTES_PER_FRAGMENT = 1024;
/** RFC 6455 1.3 */
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
/** A plain list of subprotocols. */
const PROTOCOLS = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+(?:, ?[!#$%&'*+\-.^_`|~0-9A-Za-z]+)*$/;
const NOTHING = Buffer.alloc(0);

/** The close for each fault of the reader. @type {Readonly<Record<import('./frame-reader.js').Fault, import('../protocol/codes.js').Close>>} */
const CLOSE_OF = Object.freeze({
  flood: CLOSES.POLICY,
  unfinished: CLOSES.CLIENT_TIMEOUT,
  overload: CLOSES.OVERLOAD,
});

/**
 * A connection without context takeover needs 118 KB less, and all receivers share one compressed
 * frame. ws inflates incoming messages; protocol/deflate.js compresses outgoing frames.
 */
const DEFLATE = {
  serverNoContextTakeover: true,
  clientNoContextTakeover: true,
  threshold: THRESHOLD_BYTES,
};

/** @import { Credentials } from '../auth/credentials.js' */
/** @import { Config } from '../config/settings.js' */
/** @import { Door } from '../hub/door.js' */
/** @import { IncomingMessage } from 'node:http' */
/** @import { Socket } from 'node:net' */
/** @import { WebSocket } from 'ws' */

/**
 * @typedef {object} WebSocketParts
 * @property {Config} config @property {import('../hub/hub.js').Hub} hub
 * @property {Door} door unless the path names another
 * @property {import('../hub/heartbeat.js').Heartbeat} heartbeat
 * @property {((allowance: {fullAt: number}) => boolean)|null} [admitFrame] takes a token for a frame
 *   that is not a whole message; null if frames are not limited
 * @property {import('../observability/counters.js').Counters} counters
 * @property {import('../worker/turn.js').Turn} turn
 */

export class WebSockets {
  // The handshake that ws is completing.
  address = '';
  /** @type {Door} */
  openingDoor;
  /** @type {Credentials|null} */
  credentials = null;
  /** @type {Socket|null} */
  socket = null;
  /** @type {FeedStream|null} */
  stream = null;

  /** @param {WebSocketParts} parts */
  constructor({ config, hub, door, heartbeat, admitFrame = null, counters, turn }) {
    this.hub = hub;
    this.door = door;
    this.heartbeat = heartbeat;
    this.counters = counters;
    const use = (
      /** @type {import('../observability/counters.js').FastPath} */ name,
      /** @type {() => string} */ guard,
    ) => useFastPath(name, config, counters, plainOnly(config, guard));
    this.writesDirectly = use('direct_write', directWriteFault);
    const isShared = use('shared_reads', sharedReadsFault);
    this.openingDoor = door;
    const { maxMessageBytes } = config;
    const maxFragments = Math.max(
      MIN_MAX_FRAGMENTS,
      Math.ceil(maxMessageBytes / BYTES_PER_FRAGMENT),
    );
    this.server = new WebSocketServer(serverOptions(config, maxFragments, this));
    /** Connections without ws that are closing. @type {Deadlines<ServerWebSocket>} */
    this.closing = new Deadlines(CLOSE_TIMEOUT_MS, (websocket) => {
      this.closing.delete(websocket);
      websocket.socket.destroy();
      return true;
    });
    this.negotiates = config.compression === 'on';
    this.websocketOnUpgrade = this.websocketOnUpgrade.bind(this);
    this.onText = this.onText.bind(this);
    this.onBinary = this.onBinary.bind(this);
    this.reader = new FrameReader({
      maxMessageBytes,
      maxFragments,
      onText: this.onText,
      onBinary: this.onBinary,
      onFault(websocket, fault) {
        counters.readerCloses[fault]++;
        websocket.connection.close(CLOSE_OF[fault]);
      },
      onWaiting(websocket) {
        // The peer's pong may be among the waiting bytes.
        websocket.connection.markAlive();
      },
      admitFrame,
      counters,
      turn,
      isShared,
    });
  }

  /** @param {ServerWebSocket} websocket @param {Buffer} text valid only during the call */
  onText({ connection, door }, text) {
    connection.markAlive();
    if (!connection.isOpen) return;
    try {
      door.receive(connection, text);
    } catch (error) {
      connection.fail(error);
    }
  }

  /** @param {ServerWebSocket} websocket @param {Buffer} bytes as in onText */
  onBinary({ connection, door }, bytes) {
    connection.markAlive();
    if (!connection.isOpen) return;
    try {
      door.receiveBinary(connection, bytes);
    } catch (error) {
      connection.fail(error);
    }
  }

  /** @param {Socket} socket */
  discardReads(socket) {
    this.reader.discard(socket);
  }

  /** @param {Socket} socket @returns {boolean} as FrameReader.delaysEnd */
  delaysEnd(socket) {
    return this.reader.delaysEnd(socket);
  }

  /** @param {ServerWebSocket} websocket whose socket is closed */
  closed(websocket) {
    const { connection, door, socket } = websocket;
    this.closing.delete(websocket);
    // Needed if the door is still checking the token, or waiting for a place.
    connection.markClosed();
    this.reader.discard(socket);
    door.closed(connection);
    this.heartbeat.unwatchConnection(connection);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    this.reader.sweep(nowMs);
  }

  /**
   * Takes over a socket whose handshake was admitted.
   * @param {IncomingMessage} request @param {Socket} socket @param {Buffer} head
   * @param {string} address @param {Credentials|null} [credentials] @param {Door} [door]
   */
  upgrade(request, socket, head, address, credentials = null, door = this.door) {
    if (!door.mayDeflate) delete request.headers['sec-websocket-extensions'];
    const answer = this.answerTo(request, door);
    if (answer !== null)
      return this.#openWebSocket(answer, request, socket, head, address, credentials, door);
    // handleUpgrade calls back before it returns.
    this.openingDoor = door;
    this.address = address;
    this.credentials = credentials;
    this.socket = socket;
    leaveToWs(socket);
    if (head.length > 0) socket.unshift(head);
    this.stream = new FeedStream(socket);
    this.server.handleUpgrade(request, this.stream, NOTHING, this.websocketOnUpgrade);
  }

  /**
   * @param {IncomingMessage} request well-formed @param {Door} door
   * @returns {string|null} the answer that ws gives as well; null: ws decides on extensions, or on
   *   unusual subprotocols
   */
  answerTo({ headers }, { subprotocol }) {
    if (this.negotiates && headers['sec-websocket-extensions'] !== undefined) return null;
    const offered = headers['sec-websocket-protocol'];
    let chosen = '';
    if (offered !== undefined) {
      if (!PROTOCOLS.test(offered)) return null;
      const names = offered.split(/, ?/);
      if (new Set(names).size !== names.length) return null;
      if (names.includes(subprotocol)) chosen = `Sec-WebSocket-Protocol: ${subprotocol}\r\n`;
    }
    const accept = hash('sha1', headers['sec-websocket-key'] + GUID, 'base64');
    return `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n${chosen}\r\n`;
  }

  /**
   * Opens a WebSocket without ws.
   * @param {string} answer @param {IncomingMessage} request @param {Socket} socket
   * @param {Buffer} head @param {string} address @param {Credentials|null} credentials
   * @param {Door} door
   */
  #openWebSocket(answer, request, socket, head, address, credentials, door) {
    // The client has ended, or is gone.
    if (!socket.readable || !socket.writable) return void socket.destroy();
    const websocket = new ServerWebSocket(this, socket, address, door);
    websocket.sendHead(answer);
    if (head.length > 0) socket.unshift(head);
    this.reader.attach(socket, websocket, null);
    this.#enterDoor(websocket, request, credentials);
  }

  /** @param {WebSocket} ws @param {IncomingMessage} request */
  websocketOnUpgrade(ws, request) {
    const socket = /** @type {Socket} */ (this.socket);
    const door = this.openingDoor;
    const websocket = new ServerWebSocket(this, socket, this.address, door);
    // If a client cannot inflate with the usual window of 32 KB, frames are not compressed.
    const offer = request.headers['sec-websocket-extensions'];
    const isDeflated = ws.extensions !== '' && !offer?.includes('server_max_window_bits');
    websocket.setWs(/** @type {WsPart} */ (ws), isDeflated ? FORMAT.DEFLATED : door.format);
    this.reader.attach(socket, websocket, this.stream);
    this.#enterDoor(websocket, request, this.credentials);
  }

  /**
   * @param {ServerWebSocket} websocket @param {IncomingMessage} request
   * @param {Credentials|null} credentials
   */
  #enterDoor({ connection, door }, request, credentials) {
    this.heartbeat.watchConnection(connection);
    door.open(connection, request, credentials);
  }
}

/**
 * @param {Config} config @param {number} maxFragments
 * @param {{readonly openingDoor: Door}} handshake under way
 */
function serverOptions({ compression, maxMessageBytes }, maxFragments, handshake) {
  return {
    noServer: true,
    clientTracking: false,
    perMessageDeflate: compression === 'on' && DEFLATE,
    maxPayload: maxMessageBytes,
    // RFC 6455 4.2.2: without a common subprotocol, the answer names none.
    handleProtocols: (/** @type {Set<string>} */ offered) => {
      const { subprotocol } = handshake.openingDoor;
      return offered.has(subprotocol) ? subprotocol : false;
    },
    maxFragments,
    autoPong: false, // costs a closure per connection; ours bounds pongs
    closeTimeout: CLOSE_TIMEOUT_MS,
    WebSocket: WsPart,
  };
}
