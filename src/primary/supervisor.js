// supervisor.js: forks the workers and keeps them alive.
//
// Each worker has a numbered slot. worker-process.js has the states of a worker.
//
// - A worker that exits unexpectedly is replaced after a pause (deaths.js). The supervisor stops if
//   the first worker fails to start, or if new ones keep failing while no worker serves.
// - A worker that sends no message for workerTimeoutMs is hung and killed, unless it is busy.
// - Reload: all new workers start, one after another. Then the old ones stop accepting and are
//   drained one by one, so each client is closed once and returns to a new worker. An invalid
//   configuration, or a new worker that does not become ready, aborts the reload before that. If
//   only the TLS certificate has changed, the workers get it and stay.
// - Balance: if connections are spread unevenly, workers relocate some; balance.js decides.
// - Stop: become not ready, wait for the load balancer, drain all workers, kill the rest.
//
// Its messages to workers are in worker/control-messages.js.

import cluster from 'node:cluster';
import { setTimeout as delay } from 'node:timers/promises';
import { certificateWarning } from '../config/certificate.js';
import { isEqualExceptTls } from '../config/config.js';
import { EXIT } from '../config/exit-codes.js';
import { BALANCE_INTERVAL_MS, Balancer, skewOf } from './balance.js';
import { Deaths } from './deaths.js';
import { SNAPSHOT_INTERVAL_MS, Snapshots } from './snapshots.js';
import { KILL_AFTER_MS, WorkerProcess, workerArguments } from './worker-process.js';

/** A start takes some 0.35 s of CPU. Workers start together: 72 on two processors take 13 s. */
const START_TIMEOUT_MS = 15_000;
const START_TIMEOUT_PER_WORKER_MS = 500;
/**
 * Before its drain, an old worker waits this long for last requests on kept-alive sockets: as long
 * as the public port keeps idle ones by default.
 */
export const LAST_REQUESTS_MS = 5000;

/** @import { Config } from '../config/settings.js' */
/** @import { MarkKind } from '../console/history.js' */
/** @import { Aggregate } from '../observability/aggregate.js' */
/** @import { ToPrimary } from '../worker/control-messages.js' */
/** @import { Load } from './balance.js' */
/** @typedef {{port: number, address: string}} Address */

/**
 * @typedef {object} Observer for the console and the courier; all of it is optional
 * @property {(kind: MarkKind, text: string) => void} onMark an event that explains a step in charts
 * @property {(one: WorkerProcess, message: import('../console/actions.js').Answer) => void} onAnswer
 * @property {(one: WorkerProcess) => void} onGone
 * @property {(returnMs: number) => void} onDrain a worker begins to drain; its clients return
 *   within this time
 * @property {(settings: Settings) => void} onReloaded all workers have the new settings
 * @property {(nowMs: number) => void} onBeat called once a second, or more often
 */

/**
 * @typedef {object} Settings that workers are started with
 * @property {Config} config @property {Readonly<Record<string, string|undefined>>} env
 * @property {import('../config/certificate.js').Certificate|null} certificate null without TLS
 */

export class Supervisor {
  /**
   * @param {object} parts @param {Settings} parts.settings @param {import('pino').Logger} parts.log
   * @param {string} parts.relayPath handed to the workers
   * @param {Aggregate} parts.aggregate gets the workers' snapshots
   * @param {{aggregate: Aggregate, names: ReadonlySet<string>}} parts.console gets the metrics with
   *   these names, when the console asks for them
   * @param {string} parts.exec the workers' entry point
   * @param {(previous: Config) => Promise<{settings: Settings, faults: string[]}>}
   *   parts.loadSettings for a reload; `faults`: one line per invalid or unchangeable setting
   * @param {Partial<Observer>} [parts.observer]
   * @param {(address: Address, isBrokerUp: boolean) => void} parts.onReady once: the workers listen
   * @param {(code: number) => void} parts.onStopped once, with the exit code: all have exited
   */
  constructor(parts) {
    const { settings, log, relayPath, aggregate, exec, loadSettings, onReady, onStopped } = parts;
    this.observer = parts.observer ?? {};
    this.settings = settings;
    this.log = log;
    this.relayPath = relayPath;
    this.exec = exec;
    this.loadSettings = loadSettings;
    this.onReady = onReady;
    this.onStopped = onStopped;
    /** Those that have not exited, by cluster id. @type {Map<number, WorkerProcess>} */
    this.processes = new Map();
    /** The current worker of each slot. @type {(WorkerProcess|undefined)[]} */
    this.slots = [];
    /** @type {Map<number, NodeJS.Timeout>} */
    this.replacements = new Map();
    this.deaths = new Deaths(log);
    this.balancer = new Balancer(log);
    this.snapshots = new Snapshots(aggregate, this.processes);
    this.samples = new Snapshots(parts.console.aggregate, this.processes, parts.console.names);
    /** The slot that `nextReady` returned last. */
    this.turn = 0;
    this.restarts = 0;
    this.reloads = 0;
    this.hasReloadSucceeded = true;
    this.isAnnounced = false;
    this.isStopping = false;
    this.isRolling = false;
    /** The new workers of a reload, by slot, until they take over. @type {WorkerProcess[]} */
    this.successors = [];
    this.mustRollAgain = false;
    this.exitCode = 0;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** When the next ones are due. */
    this.due = { balanceMs: 0, snapshotMs: 0 };
  }

  start() {
    const { workers, workerTimeoutMs, scheduling } = this.settings.config;
    this.#checkCertificate(this.settings);
    cluster.schedulingPolicy = scheduling === 'shared' ? cluster.SCHED_NONE : cluster.SCHED_RR;
    cluster.setupPrimary({
      exec: this.exec,
      // main.js tells by it that the worker is ours.
      args: ['worker'],
      execArgv: workerArguments(workers, this.settings.env.NODE_OPTIONS ?? ''),
      silent: false,
    });
    const beatMs = Math.min(1000, workerTimeoutMs / 4);
    let beganMs = performance.now();
    this.due = {
      balanceMs: beganMs + BALANCE_INTERVAL_MS,
      snapshotMs: beganMs + SNAPSHOT_INTERVAL_MS,
    };
    this.timer = setInterval(() => {
      const now = performance.now();
      // If this process was suspended, the workers' messages are still unread: none was silent.
      const stoodStill = now - beganMs > beatMs + 500;
      beganMs = now;
      this.#beat(now, stoodStill);
    }, beatMs);
    for (let slot = 0; slot < workers; slot++) this.#fill(slot);
  }

  /** @param {number} now @param {boolean} stoodStill */
  #beat(now, stoodStill) {
    const { due } = this;
    this.#checkBeats(now, stoodStill);
    this.deaths.checkCrashLoop();
    if (now >= due.balanceMs) {
      due.balanceMs = Math.max(due.balanceMs + BALANCE_INTERVAL_MS, now);
      this.#balance(now);
    }
    if (now >= due.snapshotMs) {
      due.snapshotMs = now + SNAPSHOT_INTERVAL_MS;
      this.snapshots.collect({ isScrape: false });
    }
    this.observer.onBeat?.(now);
  }

  /** @returns {{ready: number, workers: number, draining: boolean}} */
  readiness() {
    const ready = this.slots.filter((one) => one?.state === 'ready').length;
    return { ready, workers: this.settings.config.workers, draining: this.isStopping };
  }

  /** @returns {import('../console/routes.js').Slot[]} */
  slotStates() {
    return this.slots.map((one, slot) => ({
      slot,
      state: one?.state ?? 'missing',
      pid: one?.pid ?? null,
    }));
  }

  /** @param {number} pid @param {string} why */
  killHung(pid, why) {
    for (const one of this.processes.values()) if (one.pid === pid) this.#killHung(one, why);
  }

  /** 1 for each slot whose worker answered the last scrape, else 0. */
  workersUp() {
    /** @type {Record<string, number>} */
    const up = {};
    for (let slot = 0; slot < this.settings.config.workers; slot++) {
      const one = this.slots[slot];
      up[slot] = one && this.snapshots.answered.has(one.id) ? 1 : 0;
    }
    return up;
  }

  /** Replaces all workers. A call during a reload queues another one. */
  reload() {
    if (this.isStopping) return;
    if (this.isRolling) {
      this.mustRollAgain = true;
      this.log.info('reload already in progress: another one follows');
      return;
    }
    this.isRolling = true;
    // Now, because the reload may end before the next `step`.
    this.balancer.interrupt(performance.now());
    this.#roll()
      .catch((error) => {
        this.log.error({ err: error }, 'reload aborted');
        return false;
      })
      .then((hasSucceeded) => {
        this.hasReloadSucceeded = hasSucceeded;
        this.isRolling = false;
        const again = this.mustRollAgain;
        this.mustRollAgain = false;
        if (again) this.reload();
      });
  }

  /** @returns {Promise<boolean>} false: aborted */
  async #roll() {
    const { log } = this;
    const { settings, faults } = await this.loadSettings(this.settings.config);
    if (faults.length > 0) {
      log.error({ faults }, 'reload aborted: the new configuration is invalid, nothing changed');
      this.#mark('reload', 'Reload aborted: the new configuration is invalid, see the log');
      return false;
    }
    this.#checkCertificate(settings);
    if (isRenewal(this.settings, settings)) {
      this.#replaceCertificate(settings);
      return true;
    }
    log.info('reload started: starting the new workers');
    this.#mark('reload', 'Reload started: new workers start');
    const failed = await this.#startSuccessors(settings);
    if (this.isStopping) return true;
    if (failed !== null) {
      this.#mark('reload', `Reload aborted: the new worker ${failed} did not become ready`);
      log.error(
        { slot: failed },
        'reload aborted: the new worker did not become ready, keeping the old workers and configuration',
      );
      return false;
    }
    // The old workers use the old window; a SIGTERM meanwhile drains workers with the new one.
    const windowMs = Math.max(
      ...[this.settings, settings].map(({ config }) => config.reconnectWindowMs),
    );
    const old = this.#takeOver(settings);
    for (const one of old) {
      this.observer.onDrain?.(LAST_REQUESTS_MS + windowMs);
      await this.#drain(one, settings.config.shutdownTimeoutMs, LAST_REQUESTS_MS);
      if (this.isStopping) return true;
    }
    this.reloads++;
    log.info('reload complete');
    this.observer.onReloaded?.(settings);
    this.#mark('reload', 'Reload complete');
    return true;
  }

  /** @param {Settings} settings */
  #checkCertificate({ certificate }) {
    const warning = certificate === null ? '' : certificateWarning(certificate);
    if (warning !== '') this.log.warn({ expires: new Date(certificate?.expiresMs ?? 0) }, warning);
  }

  /** @param {Settings} settings */
  #replaceCertificate(settings) {
    this.settings = settings;
    for (const one of this.processes.values()) one.replaceCertificate(settings.certificate);
    this.reloads++;
    this.log.info(
      { expires: new Date(settings.certificate?.expiresMs ?? 0) },
      'reload complete: new TLS certificate, the workers stay',
    );
    this.#mark('reload', 'Reload complete: new TLS certificate, the workers stay');
  }

  /**
   * Starts a new worker for each slot while the old one serves: one after another, because starts
   * take CPU from the old ones.
   * @param {Settings} settings
   * @returns {Promise<number|null>} the slot whose worker did not become ready; null: all are ready
   */
  async #startSuccessors(settings) {
    for (let slot = 0; slot < settings.config.workers && !this.isStopping; slot++) {
      const one = this.#fork(slot, settings);
      if (one !== undefined) {
        this.successors[slot] = one;
        this.#cancelReplacement(slot);
      }
      // The worker's exit aborts the reload and is no death.
      one?.allowExit(true);
      if (!(await one?.started)) return this.#dismissSuccessors(slot);
    }
    // One may have died after its `ready`.
    const gone = this.successors.findIndex(({ state }) => state === 'gone');
    return gone >= 0 || this.isStopping ? this.#dismissSuccessors(gone) : null;
  }

  /** The old workers stay. @param {number} failed the slot whose new worker failed */
  #dismissSuccessors(failed) {
    if (this.isStopping) return failed; // `stop` drains or ends them
    for (const [slot, one] of this.successors.splice(0).entries()) {
      if (one.state !== 'gone') one.kill();
      // The old one may have died meanwhile.
      if (this.slots[slot] === undefined) this.#fill(slot);
    }
    return failed;
  }

  /**
   * The new workers own the slots. The old ones stop accepting and keep their connections.
   * @param {Settings} settings of the new ones @returns the old ones
   */
  #takeOver(settings) {
    const old = [];
    for (const [slot, one] of this.successors.splice(0).entries()) {
      const before = this.slots[slot];
      one.allowExit(false);
      this.slots[slot] = one;
      if (before === undefined) continue;
      if (before.state === 'starting') {
        // A starting worker has no clients, and cannot hear `retire`: it would accept some later.
        before.end();
        continue;
      }
      before.allowExit(true);
      before.send({ type: 'retire' });
      old.push(before);
    }
    this.settings = settings;
    this.log.level = settings.config.logLevel;
    this.log.info('new workers are ready: draining the old ones one by one');
    return old;
  }

  /**
   * Drains a worker, and kills it if it does not exit in time.
   * @param {WorkerProcess} one @param {number} timeoutMs @param {number} waitMs for last requests
   * @returns whether it exited by itself
   */
  async #drain(one, timeoutMs, waitMs) {
    if (await one.drain(timeoutMs, waitMs)) return true;
    this.log.error({ slot: one.slot, pid: one.pid }, 'worker did not exit in time: killed');
    await one.end();
    return false;
  }

  /**
   * Stops in order: not ready, a delay for the load balancer, drain, `onStopped`.
   * @param {number} code to exit with, if nothing has to be killed
   * @param {{isByHand?: boolean}} [how] `isByHand`: without the delay
   */
  async stop(code, { isByHand = false } = {}) {
    this.exitCode = Math.max(this.exitCode, code);
    if (this.isStopping) return;
    this.isStopping = true;
    this.#mark('drain', 'Drain started: the server stops');
    const { drainDelayMs, shutdownTimeoutMs, reconnectWindowMs } = this.settings.config;
    const endMs = performance.now() + shutdownTimeoutMs;
    for (const slot of [...this.replacements.keys()]) this.#cancelReplacement(slot);
    for (const one of this.processes.values()) one.send({ type: 'unready' });
    // A server without ready workers has no load balancer to wait for.
    const serves = [...this.processes.values()].some((one) => one.state === 'ready');
    if (serves && !isByHand) await delay(Math.min(drainDelayMs, shutdownTimeoutMs / 2));
    this.observer.onDrain?.(reconnectWindowMs);
    const ends = [...this.processes.values()].map((one) => {
      if (one.state === 'starting') return one.end().then(() => true);
      return this.#drain(one, Math.max(0, endMs - KILL_AFTER_MS / 2 - performance.now()), 0);
    });
    const left = await Promise.all(ends);
    if (left.includes(false)) this.exitCode = Math.max(this.exitCode, 1);
    clearInterval(this.timer);
    this.onStopped(this.exitCode);
  }

  kill() {
    this.isStopping = true;
    for (const one of this.processes.values()) one.kill();
  }

  /** @param {number} slot */
  #fill(slot) {
    this.#cancelReplacement(slot);
    this.slots[slot] = this.#fork(slot, this.settings);
    // A failed fork counts as a failed start.
    if (!this.slots[slot]) this.#died(slot, 'start');
  }

  /**
   * @param {number} slot @param {Settings} settings
   * @returns undefined if the system cannot start another process
   */
  #fork(slot, { config, env, certificate }) {
    let worker;
    try {
      worker = cluster.fork(env);
    } catch (error) {
      this.log.error({ err: error, slot }, 'cannot fork a worker');
      return undefined;
    }
    const timeoutMs = START_TIMEOUT_MS + START_TIMEOUT_PER_WORKER_MS * this.settings.config.workers;
    const one = new WorkerProcess(worker, slot, timeoutMs, { certificate, config });
    this.processes.set(one.id, one);
    worker.on('message', (message) => this.#workerOnMessage(one, message));
    worker.on('exit', (code, signal) => this.#workerOnExit(one, code, signal));
    worker.on('error', (error) => {
      this.log.warn({ err: error, slot }, 'worker');
      // The process did not start, so no `exit` follows.
      if (one.pid === undefined) this.#workerOnExit(one, null, null);
    });
    return one;
  }

  /** @param {WorkerProcess} one @param {ToPrimary} message */
  #workerOnMessage(one, message) {
    one.liveness.heard();
    switch (message.type) {
      case 'beat':
        one.beats(message);
        break;
      case 'loaded':
        // A message right after the fork would arrive while the worker's modules load, and be lost.
        one.start(this.relayPath);
        break;
      case 'ready':
        this.#workerOnReady(one, message);
        break;
      case 'failed':
        one.startFailed(message.message, message.isInvalidSetting);
        break;
      case 'metrics':
        one.answeredMetrics();
        (message.isPart ? this.samples : this.snapshots).receive(
          one,
          message.request,
          message.metrics,
        );
        break;
      case 'operated':
      case 'tailed':
      case 'tail-ended':
        this.observer.onAnswer?.(one, message);
        break;
      case 'final':
        for (const snapshots of [this.snapshots, this.samples])
          snapshots.receive(one, 0, message.metrics);
        break;
    }
  }

  /**
   * @param {WorkerProcess} one
   * @param {{address: Address, isBrokerUp?: boolean}} message older workers omit `isBrokerUp`
   */
  #workerOnReady(one, { address, isBrokerUp = true }) {
    if (one.state !== 'starting') return;
    one.ready();
    this.deaths.workerStarted();
    this.log.info({ slot: one.slot, workerPid: one.pid }, 'worker ready');
    if (this.isStopping) one.send({ type: 'unready' });
    this.#mark('start', `Worker ${one.slot} is ready`);
    if (this.isAnnounced || this.isStopping) return;
    const isPartial = this.slots.some(
      (other, slot) => other?.state === 'starting' && this.successors[slot]?.state !== 'ready',
    );
    if (isPartial) return;
    this.isAnnounced = true;
    this.onReady(address, isBrokerUp);
  }

  /** @param {WorkerProcess} one @param {number|null} code @param {string|null} signal */
  #workerOnExit(one, code, signal) {
    if (one.state === 'gone') return;
    const was = one.state;
    one.gone();
    this.processes.delete(one.id);
    this.snapshots.depart(one);
    this.samples.depart(one);
    this.observer.onGone?.(one);
    this.balancer.interrupt(performance.now());
    if (this.slots[one.slot] === one) this.slots[one.slot] = undefined;
    const { slot, failure } = one;
    const exit = { slot, workerPid: one.pid, code, signal, failure: failure || undefined };
    const isFirstStart =
      was === 'starting' &&
      !this.isAnnounced &&
      !this.slots.some((other) => other?.state === 'ready');
    if (one.mayExit || this.isStopping) {
      // If the server cannot start, one line is enough.
      this.log[code === 0 || isFirstStart ? 'info' : 'warn'](exit, 'worker exited');
    } else if (isFirstStart) {
      const why = failure || `a worker exited with ${signal ?? `code ${code}`} before it was ready`;
      this.log.fatal({ slot, workerPid: one.pid }, `cannot start: ${why}`);
      this.stop(one.isInvalidSetting ? EXIT.config : EXIT.failed);
    } else {
      this.log.error(exit, 'worker died');
      const why = one.isHung ? 'hung and was killed' : `died (${signal ?? `exit code ${code}`})`;
      this.#mark('restart', `Worker ${slot} ${why}`);
      this.#died(slot, was === 'starting' ? 'start' : one.isHung ? 'hung' : 'crashed');
    }
    one.resolveEnded?.();
  }

  /**
   * A worker exited unexpectedly: replaces it or gives up.
   * @param {number} slot @param {'crashed'|'hung'|'start'} cause
   */
  #died(slot, cause) {
    this.deaths.recordDeath(cause);
    const serves = this.slots.some((one) => one?.state === 'ready');
    if (this.deaths.isHopeless && !serves) {
      this.log.fatal(
        `giving up: no worker is serving, and the last ${this.deaths.failedStarts} workers did not start`,
      );
      this.stop(1);
      return;
    }
    if (this.successors[slot] !== undefined) return; // the reload fills the slot
    const afterMs = this.deaths.restartPauseMs;
    this.log.warn({ slot, afterMs }, 'replacing worker');
    const replace = () => {
      this.restarts++;
      this.#fill(slot);
    };
    this.replacements.set(slot, setTimeout(replace, afterMs));
  }

  /** Missing workers count as empty. */
  skew() {
    return skewOf(this.slots.map((one) => one?.beat.connections ?? 0));
  }

  /** @param {number} nowMs */
  #balance(nowMs) {
    const { config } = this.settings;
    const orders = this.balancer.step(nowMs, this.#loads(nowMs), {
      skewPercent: config.rebalanceSkewPercent,
      ratePercent: config.rebalanceRatePercent,
      settleMs: config.reconnectWindowMs,
    });
    for (const [slot, connections] of orders.entries())
      if (connections > 0) this.slots[slot]?.send({ type: 'rebalance', connections });
  }

  /** @param {number} nowMs @returns {Load[]|null} null if a worker is missing, starts or drains */
  #loads(nowMs) {
    if (this.isStopping || this.isRolling) return null;
    const loads = [];
    for (const one of this.slots) {
      if (one?.state !== 'ready') return null;
      loads.push(one.load(nowMs));
    }
    return loads;
  }

  /** The worker for a request of the console. Ready ones take turns, except silent ones. */
  nextReady() {
    const { slots } = this;
    const now = performance.now();
    for (let i = 0; i < slots.length; i++) {
      this.turn = (this.turn + 1) % slots.length;
      const one = slots[this.turn];
      if (one?.state === 'ready' && !one.liveness.isSilent(now)) return one;
    }
    return undefined;
  }

  /** @param {MarkKind} kind @param {string} text */
  #mark(kind, text) {
    this.observer.onMark?.(kind, text);
  }

  /** @param {number} slot */
  #cancelReplacement(slot) {
    clearTimeout(this.replacements.get(slot));
    this.replacements.delete(slot);
  }

  /** @param {number} now @param {boolean} stoodStill */
  #checkBeats(now, stoodStill) {
    const { workerTimeoutMs } = this.settings.config;
    for (const one of this.processes.values()) {
      if (stoodStill) one.liveness.heard(now);
      // Workers that start or drain have their own deadlines.
      if (one.state !== 'ready' || one.isHung) continue;
      const found = one.liveness.judge(one.pid, now, workerTimeoutMs);
      const where = { slot: one.slot, workerPid: one.pid };
      if (found === 'hung') {
        this.#killHung(one, `silent for ${Math.round(one.liveness.silentMs(now))} ms`);
      } else if (found === 'busy') {
        this.log.warn(where, 'worker is busy: its event loop is blocked');
      } else if (found === 'recovered') {
        this.log.info(where, 'busy worker responds again');
      }
    }
  }

  /** @param {WorkerProcess} one @param {string} why */
  #killHung(one, why) {
    this.log.error({ slot: one.slot, workerPid: one.pid, why }, 'worker hung: killed');
    one.killHung(why);
  }
}

/** Have only the certificate or its key changed? @param {Settings} old @param {Settings} next */
function isRenewal(old, next) {
  if (old.certificate === null || next.certificate === null) return false;
  const { cert, key } = next.certificate;
  if (cert === old.certificate.cert && key === old.certificate.key) return false;
  return isEqualExceptTls(old.config, next.config);
}
