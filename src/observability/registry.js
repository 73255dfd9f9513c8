// registry.js: the registries of the metrics of a worker and of the primary.
//
// They are made from the rows of metrics.js. Replaced parts of prom-client: a histogram for the hot
// path, counters and gauges that are read, the event-loop lag, and default metrics that are too
// expensive with 20,000 sockets.

import { readdir } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { createHistogram } from 'node:perf_hooks';
import { collectDefaultMetrics, Registry } from 'prom-client';
import { HOOK_NAMES, TURN_SLOTS } from './counters.js';
import { COURIER_METRICS, METRICS, PRIMARY_METRICS, WORKER_METRICS } from './metrics.js';

/** @import { MetricValue, Snapshot } from './aggregate.js' */
/** @import { Counters } from './counters.js' */
/** @import { CourierSource, PrimarySource, Row, Source } from './metrics.js' */
/** @import { Metric } from 'prom-client' */

/** prom-client's that walk over every socket (20 ms at 8,000): not part of each scrape. */
const COSTLY = [
  'process_open_fds',
  'nodejs_active_resources',
  'nodejs_active_resources_total',
  'nodejs_active_handles',
];
const COSTLY_INTERVAL_MS = 15_000;
const COSTLY_STEP_MS = 5000;
const RATE_SAMPLE_MS = 1000;
const RATE_SAMPLES = 5;
/** The highest lag is reported for this time, because several Prometheus servers may scrape. */
const LAG_SHOWN_MS = 10_000;
/** prom-client's own lag monitor can't be disabled, so it runs once in 24 days. */
const NEVER_MS = 2 ** 31 - 1;

/** @param {Counters} counters @param {{worker: number, memoryBytes?: number}} options */
export function createMetrics(counters, { worker, memoryBytes = totalmem() }) {
  const registry = new Registry();
  const lag = new LoopLag();
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER_MS });
  tameDefaults(registry, lag);
  const rate = new ConnectionRate(() => counters.accepted);
  /** @type {Source} */
  const source = {
    counters,
    connectionRate: () => rate.perSecond(),
    loopLagSeconds: () => lag.worst(),
    memoryBytes,
  };
  /** Those with a label by name and value: `fanfare_hook_seconds onJoin`. @type {Map<string, FastHistogram>} */
  const histograms = new Map();
  for (const row of METRICS) {
    const { read } = row;
    if (read) register(registry, row, () => read(source));
    else if (row.values === undefined)
      histograms.set(row.name, FastHistogram.register(registry, row));
    else
      for (const [value, one] of registerFamily(registry, row, row.values))
        histograms.set(`${row.name} ${value}`, one);
  }
  for (const row of WORKER_METRICS) {
    const { read } = row;
    if (read) register(registry, row, () => ({ [worker]: /** @type {number} */ (read(source)) }));
  }
  /** @param {string} name */
  const histogram = (name) => {
    const found = histograms.get(name);
    if (!found) throw new Error(`unknown histogram: ${name}`);
    return found;
  };
  return {
    registry,
    messageDuration: histogram('websocket_message_duration_ms'),
    publishLag: histogram('redis_publish_lag_ms'),
    fanout: histogram('fanfare_fanout_members'),
    turnSeconds: turnSeconds(histogram),
    busRoundTrip: histogram('fanfare_bus_round_trip_seconds'),
    apiSeconds: histogram('fanfare_api_request_seconds'),
    hookSeconds: Object.fromEntries(
      HOOK_NAMES.map((hook) => [hook, histogram(`fanfare_hook_seconds ${hook}`)]),
    ),
    blobSeconds: histogram('fanfare_blob_request_seconds'),
    loopLag: lag,
    /** @param {readonly string[]|null} [names] null: all @returns {Promise<Snapshot[]>} */
    snapshot: (names = null) =>
      /** @type {Promise<Snapshot[]>} */ (
        names === null ? registry.getMetricsAsJSON() : someOf(registry, names)
      ),
    close() {
      rate.close();
    },
  };
}

/**
 * @param {(name: string) => FastHistogram} histogram
 * @returns {Record<string, {observe(seconds: number): void}>} by slot of the turn
 */
function turnSeconds(histogram) {
  const bySlot = Object.fromEntries(
    [...TURN_SLOTS, 'loop', 'total'].map((slot) => [
      slot,
      histogram(`fanfare_turn_seconds ${slot}`),
    ]),
  );
  const { flushes } = bySlot;
  const old = histogram('fanfare_flush_seconds');
  /** @param {number} seconds */
  const observe = (seconds) => {
    flushes.observe(seconds);
    old.observe(seconds);
  };
  return { ...bySlot, flushes: { observe } };
}

/**
 * @param {Registry} registry
 * @param {readonly string[]} names metrics that do not exist are left out
 * @returns {Promise<object[]>} without help texts
 */
function someOf(registry, names) {
  const metrics = names.flatMap((name) => registry.getSingleMetric(name) ?? []);
  return Promise.all(metrics.map(async (one) => ({ ...(await one.get()), help: '' })));
}

/** The metrics of the primary. @param {PrimarySource} source */
export function createPrimaryMetrics(source) {
  const registry = new Registry();
  for (const row of PRIMARY_METRICS) {
    const { read } = row;
    if (read) register(registry, row, () => read(source));
  }
  return {
    registry,
    snapshot: () => /** @type {Promise<Snapshot[]>} */ (registry.getMetricsAsJSON()),
  };
}

/** @param {CourierSource} source @param {readonly string[]} endpoints their names */
export function createCourierMetrics(source, endpoints) {
  const registry = new Registry();
  /** @type {Map<string, FastHistogram>} */
  let seconds = new Map();
  for (const row of COURIER_METRICS) {
    const { read } = row;
    if (read) register(registry, row, () => read(source));
    else seconds = new Map(registerFamily(registry, row, endpoints));
  }
  return {
    seconds,
    snapshot: () => /** @type {Promise<Snapshot[]>} */ (registry.getMetricsAsJSON()),
  };
}

export const CONTENT_TYPE = Registry.PROMETHEUS_CONTENT_TYPE;

/** An observation takes 30 ns; prom-client's, with hashed labels and a closure, 240. */
class FastHistogram {
  /** @param {Omit<Row, 'read'>} row */
  constructor(row) {
    this.name = row.name;
    this.help = row.help;
    this.bounds = Float64Array.from(row.buckets ?? []);
    this.counts = new Float64Array(this.bounds.length + 1);
    this.sum = 0;
  }

  /** @param {Registry} registry @param {Row} row */
  static register(registry, row) {
    const histogram = new FastHistogram(row);
    // A registry only needs a name and get(). prom-client's aggregate() registers such objects too.
    registry.registerMetric(/** @type {Metric} */ (/** @type {unknown} */ (histogram)));
    return histogram;
  }

  /** @param {number} value in the unit of the name */
  observe(value) {
    const { bounds } = this;
    let i = 0;
    while (i < bounds.length && value > bounds[i]) i++;
    this.counts[i]++;
    this.sum += value;
  }

  /** Called by the registry. Its buckets are cumulative. */
  async get() {
    const { name, help, bounds, counts, sum } = this;
    /** @type {MetricValue[]} */
    const values = [];
    let count = 0;
    for (let i = 0; i < counts.length; i++) {
      count += counts[i];
      values.push({
        value: count,
        labels: { le: i < bounds.length ? bounds[i] : '+Inf' },
        metricName: `${name}_bucket`,
      });
    }
    values.push({ value: sum, labels: {}, metricName: `${name}_sum` });
    values.push({ value: count, labels: {}, metricName: `${name}_count` });
    return { name, help, type: 'histogram', values, aggregator: 'sum' };
  }
}

/**
 * Registers a histogram for each value of a label, under one name.
 * @param {Registry} registry @param {Omit<Row, 'read'>} row
 * @param {readonly string[]} labels the values @returns {[string, FastHistogram][]}
 */
function registerFamily(registry, row, labels) {
  const { name, help, label = '' } = row;
  const members = labels.map(
    (value) => /** @type {[string, FastHistogram]} */ ([value, new FastHistogram(row)]),
  );
  const family = {
    name,
    help,
    async get() {
      const values = [];
      for (const [value, histogram] of members) {
        for (const one of (await histogram.get()).values)
          values.push({ ...one, labels: { [label]: value, ...one.labels } });
      }
      return { name, help, type: 'histogram', values, aggregator: 'sum' };
    },
  };
  registry.registerMetric(/** @type {Metric} */ (/** @type {unknown} */ (family)));
  return members;
}

class ConnectionRate {
  /** @param {() => number} read */
  constructor(read) {
    this.read = read;
    /** @type {{atMs: number, count: number}[]} */
    this.samples = [];
    this.#sample();
    this.timer = setInterval(() => this.#sample(), RATE_SAMPLE_MS);
    this.timer.unref();
  }

  #sample() {
    this.samples.push({ atMs: performance.now(), count: this.read() });
    if (this.samples.length > RATE_SAMPLES) this.samples.shift();
  }

  perSecond() {
    const { atMs, count } = this.samples[0];
    const elapsedMs = Math.max(RATE_SAMPLE_MS, performance.now() - atMs);
    return (1000 * (this.read() - count)) / elapsedMs;
  }

  close() {
    clearInterval(this.timer);
  }
}

/**
 * The lag of the event loop, measured four times a second. prom-client's monitor wakes an idle
 * worker 40 times a second, half of its CPU time, and counts the period of 25 ms as lag.
 */
class LoopLag {
  constructor() {
    this.histogram = createHistogram();
    /** Highest lags of the latest scrapes. @type {{atMs: number, seconds: number}[]} */
    this.maxima = [];
  }

  /** @param {number} ms delay of a timer */
  observe(ms) {
    this.histogram.record(Math.max(1, Math.round(ms * 1e6))); // it takes no zero
  }

  /** The lag since the last call, in seconds. */
  read() {
    const { histogram } = this;
    const { count } = histogram;
    /** @param {number} ns */
    const seconds = (ns) => (count === 0 ? 0 : ns / 1e9);
    const seen = {
      min: seconds(histogram.min),
      max: seconds(histogram.max),
      mean: seconds(histogram.mean),
      stddev: seconds(histogram.stddev),
      p50: seconds(histogram.percentile(50)),
      p90: seconds(histogram.percentile(90)),
      p99: seconds(histogram.percentile(99)),
    };
    histogram.reset();
    const nowMs = performance.now();
    this.maxima = this.maxima.filter(({ atMs }) => nowMs - atMs < LAG_SHOWN_MS);
    this.maxima.push({ atMs: nowMs, seconds: seen.max });
    return seen;
  }

  /** The highest recent lag, in seconds. */
  worst() {
    return Math.max(0, ...this.maxima.map(({ seconds }) => seconds));
  }
}

/**
 * Registers a counter or gauge that reads its value at each collection. A Counter of prom-client
 * would be reset and set again, with a check and a hash of its labels for each value.
 * @param {Registry} registry @param {Omit<Row, 'read'>} row
 * @param {() => number|Record<string, number>} read
 */
function register(registry, row, read) {
  const { name, help, type, aggregator = 'sum', label = '' } = row;
  const names = label.split(',');
  const metric = {
    name,
    help,
    async get() {
      return { name, help, type, values: valuesOf(read(), names), aggregator };
    },
  };
  registry.registerMetric(/** @type {Metric} */ (/** @type {unknown} */ (metric)));
}

/**
 * @param {number|Record<string, number>} value one, or several by label
 * @param {readonly string[]} names of the labels @returns {MetricValue[]}
 */
function valuesOf(value, names) {
  if (typeof value === 'number') return [{ value, labels: {} }];
  const values = [];
  for (const [key, one] of Object.entries(value)) {
    const parts = names.length === 1 ? [key] : key.split(',');
    /** @type {Record<string, string>} */
    const labels = {};
    for (let i = 0; i < names.length; i++) labels[names[i]] = parts[i];
    values.push({ value: one, labels });
  }
  return values;
}

/** Fits them to 20,000 sockets. @param {Registry} registry @param {LoopLag} lag */
function tameDefaults(registry, lag) {
  /**
   * @typedef
   *   {{aggregator: string, collect?: () => unknown, set: (value: number) => void, get: () => Promise<Snapshot>}}
   *   Default
   */
  /** @param {string} name */
  const find = (name) =>
    /** @type {Default|undefined} */ (/** @type {unknown} */ (registry.getSingleMetric(name)));
  for (const metric of registry.getMetricsAsArray()) {
    // The maximum shows one worker that lags. An average over many workers hides it.
    if (metric.name.startsWith('nodejs_eventloop_lag'))
      /** @type {Default} */ (/** @type {unknown} */ (metric)).aggregator = 'max';
  }
  const now = find('nodejs_eventloop_lag_seconds');
  if (now) {
    now.collect = () => {
      const atMs = performance.now();
      setImmediate(() => now.set((performance.now() - atMs) / 1000));
      for (const [name, seconds] of Object.entries(lag.read()))
        find(`nodejs_eventloop_lag_${name}_seconds`)?.set(seconds);
    };
  }
  const openFds = find('process_open_fds');
  if (openFds) {
    openFds.collect = async () => {
      try {
        openFds.set((await readdir('/proc/self/fd')).length);
      } catch {
        // No descriptor is left to read the folder: the gauge keeps its last value, and the scrape
        // succeeds.
      }
    };
  }
  for (const [index, name] of COSTLY.entries()) {
    const metric = find(name);
    if (!metric?.collect) continue;
    const collect = metric.collect.bind(metric);
    let nextMs = 0;
    metric.collect = () => {
      if (performance.now() < nextMs) return undefined;
      // Each has its own period, so that they don't stall the worker together.
      nextMs = performance.now() + COSTLY_INTERVAL_MS + index * COSTLY_STEP_MS;
      return collect();
    };
  }
  const handles = find('nodejs_active_handles');
  const total = find('nodejs_active_handles_total');
  if (handles && total) {
    total.collect = async () =>
      total.set((await handles.get()).values.reduce((sum, { value }) => sum + value, 0));
  }
}
