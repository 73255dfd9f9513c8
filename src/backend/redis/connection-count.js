// connection-count.js: counts the fleet's connections. Workers report theirs over Redis pub/sub:
//   =<connections> <worker>;<seconds>   on a change, and as a heartbeat at this interval
//   ?<worker>;<seconds>;<tag>           a worker has started or is back: all workers answer
//   -<worker>;<seconds>                 a worker leaves
//
// A worker without reports for three heartbeats is left out. Each report reaches all workers, so
// the intervals grow with the fleet, and an answer goes to the channel of the worker that asked.
//
// Workers of v0.2.0 send no seconds, and wait for six. While one of them is here, all report every
// two seconds, and answer it on the channel of the fleet.

import { BrokerError } from '../errors.js';

const MIN_INTERVAL_MS = 50;
const INTERVAL_PER_WORKER_MS = 25;
const MIN_HEARTBEAT_MS = 2000;
const HEARTBEAT_PER_WORKER_MS = 50;
const MAX_HEARTBEAT_MS = 20_000;
/** A worker is left out after so many heartbeats without a report. */
const MAX_MISSED = 3;
/** Other programs may publish any number of seconds. */
const MAX_HEARTBEAT_SECONDS = 60;
/** Added to the interval between two reports, because a report takes time to arrive. */
const TRAVEL_MS = 20;
/** The time in which all workers have answered one that joins. */
const ANSWERS_MS = MIN_INTERVAL_MS + TRAVEL_MS;
/** The longest wait of a count, however large the fleet is. */
const MAX_SETTLE_MS = 250;
/** The most workers that are counted, because other programs may publish on this channel too. */
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
   *   worker, through the channel of its probes with this hash tag; best effort
   * @param {() => string} parts.tag returns the hash tag of this worker's channel; empty without a
   *   cluster
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
    /** Workers of v0.2.0 among them. */
    this.oldCount = 0;
    /** Workers that have asked and wait for the answer, with their tags. @type {Map<string, string>} */
    this.askers = new Map();
    /** Whether a worker of v0.2.0 has asked. */
    this.mustAnswerAll = false;
    /** @type {NodeJS.Timeout|null} */
    this.answering = null;
    /** The last time at which another worker's count changed. */
    this.movedMs = Number.NEGATIVE_INFINITY;
    /** @type {Promise<number>|null} */
    this.settling = null;
    this.reportedMs = Number.NEGATIVE_INFINITY;
    /** The next report follows the last one within this time. */
    this.promisedMs = 0;
    /** @type {NodeJS.Timeout|null} */
    this.timer = null;
    this.isLive = false;
    /** The time at which Redis was last available again. */
    this.joinedMs = Number.NEGATIVE_INFINITY;
  }

  get total() {
    return this.connections + this.othersTotal;
  }

  /**
   * Resolves with the total. After another worker's report it waits for the next one, because a
   * change may be held back: a client that opens a thousand connections and then asks sees all.
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

  /** This one included. If it has just joined, it waits for others. @returns {Promise<number>} */
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

  /** This worker's name and the seconds to its next report, as others read them. */
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
   * A worker asks for the counts. One delayed answer serves all workers that ask at the same time.
   * @param {string} id
   * @param {string|undefined} tag undefined: the worker reads no channel but that of the fleet
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
