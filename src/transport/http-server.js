// http-server.js: the public port. It answers health checks, checks and admits WebSocket handshakes
// and hands them on, and refuses all other requests in HTTP.
//
//            accept          bytes            request                    admitted
//   (client) ------> WAITING -----> IN_LINE -----------> ADMITTING ----------------> OPEN (the WebSocket transport's)
//                       |  ^____________|  \__ plain HTTP: PLAIN
//                       |   not all yet |                  |
//                       | too slow      | malformed, ...   | refused, too slow
//                       +--------> CLOSING <---------------+     (answered; the peer has LINGER_MS to go)
//
// A request for server-sent events is treated as a handshake: the socket leaves Node's HTTP
// server, is admitted, and becomes a stream (sse.js).
//
// With TLS, a socket gets to WAITING twice: for its ClientHello, and then for its request:
//
//            accept          bytes            ClientHello                  TLS established
//   (client) ------> WAITING -----> IN_LINE -------------> IN_LINE, SECURING --------------> WAITING
//
// secure-sockets.js spends the CPU time of TLS handshakes, a few milliseconds in each turn. Until
// TLS is established, no refusal can be sent, so the server closes the socket instead.
//
// Express middleware and Node's own time-outs do not see upgrades. `ws` answers 101 to HTTP/1.0, to
// no or two Hosts, to absolute URLs and to upgrades with a body. So the checks here come before
// `ws`. Between accept and OPEN or PLAIN a socket is in `#waiting`, in the order of arrival, and
// one timer for all sockets examines the oldest. Listeners are shared functions that find their
// state on the socket.
//
// After an outage all clients reconnect at once. The kernel hands over a thousand sockets in one
// turn of the event loop, a quarter of a millisecond each. So a socket with bytes to read waits in
// a line, and each turn spends SLICE_MS on the line. Sockets that a cap per address admits later
// wait in a second line. The lines have no length limit, because a socket is refused when its time
// is over. Addresses take turns (fair-queue.js), so a flood from one of them does not delay the
// others. A request that comes in several reads waits in line for each of them. Node's parser gets
// small pieces, and nothing behind the last request that is answered.
//
// A socket is idle if it waits for its client. `#silent` holds sockets without a whole request, and
// `#plain` holds sockets that plain HTTP keeps alive. Both are bounded in number, and both shrink
// when descriptors run short. The server then closes the oldest idle socket of the address that has
// most (crowd.js). Sockets of a trusted proxy each count as a separate address.

import { createServer } from 'node:http';
import { createServer as createAcceptor } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { plainOnly, useFastPath } from '../config/fast-paths.js';
import { LISTEN_BACKLOG, OWN_DESCRIPTORS } from '../config/system-limits.js';
import { refusal, spread, toHttp } from '../protocol/refusal.js';
import { readClientHello } from './client-hello.js';
import { Crowd } from './crowd.js';
import { FairQueue } from './fair-queue.js';
import { httpListenersFault, speakHttp, takeConnectionListener } from './fast/http-listeners.js';
import { copyReads } from './fast/shared-reads.js';
import {
  peekShortHandshake,
  readShortHandshake,
  shortHandshakeFault,
} from './fast/short-handshake.js';
import { FeedStream } from './feed-stream.js';
import { handshakeFault, hasBody, isToWebSocket, MAX_HEADERS, routeOf } from './handshake.js';
import { answer, plainAnswer, requestFault, respond, responseText } from './http-answers.js';
import { SecureSockets } from './secure-sockets.js';
import { TimeSlicedQueue } from './time-sliced-queue.js';

const MAX_HEADER_BYTES = 16_384;
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 15_000;
const CHECKING_INTERVAL_MS = 1000;
const KEEP_ALIVE_TIMEOUT_MS = 5000;
/**
 * After this many requests, or at the first answer after this time, plain HTTP closes a kept-alive
 * socket.
 */
const MAX_REQUESTS = 100;
const MAX_PLAIN_AGE_MS = 60_000;
/** A socket with a valid API key is closed at the first answer after this time. */
const MAX_API_AGE_MS = 600_000;
/** Idle sockets whose last request had a valid API key. */
const MAX_API_IDLE = 256;
/** Sockets kept alive by plain HTTP: load balancers' health checks need a few. */
const MAX_PLAIN = 64;
/** A lack of descriptors is logged at most this often. */
const LOG_INTERVAL_MS = 60_000;
/**
 * A refused peer has this long to read the answer and close. If the server closed at once, bytes
 * still arriving from the peer would reset the connection (RFC 9112 9.6).
 */
const LINGER_MS = 1000;
/**
 * Largest number of sockets that linger. In a flood of refusals the server closes the others as
 * soon as the answer is written.
 */
const MAX_LINGERING = 1000;
/**
 * If this many linger, connections above the rate of their address are closed without an answer.
 */
const MAX_LINGERING_OVER_RATE = 100;
/**
 * Bytes that a refused peer may still send. Beyond this number the server closes the socket at
 * once.
 */
const MAX_LINGERING_BYTES = 8_388_608;
/**
 * Lingering sockets that continue to be read in a turn, up to 128 KB each. If they flowed, one turn
 * could read 2 MB of each, half a second for a thousand.
 */
const MAX_LINGERING_READS = 64;
/** After the end of accepting, handshakes under way have this long before `close` ends them. */
const FINISH_MS = 1000;
/** Longest time that `close` then waits until the last answers are written. */
const LAST_WRITE_MS = 100;
const POLL_MS = 20;
/**
 * Handshakes that one sweep refuses, and lingering sockets that it closes. The next sweep ends the
 * others.
 */
const MAX_ENDS_PER_SWEEP = 100;
/** Shortest and longest time between two sweeps. */
const MIN_SWEEP_MS = 20;
const MAX_SWEEP_MS = 1000;
/**
 * Node's parser gets at most this many bytes at once. A whole read has room for 3,600 pipelined
 * requests, and parsing all of them takes 60 ms even if the server answers none.
 */
const PIECE_BYTES = 512;
/**
 * A piece ends with a head, so that the parser gets no request behind the last one that is
 * answered. Node would create its objects, and an Error with a stack when the socket closes.
 */
const END_OF_HEAD = Buffer.from('\r\n\r\n');
/**
 * Heads in one read. The second is the last that is answered. A read with more has empty lines
 * before its requests, each of which would be a piece.
 */
const MAX_HEADS = 4;
/**
 * Time per turn of the event loop for handshakes in line, and the same again for those admitted
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
const SECURING = 7;

const NOTHING = Buffer.alloc(0);
/** @type {unique symbol} */
const HANDSHAKE = Symbol('handshake');

/** @typedef {import('node:http').IncomingMessage} IncomingMessage */
/** @typedef {import('node:http').ServerResponse} ServerResponse */
/** @typedef {import('node:net').Socket} Socket */
/** @typedef {import('node:stream').Duplex} Duplex */
/** @typedef {Socket & {[HANDSHAKE]: Handshake}} TrackedSocket */
/** @typedef {import('../protocol/refusal.js').Refusal} Refusal */
/** @typedef {import('../admission/admission.js').AdmissionLease} AdmissionLease */
/**
 * @typedef
 *   {{decision: Refusal|AdmissionLease, request: IncomingMessage, socket: TrackedSocket, head: Buffer}}
 *   Decided
 */
/** @typedef {typeof import('../observability/counters.js').EVICTIONS[number]} Eviction */

/** The state of one socket, for as long as the socket lives. */
class Handshake {
  /**
   * @param {HttpServer} server
   * @param {number} sinceMs
   */
  constructor(server, sinceMs) {
    this.server = server;
    this.sinceMs = sinceMs;
    this.phase = WAITING;
    /** True until TLS is established, if the port speaks TLS. */
    this.needsTls = server.secure !== null;
    /** The time at which the bytes that wait in line arrived. */
    this.inLineMs = 0;
    /** While the socket is closing: the last byte that it may send. */
    this.lastByte = 0;
    /** Number of requests answered in plain HTTP. */
    this.requests = 0;
    /** Requests to the HTTP API that are not answered yet. */
    this.calls = 0;
    /** The latest of them. @type {IncomingMessage|null} */
    this.call = null;
    /** If true, the requests under way are the last of the socket. */
    this.isEnding = false;
    /** @type {AdmissionLease|null} */
    this.admitted = null;
    /**
     * The request for a stream, until it is answered.
     * @type {import('./sse-request.js').StreamRequest|null}
     */
    this.wanted = null;
    /**
     * A refusal that waits for the client's first bytes.
     * @type {Refusal|null}
     */
    this.refusal = null;
    /**
     * Passes bytes to Node's parser; null unless the socket speaks HTTP.
     * @type {((bytes: Buffer) => void)|null}
     */
    this.parse = null;
    /** The stream that the HTTP server reads instead of the socket. @type {FeedStream|null} */
    this.stream = null;
    /** Bytes read and not parsed yet. @type {Buffer} */
    this.ahead = NOTHING;
    /**
     * The address it counts for until it has a WebSocket; see Admission.peerOf.
     * @type {string|null}
     */
    this.address = null;
    /**
     * If the socket is idle: its crowd, and its group there.
     * @type {Crowd<TrackedSocket>|null}
     */
    this.crowd = null;
    /** @type {import('./crowd.js').Group<TrackedSocket>|null} */
    this.group = null;
  }
}

/**
 * In place of the Handshake of a socket with a WebSocket: most sockets of a server are idle ones,
 * and the rest of a Handshake takes 0.14 kB.
 */
class Upgraded {
  /**
   * @param {HttpServer} server
   * @param {AdmissionLease} admitted
   */
  constructor(server, admitted) {
    this.server = server;
    this.phase = OPEN;
    this.admitted = admitted;
  }

  /** It speaks no HTTP. */
  get parse() {
    return null;
  }
}

export class HttpServer {
  /** Sockets that have not finished their handshake, oldest first. @type {Set<TrackedSocket>} */
  #waiting = new Set();
  /** Sockets that have their last answer, oldest first. @type {Set<TrackedSocket>} */
  #closing = new Set();
  /** Sockets without a whole request. @type {Crowd<TrackedSocket>} */
  #silent = new Crowd();
  /** Sockets that plain HTTP keeps alive. @type {Crowd<TrackedSocket>} */
  #plain = new Crowd();
  /** Idle sockets of backends that use the HTTP API. @type {Crowd<TrackedSocket>} */
  #backends = new Crowd();
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  #loggedMs = Number.NEGATIVE_INFINITY;
  /** The time at which accepting ended. */
  #stoppedMs = Number.POSITIVE_INFINITY;
  /** Sockets with bytes to read that are not parsed. @type {FairQueue<TrackedSocket>} */
  #line = new FairQueue();
  /** Takes one socket out of `#line` for each `undefined`. @type {TimeSlicedQueue<undefined>} */
  #turns = new TimeSlicedQueue(
    () => this.#begin(/** @type {TrackedSocket} */ (this.#line.shift())),
    SLICE_MS,
  );
  /** Handshakes whose admission took longer than a turn. @type {TimeSlicedQueue<Decided>} */
  #decided = new TimeSlicedQueue((decided) => this.#conclude(decided), SLICE_MS);
  /**
   * The HTTP server's own listener for connections; null if the HTTP server reads FeedStreams.
   * @type {import('./fast/http-listeners.js').ConnectionListener|null}
   */
  #connect;
  /** Sockets with their last answer that go on sending. @type {TimeSlicedQueue<TrackedSocket>} */
  #lingerers = new TimeSlicedQueue((socket) => void socket.resume(), SLICE_MS, MAX_LINGERING_READS);
  /** Sockets with a FeedStream. @type {Set<TrackedSocket>} */
  #fed = new Set();

  /**
   * @param {object} parts
   * @param {import('../config/settings.js').Config} parts.config
   * @param {import('../config/certificate.js').Certificate|null} [parts.certificate] null: the port
   *   speaks plain HTTP
   * @param
   *   {Pick<import('../admission/admission.js').Admission, 'admit'|'admitPeer'|'peerOf'|'isShortOfDescriptors'|'health'>}
   *   parts.admission
   * @param
   *   {(request: IncomingMessage, socket: import('node:net').Socket, head: Buffer, admitted: AdmissionLease) => void}
   *   parts.onUpgrade takes over a well-formed, admitted handshake that is not answered yet
   * @param {import('./sse.js').EventStreams|null} [parts.streams] takes over an admitted request for
   *   server-sent events; null if they are off
   * @param {Pick<import('./http-api/http-api.js').HttpApi, 'begin'|'handle'>|null} [parts.api] null
   *   if no API keys are configured
   * @param {() => string|null} parts.readiness null if ready; otherwise the reason
   * @param {{debug(fields: object, text: string): void, error(fields: object, text: string): void}}
   *   parts.log
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({
    config,
    certificate = null,
    admission,
    onUpgrade,
    streams = null,
    api = null,
    readiness,
    log,
    counters,
  }) {
    this.config = config;
    this.admission = admission;
    this.onUpgrade = onUpgrade;
    this.streams = streams;
    this.api = api;
    this.readiness = readiness;
    this.log = log;
    this.counters = counters;
    /** Null if the port speaks plain HTTP. */
    this.secure =
      certificate &&
      new SecureSockets({
        certificate,
        onStart: (socket) => this.#startTls(/** @type {TrackedSocket} */ (socket)),
        onSecure: (socket, stream) =>
          this.#secured(
            /** @type {TrackedSocket} */ (socket),
            /** @type {TrackedSocket} */ (/** @type {Socket} */ (stream)),
          ),
        counters,
      });
    /**
     * The largest number of sockets that leaves descriptors for the worker itself. A worker without
     * free descriptors cannot work at all.
     */
    this.maxSockets = admission.health.descriptorLimit - OWN_DESCRIPTORS;
    const http = (this.http = createServer({
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: HEADERS_TIMEOUT_MS,
      // Other bodies than uploads have a shorter time (http-api/body.js).
      requestTimeout:
        config.blobs === null
          ? REQUEST_TIMEOUT_MS
          : Math.max(REQUEST_TIMEOUT_MS, config.blobUploadTimeoutMs),
      connectionsCheckingInterval: CHECKING_INTERVAL_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      requireHostHeader: false, // plainAnswer() checks it, because Node's own answers bypass the counters
      noDelay: true,
    }));
    http.maxHeadersCount = MAX_HEADERS + 1;
    http.on('request', (request, response) => this.#request(request, response));
    // Only a request to the HTTP API needs its body, so only such a request gets 100 Continue.
    http.on('checkContinue', (request, response) => this.#request(request, response));
    // Without a listener Node answers 417 itself, and that answer bypasses the counters.
    http.on('checkExpectation', (request, response) => this.#request(request, response));
    http.on('upgrade', (request, stream, head) => {
      const socket = this.#accepted(request.socket, stream);
      if (socket !== null)
        this.#upgrade(request, routeOf(request), socket, this.#endHttp(socket, head));
    });
    http.on('connect', (request, stream, head) => {
      const socket = this.#accepted(request.socket, stream);
      if (socket === null) return;
      this.#endHttp(socket, head);
      this.#reject(socket, refusal('method_not_allowed', 'This server is not a proxy.'));
    });
    http.on('clientError', (error, stream) => {
      const socket = this.#accepted(stream);
      if (socket !== null) this.#clientError(error, socket);
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
      // An HTTP server that does not listen does not check for slow requests.
      http.timeout = REQUEST_TIMEOUT_MS;
      this.server = createAcceptor({ allowHalfOpen: true, noDelay: true });
    } else this.server = http;
    this.server.on('connection', (socket) =>
      this.#connected(/** @type {TrackedSocket} */ (socket)),
    );
  }

  /** All sockets of this port, in any phase. */
  get openSockets() {
    return this.counters.sockets;
  }

  /** Number of sockets that plain HTTP keeps alive. */
  get plainSockets() {
    return this.#plain.size;
  }

  /** If true, the server no longer accepts or admits. */
  get #isStopped() {
    return this.#stoppedMs !== Number.POSITIVE_INFINITY;
  }

  /** Number of sockets that have not finished their handshake. */
  get handshakes() {
    return this.#waiting.size;
  }

  /** @returns {Promise<{port: number, address: string}>} the bound port and address */
  listen() {
    const { server, config } = this;
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(
        { port: config.port, host: config.host || undefined, backlog: LISTEN_BACKLOG },
        () => {
          server.removeListener('error', reject);
          // Accepting failed. Node resumes accepting when descriptors are free again.
          server.on('error', (error) =>
            this.#logRarely({ err: error }, 'public port: accept failed'),
          );
          const bound = server.address();
          // null if the server was closed meanwhile; a string for a pipe, which this server never
          // uses.
          if (bound === null || typeof bound === 'string')
            reject(new Error('the public port closed before it was open'));
          else resolve({ port: bound.port, address: bound.address });
        },
      );
    });
  }

  /**
   * TLS handshakes that begin from now on use this certificate. Open connections stay as they are.
   * @param {import('../config/certificate.js').Certificate} certificate
   */
  replaceCertificate(certificate) {
    this.secure?.replaceCertificate(certificate);
  }

  /** Closes the listener. WebSockets stay open; unfinished handshakes end with 503. */
  stopAccepting() {
    if (this.#isStopped) return;
    this.#stoppedMs = performance.now();
    if (this.server.listening) this.server.close();
    // An HTTP server that listens closes its idle sockets itself.
    for (const socket of this.#fed) {
      const { crowd } = socket[HANDSHAKE];
      if (crowd === this.#plain || crowd === this.#backends) socket.destroy();
    }
  }

  /**
   * Closes the listener and every socket that is not a WebSocket. Clients that have begun a
   * handshake have FINISH_MS from the end of accepting to get their answer.
   * @returns {Promise<void>} resolves when all of them are closed
   */
  async close() {
    this.stopAccepting();
    const isDone = () => this.#closing.size === 0 && ![...this.#waiting].some(hasBegun);
    await until(isDone, this.#stoppedMs + FINISH_MS);
    for (const socket of this.#waiting) {
      if (!hasBegun(socket)) continue;
      if (socket[HANDSHAKE].phase === IN_LINE) this.#peekInLine(socket);
      this.#refuseAsDraining(socket);
    }
    await until(() => allWritten(this.#closing), performance.now() + LAST_WRITE_MS);
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
    this.http.closeAllConnections(); // closes kept-alive sockets; upgraded sockets are unknown to it
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
      this.#logRarely(
        { sockets: counters.sockets },
        'no file descriptors left: closing new connections unanswered',
      );
      return this.#discard(socket);
    }
    handshake.address = admission.peerOf(socket);
    const refused = admission.admitPeer(handshake.address);
    if (refused !== null) {
      if (this.#closing.size >= MAX_LINGERING_OVER_RATE) return this.#discard(socket);
      if (this.streams === null || handshake.needsTls) return this.#refuse(socket, refused);
      return this.#refuseWhenRead(socket, refused);
    }
    if (this.#silent.size >= config.maxHandshakes) {
      if (config.maxHandshakesMode === 'enforce') this.#evict(this.#silent, 'handshakes');
      else if (config.maxHandshakesMode === 'observe') counters.observed.handshakes++;
    }
    // One idle socket goes for each new socket. If WebSockets alone are too many, closing all idle
    // sockets would not help.
    if (admission.isShortOfDescriptors) this.#makeRoom('descriptors');
    this.#enter(this.#silent, socket);
    this.#waiting.add(socket);
    this.#arm();
    if (this.readsShort) copyReads(socket);
    socket.on('error', socketOnError);
    socket.once('readable', socketOnReadable);
  }

  /**
   * @param {Crowd<TrackedSocket>} crowd
   * @param {TrackedSocket} socket that is in no crowd
   */
  #enter(crowd, socket) {
    const handshake = socket[HANDSHAKE];
    handshake.crowd = crowd;
    handshake.group = crowd.add(socket, handshake.address);
  }

  /** The socket is no longer idle. @param {TrackedSocket} socket */
  #leave(socket) {
    const handshake = socket[HANDSHAKE];
    handshake.crowd?.delete(socket, handshake.group);
    handshake.crowd = null;
    handshake.group = null;
  }

  /**
   * Closes an idle socket if there is one.
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
   * Closes the socket whose loss matters least.
   * @param {Eviction} reason
   * @returns {boolean} false if there is no socket to close
   */
  #makeRoom(reason) {
    for (const socket of this.#closing) {
      this.#discard(socket); // it has had its last answer
      return true;
    }
    const crowd = this.#plain.largest > this.#silent.largest ? this.#plain : this.#silent;
    // The backends' sockets are the last to go.
    return this.#evict(crowd, reason) || this.#evict(this.#backends, reason);
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
  #logRarely(fields, text) {
    const nowMs = performance.now();
    if (nowMs - this.#loggedMs < LOG_INTERVAL_MS) return;
    this.#loggedMs = nowMs;
    this.log.error(fields, text);
  }

  /** @param {TrackedSocket} socket that has bytes to read, or has ended */
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
    // The peer has connected and closed without a byte, as port checks do.
    if (socket.readableEnded) return void socket.destroy();
    if (handshake.needsTls) return this.#readClientHello(socket);
    // The socket is read at once, and not when the stream flows, so that the slice measures its
    // cost.
    if (handshake.parse === null) {
      const bytes = /** @type {Buffer|null} */ (socket.read());
      const request = this.readsShort && bytes !== null ? readShortHandshake(bytes, socket) : null;
      if (request !== null) {
        const route = routeOf(request);
        if (isToWebSocket(request) || this.#isForStream(request, route))
          return this.#upgrade(request, route, socket, NOTHING);
      }
      if (this.#connect === null) this.#feedHttp(socket);
      else {
        handshake.parse = speakHttp(this.http, this.#connect, socket);
        socket.removeListener('error', socketOnError);
        if (handshake.parse === null) return this.#discard(socket);
      }
      socket.on('data', socketOnData);
      if (bytes !== null) this.#parse(socket, bytes);
    } else {
      socket.resume();
      this.#parse(socket, handshake.ahead);
    }
    if (handshake.phase !== IN_LINE || socket.destroyed) return;
    this.#awaitClient(socket, WAITING); // the client has to send the rest of the request
  }

  /**
   * @param {TrackedSocket} socket that is in no crowd
   * @param {number} phase
   */
  #awaitClient(socket, phase) {
    socket[HANDSHAKE].phase = phase;
    // Other sockets may have arrived while this one was in line.
    const { maxHandshakes, maxHandshakesMode } = this.config;
    if (maxHandshakesMode === 'enforce' && this.#silent.size >= maxHandshakes)
      this.#evict(this.#silent, 'handshakes');
    this.#enter(this.#silent, socket);
  }

  /** @param {TrackedSocket} socket whose first bytes, or further ones, wait for TLS */
  #readClientHello(socket) {
    const handshake = socket[HANDSHAKE];
    const bytes = /** @type {Buffer|null} */ (socket.read());
    if (bytes === null) return void socket.destroy(); // its end
    handshake.ahead =
      handshake.ahead.length === 0 ? bytes : Buffer.concat([handshake.ahead, bytes]);
    switch (readClientHello(handshake.ahead)) {
      case 'complete':
        this.secure?.push(socket, handshake.address);
        break;
      case 'partial':
        this.#awaitClient(socket, WAITING);
        socket.once('readable', socketOnReadable);
        break;
      default:
        // A client that expects plain HTTP can read the answer.
        handshake.needsTls = false;
        this.counters.refused.tls++;
        this.#reject(
          socket,
          refusal('bad_request', 'This port speaks TLS: use https:// or wss://.'),
        );
    }
  }

  /**
   * @param {TrackedSocket} socket whose turn it is to begin TLS
   * @returns {boolean} false: the socket is closed
   */
  #startTls(socket) {
    const handshake = socket[HANDSHAKE];
    if (handshake.phase !== IN_LINE || socket.destroyed || socket.readableEnded) {
      socket.destroy();
      return false;
    }
    this.#awaitClient(socket, SECURING); // the client has to answer
    socket.unshift(handshake.ahead); // TLS reads it
    handshake.ahead = NOTHING;
    return true;
  }

  /**
   * The client has the same time again for its request.
   * @param {TrackedSocket} socket that is encrypted
   * @param {TrackedSocket} stream the decrypted one, which takes its place
   */
  #secured(socket, stream) {
    const handshake = socket[HANDSHAKE];
    stream.on('error', socketOnError);
    if (handshake.phase !== SECURING) return void stream.destroy();
    // The stream closes after the socket.
    socket.removeListener('close', socketOnClose);
    this.#waiting.delete(socket);
    this.#leave(socket);
    handshake.needsTls = false;
    handshake.sinceMs = performance.now();
    stream[HANDSHAKE] = handshake;
    stream.on('close', socketOnClose);
    this.#awaitClient(stream, WAITING);
    this.#waiting.add(stream);
    this.#arm();
    stream.once('readable', socketOnReadable);
  }

  /** The HTTP server reads a FeedStream from now on. @param {TrackedSocket} socket */
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
      if (handshake.refusal !== null) this.#refuseUnparsed(socket, handshake.refusal, bytes);
      if (socket.bytesRead > handshake.lastByte) return this.#discard(socket);
      socket.pause();
      this.#lingerers.push(socket);
      return;
    }
    if (handshake.phase !== WAITING) return this.#parse(socket, bytes);
    // These bytes belong to a request that began in an earlier turn. They wait for another turn.
    handshake.phase = IN_LINE;
    handshake.inLineMs = performance.now();
    handshake.ahead = bytes;
    socket.pause();
    this.#leave(socket);
    this.#line.push(socket, handshake.address);
    this.#turns.push(undefined);
  }

  /**
   * Parses the bytes up to the last request that is answered.
   * @param {TrackedSocket} socket
   * @param {Buffer} bytes
   */
  #parse(socket, bytes) {
    const handshake = socket[HANDSHAKE];
    let heads = 0;
    for (let at = 0; at < bytes.length; ) {
      if (handshake.parse === null || handshake.phase === CLOSING || socket.destroyed) return;
      // Node pauses the socket if the peer does not read its answers.
      const isPaused = handshake.stream?.isPaused() ?? (at > 0 && socket.isPaused());
      if (isPaused) return this.#discard(socket);
      let piece = bytes.subarray(at, at + PIECE_BYTES);
      // While the HTTP API reads a body, the bytes are no heads.
      const end = handshake.calls > 0 ? -1 : piece.indexOf(END_OF_HEAD);
      if (end !== -1) {
        if (++heads > MAX_HEADS) {
          this.counters.refused.bad_request++;
          return this.#discard(socket);
        }
        piece = piece.subarray(0, end + END_OF_HEAD.length);
      }
      at += piece.length;
      handshake.ahead = at < bytes.length ? bytes.subarray(at) : NOTHING;
      handshake.parse(piece);
    }
  }

  /**
   * The socket behind a stream that a listener of Node's HTTP server is given. Node promises no
   * more than a Duplex. In `upgrade` and `connect`, Node 26 gives a stream of its own if the
   * request has a body; `request.socket` is ours in every version.
   * @param {Duplex} stream that the HTTP server reads
   * @param {Duplex} [given] what the listener got in its place
   * @returns {TrackedSocket|null} null: this port has not accepted it. It is closed and counted.
   */
  #accepted(stream, given = stream) {
    // It lives as long as the socket, and destroys itself with the socket's error. Nobody reads it.
    if (given !== stream) given.on('error', streamOnError);
    const socket = stream instanceof FeedStream ? stream.socket : stream;
    if (HANDSHAKE in socket) return /** @type {TrackedSocket} */ (socket);
    this.counters.refused.unknown_socket++;
    this.#logRarely({}, 'public port: Node passed on a socket that this port has not accepted');
    for (const unknown of new Set([stream, given])) unknown.on('error', streamOnError).destroy();
    return null;
  }

  /**
   * The socket no longer speaks HTTP.
   * @param {TrackedSocket} socket
   * @param {Buffer} head
   * @returns {Buffer} all bytes read behind the request
   */
  #endHttp(socket, head) {
    const handshake = socket[HANDSHAKE];
    const { ahead } = handshake;
    socket.removeListener('data', socketOnData);
    handshake.parse = null;
    handshake.ahead = NOTHING;
    if (handshake.stream !== null) {
      handshake.stream.abandon();
      handshake.stream = null;
      this.#fed.delete(socket);
      socket.pause(); // bytes behind the request wait for the next reader
    }
    return ahead.length === 0 ? head : Buffer.concat([head, ahead]);
  }

  /**
   * Handles plain HTTP: health checks, the HTTP API and stray requests.
   * @param {IncomingMessage} request
   * @param {ServerResponse} response
   */
  #request(request, response) {
    const socket = this.#accepted(request.socket);
    if (socket === null) return;
    const handshake = socket[HANDSHAKE];
    if (handshake.phase === CLOSING || handshake.phase === GONE) return; // it has been answered
    if (handshake.isEnding) return; // it comes behind the last request
    if (handshake.parse === null) return; // a request behind one for a stream
    const route = routeOf(request);
    // If the previous answer is not sent yet, the socket cannot leave the HTTP server.
    if (response.socket !== null && this.#isForStream(request, route)) {
      this.#endHttp(socket, NOTHING);
      return this.#stream(request, socket);
    }
    handshake.phase = PLAIN;
    this.#waiting.delete(socket);
    this.#leave(socket);
    const isFirst = handshake.requests++ === 0;
    let apiRefusal = null;
    if (this.api !== null && route === 'api') {
      apiRefusal = requestFault(request);
      if (apiRefusal === null) {
        const call = this.api.begin(request, hasBody(request));
        if (!('status' in call)) return this.#call(call, this.api, request, response, socket);
        apiRefusal = call;
      }
    }
    // The connection itself has paid the token of the first request.
    const refused = isFirst ? null : this.admission.admitPeer(handshake.address);
    const isLast =
      this.#isStopped ||
      refused !== null ||
      handshake.requests >= MAX_REQUESTS ||
      performance.now() - handshake.sinceMs >= MAX_PLAIN_AGE_MS ||
      // The previous answer is not sent yet. Without this check, all pipelined requests would be
      // answered in one turn.
      response.socket === null ||
      hasBody(request);
    const given =
      refused === null
        ? (apiRefusal ?? plainAnswer(request, route, this.#health, this.streams))
        : toHttp(refused);
    // Clients of the API read the refusal of a body that they are still sending.
    if (apiRefusal !== null && hasBody(request) && handshake.calls === 0)
      return this.#cutShort(socket, given);
    const { status, headers, body } = given;
    respond(response, status, isLast ? { Connection: 'close', ...headers } : headers, body);
    // Node decides with the headers: it closes if it refuses a body that the client announced with
    // `Expect` (RFC 9110 10.1.1), and no request behind such an answer counts (RFC 9112 9.6).
    const isClosing = isLast || headers.Connection !== undefined || !response.shouldKeepAlive;
    if (isClosing) {
      handshake.isEnding = true;
      if (handshake.calls > 0) return; // an earlier answer is still under way
      return this.#linger(socket);
    }
    if (this.#plain.size >= MAX_PLAIN) this.#evict(this.#plain, 'plain_http');
    this.#enter(this.#plain, socket);
  }

  /**
   * Passes a request to the HTTP API. Its limits are those of its key.
   * @param {import('./http-api/call.js').Call} call
   * @param {NonNullable<HttpServer['api']>} api
   * @param {IncomingMessage} request
   * @param {ServerResponse} response
   * @param {TrackedSocket} socket
   */
  #call(call, api, request, response, socket) {
    const handshake = socket[HANDSHAKE];
    const isLast =
      this.#isStopped ||
      response.socket === null || // pipelined
      performance.now() - handshake.sinceMs >= MAX_API_AGE_MS;
    if (isLast) call.endConnection();
    handshake.isEnding = isLast || !response.shouldKeepAlive;
    handshake.calls++;
    handshake.call = request;
    response.on('close', () => this.#called(socket));
    if (request.headers.expect !== undefined) response.writeContinue(); // RFC 9110 10.1.1
    const onCut = (/** @type {import('./http-answers.js').Answer} */ given) =>
      this.#cutShort(socket, given);
    const onUnread = () => this.#discard(socket);
    api.handle(call, request, response, onCut, flowOf(socket), onUnread);
  }

  /** A request to the HTTP API has been answered. @param {TrackedSocket} socket */
  #called(socket) {
    const handshake = socket[HANDSHAKE];
    handshake.calls--;
    if (handshake.calls > 0 || handshake.phase !== PLAIN || socket.destroyed) return;
    handshake.call = null;
    if (handshake.isEnding || this.#isStopped) return this.#linger(socket);
    if (this.#backends.size >= MAX_API_IDLE) this.#evict(this.#backends, 'plain_http');
    this.#enter(this.#backends, socket);
  }

  /**
   * Refuses a request of the HTTP API whose body has not been read.
   * @param {TrackedSocket} socket
   * @param {import('./http-answers.js').Answer} given
   */
  #cutShort(socket, { status, headers, body }) {
    // A pipelined request cannot be answered before the one ahead of it.
    if (socket[HANDSHAKE].calls > 1) return this.#discard(socket);
    this.#answer(socket, responseText(status, { 'Cache-Control': 'no-store', ...headers }, body));
  }

  /** The answer to a health check. @param {'livez'|'readyz'} route */
  #health = (route) => {
    const reason = route === 'livez' ? null : this.#isStopped ? 'draining' : this.readiness();
    if (reason === null) return answer(200, {}, JSON.stringify({ status: 'ok' }));
    return answer(503, {}, JSON.stringify({ status: 'unavailable', reason }));
  };

  /**
   * @param {IncomingMessage} request
   * @param {import('./handshake.js').Route} route
   * @param {TrackedSocket} socket
   * @param {Buffer} head
   */
  #upgrade(request, route, socket, head) {
    const handshake = socket[HANDSHAKE];
    if (handshake.phase === CLOSING || handshake.phase === GONE) {
      takeOver(socket);
      socket.resume(); // it has been answered
      return;
    }
    if (socket.destroyed) return;
    this.#leave(socket);
    // RFC 9110 7.8: a server may ignore an Upgrade. Clients that offer h2c expect an answer to
    // their health check.
    if (!isToWebSocket(request)) {
      if (route === 'livez' || route === 'readyz') {
        const { status, headers, body } = plainAnswer(request, route, this.#health, null);
        const text = responseText(status, { 'Cache-Control': 'no-store', ...headers }, body);
        return this.#answer(socket, request.method === 'HEAD' ? text.slice(0, -body.length) : text);
      }
      if (this.#isForStream(request, route)) return this.#stream(request, socket);
    }
    const fault = handshakeFault(request, route);
    if (fault !== null) {
      this.counters.refused.bad_request++;
      return this.#reject(socket, fault);
    }
    this.#admit(request, socket, head);
  }

  /**
   * @param {IncomingMessage} request
   * @param {import('./handshake.js').Route} route
   */
  #isForStream({ method }, route) {
    return this.streams !== null && method === 'GET' && route === 'stream';
  }

  /**
   * @param {IncomingMessage} request for server-sent events
   * @param {TrackedSocket} socket that no longer speaks HTTP
   */
  #stream(request, socket) {
    const { streams } = this;
    if (streams === null || socket.destroyed) return;
    takeOver(socket);
    this.#leave(socket);
    const stream = streams.read(request);
    socket[HANDSHAKE].wanted = stream;
    const fault = streams.faultOf(request, stream);
    if (fault !== null) return this.#refuseStream(socket, fault);
    this.#admit(request, socket, NOTHING);
  }

  /**
   * @param {TrackedSocket} socket
   * @param {Refusal} refused for the request alone, or for its token
   */
  #refuseStream(socket, refused) {
    this.counters.refused[toHttp(refused).status === 400 ? 'bad_request' : 'denied']++;
    this.#reject(socket, refused);
  }

  /**
   * @param {IncomingMessage} request well-formed
   * @param {TrackedSocket} socket
   * @param {Buffer} head
   */
  #admit(request, socket, head) {
    const handshake = socket[HANDSHAKE];
    if (this.#isStopped) return this.#refuseAsDraining(socket);
    const refused = handshake.requests === 0 ? null : this.admission.admitPeer(handshake.address);
    if (refused !== null) return this.#refuse(socket, refused);
    const decision = this.admission.admit(request);
    if (decision instanceof Promise) {
      takeOver(socket);
      handshake.phase = ADMITTING;
      if (!this.#waiting.has(socket)) {
        // This socket has had plain HTTP before: the handshake's time begins now.
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
    if (this.#isStopped) {
      decision.release();
      return this.#refuseAsDraining(socket);
    }
    this.#waiting.delete(socket);
    handshake.phase = OPEN;
    handshake.address = null;
    handshake.admitted = decision;
    if (handshake.wanted !== null) return this.#openStream(socket, decision);
    // With TLS, a socket and its stream share one Handshake.
    if (this.secure === null)
      socket[HANDSHAKE] = /** @type {Handshake} */ (new Upgraded(this, decision));
    this.onUpgrade(request, socket, head, decision);
    // Its new reader listens. A socket that is destroyed may still emit its error.
    if (!socket.destroyed) socket.removeListener('error', socketOnError);
    if (this.#connect === null) socket.resume();
  }

  /**
   * @param {TrackedSocket} socket
   * @param {AdmissionLease} admitted
   */
  #openStream(socket, admitted) {
    const handshake = socket[HANDSHAKE];
    const { wanted } = handshake;
    if (this.streams === null || wanted === null) return;
    const refused = this.streams.open(wanted, socket, admitted);
    if (refused instanceof Promise)
      refused.then((later) => this.#streamOpened(socket, admitted, later));
    else this.#streamOpened(socket, admitted, refused);
  }

  /**
   * @param {TrackedSocket} socket
   * @param {AdmissionLease} admitted
   * @param {Refusal|null} refused null if the stream is open, or if its client is gone
   */
  #streamOpened(socket, admitted, refused) {
    if (refused === null) {
      socket[HANDSHAKE].wanted = null;
      return;
    }
    admitted.release();
    this.#refuseStream(socket, refused);
  }

  /**
   * Handles input that Node's parser could not read, or did not get in time.
   * @param {NodeJS.ErrnoException} error
   * @param {TrackedSocket} socket
   */
  #clientError(error, socket) {
    // Either a reset, or more bytes from a peer that has been answered.
    if (
      !socket.writable ||
      socket[HANDSHAKE].phase === CLOSING ||
      socket[HANDSHAKE].parse === null || // it no longer speaks HTTP
      error.code === 'ECONNRESET' ||
      error.code === 'EPIPE'
    ) {
      socket.destroy();
      return;
    }
    const { call } = socket[HANDSHAKE];
    if (call?.complete) {
      // The API has not answered yet. The socket ends behind that answer.
      socket[HANDSHAKE].isEnding = true;
      return;
    }
    if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') {
      this.counters.refused.handshake_timeout++;
      return this.#reject(socket, refusal('request_timeout'));
    }
    this.counters.refused.bad_request++;
    const isTooLarge = error.code === 'HPE_HEADER_OVERFLOW';
    this.#reject(socket, refusal(isTooLarge ? 'request_header_fields_too_large' : 'bad_request'));
  }

  /**
   * @param {TrackedSocket} socket
   * @param {Refusal} refused by admission
   */
  #refuse(socket, refused) {
    this.log.debug({ reason: refused.code, peer: socket.remoteAddress }, 'refused');
    this.#reject(socket, refused);
  }

  /**
   * Refuses a connection, but waits for its first bytes as long as for its close. An EventSource
   * would never come back after 429, and only its request shows that it is one.
   * @param {TrackedSocket} socket that is new
   * @param {Refusal} refused
   */
  #refuseWhenRead(socket, refused) {
    takeOver(socket);
    socket[HANDSHAKE].refusal = refused;
    this.#linger(socket);
    socket.on('data', socketOnData);
  }

  /**
   * @param {TrackedSocket} socket
   * @param {Refusal} refused
   * @param {Buffer} bytes the first ones, which are not worth a parser; empty: none came in time
   */
  #refuseUnparsed(socket, refused, bytes) {
    const handshake = socket[HANDSHAKE];
    handshake.refusal = null;
    this.#peek(socket, bytes);
    this.#closing.delete(socket);
    this.#refuse(socket, refused);
  }

  /**
   * Reads a request that is refused before its turn, because an EventSource would never come back
   * after 503.
   * @param {TrackedSocket} socket
   * @param {Buffer|null} bytes its first ones
   */
  #peek(socket, bytes) {
    const request = bytes && peekShortHandshake(bytes, socket);
    if (request !== null && this.streams !== null && this.#isForStream(request, routeOf(request)))
      socket[HANDSHAKE].wanted = this.streams.read(request);
  }

  /** @param {TrackedSocket} socket in line */
  #peekInLine(socket) {
    const { needsTls, parse } = socket[HANDSHAKE];
    if (!needsTls && parse === null) this.#peek(socket, socket.read());
  }

  /**
   * Requests for streams are refused in their own way.
   * @param {TrackedSocket} socket
   * @param {Refusal} refused
   */
  #reject(socket, refused) {
    const { wanted } = socket[HANDSHAKE];
    if (wanted !== null && this.streams !== null)
      return this.#answer(socket, this.streams.refusalText(wanted, refused));
    const { status, headers, body } = toHttp(refused);
    this.#answer(socket, responseText(status, headers, body));
  }

  /** @param {TrackedSocket} socket whose handshake the server no longer admits */
  #refuseAsDraining(socket) {
    this.counters.refused.draining++;
    this.#reject(socket, spread(refusal('service_unavailable', 'The server is shutting down.')));
  }

  /**
   * Sends the last answer on a socket that does not become a WebSocket.
   * @param {TrackedSocket} socket
   * @param {string} text
   */
  #answer(socket, text) {
    if (socket[HANDSHAKE].needsTls) return this.#discard(socket); // it could not read the answer
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
    // The server reads and discards further bytes from the peer. If the peer closes too, the stream
    // destroys itself.
    socket.removeListener('data', socketOnData);
    socket.on('data', socketOnData);
    socket.resume();
  }

  /** The socket has its last answer and LINGER_MS to close. @param {TrackedSocket} socket */
  #linger(socket) {
    const handshake = socket[HANDSHAKE];
    handshake.phase = CLOSING;
    handshake.lastByte = socket.bytesRead + MAX_LINGERING_BYTES;
    if (this.#closing.size >= MAX_LINGERING) return;
    handshake.sinceMs = performance.now();
    this.#closing.add(socket);
    this.#arm();
  }

  /** Sets the single timer to the next deadline of a socket. */
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
    // The sweep runs after all readable sockets: if the worker was blocked, its clients are not
    // late.
    this.#timer = setTimeout(() => setImmediate(() => this.#sweep()), delayMs).unref();
  }

  /**
   * Ends overdue sockets. Both sets are in the order of time, so the sweep examines at most one
   * socket more than it ends.
   */
  #sweep() {
    this.#timer = undefined;
    const nowMs = performance.now();
    let refusals = 0;
    for (const socket of this.#waiting) {
      const handshake = socket[HANDSHAKE];
      const deadlineMs = handshake.sinceMs + this.config.handshakeTimeoutMs;
      if (deadlineMs > nowMs) break;
      if (refusals === MAX_ENDS_PER_SWEEP) break;
      // Bytes that arrived after the deadline do not make the worker late, even if they are in line
      // now.
      const isClientLate =
        handshake.phase === WAITING ||
        handshake.phase === SECURING ||
        (handshake.phase === IN_LINE && handshake.inLineMs >= deadlineMs);
      if (!isClientLate && this.config.maxHandshakesMode !== 'enforce') {
        // The worker is late, so the client gets the same time again.
        if (this.config.maxHandshakesMode === 'observe') this.counters.observed.handshakes++;
        handshake.sinceMs = nowMs;
        this.#waiting.delete(socket);
        this.#waiting.add(socket);
        continue;
      }
      refusals++;
      if (isClientLate) {
        this.counters.refused.handshake_timeout++;
        this.#reject(socket, refusal('request_timeout'));
      } else {
        this.counters.refused.handshakes++;
        if (handshake.phase === IN_LINE) this.#peekInLine(socket);
        this.#reject(socket, spread(refusal('service_unavailable')));
      }
    }
    let ends = 0;
    for (const socket of this.#closing) {
      if (socket[HANDSHAKE].sinceMs + LINGER_MS > nowMs || ends++ === MAX_ENDS_PER_SWEEP) break;
      const { refusal: refused } = socket[HANDSHAKE];
      if (refused !== null) {
        this.#refuseUnparsed(socket, refused, NOTHING);
        continue;
      }
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
  return 'code' in decision;
}

/** @param {Socket} socket */
function hasBegun(socket) {
  return socket.bytesRead > 0;
}

/**
 * @param {Iterable<Socket>} sockets
 * @returns {boolean} true if the kernel has all that was written to them
 */
function allWritten(sockets) {
  for (const socket of sockets) if (!socket.writableFinished && !socket.destroyed) return false;
  return true;
}

/**
 * @param {() => boolean} condition
 * @param {number} deadlineMs on the clock of performance.now()
 */
async function until(condition, deadlineMs) {
  while (!condition() && performance.now() < deadlineMs) await delay(POLL_MS);
}

/**
 * After an upgrade Node no longer listens to the socket, and an error without a listener ends the
 * process. ws listens as soon as it gets the socket. Before that, or if ws never gets it, this
 * listener handles errors.
 * @param {TrackedSocket} socket
 */
function takeOver(socket) {
  socket.removeListener('error', socketOnError);
  socket.on('error', socketOnError);
}

/**
 * Stops and continues the reads of a socket that carries a large body. The bytes of the read under
 * way are still parsed.
 * @param {TrackedSocket} socket
 * @returns {import('./http-api/raw-body.js').BodyFlow}
 */
function flowOf(socket) {
  let isPaused = false;
  return {
    pause() {
      isPaused = true;
      process.nextTick(() => {
        if (isPaused) socket.pause();
      });
    },
    resume() {
      if (isPaused) socket.resume();
      isPaused = false;
    },
  };
}

/** The stream is closed already. */
function streamOnError() {}

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
