// worker-process.js: one worker process, as the supervisor sees it.
//   starting --ready--> ready --drain--> draining --exit--> gone
//      |                  |                  |
//      '------------------'------------------'--- exit, or SIGKILL if hung or overdue
//
// The supervisor acts on it. liveness.js tells busy workers from hung ones.

import { getHeapStatistics } from 'node:v8';
import { within } from '../backend/deferred.js';
import { heapOfWorker, readPart } from '../config/system-memory.js';
import { Liveness, MAX_BEAT_AGE_MS } from './liveness.js';

/** Above this many unanswered requests for metrics, no more are sent: bounds the IPC queue. */
const MAX_UNANSWERED = 4;
/** Between the end of a worker's drain and its SIGKILL. */
export const KILL_AFTER_MS = 1000;

/** @import { Certificate } from '../config/certificate.js' */
/** @import { Config } from '../config/settings.js' */
/** @import { Beat, ToWorker } from '../worker/control-messages.js' */

export class WorkerProcess {
  /**
   * @param {import('node:cluster').Worker} worker @param {number} slot
   * @param {number} startTimeoutMs after which a worker that is not ready is killed
   * @param {{certificate: Certificate|null, config: Config}} settings
   */
  constructor(worker, slot, startTimeoutMs, { certificate, config }) {
    this.certificate = certificate;
    this.config = config;
    this.worker = worker;
    this.id = worker.id;
    this.slot = slot;
    /** @type {'starting'|'ready'|'draining'|'gone'} */
    this.state = 'starting';
    /** Is an exit no death? True if the worker drains, or a reload has not adopted it yet. */
    this.mayExit = false;
    this.isHung = false;
    /** Why it failed or was killed, for the log. */
    this.failure = '';
    /** Another start would fail in the same way. */
    this.isInvalidSetting = false;
    this.liveness = new Liveness();
    this.unanswered = 0;
    /** @type {{atMs: number, connections: number, isSteady: boolean}} */
    this.beat = { atMs: 0, connections: 0, isSteady: false };
    const path = config.hooks?.path ?? '';
    const hint = path === '' ? '' : `. FANFARE_HOOKS: does ${path} ever finish loading?`;
    this.startTimer = setTimeout(
      () => this.kill(`not ready after ${startTimeoutMs} ms${hint}`),
      startTimeoutMs,
    );
    /** True when it is ready, false if it exits before. @type {Promise<boolean>} */
    this.started = new Promise((resolve) => {
      this.resolveStarted = resolve;
    });
    /** @type {Promise<void>} */
    this.ended = new Promise((resolve) => {
      this.resolveEnded = resolve;
    });
  }

  get pid() {
    return this.worker.process.pid;
  }

  /** @param {ToWorker} message */
  send(message) {
    // An error here means that the worker has just exited, and `exit` follows.
    if (this.worker.isConnected()) this.worker.send(message, undefined, () => {});
  }

  /** Starts a worker that has begun to read messages. @param {string} relayPath */
  start(relayPath) {
    const { slot, certificate, config } = this;
    this.send({ type: 'start', slot, relayPath, certificate, config });
  }

  /** @param {Certificate|null} certificate */
  replaceCertificate(certificate) {
    this.certificate = certificate;
    if (certificate !== null) this.send({ type: 'certificate', certificate });
  }

  /** @param {string} [why] for the log */
  kill(why = this.failure) {
    this.failure = why;
    this.worker.process.kill('SIGKILL');
  }

  /** @param {string} why */
  killHung(why) {
    this.isHung = true;
    this.kill(why);
  }

  /** @param {Beat} beat */
  beats({ connections, isSteady }) {
    this.beat = { atMs: performance.now(), connections, isSteady };
  }

  /** @param {number} nowMs @returns {import('./balance.js').Load} */
  load(nowMs) {
    const { atMs, connections, isSteady } = this.beat;
    return { connections, isSteady: isSteady && nowMs - atMs <= MAX_BEAT_AGE_MS };
  }

  /** @param {string} failure why it cannot start @param {boolean} [isInvalidSetting] */
  startFailed(failure, isInvalidSetting = false) {
    this.failure = failure;
    this.isInvalidSetting = isInvalidSetting;
  }

  /**
   * @param {number} request @param {ReadonlySet<string>|null} names of some metrics; null: all
   * @param {boolean} isScrape does Prometheus get them?
   */
  requestMetrics(request, names, isScrape) {
    if (this.unanswered++ < MAX_UNANSWERED)
      this.send({ type: 'metrics', request, names: names === null ? null : [...names], isScrape });
  }

  answeredMetrics() {
    this.unanswered = 0;
  }

  ready() {
    clearTimeout(this.startTimer);
    this.state = 'ready';
    this.resolveStarted?.(true);
  }

  /** @param {boolean} mayExit */
  allowExit(mayExit) {
    this.mayExit = mayExit;
  }

  /** @param {number} timeoutMs @param {number} waitMs for last requests @returns has it exited in time? */
  async drain(timeoutMs, waitMs) {
    this.mayExit = true;
    if (this.state === 'gone') return true;
    this.state = 'draining';
    // The worker's deadline is earlier than ours, so that it can close what is left.
    const deadlineMs = Math.max(timeoutMs / 2, timeoutMs - KILL_AFTER_MS);
    this.send({ type: 'drain', deadlineMs, waitMs });
    return within(this.ended, timeoutMs);
  }

  /** Kills it and waits a moment. @returns has it exited? */
  end() {
    this.mayExit = true;
    this.kill();
    return within(this.ended, KILL_AFTER_MS);
  }

  gone() {
    this.state = 'gone';
    clearTimeout(this.startTimer);
    this.resolveStarted?.(false);
  }
}

/**
 * The V8 options of a worker. An option on the operator's command line wins.
 *
 * - Semi-spaces: V8 keeps up to three of 16 MB for young objects and is slow to release them. With
 *   4
 *   MB each, a worker with 5,000 connections saves a quarter of its memory at the same CPU.
 * - Interrupt budget: how much bytecode runs before a function is optimized. At half the default
 *   the first 4,000 handshakes take 0.51 instead of 0.62 ms of CPU each. A quarter brings no more
 *   and permanently costs a tenth of the echo rate. Measured only on V8 11: later versions have
 *   another compiler in between.
 * - Inlining: how much bytecode of other functions an optimized one may contain. The compiler takes
 *   half of the CPU of the first handshakes. With half the default, the first 5,000 take 10 % less
 *   on Node 20 and 22, and 6 % on 26; later ones and deliveries cost the same.
 * - Old space: V8 derives its limit from the memory of the whole machine, as if the worker were
 *   alone there.
 * @param {number} workers @param {string} nodeOptions of the workers' environment
 */
export function workerArguments(workers, nodeOptions) {
  const own = process.execArgv;
  const heapBytes = heapOfWorker(readPart(workers), getHeapStatistics().heap_size_limit);
  const ours = [
    '--max-semi-space-size=4',
    '--max-inlined-bytecode-size-cumulative=460',
    `--max-old-space-size=${Math.floor(heapBytes / 2 ** 20)}`,
  ];
  if (process.versions.v8.startsWith('11.')) ours.push('--interrupt-budget=34000');
  const given = [...own, ...nodeOptions.split(' ')].map(
    (argument) => argument.replaceAll('_', '-').split('=')[0],
  );
  return [...own, ...ours.filter((flag) => !given.includes(flag.split('=')[0]))];
}
