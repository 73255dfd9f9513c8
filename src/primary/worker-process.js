// worker-process.js: one worker process, as the supervisor sees it.
//   starting --ready--> ready --drain--> draining --exit--> gone
//      |                  |                  |
//      '------------------'------------------'--- exit, or SIGKILL if hung or overdue
//
// It decides when a silent worker is busy and when it is hung. The supervisor decides what follows.

import { readFileSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import { within } from '../backend/deferred.js';
import { heapOfWorker, readPart } from '../config/system-memory.js';

/** Time-outs for which system calls alone prove that a silent worker is busy and not hung. */
const MAX_BUSY_TIMEOUTS = 6;
/** A worker that owes so many answers is asked no more, because the IPC queue needs a bound. */
const MAX_UNANSWERED = 4;
/** A worker whose last heartbeat is older is not steady: its numbers may be wrong. */
const MAX_BEAT_AGE_MS = 3000;
/** Time between the end of a worker's drain and its SIGKILL. */
export const KILL_AFTER_MS = 1000;

/** @import { Certificate } from '../config/certificate.js' */
/** @import { Texts } from '../config/texts.js' */
/** @import { Beat, ToWorker } from '../worker/control-messages.js' */

export class WorkerProcess {
  /**
   * @param {import('node:cluster').Worker} worker @param {number} slot
   * @param {number} startTimeoutMs after which a worker that is not ready is killed
   * @param {string|null} hooksPath a file that may never finish loading
   * @param {{certificate: Certificate|null, texts: Texts}} settings
   */
  constructor(worker, slot, startTimeoutMs, hooksPath, { certificate, texts }) {
    this.certificate = certificate;
    this.texts = texts;
    this.worker = worker;
    this.id = worker.id;
    this.slot = slot;
    /** @type {'starting'|'ready'|'draining'|'gone'} */
    this.state = 'starting';
    /** Is its exit expected? It is drained, or a candidate that a reload may give up. */
    this.mayExit = false;
    this.isHung = false;
    /** Why it failed or was killed, for the log. */
    this.failure = '';
    this.heardMs = performance.now();
    this.isBusy = false;
    /** Its read and write calls, counted while it is silent. @type {number|null} */
    this.calls = null;
    /** When that number was last seen to grow. */
    this.calledMs = 0;
    this.unanswered = 0;
    /** Its last heartbeat. @type {{atMs: number, connections: number, isSteady: boolean}} */
    this.beat = { atMs: 0, connections: 0, isSteady: false };
    const hint =
      hooksPath === null ? '' : `. FANFARE_HOOKS: does ${hooksPath} ever finish loading?`;
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
    // An error here is a worker that has just gone: its exit is on its way.
    if (this.worker.isConnected()) this.worker.send(message, undefined, () => {});
  }

  /** It accepts messages now. @param {string} relayPath */
  start(relayPath) {
    const { slot, certificate, texts } = this;
    this.send({ type: 'start', slot, relayPath, certificate, texts });
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

  /** It has sent a message: it is alive. @param {number} [now] */
  heard(now = performance.now()) {
    this.heardMs = now;
  }

  /** Has it sent nothing for some heartbeats? @param {number} nowMs */
  isSilent(nowMs) {
    return nowMs - this.heardMs > MAX_BEAT_AGE_MS;
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

  /** Its own account of why it can't start. @param {string} failure */
  failed(failure) {
    this.failure = failure;
  }

  /**
   * Asks for its metrics.
   * @param {number} request @param {ReadonlySet<string>|null} names of some metrics; null: all
   * @param {boolean} isScrape whether Prometheus gets them
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

  /** Whether its exit counts as a death from now on. @param {boolean} mayExit */
  allowExit(mayExit) {
    this.mayExit = mayExit;
  }

  /**
   * Drains it; kills it if it does not exit in time.
   * @param {number} timeoutMs @param {number} waitMs for last requests
   * @returns {Promise<boolean>} whether it exited by itself
   */
  async drain(timeoutMs, waitMs) {
    this.mayExit = true;
    if (this.state === 'gone') return true;
    this.state = 'draining';
    // The worker's deadline is a little earlier than ours, so that it closes what is left.
    const deadlineMs = Math.max(timeoutMs / 2, timeoutMs - KILL_AFTER_MS);
    this.send({ type: 'drain', deadlineMs, waitMs });
    return within(this.ended, timeoutMs);
  }

  /** Kills it and waits a moment for its exit. @returns {Promise<boolean>} whether it has exited */
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

  /**
   * Is a ready worker alive? A worker without a message for `timeoutMs` is hung, unless the kernel
   * still counts system calls of it: then it is busy, for at most MAX_BUSY_TIMEOUTS time-outs.
   * @param {number} now @param {number} timeoutMs
   * @returns {'alive'|'recovered'|'silent'|'busy'|'hung'} `recovered` and `busy`: only when it
   *   begins
   */
  check(now, timeoutMs) {
    const silentMs = now - this.heardMs;
    if (silentMs <= timeoutMs / 2) {
      const wasBusy = this.isBusy;
      this.calls = null;
      this.isBusy = false;
      return wasBusy ? 'recovered' : 'alive';
    }
    const calls = systemCalls(this.pid);
    if (this.calls !== null && calls !== null && calls > this.calls) this.calledMs = now;
    this.calls = calls;
    if (silentMs <= timeoutMs) return 'silent';
    const calledOfLate = now - this.calledMs <= timeoutMs / 2;
    if (!calledOfLate || silentMs > MAX_BUSY_TIMEOUTS * timeoutMs) return 'hung';
    if (this.isBusy) return 'silent';
    this.isBusy = true;
    return 'busy';
  }
}

/**
 * How often a process has read and written. A flood keeps the event loop busy with both; an endless
 * loop in JavaScript and a stopped process do neither.
 * @param {number|undefined} pid
 * @returns {number|null} null if the system has no such account: not Linux, or an old kernel
 */
function systemCalls(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/io`, 'latin1');
    const reads = /^syscr: (\d+)$/m.exec(text);
    const writes = /^syscw: (\d+)$/m.exec(text);
    return reads && writes ? Number(reads[1]) + Number(writes[1]) : null;
  } catch {
    return null;
  }
}

/**
 * The V8 options of a worker. An option on the operator's command line wins.
 *
 * - Semi-spaces: V8 keeps up to three of 16 MB for young objects and is slow to give them back. 4
 *   MB each save a worker of 5,000 connections a quarter of its memory at the same CPU.
 * - Interrupt budget: how much bytecode runs before a function is compiled for speed. At half the
 *   default the first 4,000 handshakes take 0.51 instead of 0.62 ms of CPU each. A quarter gives no
 *   more, and costs a tenth of the echo rate for good. Measured on V8 11 alone: later ones have
 *   another compiler in between.
 * - Inlining: how much bytecode of other functions an optimized one may contain. Half of the CPU of
 *   the first handshakes is the compiler's. With half the default the first 5,000 take 10 % less on
 *   Node 20 and 22, and 6 % on 26; later ones and deliveries cost the same.
 * - Old space: V8 takes its limit from the memory of the whole machine, as if a worker were alone
 *   on it.
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
