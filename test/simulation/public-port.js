// public-port.js: the public port of a simulated worker, in place of src/transport/http-server.js.
//
// It takes one request of each connection, asks admission as the real port does, and hands the socket
// to the shipped WebSockets, streams and HTTP APIs. The real port's parsing, deadlines and bounds for
// idle sockets are no part of a simulation.

import { createServer } from 'node:net';
import { refusal, toHttp } from '../../src/protocol/refusal.js';
import * as accepted from '../../src/transport/accepted-socket.js';
import { responseText } from '../../src/transport/http-answers.js';
import { routeOf } from '../../src/transport/route.js';
import { readMessage, requestFrom, responseTo } from './web.js';

const POLL_MS = 20;
const NOTHING = Buffer.alloc(0);
/** What the shipped transports look for on a socket. */
const { HANDSHAKE, TRANSPORT } = accepted;

/** @import { AdmissionLease } from '../../src/admission/admission.js' */
/** @import { Answer, Refusal } from '../../src/protocol/refusal.js' */
/** @import { Api, LoadedDoor, Streams } from '../../src/transport/route.js' */
/** @import { IncomingMessage } from 'node:http' */
/** A SimulatedSocket with the fields that the shipped transports add. @typedef {any} Socket */
/** @typedef {{streams: Streams, request: unknown}} WantedStream */
/**
 * @typedef {{request: IncomingMessage, door: LoadedDoor|null, socket: Socket, head: Buffer,
 *   wanted: WantedStream|null}} Wanted
 */

/** The state of an accepted socket, with the members that shipped transports use. */
class Accepted {
  /** @type {AdmissionLease|null} */
  admitted = null;
  http = null;
  isGone = false;

  /** @param {HttpServer} port */
  constructor(port) {
    this.port = port;
  }

  go() {
    const isFirst = !this.isGone;
    this.isGone = true;
    return isFirst;
  }
}

export class HttpServer {
  secure = null;

  /** @param {any} parts those of the real one */
  constructor({
    config,
    admission,
    onUpgrade,
    doors = [],
    streams = null,
    api = null,
    readiness,
    phase,
    counters,
  }) {
    this.config = config;
    this.admission = admission;
    this.onUpgrade = onUpgrade;
    /** @type {readonly LoadedDoor[]} */
    this.doors = doors;
    /** @type {Streams|null} */
    this.streams = streams;
    /** @type {Api|null} */
    this.api = api;
    this.readiness = readiness;
    this.phase = phase;
    this.counters = counters;
    this.acceptor = createServer({ allowHalfOpen: true }, (socket) => this.#connected(socket));
    /** @type {Set<Socket>} */
    this.waiting = new Set();
  }

  get openSockets() {
    return this.counters.sockets;
  }

  get plainSockets() {
    return 0;
  }

  get handshakes() {
    return this.waiting.size;
  }

  listen() {
    return new Promise((resolve) => {
      this.acceptor.listen(this.config.port, () =>
        resolve({ port: this.config.port, address: '0.0.0.0' }),
      );
    });
  }

  replaceCertificate() {}

  stopAccepting() {
    if (this.acceptor.listening) this.acceptor.close();
  }

  async endKeptAlive() {}

  async close() {
    this.stopAccepting();
    for (const socket of [...this.waiting]) this.#refuse(socket, refusal('service_unavailable'));
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    for (const socket of [...this.waiting]) socket.destroy();
  }

  /** @param {Socket} socket */
  #connected(socket) {
    this.counters.sockets++;
    socket[HANDSHAKE] = new Accepted(this);
    socket.on('error', () => socket.destroy());
    socket.on('end', () => socket[TRANSPORT]?.ended?.());
    socket.on('close', () => {
      this.closed(socket);
      socket[TRANSPORT]?.closed?.();
    });
    const refused = this.admission.admitPeer(this.admission.peerOf(socket));
    if (refused !== null) return this.#refuse(socket, refused);
    this.waiting.add(socket);
    setTimeout(() => {
      if (this.waiting.has(socket)) socket.destroy();
    }, this.config.handshakeTimeoutMs);
    readMessage(socket, (head) => {
      const request = requestFrom(socket, head);
      return this.#take(request, socket, head.rest) ? request : null;
    });
  }

  /** @param {Socket} socket */
  closed(socket) {
    if (!socket[HANDSHAKE].go()) return;
    this.counters.sockets--;
    this.waiting.delete(socket);
    socket[HANDSHAKE].admitted?.release();
  }

  /**
   * @param {IncomingMessage} request @param {Socket} socket @param {Buffer} rest
   * @returns {boolean} true: the body follows
   */
  #take(request, socket, rest) {
    const { name, door } = routeOf(request, this.doors);
    const streams =
      name !== 'stream' ? null : door === null ? this.streams : (door.streams ?? null);
    const api =
      name === 'api' ? (door === null ? this.api : (door.apiFor?.(request) ?? door.api)) : null;
    if (name === 'websocket' && request.headers.upgrade === 'websocket') {
      socket.handOver();
      this.#admit({ request, door, socket, head: rest, wanted: null });
      return false;
    }
    if (streams !== null) return this.#stream(request, streams, door, socket, rest);
    if (api !== null) return this.#call(request, api, socket);
    if (name === 'livez' || name === 'readyz') this.#answerHealth(name, socket);
    else this.#answer(socket, { status: 404, headers: {}, body: '{"error":"not_found"}' });
    return false;
  }

  /** @param {string} name @param {Socket} socket */
  #answerHealth(name, socket) {
    const reason = name === 'livez' ? null : this.phase?.isRetired ? 'draining' : this.readiness();
    const body =
      reason === null ? '{"status":"ok"}' : JSON.stringify({ status: 'unavailable', reason });
    this.#answer(socket, { status: reason === null ? 200 : 503, headers: {}, body });
  }

  /** @param {IncomingMessage} request @param {Api} api @param {Socket} socket */
  #call(request, api, socket) {
    const call = api.begin(request, Number(request.headers['content-length'] ?? 0) > 0);
    if ('status' in call) {
      this.#answer(socket, call);
      return false;
    }
    call.endConnection();
    this.waiting.delete(socket);
    const response = responseTo(request, socket);
    const flow = { pause() {}, resume() {} };
    const onCut = (/** @type {Answer} */ answer) => this.#answer(socket, answer);
    // The handler reads the body when it comes.
    process.nextTick(() =>
      api.handle(call, request, response, onCut, flow, () => socket.destroy()),
    );
    return true;
  }

  /**
   * @param {IncomingMessage} request @param {Streams} streams @param {LoadedDoor|null} door
   * @param {Socket} socket @param {Buffer} rest
   */
  #stream(request, streams, door, socket, rest) {
    const wanted = streams.read(request);
    const fault = streams.faultOf(request, wanted);
    const length = Number(request.headers['content-length'] ?? 0);
    if (fault !== null) {
      this.#refuseStream(socket, streams, wanted, fault);
      return false;
    }
    if (length === 0) {
      socket.handOver();
      const later = streams.withBody?.(wanted, NOTHING) ?? null;
      if (later !== null) this.#refuseStream(socket, streams, wanted, later);
      else this.#admit({ request, door, socket, head: rest, wanted: { streams, request: wanted } });
      return false;
    }
    /** @type {Buffer[]} */
    const parts = [];
    request.on('data', (bytes) => parts.push(bytes));
    request.on('end', () => {
      if (socket.destroyed) return;
      socket.removeAllListeners('data');
      socket.handOver();
      const later = streams.withBody?.(wanted, Buffer.concat(parts)) ?? null;
      if (later !== null) this.#refuseStream(socket, streams, wanted, later);
      else
        this.#admit({ request, door, socket, head: NOTHING, wanted: { streams, request: wanted } });
    });
    return true;
  }

  /** @param {Wanted} what */
  #admit(what) {
    const { request, door, socket, wanted } = what;
    if (this.phase?.isRetired) return this.#refuseDraining(what);
    const rules = wanted === null ? door?.door : wanted.streams.rules;
    // Programs of earlier versions have another name for it.
    const { admission } = this;
    const decision = (admission.admitHandshake ?? admission.admit).call(admission, request, rules);
    if (!(decision instanceof Promise)) return this.#decide(decision, what);
    decision.then((/** @type {Refusal|AdmissionLease} */ later) => {
      if (this.waiting.has(socket) && !socket.destroyed) this.#decide(later, what);
      else if (!('code' in later)) later.release();
    });
  }

  /** @param {Refusal|AdmissionLease} decision @param {Wanted} what */
  #decide(decision, what) {
    if ('code' in decision) return this.#refuseHandshake(what, decision);
    if (!this.phase?.isRetired) return this.#open(what, decision);
    decision.release();
    this.#refuseDraining(what);
  }

  /** @param {Wanted} what */
  #refuseDraining(what) {
    this.counters.refused.draining++;
    this.#refuseHandshake(what, refusal('service_unavailable'));
  }

  /** @param {Wanted} what @param {Refusal} refused */
  #refuseHandshake(what, refused) {
    const { door, socket, wanted } = what;
    if (wanted === null && door?.door.takesRefusal?.(refused)) {
      const credentials = { identity: null, lease: null, refusal: refused };
      const lease = { address: '', holder: null, credentials, release() {} };
      return this.#open(what, lease);
    }
    if (wanted !== null) this.#refuseStream(socket, wanted.streams, wanted.request, refused);
    else this.#refuse(socket, refused);
  }

  /** @param {Wanted} wanted @param {AdmissionLease} admitted */
  #open({ request, door, socket, head, wanted }, admitted) {
    this.waiting.delete(socket);
    socket[HANDSHAKE].admitted = admitted;
    if (wanted !== null) {
      const { streams } = wanted;
      const opened = streams.open(wanted.request, socket, admitted);
      Promise.resolve(opened).then((refused) => {
        if (refused === null) return;
        admitted.release();
        this.#refuseStream(socket, streams, wanted.request, refused);
      });
      return;
    }
    this.onUpgrade(request, socket, head, admitted, door);
  }

  /** @param {Socket} socket @param {Streams} streams @param {unknown} wanted @param {Refusal} refused */
  #refuseStream(socket, streams, wanted, refused) {
    this.waiting.delete(socket);
    socket.end(streams.refusalText(wanted, refused));
  }

  /** @param {Socket} socket @param {Refusal} refused */
  #refuse(socket, refused) {
    this.#answer(socket, toHttp(refused));
  }

  /** @param {Socket} socket @param {Answer} answer */
  #answer(socket, { status, headers, body }) {
    this.waiting.delete(socket);
    if (!socket.destroyed && socket.writable)
      socket.end(responseText(status, { ...headers }, body));
  }
}
