// timeline.js: the course of a run: the ticks of the clients, added up per sample, and the metrics
// of the server.

import { Latency } from '../../test/harness/latency.js';
import { scrape } from '../../test/harness/server.js';

/** Bounds the report: a run of many hours is thinned out, every second sample dropped at a time. */
const MAX_SAMPLES = 2000;
/** Ticks and samples are not in step, so processor time is taken over this many samples. */
const CPU_SAMPLES = 4;

/** @typedef {import('./client.js').Tick} Tick */

/**
 * One moment. Rates are per second, since the sample before; latencies milliseconds, null if
 * nothing was timed.
 * @typedef {object} Sample
 * @property {number} t seconds since the start
 * @property {number} open
 * @property {number} openedPerSecond
 * @property {number} repliesPerSecond
 * @property {number} deliveriesPerSecond
 * @property {number} errors so far
 * @property {number|null} p50
 * @property {number|null} p95
 * @property {number|null} p99
 * @property {number} clientCpu processor time of the busiest client process over the last seconds,
 *   as a share of one core
 * @property {number} residentMb of all client processes
 */
/**
 * @typedef {{t: number, values: Record<string, number>}} Scrape metrics by name, labels added up
 */
/**
 * @typedef {{name: string, from: number, to: number, clientCpu: number}} Span seconds; `clientCpu`
 *   as in a sample, over all of it
 */
/**
 * @typedef
 *   {{opened: number, sent: number, replies: number, deliveries: number, seconds: number, latency: Latency}}
 *   Totals since a watch began
 */

export class Timeline {
  /**
   * @param {object} options
   * @param {number} options.processes
   * @param {number} options.sampleMs
   * @param {string} options.metrics URL; empty: none
   * @param {readonly string[]} options.names of the metrics to keep
   * @param {(key: string, count: number) => void} options.fail
   * @param {() => number} options.errors so far
   */
  constructor({ processes, sampleMs, metrics, names, fail, errors }) {
    this.sampleMs = sampleMs;
    this.metrics = metrics;
    this.names = new Set(names);
    this.fail = fail;
    this.errors = errors;
    this.startedMs = performance.now();
    /** @type {Sample[]} */
    this.samples = [];
    /** @type {Scrape[]} */
    this.scrapes = [];
    this.scrapeFault = '';
    /** @type {Span[]} */
    this.spans = [];
    /** @type {(Tick|null)[]} the last of each process */
    this.last = new Array(processes).fill(null);
    this.sums = { opened: 0, replies: 0, deliveries: 0 };
    /** Of each process since its start. @type {number[]} */
    this.cpuSeconds = new Array(processes).fill(0);
    /** The same at the last samples. @type {{ms: number, cpuSeconds: number[]}[]} */
    this.cpuBefore = [];
    this.latency = new Latency();
    this.sampledMs = this.startedMs;
    this.peak = 0;
    /** @type {{totals: Totals, startedMs: number, onChange: (totals: Totals) => void}|null} */
    this.watching = null;
    this.scraping = false;
  }

  start() {
    this.startedMs = this.sampledMs = performance.now();
    this.timer = setInterval(() => this.#sample(), this.sampleMs);
    this.#sample();
  }

  close() {
    clearInterval(this.timer);
    if (performance.now() - this.sampledMs > this.sampleMs / 4) this.#sample();
  }

  get seconds() {
    return (performance.now() - this.startedMs) / 1000;
  }

  /** Connections open now. */
  get open() {
    return this.openOf().reduce((sum, n) => sum + n, 0);
  }

  /** @returns {number[]} connections open, by process */
  openOf() {
    return this.last.map((tick) => tick?.open ?? 0);
  }

  /** @param {number} process @param {Tick} tick */
  add(process, tick) {
    this.last[process] = tick;
    this.peak = Math.max(this.peak, this.open);
    this.cpuSeconds[process] += tick.cpuSeconds;
    this.latency.addDrained(tick.latency);
    for (const key of /** @type {const} */ (['opened', 'replies', 'deliveries']))
      this.sums[key] += tick[key];
    if (this.watching) {
      const { totals, onChange } = this.watching;
      for (const key of /** @type {const} */ (['opened', 'sent', 'replies', 'deliveries']))
        totals[key] += tick[key];
      totals.latency.addDrained(tick.latency);
      totals.seconds = (performance.now() - this.watching.startedMs) / 1000;
      onChange(totals);
    }
    for (const [key, count] of tick.failures) this.fail(key, count);
  }

  /** Sums up from now on, for one phase at a time. @param {(totals: Totals) => void} onChange */
  watch(onChange) {
    const watching = {
      startedMs: performance.now(),
      totals: { opened: 0, sent: 0, replies: 0, deliveries: 0, seconds: 0, latency: new Latency() },
      onChange,
    };
    this.watching = watching;
    return {
      /** @returns {Totals} */
      end: () => {
        this.watching = null;
        watching.totals.seconds = (performance.now() - watching.startedMs) / 1000;
        return watching.totals;
      },
    };
  }

  /**
   * @param {string} name of a phase
   * @param {() => Promise<void>} act
   */
  async span(name, act) {
    const span = { name, from: this.seconds, to: this.seconds, clientCpu: 0 };
    const before = [...this.cpuSeconds];
    this.spans.push(span);
    try {
      await act();
    } finally {
      span.to = this.seconds;
      span.clientCpu = this.#busiest(before, span.to - span.from);
    }
  }

  /**
   * @param {number[]} before processor times then
   * @param {number} seconds since
   */
  #busiest(before, seconds) {
    return Math.max(...this.cpuSeconds.map((now, i) => now - before[i])) / Math.max(0.001, seconds);
  }

  #sample() {
    const nowMs = performance.now();
    const seconds = Math.max(0.001, (nowMs - this.sampledMs) / 1000);
    const then = this.cpuBefore[0];
    this.cpuBefore.push({ ms: nowMs, cpuSeconds: [...this.cpuSeconds] });
    if (this.cpuBefore.length > CPU_SAMPLES) this.cpuBefore.shift();
    this.samples.push({
      t: (nowMs - this.startedMs) / 1000,
      open: this.open,
      openedPerSecond: this.sums.opened / seconds,
      repliesPerSecond: this.sums.replies / seconds,
      deliveriesPerSecond: this.sums.deliveries / seconds,
      errors: this.errors(),
      p50: this.latency.percentile(50),
      p95: this.latency.percentile(95),
      p99: this.latency.percentile(99),
      clientCpu: then ? this.#busiest(then.cpuSeconds, (nowMs - then.ms) / 1000) : 0,
      residentMb: this.last.reduce((sum, tick) => sum + (tick?.residentBytes ?? 0), 0) / 1e6,
    });
    this.sums = { opened: 0, replies: 0, deliveries: 0 };
    this.latency.drain();
    this.sampledMs = nowMs;
    if (this.samples.length > MAX_SAMPLES)
      this.samples = this.samples.filter((_, i) => i % 2 === 0);
    if (this.metrics !== '') this.#scrape();
  }

  /** One at a time: a server that is slow to answer has fewer points. */
  async #scrape() {
    if (this.scraping) return;
    this.scraping = true;
    const t = this.seconds;
    try {
      const { values } = await scrape(this.metrics);
      /** @type {Record<string, number>} */
      const kept = {};
      for (const [sample, value] of values) {
        const name = sample.replace(/\{.*$/s, '');
        if (this.names.has(name)) kept[name] = (kept[name] ?? 0) + value;
      }
      this.scrapes.push({ t, values: kept });
      if (this.scrapes.length > MAX_SAMPLES)
        this.scrapes = this.scrapes.filter((_, i) => i % 2 === 0);
    } catch (error) {
      this.scrapeFault = /** @type {Error} */ (error).message;
    } finally {
      this.scraping = false;
    }
  }
}
