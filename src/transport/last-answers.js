// last-answers.js: refuses requests, and gives each refused peer time to read its answer.
//
// If the server closed at once, bytes still arriving from the peer would reset the connection
// (RFC 9112 9.6). So the peer lingers: what it goes on sending is read and discarded, in bounds.

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
/** Sockets that linger. In a flood the server closes the others when they are answered. */
const MAX_LINGERING = 1000;
/** If this many linger, connections above their address' rate are closed without an answer. */
const MAX_LINGERING_OVER_RATE = 100;
/** Bytes that a refused peer may still send. Beyond it the server closes the socket. */
const MAX_LINGERING_BYTES = 8_388_608;

/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { TrackedSocket } from './accepted-socket.js' */
/** @import { Streams } from './route.js' */
/** @import { IncomingMessage } from 'node:http' */

export class LastAnswers {
  /** Sockets that have their last answer. @type {Deadlines<TrackedSocket>} */
  #lingering = new Deadlines(LINGER_MS, (socket) => this.#overdue(socket));
  /**
   * Those that go on sending. If they flowed, one turn could read 2 MB of each: half a second for a
   * thousand. So some of them continue in each turn, up to 128 KB each.
   * @type {import('../worker/turn.js').Line<TrackedSocket>}
   */
  #readers;

  /**
   * @param {object} parts
   * @param {(request: IncomingMessage) => Streams|null} parts.streamsFor null: it is for none
   * @param {boolean} parts.hasStreams may a request be for one?
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

  /** @param {TrackedSocket} socket that is closed */
  delete(socket) {
    this.#lingering.delete(socket);
  }

  /** Those that are left are about to be destroyed. */
  stop() {
    this.#lingering.stop();
  }

  /**
   * Refuses a connection above the rate of its address. The answer waits for the first bytes: an
   * EventSource, which only its request shows, would never come back after 429.
   * @param {TrackedSocket} socket that is new @param {Refusal} refused
   */
  refuseNew(socket, refused) {
    if (this.size >= MAX_LINGERING_OVER_RATE) return discard(socket);
    if (!this.hasStreams || socket[HANDSHAKE].needsTls) return this.refuse(socket, refused);
    takeOver(socket);
    socket[HANDSHAKE].postpone(refused);
    this.linger(socket);
    socket.on('data', socketOnData);
  }

  /** @param {TrackedSocket} socket @param {Refusal} refused by admission */
  refuse(socket, refused) {
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

  /** @param {TrackedSocket} socket whose handshake the server no longer admits */
  refuseAsDraining(socket) {
    this.counters.refused.draining++;
    this.reject(socket, spread(refusal('service_unavailable', 'The server is shutting down.')));
  }

  /** @param {TrackedSocket} socket whose turn has not come in time */
  refuseAsBusy(socket) {
    this.counters.refused.handshakes++;
    this.reject(socket, spread(refusal('service_unavailable')));
  }

  /**
   * Reads a request that is refused before its turn, because an EventSource would never come back
   * after 503.
   * @param {TrackedSocket} socket @param {Buffer|null} bytes its first ones
   */
  peek(socket, bytes) {
    const request = bytes && peekShortHandshake(bytes, socket);
    const streams = request && this.streamsFor(request);
    if (request && streams) socket[HANDSHAKE].want({ streams, request: streams.read(request) });
  }

  /** Sends the last answer of a socket. @param {TrackedSocket} socket @param {string} text */
  answer(socket, text) {
    if (socket[HANDSHAKE].needsTls) return discard(socket); // it could not read the answer
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
    // Further bytes are discarded. If the peer closes too, the stream destroys itself.
    socket.removeListener('data', socketOnData);
    socket.on('data', socketOnData);
    socket.resume();
  }

  /** The socket has its last answer and LINGER_MS to close. @param {TrackedSocket} socket */
  linger(socket) {
    socket[HANDSHAKE].close(socket.bytesRead + MAX_LINGERING_BYTES);
    if (this.size < MAX_LINGERING) this.#lingering.add(socket);
  }

  /** @param {TrackedSocket} socket that lingers @param {Buffer} bytes that it has sent */
  data(socket, bytes) {
    const { refusal: refused, lastByte } = socket[HANDSHAKE];
    if (refused !== null) this.#refuseUnparsed(socket, refused, bytes);
    if (socket.bytesRead > lastByte) return discard(socket);
    socket.pause();
    this.#readers.push(socket);
  }

  /**
   * @param {TrackedSocket} socket @param {Refusal} refused
   * @param {Buffer} bytes the first ones, which are not worth a parser; empty: none came in time
   */
  #refuseUnparsed(socket, refused, bytes) {
    socket[HANDSHAKE].postpone(null);
    this.peek(socket, bytes);
    this.#lingering.delete(socket);
    this.refuse(socket, refused);
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
