// aggregate.js: adds up the workers' metrics to those of the server.
//
// Each worker sends its values as prom-client's JSON. The primary adds them up and keeps the counts
// of workers that have exited, because Prometheus reads a counter that falls as a restart.

import { AggregatorRegistry } from 'prom-client';

/** A power of two: see onGrid. */
const GRID = 2 ** 20;

/**
 * @typedef {import('prom-client').MetricObject & {values: MetricValue[], aggregator?: string}}
 *   Snapshot
 */
/**
 * @typedef {{value: number, labels: Record<string, string|number>, metricName?: string}}
 *   MetricValue
 */

/**
 * Adds up the workers' snapshots.
 *
 * A worker's last snapshot stands for it until the worker has left; then its counters and
 * histograms move to an account of the departed and its gauges vanish. So a counter never goes
 * down: what a crash loses is what nobody had seen yet.
 */
export class Aggregate {
  constructor() {
    /** @type {Map<number, {sequence: number, metrics: Snapshot[]}>} */
    this.last = new Map();
    /** @type {Map<string, {metric: Snapshot, byLabels: Map<string, MetricValue>}>} */
    this.departed = new Map();
  }

  /**
   * @param {number} id of a process, never used again
   * @param {number} sequence of the question this answers: an answer older than the last one is
   *   passed over
   * @param {Snapshot[]} metrics ours from now on: its values are rounded
   */
  update(id, sequence, metrics) {
    const last = this.last.get(id);
    if (last && sequence < last.sequence) return;
    for (const metric of metrics) {
      if (isCumulative(metric)) for (const one of metric.values) one.value = onGrid(one.value);
    }
    this.last.set(id, { sequence, metrics });
  }

  /** The process is gone for good: no update of it may follow. @param {number} id */
  depart(id) {
    const last = this.last.get(id);
    if (!last) return;
    this.last.delete(id);
    for (const metric of last.metrics) {
      if (isCumulative(metric)) this.#fold(metric);
    }
  }

  /** @param {Snapshot} metric */
  #fold(metric) {
    let account = this.departed.get(metric.name);
    if (!account) {
      account = { metric: { ...metric, values: [] }, byLabels: new Map() };
      this.departed.set(metric.name, account);
    }
    for (const { value, labels, metricName } of metric.values) {
      const key = `${metricName ?? ''}${JSON.stringify(Object.entries(labels).sort())}`;
      const sum = account.byLabels.get(key);
      if (sum) {
        sum.value += value;
        continue;
      }
      const first = { value, labels, metricName };
      account.byLabels.set(key, first);
      account.metric.values.push(first);
    }
  }

  /**
   * @param {Snapshot[]} [own] the primary's
   * @returns {Promise<string>} in Prometheus' text format
   */
  async text(own = []) {
    const all = [
      ...[...this.last.values()].map(({ metrics }) => metrics),
      own,
      [...this.departed.values()].map(({ metric }) => metric),
    ];
    return AggregatorRegistry.aggregate(all).metrics();
  }
}

/**
 * Rounds to a multiple of 2^-20. Seconds of GC or CPU added up in another order, as when a worker
 * leaves, differ in the last bit, and a counter that falls by one bit has been reset, to
 * Prometheus. Multiples of a power of two add up exactly (as long as the sum stays below 2^33), so
 * in any order.
 * @param {number} value
 */
function onGrid(value) {
  return Math.round(value * GRID) / GRID;
}

/** @param {Snapshot} metric */
function isCumulative({ type }) {
  // prom-client's JSON names the type; its typings have an enum of numbers.
  const name = String(type);
  return name === 'counter' || name === 'histogram';
}
