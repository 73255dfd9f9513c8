// worker.js: a worker's parts: builds them in order, and closes them in reverse.
//
//   backend -> outbox, hub -> recovery, commands -> admission -> transports -> HTTP server

import { getHeapStatistics } from 'node:v8';
import { Admission } from '../admission/admission.js';
import { RateLimiter } from '../admission/rate-limit.js';
import { Refused } from '../admission/refused.js';
import { IDEMPOTENCY_MS } from '../backend/broker.js';
import { createBackend } from '../backend/index.js';
import { createCommands } from '../commands/index.js';
import { describeFastPaths } from '../config/fast-paths.js';
import { RoomRules } from '../config/room-patterns.js';
import { privateBytes, readPart } from '../config/system-memory.js';
import { VERSION } from '../config/version.js';
import { Heartbeat } from '../hub/heartbeat.js';
import { Hub } from '../hub/hub.js';
import { Outbox } from '../hub/outbox.js';
import { Publisher } from '../hub/publisher.js';
import { PresenceTracker } from '../hub/room-users.js';
import { SlowConsumers } from '../hub/slow-consumers.js';
import { createCounters } from '../observability/counters.js';
import { createMetrics } from '../observability/registry.js';
import { ANNOUNCEMENTS } from '../protocol/publication.js';
import { HistoryReader } from '../recovery/history-reader.js';
import { OutageNotice } from '../recovery/outage-notice.js';
import { SyncScheduler } from '../recovery/scheduler.js';
import { HttpServer } from '../transport/http-server.js';
import { EventStreams } from '../transport/sse.js';
import { WebSockets } from '../transport/websocket.js';
import { BEAT_INTERVAL_MS } from './control-messages.js';
import { drain } from './drain.js';
import { ExcessConnections } from './excess-connections.js';
import { Fleet } from './fleet.js';
import { FleetMember } from './fleet-member.js';
import { Health } from './health.js';
import { Relocations } from './relocation.js';

const SWEEP_INTERVAL_MS = 1000;
/** Part of a drain's time that requests of the HTTP API leave for the steps after them. */
const API_RESERVE_MS = 1000;

/** @typedef {import('../config/settings.js').Config} Config */
/** @typedef {import('pino').Logger} Logger */

/**
 * @typedef {object} WorkerParts
 * @property {Config} config
 * @property {Logger} log
 * @property {import('./phase.js').Phase} phase
 * @property {number} slot this worker's number among those of its server, from 0
 * @property {(beat: import('./control-messages.js').Beat) => void} onBeat sends the primary a
 *   heartbeat
 * @property {() => import('../config/certificate.js').Certificate|null} [certificate] of the public
 *   port at this time; null if it speaks plain HTTP
 * @property {() => void} onOrphaned the link to the primary's relay has ended
 */

/**
 * @param {WorkerParts & {relayPath: string}} parts `relayPath`: the socket of the primary's relay
 * @returns {Promise<Worker>}
 */
export async function createWorker({ relayPath, ...parts }) {
  const { config, log, slot } = parts;
  const counters = createCounters();
  const memoryBytes = readPart(config.workers);
  const metrics = createMetrics(counters, { worker: slot, memoryBytes });
  const historyRules = new RoomRules(config.history);
  const backend = await createBackend({
    config,
    log,
    counters,
    relayPath,
    workerId: `${config.serverId}:${process.pid}`,
    historyRules,
    announcements: ANNOUNCEMENTS,
    events: {
      onPublishLag: (ms) => metrics.publishLag.observe(ms),
      onRoundTrip: (seconds) => metrics.busRoundTrip.observe(seconds),
    },
  });
  // Token libraries are loaded only if tokens are configured.
  const WorkerAuth = config.tokens === null ? null : (await import('./auth.js')).WorkerAuth;
  // So is express, if there are API keys.
  const createHttpApi =
    config.apiKeys.length === 0 ? null : (await import('./api.js')).createHttpApi;
  // Hooks are loaded before this worker is ready: without them it must not let anybody in.
  const createHooks =
    config.hooks === null ? null : await (await import('./hooks.js')).prepareHooks(config.hooks);
  const blobs =
    config.blobs === null
      ? null
      : (await import('../blobs/index.js')).createBlobs({
          config,
          settings: config.blobs,
          counters: counters.blobs,
          requestSeconds: metrics.blobSeconds,
          log,
        });
  return new Worker({
    ...parts,
    counters,
    metrics,
    memoryBytes,
    historyRules,
    backend,
    blobs,
    WorkerAuth,
    createHttpApi,
    createHooks,
  });
}

export class Worker {
  /**
   * @param {WorkerParts & {
   *   counters: ReturnType<typeof createCounters>,
   *   metrics: ReturnType<typeof createMetrics>,
   *   memoryBytes: number,
   *   historyRules: RoomRules<import('../config/room-patterns.js').HistoryRule>,
   *   backend: Awaited<ReturnType<typeof createBackend>>,
   *   blobs: ReturnType<typeof import('../blobs/index.js').createBlobs>|null,
   *   WorkerAuth: typeof import('./auth.js').WorkerAuth|null,
   *   createHttpApi: typeof import('./api.js').createHttpApi|null,
   *   createHooks: Awaited<ReturnType<typeof import('./hooks.js').prepareHooks>>|null,
   * }} parts `memoryBytes`: this worker's part of the machine's memory; `blobs`: null if there is
   *   no bucket; `WorkerAuth`: null if no tokens are configured; `createHttpApi`: null if no API
   *   keys are; `createHooks`: null if there are no hooks
   */
  constructor(parts) {
    const { config, log, counters, metrics, memoryBytes, historyRules, backend } = parts;
    const { WorkerAuth, createHttpApi, createHooks, blobs } = parts;
    const references = blobs?.references;
    const { broker, presence } = backend;
    this.config = config;
    this.log = log;
    const phase = (this.phase = parts.phase);
    this.slot = parts.slot;
    this.onBeat = parts.onBeat;
    this.onOrphaned = parts.onOrphaned;
    const certificate = parts.certificate?.() ?? null;
    this.counters = counters;
    this.metrics = metrics;
    this.backend = backend;
    /** @type {NodeJS.Timeout[]} */
    this.timers = [];
    const presenceRules = new RoomRules(config.presence);
    const covers = (/** @type {string} */ room) => presenceRules.of(room) !== null;
    const tracker = presence && new PresenceTracker({ presence, covers, counters });
    const slowConsumers = (this.slowConsumers = new SlowConsumers({
      config,
      counters,
      budgetBytes:
        (Math.min(memoryBytes, getHeapStatistics().heap_size_limit) * config.maxUnsentHeapPercent) /
        100,
    }));
    const outbox = (this.outbox = new Outbox({
      slowConsumers,
      counters,
      maxUnsentBytes: config.maxUnsentBytes,
      reloadWindowMs: config.reconnectWindowMs,
      fanout: metrics.fanout,
      flushSeconds: metrics.flushSeconds,
      sendPublications: () => broker.flush?.(),
    }));
    const scheduler = (this.scheduler = new SyncScheduler({
      broker,
      historyOf: (room) => historyRules.of(room),
      counters,
      references,
      maxUnsentBytes: config.maxUnsentBytes,
    }));
    const hub = (this.hub = new Hub({
      broker,
      outbox,
      slowConsumers,
      scheduler,
      tracker,
      references,
      counters,
      log,
    }));
    this.outageNotice = new OutageNotice({ hub, scheduler });
    const refused = (this.refused = new Refused());
    const onUserRefused = (/** @type {string} */ user) => refused.add('connections', '', user);
    /** Null if no tokens are configured. */
    this.auth =
      WorkerAuth &&
      config.tokens &&
      new WorkerAuth({
        config,
        settings: config.tokens,
        hub,
        backend,
        counters: counters.auth,
        onUserRefused,
        log,
      });
    const authenticator = this.auth?.authentication ?? null;
    /** Null if there are none. */
    this.hooks =
      createHooks?.({
        config,
        hub,
        places: backend.addresses,
        authentication: authenticator,
        counters,
        seconds: metrics.hookSeconds,
        onUserRefused,
        log,
      }) ?? null;
    const entrance = this.hooks?.entrance ?? authenticator;
    const publisher = new Publisher({ broker, phase, counters });
    const historyReader = new HistoryReader({ scheduler, counters });
    const limiter = (this.limiter = new RateLimiter(config, counters, refused));
    const commands = (this.commands = createCommands({
      config,
      hub,
      broker,
      publisher,
      idempotencyMs: IDEMPOTENCY_MS,
      tracker,
      scheduler,
      historyReader,
      outageNotice: this.outageNotice,
      authenticator,
      hooks: this.hooks?.entrance ?? null,
      admitMessage: (connection, nowMs, bytes) =>
        limiter.admitMessage(connection, connection.address, nowMs, bytes, connection.session.user),
      admitBroadcast: (connection, nowMs, bytes) =>
        limiter.admitBroadcast(connection, connection.address, nowMs, bytes),
      charge: (connection, bytes) =>
        limiter.charge(
          connection,
          connection.address,
          performance.now(),
          bytes,
          connection.session.user,
        ),
      counters,
      messageDuration: metrics.messageDuration,
      log,
    }));
    this.hooks?.entrance.listen(commands.refuse);
    /** Looks at all workers of all servers, and acts on their connections. */
    this.fleet = new Fleet({
      hub,
      broker,
      historyOf: (room) => historyRules.of(room),
      tracker,
      member: new FleetMember({
        hub,
        joins: commands.joins,
        sessions: authenticator?.sessions ?? this.hooks?.sessions ?? null,
        scheduler,
        refused,
        describe: () => this.describe(),
      }),
      counters,
    });
    this.health = new Health({ counters, memoryBytes, loopLag: metrics.loopLag });
    const admission = (this.admission = new Admission({
      config,
      addresses: backend.addresses,
      health: this.health,
      counters,
      now: () => performance.now(),
      authenticator: entrance,
      refused,
    }));
    const relocations = (this.relocations = new Relocations({
      hub,
      isSteady: () => this.isSteady(),
      counters,
    }));
    this.excess = new ExcessConnections({ hub, lobby: authenticator?.lobby ?? null, counters });
    this.heartbeat = new Heartbeat({
      intervalMs: config.pingIntervalMs,
      timeoutMs: config.pongTimeoutMs,
      maxAgeMs: config.maxConnectionAgeMs,
      onAge: (connection) => relocations.expire(connection),
      counters,
    });
    const admitFrame = (/** @type {{fullAt: number}} */ allowance) =>
      limiter.admitFrame(allowance, performance.now());
    const websockets = (this.websockets = new WebSockets({
      config,
      hub,
      commands,
      heartbeat: this.heartbeat,
      admitFrame: config.framesPerMinuteMode === 'off' ? null : admitFrame,
      entrance,
      counters,
    }));
    const streams =
      config.sse === 'off'
        ? null
        : new EventStreams({
            config,
            hub,
            commands,
            heartbeat: this.heartbeat,
            entrance,
            askJoins: this.hooks?.askJoins ?? null,
            admitStream: (address, user, rooms, isReturning) =>
              limiter.admitStream(address, performance.now(), rooms, user, isReturning),
            counters,
          });
    /** What the HTTP API and the console act with. */
    this.services = {
      config,
      broker,
      publisher,
      historyOf: (/** @type {string} */ room) => historyRules.of(room),
      historyReader,
      tracker,
      fleet: this.fleet,
      phase,
      revoke: this.auth?.revoke.bind(this.auth) ?? null,
      blobs: blobs?.uploads ?? null,
      counters,
      log,
    };
    /** Null if no API keys are configured. */
    this.api = createHttpApi?.(this.services, metrics.apiSeconds) ?? null;
    /**
     * Carries out the requests of the console; null until the first one.
     * @type {Promise<import('./operator.js').Operator>|null}
     */
    this.operator = null;
    this.http = new HttpServer({
      config,
      certificate,
      admission,
      streams,
      api: this.api,
      onUpgrade: (request, socket, head, { address, credentials }) =>
        websockets.upgrade(request, socket, head, address, credentials),
      readiness: () => this.readiness(),
      log,
      counters,
    });
  }

  /**
   * @returns {Promise<{port: number, address: string, isBrokerUp: boolean}>} the address it listens
   *   on
   */
  async start() {
    const { backend, hub, log, counters } = this;
    const { broker, presence } = backend;
    await backend.open({
      onLost: () => {
        log.error('lost the relay: draining');
        this.onOrphaned();
      },
      onKeep: (key, connections) => this.excess.keep(key, connections),
    });
    await broker.start({
      // Bound, not wrapped: a closure would add one frame for each publication.
      onPublication: hub.broadcast.bind(hub),
      onLost: (rooms) => this.outageNotice.onLost(rooms),
      onState: (state) => {
        counters.brokerUp = state === 'up' ? 1 : 0;
        this.outageNotice.onState(state);
        if (state === 'up') this.auth?.onUp();
        // The state is `down` only if this worker closes the broker.
        log[state === 'degraded' ? 'warn' : 'info']({ state }, `broker is ${state}`);
      },
    });
    counters.brokerUp = broker.state === 'up' ? 1 : 0;
    await presence?.start();
    await this.auth?.start();
    if (broker.state !== 'up') this.outageNotice.startAway();
    // If the broker is away, it subscribes this room with all others when it returns.
    await hub
      .start()
      .catch((error) => log.warn({ err: error }, 'broker unavailable: starting degraded'));
    this.health.start();
    this.heartbeat.start();
    this.timers.push(
      setInterval(() => {
        this.slowConsumers.sweep();
        this.commands.sweep();
        this.limiter.sweep(performance.now());
        this.refused.sweep(performance.now());
        this.hub.sweep(performance.now());
        this.websockets.sweep(performance.now());
      }, SWEEP_INTERVAL_MS),
      setInterval(
        () =>
          this.onBeat({
            connections: counters.connections - this.relocations.pending.size,
            lagMs: Math.round(this.health.lagMs()),
            isSteady: this.isSteady(),
          }),
        Math.min(BEAT_INTERVAL_MS, this.config.workerTimeoutMs / 4),
      ),
    );
    // All workers of a server decide the same.
    const level = this.slot === 0 ? 'info' : 'debug';
    log[level](describeFastPaths(counters.fastPaths), 'fast paths');
    return { ...(await this.http.listen()), isBrokerUp: broker.state === 'up' };
  }

  /** For new handshakes. @param {import('../config/certificate.js').Certificate} certificate */
  replaceCertificate(certificate) {
    this.http.replaceCertificate(certificate);
    this.log.debug({ expires: new Date(certificate.expiresMs) }, 'new TLS certificate');
  }

  /** @param {readonly string[]|null} [names] of some metrics; null: all */
  snapshot(names) {
    return this.metrics.snapshot(names);
  }

  /**
   * A request of the console. Its parts are loaded with the first one.
   * @param {import('./operator.js').Message} message
   * @param {(message: import('./control-messages.js').ToPrimary) => void} send
   */
  async operate(message, send) {
    this.operator ??= import('./operator.js').then(
      ({ Operator }) => new Operator({ services: this.services, hub: this.hub, send }),
    );
    (await this.operator).receive(message);
  }

  /** @returns {import('./fleet-wire.js').WorkerInfo} */
  describe() {
    const { config, counters } = this;
    return {
      server: config.serverId,
      version: VERSION,
      slot: this.slot,
      pid: process.pid,
      state: this.readiness() ?? 'ready',
      connections: counters.connections,
      rooms: counters.rooms,
      lagMs: Math.round(this.health.lagMs()),
      memoryBytes: privateBytes(),
      uptimeS: Math.round(process.uptime()),
      messages: counters.messages,
      deliveries: counters.deliveries,
      refused: sumOf(counters.refused),
      errors: sumOf(counters.errors),
    };
  }

  /** @returns {string|null} why this worker is not ready, or null */
  readiness() {
    if (this.phase.isLeaving) return 'draining';
    // Only if the configuration asks for it. Otherwise an outage of a shared broker would make all
    // servers unready at once.
    if (this.config.readiness !== 'alone' && this.#isAway()) return 'degraded';
    if (this.health.lagMs() > this.config.maxLoopLagMs) return 'event loop lag';
    return null;
  }

  #isAway() {
    return this.outageNotice.isOn || this.backend.broker.state !== 'up';
  }

  /** Would this worker admit clients, and could they join their rooms? */
  isSteady() {
    return !this.phase.isLeaving && !this.#isAway() && this.admission.overload() === null;
  }

  /** Drains the connections and closes all parts. @param {number} deadlineMs from now */
  async drain(deadlineMs) {
    const { hub, outbox, commands, phase, config, log } = this;
    phase.enter('draining');
    const end = performance.now() + deadlineMs;
    this.http.stopAccepting();
    this.relocations.close();
    this.backend.addresses.resign();
    this.auth?.drain();
    (await this.operator)?.close();
    const apiDrained = this.api?.drain(Math.max(0, deadlineMs - API_RESERVE_MS));
    const { told, terminated } = await drain({
      hub,
      outbox,
      commands,
      scheduler: this.scheduler,
      phase,
      windowMs: config.reconnectWindowMs,
      deadlineMs: end,
    });
    await apiDrained;
    for (const timer of this.timers) clearInterval(timer);
    this.heartbeat.close();
    this.health.close();
    this.scheduler.close();
    this.outageNotice.close();
    this.auth?.close();
    this.fleet.close();
    await this.http.close();
    await this.hooks?.drain(end);
    await this.backend.close();
    log.info({ told, terminated }, 'drained');
  }
}

/** @param {Readonly<Record<string, number>>} counters by label */
function sumOf(counters) {
  return Object.values(counters).reduce((sum, count) => sum + count, 0);
}
