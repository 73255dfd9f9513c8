// stream.js: a response that does not end, as a transport of the hub.
//
// It takes the socket over from the HTTP server. The response has no length and no chunks, so it
// ends with its connection (RFC 9112 6.3, 8), and all streams of one format share the bytes of
// publications. Hub, outbox, recovery and bounds are the same as for WebSockets. sse.js and
// door-streams.js decide what is written.
//
// Clients send nothing, so silence proves nothing: the kernel closes the socket of a dead peer.
// Until then its unsent bytes have the bounds of slow consumers.

import { plainOnly, useFastPath } from '../config/fast-paths.js';
import { Connection } from '../hub/connection.js';
import { TRANSPORT } from './accepted-socket.js';
import { createCorsHeaders, preflightAnswer } from './cors.js';
import { directWriteFault, lendDescriptor } from './fast/direct-write.js';
import { NOSNIFF } from './http-answers.js';
import { STATUS_CODES } from './node-http.js';
import { offerBytes, pendingBytesOf, queueBytes, whenDrained } from './socket-writer.js';

/** After the end of a stream, the client has this long to close its side. */
const CLOSE_TIMEOUT_MS = 5000;
/** If more bytes follow the request, the socket is destroyed. */
const MAX_INPUT_BYTES = 65_536;

/** @typedef {Socket & {[TRANSPORT]: Stream}} StreamSocket */
/** @import { Transport } from '../hub/connection.js' */
/** @import { Headers } from './cors.js' */
/** @import { IncomingMessage } from 'node:http' */
/** @import { Socket } from 'node:net' */

/** @typedef {StreamKind & {remove: (stream: any) => void}} StreamOwner `remove` after the close */

/** What all streams of one kind share. */
export class StreamKind {
  /** Methods for requests. */
  allow = 'GET';

  /**
   * @param {object} parts @param {import('../config/settings.js').Config} parts.config
   * @param {import('../hub/hub.js').Hub} parts.hub
   * @param {import('../hub/heartbeat.js').Heartbeat} parts.heartbeat
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {string} parts.pageHeaders that pages may set @param {boolean} [parts.allowsCredentials]
   */
  constructor({ config, hub, heartbeat, counters, pageHeaders, allowsCredentials }) {
    this.hub = hub;
    this.heartbeat = heartbeat;
    this.pageHeaders = pageHeaders;
    this.corsHeaders = createCorsHeaders(config.allowedOrigins, allowsCredentials);
    this.writesDirectly = useFastPath(
      'direct_write',
      config,
      counters,
      plainOnly(config, directWriteFault),
    );
  }

  /** @param {IncomingMessage} request `OPTIONS` */
  preflight(request) {
    return preflightAnswer(this.corsHeaders(request), this.allow, this.pageHeaders);
  }
}

export class Stream {
  /**
   * @param {StreamOwner} owner @param {Socket} socket
   * @param {string} address @param {number} format
   */
  constructor(owner, socket, address, format) {
    this.owner = owner;
    this.socket = socket;
    /** @type {StreamSocket} */ (socket)[TRANSPORT] = this;
    /** @type {number} */
    this.descriptor = owner.writesDirectly ? lendDescriptor(socket) : -1;
    this.mayLag = false;
    this.slowConsumers = owner.hub.slowConsumers;
    /** @type {Connection} */
    this.connection = new Connection(
      /** @type {Transport} */ (/** @type {unknown} */ (this)),
      address,
    );
    /** @type {number} */
    this.format = format;
    /** The client may send bytes up to this one. */
    this.lastByte = socket.bytesRead + MAX_INPUT_BYTES;
  }

  /** Takes over the socket. @param {string} head and the first bytes */
  begin(head) {
    const socket = /** @type {StreamSocket} */ (this.socket);
    socket.setTimeout(0);
    socket.on('data', socketOnData);
    socket.resume();
    this.owner.heartbeat.watchConnection(this.connection);
    this.write(Buffer.from(head));
  }

  /** @param {number} format */
  setFormat(format) {
    this.format = format;
  }

  /** @returns {number} */
  get pendingBytes() {
    return pendingBytesOf(this);
  }

  /** @param {Buffer} bytes */
  write(bytes) {
    const written = offerBytes(this, bytes, bytes.length);
    if (written < bytes.length) queueBytes(this, written === 0 ? bytes : bytes.subarray(written));
  }

  /** @param {() => void} act */
  whenDrained(act) {
    whenDrained(this, act);
  }

  /** Nothing follows. @param {string|Buffer} last */
  end(last) {
    const { socket } = this;
    if (socket.destroyed || socket.writableEnded) return;
    socket.end(last);
    setTimeout(destroy, CLOSE_TIMEOUT_MS, socket).unref();
  }

  /** @param {unknown} error */
  failed(error) {
    this.owner.hub.onFailed(this.connection, error);
  }

  terminate() {
    this.socket.destroy();
  }

  /** A client that has closed its side is gone. Otherwise the server would notice it late. */
  ended() {
    this.connection.markClosed();
    this.socket.destroy();
  }

  closed() {
    this.owner.remove(this);
  }
}

/** The head of a connection's last response. @param {number} status @param {Headers} headers */
export function headText(status, headers) {
  let text = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`;
  for (const name in headers) text += `${name}: ${headers[name]}\r\n`;
  return `${text}${NOSNIFF.join(': ')}\r\nConnection: close\r\n\r\n`;
}

/** @param {Socket} socket */
function destroy(socket) {
  socket.destroy();
}

/** Further requests get no answer. @this {StreamSocket} */
function socketOnData() {
  if (this.bytesRead > this[TRANSPORT].lastByte) this.destroy();
}
