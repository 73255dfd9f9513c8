// last-answers.js: refuses requests, and gives each refused peer time to read its answer.
//
// If the server closed at once, bytes still arriving from the peer would reset the connection
// (RFC 9112 9.6). So the socket lingers: further bytes are read and discarded, up to a bound.

import { refusal, spread, toHttp } from '../protocol/refusal.js';
import {
  discard,
  HANDSHAKE,
  NOTHING,
  socketOnData,
  socketOnReadable,
  takeOver,
} from './accepted-socket.js';
import { Deadlines } from './deadlines.js';
import { peekShortHandshake } from './fast/short-handshake.js';
import { responseText } from './http-answers.js';

/** A refused peer has this long to read the answer and close. */
const LINGER_MS = 1000;
/** If more are refused, as in a flood, they are closed right after their answer. */
const MAX_LINGERING = 1000;
/** If this many linger, connections above their address' rate are closed without an answer. */
const MAX_LINGERING_OVER_RATE = 100;
/** If a refused peer sends more, its socket is closed. */
const MAX_LINGERING_BYTES = 8_388_608;

/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { TrackedSocket } from './accepted-socket.js' */
/** @import { Streams } from './route.js' */
/** @import { IncomingMessage } from 'node:http' */

export class LastAnswers {
  /** Sockets with their last answer. @type {Deadlines<TrackedSocket>} */
  #lingering = new Deadlines(LINGER_MS, (socket) => this.#overdue(socket));
  /**
   * Those that still send. A flowing socket may bring 2 MB in a turn: half a second for a thousand
   * of them. So only some continue in each turn, with up to 128 KB each.
   * @type {import('../worker/turn.js').Line<TrackedSocket>}
   */
  #readers;

  /**
   * @param {object} parts
   * @param {(request: IncomingMessage) => Streams|null} parts.streamsFor null: not for a stream
   * @param {boolean} parts.hasStreams
   * @param {(socket: TrackedSocket) => void} parts.onAnswer the socket no longer waits, nor is idle
   * @param {{debug(fields: object, text: string): void}} parts.log
   * @param {Pick<import('../observability/counters.js').Counters, 'refused'>} parts.counters
   * @param {import('../worker/turn.js').Turn} parts.turn
   */
  constructor({ streamsFor, hasStreams, onAnswer, log, counters, turn }) {
    this.#readers = turn.line('refused_peers', (socket) => void socket.resume());
    this.streamsFor = streamsFor;
    this.hasStreams = hasStreams;
    this.onAnswer = onAnswer;
    this.log = log;
    this.counters = counters;
  }

  get size() {
    return this.#lingering.size;
  }

  /** @returns {IterableIterator<TrackedSocket>} oldest first */
  [Symbol.iterator]() {
    return this.#lingering[Symbol.iterator]();
  }

  /** @param {TrackedSocket} socket closed */
  delete(socket) {
    this.#lingering.delete(socket);
  }

  /** The caller destroys the remaining sockets. */
  stopLingering() {
    this.#lingering.cancelSweep();
  }

  /**
   * Refuses a new connection above the rate of its address. The answer waits for the request: an
   * EventSource would never return after 429.
   * @param {TrackedSocket} socket @param {Refusal} refused
   */
  refuseNew(socket, refused) {
    if (this.size >= MAX_LINGERING_OVER_RATE) return discard(socket);
    if (!this.hasStreams || socket[HANDSHAKE].needsTls) return this.answerRefused(socket, refused);
    takeOver(socket);
    socket[HANDSHAKE].postpone(refused);
    this.linger(socket);
    socket.on('data', socketOnData);
  }

  /** @param {TrackedSocket} socket @param {Refusal} refused by admission */
  answerRefused(socket, refused) {
    this.log.debug({ reason: refused.code, peer: socket.remoteAddress }, 'refused');
    this.reject(socket, refused);
  }

  /** Streams have their own refusals. @param {TrackedSocket} socket @param {Refusal} refused */
  reject(socket, refused) {
    const { wanted } = socket[HANDSHAKE];
    if (wanted !== null)
      return this.answer(socket, wanted.streams.refusalText(wanted.request, refused));
    const { status, headers, body } = toHttp(refused);
    this.answer(socket, responseText(status, headers, body));
  }

  /** @param {TrackedSocket} socket */
  refuseAsDraining(socket) {
    this.counters.refused.draining++;
    this.reject(socket, spread(refusal('service_unavailable', 'The server is shutting down.')));
  }

  /** @param {TrackedSocket} socket whose turn did not come in time */
  refuseAsBusy(socket) {
    this.counters.refused.handshakes++;
    this.reject(socket, spread(refusal('service_unavailable')));
  }

  /**
   * Looks whether a request that is refused before its turn is for a stream: an EventSource would
   * never return after 503.
   * @param {TrackedSocket} socket @param {Buffer|null} bytes its first ones
   */
  peek(socket, bytes) {
    const request = bytes && peekShortHandshake(bytes, socket);
    const streams = request && this.streamsFor(request);
    if (request && streams) socket[HANDSHAKE].want({ streams, request: streams.read(request) });
  }

  /** Sends the last answer of a socket. @param {TrackedSocket} socket @param {string} text */
  answer(socket, text) {
    if (socket[HANDSHAKE].needsTls) return discard(socket); // the peer could not read the answer
    takeOver(socket);
    this.onAnswer(socket);
    if (socket.destroyed) {
      socket[HANDSHAKE].close(socket.bytesRead);
      return;
    }
    socket.removeListener('readable', socketOnReadable);
    socket.end(text);
    this.linger(socket);
    if (!this.#lingering.has(socket)) return socket.destroySoon();
    // Discards further bytes. If the peer closes too, the stream destroys itself.
    socket.removeListener('data', socketOnData);
    socket.on('data', socketOnData);
    socket.resume();
  }

  /** The socket has its last answer and LINGER_MS to close. @param {TrackedSocket} socket */
  linger(socket) {
    socket[HANDSHAKE].close(socket.bytesRead + MAX_LINGERING_BYTES);
    if (this.size < MAX_LINGERING) this.#lingering.add(socket);
  }

  /** @param {TrackedSocket} socket that lingers @param {Buffer} bytes */
  data(socket, bytes) {
    const { refusal: refused, lastByte } = socket[HANDSHAKE];
    if (refused !== null) this.#refuseUnparsed(socket, refused, bytes);
    if (socket.bytesRead > lastByte) return discard(socket);
    socket.pause();
    this.#readers.push(socket);
  }

  /**
   * @param {TrackedSocket} socket @param {Refusal} refused
   * @param {Buffer} bytes the first ones; empty: none came in time
   */
  #refuseUnparsed(socket, refused, bytes) {
    socket[HANDSHAKE].postpone(null);
    this.peek(socket, bytes);
    this.#lingering.delete(socket);
    this.answerRefused(socket, refused);
  }

  /** @param {TrackedSocket} socket */
  #overdue(socket) {
    const { refusal: refused } = socket[HANDSHAKE];
    if (refused !== null) {
      this.#refuseUnparsed(socket, refused, NOTHING);
    } else {
      this.#lingering.delete(socket);
      socket.destroy();
    }
    return true;
  }
}
