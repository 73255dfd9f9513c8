// process.js: one worker process: its signals, its messages to and from the primary, its exit.
//
// The primary owns the signals and commands a worker by IPC (control-messages.js). A worker
// that loses its primary, or the primary's relay, drains on its own and exits.

import cluster from 'node:cluster';
import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Phase } from './phase.js';
import { createWorker } from './worker.js';

/** How long a worker may take to drain if no primary is left to set a deadline. */
const ORPHAN_DRAIN_MS = 10_000;

/** @typedef {import('../config/settings.js').Config} Config */
/** @typedef {import('pino').Logger} Logger */
/** @typedef {import('./worker.js').Worker} Worker */

/**
 * Runs until the primary orders a drain, then exits the process with 0.
 * @param {Config} config @param {Logger} log
 */
export function runWorker(config, log) {
  // The terminal's Ctrl-C reaches the whole process group. The primary decides the next step.
  process.on('SIGINT', () => {});
  process.on('SIGTERM', () => {});
  process.on('SIGHUP', () => {});
  /** @type {Worker|undefined} */
  let worker;
  const phase = new Phase();
  let relayPath = '';
  /** @type {import('./control-messages.js').Certificate|null} */
  let certificate = null;
  /** @param {{slot: number, relayPath: string}} message */
  const begin = async ({ slot, ...start }) => {
    relayPath = start.relayPath;
    worker = await createWorker({
      config,
      log: log.child({ worker: slot }),
      phase,
      slot,
      relayPath,
      certificate: () => certificate,
      onBeat: (beat) => send({ type: 'beat', ...beat }),
      onOrphaned: () => leave(worker, phase, ORPHAN_DRAIN_MS, 1, log),
    });
    return worker.start();
  };
  /** @param {import('./control-messages.js').ToWorker} message */
  const processOnMessage = (message) => {
    switch (message.type) {
      case 'certificate':
        certificate = message.certificate;
        worker?.replaceCertificate(certificate);
        break;
      case 'start':
        certificate = message.certificate;
        begin(message).then(
          ({ isBrokerUp, ...address }) => send({ type: 'ready', address, isBrokerUp }),
          (error) => {
            const isInUse = error.code === 'EADDRINUSE';
            // The primary says so, once for all workers. A stack has nothing to add.
            if (!isInUse) log.error({ err: error }, 'worker cannot start');
            send({ type: 'failed', message: isInUse ? portInUse(config) : error.message });
            process.exitCode = 1;
            // The message above needs a moment to reach the primary.
            setTimeout(() => process.exit(1), 100);
          },
        );
        break;
      case 'metrics':
        worker?.snapshot(message.names).then(
          (metrics) =>
            send({
              type: 'metrics',
              request: message.request,
              isPart: message.names !== null,
              metrics,
            }),
          (error) => log.error({ err: error }, 'cannot collect metrics'),
        );
        break;
      case 'unready':
        phase.enter('leaving');
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
        leave(worker, phase, message.deadlineMs, 0, log);
        break;
    }
  };
  process.on('message', processOnMessage);
  process.on('disconnect', () => {
    log.warn('primary exited: draining');
    // A primary that was killed could not remove the folder of its relay.
    if (relayPath) rm(dirname(relayPath), { recursive: true, force: true }).catch(() => {});
    leave(worker, phase, ORPHAN_DRAIN_MS, 0, log);
  });
  // A message to a primary that has just been killed fails with EPIPE. `disconnect` follows.
  cluster.worker?.on('error', (error) => log.debug({ err: error }, 'IPC channel error'));
  // Without this listener Node ends a worker at once when it loses its primary, and its clients see
  // 1006.
  if (cluster.worker) cluster.worker.exitedAfterDisconnect = true;
  process.on('uncaughtException', (error) => crash(error, worker, phase, log));
  process.on('unhandledRejection', (error) => crash(error, worker, phase, log));
}

/** @param {import('../config/settings.js').Config} config @returns {string} */
function portInUse({ host, port }) {
  const address = host === '' ? `port ${port}` : `${host}:${port}`;
  return `${address} (PORT) is in use (EADDRINUSE): set another port`;
}

/**
 * @param {Worker|undefined} worker
 * @param {Phase} phase
 * @param {number} deadlineMs from now
 * @param {number} code
 * @param {Logger} log
 */
function leave(worker, phase, deadlineMs, code, log) {
  if (phase.isDraining) return;
  phase.enter('draining');
  const guard = setTimeout(() => {
    log.error('drain did not finish in time');
    process.exit(1);
  }, deadlineMs + 1000);
  guard.unref();
  Promise.resolve(worker?.drain(deadlineMs))
    .then(async () => {
      if (worker && process.connected)
        await send({ type: 'final', metrics: await worker.snapshot() });
      process.exit(code);
    })
    .catch((error) => {
      log.error({ err: error }, 'drain failed');
      process.exit(1);
    });
}

/**
 * After an uncaught exception the worker's state can't be trusted. The worker drains and exits, and
 * the supervisor starts another.
 * @param {unknown} error @param {Worker|undefined} worker @param {Phase} phase @param {Logger} log
 */
function crash(error, worker, phase, log) {
  log.fatal({ err: error }, 'uncaught exception: worker exits');
  if (phase.isDraining) process.exit(1);
  leave(worker, phase, 2000, 1, log);
}

/**
 * @param {import('./control-messages.js').ToPrimary} message
 * @returns {Promise<void>} resolves when the message has been written
 */
function send(message) {
  return new Promise((resolve) => {
    if (!process.send || !process.connected) return resolve();
    // An error means that the primary has just exited: `disconnect` follows.
    process.send(message, undefined, undefined, () => resolve());
  });
}
