// connection-count.js: counts the connections of the fleet. Each worker reports its own over Redis
// pub/sub.
//
//   =<connections> <worker>   at once on a change, then at most every MIN_INTERVAL_MS; and as a heartbeat
//   ?<worker>                 a worker has started or is back: all workers answer
//   -<worker>                 a worker leaves
//
// A worker without reports for EXPIRY_MS is left out. In a large fleet the interval grows with the
// number of workers: each report reaches all of them, so the cost grows with the square.

const MIN_INTERVAL_MS = 50;
const INTERVAL_PER_WORKER_MS = 5;
const HEARTBEAT_MS = 2000;
const EXPIRY_MS = 6000;
/** On top of the interval between two reports: their way here. */
const TRAVEL_MS = 20;
/** A count waits no longer, however large the fleet. */
const MAX_SETTLE_MS = 250;
/** Workers that are counted: other programs may publish here too. */
const MAX_WORKERS = 10_000;
const MAX_MESSAGE_BYTES = 512;

export class ConnectionCount {
  /**
   * @param {object} parts
   * @param {string} parts.id of this worker, unlike any other's
   * @param {(message: Buffer) => void} parts.send best effort
   * @param {import('./stall-aware-clock.js').StallAwareClock} parts.clock
   * @param {() => void} parts.onMalformed a message is not one of ours, or there are too many
   *   workers
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
    /** When another worker's count was last heard to change. */
    this.movedMs = Number.NEGATIVE_INFINITY;
    /** @type {Promise<number>|null} */
    this.settling = null;
    this.reportedMs = Number.NEGATIVE_INFINITY;
    /** @type {NodeJS.Timeout|null} */
    this.timer = null;
    this.isLive = false;
  }

  get total() {
    return this.connections + this.othersTotal;
  }

  /**
   * The total, at once where no other worker has reported a change just now. One that has may hold
   * back a further change until its next report: that one is waited for, since who opens a thousand
   * connections and then asks wants to hear of all.
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

  /** Between two reports of a worker. */
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

  /** The bus is there, for the first time or again. */
  join() {
    this.isLive = true;
    this.send(Buffer.from(`?${this.id}`));
    this.#report();
  }

  /** The bus is away: reports would go nowhere. */
  pause() {
    this.isLive = false;
    this.#clearTimer();
  }

  /** Says goodbye. */
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
      // Answered after a moment, by one report for all that ask together.
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
