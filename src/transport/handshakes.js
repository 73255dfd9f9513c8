// handshakes.js: checks and admits requests for a WebSocket or a stream, and opens it.

import { refusal, toHttp } from '../protocol/refusal.js';
import { ADMITTING, HANDSHAKE, NOTHING, takeOver, Upgraded } from './accepted-socket.js';
import { handshakeFault } from './handshake.js';
import { takesMethod } from './http-answers.js';

/** @import { Admission, AdmissionLease } from '../admission/admission.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { Handshake, TrackedSocket, WantedStream } from './accepted-socket.js' */
/** @import { LoadedDoor, Route, Streams } from './route.js' */
/** @import { IncomingMessage } from 'node:http' */

/** Statuses for malformed requests. */
const MALFORMED = new Set([400, 405, 408, 413, 415]);

/**
 * A well-formed request. `door` is null for the native one.
 * @typedef {{request: IncomingMessage, door: LoadedDoor|null, socket: TrackedSocket, head: Buffer}}
 *   Wanted
 */
/** @typedef {{decision: Refusal|AdmissionLease, wanted: Wanted}} Decided */

export class Handshakes {
  /** Those admitted in a later turn. @type {import('../worker/turn.js').Line<Decided>} */
  #decided;

  /**
   * @param {object} parts @param {Pick<Admission, 'admitHandshake'|'admitPeer'>} parts.admission
   * @param
   *   {(request: IncomingMessage, socket: import('node:net').Socket, head: Buffer, admitted: AdmissionLease, door: LoadedDoor|null) => void}
   *   parts.onUpgrade
   * @param {(request: IncomingMessage) => Refusal} parts.notFound
   * @param {(route: Route) => Streams|null} parts.streamsOf @param {boolean} parts.isSecure
   * @param {{readonly isRetired: boolean}} parts.phase if retired, no handshake is admitted
   * @param {import('./deadlines.js').Deadlines<TrackedSocket>} parts.waiting
   * @param {import('./http-reader.js').HttpReader} parts.reader
   * @param {import('./last-answers.js').LastAnswers} parts.answers
   * @param {Pick<import('../observability/counters.js').Counters, 'refused'>} parts.counters
   * @param {import('../worker/turn.js').Turn} parts.turn
   */
  constructor({
    admission,
    onUpgrade,
    notFound,
    streamsOf,
    isSecure,
    phase,
    waiting,
    reader,
    answers,
    counters,
    turn,
  }) {
    this.#decided = turn.line('admitted', (decided) => this.#conclude(decided));
    this.admission = admission;
    this.onUpgrade = onUpgrade;
    this.notFound = notFound;
    this.streamsOf = streamsOf;
    this.isSecure = isSecure;
    this.phase = phase;
    this.waiting = waiting;
    this.reader = reader;
    this.answers = answers;
    this.counters = counters;
  }

  /** Null: the request is not for one. @param {IncomingMessage} request @param {Route} route */
  streamsFor(request, route) {
    const streams = route.name === 'stream' ? this.streamsOf(route) : null;
    return streams !== null && takesMethod(streams, request) ? streams : null;
  }

  /**
   * @param {IncomingMessage} request for a WebSocket
   * @param {Route} route @param {TrackedSocket} socket not idle @param {Buffer} head
   */
  websocket(request, route, socket, head) {
    const fault = handshakeFault(request, route, this.notFound);
    if (fault === null) return this.#admitHandshake({ request, door: route.door, socket, head });
    this.counters.refused.bad_request++;
    this.answers.reject(socket, fault);
  }

  /**
   * @param {IncomingMessage} request for a stream @param {WantedStream} wanted
   * @param {Refusal|null} fault of the request
   * @param {TrackedSocket} socket not idle, and no longer HTTP
   */
  stream(request, wanted, fault, socket) {
    if (socket.destroyed) return;
    takeOver(socket);
    socket[HANDSHAKE].want(wanted);
    if (fault === null) this.#admitHandshake({ request, door: null, socket, head: NOTHING });
    else this.#refuseStream(socket, fault);
  }

  /** @param {Wanted} wanted */
  #admitHandshake(wanted) {
    const { request, door, socket } = wanted;
    const handshake = socket[HANDSHAKE];
    if (this.phase.isRetired) return this.#refuseAsDraining(wanted);
    // The connection itself has paid for the first request.
    const isFirst = handshake.http === null || handshake.http.requests === 0;
    const refused = isFirst ? null : this.admission.admitPeer(handshake.address);
    if (refused !== null) return this.#refuseHandshake(wanted, refused);
    const rules = handshake.wanted === null ? door?.door : handshake.wanted.streams.rules;
    const decision = this.admission.admitHandshake(request, rules);
    if (!(decision instanceof Promise)) return this.#decide(decision, wanted);
    takeOver(socket);
    handshake.decideLater();
    // If it spoke plain HTTP before, the handshake's time begins now.
    if (!this.waiting.has(socket)) this.waiting.add(socket);
    this.#decideLater(decision, wanted);
  }

  /** @param {Promise<Refusal|AdmissionLease>} decision @param {Wanted} wanted */
  async #decideLater(decision, wanted) {
    this.#decided.push({ decision: await decision, wanted });
  }

  /** @param {Decided} decided */
  #conclude({ decision, wanted }) {
    const { socket } = wanted;
    if (socket[HANDSHAKE].phase === ADMITTING && !socket.destroyed) this.#decide(decision, wanted);
    else if (!isRefusal(decision)) decision.release(); // the client has left, or its time is over
  }

  /** @param {Refusal|AdmissionLease} decision @param {Wanted} wanted */
  #decide(decision, wanted) {
    if (isRefusal(decision)) return this.#refuseHandshake(wanted, decision);
    if (!this.phase.isRetired) return this.#openAdmitted(wanted, decision);
    decision.release();
    this.#refuseAsDraining(wanted);
  }

  /** @param {Wanted} wanted @param {Refusal} refused */
  #refuseHandshake(wanted, refused) {
    if (wanted.door?.door.takesRefusal?.(refused)) this.#openAdmitted(wanted, leaseOf(refused));
    else this.answers.answerRefused(wanted.socket, refused);
  }

  /** @param {Wanted} wanted */
  #refuseAsDraining(wanted) {
    const refused = refusal('service_unavailable');
    if (!wanted.door?.door.takesRefusal?.(refused))
      return this.answers.refuseAsDraining(wanted.socket);
    this.counters.refused.draining++;
    this.#openAdmitted(wanted, leaseOf(refused));
  }

  /** @param {Wanted} wanted @param {AdmissionLease} admitted */
  #openAdmitted({ request, door, socket, head }, admitted) {
    const handshake = socket[HANDSHAKE];
    this.waiting.delete(socket);
    handshake.serveWith(admitted);
    if (handshake.wanted !== null) {
      // The client has closed its side, and no further event follows.
      if (!socket.readable) return void socket.destroy();
      return this.#openStream(handshake.wanted, socket, admitted);
    }
    // A TLS socket and its stream share one Handshake.
    if (!this.isSecure)
      socket[HANDSHAKE] = /** @type {Handshake} */ (
        /** @type {unknown} */ (new Upgraded(handshake.port, admitted))
      );
    if (handshake.http !== null) takeOver(socket);
    this.onUpgrade(request, socket, head, admitted, door);
    this.reader.handOver(socket);
  }

  /** @param {WantedStream} wanted @param {TrackedSocket} socket @param {AdmissionLease} admitted */
  #openStream({ streams, request }, socket, admitted) {
    const refusal = streams.open(request, socket, admitted);
    if (refusal instanceof Promise)
      refusal.then((later) => this.#streamOpened(socket, admitted, later));
    else this.#streamOpened(socket, admitted, refusal);
  }

  /**
   * @param {TrackedSocket} socket @param {AdmissionLease} admitted
   * @param {Refusal|null} refusal null if the stream is open, or if its client is gone
   */
  #streamOpened(socket, admitted, refusal) {
    if (refusal === null) {
      socket[HANDSHAKE].want(null);
      return;
    }
    admitted.release();
    this.#refuseStream(socket, refusal);
  }

  /** @param {TrackedSocket} socket @param {Refusal} refusal of the request or its token */
  #refuseStream(socket, refusal) {
    this.counters.refused[MALFORMED.has(toHttp(refusal).status ?? 0) ? 'bad_request' : 'denied']++;
    this.answers.reject(socket, refusal);
  }
}

/** @param {Refusal|AdmissionLease} decision @returns {decision is Refusal} */
function isRefusal(decision) {
  return 'code' in decision;
}

/** @param {Refusal} refused which the door sends @returns {AdmissionLease} without a place */
function leaseOf(refused) {
  return {
    address: '',
    holder: null,
    credentials: { identity: null, lease: null, refusal: refused },
    release() {},
  };
}
