// connection-count.js: counts the fleet's connections. Workers report theirs over Redis pub/sub:
//   =<connections> <worker>;<seconds>   on a change, and as a heartbeat at this interval
//   ?<worker>;<seconds>;<tag>           a worker has started or is back: all workers answer
//   -<worker>;<seconds>                 a worker leaves
//
// A worker that misses three heartbeats is no longer counted. Each report reaches all workers, so
// the intervals grow with the fleet, and answers go only to the worker that asked.
//
// Workers of v0.2.0 send no seconds and expect a report at least every six. While one of them is
// present, all report every two seconds, and answer it on the fleet's channel.

import { BrokerError } from '../errors.js';

const MIN_INTERVAL_MS = 50;
const INTERVAL_PER_WORKER_MS = 25;
const MIN_HEARTBEAT_MS = 2000;
const HEARTBEAT_PER_WORKER_MS = 50;
const MAX_HEARTBEAT_MS = 20_000;
/** Heartbeats without a report before a worker is no longer counted. */
const MAX_MISSED = 3;
/** Other programs may publish any number of seconds. */
const MAX_HEARTBEAT_SECONDS = 60;
/** A report takes this long to arrive. */
const TRAVEL_MS = 20;
/** A worker that joins has all answers after this time. */
const ANSWERS_MS = MIN_INTERVAL_MS + TRAVEL_MS;
/** The longest wait of `count`, even in a large fleet. */
const MAX_SETTLE_MS = 250;
/** Other programs may publish on this channel, too. */
const MAX_WORKERS = 10_000;
const MAX_MESSAGE_BYTES = 512;
const MESSAGE = /^(?:([?-])|=(\d{1,9}) )(.+?)(?:;(\d{1,3})(?:;(\d*))?)?$/;

/**
 * @typedef {object} Peer
 * @property {number} connections @property {number} heardMs on the live clock
 * @property {number} expiryMs @property {boolean} isOld a worker of v0.2.0
 */

export class ConnectionCount {
  /**
   * @param {object} parts @param {string} parts.id of this worker, unique in the fleet
   * @param {(message: Buffer) => void} parts.send sends to all workers; best effort
   * @param {(message: Buffer, worker: string, tag: string) => void} parts.answer sends to one
   *   worker, on its probe channel with this hash tag; best effort
   * @param {() => string} parts.tag returns the hash tag of this worker's probe channel; empty
   *   without a cluster
   * @param {import('./stall-aware-clock.js').StallAwareClock} parts.clock
   * @param {() => void} parts.onMalformed another program's message, or too many workers
   */
  constructor({ id, send, answer, tag, clock, onMalformed }) {
    this.id = id;
    this.send = send;
    this.answer = answer;
    this.tag = tag;
    this.clock = clock;
    this.onMalformed = onMalformed;
    this.connections = 0;
    /** @type {Map<string, Peer>} */
    this.others = new Map();
    this.othersTotal = 0;
    /** Workers of v0.2.0. */
    this.oldCount = 0;
    /** The tags of workers that wait for an answer. @type {Map<string, string>} */
    this.askers = new Map();
    /** A worker of v0.2.0 has asked. */
    this.mustAnswerAll = false;
    /** @type {NodeJS.Timeout|null} */
    this.answering = null;
    /** When another worker's count last changed. */
    this.movedMs = Number.NEGATIVE_INFINITY;
    /** @type {Promise<number>|null} */
    this.settling = null;
    this.reportedMs = Number.NEGATIVE_INFINITY;
    /** The others expect the next report within this time. */
    this.promisedMs = 0;
    /** @type {NodeJS.Timeout|null} */
    this.timer = null;
    this.isLive = false;
    this.joinedMs = Number.NEGATIVE_INFINITY;
  }

  get total() {
    return this.connections + this.othersTotal;
  }

  /**
   * Resolves with the total. After a change on another worker it waits for the next report, which
   * may be held back: a client that opens a thousand connections and then asks sees them all.
   */
  count() {
    const wait =
      Math.min(MAX_SETTLE_MS, this.#intervalMs + TRAVEL_MS) - (performance.now() - this.movedMs);
    if (wait <= 0) return Promise.resolve(this.total);
    this.settling ??= new Promise((resolve) => {
      setTimeout(() => {
        this.settling = null;
        resolve(this.total);
      }, wait).unref();
    });
    return this.settling;
  }

  /** Includes this one. If it has just joined, it waits for the others. */
  async countWorkers() {
    const wait = this.joinedMs + ANSWERS_MS - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait).unref());
    if (!this.isLive) throw new BrokerError('UNAVAILABLE', 'Redis is unavailable');
    return this.others.size + 1;
  }

  get #intervalMs() {
    return Math.max(MIN_INTERVAL_MS, INTERVAL_PER_WORKER_MS * this.others.size);
  }

  get #heartbeatMs() {
    if (this.oldCount > 0) return MIN_HEARTBEAT_MS;
    const wanted = HEARTBEAT_PER_WORKER_MS * this.others.size;
    return Math.min(Math.max(wanted, MIN_HEARTBEAT_MS), MAX_HEARTBEAT_MS);
  }

  /** This worker's id and the seconds to its next report. */
  get #signature() {
    return `${this.id};${Math.ceil(this.#heartbeatMs / 1000)}`;
  }

  /** @param {number} connections */
  set(connections) {
    if (connections === this.connections) return;
    this.connections = connections;
    if (!this.isLive || this.timer !== null) return;
    const wait = this.reportedMs + this.#intervalMs - performance.now();
    if (wait <= 0) this.#report();
    else this.timer = setTimeout(() => this.#report(), wait).unref();
  }

  /** Redis is available, for the first time or again. */
  join() {
    this.isLive = true;
    this.joinedMs = performance.now();
    this.send(Buffer.from(`?${this.#signature};${this.tag()}`));
    this.#report();
  }

  /** Redis is unavailable: reports would be lost. */
  pause() {
    this.isLive = false;
    this.#clearTimer();
    this.#forgetAskers();
  }

  leave() {
    if (this.isLive) this.send(Buffer.from(`-${this.#signature}`));
    this.pause();
  }

  /** @param {number} nowMs on the live clock */
  tick(nowMs) {
    for (const [id, { heardMs, expiryMs }] of this.others)
      if (nowMs - heardMs >= expiryMs) this.#forget(id);
    const dueMs = Math.min(this.promisedMs, this.#heartbeatMs);
    if (this.isLive && performance.now() - this.reportedMs >= dueMs) this.#report();
  }

  /** @param {Buffer} message */
  receive(message) {
    const text = message.toString('utf8', 0, MAX_MESSAGE_BYTES);
    const [, kind, count, id, seconds, tag] = MESSAGE.exec(text) ?? [];
    if (id === undefined || message.length > MAX_MESSAGE_BYTES) return this.onMalformed();
    if (id === this.id) return;
    if (kind === '?') return this.#asked(id, tag);
    const before = this.others.get(id);
    if (before === undefined && kind !== '-' && this.others.size >= MAX_WORKERS)
      return this.onMalformed();
    this.#forget(id);
    if (kind === '-') return;
    const connections = Number(count);
    if (before?.connections !== connections) this.movedMs = performance.now();
    const isOld = seconds === undefined;
    const heartbeatMs = isOld
      ? MIN_HEARTBEAT_MS
      : 1000 * Math.min(Math.max(Number(seconds), 1), MAX_HEARTBEAT_SECONDS);
    const expiryMs = MAX_MISSED * heartbeatMs;
    this.others.set(id, { connections, heardMs: this.clock.nowMs, expiryMs, isOld });
    this.othersTotal += connections;
    if (isOld) this.oldCount++;
  }

  /** @param {string} id of another worker */
  #forget(id) {
    const peer = this.others.get(id);
    if (peer === undefined) return;
    this.others.delete(id);
    this.othersTotal -= peer.connections;
    if (peer.isOld) this.oldCount--;
  }

  /**
   * One delayed answer serves all workers that ask at the same time.
   * @param {string} id
   * @param {string|undefined} tag undefined: the worker only reads the fleet's channel
   */
  #asked(id, tag) {
    if (!this.isLive) return;
    if (tag === undefined) this.mustAnswerAll = true;
    else if (this.askers.size < MAX_WORKERS) this.askers.set(id, tag);
    const wait = Math.random() * MIN_INTERVAL_MS;
    this.answering ??= setTimeout(() => this.#answer(), wait).unref();
  }

  #answer() {
    const { askers } = this;
    // Many answers cost more than one report to all.
    if (this.mustAnswerAll || 2 * askers.size > this.others.size) this.#report();
    else for (const [id, tag] of askers) this.answer(this.#own(), id, tag);
    this.#forgetAskers();
  }

  #forgetAskers() {
    if (this.answering !== null) clearTimeout(this.answering);
    this.answering = null;
    this.mustAnswerAll = false;
    this.askers.clear();
  }

  #own() {
    return Buffer.from(`=${this.connections} ${this.#signature}`);
  }

  #report() {
    this.#clearTimer();
    if (!this.isLive) return;
    this.reportedMs = performance.now();
    this.promisedMs = this.#heartbeatMs;
    this.send(this.#own());
  }

  #clearTimer() {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }
}
