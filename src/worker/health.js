// health.js: event-loop lag, memory and sockets of this worker, for admission and readiness.
//
// The lag is how much later than planned a timer ran. While there are sockets, a timer samples it
// four times a second, and memory is read once a second. At rest the worker's beat is the sample,
// because each wake-up costs some 80 us, and memory is read every REST_BEATS beats while it is low.

import { readFileSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import { OWN_DESCRIPTORS, parseOpenFiles } from '../config/system-limits.js';
import { privateBytes } from '../config/system-memory.js';

const SAMPLE_MS = 250;
/** The number of samples kept: the worst of the last second counts. */
const SAMPLES = 4;
/** Reading memory is a seventh of a beat at rest. */
const REST_BEATS = 10;
/** Above this it is read at each beat: a worker must not refuse clients for what it has freed. */
const CALM_PERCENT = 50;

export class Health {
  /**
   * @param {object} parts @param {import('../observability/counters.js').Counters} parts.counters
   * @param {{observe(ms: number): void}} parts.loopLag gets every sample
   * @param {number} parts.memoryBytes this worker's part of the memory
   */
  constructor({ counters, loopLag, memoryBytes }) {
    this.memoryBytes = memoryBytes;
    this.counters = counters;
    this.loopLag = loopLag;
    this.lags = new Float64Array(SAMPLES);
    this.at = 0;
    this.dueMs = 0;
    this.memoryPercent = 0;
    /** Beats at rest since memory was read. */
    this.unread = REST_BEATS;
    this.heapLimit = getHeapStatistics().heap_size_limit;
    this.descriptorLimit = descriptorLimit();
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
  }

  /** @param {number} beatMs until the first beat */
  start(beatMs) {
    this.dueMs = performance.now() + beatMs;
  }

  close() {
    clearInterval(this.timer);
  }

  /** Call it at each beat of the worker. @param {number} beatMs until the next one */
  beat(beatMs) {
    const { timer } = this;
    const hasSockets = this.counters.sockets > 0;
    const isCalm = !hasSockets && this.memoryPercent <= CALM_PERCENT;
    if (!isCalm || ++this.unread >= REST_BEATS) {
      this.unread = 0;
      this.memoryPercent = this.#memoryPercent();
    }
    if (timer === undefined) this.lags.fill(this.#sample(beatMs));
    if (hasSockets === (timer !== undefined)) return;
    clearInterval(timer);
    this.timer = hasSockets ? setInterval(() => this.#sampleOften(), SAMPLE_MS).unref() : undefined;
    this.dueMs = performance.now() + (hasSockets ? SAMPLE_MS : beatMs);
  }

  #sampleOften() {
    this.lags[this.at] = this.#sample(SAMPLE_MS);
    this.at = (this.at + 1) % SAMPLES;
  }

  /** @param {number} nextMs until the next sample @returns the lag */
  #sample(nextMs) {
    const now = performance.now();
    const lag = Math.max(0, now - this.dueMs);
    this.loopLag.observe(lag);
    this.dueMs = now + nextMs;
    return lag;
  }

  /** The worst lag of the last second, in ms. */
  lagMs() {
    let worst = 0;
    for (const lag of this.lags) if (lag > worst) worst = lag;
    return worst;
  }

  #memoryPercent() {
    const heap = getHeapStatistics().used_heap_size / this.heapLimit;
    return 100 * Math.max(heap, privateBytes() / this.memoryBytes);
  }

  /** The greater of heap and memory, in per cent of its limit; a second old, ten if at rest. */
  heapPercent() {
    return this.memoryPercent;
  }

  /** Descriptors in use: all sockets of the public port, and some for the process itself. */
  openDescriptors() {
    return this.counters.sockets + OWN_DESCRIPTORS;
  }
}

/** @returns {number} Infinity: no limit, or the system does not show it */
function descriptorLimit() {
  try {
    return (
      parseOpenFiles(readFileSync('/proc/self/limits', 'utf8'))?.soft ?? Number.POSITIVE_INFINITY
    );
  } catch {
    return Number.POSITIVE_INFINITY; // only Linux has this file
  }
}
