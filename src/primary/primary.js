// primary.js: the process without client sockets. It runs the relay, the supervisor and the
// operations port, and handles the signals.
//
//   SIGTERM, SIGINT   drain and exit with 0; a second signal exits with 1 at once
//   SIGHUP            reload the configuration, worker by worker. On a terminal it drains the server,
//                     because there it means that the terminal was closed
//   npm exits         drain: npm runs a command through a shell, which passes no signals on. So a
//                     signal that was meant for the server ended npm and its shell
//
// An uncaught error drains the workers and exits with 1. If the primary is killed, the workers
// notice that their IPC channel is closed, drain by themselves and exit.

import { RelayServer } from '../backend/embedded/relay-server.js';
import { compact } from '../backend/embedded/revocation-file.js';
import { consoleAccess } from '../config/console.js';
import { RoomRules } from '../config/room-patterns.js';
import { CONSOLE_METRICS, Console } from '../console/console.js';
import { glance } from '../doctor/doctor.js';
import { Aggregate } from '../observability/aggregate.js';
import { flushLog, writeBanner } from '../observability/log.js';
import { createPrimaryMetrics } from '../observability/registry.js';
import { ANNOUNCEMENTS } from '../protocol/publication.js';
import { banner, isOpen } from './banner.js';
import { OpsServer } from './ops-server.js';
import { Supervisor } from './supervisor.js';

/** Time for the relay and the operations port to close when all workers have exited. */
const CLOSE_TIMEOUT_MS = 1000;
/** The kernel does not tell a process that its parent has exited. */
const PARENT_CHECK_MS = 500;

/** @typedef {import('./supervisor.js').Settings} Settings */

/**
 * Runs until a signal or a fault ends the process.
 * @param {object} parts
 * @param {Settings} parts.settings
 * @param
 *   {(previous: import('../config/settings.js').Config) => Promise<{settings: Settings, faults: string[]}>}
 *   parts.loadSettings
 * @param {string} parts.exec the workers' entry point
 * @param {boolean} parts.onTerminal whether a terminal started it
 * @param {boolean} parts.hasHello whether somebody at a terminal can run `npm run hello`
 * @param {boolean} parts.isProduction
 * @param {boolean} parts.byNpm whether npm or npx started it
 * @param {import('pino').Logger} parts.log
 */
export async function runPrimary(parts) {
  const { settings, loadSettings, exec, onTerminal, byNpm, hasHello, isProduction, log } = parts;
  const { config } = settings;
  let signals = 0;
  /** @type {Supervisor|undefined} */
  let supervisor;
  let metricsPort = 0;

  const history = new RoomRules(config.history);
  const relay = new RelayServer({
    log,
    historyOf: (room) => history.of(room),
    presence: { maxMembers: config.presenceMaxMembers, announcements: ANNOUNCEMENTS },
    onHung: (pid) => supervisor?.killHung(pid, 'not reading its relay link'),
  });
  const aggregate = new Aggregate();
  const sampled = { aggregate: new Aggregate(), names: CONSOLE_METRICS };
  const own = createPrimaryMetrics({
    workersUp: () => supervisor?.workersUp() ?? {},
    restarts: () => supervisor?.restarts ?? 0,
    deaths: () => supervisor?.deaths.byCause ?? {},
    isCrashLoop: () => supervisor?.deaths.isCrashLoop() ?? false,
    reloads: () => supervisor?.reloads ?? 0,
    skew: () => supervisor?.skew() ?? 1,
    rebalances: () => supervisor?.balancer.results ?? {},
    leftOut: () => relay.leftOut,
    reconciledPlaces: () => relay.reconciledPlaces,
    fleetLimits: () => relay.fleet.figures(),
    presenceEvents: () => relay.members.events,
    history: () => relay.history(),
    opsSocketsClosed: () => ops.closed,
  });
  const readiness = () =>
    supervisor?.readiness() ?? { ready: 0, workers: config.workers, draining: signals > 0 };
  const page = new Console({
    config: () => supervisor?.settings.config ?? config,
    readiness,
    slots: () => supervisor?.slotStates() ?? [],
    workers: () => [...(supervisor?.processes.values() ?? [])],
    nextReady: () => supervisor?.nextReady(),
    collect: async () => supervisor?.samples.collect(),
    aggregate: sampled.aggregate,
    log,
  });
  const ops = new OpsServer({
    port: config.metricsPort,
    host: config.metricsHost,
    metrics: async () => {
      await supervisor?.snapshots.collect();
      return aggregate.text(await own.snapshot());
    },
    readiness,
    pages: page.routes,
    log,
  });

  /** @param {number} code */
  const exit = async (code) => {
    page.close();
    const closing = Promise.allSettled([relay.close(), ops.close()]);
    await Promise.race([closing, new Promise((resolve) => setTimeout(resolve, CLOSE_TIMEOUT_MS))]);
    log[code === 0 ? 'info' : 'error']({ code }, 'fanfare stopped');
    await flushLog();
    process.exit(code);
  };

  /** @param {NodeJS.Signals} signal */
  const processOnSignal = (signal) => {
    signals++;
    if (signals > 1) {
      log.warn({ signal }, 'second signal: exiting immediately');
      supervisor?.kill();
      process.exit(1);
    }
    log.info({ signal }, 'draining');
    // Ctrl-C, or a closed terminal: somebody waits, and no load balancer has sent the clients here.
    const isByHand = onTerminal && signal !== 'SIGTERM';
    if (supervisor) supervisor.stop(0, { isByHand });
    else exit(0);
  };
  process.on('SIGTERM', processOnSignal);
  process.on('SIGINT', processOnSignal);
  const processOnHangup = () => {
    if (!onTerminal) supervisor?.reload();
    // The shell and the kernel may both send SIGHUP. The second one is not a second request of the
    // user.
    else if (signals === 0) processOnSignal('SIGHUP');
  };
  process.on('SIGHUP', processOnHangup);

  if (byNpm) {
    const parent = process.ppid;
    const check = setInterval(() => {
      if (process.ppid === parent) return;
      clearInterval(check);
      if (signals > 0) return;
      log.info('npm, which started this server, has exited');
      processOnSignal('SIGTERM');
    }, PARENT_CHECK_MS);
    check.unref();
  }

  /** @param {unknown} error */
  const processOnFault = (error) => {
    log.fatal({ err: error }, 'uncaught exception: draining');
    if (supervisor) supervisor.stop(1);
    else exit(1);
  };
  process.on('uncaughtException', processOnFault);
  process.on('unhandledRejection', processOnFault);

  if (config.stateDir !== '')
    await compact(config.stateDir).catch((error) =>
      log.error({ err: error }, 'cannot use FANFARE_STATE_DIR: revocations will be refused'),
    );
  if (config.tokens !== null && config.redis === null && config.stateDir === '')
    log.warn('revocations end with this server: set FANFARE_STATE_DIR, or use Redis');
  if (config.redisSubscriptions === 'server')
    log.warn('REDIS_SUBSCRIPTIONS=server has no effect any more: remove it');
  const { access, why } = consoleAccess(config);
  if (access === 'off' && config.console !== 'off') log.info(`the console is off: ${why}`);
  try {
    await relay.start();
    metricsPort = await ops.start();
  } catch (error) {
    const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
    if (code === 'EADDRINUSE') log.fatal(`cannot start: ${opsPortInUse(config)}`);
    else log.fatal({ err: error }, `cannot start: ${message}`);
    return exit(1);
  }
  // A signal may have arrived meanwhile.
  if (signals > 0) return;

  supervisor = new Supervisor({
    settings,
    log,
    relayPath: relay.path,
    aggregate,
    console: sampled,
    exec,
    loadSettings,
    observer: {
      onMark: (kind, text) => page.mark(kind, text),
      onAnswer: (_one, message) => page.actions.receive(message),
      onGone: (one) => page.actions.gone(one),
    },
    onReady: ({ port }, isBrokerUp) =>
      announce(log, { config, port, metricsPort, isBrokerUp, hasHello }, isProduction),
    onStopped: exit,
  });
  supervisor.start();
  page.start();
}

/** @param {import('../config/settings.js').Config} config @returns {string} */
function opsPortInUse({ metricsHost, metricsPort }) {
  const other = metricsPort === 9464 ? 9465 : 9464;
  const why = metricsPort === 9090 ? ', which is also the default port of Prometheus' : '';
  return `${metricsHost}:${metricsPort} (METRICS_PORT) is in use${why}: set another port, METRICS_PORT=${other} for example`;
}

/**
 * Prints a banner if the log is text, otherwise log lines.
 * @param {import('pino').Logger} log
 * @param {Parameters<typeof banner>[0]} parts
 * @param {boolean} isProduction
 */
function announce(log, parts, isProduction) {
  const { config, port, metricsPort } = parts;
  const lines = banner(parts);
  if (!writeBanner(lines)) {
    const [first, ...rest] = lines;
    log.info({ port, metricsPort, workers: config.workers }, first.text);
    for (const { text } of rest) log.info(text.trim());
  }
  if (isProduction && isOpen(config))
    log.warn('access is open to everyone: no key for tokens is configured, and no hooks');
  const shortage = glance(config);
  if (shortage !== '') log.warn(shortage);
}
