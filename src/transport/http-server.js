// http-server.js: the public port, from accept until a WebSocket, a stream or plain HTTP.
//
//            accept          bytes            request                    admitted
//   (client) ------> WAITING -----> IN_LINE -----------> ADMITTING ----------------> SERVED
//                       |  ^____________|  \__ plain HTTP: SERVED
//                       |   not all yet |                  |
//                       | too slow      | malformed, ...   | refused, too slow
//                       +--------> CLOSED <----------------+     (answered; the peer may read on)
//
// http-reader.js reads requests, handshakes.js decides on those for WebSockets and streams,
// plain-http.js answers the others, last-answers.js refuses; idle-sockets.js and deadlines.js bound
// the sockets that wait for their client.
//
// With TLS, a socket is WAITING three times: for its ClientHello, for the end of the TLS handshake,
// and for its request. Before TLS is established no refusal can be sent: the server just closes.
//
// Sockets with bytes to read wait in a line, once for each read (docs/architecture/overview.md,
// "Storms"). A socket is refused when its time is over, so the line needs no limit.

import { setTimeout as delay } from 'node:timers/promises';
import { LISTEN_BACKLOG } from '../config/system-limits.js';
import { refusal } from '../protocol/refusal.js';
import {
  CLOSED,
  discard,
  HANDSHAKE,
  Handshake,
  IN_LINE,
  listenTo,
  NOTHING,
  SERVED,
  socketOnClose,
  socketOnError,
  socketOnRead,
  socketOnReadable,
  speaksHttp,
  takeOver,
  WAITING,
} from './accepted-socket.js';
import { readClientHello } from './client-hello.js';
import { Deadlines } from './deadlines.js';
import { FairQueue } from './fair-queue.js';
import { shareReads } from './fast/shared-reads.js';
import { hasBody, isHandshake } from './handshake.js';
import { Handshakes } from './handshakes.js';
import { askForBody } from './http-answers.js';
import { readBody } from './http-api/body.js';
import { HttpReader } from './http-reader.js';
import { IdleSockets } from './idle-sockets.js';
import { LastAnswers } from './last-answers.js';
import { createNotFound } from './not-found.js';
import { PlainHttp } from './plain-http.js';
import { routeOf } from './route.js';
import { SecureSockets } from './secure-sockets.js';

/** A lack of descriptors is logged at most this often. */
const LOG_INTERVAL_MS = 60_000;
/** When accepting ends, clients still have this long to send their request and get an answer. */
const FINISH_MS = 1000;
/** Then `close` waits at most this long for the last answers to be written. */
const LAST_WRITE_MS = 100;
const POLL_MS = 20;
const TOO_LARGE = refusal('BODY_TOO_LARGE');
const TOO_LATE = refusal('request_timeout');

/** @import { Certificate } from '../config/certificate.js' */
/** @import { Line, Turn } from '../worker/turn.js' */
/** @import { Exchange, TrackedSocket } from './accepted-socket.js' */
/** @import { Api, LoadedDoor, Route, Streams } from './route.js' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { Socket } from 'node:net' */
/** @typedef {{debug(fields: object, text: string): void, error(fields: object, text: string): void}} Log */

/** @typedef {import('./accepted-socket.js').Port} Port @implements {Port} */
export class HttpServer {
  /** Sockets with an unfinished handshake. @type {Deadlines<TrackedSocket>} */
  #waiting;
  /** Sockets with bytes to parse. @type {Line<TrackedSocket>} */
  #line;
  #logRarely;
  #answers;
  #idle;
  #handshakes;
  #plain;

  /**
   * @param {object} parts @param {import('../config/settings.js').Config} parts.config
   * @param {Certificate|null} [parts.certificate] null: the port speaks plain HTTP
   * @param
   *   {Pick<import('../admission/admission.js').Admission, 'admitHandshake'|'admitPeer'|'peerOf'|'isShortOfDescriptors'|'health'>}
   *   parts.admission
   * @param
   *   {(request: IncomingMessage, socket: Socket, head: Buffer, admitted: import('../admission/admission.js').AdmissionLease, door: LoadedDoor|null) => void}
   *   parts.onUpgrade answers a well-formed, admitted handshake
   * @param {readonly LoadedDoor[]} [parts.doors] beside the native one
   * @param {Streams|null} [parts.streams] server-sent events; null if they are off
   * @param {Api|null} [parts.api] null if no API keys are configured
   * @param {() => string|null} parts.readiness null if ready; otherwise the reason
   * @param {{readonly isRetired: boolean}} parts.phase of the worker
   * @param {Log} parts.log @param {import('../observability/counters.js').Counters} parts.counters
   * @param {Turn} parts.turn
   */
  constructor({
    config,
    certificate = null,
    admission,
    onUpgrade,
    doors = [],
    streams = null,
    api = null,
    readiness,
    phase,
    log,
    counters,
    turn,
  }) {
    this.config = config;
    this.doors = doors;
    this.admission = admission;
    this.counters = counters;
    this.#logRarely = rarely(log);
    this.#line = turn.line('handshakes', (socket) => this.#beginHandshake(socket), new FairQueue());
    const waiting = (this.#waiting = new Deadlines(
      config.handshakeTimeoutMs,
      (socket, deadlineMs) => this.#overdue(socket, deadlineMs),
    ));
    const onAnswer = (/** @type {TrackedSocket} */ socket) => this.#settled(socket);
    const streamsOf = (/** @type {Route} */ { name, door }) =>
      name !== 'stream' ? null : door === null ? streams : (door.streams ?? null);
    const streamsFor = (/** @type {IncomingMessage} */ request) =>
      streamsOf(routeOf(request, doors));
    const hasStreams = streams !== null || doors.some((door) => (door.streams ?? null) !== null);
    const answers = (this.#answers = new LastAnswers({
      ...{ streamsFor, hasStreams, onAnswer, log, counters, turn },
    }));
    const { descriptorLimit } = admission.health;
    const idle = (this.#idle = new IdleSockets({ config, descriptorLimit, counters, answers }));
    const notFound = createNotFound(config);
    const plain = {
      admission,
      api,
      notFound,
      streamsOf,
      readiness,
      phase,
      idle,
      answers,
      counters,
    };
    this.#plain = new PlainHttp(plain);
    /** Null if the port speaks plain HTTP. */
    this.secure = certificate && this.#createSecure(certificate, turn);
    const reader = (this.reader = new HttpReader({
      config,
      isHandshake: (request) => isHandshake(request, routeOf(request, doors)),
      onShort: (request, socket) => this.#short(request, socket),
      onRequest: (request, response, socket) => this.#takeRequest(request, response, socket),
      onUpgrade: (request, socket, head) =>
        this.#upgrade(request, routeOf(request, doors), socket, head),
      onConnect: (socket) => this.#connect(socket),
      onFault: (error, socket) => this.#fault(error, socket),
      onUnknown: () =>
        this.#logRarely({}, 'public port: Node passed on a socket that this port has not accepted'),
      counters,
    }));
    this.#handshakes = new Handshakes({
      ...{
        admission,
        onUpgrade,
        notFound,
        streamsOf,
        phase,
        waiting,
        reader,
        answers,
        counters,
        turn,
      },
      isSecure: certificate !== null,
    });
    reader.acceptor.on('connection', (socket) =>
      this.#connected(/** @type {TrackedSocket} */ (socket)),
    );
  }

  get openSockets() {
    return this.counters.sockets;
  }

  get plainSockets() {
    return this.#idle.plainSockets;
  }

  get handshakes() {
    return this.#waiting.size;
  }

  /** @returns {Promise<{port: number, address: string}>} as bound */
  listen() {
    const { config } = this;
    const { acceptor } = this.reader;
    return new Promise((resolve, reject) => {
      acceptor.once('error', reject);
      acceptor.listen(
        { port: config.port, host: config.host || undefined, backlog: LISTEN_BACKLOG },
        () => {
          acceptor.removeListener('error', reject);
          // Node accepts again when descriptors are free.
          acceptor.on('error', (error) =>
            this.#logRarely({ err: error }, 'public port: accept failed'),
          );
          const bound = acceptor.address();
          // Null: the server was closed meanwhile. A string is for pipes, which are not used.
          if (bound === null || typeof bound === 'string')
            reject(new Error('the public port closed before it was open'));
          else resolve({ port: bound.port, address: bound.address });
        },
      );
    });
  }

  /** Uses the certificate for new connections. Open ones stay. @param {Certificate} certificate */
  replaceCertificate(certificate) {
    this.secure?.replaceCertificate(certificate);
  }

  /** WebSockets stay. Unfinished handshakes end with 503, kept-alive sockets after one answer. */
  stopAccepting() {
    this.reader.stopAccepting();
  }

  /**
   * Closes kept-alive sockets. If a client has just sent a request on one, it gets a reset, so they
   * first have some time to end by themselves.
   * @param {number} waitMs the longest time
   */
  async endKeptAlive(waitMs) {
    await until(() => this.#idle.keptAlive === 0, performance.now() + waitMs);
    this.reader.closeIdle((socket) => this.#idle.isKeptAlive(socket));
  }

  /**
   * Closes the listener and all sockets except WebSockets and streams. Clients that have not got an
   * answer yet have FINISH_MS since `stoppedMs`.
   * @param {number} [stoppedMs] when accepting ended, on the clock of performance.now()
   */
  async close(stoppedMs = performance.now()) {
    this.stopAccepting();
    this.endKeptAlive(0);
    const waiting = this.#waiting;
    const answers = this.#answers;
    await until(() => answers.size + waiting.size === 0, stoppedMs + FINISH_MS);
    for (const socket of waiting) {
      if (!hasBegun(socket)) continue;
      this.#peek(socket);
      answers.refuseAsDraining(socket);
    }
    await until(() => allWritten(answers), performance.now() + LAST_WRITE_MS);
    waiting.cancelSweep();
    answers.stopLingering();
    const gone = [...waiting, ...answers].map(async (socket) => {
      if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
    });
    for (const socket of waiting) socket.destroy();
    for (const socket of answers) socket.destroy();
    this.reader.close();
    await Promise.all(gone);
  }

  /** @param {TrackedSocket} socket */
  #connected(socket) {
    const { counters, admission } = this;
    counters.sockets++;
    const handshake = new Handshake(this, this.secure !== null);
    socket[HANDSHAKE] = handshake;
    listenTo(socket);
    // Reset before it was accepted. Nobody gets an answer, and what it asks for would have no
    // address, neither for limits nor in the log. Node remembers the address from here on.
    if (socket.remoteAddress === undefined) return discard(socket);
    if (!this.#idle.hasRoom()) {
      counters.refused.descriptors++;
      this.#logRarely(
        { sockets: counters.sockets },
        'no file descriptors left: closing new connections unanswered',
      );
      return discard(socket);
    }
    handshake.countFor(admission.peerOf(socket));
    const refused = admission.admitPeer(handshake.address);
    if (refused !== null) return this.#answers.refuseNew(socket, refused);
    // Only one for each new socket: if WebSockets alone are too many, closing all would not help.
    if (admission.isShortOfDescriptors) this.#idle.makeRoom();
    this.#idle.addNew(socket);
    this.#waiting.add(socket);
    // The listener of `readable` costs three ticks of its own.
    if (!this.reader.readsShort || !shareReads(socket, socketOnRead))
      socket.once('readable', socketOnReadable);
  }

  /** @type {Port['readable']} */
  readable(socket) {
    if (socket[HANDSHAKE].phase === WAITING) this.#queue(socket);
  }

  /** @type {Port['ended']} */
  ended(socket) {
    // Port checks close without a request.
    const { phase, http } = socket[HANDSHAKE];
    if (phase === WAITING && http === null) socket.destroy();
  }

  /** @type {Port['data']} */
  data(socket, bytes) {
    const handshake = socket[HANDSHAKE];
    if (handshake.phase === CLOSED) return this.#answers.data(socket, bytes);
    if (handshake.phase !== WAITING) return this.reader.parse(socket, bytes);
    // The rest of a request that began in an earlier turn waits for another turn.
    handshake.keep(bytes);
    socket.pause();
    this.#queue(socket);
  }

  /** @type {Port['closed']} */
  closed(socket) {
    const handshake = socket[HANDSHAKE];
    if (!handshake.go()) return;
    this.counters.sockets--;
    this.#answers.delete(socket);
    this.reader.delete(socket);
    this.#settled(socket);
    handshake.admitted?.release();
  }

  /** The socket no longer waits, nor is idle. @param {TrackedSocket} socket */
  #settled(socket) {
    this.#waiting.delete(socket);
    this.#idle.leave(socket);
  }

  /** @param {TrackedSocket} socket */
  #queue(socket) {
    const handshake = socket[HANDSHAKE];
    handshake.queue();
    this.#idle.leave(socket);
    this.#line.push(socket, handshake.address);
  }

  /** @param {TrackedSocket} socket whose turn it is */
  #beginHandshake(socket) {
    const handshake = socket[HANDSHAKE];
    if (socket.destroyed || handshake.phase !== IN_LINE) return;
    if (socket.readableEnded) return void socket.destroy();
    if (handshake.needsTls) return this.#readClientHello(socket);
    if (speaksHttp(socket)) {
      socket.resume();
      this.reader.parse(socket, handshake.ahead);
    } else {
      // Reads at once, not when the stream flows, so that the turn measures the cost.
      this.reader.begin(socket, socket.read());
    }
    if (handshake.phase !== IN_LINE || socket.destroyed) return;
    this.#awaitClient(socket); // the rest of the request follows
  }

  /** @param {TrackedSocket} socket in no crowd */
  #awaitClient(socket) {
    const handshake = socket[HANDSHAKE];
    handshake.wait();
    if (handshake.wanted === null) this.#idle.addSilent(socket);
    else this.#idle.addSending(socket);
  }

  /** @param {Certificate} certificate @param {Turn} turn */
  #createSecure(certificate, turn) {
    return new SecureSockets({
      certificate,
      onStart: (socket) => this.#startTls(/** @type {TrackedSocket} */ (socket)),
      onSecure: (socket, stream) =>
        this.#secured(
          /** @type {TrackedSocket} */ (socket),
          /** @type {TrackedSocket} */ (/** @type {Socket} */ (stream)),
        ),
      counters: this.counters,
      turn,
    });
  }

  /** @param {TrackedSocket} socket with bytes of its ClientHello */
  #readClientHello(socket) {
    const handshake = socket[HANDSHAKE];
    const bytes = /** @type {Buffer|null} */ (socket.read());
    if (bytes === null) return void socket.destroy(); // the socket has ended
    const { ahead } = handshake;
    handshake.keep(ahead.length === 0 ? bytes : Buffer.concat([ahead, bytes]));
    switch (readClientHello(handshake.ahead)) {
      case 'complete':
        this.secure?.push(socket, handshake.address);
        break;
      case 'partial':
        this.#awaitClient(socket);
        socket.once('readable', socketOnReadable);
        break;
      default:
        // A client that expects plain HTTP can read the answer.
        handshake.endTls();
        this.counters.refused.tls++;
        this.#answers.reject(
          socket,
          refusal('bad_request', 'This port speaks TLS: use https:// or wss://.'),
        );
    }
  }

  /** @param {TrackedSocket} socket to begin TLS @returns {boolean} false: the socket is closed */
  #startTls(socket) {
    const handshake = socket[HANDSHAKE];
    if (handshake.phase !== IN_LINE || socket.destroyed || socket.readableEnded) {
      socket.destroy();
      return false;
    }
    this.#awaitClient(socket); // the client answers
    socket.unshift(handshake.ahead); // TLS reads it
    handshake.keep(NOTHING);
    return true;
  }

  /**
   * The client gets the same time again for its request.
   * @param {TrackedSocket} socket encrypted
   * @param {TrackedSocket} stream decrypted, takes its place
   */
  #secured(socket, stream) {
    const handshake = socket[HANDSHAKE];
    if (handshake.phase !== WAITING) {
      stream.on('error', socketOnError);
      return void stream.destroy();
    }
    // The stream closes after the socket.
    socket.removeListener('close', socketOnClose);
    this.#settled(socket);
    handshake.endTls();
    stream[HANDSHAKE] = handshake;
    listenTo(stream);
    this.#awaitClient(stream);
    this.#waiting.add(stream);
    stream.once('readable', socketOnReadable);
  }

  /**
   * @param {IncomingMessage} request from the short reader
   * @param {TrackedSocket} socket @returns {boolean} false: Node's parser has to read it
   */
  #short(request, socket) {
    const route = routeOf(request, this.doors);
    if (isHandshake(request, route)) {
      this.#upgrade(request, route, socket, NOTHING);
      return true;
    }
    const streams = this.#handshakes.streamsFor(request, route);
    if (streams === null) return false;
    this.#stream(request, streams, socket);
    return true;
  }

  /** @type {import('./http-reader.js').OnRequest} */
  #takeRequest(request, response, socket) {
    const { phase, http } = socket[HANDSHAKE];
    // The socket has its last answer, or the request follows the last one or one for a stream.
    if (phase === CLOSED || http === null || http.isEnding || http.parse === null) return;
    const route = routeOf(request, this.doors);
    // If the previous answer is not sent yet, the socket cannot leave the HTTP server.
    const streams = response.socket === null ? null : this.#handshakes.streamsFor(request, route);
    if (streams === null) {
      this.#settled(socket);
      return this.#plain.request(request, route, response, socket, http);
    }
    if (streams.maxBodyBytes > 0 && hasBody(request))
      return this.#awaitBody(request, streams, response, socket, http);
    this.reader.end(socket, NOTHING);
    this.#stream(request, streams, socket);
  }

  /**
   * @param {IncomingMessage} request without a body
   * @param {Streams} streams @param {TrackedSocket} socket no longer speaks HTTP
   */
  #stream(request, streams, socket) {
    const wanted = { streams, request: streams.read(request) };
    const fault =
      streams.faultOf(request, wanted.request) ?? streams.withBody(wanted.request, NOTHING);
    this.#idle.leave(socket);
    this.#handshakes.stream(request, wanted, fault, socket);
  }

  /**
   * Until the body is read, the socket waits for its client, within the handshake's time.
   * @param {IncomingMessage} request @param {Streams} streams @param {ServerResponse} response
   * @param {TrackedSocket} socket @param {Exchange} http
   */
  #awaitBody(request, streams, response, socket, http) {
    const handshake = socket[HANDSHAKE];
    const wanted = { streams, request: streams.read(request) };
    handshake.want(wanted);
    const conclude = (/** @type {import('../protocol/refusal.js').Refusal|null} */ fault) => {
      if (handshake.phase === CLOSED || socket.destroyed) return;
      this.reader.end(socket, NOTHING);
      this.#idle.leave(socket);
      this.#handshakes.stream(request, wanted, fault, socket);
    };
    const { maxBodyBytes } = streams;
    const fault =
      streams.faultOf(request, wanted.request) ??
      (Number(request.headers['content-length'] ?? 0) > maxBodyBytes ? TOO_LARGE : null);
    if (fault !== null) return conclude(fault);
    http.called(request); // the parser must not look for heads in the body
    http.endAfter(true); // a request after it gets no answer
    askForBody(request, response);
    readBody(
      request,
      maxBodyBytes,
      (body) => conclude(streams.withBody(wanted.request, body)),
      (reason) => {
        if (reason !== 'gone') conclude(reason === 'body_size' ? TOO_LARGE : TOO_LATE);
      },
    );
    if (handshake.phase !== SERVED) return; // #beginHandshake lets it wait
    // The socket spoke plain HTTP before, so the handshake's time begins now.
    this.#idle.leave(socket);
    this.#awaitClient(socket);
    if (!this.#waiting.has(socket)) this.#waiting.add(socket);
  }

  /**
   * @param {IncomingMessage} request a handshake @param {Route} route
   * @param {TrackedSocket} socket no longer speaks HTTP @param {Buffer} head
   */
  #upgrade(request, route, socket, head) {
    if (socket[HANDSHAKE].phase === CLOSED) {
      takeOver(socket);
      socket.resume(); // the request has been answered
      return;
    }
    if (socket.destroyed || this.#isOvertaking(socket)) return;
    this.#idle.leave(socket);
    this.#handshakes.websocket(request, route, socket, head);
  }

  /** The method CONNECT. @param {TrackedSocket} socket no longer speaks HTTP */
  #connect(socket) {
    if (this.#isOvertaking(socket)) return;
    this.#answers.reject(socket, refusal('method_not_allowed', 'This server is not a proxy.'));
  }

  /** Closes it if an earlier request has no answer yet. @param {TrackedSocket} socket */
  #isOvertaking(socket) {
    const { http } = socket[HANDSHAKE];
    if (http === null || http.calls === 0) return false;
    this.counters.refused.bad_request++;
    takeOver(socket);
    discard(socket);
    return true;
  }

  /** @param {NodeJS.ErrnoException} error @param {TrackedSocket} socket */
  #fault(error, socket) {
    const { phase, http } = socket[HANDSHAKE];
    // A reset, or more bytes from a peer that has its last answer.
    if (
      !socket.writable ||
      phase === CLOSED ||
      !speaksHttp(socket) ||
      error.code === 'ECONNRESET' ||
      error.code === 'EPIPE'
    ) {
      socket.destroy();
      return;
    }
    if (http?.call?.complete) {
      // The API has not answered yet. The socket closes after its answer.
      http.endAfter(true);
      return;
    }
    if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') return this.#refuseAsLate(socket);
    this.counters.refused.bad_request++;
    const isTooLarge = error.code === 'HPE_HEADER_OVERFLOW';
    this.#answers.reject(
      socket,
      refusal(isTooLarge ? 'request_header_fields_too_large' : 'bad_request'),
    );
  }

  /** @param {TrackedSocket} socket */
  #refuseAsLate(socket) {
    this.counters.refused.handshake_timeout++;
    // An EventSource whose request is on its way would take 408 as its answer, and never return.
    if (socket.bytesRead === 0) return discard(socket);
    this.#peek(socket);
    this.#answers.reject(socket, refusal('request_timeout'));
  }

  /**
   * @param {TrackedSocket} socket whose time for its handshake is over
   * @param {number} deadlineMs @returns {boolean} false: it gets the same time again
   */
  #overdue(socket, deadlineMs) {
    const { phase, inLineMs } = socket[HANDSHAKE];
    // The client is late, unless its bytes came in time and the worker has not read them yet.
    if (phase === WAITING || (phase === IN_LINE && inLineMs >= deadlineMs)) {
      this.#refuseAsLate(socket);
      return true;
    }
    const mode = this.config.maxHandshakesMode;
    if (mode !== 'enforce') {
      if (mode === 'observe') this.counters.observed.handshakes++;
      return false; // the worker is late
    }
    this.#peek(socket);
    this.#answers.refuseAsBusy(socket);
    return true;
  }

  /** @param {TrackedSocket} socket refused before its turn */
  #peek(socket) {
    const { phase, needsTls } = socket[HANDSHAKE];
    if (phase === IN_LINE && !needsTls && !speaksHttp(socket))
      this.#answers.peek(socket, socket.read());
  }
}

/** @param {Log} log @returns {(fields: object, text: string) => void} */
function rarely(log) {
  let loggedMs = Number.NEGATIVE_INFINITY;
  return (fields, text) => {
    const nowMs = performance.now();
    if (nowMs - loggedMs < LOG_INTERVAL_MS) return;
    loggedMs = nowMs;
    log.error(fields, text);
  };
}

/** @param {Socket} socket */
function hasBegun(socket) {
  return socket.bytesRead > 0;
}

/** @param {Iterable<Socket>} sockets */
function allWritten(sockets) {
  for (const socket of sockets) if (!socket.writableFinished && !socket.destroyed) return false;
  return true;
}

/** @param {() => boolean} condition @param {number} deadlineMs on the clock of performance.now() */
async function until(condition, deadlineMs) {
  while (!condition() && performance.now() < deadlineMs) await delay(POLL_MS);
}
