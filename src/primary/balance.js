// balance.js: decides when connections move away from the fullest workers, and how many.
//
// When a worker dies, its clients connect to the others, and its replacement stays nearly empty. If
// the skew stays above the threshold, the fullest workers close some connections each second
// (worker/relocation.js). Some of these clients return to a full worker.
//
//   IDLE --above the threshold for settleMs--> MOVING --no worker above the aim--> IDLE (done)
//                                                |--a worker dies, a reload, a stop--> IDLE (interrupted)
//                                                '--no progress for PATIENCE_MS--> IDLE (abandoned), for PAUSE_MS
//
// The aim is halfway between the threshold and an even load, so that the next rebalance does not
// begin at once. While any worker is overloaded or without the broker, no connection moves.

export const BALANCE_INTERVAL_MS = 1000;
/** Chance alone makes a skew among fewer connections per worker. */
const MIN_MEAN = 100;
/** Within this time the connections above the aim must shrink by MIN_PROGRESS. */
const PATIENCE_MS = 60_000;
const MIN_PROGRESS = 0.05;
/** Before the next rebalance after one without effect. */
const PAUSE_MS = 600_000;

/** @type {readonly number[]} */
const NO_ORDERS = Object.freeze([]);

/** @typedef {'done'|'interrupted'|'abandoned'} Result */

/**
 * @typedef {object} Load reported by a worker
 * @property {number} connections
 * @property {boolean} isSteady false: overloaded, without the broker, or silent
 */

/**
 * @typedef {object} Rules
 * @property {number} skewPercent the threshold; 0: connections never move
 * @property {number} ratePercent of its connections that a worker may close in a second
 * @property {number} settleMs the skew must last this long, because clients may be returning
 */

/** @param {readonly number[]} counts by worker @returns {number} largest / mean; 1: none */
export function skewOf(counts) {
  const mean = meanOf(counts);
  return mean > 0 ? Math.max(...counts) / mean : 1;
}

/**
 * How many connections each worker closes in this second.
 * @param {readonly number[]} counts connections by worker
 * @param {Pick<Rules, 'skewPercent'|'ratePercent'>} rules
 */
export function ordersFor(counts, { skewPercent, ratePercent }) {
  return excessOf(counts, skewPercent).map((excess, i) =>
    Math.min(excess, Math.floor((counts[i] * ratePercent) / 100)),
  );
}

export class Balancer {
  /** @param {Pick<import('pino').Logger, 'info'|'warn'>} log */
  constructor(log) {
    this.log = log;
    /** @type {Record<Result, number>} */
    this.results = { done: 0, interrupted: 0, abandoned: 0 };
    /** When the skew rose above the threshold. @type {number|null} */
    this.skewedMs = null;
    this.pausedUntilMs = 0;
    /** @type {{startedMs: number, moved: number, checkedMs: number, excess: number}|null} */
    this.run = null;
  }

  /** A worker has died, or a reload begins: clients will return. @param {number} nowMs */
  interrupt(nowMs) {
    this.skewedMs = null;
    this.#endRebalance('interrupted', nowMs);
  }

  /**
   * Call it every BALANCE_INTERVAL_MS.
   * @param {number} nowMs
   * @param {readonly Load[]|null} loads by worker; null if a worker is missing, starts or drains
   * @param {Rules} rules @returns connections to close now, by worker; may be empty
   */
  step(nowMs, loads, rules) {
    if (loads === null || rules.skewPercent === 0) {
      this.interrupt(nowMs);
      return NO_ORDERS;
    }
    const counts = loads.map(({ connections }) => connections);
    const skew = skewOf(counts);
    if (this.run === null && (meanOf(counts) < MIN_MEAN || skew * 100 <= rules.skewPercent)) {
      this.skewedMs = null;
      return NO_ORDERS;
    }
    this.skewedMs ??= nowMs;
    if (!loads.every(({ isSteady }) => isSteady)) return NO_ORDERS;
    if (this.run === null) {
      if (nowMs - this.skewedMs < rules.settleMs || nowMs < this.pausedUntilMs) return NO_ORDERS;
      this.#beginRebalance(nowMs, counts, rules);
    }
    return this.#moveConnections(nowMs, counts, rules);
  }

  /** @param {number} nowMs @param {readonly number[]} counts @param {Rules} rules */
  #beginRebalance(nowMs, counts, { skewPercent }) {
    const excess = totalOf(excessOf(counts, skewPercent));
    this.run = { startedMs: nowMs, moved: 0, checkedMs: nowMs, excess };
    this.log.info({ skew: rounded(skewOf(counts)), connections: counts }, 'rebalance started');
  }

  /** @param {number} nowMs @param {readonly number[]} counts @param {Rules} rules */
  #moveConnections(nowMs, counts, rules) {
    const { run } = this;
    const excess = totalOf(excessOf(counts, rules.skewPercent));
    if (run === null || excess === 0) {
      this.#endRebalance('done', nowMs, counts);
      return NO_ORDERS;
    }
    if (nowMs - run.checkedMs >= PATIENCE_MS) {
      if (excess > run.excess * (1 - MIN_PROGRESS)) {
        this.pausedUntilMs = nowMs + PAUSE_MS;
        this.#endRebalance('abandoned', nowMs, counts);
        return NO_ORDERS;
      }
      run.checkedMs = nowMs;
      run.excess = excess;
    }
    const orders = ordersFor(counts, rules);
    run.moved += totalOf(orders);
    return orders;
  }

  /** @param {Result} result @param {number} nowMs @param {readonly number[]} [counts] */
  #endRebalance(result, nowMs, counts) {
    const { run } = this;
    if (run === null) return;
    this.run = null;
    this.skewedMs = null;
    this.results[result]++;
    const seconds = Math.round((nowMs - run.startedMs) / 1000);
    const skew = counts && rounded(skewOf(counts));
    const level = result === 'abandoned' ? 'warn' : 'info';
    this.log[level](
      { moved: run.moved, seconds, skew, connections: counts },
      `rebalance ${result}`,
    );
  }
}

/** Connections above the aim. @param {readonly number[]} counts @param {number} skewPercent */
function excessOf(counts, skewPercent) {
  const aim = (meanOf(counts) * (100 + skewPercent)) / 200;
  return counts.map((count) => Math.max(0, Math.ceil(count - aim)));
}

/** @param {readonly number[]} counts */
function meanOf(counts) {
  return totalOf(counts) / counts.length;
}

/** @param {readonly number[]} numbers */
function totalOf(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0);
}

/** @param {number} skew */
function rounded(skew) {
  return Math.round(skew * 100) / 100;
}
