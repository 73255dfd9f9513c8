// accepted-socket.js: the state of one socket of the public port, and the listeners that all of
// them share. http-server.js draws its phases.

/** It waits for its client: for a ClientHello, the end of TLS, or a request. */
export const WAITING = 0;
export const IN_LINE = 1;
/** Admission decides later. */
export const ADMITTING = 2;
/** Plain HTTP, a WebSocket or a stream: its time no longer runs. */
export const SERVED = 3;
/** It has its last answer, or is closed. */
export const CLOSED = 4;

export const NOTHING = Buffer.alloc(0);
/** @type {unique symbol} */
export const HANDSHAKE = Symbol('handshake');
/** The transport of a socket that is served. @type {unique symbol} */
export const TRANSPORT = Symbol('transport');

/** @import { AdmissionLease } from '../admission/admission.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { Crowd, Group } from './crowd.js' */
/** @import { FeedStream } from './feed-stream.js' */
/** @import { Streams } from './route.js' */
/** @import { IncomingMessage } from 'node:http' */
/** @import { Socket } from 'node:net' */
/** @typedef {Socket & {[HANDSHAKE]: Handshake, [TRANSPORT]?: Served}} TrackedSocket */
/** A request for a stream, as these streams have read it. @typedef {{streams: Streams, request: any}} WantedStream */

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
    /** If true, the port no longer counts it. */
    this.isGone = false;
    /** True until TLS is established, if the port speaks TLS. */
    this.needsTls = needsTls;
    /** The time at which the bytes that wait in line arrived. */
    this.inLineMs = 0;
    /** Bytes read and not parsed yet. @type {Buffer} */
    this.ahead = NOTHING;
    /** Null until Node's HTTP server reads it. @type {Exchange|null} */
    this.http = null;
    /** The last byte that it may send, once it is closed. */
    this.lastByte = 0;
    /** Where it counts until it is a WebSocket: Admission.peerOf. @type {string|null} */
    this.address = null;
    /** @type {AdmissionLease|null} */
    this.admitted = null;
    /** The request for a stream, until it is answered. @type {WantedStream|null} */
    this.wanted = null;
    /** A refusal that waits for the client's first bytes. @type {Refusal|null} */
    this.refusal = null;
    /** If the socket is idle: its crowd. @type {Crowd<TrackedSocket>|null} */
    this.crowd = null;
    /** Its group there. @type {Group<TrackedSocket>|null} */
    this.group = null;
  }

  wait() {
    this.phase = WAITING;
  }

  /** Its bytes wait for their turn. */
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
  admit(lease) {
    this.phase = SERVED;
    this.address = null;
    this.admitted = lease;
  }

  /** @param {number} lastByte that it may send */
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

  /** @param {Buffer} bytes that are read, but not parsed */
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
  enter(socket, crowd) {
    this.crowd = crowd;
    this.group = crowd.add(socket, this.address);
  }

  /** @param {TrackedSocket} socket its own */
  leave(socket) {
    this.crowd?.delete(socket, this.group);
    this.crowd = null;
    this.group = null;
  }
}

/** The HTTP of one socket. */
export class Exchange {
  sinceMs = performance.now();
  /** Passes bytes to Node's parser; null: the socket has left it. @type {((bytes: Buffer) => void)|null} */
  parse = null;
  /** The stream that the HTTP server reads instead of the socket. @type {FeedStream|null} */
  stream = null;
  requests = 0;
  calls = 0;
  /** The latest of them. @type {IncomingMessage|null} */
  call = null;
  /** Of its body, the bytes that the parser has still to get; 0 if its length is not known. */
  bodyBytes = 0;
  /** If true, the requests under way are the last of the socket. */
  isEnding = false;

  /** @param {((bytes: Buffer) => void)|null} parse @param {FeedStream|null} [stream] */
  readBy(parse, stream = null) {
    this.parse = parse;
    this.stream = stream;
  }

  /** @returns {boolean} true for the first request */
  count() {
    return this.requests++ === 0;
  }

  /** @param {boolean} isEnding */
  endAfter(isEnding) {
    this.isEnding = isEnding;
  }

  /** @param {IncomingMessage} request to the HTTP API */
  called(request) {
    this.calls++;
    this.call = request;
    this.bodyBytes = Number(request.headers['content-length'] ?? 0);
  }

  /** @param {number} bytes that the parser gets */
  passed(bytes) {
    this.bodyBytes = Math.max(0, this.bodyBytes - bytes);
  }

  /** @returns {boolean} true if no request to the HTTP API is left */
  answered() {
    if (--this.calls === 0) this.call = null;
    return this.calls === 0;
  }
}

/** In place of the Handshake when the WebSocket is open: saves 0.14 kB each. */
export class Upgraded {
  /** @param {Port} port @param {AdmissionLease} admitted */
  constructor(port, admitted) {
    this.port = port;
    this.phase = SERVED;
    this.isGone = false;
    this.admitted = admitted;
  }

  /** @returns {boolean} false: the port no longer counts it already */
  go() {
    const isFirst = !this.isGone;
    this.isGone = true;
    this.phase = CLOSED;
    return isFirst;
  }

  /** It is in no crowd. */
  leave() {}

  /** It speaks no HTTP. */
  get http() {
    return null;
  }
}

/** Does Node's HTTP server read the socket? @param {TrackedSocket} socket */
export function speaksHttp(socket) {
  return (socket[HANDSHAKE].http?.parse ?? null) !== null;
}

/** Closes a socket at once, and no longer counts it. @param {TrackedSocket} socket */
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
 * Reads a socket in place of `readable`. Its stream gets a copy of the read's size, not 64 KB.
 * @this {TrackedSocket} @param {number} size @param {Buffer} buffer that sockets share
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
