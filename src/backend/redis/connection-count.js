// connection-count.js: counts the connections of the fleet. Each worker reports its own over Redis
// pub/sub.
//
//   =<connections> <worker>   at once on a change, then at most every MIN_INTERVAL_MS, and as a heartbeat
//   ?<worker>                 a worker has started or is back: all workers answer
//   -<worker>                 a worker leaves
//
// A worker without reports for EXPIRY_MS is left out. Each report reaches all workers, so the cost
// grows with the square of their number. Therefore the interval grows with the fleet.

import { BrokerError } from '../errors.js';

const MIN_INTERVAL_MS = 50;
const INTERVAL_PER_WORKER_MS = 5;
const HEARTBEAT_MS = 2000;
const EXPIRY_MS = 6000;
/** Added to the interval between two reports, because a report takes time to arrive. */
const TRAVEL_MS = 20;
/** The time in which all workers have answered one that joins. */
const ANSWERS_MS = MIN_INTERVAL_MS + TRAVEL_MS;
/** The longest wait of a count, however large the fleet is. */
const MAX_SETTLE_MS = 250;
/** The most workers that are counted, because other programs may publish on this channel too. */
const MAX_WORKERS = 10_000;
const MAX_MESSAGE_BYTES = 512;

export class ConnectionCount {
  /**
   * @param {object} parts
   * @param {string} parts.id of this worker, unique in the fleet
   * @param {(message: Buffer) => void} parts.send best effort
   * @param {import('./stall-aware-clock.js').StallAwareClock} parts.clock
   * @param {() => void} parts.onMalformed another program's message, or too many workers
   */
  constructor({ id, send, clock, onMalformed }) {
    this.id = id;
    this.send = send;
    this.clock = clock;
    this.onMalformed = onMalformed;
    this.connections = 0;
    /** @type {Map<string, {connections: number, heardMs: number}>} */
    this.others = new Map();
    this.othersTotal = 0;
    /** The last time at which another worker's count changed. */
    this.movedMs = Number.NEGATIVE_INFINITY;
    /** @type {Promise<number>|null} */
    this.settling = null;
    this.reportedMs = Number.NEGATIVE_INFINITY;
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
   * Resolves with the total, at once if no other worker has just reported a change. After a change
   * a worker may hold back the next one until its next report, so the count waits for that report.
   * Otherwise a client that opens a thousand connections and then asks would miss some.
   * @returns {Promise<number>}
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

  /**
   * Resolves with the number of workers, this one included. A worker that has just joined waits for
   * the reports of the others.
   * @returns {Promise<number>}
   */
  async countWorkers() {
    const wait = this.joinedMs + ANSWERS_MS - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait).unref());
    if (!this.isLive) throw new BrokerError('UNAVAILABLE', 'Redis is unavailable');
    return this.others.size + 1;
  }

  /** The interval between two reports of a worker. */
  get #intervalMs() {
    return Math.max(MIN_INTERVAL_MS, INTERVAL_PER_WORKER_MS * this.others.size);
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
    this.send(Buffer.from(`?${this.id}`));
    this.#report();
  }

  /** Redis is unavailable: reports would be lost. */
  pause() {
    this.isLive = false;
    this.#clearTimer();
  }

  /** Reports that this worker leaves. */
  leave() {
    if (this.isLive) this.send(Buffer.from(`-${this.id}`));
    this.pause();
  }

  /** @param {number} nowMs on the live clock */
  tick(nowMs) {
    for (const [id, { connections, heardMs }] of this.others) {
      if (nowMs - heardMs < EXPIRY_MS) continue;
      this.others.delete(id);
      this.othersTotal -= connections;
    }
    if (this.isLive && performance.now() - this.reportedMs >= HEARTBEAT_MS) this.#report();
  }

  /** @param {Buffer} message */
  receive(message) {
    const text = message.toString('utf8', 0, MAX_MESSAGE_BYTES);
    const [, kind, count, id] = /^(?:([?-])|=(\d{1,9}) )(.+)$/.exec(text) ?? [];
    if (id === undefined || message.length > MAX_MESSAGE_BYTES) return this.onMalformed();
    if (id === this.id) return;
    if (kind === '?') {
      // One delayed report answers all workers that ask at the same time.
      if (this.isLive)
        this.timer ??= setTimeout(() => this.#report(), Math.random() * MIN_INTERVAL_MS).unref();
      return;
    }
    const before = this.others.get(id);
    if (before === undefined && kind !== '-' && this.others.size >= MAX_WORKERS)
      return this.onMalformed();
    if (before !== undefined) this.othersTotal -= before.connections;
    if (kind === '-') {
      this.others.delete(id);
      return;
    }
    const connections = Number(count);
    if (before?.connections !== connections) this.movedMs = performance.now();
    this.others.set(id, { connections, heardMs: this.clock.nowMs });
    this.othersTotal += connections;
  }

  #report() {
    this.#clearTimer();
    if (!this.isLive) return;
    this.reportedMs = performance.now();
    this.send(Buffer.from(`=${this.connections} ${this.id}`));
  }

  #clearTimer() {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }
}
