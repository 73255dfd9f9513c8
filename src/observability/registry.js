// registry.js: the metrics of a worker, the primary and the courier, made from tables of rows.
//
// The primary adds up the snapshots and renders them for Prometheus (aggregate.js). The other
// processes do not load prom-client (process-metrics.js says why).

import { totalmem } from 'node:os';
import { HOOK_NAMES, TURN_SLOTS } from './counters.js';
import { COURIER_METRICS, METRICS, PRIMARY_METRICS, WORKER_METRICS } from './metrics.js';
import { GC_SECONDS, LoopLag, observeCollections, processRows } from './process-metrics.js';

/** @import { Form, Label, Snapshot } from './aggregate.js' */
/** @import { Counters } from './counters.js' */
/** @import { CourierSource, PrimarySource, Source } from './metrics.js' */
/** @import { Row } from './rows.js' */

const RATE_SAMPLE_MS = 1000;
const RATE_SAMPLES = 5;

/**
 * Reads a metric. Its form is the same object while its labels are the same.
 * @typedef {() => {form: Form, values: number[]}} Read
 */

/** Metrics in the order in which they are read. */
class Registry {
  /** @type {Map<string, Read>} */
  #metrics = new Map();

  /** @param {string} name @param {Read} read */
  addMetric(name, read) {
    if (this.#metrics.has(name)) throw new Error(`two metrics have the name ${name}`);
    this.#metrics.set(name, read);
  }

  /**
   * @param {readonly string[]|null} [names] null: all. Unknown names are ignored.
   * @param {Map<string, Form>} [known] forms that the receiver has, by name: these are left out, and
   *   new ones are added. A receiver needs one map for each list of names.
   * @returns {Snapshot[]}
   */
  snapshot(names = null, known = new Map()) {
    const some = names?.flatMap((name) => this.#metrics.get(name) ?? []);
    const all = (some ?? [...this.#metrics.values()]).map((read) => read());
    // Reading comes first: if it throws, no form may count as known that was not sent.
    return all.map(({ form, values }) => {
      if (known.get(form.name) === form) return { values };
      known.set(form.name, form);
      return { form, values };
    });
  }
}

/** @param {Counters} counters @param {{worker: number, memoryBytes?: number}} options */
export function createMetrics(counters, { worker, memoryBytes = totalmem() }) {
  const registry = new Registry();
  const lag = new LoopLag();
  for (const row of processRows(lag)) register(registry, row, undefined);
  const collections = new Map(registerFamily(registry, GC_SECONDS));
  observeCollections((kind, seconds) => collections.get(kind)?.observe(seconds));
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
    if (row.read) register(registry, row, source);
    else if (row.values === undefined) histograms.set(row.name, registerHistogram(registry, row));
    else
      for (const [value, one] of registerFamily(registry, row))
        histograms.set(`${row.name} ${value}`, one);
  }
  for (const row of WORKER_METRICS) {
    const { read = () => 0 } = row;
    const ofWorker = (/** @type {Source} */ from) => ({ [worker]: Number(read(from)) });
    register(registry, { ...row, read: ofWorker }, source);
  }
  /** @param {string} name */
  const histogram = (name) => {
    const found = histograms.get(name);
    if (!found) throw new Error(`unknown histogram: ${name}`);
    return found;
  };
  return {
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
    /** Call it about once a second. */
    sampleRates: (/** @type {number} */ nowMs) => rate.sample(nowMs),
    snapshot: registry.snapshot.bind(registry),
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

/** The metrics of the primary. @param {PrimarySource} source */
export function createPrimaryMetrics(source) {
  const registry = new Registry();
  for (const row of PRIMARY_METRICS) if (row.read) register(registry, row, source);
  return { snapshot: () => registry.snapshot() };
}

/** @param {CourierSource} source @param {readonly string[]} endpoints their names */
export function createCourierMetrics(source, endpoints) {
  const registry = new Registry();
  /** @type {Map<string, FastHistogram>} */
  let seconds = new Map();
  for (const row of COURIER_METRICS) {
    if (row.read) register(registry, row, source);
    else seconds = new Map(registerFamily(registry, { ...row, values: endpoints }));
  }
  return { seconds, snapshot: () => registry.snapshot() };
}

/** An observation takes 30 ns. In prom-client, with hashed labels and a closure, it takes 240. */
class FastHistogram {
  /** @param {Omit<Row<any>, 'read'>} row */
  constructor(row) {
    this.name = row.name;
    this.bounds = Float64Array.from(row.buckets ?? []);
    this.counts = new Float64Array(this.bounds.length + 1);
    this.sum = 0;
  }

  /** @param {number} value in the unit of the name */
  observe(value) {
    const { bounds } = this;
    let i = 0;
    while (i < bounds.length && value > bounds[i]) i++;
    this.counts[i]++;
    this.sum += value;
  }

  /** @param {Record<string, string>} [labels] beside `le` @returns {Label[]} of its values */
  labels(labels = {}) {
    const { name } = this;
    const bounds = [...this.bounds, '+Inf'];
    return [
      ...bounds.map((le) => ({ labels: { ...labels, le }, metricName: `${name}_bucket` })),
      { labels, metricName: `${name}_sum` },
      { labels, metricName: `${name}_count` },
    ];
  }

  /** Adds its values: cumulative buckets, the sum, the count. @param {number[]} values */
  addTo(values) {
    let count = 0;
    for (const one of this.counts) {
      count += one;
      values.push(count);
    }
    values.push(this.sum, count);
  }
}

/** @param {Row<any>} row @param {Label[]} series @returns {Form} */
function formOf({ name, help, type, aggregator = 'sum' }, series) {
  return { name, help, type, aggregator, series };
}

/** @param {Registry} registry @param {Row<any>} row @returns {FastHistogram} */
function registerHistogram(registry, row) {
  const one = new FastHistogram(row);
  registerAll(registry, formOf(row, one.labels()), [one]);
  return one;
}

/**
 * Registers a histogram for each value of a label, under one name.
 * @param {Registry} registry @param {Row<any>} row @returns {[string, FastHistogram][]}
 */
function registerFamily(registry, row) {
  const { label = '', values = [] } = row;
  const members = values.map(
    (value) => /** @type {[string, FastHistogram]} */ ([value, new FastHistogram(row)]),
  );
  const series = members.flatMap(([value, one]) => one.labels({ [label]: value }));
  registerAll(
    registry,
    formOf(row, series),
    members.map(([, one]) => one),
  );
  return members;
}

/** @param {Registry} registry @param {Form} form @param {readonly FastHistogram[]} members */
function registerAll(registry, form, members) {
  registry.addMetric(form.name, () => {
    /** @type {number[]} */
    const values = [];
    for (const one of members) one.addTo(values);
    return { form, values };
  });
}

class ConnectionRate {
  /** @param {() => number} read */
  constructor(read) {
    this.read = read;
    /** @type {{atMs: number, count: number}[]} */
    this.samples = [];
    this.sample(performance.now());
  }

  /** @param {number} nowMs */
  sample(nowMs) {
    this.samples.push({ atMs: nowMs, count: this.read() });
    if (this.samples.length > RATE_SAMPLES) this.samples.shift();
  }

  perSecond() {
    const { atMs, count } = this.samples[0];
    const elapsedMs = Math.max(RATE_SAMPLE_MS, performance.now() - atMs);
    return (1000 * (this.read() - count)) / elapsedMs;
  }
}

/**
 * Registers a counter or gauge that reads its value at each snapshot.
 * @template S @param {Registry} registry @param {Row<S>} row @param {S} source
 */
function register(registry, row, source) {
  const { name, label = '', read } = row;
  const names = label.split(',');
  const single = formOf(row, [{ labels: {} }]);
  let keys = '';
  let several = formOf(row, []);
  registry.addMetric(name, () => {
    const value = read?.(source) ?? 0;
    if (typeof value === 'number') return { form: single, values: [value] };
    const now = Object.keys(value);
    if (now.join('\n') !== keys) {
      keys = now.join('\n');
      several = formOf(
        row,
        now.map((key) => ({ labels: labelsOf(names, key) })),
      );
    }
    return { form: several, values: Object.values(value) };
  });
}

/**
 * @param {readonly string[]} names of the labels
 * @param {string} key their values @returns {Record<string, string>}
 */
function labelsOf(names, key) {
  const parts = names.length === 1 ? [key] : key.split(',');
  return Object.fromEntries(names.map((name, i) => [name, parts[i]]));
}
