// courier-process.js: the process that sends webhooks, as the primary sees it.
//
// It runs if endpoints are configured, and a reload replaces it. If it dies, or sends no status for
// half a minute, another one starts after a pause. The queue has everything that was not delivered.

import { fork } from 'node:child_process';
import { answerCall } from '../webhooks/queue-channel.js';

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
/** A courier that lived this long ends a series of deaths. */
const STEADY_MS = 60_000;
const CHECK_MS = 5000;
/** Checks without a status in between. If this process was suspended, that is only one check. */
const SILENT_CHECKS = 6;
const STOP_TIMEOUT_MS = 4000;
const TEST_TIMEOUT_MS = 35_000;
const MAX_TESTS = 8;

/** @import { FromCourier, Status } from '../webhooks/courier.js' */
/** @import { Result } from '../webhooks/request.js' */
/** @import { Settings } from './supervisor.js' */
/** @import { ChildProcess } from 'node:child_process' */

export class CourierProcess {
  /** @type {ChildProcess|null} */
  #child = null;
  /** @type {Settings|null} */
  #settings = null;
  /** The settings of a reload that waits for the exit. @type {Settings|null} */
  #next = null;
  /** The id in the aggregate: below those of the workers and the primary, and never reused. */
  #id = 0;
  #bornMs = 0;
  #deaths = 0;
  #silence = 0;
  #isStopping = false;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  /** @type {NodeJS.Timeout|undefined} */
  #check;
  /** When all clients of drained workers have returned. */
  #leavesPausedUntilMs = 0;
  #tests = 0;
  /** @type {Map<number, (result: Result) => void>} */
  #waiting = new Map();

  /**
   * @param {object} parts @param {string} parts.exec its entry point: main.js
   * @param {import('../observability/aggregate.js').Aggregate} parts.aggregate gets its metrics
   * @param {() => import('../webhooks/queue.js').EventQueue|null} parts.queue of the embedded backend
   * @param {import('pino').Logger} parts.log
   */
  constructor({ exec, aggregate, queue, log }) {
    this.exec = exec;
    this.aggregate = aggregate;
    this.queue = queue;
    this.log = log;
    this.restarts = 0;
    /** The last report; null before the first. @type {Status|null} */
    this.status = null;
  }

  /** @param {Settings} settings */
  start(settings) {
    this.#settings = settings;
    if (!settings.config.webhooks?.hasEndpoints || this.#isStopping) return;
    this.#check ??= setInterval(() => this.#checkSilence(), CHECK_MS);
    this.#fork();
  }

  /** @param {Settings} settings */
  async reload(settings) {
    this.#settings = null; // the courier is about to exit
    this.#next = settings;
    await this.#endProcess();
    if (this.#next !== settings) return; // a later call waited for the same exit
    this.#next = null;
    this.#deaths = 0;
    this.start(settings);
  }

  /** Resolves when it has released its partitions, or after STOP_TIMEOUT_MS. */
  async stop() {
    this.#isStopping = true;
    clearInterval(this.#check);
    await this.#endProcess();
  }

  /** A worker begins to drain. @param {number} ms within which its clients return */
  pauseLeaves(ms) {
    this.#leavesPausedUntilMs = Math.max(this.#leavesPausedUntilMs, performance.now() + ms);
    if (this.#child?.connected) this.#child.send({ type: 'pauseLeaves', ms }, () => {});
  }

  /** Sends webhook.test. @param {string} endpoint its name @returns {Promise<Result>} */
  test(endpoint) {
    const child = this.#child;
    if (child === null || this.#waiting.size >= MAX_TESTS)
      return Promise.resolve(unsent('the courier is not running, or busy with other tests'));
    return new Promise((resolve) => {
      const id = ++this.#tests;
      const timer = setTimeout(() => end(unsent('no answer from the courier')), TEST_TIMEOUT_MS);
      /** @param {Result} result */
      const end = (result) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        resolve(result);
      };
      this.#waiting.set(id, end);
      child.send({ type: 'test', id, endpoint }, () => {});
    });
  }

  #fork() {
    clearTimeout(this.#timer);
    const { env, config } = /** @type {Settings} */ (this.#settings);
    const id = --this.#id;
    this.#bornMs = performance.now();
    this.#silence = 0;
    // `advanced`: calls of the queue have maps.
    const child = fork(this.exec, ['courier'], {
      env: { ...env, STDIN_HAS_CONFIG: '1' },
      serialization: 'advanced',
      stdio: ['pipe', 'inherit', 'inherit', 'ipc'],
    });
    this.#child = child;
    // If it exits before it has read them, `close` follows.
    child.stdin?.on('error', () => {}).end(JSON.stringify(config));
    const pausedMs = Math.ceil(this.#leavesPausedUntilMs - this.#bornMs);
    // If descriptors run out there is no channel, and `error` follows.
    if (pausedMs > 0 && child.connected)
      child.send({ type: 'pauseLeaves', ms: pausedMs }, () => {});
    child.on('message', (/** @type {FromCourier} */ message) => {
      if (message.type === 'tested') this.#waiting.get(message.id)?.(message.result);
      else if (message.type === 'call') this.#answerCall(child, message);
      else {
        this.#silence = 0;
        this.status = message;
        this.aggregate.update(id, message.metrics);
      }
    });
    child.on('error', (error) => this.log.warn({ err: error }, 'courier: process error'));
    child.on('close', (code, signal) => {
      this.aggregate.depart(id);
      this.#closed(child, code, signal);
    });
  }

  /** @param {ChildProcess} child @param {import('../webhooks/queue-channel.js').Call} call */
  async #answerCall(child, call) {
    const queue = this.queue();
    if (queue === null) return;
    const answer = await answerCall(queue, call);
    if (child.connected) child.send(answer, () => {});
  }

  /** @param {ChildProcess} child @param {number|null} code @param {string|null} signal */
  #closed(child, code, signal) {
    if (this.#child !== child) return;
    this.#child = null;
    this.status = null;
    for (const end of this.#waiting.values()) end(unsent('the courier has exited'));
    if (this.#settings === null || this.#isStopping) return;
    this.#deaths = performance.now() - this.#bornMs > STEADY_MS ? 1 : this.#deaths + 1;
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (this.#deaths - 1), LONGEST_PAUSE_MS);
    this.restarts++;
    this.log.error({ code, signal, pauseMs }, 'the courier, which sends webhooks, has exited');
    this.#timer = setTimeout(() => this.#fork(), pauseMs);
  }

  #checkSilence() {
    if (this.#child === null || ++this.#silence < SILENT_CHECKS) return;
    this.log.error({ courierPid: this.#child.pid }, 'the courier is hung: killed');
    this.#child.kill('SIGKILL');
  }

  /** @returns {Promise<void>} */
  #endProcess() {
    clearTimeout(this.#timer);
    const child = this.#child;
    if (child === null) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
      child.once('close', () => {
        clearTimeout(timer);
        resolve();
      });
      if (child.connected) child.send({ type: 'stop' }, () => {});
    });
  }
}

/** @param {string} error @returns {Result} */
function unsent(error) {
  return { outcome: 'failed', error, retryAfterMs: null };
}
