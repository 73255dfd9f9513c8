// redis.js: the broker of many machines, over Redis pub/sub.
//
//   publish --> redis-publisher ==commands==> Redis ==subscriber==> redis-arrivals --> onPublication
//   publish to a room with history, history --> redis-history --> redis-publisher
//   subscribe, unsubscribe --> redis-subscriptions ==subscriber==> Redis
//
// Two connections: commands, and a subscriber. It is `up` while both are ready, every wanted room is subscribed, and
// what is published comes back (redis-probe). While it is not, publishing is refused at once where it can't work: nothing
// waits for Redis to return. redis-census tells how many connections the fleet has.
//
// redis-names.js has the names of channels and keys.

import { randomBytes } from 'node:crypto';
import { BrokerError } from './broker.js';
import { LiveClock } from './live-clock.js';
import { RedisArrivals } from './redis-arrivals.js';
import { RedisCensus } from './redis-census.js';
import { RedisConnection } from './redis-connection.js';
import { RedisHistory } from './redis-history.js';
import { CHANNEL_KIND, RedisNames } from './redis-names.js';
import { RedisProbe } from './redis-probe.js';
import { RedisPublisher } from './redis-publisher.js';
import { RedisSubscriptions } from './redis-subscriptions.js';

const TICK_MS = 50;
/** How long start() waits for Redis before it goes on without. */
const START_TIMEOUT_MS = 5000;
const CLOSE_TIMEOUT_MS = 2000;
/** Different reasons logged in one outage. */
const MAX_REASONS = 8;
const SKIPPED_LOG_INTERVAL_MS = 10_000;

/** @implements {Broker} */
export class RedisBroker {
  /**
   * @param {object} parts
   * @param {Pick<import('../config.js').Config, 'redisUrl'|'redisPrefix'|'redisTimeoutMs'|'maxPubsubBytes'|'roomLingerMs'|'historyFence'>} parts.config
   * @param {import('pino').Logger} parts.log
   * @param {Pick<import('../stats.js').Stats, 'brokerUp'|'brokerReconnects'|'probeMisses' | 'skipped'>} parts.stats
   * @param {string} parts.workerId
   * @param {import('./broker.js').HistoryOf} [parts.historyOf]
   * @param {(ms: number) => void} [parts.onPublishLag] from writing publications to Redis' answer
   * @param {(seconds: number) => void} [parts.onRoundTrip] of a probe through the bus
   */
  constructor({ config, log, stats, workerId, historyOf = () => null, onPublishLag, onRoundTrip }) {
    const { redisUrl: url, redisPrefix: prefix, redisTimeoutMs: timeoutMs } = config;
    this.log = log;
    this.stats = stats;
    this.historyOf = historyOf;
    /** @type {BrokerState} */
    this.state = 'degraded';
    /** @type {BrokerEvents|null} */
    this.events = null;
    /** Why publishing is refused though Redis is there. */
    this.refusal = '';
    /** Of this outage, as logged. @type {Set<string>} */
    this.reasons = new Set();
    this.awaySince = 0;
    this.skippedLogMs = Number.NEGATIVE_INFINITY;
    /** Ends start()'s wait. */
    this.onSettled = () => {};
    /** @type {Promise<void>|null} */
    this.closing = null;

    // A worker's id may come again: its process id is another's after a restart, and 1 in every container.
    const id = `${workerId}:${randomBytes(4).toString('hex')}`;
    const names = (this.names = new RedisNames(prefix));
    const probeChannel = names.probeChannelOf(id);

    this.clock = new LiveClock(TICK_MS, (nowMs) => this.#tick(nowMs));
    this.commands = new RedisConnection({
      url,
      name: `${prefix}commands`,
      timeoutMs,
      onReady: () => this.#commandsOnReady(),
      onAway: (reason) => this.#onAway(reason),
    });
    this.subscriber = new RedisConnection({
      url,
      name: `${prefix}subscriber`,
      timeoutMs,
      onReady: () => this.subscriptions.restore(),
      onAway: (reason) => this.#subscriberOnAway(reason),
    });
    this.isReconnect = { commands: false, subscriber: false };
    this.subscriber.redis.on('messageBuffer', (channel, message) => this.#subscriberOnMessage(channel, message));
    this.publisher = new RedisPublisher({
      connection: this.commands,
      clock: this.clock,
      names,
      maxPubsubBytes: config.maxPubsubBytes,
      timeoutMs,
      onPublishLag,
    });
    this.streams = new RedisHistory({
      publisher: this.publisher,
      names,
      maxPubsubBytes: config.maxPubsubBytes,
      fence: config.historyFence,
    });
    this.subscriptions = new RedisSubscriptions({
      connection: this.subscriber,
      channelOf: (room) => names.channelOf(room),
      ownChannels: [probeChannel, names.censusChannel],
      roomLingerMs: config.roomLingerMs,
      onLive: () => this.#subscriptionsOnLive(),
      onRefused: (reason) => this.#onAway(reason),
    });
    this.arrivals = new RedisArrivals({
      deliver: (room, publication, offset, epoch) => this.events?.onPublication(room, publication, offset, epoch),
      fetch: (room, id, offset, epoch) =>
        id === '' ? this.streams.body(room, offset, epoch) : this.commands.redis.getBuffer(names.blobOf(room, id)),
      onSkipped: (reason) => this.#onSkipped(reason),
    });
    this.census = new RedisCensus({
      id,
      clock: this.clock,
      send: (message) => {
        // Best effort: the next one tells the same or better.
        this.publisher.send(names.censusChannel, message).catch(() => {});
      },
    });
    this.probe = new RedisProbe({
      publish: (token) => this.publisher.send(probeChannel, token),
      ping: () => this.subscriber.redis.ping(),
      onRoundTrip: (seconds) => onRoundTrip?.(seconds),
      onAnswer: (isWholeBus) => this.#probeOnAnswer(isWholeBus),
      onMiss: () => {
        stats.probeMisses++;
      },
      onDead: () => this.subscriber.destroy('publications do not come back'),
      onRefused: (error) => this.#probeOnRefused(error),
    });
  }

  /** @param {BrokerEvents} events */
  async start(events) {
    this.events = events;
    this.awaySince = performance.now();
    this.clock.start();
    const settled = new Promise((resolve) => {
      this.onSettled = () => resolve(undefined);
    });
    const timer = setTimeout(this.onSettled, START_TIMEOUT_MS);
    this.commands.open();
    this.subscriber.open();
    await settled;
    clearTimeout(timer);
  }

  /** @returns {Promise<void>} */
  close() {
    this.closing ??= this.#close();
    return this.closing;
  }

  async #close() {
    this.census.leave();
    const timer = deadline(CLOSE_TIMEOUT_MS);
    await Promise.race([this.publisher.drained(), timer.promise]);
    timer.clear();
    this.probe.stop();
    this.clock.close();
    this.arrivals.close();
    this.subscriptions.lose();
    this.commands.close();
    this.subscriber.close();
    this.#become('down');
    this.onSettled();
  }

  /** @param {string} room @returns {Promise<void>} */
  subscribe(room) {
    if (this.closing !== null) return closed();
    return this.subscriptions.subscribe(room);
  }

  /** @param {string} room */
  unsubscribe(room) {
    if (this.closing === null) this.subscriptions.unsubscribe(room);
  }

  /**
   * @param {string} room
   * @param {Buffer} publication
   * @param {{idempotencyKey?: string}} [options]
   * @returns {Promise<import('./broker.js').Position|void>}
   */
  publish(room, publication, options) {
    if (this.closing !== null) return closed();
    const rule = this.historyOf(room);
    if (rule === null) return this.publisher.publish(room, publication);
    return this.streams.publish(room, rule, publication, options?.idempotencyKey ?? '');
  }

  /** @param {string} room @param {{after: number, limit: number}} from */
  history(room, from) {
    if (this.closing !== null) return closed();
    const rule = this.historyOf(room);
    if (rule === null) return Promise.reject(new BrokerError('UNAVAILABLE', 'the room has no history'));
    return this.streams.read(room, rule, from);
  }

  /** @param {number} connections */
  reportConnections(connections) {
    this.census.set(connections);
  }

  /** @returns {Promise<number>} with what the others have been told of a moment ago */
  countConnections() {
    return this.census.count();
  }

  /** @param {number} nowMs */
  #tick(nowMs) {
    this.publisher.expire(nowMs);
    this.probe.tick(nowMs);
    this.census.tick(nowMs);
  }

  /** @param {Buffer} channel @param {Buffer} message */
  #subscriberOnMessage(channel, message) {
    switch (this.names.kindOf(channel)) {
      case CHANNEL_KIND.ROOM:
        this.arrivals.receive(this.names.roomOf(channel), message);
        break;
      case CHANNEL_KIND.PROBE:
        this.probe.receive(message);
        break;
      case CHANNEL_KIND.CENSUS:
        this.census.receive(message);
        break;
    }
  }

  #commandsOnReady() {
    if (this.isReconnect.commands) this.stats.brokerReconnects++;
    this.isReconnect.commands = true;
    this.streams.reset();
    this.refusal = '';
    this.#update();
  }

  #subscriptionsOnLive() {
    if (this.isReconnect.subscriber) this.stats.brokerReconnects++;
    this.isReconnect.subscriber = true;
    this.probe.start(this.clock.nowMs);
    this.#update();
  }

  /** @param {string} reason */
  #subscriberOnAway(reason) {
    this.probe.stop();
    this.subscriptions.lose();
    this.#onAway(reason);
  }

  /** @param {string} reason */
  #onAway(reason) {
    if (this.closing !== null) return;
    this.#update();
    // Not for every attempt: for every reason.
    if (!this.reasons.has(reason) && this.reasons.size < MAX_REASONS) {
      this.reasons.add(reason);
      this.log.warn({ reason }, 'Redis is away');
    }
    this.onSettled();
  }

  /** @param {boolean} isWholeBus */
  #probeOnAnswer(isWholeBus) {
    this.subscriber.prove();
    if (!isWholeBus) return;
    this.commands.prove();
    this.refusal = '';
    this.#update();
  }

  /** @param {unknown} error */
  #probeOnRefused(error) {
    const { cause } = /** @type {{cause?: unknown}} */ (error);
    // Without a cause the connection is away, and has said so.
    if (cause === undefined) return;
    this.refusal = this.commands.describe(cause);
    this.#onAway(this.refusal);
  }

  #update() {
    const isUp = this.commands.isReady && this.subscriptions.isLive && this.refusal === '';
    if (isUp === (this.state === 'up') || this.state === 'down') return;
    if (isUp) {
      const awayMs = Math.round(performance.now() - this.awaySince);
      this.log.info({ awayMs }, 'Redis is there');
      this.reasons.clear();
      this.census.join();
    } else {
      this.awaySince = performance.now();
      this.census.pause();
    }
    this.#become(isUp ? 'up' : 'degraded');
    if (isUp) this.onSettled();
  }

  /** @param {BrokerState} state */
  #become(state) {
    this.state = state;
    this.stats.brokerUp = state === 'up' ? 1 : 0;
    this.events?.onState(state);
  }

  /** @param {string} reason */
  #onSkipped(reason) {
    this.stats.skipped++;
    const now = performance.now();
    if (now - this.skippedLogMs < SKIPPED_LOG_INTERVAL_MS) return;
    this.skippedLogMs = now;
    this.log.warn({ reason, skipped: this.stats.skipped }, 'a publication was skipped');
  }
}

/** @param {number} ms */
function deadline(ms) {
  /** @type {NodeJS.Timeout|undefined} */
  let timer;
  const promise = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  return { promise, clear: () => clearTimeout(timer) };
}

/** @returns {Promise<never>} */
function closed() {
  return Promise.reject(new BrokerError('UNAVAILABLE', 'the broker is closed'));
}

/** @typedef {import('./broker.js').Broker} Broker */
/** @typedef {import('./broker.js').BrokerEvents} BrokerEvents */
/** @typedef {import('./broker.js').BrokerState} BrokerState */
