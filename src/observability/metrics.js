// metrics.js: every metric, in one table, and how the workers' values add up to the server's.
//
// A row says name, type, help, labels, buckets, how to add up (`aggregator`) and where the value
// comes from. Most come from the plain numbers of stats.js and are read when somebody asks: the hot
// path never touches prom-client. What must be observed one by one (durations, sizes) goes into a
// Tally, an array of buckets.
//
// Each worker sends its values as prom-client's JSON; the primary's Aggregate adds them up, and
// keeps what workers that have left had counted, since a counter that goes down looks like a
// restart to Prometheus.
//
// Names without `fanfare_` are fixed: published dashboards use them, though some break Prometheus'
// conventions.

import { readdir } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { createHistogram } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';
import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import { privateBytes } from '../config/system-memory.js';
import { droppedLines } from './log.js';

/** @typedef {import('./counters.js').Counters} Counters */

/**
 * What a worker's rows may read.
 * @typedef {object} Source
 * @property {Counters} counters
 * @property {() => number} connectionRate
 * @property {() => number} loopLagSeconds
 * @property {number} memoryBytes this worker's part of the memory
 */

/**
 * What the primary's rows may read.
 * @typedef {object} PrimarySource
 * @property {() => Record<string, number>} workersUp 1 or 0 by slot
 * @property {() => number} restarts
 * @property {() => Record<string, number>} deaths of workers, by cause
 * @property {() => boolean} isCrashLoop
 * @property {() => number} reloads
 * @property {() => Record<string, number>} leftOut by the relay
 * @property {() => number} reconciledPlaces by the relay
 * @property {() => Record<string, number>} presenceEvents of the embedded broker
 * @property {() => {bytes: number, publications: number, lost: Record<string, number>}} history of
 *   the embedded broker
 */

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {'counter'|'gauge'|'histogram'} type
 * @property {string} help
 * @property {'sum'|'max'|'min'|'first'} [aggregator] over the workers; counters and histograms
 *   always add up
 * @property {string} [label] the one label; its values are the keys of what `read` returns
 * @property {readonly number[]} [buckets] of a histogram, ascending
 * @property {(source: Source) => number|Record<string, number>} [read] absent: observed, see
 *   createMetrics
 */

const MS_BUCKETS = [0.1, 1, 5, 15, 50, 100, 500];
const LAG_MS_BUCKETS = [1, 5, 10, 25, 50, 100, 250, 500, 1000];
const MEMBER_BUCKETS = [1, 2, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 50_000];
const FLUSH_BUCKETS = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];
const BUS_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** @type {readonly Row[]} */
export const METRICS = Object.freeze([
  // Fixed names.
  gauge(
    'websocket_connections_total',
    'Connections open now.',
    'sum',
    ({ counters }) => counters.connections,
  ),
  counter(
    'websocket_messages_total',
    'Messages received from clients.',
    ({ counters }) => counters.messages,
  ),
  labelled(
    'websocket_errors_total',
    'Errors told to clients, by error code.',
    'code',
    ({ counters }) => counters.errors,
  ),
  gauge(
    'websocket_connection_rate',
    'New connections a second, over the last five seconds.',
    'sum',
    (source) => source.connectionRate(),
  ),
  histogram(
    'websocket_message_duration_ms',
    'Milliseconds from a message received to its command done, of one message in eight.',
    MS_BUCKETS,
  ),
  histogram(
    'redis_publish_lag_ms',
    'Milliseconds until Redis has answered a publish.',
    LAG_MS_BUCKETS,
  ),
  gauge(
    'message_queue_depth',
    'Publications gathered and not yet written to all members.',
    'sum',
    ({ counters }) => counters.queueDepth,
  ),
  // Not process.memoryUsage(): that opens a file, and fails if no descriptor is left.
  gauge(
    'nodejs_heap_used_bytes',
    'Heap used, in bytes.',
    'sum',
    () => getHeapStatistics().used_heap_size,
  ),

  // Connections.
  counter(
    'fanfare_connections_accepted_total',
    'Connections accepted.',
    ({ counters }) => counters.accepted,
  ),
  counter(
    'fanfare_connections_closed_total',
    'Connections that have ended.',
    ({ counters }) => counters.closed,
  ),
  labelled(
    'fanfare_admissions_refused_total',
    'Requests refused before any upgrade, by reason.',
    'reason',
    ({ counters }) => counters.refused,
  ),
  gauge(
    'fanfare_public_sockets',
    'Sockets open on the public port: WebSockets, handshakes and plain HTTP.',
    'sum',
    ({ counters }) => counters.sockets,
  ),
  labelled(
    'fanfare_idle_sockets_closed_total',
    'Idle sockets closed to make room, by what was short.',
    'reason',
    ({ counters }) => counters.idleClosed,
  ),
  labelled(
    'fanfare_limits_observed_total',
    'What limits in mode observe would have refused, by limit.',
    'limit',
    ({ counters }) => counters.observed,
  ),
  counter(
    'fanfare_heartbeat_timeouts_total',
    'Connections terminated for not answering a ping.',
    ({ counters }) => counters.heartbeatTimeouts,
  ),
  counter(
    'fanfare_rate_limit_closes_total',
    'Connections closed for going on over their rate.',
    ({ counters }) => counters.rateLimitCloses,
  ),
  labelled(
    'fanfare_reader_closes_total',
    'Connections closed for too many frames (flood), a message left unfinished, or too many unread bytes in the worker (overload).',
    'reason',
    ({ counters }) => counters.readerCloses,
  ),
  counter(
    'fanfare_reads_deferred_total',
    'Times a connection had more to read than its share of one turn and waited for a later turn.',
    ({ counters }) => counters.readsDeferred,
  ),
  counter(
    'fanfare_addresses_forgotten_total',
    'Addresses whose message rate was forgotten for want of room.',
    ({ counters }) => counters.addressesForgotten,
  ),

  // Fan-out.
  gauge(
    'fanfare_rooms',
    'Rooms with members; one with members on two workers counts twice.',
    'sum',
    ({ counters }) => counters.rooms,
  ),
  counter(
    'fanfare_publications_total',
    'Publications accepted from clients.',
    ({ counters }) => counters.publications,
  ),
  counter(
    'fanfare_deliveries_total',
    'Publications written to a connection.',
    ({ counters }) => counters.deliveries,
  ),
  counter(
    'fanfare_sent_bytes_total',
    'Bytes of publications written to connections.',
    ({ counters }) => counters.bytesOut,
  ),
  counter(
    'fanfare_flushes_total',
    'Flushes: what one room gathered, written to its members.',
    ({ counters }) => counters.flushes,
  ),
  histogram('fanfare_fanout_members', 'Members a flush was written to.', MEMBER_BUCKETS),
  histogram(
    'fanfare_flush_seconds',
    'Seconds from the start of a flush to its last write.',
    FLUSH_BUCKETS,
  ),
  labelled(
    'fanfare_slow_consumers_total',
    'Slow consumers, by consequence.',
    'consequence',
    ({ counters }) => counters.slow,
  ),
  counter(
    'fanfare_overflowed_publications_total',
    'Publications left out since a room had gathered too much.',
    ({ counters }) => counters.overflowed,
  ),

  // Broker.
  gauge(
    'fanfare_broker_up',
    "Whether every worker's broker is up: 1 or 0.",
    'min',
    ({ counters }) => counters.brokerUp,
  ),
  counter(
    'fanfare_broker_reconnects_total',
    'Times a worker connected to the broker anew.',
    ({ counters }) => counters.brokerReconnects,
  ),
  counter(
    'fanfare_broker_probe_misses_total',
    'Loop-back probes that did not come back in time.',
    ({ counters }) => counters.probeMisses,
  ),
  counter(
    'fanfare_skipped_publications_total',
    'Publications lost to a worker that could not fetch their body.',
    ({ counters }) => counters.skipped,
  ),
  counter(
    'fanfare_reads_refused_total',
    'Commands answered UNAVAILABLE because too many waited for a read, or for the join before them.',
    ({ counters }) => counters.readsRefused,
  ),
  counter(
    'fanfare_unnumbered_publications_total',
    'Messages without an offset in rooms with history: another server has other rules. Members are told to load their state anew.',
    ({ counters }) => counters.unnumbered,
  ),
  counter(
    'fanfare_malformed_publications_total',
    'Messages from the broker that are not valid (publications, positions, counts of workers): dropped, or delivered as null in a room with history.',
    ({ counters }) => counters.malformed,
  ),
  // Rooms with history.
  counter(
    'fanfare_history_reads_total',
    'Reads of publications from the broker: one fills a room on a worker, or a gap.',
    ({ counters }) => counters.historyReads,
  ),
  counter(
    'fanfare_position_checks_total',
    'Comparisons of a room with the broker, which find what was lost unseen.',
    ({ counters }) => counters.positionChecks,
  ),
  labelled(
    'fanfare_recoveries_total',
    'Joins that said what they had last seen, by what became of them.',
    'result',
    ({ counters }) => counters.recoveries,
  ),
  counter(
    'fanfare_gaps_total',
    'Times a worker found that publications of a room had not reached it.',
    ({ counters }) => counters.gaps,
  ),
  counter(
    'fanfare_backfilled_total',
    'Publications that had not reached a worker, read and delivered in their order.',
    ({ counters }) => counters.backfilled,
  ),
  counter(
    'fanfare_resyncs_total',
    'Gaps that could not be filled: the members in that room on that worker were told to load their state anew.',
    ({ counters }) => counters.resyncs,
  ),
  gauge(
    'fanfare_window_bytes',
    'Recent publications kept in memory.',
    'sum',
    ({ counters }) => counters.windowBytes,
  ),
  counter(
    'fanfare_windows_evicted_total',
    'Rooms whose recent publications were put out of memory to make room.',
    ({ counters }) => counters.windowsEvicted,
  ),
  histogram(
    'fanfare_bus_round_trip_seconds',
    'Seconds a loop-back probe took through the broker: the delivery canary.',
    BUS_BUCKETS,
  ),

  // Presence.
  gauge(
    'fanfare_presence_members',
    'Users in rooms with presence; one with connections on two workers, or in two rooms, counts twice.',
    'sum',
    ({ counters }) => counters.presenceMembers,
  ),
  labelled(
    'fanfare_presence_events_total',
    'Joins and leaves told to rooms with presence; suppressed: not told, since the room was too large.',
    'event',
    ({ counters }) => counters.presenceEvents,
  ),
  counter(
    'fanfare_presence_reaped_workers_total',
    'Dead workers whose users were taken out of presence in Redis.',
    ({ counters }) => counters.presenceReaped,
  ),

  // The process.
  gauge(
    'fanfare_event_loop_lag_seconds',
    'Worst lag of any event loop since the last scrape, or of the last ten seconds.',
    'max',
    (source) => source.loopLagSeconds(),
  ),
  counter('fanfare_log_lines_dropped_total', 'Log lines that could not be written.', () =>
    droppedLines(),
  ),
]);

/**
 * One series per worker: the sum over workers hides an imbalance or a leak.
 * @type {readonly Row[]}
 */
export const WORKER_METRICS = Object.freeze([
  gauge(
    'fanfare_worker_connections',
    'Connections open now, by worker.',
    'sum',
    ({ counters }) => counters.connections,
    'worker',
  ),
  gauge(
    'fanfare_worker_heap_used_ratio',
    'Heap used divided by its limit, by worker.',
    'max',
    heapUsedRatio,
    'worker',
  ),
  gauge(
    'fanfare_worker_memory_used_ratio',
    "Private memory, heap and buffers, divided by the worker's part of the memory, by worker.",
    'max',
    ({ memoryBytes }) => privateBytes() / memoryBytes,
    'worker',
  ),
]);

/**
 * The primary's own.
 * @type
 *   {readonly (Omit<Row, 'read'> & {read: (source: PrimarySource) => number|Record<string, number>})[]}
 */
export const PRIMARY_METRICS = Object.freeze([
  {
    name: 'fanfare_worker_up',
    type: 'gauge',
    label: 'worker',
    help: 'Whether a worker answered this scrape: 1 or 0.',
    read: (source) => source.workersUp(),
  },
  {
    name: 'fanfare_worker_restarts_total',
    type: 'counter',
    help: 'Workers replaced after an unexpected end.',
    read: (source) => source.restarts(),
  },
  {
    name: 'fanfare_worker_deaths_total',
    type: 'counter',
    help: 'Workers that ended unexpectedly, by cause: crashed, hung (killed without a sign of life), start (never ready).',
    label: 'cause',
    read: (source) => source.deaths(),
  },
  {
    name: 'fanfare_worker_crash_loop',
    type: 'gauge',
    help: 'Whether five workers have died within the last minute: 1 or 0.',
    read: (source) => (source.isCrashLoop() ? 1 : 0),
  },
  {
    name: 'fanfare_reloads_total',
    type: 'counter',
    help: 'Rolling reloads completed.',
    read: (source) => source.reloads(),
  },
  {
    name: 'fanfare_presence_events_total',
    type: 'counter',
    help: 'Joins and leaves told to rooms with presence; suppressed: not told, since the room was too large.',
    label: 'event',
    read: (source) => source.presenceEvents(),
  },
  {
    name: 'fanfare_relay_left_out_total',
    type: 'counter',
    help: 'Publications of the embedded broker not passed to a worker that reads too slowly; rooms with history read them later.',
    label: 'room',
    read: (source) => source.leftOut(),
  },
  {
    name: 'fanfare_relay_places_reconciled_total',
    type: 'counter',
    help: 'Places of client addresses that the primary had counted otherwise than the worker that holds them.',
    read: (source) => source.reconciledPlaces(),
  },
  {
    name: 'fanfare_embedded_history_bytes',
    type: 'gauge',
    help: 'Memory that the histories of the embedded broker take.',
    read: (source) => source.history().bytes,
  },
  {
    name: 'fanfare_embedded_history_publications',
    type: 'gauge',
    help: 'Publications in the histories of the embedded broker.',
    read: (source) => source.history().publications,
  },
  {
    name: 'fanfare_embedded_history_lost_total',
    type: 'counter',
    help: 'Given up for want of room in the embedded broker: publications, positions and keys forgotten early, reads refused.',
    label: 'what',
    read: (source) => source.history().lost,
  },
  {
    name: 'fanfare_primary_cpu_seconds_total',
    type: 'counter',
    help: 'CPU time of the primary.',
    read: primaryCpuSeconds,
  },
  {
    name: 'fanfare_primary_resident_memory_bytes',
    type: 'gauge',
    help: 'Resident memory of the primary.',
    read: () => process.memoryUsage.rss(),
  },
  {
    name: 'fanfare_log_lines_dropped_total',
    type: 'counter',
    help: 'Log lines that could not be written.',
    read: () => droppedLines(),
  },
]);

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
    if (!found) throw new Error(`no histogram is called ${name}`);
    return found;
  };
  return {
    registry,
    messageDuration: tally('websocket_message_duration_ms'),
    redisPublishLag: tally('redis_publish_lag_ms'),
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

export const CONTENT_TYPE = Registry.PROMETHEUS_CONTENT_TYPE;

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

/** @param {Source} _source */
function heapUsedRatio(_source) {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  return used / limit;
}

function primaryCpuSeconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
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

/**
 * @param {string} name
 * @param {string} help
 * @param {(source: Source) => number} read
 * @returns {Row}
 */
function counter(name, help, read) {
  return { name, type: 'counter', help, read };
}

/**
 * A counter with a label of a closed set.
 * @param {string} name
 * @param {string} help
 * @param {string} label
 * @param {(source: Source) => Record<string, number>} read
 * @returns {Row}
 */
function labelled(name, help, label, read) {
  return { name, type: 'counter', help, label, read };
}

/**
 * @param {string} name
 * @param {string} help
 * @param {'sum'|'max'|'min'|'first'} aggregator
 * @param {(source: Source) => number} read
 * @param {string} [label]
 * @returns {Row}
 */
function gauge(name, help, aggregator, read, label) {
  return { name, type: 'gauge', help, aggregator, read, label };
}

/**
 * @param {string} name
 * @param {string} help
 * @param {readonly number[]} buckets
 * @returns {Row}
 */
function histogram(name, help, buckets) {
  return { name, type: 'histogram', help, buckets };
}
