// process.js: one worker process: its signals, its messages to and from the primary, its exit.
//
// The primary owns the signals and commands a worker by IPC (control-messages.js). A worker
// that loses its primary, or the primary's relay, drains on its own and exits.

import cluster from 'node:cluster';
import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { listenFault } from '../config/listen-fault.js';
import { Phase } from './phase.js';
import { createWorker } from './worker.js';

/** How long a worker may take to drain if no primary is left to set a deadline. */
const ORPHAN_DRAIN_MS = 10_000;

/** @import { Config } from '../config/settings.js' */
/** @import { Certificate, ToPrimary, ToWorker } from './control-messages.js' */
/** @import { Form } from '../observability/aggregate.js' */
/** @import { Logger } from 'pino' */

/**
 * Runs until the primary orders a drain, then exits the process with 0.
 * @param {Config} config @param {Logger} log @param {ToWorker} start the first message
 */
export function runWorker(config, log, start) {
  const one = new WorkerProcess(config, log);
  // The terminal's Ctrl-C reaches the whole process group. The primary decides the next step.
  process.on('SIGINT', () => {});
  process.on('SIGTERM', () => {});
  process.on('SIGHUP', () => {});
  process.on('message', (message) => one.receive(/** @type {ToWorker} */ (message)));
  process.on('disconnect', () => one.processOnDisconnect());
  // A message to a primary that has just been killed fails with EPIPE. `disconnect` follows.
  cluster.worker?.on('error', (error) => log.debug({ err: error }, 'IPC channel error'));
  // Node would end a worker at once when it loses its primary, and its clients would see
  // 1006.
  if (cluster.worker) cluster.worker.exitedAfterDisconnect = true;
  process.on('uncaughtException', (error) => one.crash(error));
  process.on('unhandledRejection', (error) => one.crash(error));
  one.receive(start);
}

class WorkerProcess {
  /** @type {import('./worker.js').Worker|undefined} */
  #worker;
  #phase = new Phase();
  #relayPath = '';
  /** Ends a drain that takes too long. @type {NodeJS.Timeout|undefined} */
  #guard;
  /** @type {Certificate|null} */
  #certificate = null;

  /** The forms of metrics that the primary has. @type {Record<'all'|'part', Map<string, Form>>} */
  #sent = { all: new Map(), part: new Map() };

  /** @param {Config} config @param {Logger} log */
  constructor(config, log) {
    this.config = config;
    this.log = log;
  }

  /** @param {ToWorker} message */
  receive(message) {
    const worker = this.#worker;
    switch (message.type) {
      case 'certificate':
        this.#certificate = message.certificate;
        worker?.replaceCertificate(message.certificate);
        break;
      case 'start':
        this.#certificate = message.certificate;
        this.#start(message).then(
          ({ isBrokerUp, ...address }) => send({ type: 'ready', address, isBrokerUp }),
          (error) => this.#failToStart(error),
        );
        break;
      case 'metrics':
        this.#sendMetrics(message);
        break;
      case 'unready':
        this.#phase.advance('leaving');
        break;
      case 'retire':
        this.#phase.advance('retired');
        worker?.retire();
        break;
      case 'rebalance':
        worker?.relocations.rebalance(message.connections);
        break;
      case 'operate':
      case 'tail':
      case 'untail':
        worker?.operate(message, send);
        break;
      case 'drain':
        this.leave(message.deadlineMs, 0, message.waitMs);
        break;
    }
  }

  /** @param {{slot: number, relayPath: string}} message */
  async #start({ slot, relayPath }) {
    this.#relayPath = relayPath;
    this.#worker = await createWorker({
      config: this.config,
      log: this.log.child({ worker: slot }),
      phase: this.#phase,
      slot,
      relayPath,
      certificate: () => this.#certificate,
      onBeat: (beat) => send({ type: 'beat', ...beat }),
      onOrphaned: () => this.leave(ORPHAN_DRAIN_MS, 1),
    });
    return this.#worker.start();
  }

  /** The worker cannot start. @param {NodeJS.ErrnoException & {isInvalidSetting?: true}} error */
  #failToStart(error) {
    const why = listenFault(error, { name: 'PORT', ...this.config });
    const { isInvalidSetting = false } = error;
    // The primary says so, once for all workers. A stack has nothing to add.
    if (why === '' && !isInvalidSetting) this.log.error({ err: error }, 'worker cannot start');
    send({ type: 'failed', message: why || error.message, isInvalidSetting });
    process.exitCode = 1;
    // The message above needs a moment to reach the primary.
    setTimeout(() => process.exit(1), 100);
  }

  /**
   * @param {{request: number, names: readonly string[]|null, isScrape?: boolean}} message an earlier
   *   primary does not say whether it is for a scrape
   */
  #sendMetrics({ request, names, isScrape = true }) {
    const worker = this.#worker;
    if (!worker) return;
    const isPart = names !== null;
    try {
      const known = isPart ? this.#sent.part : this.#sent.all;
      if (!isPart && isScrape) worker.basics.metrics.loopLag.read();
      const metrics = worker.basics.metrics.snapshot(names, known);
      send({ type: 'metrics', request, isPart, metrics });
    } catch (error) {
      this.log.error({ err: error }, 'cannot collect metrics');
    }
  }

  processOnDisconnect() {
    this.log.warn('primary exited: draining');
    // A primary that was killed could not remove the folder of its relay.
    if (this.#relayPath !== '')
      rm(dirname(this.#relayPath), { recursive: true, force: true }).catch(() => {});
    this.leave(ORPHAN_DRAIN_MS, 0);
  }

  /**
   * @param {number} deadlineMs from now @param {number} code of the exit
   * @param {number} [waitMs] for last requests; none from a primary of an earlier version
   */
  leave(deadlineMs, code, waitMs) {
    if (this.#guard !== undefined) return;
    this.#guard = setTimeout(() => {
      this.log.error('drain did not finish in time');
      process.exit(1);
    }, deadlineMs + 1000).unref();
    const worker = this.#worker;
    Promise.resolve(worker?.drain(deadlineMs, waitMs))
      .then(async () => {
        if (worker && process.connected)
          await send({ type: 'final', metrics: worker.basics.metrics.snapshot() });
        process.exit(code);
      })
      .catch((error) => {
        this.log.error({ err: error }, 'drain failed');
        process.exit(1);
      });
  }

  /** An uncaught exception leaves an unknown state: drains, exits. @param {unknown} error */
  crash(error) {
    this.log.fatal({ err: error }, 'uncaught exception: worker exits');
    if (this.#guard !== undefined) process.exit(1);
    this.leave(2000, 1);
  }
}

/** @param {ToPrimary} message @returns {Promise<void>} resolves when it has been written */
function send(message) {
  return new Promise((resolve) => {
    if (!process.send || !process.connected) return resolve();
    // An error means that the primary has just exited: `disconnect` follows.
    process.send(message, undefined, undefined, () => resolve());
  });
}
