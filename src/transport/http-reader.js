// http-reader.js: reads requests on the public port. The short reader takes the usual ones. Node's
// HTTP server gets all others, in small pieces, up to the last request that gets an answer.
//
// The port keeps the sockets. A fast path calls the HTTP server's own listeners; without it the
// server reads a FeedStream.

import { createServer as createAcceptor, Server } from 'node:net';
import { plainOnly, useFastPath } from '../config/fast-paths.js';
import {
  CLOSED,
  discard,
  HANDSHAKE,
  NOTHING,
  socketOnData,
  socketOnError,
} from './accepted-socket.js';
import { httpListenersFault, speakHttp, takeConnectionListener } from './fast/http-listeners.js';
import { readShortHandshake, shortHandshakeFault } from './fast/short-handshake.js';
import { FeedStream } from './feed-stream.js';
import { MAX_HEADERS } from './handshake.js';
import { createServer, IncomingMessage as NodeRequest } from './node-http.js';

const MAX_HEADER_BYTES = 16_384;
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 15_000;
const CHECKING_INTERVAL_MS = 1000;
/**
 * Node's parser gets at most this many bytes at once. A whole read may have 3,600 pipelined
 * requests, which take 60 ms to parse even if none is answered. Bodies contain no requests, so the
 * parser gets all their bytes at once, which takes a fifth of the CPU.
 */
const PIECE_BYTES = 512;
/**
 * A piece ends with a head, so that the parser gets no request after the last one with an answer:
 * Node would create its objects, and an Error with a stack when the socket closes.
 */
const END_OF_HEAD = Buffer.from('\r\n\r\n');
/** Heads in one read. The second request is the last with an answer; others are empty lines. */
const MAX_HEADS = 4;

/** @import { Config } from '../config/settings.js' */
/** @import { TrackedSocket } from './accepted-socket.js' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { Duplex } from 'node:stream' */

/**
 * @typedef {(request: IncomingMessage, response: ServerResponse, socket: TrackedSocket) => void}
 *   OnRequest
 */

export class HttpReader {
  /**
   * The HTTP server's own listener; null if the server reads FeedStreams.
   * @type {import('./fast/http-listeners.js').ConnectionListener|null}
   */
  #connect;
  /** Sockets with a FeedStream. @type {Set<TrackedSocket>} */
  #fed = new Set();

  /**
   * @param {object} parts @param {Config} parts.config
   * @param {(request: IncomingMessage) => boolean} parts.isHandshake an Upgrade counts only then
   * @param {(request: IncomingMessage, socket: TrackedSocket) => boolean} parts.onShort a request
   *   from the short reader; false: Node's parser has to read it
   * @param {OnRequest} parts.onRequest
   * @param {(request: IncomingMessage, socket: TrackedSocket, head: Buffer) => void} parts.onUpgrade
   *   the socket no longer speaks HTTP; `head` has all bytes read after the request
   * @param {(socket: TrackedSocket) => void} parts.onConnect the same for the method CONNECT
   * @param {(error: NodeJS.ErrnoException, socket: TrackedSocket) => void} parts.onFault a request
   *   is malformed or late
   * @param {() => void} parts.onUnknown a socket that this port has not accepted was closed
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({
    config,
    isHandshake,
    onShort,
    onRequest,
    onUpgrade,
    onConnect,
    onFault,
    onUnknown,
    counters,
  }) {
    this.counters = counters;
    this.onShort = onShort;
    this.onUnknown = onUnknown;
    const http = (this.http = createHttpServer(config, requestsOf(isHandshake)));
    const requested = (
      /** @type {IncomingMessage} */ request,
      /** @type {ServerResponse} */ response,
    ) => {
      const socket = this.#accepted(request.socket);
      if (socket !== null) onRequest(request, response, socket);
    };
    http.on('request', requested);
    // Only requests whose body is needed get 100 Continue.
    http.on('checkContinue', requested);
    // Node would answer 417 itself, past the counters, if there were no listener.
    http.on('checkExpectation', requested);
    http.on('upgrade', (request, stream, head) => {
      const socket = this.#accepted(request.socket, stream);
      if (socket !== null) onUpgrade(request, socket, this.end(socket, head));
    });
    http.on('connect', (request, stream, head) => {
      const socket = this.#accepted(request.socket, stream);
      if (socket === null) return;
      this.end(socket, head);
      onConnect(socket);
    });
    http.on('clientError', (error, stream) => {
      const socket = this.#accepted(stream);
      if (socket !== null) onFault(error, socket);
    });
    const takesListeners = useFastPath(
      'http_listeners',
      config,
      counters,
      plainOnly(config, httpListenersFault),
    );
    this.#connect = takesListeners ? takeConnectionListener(http) : null;
    this.readsShort = useFastPath(
      'short_handshake',
      config,
      counters,
      plainOnly(config, () => (takesListeners ? shortHandshakeFault() : 'it needs http_listeners')),
    );
    if (this.#connect === null) {
      // Node's HTTP server checks for slow requests only if it listens.
      http.timeout = REQUEST_TIMEOUT_MS;
      this.acceptor = createAcceptor({ allowHalfOpen: true, noDelay: true });
    } else this.acceptor = http;
  }

  /** @param {TrackedSocket} socket @param {Buffer|null} bytes its first ones */
  begin(socket, bytes) {
    const request = this.readsShort && bytes !== null ? readShortHandshake(bytes, socket) : null;
    if (request !== null && this.onShort(request, socket)) return;
    this.#speak(socket);
    if (bytes !== null) this.parse(socket, bytes);
  }

  /** The socket speaks HTTP from now on. @param {TrackedSocket} socket */
  #speak(socket) {
    const http = socket[HANDSHAKE].beginHttp();
    if (this.#connect === null) {
      const stream = new FeedStream(socket);
      http.readBy((bytes) => stream.feed(bytes), stream);
      this.#fed.add(socket);
      this.http.emit('connection', stream);
    } else {
      http.readBy(speakHttp(this.http, this.#connect, socket));
      socket.removeListener('error', socketOnError);
      if (http.parse === null) return discard(socket);
    }
    socket.on('data', socketOnData);
  }

  /** Up to the last request with an answer. @param {TrackedSocket} socket @param {Buffer} bytes */
  parse(socket, bytes) {
    const handshake = socket[HANDSHAKE];
    const { http } = handshake;
    let heads = 0;
    for (let at = 0; http !== null && at < bytes.length; ) {
      if (http.parse === null || handshake.phase === CLOSED || socket.destroyed) return;
      // The last request is complete, and nothing after it gets an answer.
      if (http.isEnding && http.call?.complete) return;
      // Node pauses the socket if the peer does not read its answers.
      const isPaused = http.stream?.isPaused() ?? (at > 0 && socket.isPaused());
      if (isPaused) return discard(socket);
      let piece = bytes.subarray(at, at + Math.max(PIECE_BYTES, http.bodyBytes));
      // While a body is read, it has no heads to look for.
      const end = http.calls > 0 ? -1 : piece.indexOf(END_OF_HEAD);
      if (end !== -1) {
        if (++heads > MAX_HEADS) {
          this.counters.refused.bad_request++;
          return discard(socket);
        }
        piece = piece.subarray(0, end + END_OF_HEAD.length);
      }
      at += piece.length;
      handshake.keep(at < bytes.length ? bytes.subarray(at) : NOTHING);
      http.passed(piece.length);
      http.parse(piece);
    }
  }

  /**
   * Ends HTTP on a socket. Returns all bytes read after the request.
   * @param {TrackedSocket} socket @param {Buffer} head
   */
  end(socket, head) {
    const handshake = socket[HANDSHAKE];
    const { ahead, http } = handshake;
    socket.removeListener('data', socketOnData);
    handshake.keep(NOTHING);
    if (http !== null) {
      const { stream } = http;
      http.readBy(null);
      if (stream !== null) {
        stream.abandon();
        this.#fed.delete(socket);
        socket.pause(); // bytes after the request wait for the next reader
      }
    }
    return ahead.length === 0 ? head : Buffer.concat([head, ahead]);
  }

  /** Starts the next reader of a socket after `end`. @param {TrackedSocket} socket */
  handOver(socket) {
    if (this.#connect === null) socket.resume();
  }

  /** @param {TrackedSocket} socket closed */
  delete(socket) {
    this.#fed.delete(socket);
  }

  /** Closes the listener. Kept-alive sockets stay. */
  stopAccepting() {
    // The HTTP server's own `close` would close idle sockets, too.
    if (this.acceptor.listening) Server.prototype.close.call(this.acceptor);
  }

  /** @param {(socket: TrackedSocket) => boolean} isIdle is it kept alive, without a request? */
  closeIdle(isIdle) {
    this.http.closeIdleConnections();
    for (const socket of this.#fed) if (isIdle(socket)) socket.destroy();
  }

  /** Closes kept-alive sockets; upgraded ones are unknown to it. */
  close() {
    this.http.close(); // ends its checks for slow requests
    this.http.closeAllConnections();
    for (const socket of this.#fed) socket.destroy();
  }

  /**
   * The socket behind a stream of the HTTP server. In `upgrade` and `connect`, Node 26 passes a
   * stream of its own if there is a body; `request.socket` is ours.
   * @param {Duplex} stream that the HTTP server reads
   * @param {Duplex} [given] what the listener got instead
   * @returns {TrackedSocket|null} null: this port has not accepted it, so it is closed and counted
   */
  #accepted(stream, given = stream) {
    // Nobody reads Node's stream, which destroys itself with the socket's error.
    if (given !== stream) given.on('error', streamOnError);
    const socket = stream instanceof FeedStream ? stream.socket : stream;
    if (HANDSHAKE in socket) return /** @type {TrackedSocket} */ (socket);
    this.counters.refused.unknown_socket++;
    this.onUnknown();
    for (const unknown of new Set([stream, given])) unknown.on('error', streamOnError).destroy();
    return null;
  }
}

/** What Node's parser has read: the head asks for an Upgrade, or the method is CONNECT. */
const UPGRADE = Symbol('upgrade');

/**
 * Requests that leave HTTP only for a handshake or CONNECT. With a listener for `upgrade`, Node
 * takes every offer: it would end HTTP and hand over the body unread. It decides by the field
 * `upgrade` when the head is read. `shouldUpgradeCallback` of Node 22.21 and 24.9 is the public
 * way. If a later Node asks neither, offers are refused with 426.
 * @param {(request: IncomingMessage) => boolean} isHandshake
 */
function requestsOf(isHandshake) {
  return class extends NodeRequest {
    /** @type {unknown} */
    [UPGRADE];

    get upgrade() {
      return Boolean(this[UPGRADE]) && (this.method === 'CONNECT' || isHandshake(this));
    }

    set upgrade(value) {
      this[UPGRADE] = value;
    }
  };
}

/** @param {Config} config @param {typeof NodeRequest} Request */
function createHttpServer(config, Request) {
  const http = createServer({
    IncomingMessage: Request,
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: HEADERS_TIMEOUT_MS,
    // Uploads have this time. Other bodies have less (http-api/body.js).
    requestTimeout:
      config.blobs === null
        ? REQUEST_TIMEOUT_MS
        : Math.max(REQUEST_TIMEOUT_MS, config.blobUploadTimeoutMs),
    connectionsCheckingInterval: CHECKING_INTERVAL_MS,
    keepAliveTimeout: config.keepAliveMs, // sent as `Keep-Alive`
    requireHostHeader: false, // headFault() checks it: Node's own answers bypass the counters
    noDelay: true,
  });
  http.maxHeadersCount = MAX_HEADERS + 1;
  return http;
}

/** The stream is closed already. */
function streamOnError() {}
