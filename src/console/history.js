// history.js: the last 15 minutes of the charts, in the primary's memory.
//
// A sample every SAMPLE_MS, or less often, adds one point to each line, a ring of numbers. So the
// memory is fixed: POINTS x 8 bytes for each of at most MAX_LINES lines, 1.2 MB.

import { CHARTS } from './charts.js';

export const SAMPLE_MS = 3000;
/** 15 minutes. */
export const POINTS = 300;
const MAX_LINES = 500;
/** Workers with lines of their own. A chart with more lines would be illegible. */
const MAX_WORKERS = 64;
const MAX_MARKS = 200;
const QUANTILES = /** @type {const} */ ([0.5, 0.99]);

/** @import { Source } from './charts.js' */
/** @typedef {'start'|'restart'|'reload'|'drain'|'outage'|'back'|'gone'|'returned'} MarkKind */

/**
 * @typedef {object} Mark an event that explains a step in the figures
 * @property {number} timeMs since 1970
 * @property {MarkKind} kind @property {string} text
 */

/**
 * @typedef {object} Reading the metrics at one time, as observability/aggregate.js adds them up
 * @property {ReadonlyMap<string, number>} totals over the workers
 * @property {ReadonlyMap<number, ReadonlyMap<string, number>>} workers by slot
 */

/**
 * @typedef {object} Page
 * @property {number[]} times ms since 1970
 * @property {{chart: string, name: string, values: (number|null)[]}[]} lines with a value for each
 *   time; null: there is none
 * @property {Mark[]} marks
 */

export class History {
  /** Ends of the ring: the number of samples so far. */
  #count = 0;
  #times = new Float64Array(POINTS);
  /** Lines by chart and name. @type {Map<string, {chart: string, name: string, values: Float64Array}>} */
  #lines = new Map();
  /** Totals of the sample before, for rates. @type {ReadonlyMap<string, number>|null} */
  #before = null;
  /** @type {Mark[]} */
  #marks = [];

  /** @param {number} timeMs since 1970 @param {Reading} reading */
  addSample(timeMs, { totals, workers }) {
    const lastMs = this.#count === 0 ? 0 : this.#times[(this.#count - 1) % POINTS];
    const at = this.#count % POINTS;
    // A clock that is set back must not bend the charts, nor make rates huge for a while.
    this.#times[at] = timeMs > lastMs ? timeMs : lastMs + SAMPLE_MS;
    for (const { values } of this.#lines.values()) values[at] = Number.NaN;
    this.#count++;
    const seconds = (this.#times[at] - lastMs) / 1000;
    for (const { id, sources } of CHARTS) {
      for (const source of sources) {
        const points = pointsOf(source, { totals, workers, before: this.#before, seconds });
        for (const [name, value] of points) this.#set(id, name, at, value);
      }
    }
    this.#before = totals;
  }

  /** @param {number} timeMs @param {MarkKind} kind @param {string} text */
  mark(timeMs, kind, text) {
    this.#marks.push({ timeMs, kind, text });
    const startMs = timeMs - POINTS * SAMPLE_MS;
    this.#marks = this.#marks.filter((mark) => mark.timeMs > startMs).slice(-MAX_MARKS);
  }

  /** The samples after a time, and the marks. @param {number} sinceMs 0: all @returns {Page} */
  samplesSince(sinceMs) {
    const first = Math.max(0, this.#count - POINTS);
    const lastMs = this.#times[(this.#count - 1) % POINTS];
    // At rest, samples are further apart: the ring then has some from before the 15 minutes.
    const afterMs = Math.max(sinceMs, lastMs - POINTS * SAMPLE_MS);
    /** @type {number[]} */
    const places = [];
    for (let i = first; i < this.#count; i++)
      if (this.#times[i % POINTS] > afterMs) places.push(i % POINTS);
    return {
      times: places.map((place) => this.#times[place]),
      lines: [...this.#lines.values()].map(({ chart, name, values }) => ({
        chart,
        name,
        values: places.map((place) => shown(values[place])),
      })),
      marks: this.#marks,
    };
  }

  /** @param {string} chart @param {string} name @param {number} at @param {number} value */
  #set(chart, name, at, value) {
    const key = `${chart} ${name}`;
    let line = this.#lines.get(key);
    if (line === undefined) {
      if (this.#lines.size >= MAX_LINES) return;
      line = { chart, name, values: new Float64Array(POINTS).fill(Number.NaN) };
      this.#lines.set(key, line);
    }
    line.values[at] = value;
  }
}

/**
 * @param {Source} source
 * @param {Reading & {before: ReadonlyMap<string, number>|null, seconds: number}} reading
 * @returns {Iterable<[string, number]>} the name of each line, and its value
 */
function pointsOf({ kind, metric, name = metric, scale = 1 }, reading) {
  const { totals, workers, before, seconds } = reading;
  switch (kind) {
    case 'gauge':
      return [[name, (totals.get(metric) ?? 0) * scale]];
    case 'workers':
      return [...workers]
        .filter(([slot, values]) => slot < MAX_WORKERS && values.has(metric))
        .map(([slot, values]) => [`worker ${slot}`, (values.get(metric) ?? 0) * scale]);
    case 'rate':
      if (before === null) return [];
      return [[name, growth(metric, totals, before) / seconds]];
    case 'counts':
      if (before === null) return [];
      // A label that has never counted has no line.
      return labelsOf(metric, totals)
        .filter(([, key]) => (totals.get(key) ?? 0) > 0)
        .map(([label, key]) => [label, growth(key, totals, before)]);
    case 'quantiles':
      return before === null ? [] : quantilesOf(metric, totals, before, scale);
  }
}

/**
 * @param {string} metric a histogram
 * @param {ReadonlyMap<string, number>} totals @param {ReadonlyMap<string, number>} before
 * @param {number} scale @returns {[string, number][]} NaN if the sample has no observation
 */
function quantilesOf(metric, totals, before, scale) {
  const buckets = labelsOf(metric, totals)
    .map(([label, key]) => ({
      bound: label === '+Inf' ? Number.POSITIVE_INFINITY : Number(label),
      count: growth(key, totals, before),
    }))
    .sort((one, other) => one.bound - other.bound);
  return QUANTILES.map((q) => [`p${q * 100}`, quantile(buckets, q) * scale]);
}

/** @param {readonly {bound: number, count: number}[]} buckets cumulative @param {number} q */
export function quantile(buckets, q) {
  const all = buckets.at(-1)?.count ?? 0;
  if (all <= 0) return Number.NaN;
  const rank = q * all;
  const i = buckets.findIndex(({ count }) => count >= rank);
  const { bound, count } = buckets[i];
  const lower = i === 0 ? { bound: 0, count: 0 } : buckets[i - 1];
  if (!Number.isFinite(bound)) return lower.bound;
  return (
    lower.bound + ((bound - lower.bound) * (rank - lower.count)) / Math.max(1, count - lower.count)
  );
}

/**
 * @param {string} key @param {ReadonlyMap<string, number>} totals
 * @param {ReadonlyMap<string, number>} before
 */
function growth(key, totals, before) {
  // A worker whose first metrics are missing could make a total fall for a moment.
  return Math.max(0, (totals.get(key) ?? 0) - (before.get(key) ?? 0));
}

/**
 * @param {string} metric @param {ReadonlyMap<string, number>} totals
 * @returns {[string, string][]} labels, and their keys
 */
function labelsOf(metric, totals) {
  const prefix = `${metric}{`;
  return [...totals.keys()]
    .filter((key) => key.startsWith(prefix))
    .map((key) => [key.slice(prefix.length, -1), key]);
}

/** Four digits are enough for a chart. @param {number} value */
function shown(value) {
  if (Number.isNaN(value)) return null;
  return Math.abs(value) < 1000 ? Number(value.toPrecision(4)) : Math.round(value);
}
