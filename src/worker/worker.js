// worker.js: one worker process: builds the rooms of the tree in order, and closes them in reverse.
//
//   relay link -> broker -> outbox, hub -> commands -> admission -> transports -> HTTP server
//
// The primary owns the signals and tells a worker by IPC (control.js) what to do. A worker whose
// primary is gone, or whose relay is, drains on its own and leaves.

import cluster from 'node:cluster';
import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { getHeapStatistics } from 'node:v8';
import { Admission } from '../admission/admission.js';
import { RateLimiter } from '../admission/rate-limit.js';
import { EmbeddedBroker } from '../backend/embedded/broker.js';
import { EmbeddedPresence } from '../backend/embedded/presence.js';
import { RelayClient } from '../backend/embedded/relay-client.js';
import { Commands } from '../commands/dispatch.js';
import { RoomRules } from '../config/room-patterns.js';
import { readPart } from '../config/system-memory.js';
import { Heartbeat } from '../hub/heartbeat.js';
import { Hub } from '../hub/hub.js';
import { Outbox } from '../hub/outbox.js';
import { Attendance } from '../hub/room-users.js';
import { SlowConsumers } from '../hub/slow-consumers.js';
import { createCounters } from '../observability/counters.js';
import { createMetrics } from '../observability/registry.js';
import { ANNOUNCEMENTS } from '../protocol/publication.js';
import { Degraded } from '../recovery/outage-notice.js';
import { SyncScheduler } from '../recovery/scheduler.js';
import { HttpServer } from '../transport/http-server.js';
import { WebSockets } from '../transport/websocket.js';
import { BEAT_INTERVAL_MS } from './control-messages.js';
import { drain } from './drain.js';
import { Health } from './health.js';

const SWEEP_INTERVAL_MS = 1000;
/** How long leaving may take where no primary is left to set a deadline. */
const ORPHAN_DRAIN_MS = 10_000;

/** @typedef {import('../config/settings.js').Config} Config */
/** @typedef {import('pino').Logger} Logger */

/**
 * Runs until the primary says drain, then exits the process with 0.
 * @param {Config} config
 * @param {Logger} log
 */
export function runWorker(config, log) {
  // The terminal's Ctrl-C reaches the whole process group; what becomes of it is the primary's to
  // say.
  process.on('SIGINT', () => {});
  process.on('SIGTERM', () => {});
  process.on('SIGHUP', () => {});
  /** @type {Worker|undefined} */
  let worker;
  let relayPath = '';
  /** @param {{slot: number, relayPath: string}} message */
  const begin = async ({ slot, ...start }) => {
    relayPath = start.relayPath;
    // ioredis is a fifth of a worker's start: where there is no Redis it is not loaded.
    const RedisBroker = config.redis
      ? (await import('../backend/redis/broker.js')).RedisBroker
      : null;
    const isShared = config.redis !== null && config.presence.length > 0;
    const RedisPresence = isShared
      ? (await import('../backend/redis/presence.js')).RedisPresence
      : null;
    worker = new Worker({
      config,
      log: log.child({ worker: slot }),
      slot,
      relayPath,
      RedisBroker,
      RedisPresence,
    });
    return worker.start();
  };
  /** @param {import('./control-messages.js').ToWorker} message */
  const processOnMessage = (message) => {
    switch (message.type) {
      case 'start':
        begin(message).then(
          (address) => send({ type: 'ready', address }),
          (error) => {
            log.error({ err: error }, 'the worker can not start');
            send({
              type: 'failed',
              message: error.code === 'EADDRINUSE' ? portInUse(config) : error.message,
            });
            process.exitCode = 1;
            // The message above is on its way; leaving by disconnect lets it out.
            setTimeout(() => process.exit(1), 100);
          },
        );
        break;
      case 'metrics':
        worker?.snapshot().then(
          (metrics) => send({ type: 'metrics', request: message.request, metrics }),
          (error) => log.error({ err: error }, 'no metrics'),
        );
        break;
      case 'unready':
        worker?.unready();
        break;
      case 'drain':
        leave(worker, message.deadlineMs, 0, log);
        break;
    }
  };
  process.on('message', processOnMessage);
  process.on('disconnect', () => {
    log.warn('the primary is gone: draining');
    // Its relay's folder is nobody's any more, and it can't tidy up itself.
    if (relayPath) rm(dirname(relayPath), { recursive: true, force: true }).catch(() => {});
    leave(worker, ORPHAN_DRAIN_MS, 0, log);
  });
  // Whatever is said to a primary that has just been killed fails with EPIPE; `disconnect` follows,
  // and is what counts.
  cluster.worker?.on('error', (error) => log.debug({ err: error }, 'the channel to the primary'));
  // Without this Node ends a worker that loses its primary at once, and its clients see 1006.
  if (cluster.worker) cluster.worker.exitedAfterDisconnect = true;
  process.on('uncaughtException', (error) => crash(error, worker, log));
  process.on('unhandledRejection', (error) => crash(error, worker, log));
}

/**
 * @param {import('../config/settings.js').Config} config
 * @returns {string}
 */
function portInUse({ host, port }) {
  return `${host || 'all addresses'}:${port} (PORT) is in use (EADDRINUSE): set another port`;
}

let isLeaving = false;

/**
 * @param {Worker|undefined} worker
 * @param {number} deadlineMs from now
 * @param {number} code
 * @param {Logger} log
 */
function leave(worker, deadlineMs, code, log) {
  if (isLeaving) return;
  isLeaving = true;
  const guard = setTimeout(() => {
    log.error('the drain did not end in time');
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
      log.error({ err: error }, 'the drain failed');
      process.exit(1);
    });
}

/**
 * Our own fault: this worker's state can't be trusted. Its clients are told, the supervisor starts
 * another.
 * @param {unknown} error
 * @param {Worker|undefined} worker
 * @param {Logger} log
 */
function crash(error, worker, log) {
  log.fatal({ err: error }, 'a fault of our own: the worker leaves');
  if (isLeaving) process.exit(1);
  leave(worker, 2000, 1, log);
}

/**
 * @param {import('./control-messages.js').ToPrimary} message
 * @returns {Promise<void>} when it is on its way
 */
function send(message) {
  return new Promise((resolve) => {
    if (!process.send || !process.connected) return resolve();
    // The error is a primary that has just gone: `disconnect` follows.
    process.send(message, undefined, undefined, () => resolve());
  });
}

class Worker {
  /**
   * @param {object} parts
   * @param {Config} parts.config
   * @param {Logger} parts.log
   * @param {number} parts.slot
   * @param {string} parts.relayPath
   * @param {typeof import('../backend/redis/broker.js').RedisBroker|null} parts.RedisBroker null:
   *   the embedded broker
   * @param {typeof import('../backend/redis/presence.js').RedisPresence|null} parts.RedisPresence
   *   null: the relay's, or none
   */
  constructor({ config, log, slot, relayPath, RedisBroker, RedisPresence }) {
    this.config = config;
    this.log = log;
    this.isDraining = false;
    /** @type {NodeJS.Timeout[]} */
    this.timers = [];
    const counters = (this.counters = createCounters());
    const memoryBytes = readPart(config.workers);
    const metrics = (this.metrics = createMetrics(counters, { worker: slot, memoryBytes }));
    const historyRules = new RoomRules(config.history);
    /** @type {import('../backend/broker.js').HistoryOf} */
    const historyOf = (room) => historyRules.of(room);
    const link = (this.link = new RelayClient({ path: relayPath, log }));
    const broker = (this.broker = RedisBroker
      ? new RedisBroker({
          config,
          log,
          counters,
          workerId: `${config.serverId}:${process.pid}`,
          historyOf,
          historyRules,
          onPublishLag: (ms) => metrics.redisPublishLag.observe(ms),
          onRoundTrip: (seconds) => metrics.busRoundTrip.observe(seconds),
        })
      : new EmbeddedBroker({ link, roomLingerMs: config.roomLingerMs, historyOf }));
    if (!RedisBroker) link.onRoundTrip = (seconds) => metrics.busRoundTrip.observe(seconds);
    const hasPresence = config.presence.length > 0;
    /** @type {import('../backend/redis/presence.js').RedisPresence|null} */
    this.redisPresence = null;
    if (RedisPresence !== null) {
      const redisBroker = /** @type {import('../backend/redis/broker.js').RedisBroker} */ (broker);
      this.redisPresence = new RedisPresence({
        connection: redisBroker.connection,
        publishCommand: config.redis?.kind === 'cluster' ? 'SPUBLISH' : 'PUBLISH',
        prefix: config.redisPrefix,
        channelOf: (room) => redisBroker.names.channelOf(room),
        maxMembers: config.presenceMaxMembers,
        announcements: ANNOUNCEMENTS,
        workerId: `${config.serverId}:${process.pid}`,
        onName: (name) => link.nameInRedis(name),
        counters,
        log,
      });
      link.onGone = (name) => this.redisPresence?.died(name);
    }
    const presence = (this.presence = hasPresence
      ? (this.redisPresence ?? new EmbeddedPresence(link))
      : null);
    const presenceRules = new RoomRules(config.presence);
    const attendance =
      presence &&
      new Attendance({ presence, covers: (room) => presenceRules.of(room) !== null, counters });
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
    }));
    const recovery = (this.recovery = new SyncScheduler({
      broker,
      historyOf,
      outbox,
      slowConsumers,
      counters,
      maxUnsentBytes: config.maxUnsentBytes,
    }));
    const hub = (this.hub = new Hub({ broker, outbox, slowConsumers, recovery, counters, log }));
    this.degraded = new Degraded({ hub, recovery });
    const limiter = (this.limiter = new RateLimiter(config, counters));
    const commands = (this.commands = new Commands({
      config,
      hub,
      broker,
      attendance,
      recovery,
      degraded: this.degraded,
      admitMessage: (connection, nowMs, bytes) =>
        limiter.admitMessage(connection, connection.address, nowMs, bytes),
      admitBroadcast: (connection, nowMs, bytes) =>
        limiter.admitBroadcast(connection, connection.address, nowMs, bytes),
      charge: (connection, bytes) =>
        limiter.charge(connection, connection.address, performance.now(), bytes),
      counters,
      messageDuration: metrics.messageDuration,
      log,
    }));
    this.health = new Health({ counters, memoryBytes, loopLag: metrics.loopLag });
    const admission = new Admission({
      config,
      addresses: link,
      health: this.health,
      counters,
      now: () => performance.now(),
    });
    this.heartbeat = new Heartbeat({
      intervalMs: config.pingIntervalMs,
      timeoutMs: config.pongTimeoutMs,
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
      counters,
    }));
    this.http = new HttpServer({
      config,
      admission,
      onUpgrade: (request, socket, head, address) =>
        websockets.upgrade(request, socket, head, address),
      readiness: () => this.readiness(),
      log,
      counters,
    });
  }

  /** @returns {Promise<{port: number, address: string}>} where it listens */
  async start() {
    const { link, broker, hub, log, counters } = this;
    link.onClose = () => {
      log.error('the relay is gone: draining');
      leave(this, ORPHAN_DRAIN_MS, 1, log);
    };
    await link.open();
    await broker.start({
      onPublication: (room, publication, offset, epoch) =>
        hub.broadcast(room, publication, offset, epoch),
      onLost: (rooms) => this.recovery.onLost(rooms),
      onState: (state) => {
        counters.brokerUp = state === 'up' ? 1 : 0;
        if (state === 'degraded' && this.config.redis === null) counters.probeMisses++;
        this.redisPresence?.setUp(state === 'up');
        this.degraded.onState(state);
        // It is `down` only because this worker leaves.
        log[state === 'degraded' ? 'warn' : 'info']({ state }, `the broker is ${state}`);
      },
    });
    counters.brokerUp = broker.state === 'up' ? 1 : 0;
    await this.presence?.start();
    if (broker.state !== 'up') this.degraded.startAway();
    // Where the broker is away it subscribes this, as every wanted room, when it returns.
    await hub
      .start()
      .catch((error) => log.warn({ err: error }, 'the broker is away: starting degraded'));
    this.health.start();
    this.heartbeat.start();
    this.timers.push(
      setInterval(() => {
        this.slowConsumers.sweep();
        this.commands.sweep();
        this.limiter.sweep(performance.now());
        this.websockets.sweep(performance.now());
      }, SWEEP_INTERVAL_MS),
      setInterval(
        () =>
          send({
            type: 'beat',
            connections: counters.connections,
            lagMs: Math.round(this.health.lagMs()),
          }),
        Math.min(BEAT_INTERVAL_MS, this.config.workerTimeoutMs / 4),
      ),
    );
    return this.http.listen();
  }

  snapshot() {
    return this.metrics.snapshot();
  }

  /** @returns {string|null} why this worker is not ready, or null */
  readiness() {
    if (this.isDraining) return 'draining';
    // Unless it is wanted, not Redis: a readiness that follows Redis takes every server out at
    // once.
    if (this.config.readiness === 'redis' && (this.degraded.isOn || this.broker.state !== 'up'))
      return 'degraded';
    if (this.health.lagMs() > this.config.maxLoopLagMs) return 'event loop lag';
    return null;
  }

  unready() {
    this.isDraining = true;
  }

  /** Sends the connections away and closes all. @param {number} deadlineMs from now */
  async drain(deadlineMs) {
    this.unready();
    const { hub, outbox, commands, config, log } = this;
    const end = performance.now() + deadlineMs;
    this.http.stopAccepting();
    const { told, terminated } = await drain({
      hub,
      outbox,
      commands,
      recovery: this.recovery,
      windowMs: config.reconnectWindowMs,
      deadlineMs: end,
    });
    for (const timer of this.timers) clearInterval(timer);
    this.heartbeat.close();
    this.health.close();
    this.recovery.close();
    this.degraded.close();
    await this.http.close();
    await this.presence?.close();
    await this.broker.close();
    await this.link.close();
    log.info({ told, terminated }, 'drained');
  }
}
