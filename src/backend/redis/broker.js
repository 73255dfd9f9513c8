// broker.js: the broker of many machines, over Redis pub/sub.
//   publish, history --> node of the room --> inbox --> onPublication
//
// A node (node.js) is a Redis primary with two connections. A cluster (cluster.js) has several, and
// the room's name decides which one serves it. The broker is `up` while all nodes are up. If a node
// is unavailable, publishes to its rooms are refused at once, not queued.

import { randomBytes } from 'node:crypto';
import { addressText } from '../../config/redis.js';
import { RoomRules } from '../../config/room-patterns.js';
import { RareLog } from '../../observability/rare-log.js';
import { hasKey } from '../../protocol/publication.js';
import { within } from '../deferred.js';
import { BrokerError, keyMissing } from '../errors.js';
import { RedisCluster } from './cluster.js';
import { RedisClusterClient } from './cluster-client.js';
import { RedisFleet } from './fleet.js';
import { Inbox } from './inbox.js';
import { CHANNEL_KIND, Keys } from './keys.js';
import { PROBE_BYTES } from './loopback-probe.js';
import { RedisNode } from './node.js';
import { slotOf, slotOfTag } from './slots.js';
import { MAX_LATE_MS, StallAwareClock } from './stall-aware-clock.js';

const TICK_MS = 50;
/** After this time `start` continues without Redis. */
const START_TIMEOUT_MS = 5000;
const CLOSE_TIMEOUT_MS = 2000;
/** Reasons logged in one outage. */
const MAX_REASONS = 8;

/**
 * @typedef {object} BrokerParts
 * @property
 *   {Pick<import('../../config/settings.js').Config, 'redis'|'redisPrefix'|'redisTimeoutMs'|'maxPubsubBytes'|'roomLingerMs'|'historyFence'|'fastPaths'>}
 *   config
 * @property {import('pino').Logger} log
 * @property
 *   {Pick<import('../../observability/counters.js').Counters, 'sockets'|'brokerReconnects'|'probeMisses'|'hearing'|'skipped'|'malformed'|'unknownVersions'|'fastPaths'>}
 *   counters
 * @property {string} workerId @property {HistoryOf} [historyOf]
 * @property {RoomRules<import('../../config/room-patterns.js').HistoryRule>} [historyRules] those
 *   of `historyOf`; the broker adds rules of other servers
 * @property {(ms: number) => void} [onPublishLag] from writing publications to Redis' answer
 * @property {(seconds: number) => void} [onRoundTrip] of a probe through the bus
 * @property {(isUp: boolean) => void} [onUp] the state has changed; called before the events of
 *   `start`
 */

/** @implements {Broker} */
export class RedisBroker {
  /** @type {BrokerState} */
  state = 'degraded';
  /** @type {BrokerEvents|null} */
  events = null;
  /** Reasons logged in this outage. @type {Set<string>} */
  reasons = new Set();
  awaySince = 0;
  onSettled = () => {};
  /** @type {Promise<void>|null} */
  closing = null;
  /** Created by `connection`. @type {RedisClusterClient|null} */
  client = null;

  /** @param {BrokerParts} parts */
  constructor(parts) {
    const { config, log, counters, workerId, historyOf = () => null, onUp } = parts;
    const settings = /** @type {RedisSettings} */ (config.redis);
    this.log = log;
    this.rareLog = new RareLog(log);
    this.counters = counters;
    this.historyOf = historyOf;
    this.onUp = onUp;
    // Worker ids are not unique: a restart may reuse a process id, and in containers it is often 1.
    const id = `${workerId}:${randomBytes(4).toString('hex')}`;
    this.keys = new Keys(config.redisPrefix);
    this.inbox = this.#makeInbox();
    // Even after a tick that is late, an answer that has arrived is read before it counts as late.
    const { redisTimeoutMs: timeoutMs } = config;
    const restMs = Math.max(timeoutMs / 2, timeoutMs - MAX_LATE_MS);
    const times = { tickMs: TICK_MS, restMs };
    this.clock = new StallAwareClock(times, (nowMs) => this.#tick(nowMs));
    this.access = { settings, timeoutMs };
    this.probeChannel = this.keys.probeChannelOf(id, '');
    /** @param {Address} [address] */
    const makeNode = (address) => this.#makeNode(parts, settings, address);
    if (settings.subscribe !== undefined) this.#countHearing(true);
    /** Null in a cluster. @type {RedisNode|null} */
    this.node = settings.kind === 'cluster' ? null : makeNode();
    /** @type {RedisCluster|null} */
    this.cluster =
      this.node !== null
        ? null
        : new RedisCluster({
            ...this.access,
            makeNode,
            probeChannelOf: (tag) => this.keys.probeChannelOf(id, tag),
            onUpdate: () => this.#update(),
            onAway: (reason) => this.#onAway(reason, ''),
          });
    this.fleet = this.#makeFleet(id, parts.historyRules);
  }

  #makeInbox() {
    return new Inbox({
      keys: this.keys,
      onNumbered: (room, offset, epoch) => {
        // Not needed in a cluster: if a node is demoted, Redis ends its subscriptions, and the
        // broker reads the positions of all rooms again.
        this.node?.see(room, offset, epoch);
      },
      onOther: (channel, message) => this.#inboxOnOther(channel, message),
      fetch: (room, id, offset, epoch) => this.#fetch(room, id, offset, epoch),
      onSkipped: (reason) => this.#onSkipped(reason),
      onMalformed: (channel) => this.#onMalformed(channel),
      onUnknown: (room, version) => this.#onUnknownPublication(room, version),
    });
  }

  /**
   * @param {BrokerParts} parts @param {RedisSettings} settings
   * @param {Address} [address] in a cluster
   */
  #makeNode({ config, counters, onPublishLag, onRoundTrip }, settings, address) {
    const place = address === undefined ? '' : addressText(address);
    const node = new RedisNode({
      settings,
      address,
      config,
      keys: this.keys,
      clock: this.clock,
      counters,
      events: {
        onUpdate: () => this.#update(),
        onAway: (reason) => this.#onAway(reason, place),
        onRefused: (reason) => this.rareLog.warn({ reason }, 'Redis refuses a publish or read'),
        onMessage: this.inbox.receive,
        onMoved: (channels) => this.#nodeOnMoved(channels),
        onStale: () => {
          this.cluster?.stale(node);
          this.clock.hurry();
        },
        onSwitch: (isReplica, reason) => this.#nodeOnSwitch(isReplica, reason),
        onPublishLag,
        onRoundTrip,
      },
    });
    return node;
  }

  /**
   * @param {string} id of this worker, unique in the fleet
   * @param {BrokerParts['historyRules']} rules of this server
   */
  #makeFleet(id, rules = new RoomRules([])) {
    return new RedisFleet({
      id,
      rules,
      keys: this.keys,
      clock: this.clock,
      bus: {
        send: (channel, message) => this.#sendTo(channel, message),
        // If this fails, the channel is subscribed later.
        subscribe: (channel) => void this.#subscribe(channel).catch(() => {}),
        unsubscribe: (channel) => this.#unsubscribe(channel),
        tag: () => this.keys.tagOf(this.#fleetNode()?.probeChannel ?? ''),
      },
      onFault: (fault, channel) => {
        if (fault === 'malformed') this.#onMalformed(channel);
        else this.#onUnknown({ channel });
      },
      onAdopted: (kind, patterns) => {
        const setting = kind === 'state' ? 'FANFARE_STATE' : 'FANFARE_HISTORY';
        this.log.warn(
          { patterns },
          `other servers have ${setting} rules that this one lacks: using them until the next restart`,
        );
      },
    });
  }

  /** @param {string} channel @param {Buffer} message best effort, because the next one replaces it */
  #sendTo(channel, message) {
    this.#nodeFor(channel)
      ?.publisher.send(channel, message)
      .catch(() => {});
  }

  /** @param {BrokerEvents} events */
  async start(events) {
    this.events = events;
    this.inbox.listen(events.onPublication);
    this.awaySince = performance.now();
    this.clock.start();
    const settled = new Promise((resolve) => {
      this.onSettled = () => resolve(undefined);
    });
    const timer = setTimeout(this.onSettled, START_TIMEOUT_MS);
    this.node?.open(this.probeChannel);
    this.fleet.open();
    this.cluster?.tick();
    await settled;
    clearTimeout(timer);
    // The rules of others are among their answers.
    await this.fleet.membership.awaitAnswers();
  }

  close() {
    this.closing ??= this.#close();
    return this.closing;
  }

  async #close() {
    this.fleet.leave();
    const drained = this.#nodes().map(({ publisher }) => publisher.drained());
    await within(Promise.all(drained), CLOSE_TIMEOUT_MS);
    this.clock.close();
    this.inbox.close();
    this.node?.close();
    this.cluster?.close();
    this.client?.close();
    this.#become('down');
    this.onSettled();
  }

  /** Call it at each beat of the worker. */
  beat() {
    this.clock.beat();
  }

  /** @param {string} room @returns {Promise<void>} */
  subscribe(room) {
    if (this.closing !== null) return closed();
    return this.#subscribe(this.keys.channelOf(room));
  }

  /** @param {string} room */
  unsubscribe(room) {
    if (this.closing === null) this.#unsubscribe(this.keys.channelOf(room));
  }

  /** @param {string} room @param {Buffer} publication @param {PublishOptions} [options] */
  publish(room, publication, options) {
    if (this.closing !== null) return closed();
    const node = this.#nodeOf(room);
    if (node === null) return homeless();
    const found = this.historyOf(room);
    const isState = found?.state !== undefined;
    if (isState && !hasKey(publication)) return Promise.reject(keyMissing());
    const rule = options?.isTransient && !isState ? null : found;
    const key = options?.idempotencyKey ?? '';
    const fingerprint = options?.fingerprint ?? '';
    if (rule !== null)
      return node
        .streamsOf(rule)
        .publish(room, rule, publication, key, fingerprint, options?.expect);
    if (key === '') return node.publisher.publish(room, publication);
    return node.publisher.publishOnce(room, publication, key, fingerprint);
  }

  flush() {
    if (this.node !== null) this.node.publisher.flush();
    else for (const { publisher } of this.#nodes()) publisher.flush();
  }

  /** @param {string} room @param {ReadRequest} from */
  history(room, from) {
    if (this.closing !== null) return closed();
    const node = this.#nodeOf(room);
    if (node === null) return homeless();
    const rule = this.historyOf(room);
    if (rule === null)
      return Promise.reject(new BrokerError('UNAVAILABLE', 'the room has no history'));
    return node.streamsOf(rule).read(room, rule, from);
  }

  /** @returns {RedisConnection|RedisClusterClient} */
  get connection() {
    if (this.node !== null) return this.node.commands;
    if (this.client === null) {
      this.client = new RedisClusterClient(this.access);
      this.client.open();
    }
    return this.client;
  }

  /** @param {((report: Buffer) => void)|null} onReport valid in the call */
  receiveReports(onReport) {
    if (this.closing === null) this.fleet.receiveReports(onReport);
  }

  /** @param {Buffer} report best effort, because the next one replaces it */
  sendReport(report) {
    if (this.closing === null) this.fleet.sendReport(report);
  }

  /** @param {number} connections */
  reportConnections(connections) {
    this.fleet.reportConnections(connections);
  }

  countConnections() {
    return this.fleet.countConnections();
  }

  countWorkers() {
    return this.fleet.countWorkers();
  }

  /** @param {number} nowMs @returns {number} when something is due next */
  #tick(nowMs) {
    let dueMs = this.fleet.membership.tick(nowMs);
    for (const node of this.#nodes()) dueMs = Math.min(dueMs, node.tick(nowMs));
    if (this.cluster !== null) dueMs = Math.min(dueMs, nowMs + this.cluster.tick());
    return dueMs;
  }

  /** @param {string} room @returns null: no node serves its slot */
  #nodeOf(room) {
    return this.node ?? this.cluster?.nodeOfSlot(slotOfTag(room)) ?? null;
  }

  #fleetNode() {
    return this.#nodeFor(this.keys.fleetChannel);
  }

  /** @param {string} channel @returns null: no node serves its slot */
  #nodeFor(channel) {
    return this.node ?? this.cluster?.nodeOfSlot(slotOf(channel)) ?? null;
  }

  #nodes() {
    return this.node !== null ? [this.node] : [...(this.cluster?.nodes.values() ?? [])];
  }

  /** @param {string} channel */
  #subscribe(channel) {
    if (this.node !== null) return this.node.hearing.subscribe(channel);
    return /** @type {RedisCluster} */ (this.cluster).subscribe(channel);
  }

  /** @param {string} channel */
  #unsubscribe(channel) {
    if (this.node !== null) this.node.hearing.unsubscribe(channel);
    else this.cluster?.unsubscribe(channel);
  }

  /**
   * @param {string} room @param {string} id @param {number} offset @param {string} epoch
   * @returns {Promise<Buffer|null>}
   */
  #fetch(room, id, offset, epoch) {
    const node = this.#nodeOf(room);
    if (node === null) return homeless();
    if (id === '') return node.history.body(room, offset, epoch);
    return node.commands.redis.getBuffer(this.keys.blobOf(room, id));
  }

  /** @param {Buffer} channel @param {Buffer} message */
  #inboxOnOther(channel, message) {
    const kind = this.keys.kindOf(channel);
    if (kind === CHANNEL_KIND.PROBE && message.length === PROBE_BYTES)
      for (const node of this.#nodes()) node.receiveProbe(channel, message);
    else this.fleet.receive(kind, message);
  }

  /** @param {string[]} channels */
  #nodeOnMoved(channels) {
    const bytes = channels.map((channel) => Buffer.from(channel));
    const rooms = bytes.filter((channel) => this.keys.kindOf(channel) === CHANNEL_KIND.ROOM);
    if (rooms.length > 0)
      this.events?.onLost?.(rooms.map((channel) => this.keys.roomOfRedisChannel(channel)));
  }

  /** @param {boolean} isReplica what this worker hears now @param {string} reason */
  #nodeOnSwitch(isReplica, reason) {
    this.#countHearing(isReplica);
    if (isReplica) this.log.info('the replica keeps up: hearing through it again');
    else this.log.warn({ reason }, 'hearing from the primary of Redis, not through the replica');
  }

  /** @param {boolean} isReplica */
  #countHearing(isReplica) {
    this.counters.hearing = { primary: Number(!isReplica), replica: Number(isReplica) };
  }

  /** @param {string} reason @param {string} address of a node in a cluster; else empty */
  #onAway(reason, address) {
    if (this.closing !== null) return;
    this.#update();
    // Log each reason once, not for each attempt.
    if (!this.reasons.has(reason) && this.reasons.size < MAX_REASONS) {
      this.reasons.add(reason);
      this.log.warn(
        address === '' ? { reason } : { node: address, reason },
        'Redis is unavailable',
      );
    }
    this.onSettled();
  }

  #update() {
    const isUp = this.node?.isUp ?? this.cluster?.isUp ?? false;
    this.#updateFleet();
    if (isUp === (this.state === 'up') || this.state === 'down') return;
    if (isUp) {
      const awayMs = Math.round(performance.now() - this.awaySince);
      // There was no outage at the start.
      if (this.reasons.size > 0) this.log.info({ awayMs }, 'Redis is available again');
      this.reasons.clear();
      // After a failover, a silent old primary does not tell this client where the slots are.
      this.client?.refresh();
    } else {
      this.awaySince = performance.now();
      this.clock.hurry();
    }
    this.#become(isUp ? 'up' : 'degraded');
    if (isUp) this.onSettled();
  }

  /** The fleet's channel needs only its own node, even if others in the cluster are unavailable. */
  #updateFleet() {
    if (this.closing === null) this.fleet.setLive(this.#fleetNode()?.isUp ?? false);
  }

  /** @param {BrokerState} state */
  #become(state) {
    this.state = state;
    this.onUp?.(state === 'up');
    this.events?.onState(state);
  }

  /**
   * A newer version of Fanfare has published, and this one cannot read the message. In rooms with
   * history the offsets show the gap, and members get `resync`.
   * @param {string} room @param {number} version
   */
  #onUnknownPublication(room, version) {
    if (this.historyOf(room) !== null) this.events?.onLost?.([room]);
    this.#onUnknown({ room, version });
  }

  /** @param {object} fields about the message */
  #onUnknown(fields) {
    this.#count('unknownVersions', fields, 'message of a newer version of Fanfare: dropped');
  }

  /** @param {string} channel without the prefix */
  #onMalformed(channel) {
    this.#count('malformed', { channel }, 'malformed message from Redis: dropped');
  }

  /** @param {string} reason */
  #onSkipped(reason) {
    this.#count('skipped', { reason }, 'publication skipped');
  }

  /**
   * @param {'skipped'|'malformed'|'unknownVersions'} what @param {object} fields
   * @param {string} text
   */
  #count(what, fields, text) {
    this.counters[what]++;
    this.rareLog.warn({ ...fields, [what]: this.counters[what] }, text);
  }
}

/** @returns {Promise<never>} */
function homeless() {
  return Promise.reject(new BrokerError('UNAVAILABLE', 'no node of the cluster serves this slot'));
}

/** @returns {Promise<never>} */
function closed() {
  return Promise.reject(new BrokerError('UNAVAILABLE', 'the broker is closed'));
}

/** @import { Address, RedisSettings } from '../../config/redis.js' */
/** @import { Broker, BrokerEvents, BrokerState, HistoryOf, PublishOptions, ReadRequest } from '../broker.js' */
/** @import { RedisConnection } from './connection.js' */
