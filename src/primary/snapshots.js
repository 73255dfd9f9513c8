// snapshots.js: collects the workers' metrics over IPC and passes them to the aggregate.
//
// A collection resolves when all workers have answered, or after SCRAPE_TIMEOUT_MS, so one silent
// worker does not fail a scrape. Late answers still count. What a killed worker has counted since
// its last snapshot is lost, so one is taken at least every SNAPSHOT_INTERVAL_MS. The console asks
// more often, for some metrics only.

import { within } from '../backend/deferred.js';

export const SNAPSHOT_INTERVAL_MS = 15_000;
const SCRAPE_TIMEOUT_MS = 1000;
/** A worker's exit and the close of its channel come in any order, and its last metrics between. */
const FINAL_METRICS_MS = 1000;

/** @import { Aggregate, Snapshot } from '../observability/aggregate.js' */
/** @import { WorkerProcess } from './worker-process.js' */

export class Snapshots {
  /**
   * @param {Aggregate} aggregate
   * @param {ReadonlyMap<number, WorkerProcess>} processes by cluster id; read at each collection
   * @param {ReadonlySet<string>|null} [names] of the metrics; null: all
   */
  constructor(aggregate, processes, names = null) {
    this.aggregate = aggregate;
    this.processes = processes;
    this.names = names;
    this.request = 0;
    /** Ids of the workers that answered the last request. @type {Set<number>} */
    this.answered = new Set();
    /** Their counts are final. @type {WeakSet<WorkerProcess>} */
    this.departed = new WeakSet();
    /** @type {{waiting: Set<number>, done: () => void}|undefined} */
    this.pending = undefined;
    /** @type {Promise<void>|undefined} */
    this.collecting = undefined;
    this.isScrape = false;
  }

  /**
   * Requests metrics. Concurrent calls share a request, but a scrape shares only that of another
   * scrape, because only a scrape ends a period (process-metrics.js).
   * @param {{isScrape?: boolean}} [why] false: nobody sees the values
   */
  collect({ isScrape = true } = {}) {
    const { collecting } = this;
    if (collecting && (this.isScrape || !isScrape)) return collecting;
    this.isScrape = isScrape;
    const begun = collecting
      ? collecting.then(() => this.#collect(isScrape))
      : this.#collect(isScrape);
    const next = begun.finally(() => {
      if (this.collecting === next) this.collecting = undefined;
    });
    this.collecting = next;
    return next;
  }

  /** @param {boolean} isScrape */
  async #collect(isScrape) {
    const request = ++this.request;
    /** @type {Set<number>} */
    const waiting = new Set();
    this.answered = new Set();
    const all = new Promise((resolve) => {
      this.pending = { waiting, done: () => resolve(undefined) };
    });
    for (const one of this.processes.values()) {
      if (one.state !== 'ready' && one.state !== 'draining') continue;
      one.requestMetrics(request, this.names, isScrape);
      waiting.add(one.id);
    }
    if (waiting.size > 0) await within(all, SCRAPE_TIMEOUT_MS);
    this.pending = undefined;
  }

  /**
   * @param {WorkerProcess} one
   * @param {number} request that was answered; 0 for the last metrics before an exit
   * @param {Snapshot[]} metrics
   */
  receive(one, request, metrics) {
    // After FINAL_METRICS_MS its counts would be added twice.
    if (this.departed.has(one)) return;
    this.aggregate.update(one.id, metrics);
    if (this.pending === undefined || request !== this.request) return;
    this.answered.add(one.id);
    this.#answerScrape(one.id);
  }

  /** Adds the worker's counts to those of departed workers after its last message. @param {WorkerProcess} one */
  depart(one) {
    const { worker, id } = one;
    this.#answerScrape(id);
    let isOver = false;
    const over = () => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      this.departed.add(one);
      this.aggregate.depart(id);
    };
    const timer = setTimeout(over, FINAL_METRICS_MS);
    if (worker.isConnected()) worker.once('disconnect', over);
    else over();
  }

  /** @param {number} id of a worker that has answered or exited */
  #answerScrape(id) {
    this.pending?.waiting.delete(id);
    if (this.pending?.waiting.size === 0) this.pending.done();
  }
}
