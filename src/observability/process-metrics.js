// process-metrics.js: metrics of a worker's process. Their names and meanings are those of
// prom-client's default metrics, because published dashboards use them.
//
// prom-client takes 3.5 MB of a worker's 34 at rest, and 15 % of the CPU time of its start, so
// workers do not load it. Some of its collectors walk over every socket at each scrape, and one
// wakes an idle worker 40 times a second.

import { readdirSync, readFileSync, statSync } from 'node:fs';
import { constants, createHistogram, PerformanceObserver } from 'node:perf_hooks';
import { getHeapSpaceStatistics, getHeapStatistics } from 'node:v8';
import { parseOpenFiles } from '../config/system-limits.js';
import { counter, gauge, histogram } from './rows.js';

/** @import { Row } from './rows.js' */

/** A walk over every socket takes 5 to 20 ms at 14,000: not part of each scrape. */
const WALK_INTERVAL_MS = 60_000;
/** Each kind of walk has a period of its own, so that they do not stall the worker together. */
const WALK_STEP_MS = 5000;
const OPEN_FILES = '/proc/self/fd';
/** The highest lag is reported for this time, because several Prometheus servers may scrape. */
const LAG_SHOWN_MS = 10_000;

const GC_KINDS = new Map([
  [constants.NODE_PERFORMANCE_GC_MAJOR, 'major'],
  [constants.NODE_PERFORMANCE_GC_MINOR, 'minor'],
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL, 'incremental'],
  [constants.NODE_PERFORMANCE_GC_WEAKCB, 'weakcb'],
]);

export const GC_SECONDS = histogram(
  'nodejs_gc_duration_seconds{kind}',
  [0.001, 0.01, 0.1, 1, 2, 5],
  'Seconds of garbage collections, by kind.',
  [...GC_KINDS.values()],
);

/** Reports each garbage collection. @param {(kind: string, seconds: number) => void} observe */
export function observeCollections(observe) {
  const observer = new PerformanceObserver((list) => {
    const entries = /** @type {{duration: number, detail: {kind: number}}[]} */ (
      /** @type {unknown} */ (list.getEntries())
    );
    for (const { duration, detail } of entries) {
      const kind = GC_KINDS.get(detail.kind);
      if (kind !== undefined) observe(kind, duration / 1000);
    }
  });
  observer.observe({ entryTypes: ['gc'] });
}

/**
 * The event loop's lag, four times a second. `node:perf_hooks` would count its own period as lag.
 */
export class LoopLag {
  constructor() {
    // Within 1 %. With the default of three figures it takes 0.39 MB instead of 0.04, and a read
    // 0.4 ms instead of 0.1.
    this.histogram = createHistogram({ figures: 2 });
    this.latest = 0;
    /** Lags of the last seconds, and those that scrapes got. @type {{atMs: number, seconds: number}[]} */
    this.recent = [];
    /** The lag between the last two calls of `read`, in seconds. */
    this.seen = { min: 0, max: 0, mean: 0, stddev: 0, p50: 0, p90: 0, p99: 0 };
  }

  /** @param {number} ms delay of a timer */
  observe(ms) {
    this.histogram.record(Math.max(1, Math.round(ms * 1e6))); // the histogram takes no zero
    this.latest = ms / 1000;
    this.#remember(this.latest);
  }

  /** Takes the lag since the last call. For scrapes alone: each of them ends a period. */
  read() {
    const { histogram } = this;
    const { count } = histogram;
    /** @param {number} ns */
    const seconds = (ns) => (count === 0 ? 0 : ns / 1e9);
    this.seen = {
      min: seconds(histogram.min),
      max: seconds(histogram.max),
      mean: seconds(histogram.mean),
      stddev: seconds(histogram.stddev),
      p50: seconds(histogram.percentile(50)),
      p90: seconds(histogram.percentile(90)),
      p99: seconds(histogram.percentile(99)),
    };
    histogram.reset();
    this.#remember(this.seen.max);
  }

  /** The highest recent lag, in seconds. */
  worst() {
    return Math.max(0, ...this.recent.map(({ seconds }) => seconds));
  }

  /** @param {number} seconds */
  #remember(seconds) {
    const nowMs = performance.now();
    this.recent = this.recent.filter(({ atMs }) => nowMs - atMs < LAG_SHOWN_MS);
    this.recent.push({ atMs: nowMs, seconds });
  }
}

/**
 * Keeps what a walk over every socket has found for a while.
 * @template T @param {number} index of the walk @param {() => T} walk @returns {() => T}
 */
function rarely(index, walk) {
  const intervalMs = WALK_INTERVAL_MS + index * WALK_STEP_MS;
  let nextMs = 0;
  /** @type {T} */
  let latest;
  return () => {
    const nowMs = performance.now();
    if (nowMs >= nextMs) {
      nextMs = nowMs + intervalMs;
      latest = walk();
    }
    return latest;
  };
}

/** @param {LoopLag} lag @returns {readonly Row<void>[]} */
// biome-ignore format: a row has two lines, and not one for each argument
export function processRows(lag) {
  let openFiles = 0;
  const listed = rarely(0, () => (openFiles = listFiles() ?? openFiles));
  // Since Linux 6.2 the folder's size is their number (proc_pid_fd(5)).
  const files = () => statSync(OPEN_FILES, { throwIfNoEntry: false })?.size || listed();
  const resources = rarely(1, () => counted(process.getActiveResourcesInfo()));
  const handles = rarely(2, () => counted(namesOf('_getActiveHandles')));
  const requests = rarely(3, () => counted(namesOf('_getActiveRequests')));
  const cpu = () => process.cpuUsage();
  const mostFiles = maxOpenFiles();
  return [
    counter('process_cpu_user_seconds_total', () => cpu().user / 1e6,
      'Processor time in user mode, in seconds.'),
    counter('process_cpu_system_seconds_total', () => cpu().system / 1e6,
      'Processor time in the kernel, in seconds.'),
    counter('process_cpu_seconds_total', () => (cpu().user + cpu().system) / 1e6,
      'Processor time, in seconds.'),
    gauge('process_resident_memory_bytes', 'sum', () => memoryOf('VmRSS'),
      'Resident memory, in bytes.'),
    gauge('process_virtual_memory_bytes', 'sum', () => memoryOf('VmSize'),
      'Virtual memory, in bytes.'),
    gauge('process_heap_bytes', 'sum', () => memoryOf('VmData'),
      'Private writable memory, in bytes.'),
    gauge('process_open_fds', 'max', files,
      'Open file descriptors of the process that has the most.'),
    gauge('process_max_fds', 'max', () => mostFiles,
      'The most file descriptors that one process may open.'),
    ...lagRows(lag),
    gauge('nodejs_active_resources{type}', 'sum', resources,
      'Resources that keep the event loop alive, by type.'),
    gauge('nodejs_active_resources_total', 'sum', () => total(resources()),
      'Resources that keep the event loop alive.'),
    gauge('nodejs_active_handles{type}', 'sum', handles,
      'Active libuv handles, by class.'),
    gauge('nodejs_active_handles_total', 'sum', () => total(handles()),
      'Active libuv handles.'),
    gauge('nodejs_active_requests{type}', 'sum', requests,
      'Active libuv requests, by class.'),
    gauge('nodejs_active_requests_total', 'sum', () => total(requests()),
      'Active libuv requests.'),
    gauge('nodejs_heap_size_total_bytes', 'sum', () => getHeapStatistics().total_heap_size,
      'Size of the heap, in bytes.'),
    gauge('nodejs_heap_size_used_bytes', 'sum', () => getHeapStatistics().used_heap_size,
      'Used heap, in bytes.'),
    gauge('nodejs_external_memory_bytes', 'sum', () => getHeapStatistics().external_memory,
      'Memory outside the heap that belongs to objects, in bytes.'),
    gauge('nodejs_heap_space_size_total_bytes{space}', 'sum', () => spaces('space_size'),
      'Size of each space of the heap, in bytes.'),
    gauge('nodejs_heap_space_size_used_bytes{space}', 'sum', () => spaces('space_used_size'),
      'Used part of each space of the heap, in bytes.'),
    gauge('nodejs_heap_space_size_available_bytes{space}', 'sum', () => spaces('space_available_size'),
      'Free part of each space of the heap, in bytes.'),
    gauge('nodejs_version_info{version,major,minor,patch}', 'first', () => ({
      [[process.version, ...process.versions.node.split('.')].join(',')]: 1,
    }), 'Version of Node.'),
  ];
}

/** @param {LoopLag} lag */
// biome-ignore format: a row has two lines
const lagRows = (lag) => [
  gauge('nodejs_eventloop_lag_seconds', 'max', () => lag.latest,
    'Lag of the event loop when it was measured last, in seconds.'),
  ...LAG_FIGURES.map(([figure, what]) =>
    gauge(`nodejs_eventloop_lag_${figure}_seconds`, 'max', () => lag.seen[figure],
      `${what} of the lag of the event loop since the last scrape, in seconds.`)),
];

const LAG_FIGURES = /** @type {const} */ ([
  ['min', 'Minimum'],
  ['max', 'Maximum'],
  ['mean', 'Mean'],
  ['stddev', 'Standard deviation'],
  ['p50', '50th percentile'],
  ['p90', '90th percentile'],
  ['p99', '99th percentile'],
]);

/** @returns {number|null} null: without a free descriptor the folder cannot be read */
function listFiles() {
  try {
    return readdirSync(OPEN_FILES).length;
  } catch {
    return null;
  }
}

/** @returns {number|Record<string, number>} no value if it is unlimited, or not known */
function maxOpenFiles() {
  const { soft } = parseOpenFiles(ownFile('limits')) ?? { soft: Number.NaN };
  return Number.isFinite(soft) ? soft : {};
}

/**
 * @param {'VmRSS'|'VmSize'|'VmData'} field
 * @returns {number|Record<string, number>} bytes; no value if it is not known
 */
function memoryOf(field) {
  const kilobytes = ownFile('status').match(`${field}:\\s+(\\d+) kB`)?.[1];
  return kilobytes === undefined ? {} : 1024 * Number(kilobytes);
}

/**
 * @param {string} name of a file about this process (proc(5))
 * @returns {string} its text; '' if this is not Linux, or no descriptor is free
 */
function ownFile(name) {
  try {
    return readFileSync(`/proc/self/${name}`, 'utf8');
  } catch {
    return '';
  }
}

/** @param {'space_size'|'space_used_size'|'space_available_size'} field */
function spaces(field) {
  return Object.fromEntries(
    getHeapSpaceStatistics().map((space) => [space.space_name.replace('_space', ''), space[field]]),
  );
}

/**
 * @param {'_getActiveHandles'|'_getActiveRequests'} method of Node, without documentation; it may go
 * @returns {string[]} the class of each
 */
function namesOf(method) {
  const get = /** @type {Record<string, (() => object[])|undefined>} */ (
    /** @type {unknown} */ (process)
  )[method];
  return (get?.call(process) ?? []).map((one) => one.constructor?.name ?? 'Object');
}

/** @param {readonly string[]} names @returns {Record<string, number>} how often each occurs */
function counted(names) {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

/** @param {Record<string, number>} counts */
function total(counts) {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}
