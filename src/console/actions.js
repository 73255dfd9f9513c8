// actions.js: hands requests of the console to a ready worker, and its answers back.
//
// A request that gets no answer within TIMEOUT_MS, or whose worker exits, ends with 504: the
// outcome is unknown. Requests and tails under way are bounded.

import { refusal, toHttp } from '../protocol/refusal.js';

/** A worker waits a second for the answers of a fleet. */
const TIMEOUT_MS = 5000;
const MAX_REQUESTS = 64;
/** Tails at once; a worker has the same bound. */
export const MAX_TAILS = 8;

/** @import { OperatorRequest, TailLine, ToPrimary, ToWorker } from '../worker/control-messages.js' */
/** @typedef {Extract<ToPrimary, {type: 'operated'|'tailed'|'tail-ended'}>} Answer */

/** A worker, as the supervisor knows it. @typedef {{id: number, send: (message: ToWorker) => void}} Worker */

/**
 * @typedef {object} Outcome
 * @property {number} status of HTTP
 * @property {string} body JSON
 */

/**
 * @typedef {{onLines: (lines: TailLine[], left: number) => void, onEnd: () => void}} TailListener
 */

export class Actions {
  #id = 0;
  /** @type {Map<number, {worker: Worker, resolve: (outcome: Outcome) => void, timer: NodeJS.Timeout}>} */
  #requests = new Map();
  /** @type {Map<number, {worker: Worker} & TailListener>} */
  #tails = new Map();

  /** @param {() => Worker|undefined} nextReady a worker for a request */
  constructor(nextReady) {
    this.nextReady = nextReady;
  }

  /** @param {OperatorRequest} request @returns {Promise<Outcome>} */
  run(request) {
    const worker = this.#requests.size < MAX_REQUESTS ? this.nextReady() : undefined;
    if (worker === undefined) return Promise.resolve(NOT_READY);
    const id = ++this.#id;
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#settleRequest(id, UNKNOWN), TIMEOUT_MS);
      timer.unref();
      this.#requests.set(id, { worker, resolve, timer });
      worker.send({ type: 'operate', id, request });
    });
  }

  /**
   * Begins to watch a room.
   * @param {string} room @param {TailListener} listener
   * @returns {(() => void)|null} ends the tail; null: too many, or no worker is ready
   */
  tail(room, listener) {
    const worker = this.#tails.size < MAX_TAILS ? this.nextReady() : undefined;
    if (worker === undefined) return null;
    const id = ++this.#id;
    this.#tails.set(id, { worker, ...listener });
    worker.send({ type: 'tail', id, room });
    return () => {
      if (this.#tails.delete(id)) worker.send({ type: 'untail', id });
    };
  }

  /** @param {Answer} message */
  receive(message) {
    const { id } = message;
    if (message.type === 'operated') return this.#settleRequest(id, message);
    const tail = this.#tails.get(id);
    if (message.type === 'tailed') return tail?.onLines(message.lines, message.left);
    this.#tails.delete(id);
    tail?.onEnd();
  }

  /** The worker has exited. @param {{id: number}} worker */
  gone(worker) {
    for (const [id, request] of this.#requests)
      if (request.worker.id === worker.id) this.#settleRequest(id, UNKNOWN);
    for (const [id, tail] of this.#tails) {
      if (tail.worker.id !== worker.id) continue;
      this.#tails.delete(id);
      tail.onEnd();
    }
  }

  /** @param {number} id @param {Outcome} outcome */
  #settleRequest(id, { status, body }) {
    const request = this.#requests.get(id);
    if (request === undefined) return;
    this.#requests.delete(id);
    clearTimeout(request.timer);
    request.resolve({ status, body });
  }
}

const NOT_READY = toHttp(refusal('UNAVAILABLE', 'No worker is ready for this request.'));
const UNKNOWN = toHttp(
  refusal('OUTCOME_UNKNOWN', 'The worker has not answered. A change may have had its effect.'),
);
