// relay-requests.js: a worker's requests to the relay, and whether the relay answers.
//
// A stalled primary keeps the socket open and accepts bytes, so the link asks for an answer every
// `watchMs`. After `awayMs` without one, the relay counts as unavailable until it answers again.
// Time in which this process itself was stalled does not count.

import { deferred } from '../deferred.js';
import { BrokerError } from '../errors.js';

/** Requests without an answer. Above it, new ones are refused. */
const MAX_REQUESTS = 100_000;
const MAX_NUMBER = 0xffffffff;

/**
 * The values of a REPLY, or the body of another answer.
 * @typedef {{ok: boolean, value: number, body: Buffer}} Answer
 */

/** @typedef {(answer: Answer) => void} OnAnswer */

/**
 * @typedef {object} Request
 * @property {number} sentMs on the clock below
 * @property {OnAnswer} resolve @property {(error: BrokerError) => void} reject
 * @property {OnAnswer|null} onLate called with an answer after the time-out
 */

export class RelayRequests {
  isAnswering = true;
  #next = 1;
  /** Requests in the order they were sent. @type {Map<number, Request>} */
  #waiting = new Map();
  /** Timed-out requests whose answer still matters. @type {Map<number, OnAnswer>} */
  #late = new Map();
  /** The clock as of the last check. It skips time in which this process was stalled. */
  #nowMs = 0;
  #lookedMs = 0;
  #heardMs = 0;

  /**
   * @param {object} parts @param {number} parts.watchMs @param {number} parts.awayMs
   * @param {number} parts.timeoutMs of a request
   * @param {(isAnswering: boolean) => void} parts.onAnswering it stops or resumes
   */
  constructor({ watchMs, awayMs, timeoutMs, onAnswering }) {
    this.watchMs = watchMs;
    this.awayMs = awayMs;
    this.timeoutMs = timeoutMs;
    this.onAnswering = onAnswering;
  }

  get isFull() {
    return this.#waiting.size + this.#late.size >= MAX_REQUESTS;
  }

  start() {
    this.#lookedMs = performance.now();
  }

  /** Bytes of the relay have arrived. */
  hear() {
    this.#heardMs = this.#nowMs;
  }

  /** @param {OnAnswer|null} [onLate] @returns {{id: number, promise: Promise<Answer>}} */
  add(onLate = null) {
    const id = this.#next;
    this.#next = id === MAX_NUMBER ? 1 : id + 1;
    const { promise, resolve, reject } = deferred();
    this.#waiting.set(id, { sentMs: this.#nowMs, resolve, reject, onLate });
    return { id, promise };
  }

  /** @param {Answer & {request: number}} answer */
  settle({ request: id, ...answer }) {
    this.#setAnswering(true);
    const request = this.#waiting.get(id);
    if (request !== undefined) {
      this.#waiting.delete(id);
      request.resolve(answer);
      return;
    }
    const onLate = this.#late.get(id);
    this.#late.delete(id);
    onLate?.(answer);
  }

  /**
   * Call it every `watchMs`, or more often.
   * @returns {boolean} false: it has looked already, or this process itself was stalled
   */
  look() {
    const now = performance.now();
    const step = now - this.#lookedMs;
    if (step < this.watchMs / 2) return false;
    this.#lookedMs = now;
    this.#nowMs += Math.min(step, this.watchMs);
    // After a stall of this process, the event loop must first read the answers that have arrived.
    if (step > 1.5 * this.watchMs) return false;
    this.#expire();
    return true;
  }

  #expire() {
    const nowMs = this.#nowMs;
    for (const [id, { sentMs, reject, onLate }] of this.#waiting) {
      // Both times are as of an earlier check, so the silence may be shorter by one interval.
      const silentMs = nowMs - Math.max(sentMs, this.#heardMs) - this.watchMs;
      if (silentMs >= this.awayMs) this.#setAnswering(false);
      if (nowMs - sentMs < this.timeoutMs) return;
      this.#waiting.delete(id);
      if (onLate !== null) this.#late.set(id, onLate);
      reject(new BrokerError('OUTCOME_UNKNOWN', 'the relay did not answer in time'));
    }
  }

  /** @param {boolean} isAnswering */
  #setAnswering(isAnswering) {
    if (isAnswering === this.isAnswering) return;
    this.isAnswering = isAnswering;
    this.onAnswering(isAnswering);
  }

  /** The link has ended. */
  rejectAll() {
    for (const { reject } of this.#waiting.values())
      reject(new BrokerError('OUTCOME_UNKNOWN', 'the relay link is closed'));
    this.#waiting.clear();
  }
}
