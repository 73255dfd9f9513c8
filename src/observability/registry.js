// registry.js: the registry of a worker's metrics, and that of the primary's.
//
// Made from the rows of metrics.js. prom-client collects at a scrape; what it costs there, or
// can't do, is mended here: a histogram for the hot path, the event loop's lag, and default metrics
// that a process with 20,000 sockets can afford.

import { readdir } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { createHistogram } from 'node:perf_hooks';
import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import { METRICS, PRIMARY_METRICS, WORKER_METRICS } from './metrics.js';

/** @typedef {import('./counters.js').Counters} Counters */
/** @typedef {import('./metrics.js').Row} Row */
/** @typedef {import('./metrics.js').Source} Source */
/** @typedef {import('./metrics.js').PrimarySource} PrimarySource */
/** @typedef {import('./aggregate.js').Snapshot} Snapshot */
/** @typedef {import('./aggregate.js').MetricValue} MetricValue */

/**
 * prom-client's defaults that walk over every socket of the process: 20 ms at 8,000 sockets, so not
 * at every scrape.
 */
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
/** A worst lag is shown for so long, though several scrape. */
const LAG_SHOWN_MS = 10_000;
/** prom-client has a monitor of its own, which can't be left out: once in 24 days. */
const NEVER_MS = 2 ** 31 - 1;

/**
 * A worker's metrics.
 * @param {Counters} counters
 * @param {{worker: number, memoryBytes?: number}} options its slot, and its part of the memory
 */
export function createMetrics(counters, { worker, memoryBytes = totalmem() }) {
  const registry = new Registry();
  const lag = new LoopLag();
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER_MS });
  tameDefaults(registry, lag);
  const rate = new Rate(() => counters.accepted);
  /** @type {Source} */
  const source = {
    counters,
    connectionRate: () => rate.perSecond(),
    loopLagSeconds: () => lag.worst(),
    memoryBytes,
  };
  /** @type {Map<string, FastHistogram>} */
  const tallies = new Map();
  for (const row of METRICS) {
    const { read } = row;
    if (read) register(registry, row, () => read(source));
    else tallies.set(row.name, FastHistogram.register(registry, row));
  }
  for (const row of WORKER_METRICS) {
    const { read } = row;
    if (read) register(registry, row, () => ({ [worker]: /** @type {number} */ (read(source)) }));
  }
  /** @param {string} name */
  const tally = (name) => {
    const found = tallies.get(name);
    if (!found) throw new Error(`unknown histogram: ${name}`);
    return found;
  };
  return {
    registry,
    messageDuration: tally('websocket_message_duration_ms'),
    publishLag: tally('redis_publish_lag_ms'),
    fanout: tally('fanfare_fanout_members'),
    flushSeconds: tally('fanfare_flush_seconds'),
    busRoundTrip: tally('fanfare_bus_round_trip_seconds'),
    loopLag: lag,
    /** All values, for the primary. */
    snapshot: () => /** @type {Promise<Snapshot[]>} */ (registry.getMetricsAsJSON()),
    /** Stops the sampler, which does not keep a process alive. */
    close() {
      rate.close();
    },
  };
}

/**
 * The primary's metrics.
 * @param {PrimarySource} source
 */
export function createPrimaryMetrics(source) {
  const registry = new Registry();
  for (const row of PRIMARY_METRICS) register(registry, row, () => row.read(source));
  return {
    registry,
    snapshot: () => /** @type {Promise<Snapshot[]>} */ (registry.getMetricsAsJSON()),
  };
}

export const CONTENT_TYPE = Registry.PROMETHEUS_CONTENT_TYPE;

/**
 * A histogram without labels. prom-client's takes 240 ns for one observation (labels are hashed, a
 * closure is made); this takes about 30 ns.
 */
export class FastHistogram {
  /** @param {Row} row */
  constructor(row) {
    this.name = row.name;
    this.help = row.help;
    this.bounds = Float64Array.from(row.buckets ?? []);
    this.counts = new Float64Array(this.bounds.length + 1);
    this.sum = 0;
  }

  /**
   * @param {Registry} registry
   * @param {Row} row
   */
  static register(registry, row) {
    const tally = new FastHistogram(row);
    // All a registry asks of a metric is a name and get(); its own aggregate() registers such
    // objects too.
    registry.registerMetric(
      /** @type {import('prom-client').Metric} */ (/** @type {unknown} */ (tally)),
    );
    return tally;
  }

  /** @param {number} value in the unit of the name */
  observe(value) {
    const { bounds } = this;
    let i = 0;
    while (i < bounds.length && value > bounds[i]) i++;
    this.counts[i]++;
    this.sum += value;
  }

  /** Read by the registry: buckets are cumulative there. */
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

/** New ones of a growing count a second, over the last seconds. */
class Rate {
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
 * How late the event loop is, as the worker's own timer finds it four times a second. prom-client's
 * monitor wakes an idle worker 40 times a second at a resolution of 25 ms, which was half of what
 * it did, and counts that period as lag.
 */
class LoopLag {
  constructor() {
    this.histogram = createHistogram();
    /** Of the latest scrapes. @type {{atMs: number, seconds: number}[]} */
    this.maxima = [];
  }

  /** @param {number} ms how much later than it was due a timer ran */
  observe(ms) {
    this.histogram.record(Math.max(1, Math.round(ms * 1e6))); // it takes no zero
  }

  /** What was seen since the last call, in seconds. */
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

  /** The worst that was read of late, in seconds. */
  worst() {
    return Math.max(0, ...this.maxima.map(({ seconds }) => seconds));
  }
}

/**
 * @param {Registry} registry
 * @param {Omit<Row, 'read'>} row
 * @param {() => number|Record<string, number>} read
 */
function register(registry, row, read) {
  const { name, help, aggregator = 'sum', label } = row;
  const labelNames = label ? [label] : [];
  const common = { name, help, aggregator, labelNames, registers: [registry] };
  if (row.type === 'counter') {
    new Counter({
      ...common,
      collect() {
        // A counter of prom-client can only grow, and the truth is elsewhere: start anew and add
        // all of it.
        this.reset();
        each(read(), label, (labels, value) =>
          labels ? this.inc(labels, value) : this.inc(value),
        );
      },
    });
  } else {
    new Gauge({
      ...common,
      collect() {
        this.reset();
        each(read(), label, (labels, value) =>
          labels ? this.set(labels, value) : this.set(value),
        );
      },
    });
  }
}

/**
 * @param {number|Record<string, number>} value
 * @param {string|undefined} label
 * @param {(labels: Record<string, string>|undefined, value: number) => void} act
 */
function each(value, label, act) {
  if (typeof value === 'number') return act(undefined, value);
  for (const [key, one] of Object.entries(value))
    act({ [/** @type {string} */ (label)]: key }, one);
}

/**
 * prom-client's defaults, made fit for a process with 20,000 sockets and for adding up.
 * @param {Registry} registry
 * @param {LoopLag} lag
 */
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
    // One worker that lags is what matters; an average over many hides it.
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
        // No descriptor is left to read the folder with: the last value stays, and the other
        // metrics are not lost.
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
      // Each on a beat of its own, so that they don't stall the worker together.
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
