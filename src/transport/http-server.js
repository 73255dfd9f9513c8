// http-server.js: the public port. Health checks are answered here; WebSocket handshakes are
// checked, admitted and handed on; everything else is refused in HTTP.
//
//            accept          bytes            request                    admitted
//   (client) ------> WAITING -----> IN_LINE -----------> ADMITTING ----------------> OPEN (the WebSocket transport's)
//                       |  ^____________|  \__ plain HTTP: PLAIN
//                       |   not all yet |                  |
//                       | too slow      | malformed, ...   | refused, too slow
//                       +--------> CLOSING <---------------+     (answered; the peer has LINGER_MS to go)
//
// Express middleware and Node's own time-outs do not see upgrades, and `ws` answers 101 to
// HTTP/1.0, to no or two Hosts, to absolute URLs and to upgrades with a body: the checks here come
// before it. Between accept and OPEN or PLAIN a socket is in `#waiting`, in the order of arrival,
// and one timer for all looks at its head. Listeners are shared functions; what they need to know
// hangs on the socket.
//
// Who comes in a storm comes at once: the kernel hands over a thousand sockets in one turn of the
// event loop, a quarter of a millisecond each. So a socket that has something to say stands in
// line, and of that line a turn takes SLICE_MS; and so do those that a cap per address lets in
// later. The line has no length limit: a socket in it is refused when its time is over. Addresses
// take turns in it (fair-queue.js), so that a flood from one of them does not delay the others. A
// request that comes in several reads stands in line for each of them. Node's parser gets small
// pieces, and nothing behind the last request that is answered.
//
// Sockets that wait for their client are idle: `#silent` has those without a whole request,
// `#plain` those that plain HTTP keeps alive. Both are bounded in number, and both give way when
// descriptors run short. Then the server closes the oldest idle socket of the address that has most
// (crowd.js). Sockets of a trusted proxy each count as an address of their own.

import { createServer } from 'node:http';
import { createServer as createAcceptor } from 'node:net';
import { useFastPath } from '../config/fast-paths.js';
import { LISTEN_BACKLOG, OWN_DESCRIPTORS } from '../config/system-limits.js';
import { Crowd } from './crowd.js';
import { FairQueue } from './fair-queue.js';
import { httpListenersFault, speakHttp, takeConnectionListener } from './fast/http-listeners.js';
import { FeedStream } from './feed-stream.js';
import {
  handshakeFault,
  hasBody,
  isHealthPath,
  isToWebSocket,
  MAX_HEADERS,
  pathOf,
  tooManyHeaders,
} from './handshake.js';
import { answer, errorBody, plainAnswer, respond, responseText } from './http-answers.js';
import { TimeSlicedQueue } from './time-sliced-queue.js';

const MAX_HEADER_BYTES = 16_384;
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 15_000;
const CHECKING_INTERVAL_MS = 1000;
const KEEP_ALIVE_TIMEOUT_MS = 5000;
/**
 * Plain HTTP keeps a socket alive for so many requests, and closes it with the first answer after
 * so long.
 */
const MAX_REQUESTS = 100;
const MAX_PLAIN_AGE_MS = 60_000;
/** Sockets kept alive by plain HTTP: load balancers' health checks need a few. */
const MAX_PLAIN = 64;
/** A lack of descriptors is logged at most this often. */
const LOG_INTERVAL_MS = 60_000;
/**
 * A refused peer has this long to read the answer and close: closing on bytes of its own would
 * reset it (RFC 9112 9.6).
 */
const LINGER_MS = 1000;
/**
 * As many may linger; in a flood of refusals the others are closed as soon as the answer is
 * written.
 */
const MAX_LINGERING = 1000;
/** While so many linger, connections above their address' rate are closed without an answer. */
const MAX_LINGERING_OVER_RATE = 100;
/** Bytes that a refused peer may still send. Beyond them it is closed at once. */
const MAX_LINGERING_BYTES = 8_388_608;
/** Handshakes that one sweep refuses. The others are refused by the next one. */
const MAX_REFUSALS_PER_SWEEP = 100;
/** Sweeps are no denser, and no rarer, than this. */
const MIN_SWEEP_MS = 20;
const MAX_SWEEP_MS = 1000;
/** Told to wait at least so long, and up to twice that, so that they do not return together. */
const RETRY_S = 5;
/**
 * Node's parser gets so many bytes at once. A whole read has room for 3,600 requests sent ahead,
 * and parsing those that nobody answers takes 60 ms.
 */
const PIECE_BYTES = 512;
/**
 * Of one turn of the event loop, for handshakes that are read, and as much for those admitted
 * later.
 */
const SLICE_MS = 4;

const WAITING = 0;
const IN_LINE = 1;
const ADMITTING = 2;
const PLAIN = 3;
const OPEN = 4;
const CLOSING = 5;
const GONE = 6;

const NOTHING = Buffer.alloc(0);
/** @type {unique symbol} */
const HANDSHAKE = Symbol('handshake');

/** @typedef {import('node:http').IncomingMessage} IncomingMessage */
/** @typedef {import('node:http').ServerResponse} ServerResponse */
/** @typedef {import('node:net').Socket & {[HANDSHAKE]: Handshake}} TrackedSocket */
/** @typedef {import('../admission/admission.js').Refusal} Refusal */
/** @typedef {import('../admission/admission.js').AdmissionLease} AdmissionLease */
/** @typedef {Record<string, string>} Headers */
/**
 * @typedef
 *   {{decision: Refusal|AdmissionLease, request: IncomingMessage, socket: TrackedSocket, head: Buffer}}
 *   Decided
 */
/** @typedef {typeof import('../observability/counters.js').EVICTIONS[number]} Eviction */

/** What there is to know about one socket. It lives as long. */
class Handshake {
  /**
   * @param {HttpServer} server
   * @param {number} sinceMs
   */
  constructor(server, sinceMs) {
    this.server = server;
    this.sinceMs = sinceMs;
    this.phase = WAITING;
    /** When its bytes came that wait in line. */
    this.inLineMs = 0;
    /** While it is closing: it may send bytes up to this one. */
    this.lastByte = 0;
    /** Answered in plain HTTP. */
    this.requests = 0;
    /** @type {AdmissionLease|null} */
    this.admitted = null;
    /**
     * Passes bytes to Node's parser, as long as the socket speaks HTTP.
     * @type {((bytes: Buffer) => void)|null}
     */
    this.parse = null;
    /** The HTTP server reads it instead of the socket. @type {FeedStream|null} */
    this.stream = null;
    /** What was read and is not parsed yet. @type {Buffer} */
    this.ahead = NOTHING;
    /** What it counts for while it has no WebSocket; see Admission.peerOf. @type {string|null} */
    this.address = null;
    /**
     * While it is idle: which crowd it is in, and its group there.
     * @type {Crowd<TrackedSocket>|null}
     */
    this.crowd = null;
    /** @type {import('./crowd.js').Group<TrackedSocket>|null} */
    this.group = null;
  }
}

export class HttpServer {
  /** Sockets on their way, oldest first. @type {Set<TrackedSocket>} */
  #waiting = new Set();
  /** Sockets that have their answer, oldest first. @type {Set<TrackedSocket>} */
  #closing = new Set();
  /** Sockets of which no whole request has come yet. @type {Crowd<TrackedSocket>} */
  #silent = new Crowd();
  /** Sockets that plain HTTP keeps alive. @type {Crowd<TrackedSocket>} */
  #plain = new Crowd();
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  #loggedMs = Number.NEGATIVE_INFINITY;
  #stopped = false;
  /** Sockets that have something to read for the first time. @type {FairQueue<TrackedSocket>} */
  #line = new FairQueue();
  /** Takes one of them out of the line for each `undefined`. @type {TimeSlicedQueue<undefined>} */
  #turns = new TimeSlicedQueue(
    () => this.#begin(/** @type {TrackedSocket} */ (this.#line.shift())),
    SLICE_MS,
  );
  /** Those whose admission took more than a turn. @type {TimeSlicedQueue<Decided>} */
  #decided = new TimeSlicedQueue((decided) => this.#conclude(decided), SLICE_MS);
  /**
   * The HTTP server's own listener for connections; null: it reads FeedStreams.
   * @type {import('./fast/http-listeners.js').ConnectionListener|null}
   */
  #connect;
  /** Sockets with a FeedStream. @type {Set<TrackedSocket>} */
  #fed = new Set();

  /**
   * @param {object} parts
   * @param {import('../config/settings.js').Config} parts.config
   * @param
   *   {Pick<import('../admission/admission.js').Admission, 'admit'|'admitPeer'|'peerOf'|'isShortOfDescriptors'|'health'>}
   *   parts.admission
   * @param
   *   {(request: IncomingMessage, socket: import('node:net').Socket, head: Buffer, admitted: AdmissionLease) => void}
   *   parts.onUpgrade takes over a well-formed, admitted handshake that is not answered yet
   * @param {() => string|null} parts.readiness null: ready; else why not
   * @param {{debug(fields: object, text: string): void, error(fields: object, text: string): void}}
   *   parts.log
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ config, admission, onUpgrade, readiness, log, counters }) {
    this.config = config;
    this.admission = admission;
    this.onUpgrade = onUpgrade;
    this.readiness = readiness;
    this.log = log;
    this.counters = counters;
    /**
     * Sockets that leave no descriptor for anything else: a worker without any can do nothing at
     * all.
     */
    this.maxSockets = admission.health.descriptorLimit - OWN_DESCRIPTORS;
    const http = (this.http = createServer({
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: CHECKING_INTERVAL_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      requireHostHeader: false, // plainAnswer() does it: Node's own answers are past all that is counted here
      noDelay: true,
    }));
    http.maxHeadersCount = MAX_HEADERS + 1;
    http.on('request', (request, response) => this.#request(request, response));
    // No body is wanted, so there is nothing to continue with.
    http.on('checkContinue', (request, response) => this.#request(request, response));
    // Without a listener Node answers 417 by itself, past all that is counted here.
    http.on('checkExpectation', (request, response) => this.#request(request, response));
    http.on('upgrade', (request, stream, head) => {
      const socket = socketOf(stream);
      this.#upgrade(request, socket, this.#endHttp(socket, head));
    });
    http.on('connect', (_request, stream, head) => {
      const socket = socketOf(stream);
      this.#endHttp(socket, head);
      this.#reject(socket, 405, 'This server is not a proxy.', { Allow: 'GET' });
    });
    http.on('clientError', (error, stream) => this.#clientError(error, socketOf(stream)));
    const takesListeners = useFastPath('http_listeners', config, counters, httpListenersFault);
    this.#connect = takesListeners ? takeConnectionListener(http) : null;
    if (this.#connect === null) {
      // An HTTP server that does not listen does not look for requests that take too long.
      http.timeout = REQUEST_TIMEOUT_MS;
      this.server = createAcceptor({ allowHalfOpen: true, noDelay: true });
    } else this.server = http;
    this.server.on('connection', (socket) =>
      this.#connected(/** @type {TrackedSocket} */ (socket)),
    );
  }

  /** All sockets of this port, in whichever phase. */
  get openSockets() {
    return this.counters.sockets;
  }

  /** Those that plain HTTP keeps alive. */
  get plainSockets() {
    return this.#plain.size;
  }

  /** Those that have not finished their handshake. */
  get handshakes() {
    return this.#waiting.size;
  }

  /** @returns {Promise<{port: number, address: string}>} where it listens */
  listen() {
    const { server, config } = this;
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(
        { port: config.port, host: config.host || undefined, backlog: LISTEN_BACKLOG },
        () => {
          server.removeListener('error', reject);
          // Accepting failed. It goes on by itself when there is room again.
          server.on('error', (error) =>
            this.#logShortage({ err: error }, 'public port: accept failed'),
          );
          const bound = server.address();
          // null: closed meanwhile; a string: a pipe, which it never is.
          if (bound === null || typeof bound === 'string')
            reject(new Error('the public port closed before it was open'));
          else resolve({ port: bound.port, address: bound.address });
        },
      );
    });
  }

  /** Closes the listener. WebSockets stay; handshakes under way end with 503. */
  stopAccepting() {
    if (this.#stopped) return;
    this.#stopped = true;
    if (this.server.listening) this.server.close();
    // An HTTP server that listens does this by itself.
    for (const socket of this.#fed) {
      if (socket[HANDSHAKE].crowd === this.#plain) socket.destroy();
    }
  }

  /**
   * Closes the listener and every socket that is no WebSocket.
   * @returns {Promise<void>} when they are gone
   */
  async close() {
    this.stopAccepting();
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const gone = [...this.#waiting, ...this.#closing].map(
      (socket) =>
        new Promise((resolve) =>
          socket.closed ? resolve(undefined) : socket.once('close', resolve),
        ),
    );
    for (const socket of this.#waiting) socket.destroy();
    for (const socket of this.#closing) socket.destroy();
    this.http.closeAllConnections(); // keep-alive ones; it does not know of upgraded ones
    for (const socket of this.#fed) socket.destroy();
    await Promise.all(gone);
  }

  /** @param {TrackedSocket} socket */
  #connected(socket) {
    this.counters.sockets++;
    const handshake = new Handshake(this, performance.now());
    socket[HANDSHAKE] = handshake;
    socket.on('close', socketOnClose);
    const { config, counters, admission } = this;
    if (counters.sockets > this.maxSockets && !this.#makeRoom('descriptors')) {
      counters.refused.descriptors++;
      this.#logShortage(
        { sockets: counters.sockets },
        'no file descriptors left: closing new connections unanswered',
      );
      return this.#discard(socket);
    }
    handshake.address = admission.peerOf(socket);
    const refusal = admission.admitPeer(handshake.address);
    if (refusal !== null) {
      if (this.#closing.size >= MAX_LINGERING_OVER_RATE) return this.#discard(socket);
      return this.#refuse(socket, refusal);
    }
    if (this.#silent.size >= config.maxHandshakes) {
      if (config.maxHandshakesMode === 'enforce') this.#evict(this.#silent, 'handshakes');
      else if (config.maxHandshakesMode === 'observe') counters.observed.handshakes++;
    }
    // One for one: if WebSockets alone are too many, closing all idle sockets would not help
    // either.
    if (admission.isShortOfDescriptors) this.#makeRoom('descriptors');
    this.#enter(this.#silent, socket);
    this.#waiting.add(socket);
    this.#arm();
    socket.on('error', socketOnError);
    socket.once('readable', socketOnReadable);
  }

  /**
   * @param {Crowd<TrackedSocket>} crowd
   * @param {TrackedSocket} socket that is in none
   */
  #enter(crowd, socket) {
    const handshake = socket[HANDSHAKE];
    handshake.crowd = crowd;
    handshake.group = crowd.add(socket, handshake.address);
  }

  /** The socket is idle no more. @param {TrackedSocket} socket */
  #leave(socket) {
    const handshake = socket[HANDSHAKE];
    handshake.crowd?.delete(socket, handshake.group);
    handshake.crowd = null;
    handshake.group = null;
  }

  /**
   * Closes an idle socket, if there is one.
   * @param {Crowd<TrackedSocket>} crowd
   * @param {Eviction} reason
   */
  #evict(crowd, reason) {
    const socket = crowd.oldest();
    if (socket === undefined) return false;
    this.counters.idleClosed[reason]++;
    this.#discard(socket);
    return true;
  }

  /**
   * Closes the socket that is missed least.
   * @param {Eviction} reason
   * @returns {boolean} false: there is none to close
   */
  #makeRoom(reason) {
    for (const socket of this.#closing) {
      this.#discard(socket); // it has had its answer
      return true;
    }
    return this.#evict(
      this.#plain.largest > this.#silent.largest ? this.#plain : this.#silent,
      reason,
    );
  }

  /** Closes a socket at once, and no longer counts it. @param {TrackedSocket} socket */
  #discard(socket) {
    this.socketClosed(socket);
    socket.destroy();
  }

  /**
   * @param {object} fields
   * @param {string} text
   */
  #logShortage(fields, text) {
    const nowMs = performance.now();
    if (nowMs - this.#loggedMs < LOG_INTERVAL_MS) return;
    this.#loggedMs = nowMs;
    this.log.error(fields, text);
  }

  /** @param {TrackedSocket} socket that has something to read, or its end */
  readable(socket) {
    const handshake = socket[HANDSHAKE];
    if (handshake.phase !== WAITING) return;
    handshake.phase = IN_LINE;
    handshake.inLineMs = performance.now();
    this.#leave(socket);
    this.#line.push(socket, handshake.address);
    this.#turns.push(undefined);
  }

  /** @param {TrackedSocket} socket whose turn it is */
  #begin(socket) {
    const handshake = socket[HANDSHAKE];
    if (socket.destroyed || handshake.phase !== IN_LINE) return;
    // It has come and gone without a word, as checks of a port do.
    if (socket.readableEnded) return void socket.destroy();
    // At once, and not when the stream flows: a slice is to know what it has spent.
    if (handshake.parse === null) {
      if (this.#connect === null) this.#feedHttp(socket);
      else {
        handshake.parse = speakHttp(this.http, this.#connect, socket);
        socket.removeListener('error', socketOnError);
        if (handshake.parse === null) return this.#discard(socket);
      }
      socket.on('data', socketOnData);
      socket.read();
    } else {
      socket.resume();
      this.#parse(socket, handshake.ahead);
    }
    if (handshake.phase !== IN_LINE || socket.destroyed) return;
    handshake.phase = WAITING; // the rest of the request is the client's to send
    // Others may have come while it was in line.
    const { maxHandshakes, maxHandshakesMode } = this.config;
    if (maxHandshakesMode === 'enforce' && this.#silent.size >= maxHandshakes)
      this.#evict(this.#silent, 'handshakes');
    this.#enter(this.#silent, socket);
  }

  /** The HTTP server reads a stream from now on. @param {TrackedSocket} socket */
  #feedHttp(socket) {
    const stream = new FeedStream(socket);
    const handshake = socket[HANDSHAKE];
    handshake.stream = stream;
    handshake.parse = (bytes) => stream.feed(bytes);
    this.#fed.add(socket);
    this.http.emit('connection', stream);
  }

  /**
   * @param {TrackedSocket} socket
   * @param {Buffer} bytes that were read
   */
  data(socket, bytes) {
    const handshake = socket[HANDSHAKE];
    if (handshake.phase === CLOSING) {
      if (socket.bytesRead > handshake.lastByte) this.#discard(socket);
      return;
    }
    if (handshake.phase !== WAITING) return this.#parse(socket, bytes);
    // More of a request that began in an earlier turn: it waits for another one.
    handshake.phase = IN_LINE;
    handshake.inLineMs = performance.now();
    handshake.ahead = bytes;
    socket.pause();
    this.#leave(socket);
    this.#line.push(socket, handshake.address);
    this.#turns.push(undefined);
  }

  /**
   * Parses what was read, up to the last request that is answered.
   * @param {TrackedSocket} socket
   * @param {Buffer} bytes
   */
  #parse(socket, bytes) {
    const handshake = socket[HANDSHAKE];
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
      if (handshake.parse === null || handshake.phase === CLOSING || socket.destroyed) return;
      // Node waits for a peer that does not read its answers.
      const isPaused = handshake.stream?.isPaused() ?? (at > 0 && socket.isPaused());
      if (isPaused) return this.#discard(socket);
      handshake.ahead =
        at + PIECE_BYTES < bytes.length ? bytes.subarray(at + PIECE_BYTES) : NOTHING;
      handshake.parse(bytes.subarray(at, at + PIECE_BYTES));
    }
  }

  /**
   * The socket speaks HTTP no more.
   * @param {TrackedSocket} socket
   * @param {Buffer} head
   * @returns {Buffer} all that was read behind the request
   */
  #endHttp(socket, head) {
    const handshake = socket[HANDSHAKE];
    const { ahead } = handshake;
    socket.removeListener('data', socketOnData);
    handshake.parse = null;
    handshake.ahead = NOTHING;
    if (handshake.stream !== null) {
      handshake.stream.release();
      handshake.stream = null;
      this.#fed.delete(socket);
      socket.pause(); // bytes behind the request wait for the next reader
    }
    return ahead.length === 0 ? head : Buffer.concat([head, ahead]);
  }

  /**
   * Plain HTTP: health checks, and what has lost its way.
   * @param {IncomingMessage} request
   * @param {ServerResponse} response
   */
  #request(request, response) {
    const socket = socketOf(request.socket);
    const handshake = socket[HANDSHAKE];
    if (handshake.phase === CLOSING || handshake.phase === GONE) return; // it has been answered
    handshake.phase = PLAIN;
    this.#waiting.delete(socket);
    this.#leave(socket);
    // The connection itself has taken a token for the first.
    const refusal = handshake.requests++ === 0 ? null : this.admission.admitPeer(handshake.address);
    const isLast =
      this.#stopped ||
      refusal !== null ||
      handshake.requests >= MAX_REQUESTS ||
      performance.now() - handshake.sinceMs >= MAX_PLAIN_AGE_MS ||
      // The answer before it has not gone yet. Requests sent ahead would all be answered in one
      // turn.
      response.socket === null ||
      hasBody(request);
    const { status, headers, body } = refusal ?? plainAnswer(request, this.#health);
    const isClosing = isLast || headers.Connection !== undefined || !response.shouldKeepAlive;
    respond(response, status, isLast ? { Connection: 'close', ...headers } : headers, body);
    if (isClosing) return this.#linger(socket);
    if (this.#plain.size >= MAX_PLAIN) this.#evict(this.#plain, 'plain_http');
    this.#enter(this.#plain, socket);
  }

  /** What a health check is told. @param {string} path */
  #health = (path) => {
    const reason = path === '/livez' ? null : this.#stopped ? 'draining' : this.readiness();
    if (reason === null) return answer(200, {}, JSON.stringify({ status: 'ok' }));
    return answer(503, {}, JSON.stringify({ status: 'unavailable', reason }));
  };

  /**
   * @param {IncomingMessage} request
   * @param {TrackedSocket} socket
   * @param {Buffer} head
   */
  #upgrade(request, socket, head) {
    const handshake = socket[HANDSHAKE];
    if (handshake.phase === CLOSING || handshake.phase === GONE) {
      takeOver(socket);
      socket.resume(); // it has been answered
      return;
    }
    if (socket.destroyed) return;
    this.#leave(socket);
    // RFC 9110 7.8: a server may ignore an Upgrade. Clients that offer h2c want their health check
    // answered.
    if (
      isHealthPath(pathOf(request.url ?? '')) &&
      !isToWebSocket(request) &&
      tooManyHeaders(request) === null
    ) {
      const { status, headers, body } = plainAnswer(request, this.#health);
      const text = responseText(status, { 'Cache-Control': 'no-store', ...headers }, body);
      return this.#answer(socket, request.method === 'HEAD' ? text.slice(0, -body.length) : text);
    }
    const fault = handshakeFault(request);
    if (fault !== null) {
      this.counters.refused.bad_request++;
      return this.#reject(socket, fault.status, fault.message, fault.headers);
    }
    if (this.#stopped) {
      this.counters.refused.draining++;
      return this.#reject(socket, 503, 'The server is shutting down.', this.#retryAfter());
    }
    const refusal = handshake.requests === 0 ? null : this.admission.admitPeer(handshake.address);
    if (refusal !== null) return this.#refuse(socket, refusal);
    const decision = this.admission.admit(request);
    if (decision instanceof Promise) {
      takeOver(socket);
      handshake.phase = ADMITTING;
      if (!this.#waiting.has(socket)) {
        // Plain HTTP came first on this socket: the handshake's time begins now.
        handshake.sinceMs = performance.now();
        this.#waiting.add(socket);
        this.#arm();
      }
      this.#decideLater(decision, request, socket, head);
    } else {
      this.#decide(decision, request, socket, head);
    }
  }

  /**
   * @param {Promise<Refusal|AdmissionLease>} decision
   * @param {IncomingMessage} request
   * @param {TrackedSocket} socket
   * @param {Buffer} head
   */
  async #decideLater(decision, request, socket, head) {
    this.#decided.push({ decision: await decision, request, socket, head });
  }

  /** @param {Decided} decided */
  #conclude({ decision, request, socket, head }) {
    if (socket[HANDSHAKE].phase === ADMITTING && !socket.destroyed) {
      this.#decide(decision, request, socket, head);
    } else if (!isRefusal(decision)) {
      decision.release(); // the client has left, or waited too long
    }
  }

  /**
   * @param {Refusal|AdmissionLease} decision
   * @param {IncomingMessage} request
   * @param {TrackedSocket} socket
   * @param {Buffer} head
   */
  #decide(decision, request, socket, head) {
    if (isRefusal(decision)) return this.#refuse(socket, decision);
    const handshake = socket[HANDSHAKE];
    if (this.#stopped) {
      decision.release();
      this.counters.refused.draining++;
      return this.#reject(socket, 503, 'The server is shutting down.', this.#retryAfter());
    }
    this.#waiting.delete(socket);
    handshake.phase = OPEN;
    handshake.address = null;
    handshake.admitted = decision;
    this.onUpgrade(request, socket, head, decision);
    if (this.#connect === null) socket.resume();
  }

  /**
   * What Node's parser could not read, or did not get in time.
   * @param {NodeJS.ErrnoException} error
   * @param {TrackedSocket} socket
   */
  #clientError(error, socket) {
    // A reset, or something more from a peer that has been answered.
    if (
      !socket.writable ||
      socket[HANDSHAKE].phase === CLOSING ||
      error.code === 'ECONNRESET' ||
      error.code === 'EPIPE'
    ) {
      socket.destroy();
      return;
    }
    if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') {
      this.counters.refused.handshake_timeout++;
      return this.#reject(socket, 408, 'The request took too long.', {});
    }
    this.counters.refused.bad_request++;
    if (error.code === 'HPE_HEADER_OVERFLOW')
      return this.#reject(socket, 431, 'The header is too large.', {});
    this.#reject(socket, 400, 'Not an HTTP request.', {});
  }

  /**
   * @param {TrackedSocket} socket
   * @param {Refusal} refusal
   */
  #refuse(socket, { reason, status, headers, body }) {
    this.log.debug({ reason, peer: socket.remoteAddress }, 'refused');
    this.#answer(socket, responseText(status, headers, body));
  }

  /**
   * @param {TrackedSocket} socket
   * @param {number} status
   * @param {string} message
   * @param {Headers} headers
   */
  #reject(socket, status, message, headers) {
    this.#answer(socket, responseText(status, headers, errorBody(status, message)));
  }

  /**
   * The last thing said on a socket that does not become a WebSocket.
   * @param {TrackedSocket} socket
   * @param {string} text
   */
  #answer(socket, text) {
    takeOver(socket);
    this.#waiting.delete(socket);
    this.#leave(socket);
    if (socket.destroyed) {
      socket[HANDSHAKE].phase = CLOSING;
      return;
    }
    socket.removeListener('readable', socketOnReadable);
    socket.end(text);
    this.#linger(socket);
    if (!this.#closing.has(socket)) return socket.destroySoon();
    // The server reads and discards what the peer still sends. If the peer closes too, the stream
    // destroys itself.
    socket.removeListener('data', socketOnData);
    socket.on('data', socketOnData);
    socket.resume();
  }

  /** The socket has its last answer, and some time to go. @param {TrackedSocket} socket */
  #linger(socket) {
    const handshake = socket[HANDSHAKE];
    handshake.phase = CLOSING;
    handshake.lastByte = socket.bytesRead + MAX_LINGERING_BYTES;
    if (this.#closing.size >= MAX_LINGERING) return;
    handshake.sinceMs = performance.now();
    this.#closing.add(socket);
    this.#arm();
  }

  /** @returns {Headers} with jitter */
  #retryAfter() {
    return { 'Retry-After': String(RETRY_S + Math.floor(Math.random() * (RETRY_S + 1))) };
  }

  /** Sets the one timer to the next socket that is due. */
  #arm() {
    if (this.#timer !== undefined) return;
    let dueMs = Number.POSITIVE_INFINITY;
    for (const socket of this.#waiting) {
      dueMs = socket[HANDSHAKE].sinceMs + this.config.handshakeTimeoutMs;
      break;
    }
    for (const socket of this.#closing) {
      dueMs = Math.min(dueMs, socket[HANDSHAKE].sinceMs + LINGER_MS);
      break;
    }
    if (dueMs === Number.POSITIVE_INFINITY) return;
    const delayMs = Math.min(MAX_SWEEP_MS, Math.max(MIN_SWEEP_MS, dueMs - performance.now()));
    // The sweep comes after the sockets that can be read: a worker that was held up must not blame
    // its clients.
    this.#timer = setTimeout(() => setImmediate(() => this.#sweep()), delayMs).unref();
  }

  /**
   * Ends what is overdue. Both sets are in the order of time, so that it looks at no more than one
   * socket too many.
   */
  #sweep() {
    this.#timer = undefined;
    const nowMs = performance.now();
    let refusals = 0;
    for (const socket of this.#waiting) {
      const handshake = socket[HANDSHAKE];
      const deadlineMs = handshake.sinceMs + this.config.handshakeTimeoutMs;
      if (deadlineMs > nowMs) break;
      if (refusals === MAX_REFUSALS_PER_SWEEP) break;
      // Bytes that came after the deadline and are in line now do not make the worker late.
      const isClientLate =
        handshake.phase === WAITING ||
        (handshake.phase === IN_LINE && handshake.inLineMs >= deadlineMs);
      if (!isClientLate && this.config.maxHandshakesMode !== 'enforce') {
        // The worker is late: the client gets as much time again.
        if (this.config.maxHandshakesMode === 'observe') this.counters.observed.handshakes++;
        handshake.sinceMs = nowMs;
        this.#waiting.delete(socket);
        this.#waiting.add(socket);
        continue;
      }
      refusals++;
      if (isClientLate) {
        this.counters.refused.handshake_timeout++;
        this.#reject(socket, 408, 'The request took too long.', {});
      } else {
        this.counters.refused.handshakes++;
        this.#reject(socket, 503, 'The server is busy.', this.#retryAfter());
      }
    }
    for (const socket of this.#closing) {
      if (socket[HANDSHAKE].sinceMs + LINGER_MS > nowMs) break;
      this.#closing.delete(socket);
      socket.destroy();
    }
    this.#arm();
  }

  /** @param {TrackedSocket} socket that is closed, or about to be */
  socketClosed(socket) {
    const handshake = socket[HANDSHAKE];
    if (handshake.phase === GONE) return;
    handshake.phase = GONE;
    this.counters.sockets--;
    this.#waiting.delete(socket);
    this.#closing.delete(socket);
    this.#fed.delete(socket);
    this.#leave(socket);
    handshake.admitted?.release();
  }
}

/**
 * @param {Refusal|AdmissionLease} decision
 * @returns {decision is Refusal}
 */
function isRefusal(decision) {
  return 'status' in decision;
}

/**
 * From an upgrade on Node listens to the socket no more, and an error nobody hears ends the
 * process. ws listens from the moment it gets the socket; until then, where anything waits, and
 * where it does not get it, we do.
 * @param {TrackedSocket} socket
 */
function takeOver(socket) {
  socket.removeListener('error', socketOnError);
  socket.on('error', socketOnError);
}

/**
 * @param {import('node:stream').Duplex} stream that the HTTP server reads
 * @returns {TrackedSocket}
 */
function socketOf(stream) {
  return /** @type {TrackedSocket} */ (stream instanceof FeedStream ? stream.socket : stream);
}

/** @this {TrackedSocket} */
function socketOnError() {
  this.destroy();
}

/** @this {TrackedSocket} */
function socketOnReadable() {
  this[HANDSHAKE].server.readable(this);
}

/** @this {TrackedSocket} @param {Buffer} bytes */
function socketOnData(bytes) {
  this[HANDSHAKE].server.data(this, bytes);
}

/** @this {TrackedSocket} */
function socketOnClose() {
  this[HANDSHAKE].server.socketClosed(this);
}
