// aggregate.js: adds up the metrics of the workers.
//
// Each worker sends its values as prom-client's JSON. The primary adds them up and keeps the counts
// of workers that have exited, because Prometheus reads a counter that falls as a restart.

import { AggregatorRegistry, prometheusContentType } from 'prom-client';

/** Of `Aggregate.text`. */
export const CONTENT_TYPE = prometheusContentType;

/** A power of two: see onGrid. */
const GRID = 2 ** 20;

/**
 * A metric as prom-client's JSON has it.
 * @typedef {{name: string, help: string, type: string, values: MetricValue[], aggregator?: string}}
 *   Snapshot
 */
/**
 * @typedef {{value: number, labels: Record<string, string|number>, metricName?: string}}
 *   MetricValue
 */

/**
 * Adds up the snapshots of the workers.
 *
 * The last snapshot of a worker counts until the worker has exited. Then its counters and
 * histograms move to the account of departed workers, and its gauges are dropped. So a counter
 * never decreases. A crash loses only counts that no snapshot had.
 */
export class Aggregate {
  constructor() {
    /** @type {Map<number, {sequence: number, metrics: Snapshot[]}>} */
    this.last = new Map();
    /** @type {Map<string, {metric: Snapshot, byLabels: Map<string, MetricValue>}>} */
    this.departed = new Map();
  }

  /**
   * @param {number} id of a process, never reused
   * @param {number} sequence of the request that this answers. Answers older than the last one are
   *   ignored
   * @param {Snapshot[]} metrics owned by the aggregate from now on; its values are rounded
   */
  update(id, sequence, metrics) {
    const last = this.last.get(id);
    if (last && sequence < last.sequence) return;
    for (const metric of metrics) {
      if (isCumulative(metric)) for (const one of metric.values) one.value = onGrid(one.value);
    }
    this.last.set(id, { sequence, metrics });
  }

  /** The process has exited: no update of it may follow. @param {number} id */
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
   * Adds up some metrics, without making text of them.
   * @param {ReadonlySet<string>} names without the suffixes of histograms
   * @returns {Map<string, number>} by name and label: `x`, `x{reason}`, or `x{0.5}` for the bucket of
   *   a histogram. A gauge has the sum over the workers.
   */
  totals(names) {
    /** @type {Map<string, number>} */
    const totals = new Map();
    const all = [
      ...[...this.last.values()].flatMap(({ metrics }) => metrics),
      ...[...this.departed.values()].map(({ metric }) => metric),
    ];
    for (const { name, values } of all) if (names.has(name)) addTo(totals, name, values);
    return totals;
  }

  /** @param {number} id @param {ReadonlySet<string>} names @returns {Map<string, number>} */
  valuesOf(id, names) {
    /** @type {Map<string, number>} */
    const totals = new Map();
    for (const { name, values } of this.last.get(id)?.metrics ?? [])
      if (names.has(name)) addTo(totals, name, values);
    return totals;
  }

  /** @param {Snapshot[]} [own] of the primary @returns {Promise<string>} for Prometheus */
  async text(own = []) {
    const all = [
      ...[...this.last.values()].map(({ metrics }) => metrics),
      own,
      [...this.departed.values()].map(({ metric }) => metric),
    ];
    // prom-client's typings have a numeric enum for the type.
    return AggregatorRegistry.aggregate(/** @type {any} */ (all)).metrics();
  }
}

/**
 * @param {Map<string, number>} totals @param {string} name @param {readonly MetricValue[]} values
 */
function addTo(totals, name, values) {
  for (const { value, labels, metricName = name } of values) {
    if (metricName !== name && !metricName.endsWith('_bucket')) continue;
    const [label] = Object.values(labels);
    const key = label === undefined ? name : `${name}{${label}}`;
    totals.set(key, (totals.get(key) ?? 0) + value);
  }
}

/**
 * Rounds to a multiple of 2^-20. Sums of floats depend on the order, which changes when a worker
 * exits, and to Prometheus a counter that decreases by one bit was reset. Multiples of a power of
 * two add up exactly in any order, below 2^33.
 * @param {number} value
 */
function onGrid(value) {
  return Math.round(value * GRID) / GRID;
}

/** @param {Snapshot} metric */
function isCumulative({ type }) {
  return type === 'counter' || type === 'histogram';
}
