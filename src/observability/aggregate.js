// aggregate.js: adds up the metrics of the processes.
//
// A process sends the values of its metrics. It sends the form of a metric (names, labels) only
// while it is new, and the series of a form are looked up once. So a worker's 760 values take
// 0.1 ms instead of 1.2, in which the embedded backend's relay has to wait.

import { prometheusContentType, Registry } from 'prom-client';

/** The content type of `Aggregate.toPrometheus`. */
export const CONTENT_TYPE = prometheusContentType;

/** A power of two: see onGrid. */
const GRID = 2 ** 20;

/** How values of several processes are combined. */
const AGGREGATORS = {
  sum: (/** @type {number} */ a, /** @type {number} */ b) => a + b,
  max: Math.max,
  min: Math.min,
  first: (/** @type {number} */ a) => a,
};

/**
 * @typedef {object} Form a metric without its values
 * @property {string} name @property {string} help @property {'counter'|'gauge'|'histogram'} type
 * @property {keyof typeof AGGREGATORS} aggregator over the processes; counters and histograms add up
 * @property {Label[]} series one for each value, in their order
 */
/** @typedef {{labels: Record<string, string|number>, metricName?: string}} Label */
/**
 * A metric of a process, which sends its metrics in the same order each time.
 * @typedef {{form?: Form, values: number[]}} Snapshot no form: the receiver has it
 */

/**
 * @typedef {object} Series
 * @property {Label} label
 * @property {string|null} title in the totals: `x`, `x{reason}`, or `x{0.5}` for the bucket of a
 *   histogram; null: not there
 * @property {number|undefined} departed the counts of processes that have exited
 * @property {number|undefined} value of all processes, in `text`
 */
/** @typedef {{form: Form, series: Map<string, Series>}} Metric */
/** @typedef {{metric: Metric, series: Series[], values: number[]}} Reading */

/**
 * Adds up the snapshots of the processes. The last one of a process counts until its exit. Then
 * counters and histograms are kept in `departed`, because Prometheus reads a counter that falls as
 * a restart, and gauges are dropped. A crash loses only counts that no snapshot had.
 */
export class Aggregate {
  /** Metrics by name. @type {Map<string, Metric>} */
  #metrics = new Map();
  /** The last snapshots by process. @type {Map<number, Reading[]>} */
  last = new Map();

  /** @param {number} id of a process, never reused @param {Snapshot[]} metrics in the order sent */
  update(id, metrics) {
    const last = this.last.get(id) ?? [];
    this.last.set(
      id,
      metrics.map((one, i) => this.#readSnapshot(one, last[i])),
    );
  }

  /** @param {Snapshot} snapshot @param {Reading} last @returns {Reading} */
  #readSnapshot({ form, values }, last) {
    const { metric, series } = form === undefined ? last : this.#resolve(form);
    return { metric, series, values: isCumulative(metric) ? values.map(onGrid) : values };
  }

  /** @param {Form} form */
  #resolve(form) {
    let metric = this.#metrics.get(form.name);
    if (!metric) this.#metrics.set(form.name, (metric = { form, series: new Map() }));
    // After a reload the new workers may have another help text.
    metric.form = form;
    const { series } = metric;
    return { metric, series: form.series.map((label) => seriesOf(series, form.name, label)) };
  }

  /** A process has exited. No update of it may follow. @param {number} id */
  depart(id) {
    for (const { metric, series, values } of this.last.get(id) ?? [])
      if (isCumulative(metric))
        for (const [i, one] of series.entries()) one.departed = (one.departed ?? 0) + values[i];
    this.last.delete(id);
  }

  /**
   * Adds up some metrics, gauges too, without rendering text.
   * @param {ReadonlySet<string>} names without the suffixes of histograms
   * @returns {Map<string, number>} by title of the series
   */
  totals(names) {
    /** @type {Map<string, number>} */
    const totals = new Map();
    for (const id of this.last.keys()) this.#addTo(totals, id, names);
    for (const name of names)
      for (const { title, departed } of this.#metrics.get(name)?.series.values() ?? [])
        if (title !== null && departed !== undefined)
          totals.set(title, (totals.get(title) ?? 0) + departed);
    return totals;
  }

  /** @param {number} id @param {ReadonlySet<string>} names @returns {Map<string, number>} */
  valuesOf(id, names) {
    /** @type {Map<string, number>} */
    const totals = new Map();
    this.#addTo(totals, id, names);
    return totals;
  }

  /** @param {Map<string, number>} totals @param {number} id @param {ReadonlySet<string>} names */
  #addTo(totals, id, names) {
    for (const { metric, series, values } of this.last.get(id) ?? [])
      if (names.has(metric.form.name))
        for (const [i, { title }] of series.entries())
          if (title !== null) totals.set(title, (totals.get(title) ?? 0) + values[i]);
  }

  /** @returns {Promise<string>} for Prometheus */
  toPrometheus() {
    this.#addUp();
    const registry = new Registry();
    for (const { form, series } of this.#metrics.values()) {
      const values = [];
      // A label of a gauge that no process has any more.
      for (const [key, { label, value }] of series)
        if (value === undefined) series.delete(key);
        else values.push({ ...label, value });
      const metric = { ...form, values, get: () => metric };
      // prom-client's types accept only its own classes.
      registry.registerMetric(/** @type {any} */ (metric));
    }
    return registry.metrics();
  }

  #addUp() {
    for (const { series } of this.#metrics.values())
      for (const one of series.values()) one.value = one.departed;
    for (const readings of this.last.values())
      for (const { metric, series, values } of readings) {
        const add = AGGREGATORS[metric.form.aggregator];
        for (let i = 0; i < series.length; i++) {
          const one = series[i];
          one.value = one.value === undefined ? values[i] : add(one.value, values[i]);
        }
      }
  }
}

/** @param {Map<string, Series>} known @param {string} name @param {Label} label @returns {Series} */
function seriesOf(known, name, label) {
  const { labels, metricName = name } = label;
  const key = `${metricName}${JSON.stringify(Object.entries(labels).sort())}`;
  let series = known.get(key);
  if (!series) {
    const [first] = Object.values(labels);
    const isShown = metricName === name || metricName.endsWith('_bucket');
    const title = first === undefined ? name : `${name}{${first}}`;
    series = { label, title: isShown ? title : null, departed: undefined, value: undefined };
    known.set(key, series);
  }
  return series;
}

/**
 * Rounds to a multiple of 2^-20. Below 2^33 sums of these are exact in any order. Other sums could
 * shrink a little when a worker exits, which Prometheus would take for a counter reset.
 * @param {number} value
 */
function onGrid(value) {
  return Math.round(value * GRID) / GRID;
}

/** @param {Metric} metric */
function isCumulative({ form }) {
  return form.type === 'counter' || form.type === 'histogram';
}
