// primary.js: the process without client sockets. It runs the relay, the supervisor and the
// operations port, and handles the signals.
//   SIGTERM, SIGINT   drain and exit with 0; a second signal exits with 1 at once
//   SIGHUP            reload the configuration, worker by worker; on a terminal drain, because there
//                     it means that the terminal was closed
//   npm exits         drain, because npm's shell does not pass signals on
//
// An uncaught error drains the workers and exits with 1. If the primary is killed, the workers
// notice that their IPC channel is closed, drain by themselves and exit.

import { within } from '../backend/deferred.js';
import { RelayServer } from '../backend/embedded/relay-server.js';
import { compact } from '../backend/embedded/revocation-file.js';
import { consoleAccess } from '../config/console.js';
import { listenFault } from '../config/listen-fault.js';
import { RoomRules, streamRulesOf } from '../config/room-patterns.js';
import { CONSOLE_METRICS, Console } from '../console/console.js';
import { endedNote, glance } from '../doctor/doctor.js';
import { Aggregate } from '../observability/aggregate.js';
import { flushLog, writeBanner } from '../observability/log.js';
import { createPrimaryMetrics } from '../observability/registry.js';
import { ANNOUNCEMENTS } from '../protocol/publication.js';
import { banner, isOpen } from './banner.js';
import { OpsServer } from './ops-server.js';
import { Supervisor } from './supervisor.js';

/** Time for the relay and the operations port to close when all workers have exited. */
const CLOSE_TIMEOUT_MS = 1000;
/** What a drain and a reconnect take in addition to FANFARE_RECONNECT_WINDOW_MS. */
const RETURN_MS = 5000;
/** The primary's id in the aggregate. Workers have ids above it, couriers below. */
const PRIMARY_ID = 0;

/** @import { openRecorder } from '../backend/embedded/event-recorder.js' */
/** @import { Covers } from '../backend/webhook-reporter.js' */
/** @import { Config } from '../config/settings.js' */
/** @import { CourierProcess } from './courier-process.js' */
/** @import { Settings } from './supervisor.js' */
/** @import { Logger } from 'pino' */

/**
 * @typedef {object} PrimaryParts
 * @property {Settings} settings
 * @property {(previous: Config) => Promise<{settings: Settings, faults: string[]}>} loadSettings
 * @property {string} exec the workers' entry point
 * @property {boolean} onTerminal a terminal started it
 * @property {() => boolean} isHungUp SIGHUP has come since the process started
 * @property {boolean} hasHello the user can run `npm run hello`
 * @property {boolean} isProduction @property {boolean} byNpm npm or npx started it
 * @property {Logger} log
 */

/** Runs until a signal or a fault ends the process. @param {PrimaryParts} parts */
export async function runPrimary(parts) {
  const primary = new Primary(parts);
  process.on('SIGTERM', (signal) => primary.processOnSignal(signal));
  process.on('SIGINT', (signal) => primary.processOnSignal(signal));
  process.on('SIGHUP', () => primary.processOnHangup());
  process.on('uncaughtException', (error) => primary.processOnFault(error));
  process.on('unhandledRejection', (error) => primary.processOnFault(error));
  await primary.start();
}

class Primary {
  #signals = 0;
  /** @type {Supervisor|undefined} */
  #supervisor;
  /** @type {CourierProcess|undefined} */
  #courier;
  /** @type {Awaited<ReturnType<typeof openRecorder>>|undefined} */
  #recorder;
  /** The settings loaded last: the new workers of a reload use them before the reload ends. */
  #webhooks = /** @type {Config['webhooks']} */ (null);
  #aggregate = new Aggregate();
  #sampled = { aggregate: new Aggregate(), names: CONSOLE_METRICS };
  #parent = process.ppid;

  /** @param {PrimaryParts} parts */
  constructor(parts) {
    const { config } = parts.settings;
    const { log } = parts;
    this.parts = parts;
    this.config = config;
    this.log = log;
    const streams = new RoomRules(streamRulesOf(config));
    this.relay = new RelayServer({
      log,
      historyOf: (room) => streams.ruleFor(room),
      presence: { maxMembers: config.presenceMaxMembers, announcements: ANNOUNCEMENTS },
      onHung: (pid) => this.#supervisor?.killHung(pid, 'not reading its relay link'),
    });
    this.page = new Console({
      config: () => this.#supervisor?.settings.config ?? config,
      readiness: () => this.#readiness(),
      slots: () => this.#supervisor?.slotStates() ?? [],
      workers: () => [...(this.#supervisor?.processes.values() ?? [])],
      nextReady: () => this.#supervisor?.nextReady(),
      collect: async () => this.#supervisor?.samples.collect(),
      aggregate: this.#sampled.aggregate,
      courier: () => this.#courier,
      log,
    });
    const own = this.#createMetrics();
    /** @type {OpsServer} */
    this.ops = new OpsServer({
      port: config.metricsPort,
      host: config.metricsHost,
      metrics: async () => {
        await this.#supervisor?.snapshots.collect();
        this.#aggregate.update(PRIMARY_ID, own.snapshot());
        return this.#aggregate.toPrometheus();
      },
      readiness: () => this.#readiness(),
      pages: this.page.routes,
      log,
    });
  }

  #createMetrics() {
    const { relay } = this;
    return createPrimaryMetrics({
      workersUp: () => this.#supervisor?.workersUp() ?? {},
      restarts: () => this.#supervisor?.restarts ?? 0,
      deaths: () => this.#supervisor?.deaths.byCause ?? {},
      isCrashLoop: () => this.#supervisor?.deaths.isCrashLoop() ?? false,
      reloads: () => this.#supervisor?.reloads ?? 0,
      hasReloadSucceeded: () => this.#supervisor?.hasReloadSucceeded ?? true,
      skew: () => this.#supervisor?.skew() ?? 1,
      rebalances: () => this.#supervisor?.balancer.results ?? {},
      leftOut: () => relay.bus.leftOut,
      reconciledPlaces: () => relay.places.reconciled,
      fleetLimits: () => relay.places.fleet.figures(),
      presenceEvents: () => relay.bus.members.events,
      history: () => relay.bus.history(),
      opsSocketsClosed: () => this.ops.closed,
      courierRestarts: () => this.#courier?.restarts ?? 0,
    });
  }

  #readiness() {
    const { workers } = this.config;
    return this.#supervisor?.readiness() ?? { ready: 0, workers, draining: this.#signals > 0 };
  }

  async start() {
    const { config, log } = this;
    await this.#prepare();
    await this.#record(config);
    let metricsPort = 0;
    try {
      await this.relay.start();
      metricsPort = await this.ops.start();
    } catch (error) {
      const fault = /** @type {NodeJS.ErrnoException} */ (error);
      const { metricsPort: port, metricsHost: host } = config;
      const why = listenFault(fault, { name: 'METRICS_PORT', port, host });
      log.fatal(why === '' ? { err: error } : {}, `cannot start: ${why || fault.message}`);
      return this.#exit(1);
    }
    // A signal may have arrived meanwhile.
    if (this.#signals > 0) return;
    this.#supervise(metricsPort);
    await this.#replaceCourier(this.parts.settings);
  }

  /** Cleans the state folder, and warns of settings that have less effect than they seem to. */
  async #prepare() {
    const { config, log } = this;
    if (config.stateDir !== '')
      await compact(config.stateDir).catch((error) =>
        log.error(
          `cannot write to FANFARE_STATE_DIR, so revocations are refused: ${error.message}`,
        ),
      );
    if (config.tokens !== null && config.redis === null && config.stateDir === '')
      log.warn('revocations are lost when this server stops: set FANFARE_STATE_DIR, or use Redis');
    if (config.redisSubscriptions === 'server')
      log.warn('REDIS_SUBSCRIPTIONS=server no longer has an effect: remove it');
    const { access, why } = consoleAccess(config);
    if (access === 'off' && config.console !== 'off') log.info(`the console is off: ${why}`);
  }

  /** Records events here if there is no Redis. @param {Config} config */
  async #record({ webhooks, redis, stateDir }) {
    this.#webhooks = webhooks;
    if (!webhooks?.hasEndpoints || redis !== null || this.#recorder !== undefined) return;
    const { openRecorder } = await import('../backend/embedded/event-recorder.js');
    /** @type {Covers} */
    const covers = (type, room) => {
      const current = this.#supervisor?.settings.config.webhooks;
      return [current, this.#webhooks].some((one) => one?.covers(type, room));
    };
    this.#recorder = await openRecorder({ covers, stateDir, log: this.log });
    this.relay.bus.recordBy(this.#recorder.recorder);
  }

  /** @param {number} metricsPort in use */
  #supervise(metricsPort) {
    const { config, log, page } = this;
    const { settings, exec, loadSettings, hasHello, isProduction } = this.parts;
    this.#supervisor = new Supervisor({
      settings,
      log,
      relayPath: this.relay.path,
      aggregate: this.#aggregate,
      console: this.#sampled,
      exec,
      loadSettings: async (previous) => {
        const loaded = await loadSettings(previous);
        if (loaded.faults.length === 0) await this.#record(loaded.settings.config);
        return loaded;
      },
      observer: {
        onMark: (kind, text) => page.mark(kind, text),
        onAnswer: (_one, message) => page.actions.receive(message),
        onGone: (one) => page.actions.gone(one),
        onDrain: (returnMs) => this.#courier?.pauseLeaves(returnMs + RETURN_MS),
        onReloaded: (next) => {
          this.#replaceCourier(next).catch((error) =>
            log.error({ err: error }, 'cannot replace the courier'),
          );
        },
        onBeat: (nowMs) => {
          page.sampleIfDue(nowMs);
          if (this.parts.byNpm) this.#watchNpm();
        },
      },
      onReady: ({ port }, isBrokerUp) =>
        announce(log, { config, port, metricsPort, isBrokerUp, hasHello }, isProduction),
      onStopped: (code) => this.#exit(code),
    });
    this.#supervisor.start();
    // The settings may have been read before the signal.
    if (this.parts.isHungUp()) this.#supervisor.reload();
  }

  /** Loads the courier's code only if there are endpoints. @param {Settings} settings */
  async #replaceCourier(settings) {
    if (this.#courier === undefined && !settings.config.webhooks?.hasEndpoints) return;
    const { CourierProcess } = await import('./courier-process.js');
    this.#courier ??= new CourierProcess({
      exec: this.parts.exec,
      aggregate: this.#aggregate,
      queue: () => this.#recorder?.queue ?? null,
      log: this.log,
    });
    await this.#courier.reload(settings);
  }

  /** @param {NodeJS.Signals} signal */
  processOnSignal(signal) {
    const supervisor = this.#supervisor;
    this.#signals++;
    if (this.#signals > 1) {
      this.log.warn({ signal }, 'second signal: exiting immediately');
      supervisor?.kill();
      process.exit(1);
    }
    this.log.info({ signal }, 'draining');
    // Ctrl-C, or a closed terminal: a person waits, and there is no load balancer.
    const isByHand = this.parts.onTerminal && signal !== 'SIGTERM';
    if (supervisor) supervisor.stop(0, { isByHand });
    else this.#exit(0);
  }

  processOnHangup() {
    if (!this.parts.onTerminal) this.#supervisor?.reload();
    // The shell and the kernel may both send SIGHUP. The second one is not another request.
    else if (this.#signals === 0) this.processOnSignal('SIGHUP');
  }

  /** Drains when npm has exited: the kernel does not tell a process that its parent has. */
  #watchNpm() {
    if (process.ppid === this.#parent || this.#signals > 0) return;
    this.log.info('npm, which started this server, has exited');
    this.processOnSignal('SIGTERM');
  }

  /** @param {unknown} error */
  processOnFault(error) {
    this.log.fatal({ err: error }, 'uncaught exception: draining');
    if (this.#supervisor) this.#supervisor.stop(1);
    else this.#exit(1);
  }

  /** @param {number} code */
  async #exit(code) {
    // All workers have exited, so nothing more is recorded.
    await this.#courier?.stop();
    const closing = Promise.allSettled([this.relay.close(), this.ops.close()]);
    await within(closing, CLOSE_TIMEOUT_MS);
    await this.#recorder?.save();
    this.log[code === 0 ? 'info' : 'error']({ code }, 'fanfare stopped');
    await flushLog();
    process.exit(code);
  }
}

/** @param {Logger} log @param {Parameters<typeof banner>[0]} parts @param {boolean} isProduction */
function announce(log, parts, isProduction) {
  const { config, port, metricsPort } = parts;
  const lines = banner(parts);
  if (!writeBanner(lines)) {
    const [first, ...rest] = lines;
    log.info({ port, metricsPort, workers: config.workers }, first.text);
    for (const { text } of rest) log.info(text.trim());
  }
  if (isProduction && isOpen(config))
    log.warn('access is open to everyone: neither keys for tokens nor hooks are configured');
  const aged = endedNote(process.version, Date.now());
  if (aged !== '') log.warn(`${aged}: use Node 22.23, 24.22 or 26.12, or later`);
  const shortage = glance(config);
  if (shortage !== '') log.warn(shortage);
}
