// idle-sockets.js: bounds the sockets of the public port that wait for their client, and closes
// some when descriptors run short (crowd.js). Each socket of a trusted proxy counts as an address.

import { OWN_DESCRIPTORS } from '../config/system-limits.js';
import { discard, HANDSHAKE } from './accepted-socket.js';
import { Crowd } from './crowd.js';

/** Health checks of load balancers need a few. */
const MAX_PLAIN = 64;
const MAX_BACKENDS = 256;
const MAX_CLIENTS = 1024;
const MAX_SENDING = 1024;

/** @import { TrackedSocket } from './accepted-socket.js' */
/** @typedef {typeof import('../observability/counters.js').EVICTIONS[number]} Eviction */

export class IdleSockets {
  /** Sockets without a whole request. @type {Crowd<TrackedSocket>} */
  #silent = new Crowd();
  /** Kept alive by plain HTTP. @type {Crowd<TrackedSocket>} */
  #plain = new Crowd();
  /** Kept alive by backends: the last request had a valid API key. @type {Crowd<TrackedSocket>} */
  #backends = new Crowd();
  /** Kept alive by clients that send messages in requests. @type {Crowd<TrackedSocket>} */
  #clients = new Crowd();
  /** The body of a request for a stream is incomplete. @type {Crowd<TrackedSocket>} */
  #sending = new Crowd();

  /**
   * @param {object} parts
   * @param {Pick<import('../config/settings.js').Config, 'maxHandshakes'|'maxHandshakesMode'>}
   *   parts.config
   * @param {number} parts.descriptorLimit
   * @param {Pick<import('../observability/counters.js').Counters, 'idleClosed'|'observed'|'sockets'>}
   *   parts.counters
   * @param {import('./last-answers.js').LastAnswers} parts.answers
   */
  constructor({ config, descriptorLimit, counters, answers }) {
    this.config = config;
    /** Leaves descriptors for the worker itself. */
    this.maxSockets = descriptorLimit - OWN_DESCRIPTORS;
    this.counters = counters;
    this.answers = answers;
  }

  get plainSockets() {
    return this.#plain.size;
  }

  get keptAlive() {
    return this.#plain.size + this.#backends.size + this.#clients.size;
  }

  /** @returns {boolean} false: the new socket uses a descriptor that the worker needs */
  hasRoom() {
    return this.counters.sockets <= this.maxSockets || this.makeRoom();
  }

  /** @param {TrackedSocket} socket */
  addNew(socket) {
    const { maxHandshakes, maxHandshakesMode } = this.config;
    if (maxHandshakesMode === 'observe' && this.#silent.size >= maxHandshakes)
      this.counters.observed.handshakes++;
    this.addSilent(socket);
  }

  /** @param {TrackedSocket} socket */
  addSilent(socket) {
    const { maxHandshakes, maxHandshakesMode } = this.config;
    const max = maxHandshakesMode === 'enforce' ? maxHandshakes : Number.POSITIVE_INFINITY;
    this.#add(this.#silent, socket, max, 'handshakes');
  }

  /** @param {TrackedSocket} socket */
  addPlain(socket) {
    this.#add(this.#plain, socket, MAX_PLAIN, 'plain_http');
  }

  /** @param {TrackedSocket} socket */
  addBackend(socket) {
    this.#add(this.#backends, socket, MAX_BACKENDS, 'plain_http');
  }

  /** @param {TrackedSocket} socket */
  addClient(socket) {
    this.#add(this.#clients, socket, MAX_CLIENTS, 'plain_http');
  }

  /** @param {TrackedSocket} socket */
  addSending(socket) {
    this.#add(this.#sending, socket, MAX_SENDING, 'handshakes');
  }

  /** @param {TrackedSocket} socket */
  isKeptAlive(socket) {
    const { crowd } = socket[HANDSHAKE];
    return crowd === this.#plain || crowd === this.#backends || crowd === this.#clients;
  }

  /** The socket is no longer idle. @param {TrackedSocket} socket */
  leave(socket) {
    socket[HANDSHAKE].leaveCrowd(socket);
  }

  /** Closes the socket whose loss matters least. @returns {boolean} false: none */
  makeRoom() {
    for (const socket of this.answers) {
      discard(socket); // the peer has its last answer
      return true;
    }
    const crowd = this.#plain.largest > this.#silent.largest ? this.#plain : this.#silent;
    // Backends lose their sockets last.
    return [crowd, this.#sending, this.#clients, this.#backends].some((one) =>
      this.#evict(one, 'descriptors'),
    );
  }

  /**
   * @param {Crowd<TrackedSocket>} crowd @param {TrackedSocket} socket in no crowd
   * @param {number} max with the socket @param {Eviction} reason
   */
  #add(crowd, socket, max, reason) {
    if (crowd.size >= max) this.#evict(crowd, reason);
    socket[HANDSHAKE].joinCrowd(socket, crowd);
  }

  /** @param {Crowd<TrackedSocket>} crowd @param {Eviction} reason */
  #evict(crowd, reason) {
    const socket = crowd.oldest();
    if (socket === undefined) return false;
    this.counters.idleClosed[reason]++;
    discard(socket);
    return true;
  }
}
