// accepted-socket.js: the state of a socket of the public port, and the listeners that all sockets
// share. http-server.js draws the phases.

/** The client has to send a ClientHello, the rest of TLS, or a request. */
export const WAITING = 0;
export const IN_LINE = 1;
/** Admission decides later. */
export const ADMITTING = 2;
/** Plain HTTP, a WebSocket or a stream, without a time limit. */
export const SERVED = 3;
/** The socket has its last answer, or is closed. */
export const CLOSED = 4;

export const NOTHING = Buffer.alloc(0);
/** @type {unique symbol} */
export const HANDSHAKE = Symbol('handshake');
/** The transport of a served socket. @type {unique symbol} */
export const TRANSPORT = Symbol('transport');

/** @import { AdmissionLease } from '../admission/admission.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { Crowd, Group } from './crowd.js' */
/** @import { FeedStream } from './feed-stream.js' */
/** @import { Streams } from './route.js' */
/** @import { IncomingMessage } from 'node:http' */
/** @import { Socket } from 'node:net' */
/** @typedef {Socket & {[HANDSHAKE]: Handshake, [TRANSPORT]?: Served}} TrackedSocket */
/** `request`: from `streams.read`. @typedef {{streams: Streams, request: any}} WantedStream */

/**
 * What the listeners of a socket call.
 * @typedef {object} Port
 * @property {(socket: TrackedSocket) => void} readable it has bytes to read, or has ended
 * @property {(socket: TrackedSocket) => void} ended its client sends no more, and all is read
 * @property {(socket: TrackedSocket, bytes: Buffer) => void} data
 * @property {(socket: TrackedSocket) => void} closed
 */
/**
 * What the listeners of a socket call in its transport.
 * @typedef {object} Served
 * @property {() => void} ended the client sends no more @property {() => void} closed
 */

export class Handshake {
  /** @param {Port} port @param {boolean} needsTls */
  constructor(port, needsTls) {
    this.port = port;
    this.phase = WAITING;
    /** The port no longer counts it. */
    this.isGone = false;
    /** True until TLS is established, if the port speaks TLS. */
    this.needsTls = needsTls;
    /** When the bytes in line arrived. */
    this.inLineMs = 0;
    /** Bytes read, but not parsed yet. @type {Buffer} */
    this.ahead = NOTHING;
    /** Null until Node's HTTP server reads it. @type {Exchange|null} */
    this.http = null;
    /** After its last answer: it may send bytes up to this one. */
    this.lastByte = 0;
    /** The address of Admission.peerOf, until admission. @type {string|null} */
    this.address = null;
    /** @type {AdmissionLease|null} */
    this.admitted = null;
    /** Until it is answered. @type {WantedStream|null} */
    this.wanted = null;
    /** Waits for the client's first bytes. @type {Refusal|null} */
    this.refusal = null;
    /** While the socket is idle. @type {Crowd<TrackedSocket>|null} */
    this.crowd = null;
    /** The socket's group in the crowd. @type {Group<TrackedSocket>|null} */
    this.group = null;
  }

  wait() {
    this.phase = WAITING;
  }

  /** Lets the socket's bytes wait for their turn. */
  queue() {
    this.phase = IN_LINE;
    this.inLineMs = performance.now();
  }

  decideLater() {
    this.phase = ADMITTING;
  }

  serve() {
    this.phase = SERVED;
  }

  /** @param {AdmissionLease} lease */
  serveWith(lease) {
    this.phase = SERVED;
    this.address = null;
    this.admitted = lease;
  }

  /** @param {number} lastByte */
  close(lastByte) {
    this.phase = CLOSED;
    this.lastByte = lastByte;
  }

  /** @returns {boolean} false: the port no longer counts it already */
  go() {
    if (this.isGone) return false;
    this.isGone = true;
    this.phase = CLOSED;
    return true;
  }

  /** TLS is established, or the client does not speak it. */
  endTls() {
    this.needsTls = false;
  }

  /** @param {string|null} address */
  countFor(address) {
    this.address = address;
  }

  /** @param {Buffer} bytes read, but not parsed */
  keep(bytes) {
    this.ahead = bytes;
  }

  /** @param {Refusal|null} refusal */
  postpone(refusal) {
    this.refusal = refusal;
  }

  /** @param {WantedStream|null} wanted */
  want(wanted) {
    this.wanted = wanted;
  }

  beginHttp() {
    this.http = new Exchange();
    return this.http;
  }

  /** @param {TrackedSocket} socket its own @param {Crowd<TrackedSocket>} crowd */
  joinCrowd(socket, crowd) {
    this.crowd = crowd;
    this.group = crowd.add(socket, this.address);
  }

  /** @param {TrackedSocket} socket its own */
  leaveCrowd(socket) {
    this.crowd?.delete(socket, this.group);
    this.crowd = null;
    this.group = null;
  }
}

/** HTTP on one socket. */
export class Exchange {
  sinceMs = performance.now();
  /** Node's parser; null: the socket has left HTTP. @type {((bytes: Buffer) => void)|null} */
  parse = null;
  /** What the HTTP server reads instead of the socket. @type {FeedStream|null} */
  stream = null;
  requests = 0;
  /** Requests under way to an HTTP API, or for a stream with a body. */
  calls = 0;
  /** The latest of them. @type {IncomingMessage|null} */
  call = null;
  /** Bytes of its body still to parse; 0 if its length is not known. */
  bodyBytes = 0;
  /** The requests under way are the last on this socket. */
  isEnding = false;

  /** @param {((bytes: Buffer) => void)|null} parse @param {FeedStream|null} [stream] */
  readBy(parse, stream = null) {
    this.parse = parse;
    this.stream = stream;
  }

  /** @returns {boolean} true for the first request */
  isFirstRequest() {
    return this.requests++ === 0;
  }

  /** @param {boolean} isEnding */
  endAfter(isEnding) {
    this.isEnding = isEnding;
  }

  /** @param {IncomingMessage} request to an HTTP API, or for a stream with a body */
  called(request) {
    this.calls++;
    this.call = request;
    this.bodyBytes = Number(request.headers['content-length'] ?? 0);
  }

  /** @param {number} bytes that the parser gets */
  passed(bytes) {
    this.bodyBytes = Math.max(0, this.bodyBytes - bytes);
  }

  /** @returns {boolean} true if none is left */
  answered() {
    if (--this.calls === 0) this.call = null;
    return this.calls === 0;
  }
}

/** Replaces the Handshake of an open WebSocket, which saves 0.14 kB. */
export class Upgraded {
  /** @param {Port} port @param {AdmissionLease} admitted */
  constructor(port, admitted) {
    this.port = port;
    this.phase = SERVED;
    this.isGone = false;
    this.admitted = admitted;
  }

  /** @returns {boolean} as Handshake.go */
  go() {
    const isFirst = !this.isGone;
    this.isGone = true;
    this.phase = CLOSED;
    return isFirst;
  }

  /** The socket is not counted for any address. */
  leaveCrowd() {}

  /** The connection has no requests of HTTP. */
  get http() {
    return null;
  }
}

/** Does Node's HTTP server read the socket? @param {TrackedSocket} socket */
export function speaksHttp(socket) {
  return (socket[HANDSHAKE].http?.parse ?? null) !== null;
}

/** Closes it at once, and no longer counts it. @param {TrackedSocket} socket */
export function discard(socket) {
  socket[HANDSHAKE].port.closed(socket);
  socket.destroy();
}

/**
 * An error without a listener ends the process, and after an upgrade Node's HTTP server has none.
 * @param {TrackedSocket} socket
 */
export function takeOver(socket) {
  socket.removeListener('error', socketOnError);
  socket.on('error', socketOnError);
}

/** Listens to a socket, and calls its transport once it has one. @param {TrackedSocket} socket */
export function listenTo(socket) {
  socket.on('end', socketOnEnd);
  socket.on('error', socketOnError);
  socket.on('close', socketOnClose);
}

/** ws listens from now on, except for the port's count. @param {Socket} socket */
export function leaveToWs(socket) {
  socket.removeListener('error', socketOnError);
  socket.removeListener('end', socketOnEnd);
}

/** @this {Socket} */
export function socketOnError() {
  this.destroy();
}

/** @this {TrackedSocket} */
export function socketOnReadable() {
  this[HANDSHAKE].port.readable(this);
}

/**
 * Replaces `readable`. The stream gets a copy of the bytes read, instead of 64 KB of memory.
 * @this {TrackedSocket} @param {number} size @param {Buffer} buffer shared by all sockets
 * @returns {boolean} false: Node stops reading until the stream has room
 */
export function socketOnRead(size, buffer) {
  const hasRoom = this.push(Buffer.from(buffer.subarray(0, size)));
  this[HANDSHAKE].port.readable(this);
  return hasRoom;
}

/** @this {TrackedSocket} */
function socketOnEnd() {
  const transport = this[TRANSPORT];
  if (transport === undefined) this[HANDSHAKE].port.ended(this);
  else transport.ended();
}

/** @this {TrackedSocket} @param {Buffer} bytes */
export function socketOnData(bytes) {
  this[HANDSHAKE].port.data(this, bytes);
}

/** @this {TrackedSocket} */
export function socketOnClose() {
  this[HANDSHAKE].port.closed(this);
  this[TRANSPORT]?.closed();
}
