// node.js: one Redis primary, which serves all rooms, or in a cluster those of its slots.
//   publish --> publisher ==commands==> Redis ==subscriber==> onMessage
//   publish to a room with history, history --> history --> publisher
//   subscribe, unsubscribe --> hearing --> subscriptions ==subscriber==> Redis, or its replica
//
// A node is up if both connections are ready, every wanted channel is subscribed, and a probe
// (loopback-probe.js) has come back over them, because a Redis that answers handshakes may still
// refuse writes.
//
// Both connections must lead to the same server, a primary that keeps its data (identity.js,
// data-loss.js). If they differ and no probe comes back, publishes and reads are refused. The
// subscriber reconnects to the address first; after PATIENCE_MS without a probe, the commands do so
// too. A subscriber at a replica (hearing.js) returns to the primary instead.

import { TLSSocket } from 'node:tls';
import { ReplyError } from 'ioredis';
import { useFastPath } from '../../config/fast-paths.js';
import { RedisConnection } from './connection.js';
import { trackEmptying, watchEmptying } from './data-loss.js';
import { ownCommandsFault } from './fast/own-commands.js';
import { tlsResetFault } from './fast/tls-reset.js';
import { Hearing } from './hearing.js';
import { RedisHistory } from './history.js';
import { RedisIdentity } from './identity.js';
import { LoopbackProbe } from './loopback-probe.js';
import { RedisPublisher } from './publisher.js';
import { RedisState } from './state.js';

/** Errors if this node does not serve a slot. */
const STALE = /^(?:MOVED|ASK|CLUSTERDOWN|TRYAGAIN|READONLY)/;

/** Between two probes, and two looks at the identity of Redis. */
const INTERVAL_MS = 1500;
/**
 * The same while the worker has no sockets and no outage: nearly three beats, so that they leave
 * with a beat. It is below MAX_BLIND_MS of identity.js, which tells a new replica from a promotion.
 */
const REST_INTERVAL_MS = 2950;
/** How long the node waits if an address leads to the wrong server. */
const PATIENCE_MS = 20_000;
/** How long Redis knows that workers hear through replicas, and how often they say so. */
const FAR_MS = 60_000;
const FAR_INTERVAL_MS = 20_000;

/**
 * @typedef {object} NodeEvents
 * @property {() => void} onUpdate `isUp` may have changed
 * @property {(reason: string) => void} onAway
 * @property {(reason: string) => void} onRefused Redis has refused a publish or a read, for example
 *   because it is full or the user lacks a right
 * @property {(channel: Buffer, message: Buffer) => void} onMessage called for its own probes, too
 * @property {(channels: string[]) => void} onMoved these channels moved here from another node and
 *   may have missed publications
 * @property {() => void} onStale the node has lost slots
 * @property {(isReplica: boolean, reason: string) => void} onSwitch as of HearingEvents
 * @property {(ms: number) => void} [onPublishLag]
 * @property {(seconds: number) => void} [onRoundTrip]
 */

/**
 * @typedef
 *   {Pick<import('../../config/settings.js').Config, 'redisPrefix'|'redisTimeoutMs'|'maxPubsubBytes'|'roomLingerMs'|'historyFence'|'fastPaths'>}
 *   NodeConfig
 */

/**
 * @typedef {object} NodeParts
 * @property {import('../../config/redis.js').RedisSettings} settings
 * @property {import('../../config/redis.js').Address} [address] of a node, in a cluster
 * @property {NodeConfig} config @property {import('./keys.js').Keys} keys
 * @property {import('./stall-aware-clock.js').StallAwareClock} clock
 * @property
 *   {Pick<import('../../observability/counters.js').Counters, 'sockets'|'brokerReconnects'|'probeMisses'|'fastPaths'>}
 *   counters
 * @property {NodeEvents} events
 */

export class RedisNode {
  probeChannel = '';
  /** A probe has come back over these connections. */
  isProven = false;
  /** When the latest probe came back, or `commands` connected; on the live clock. */
  provenMs = 0;
  isReconnect = { commands: false, subscriber: false };
  isClosed = false;
  /** When this node last said that it hears through a replica; on the live clock. */
  saidFarMs = 0;

  /** @param {NodeParts} parts */
  constructor(parts) {
    const { config, keys, clock, counters, events } = parts;
    this.isSharded = parts.address !== undefined;
    this.clock = clock;
    this.counters = counters;
    this.events = events;
    this.keys = keys;
    this.commands = new RedisConnection({
      settings: parts.settings,
      address: parts.address,
      name: `${config.redisPrefix}commands`,
      timeoutMs: config.redisTimeoutMs,
      checkReset: resetCheck(config, counters),
      onReady: () => this.#commandsOnReady(),
      onAway: (reason) => this.#onAway(reason),
    });
    this.#listen();
    this.publisher = this.#makePublisher(config);
    const streams = {
      publisher: this.publisher,
      keys,
      isSharded: this.isSharded,
      maxPubsubBytes: config.maxPubsubBytes,
      fence: config.historyFence,
      // In a cluster this channel is in one of the node's slots.
      guardKey: () => this.probeChannel,
    };
    this.history = new RedisHistory(streams);
    this.state = new RedisState(streams);
    /** @type {LoopbackProbe} */
    this.probe = this.#makeProbe();
    /** @type {Hearing} */
    this.hearing = this.#makeHearing(parts);
    this.identity = new RedisIdentity({
      commands: this.commands,
      intervalMs: this.#intervalMs,
      isFenced: config.historyFence === 'strict',
      onUpdate: () => {
        this.#checkServers();
        events.onUpdate();
      },
      onMoved: (server, former, replicationId) => {
        for (const stream of [this.history, this.state])
          stream.moveOn(server, former, replicationId);
        // The owner of these channels reads their rooms, which replaces their fences. Until then, a
        // worker that starts gives these rooms a new epoch.
        events.onMoved([...this.subscriptions.channels.keys()]);
      },
    });
  }

  #intervalMs = () => (this.isUp && this.counters.sockets === 0 ? REST_INTERVAL_MS : INTERVAL_MS);

  /** What the worker hears now. @returns {import('./subscriber.js').Subscriber} */
  get subscriptions() {
    return this.hearing.current.subscriptions;
  }

  /** @returns {RedisConnection} */
  get subscriber() {
    return this.hearing.current.connection;
  }

  /** @param {NodeParts} parts @returns {Hearing} */
  #makeHearing({ settings, address, config }) {
    const { events, counters, clock, probe, isSharded } = this;
    return new Hearing({
      settings,
      address,
      config,
      counters,
      clock,
      probe,
      isSharded,
      checkReset: resetCheck(config, counters),
      onSlotMoved: events.onStale,
      events: {
        onReady: () => this.#subscriberOnReady(),
        onLive: () => this.#subscriptionsOnLive(),
        onAway: (reason) => this.#subscriberOnAway(reason),
        onRefused: (reason) => {
          if (isSharded) events.onStale();
          if (!this.subscriptions.isLive) this.#onAway(reason);
        },
        onMoved: events.onMoved,
        onMessage: events.onMessage,
        onSwitch: events.onSwitch,
      },
    });
  }

  #listen() {
    const { redis: commands } = this.commands;
    commands.on('connect', () => watchEmptying(commands.stream, () => this.#redisOnEmptied()));
  }

  /** @param {NodeConfig} config */
  #makePublisher(config) {
    const { isSharded, clock, keys, counters, events } = this;
    return new RedisPublisher({
      connection: this.commands,
      clock,
      keys,
      isSharded,
      maxPubsubBytes: config.maxPubsubBytes,
      timeoutMs: config.redisTimeoutMs,
      usesOwnCommands: useFastPath('redis_commands', config, counters, ownCommandsFault),
      onPublishLag: events.onPublishLag,
      onRefused: (error) => {
        if (isSharded && STALE.test(error.message)) events.onStale();
        // The error for an unknown command repeats its arguments.
        else events.onRefused(this.commands.describe(error).split(', with args')[0]);
      },
    });
  }

  /** @returns {LoopbackProbe} */
  #makeProbe() {
    return new LoopbackProbe({
      publish: (token) => this.publisher.send(this.probeChannel, token),
      ping: () => this.subscriber.redis.ping(),
      intervalMs: this.#intervalMs,
      onRoundTrip: (seconds) => this.events.onRoundTrip?.(seconds),
      onAnswer: (isWholeBus) => this.#probeOnAnswer(isWholeBus),
      onMiss: () => {
        this.counters.probeMisses++;
      },
      onDead: (hasAnswered) => this.#probeOnDead(hasAnswered),
      onRefused: (error) => this.#probeOnRefused(error),
    });
  }

  /** Connects, and retries until `close`. @param {string} probeChannel in one of its slots */
  open(probeChannel) {
    this.probeOn(probeChannel);
    this.commands.open();
    this.hearing.open();
  }

  /** Sends its probes through this channel. @param {string} channel in one of its slots */
  probeOn(channel) {
    this.probe.stop();
    if (this.probeChannel !== '') this.hearing.unsubscribe(this.probeChannel);
    this.probeChannel = channel;
    this.hearing.probeOn(channel);
    this.hearing.subscribe(channel).then(
      () => {
        if (this.probeChannel === channel && this.subscriptions.isLive)
          this.probe.start(this.clock.nowMs);
      },
      () => {
        // #subscriptionsOnLive starts the probe later.
      },
    );
  }

  /** A probe of this worker has come back. @param {Buffer} channel @param {Buffer} message */
  receiveProbe(channel, message) {
    if (channel.equals(Buffer.from(this.probeChannel))) this.probe.receive(message);
  }

  /** @param {import('../../config/room-patterns.js').HistoryRule} rule of a room */
  streamsOf({ state }) {
    return state === undefined ? this.history : this.state;
  }

  /** A publication arrived. @param {string} room @param {number} offset @param {string} epoch */
  see(room, offset, epoch) {
    this.history.see(room, offset, epoch);
    if (this.state.rooms.size > 0) this.state.see(room, offset, epoch);
  }

  get isUp() {
    const { commands, subscriptions, identity } = this;
    return commands.isReady && subscriptions.isLive && this.isProven && identity.isPrimary;
  }

  /** @param {number} nowMs on the live clock @returns {number} when something is due next */
  tick(nowMs) {
    const { unanswered } = this.publisher;
    unanswered.expireLate(nowMs);
    const { lastToken } = this.probe;
    this.probe.tick(nowMs);
    this.identity.tick(nowMs, this.probe.lastToken !== lastToken);
    const { hearing } = this;
    hearing.tick(nowMs, this.commands.isReady);
    if (hearing.replica !== null && nowMs - this.saidFarMs >= FAR_INTERVAL_MS) this.#sayFar(nowMs);
    if (unanswered.isWaiting) return nowMs;
    return Math.min(this.probe.dueMs, this.identity.dueMs, hearing.dueMs);
  }

  close() {
    this.isClosed = true;
    this.probe.stop();
    this.hearing.close();
    this.commands.close();
  }

  #commandsOnReady() {
    if (this.isReconnect.commands) this.counters.brokerReconnects++;
    this.isReconnect.commands = true;
    this.isProven = false;
    this.provenMs = this.clock.nowMs;
    this.history.reset();
    this.state.reset();
    trackEmptying(this.commands.redis);
    // Before the probe, so that the node is up only afterwards.
    if (this.hearing.replica !== null) this.#sayFar(this.clock.nowMs);
    this.identity.commandsOnReady(this.clock.nowMs);
    this.#checkServers();
    this.probe.restart(this.clock.nowMs);
    this.events.onUpdate();
  }

  #subscriberOnReady() {
    // Before the subscriptions, because after them RESP2 permits no other commands.
    if (!this.hearing.isReplica) this.identity.subscriberOnReady(this.subscriber);
  }

  /** Publishers store large publications also if only replicas have subscribers. @param {number} nowMs */
  #sayFar(nowMs) {
    this.saidFarMs = nowMs;
    const { redis } = this.commands;
    redis.set(this.keys.farKey, '1', 'PX', FAR_MS).catch((error) => {
      if (error instanceof ReplyError) this.events.onRefused(this.commands.describe(error));
    });
  }

  #subscriptionsOnLive() {
    if (this.isReconnect.subscriber) this.counters.brokerReconnects++;
    this.isReconnect.subscriber = true;
    this.isProven = false;
    this.probe.start(this.clock.nowMs);
    this.events.onUpdate();
  }

  /** @param {string} reason */
  #subscriberOnAway(reason) {
    this.probe.stop();
    this.#onAway(reason);
  }

  /** @param {string} reason */
  #onAway(reason) {
    if (!this.isClosed) this.events.onAway(reason);
  }

  /** @param {boolean} isWholeBus */
  #probeOnAnswer(isWholeBus) {
    this.subscriber.prove();
    if (!isWholeBus) return;
    this.commands.prove();
    this.isProven = true;
    this.provenMs = this.clock.nowMs;
    if (this.hearing.isReplica) this.identity.subscriberOnProven();
    this.#checkServers();
    this.events.onUpdate();
  }

  /** @param {boolean} hasAnswered has any probe come back over this subscriber? */
  #probeOnDead(hasAnswered) {
    const reason = 'publications do not reach the subscriber';
    if (this.hearing.isReplica)
      return this.hearing.leaveReplica('publications do not come through the replica');
    this.subscriber.destroy(reason);
    // The other connection may lead to a server that no other worker uses.
    const isPatient = hasAnswered || this.clock.nowMs - this.provenMs < PATIENCE_MS;
    if (!isPatient) this.commands.destroy(`${reason} on new subscribers either`);
  }

  #redisOnEmptied() {
    this.commands.destroy('Redis has deleted or replaced the data of a database');
  }

  #checkServers() {
    const { isPrimary, isSplit } = this.identity;
    let obstacle = '';
    if (!isPrimary) obstacle = 'not known yet whether Redis is a primary';
    else if (isSplit && !this.isProven)
      obstacle = 'the connections lead to different Redis servers';
    this.publisher.obstruct(obstacle);
    // What the replica passes on is of the former primary.
    if (isSplit && !this.isProven && this.hearing.isReplica)
      this.hearing.leaveReplica('the commands reach another primary');
  }

  /** @param {unknown} error */
  #probeOnRefused(error) {
    const { cause } = /** @type {{cause?: unknown}} */ (error);
    // Without a cause the connection is lost, which it reports itself.
    if (cause === undefined) return;
    this.isProven = false;
    this.#onAway(this.commands.describe(cause));
  }
}

/** @param {NodeConfig} config @param {NodeParts['counters']} counters */
function resetCheck(config, counters) {
  return (/** @type {import('node:net').Socket} */ stream) =>
    stream instanceof TLSSocket &&
    useFastPath('redis_reset', config, counters, () => tlsResetFault(stream));
}
