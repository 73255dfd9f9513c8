// hearing.js: how a worker hears what Redis publishes: from the primary, or through a replica.
//
// Through a replica in the worker's region (REDIS_SUBSCRIBE_URL) one replication stream crosses the
// distance, and not a subscription for each worker.
//   primary ==publications==> replica ==subscriber==> onMessage
//
// Without replicas there is one subscriber, at the primary, for ever. With them:
// - A replica passes on each PUBLISH of its primary, in order. If their link breaks, the primary
//   sends the missing part again. If it no longer has it, the replica takes a new copy of the data
//   without the publications in between. Redis then announces that the former data is gone
//   (data-loss.js), and the worker subscribes again, as after any lost connection.
// - A replica that has restarted from an older copy, and one that is later than the replica heard
//   before, pass on what the worker has heard already. So after each connection the worker ignores
//   what comes before its first probe, as it was published in the outage, or earlier.
// - If the replica is unreachable for PATIENCE_MS, if no probe comes back through it, or if the
//   commands reach another primary than before, the worker leaves it, and subscribes at the
//   primary. That is an outage, which the broker reports.
// - Meanwhile the worker stays subscribed at the replica, too, and returns to it when it keeps up
//   again: without an outage (handover.js).

import { ReplyError } from 'ioredis';
import { useFastPath } from '../../config/fast-paths.js';
import { RedisConnection } from './connection.js';
import { trackEmptying, watchEmptying } from './data-loss.js';
import { RedisPushes } from './fast/push-reader.js';
import { Handover } from './handover.js';
import { PROBE_BYTES } from './loopback-probe.js';
import { Subscriber } from './subscriber.js';

/** How long a worker waits for a replica that it cannot reach. */
const PATIENCE_MS = 3000;
/** A return that did not last so long makes the next one later. */
const LASTING_MS = 300_000;
const MAX_RETURNS = 4;
const NEVER_MS = Number.POSITIVE_INFINITY;

/** @import { RedisSettings, Address } from '../../config/redis.js' */

/**
 * A subscriber and its connection.
 * @typedef {object} Ear
 * @property {RedisConnection} connection @property {Subscriber} subscriptions
 * @property {boolean} isReplica
 */

/**
 * What happens to the subscriber that the worker hears.
 * @typedef {object} HearingEvents
 * @property {() => void} onReady its connection is ready, and nothing is subscribed yet
 * @property {() => void} onLive every wanted channel is subscribed
 * @property {(reason: string) => void} onAway
 * @property {(reason: string) => void} onRefused as of Subscriber
 * @property {(channels: string[]) => void} onMoved as of Subscriber
 * @property {(channel: Buffer, message: Buffer) => void} onMessage
 * @property {(isReplica: boolean, reason: string) => void} onSwitch the worker has left a replica,
 *   for this reason, or has returned to it
 */

/**
 * @typedef {object} HearingParts
 * @property {RedisSettings} settings @property {Address} [address] of a node, in a cluster
 * @property
 *   {Pick<import('../../config/settings.js').Config, 'redisPrefix'|'redisTimeoutMs'|'roomLingerMs'|'fastPaths'>}
 *   config
 * @property {Pick<import('../../observability/counters.js').Counters, 'fastPaths'>} counters
 * @property {import('./loopback-probe.js').LoopbackProbe} probe
 * @property {{nowMs: number}} clock @property {boolean} isSharded
 * @property {(stream: import('node:net').Socket) => boolean} checkReset as of RedisConnection
 * @property {() => void} onSlotMoved Redis has ended subscriptions, because their slot has moved
 * @property {HearingEvents} events
 */

export class Hearing {
  /** Subscribed at the replica; null if there is none. @type {Ear|null} */
  replica = null;
  /** Null while the worker hears from the primary for ever, or from the replica. @type {Handover|null} */
  handover = null;
  probeChannel = Buffer.alloc(0);
  /** Has a probe come over this connection to the replica? */
  #isReplicaInStep = false;
  /** Since when the replica that the worker hears is unreachable; on the live clock. */
  #lostMs = NEVER_MS;
  #returnedMs = Number.NEGATIVE_INFINITY;
  /** Returns in a row that did not last. */
  #returns = 0;

  /** @param {HearingParts} parts @throws {Error} if a certificate's file can't be read */
  constructor(parts) {
    this.parts = parts;
    if (parts.settings.subscribe !== undefined) this.replica = this.#makeEar(true);
    /** What the worker hears. */
    this.current = this.replica ?? this.#makeEar(false);
  }

  get isReplica() {
    return this.current.isReplica;
  }

  open() {
    if (this.isReplica) this.#lose();
    this.current.connection.open();
  }

  close() {
    for (const { subscriptions, connection } of this.#ears()) {
      subscriptions.lose();
      connection.close();
    }
  }

  /** @param {string} channel of the probes */
  probeOn(channel) {
    this.probeChannel = Buffer.from(channel);
  }

  /** @param {string} channel @returns {Promise<void>} as of Subscriber */
  subscribe(channel) {
    const heard = this.current.subscriptions.subscribe(channel);
    if (this.handover === null) return heard;
    // Whichever is heard in the end has the channel.
    const replica = /** @type {Ear} */ (this.replica);
    const other = replica.subscriptions.subscribe(channel).catch((error) => {
      if (this.current === replica) throw error; // the worker has returned meanwhile
      // Without the channel it must not be heard. Its next connection asks for all of them again.
      if (error.cause instanceof ReplyError)
        replica.connection.destroy('the replica refused a subscription');
    });
    return Promise.all([heard, other]).then(() => {});
  }

  /** @param {string} channel */
  unsubscribe(channel) {
    for (const { subscriptions } of this.#ears()) subscriptions.unsubscribe(channel);
  }

  /** When something is due next; on the live clock. */
  get dueMs() {
    const { handover } = this;
    return handover === null ? this.#lostMs + PATIENCE_MS : handover.dueMs;
  }

  /**
   * @param {number} nowMs on the live clock
   * @param {boolean} isPrimaryReachable otherwise there is no other place to hear
   */
  tick(nowMs, isPrimaryReachable) {
    const { replica, handover } = this;
    if (replica === null) return;
    if (handover === null) {
      if (nowMs >= this.dueMs && isPrimaryReachable)
        this.leaveReplica(`the replica is unreachable: ${replica.connection.reason}`);
      return;
    }
    if (handover.tick(nowMs))
      replica.connection.destroy('no publication has come through the replica');
  }

  /** Hears from the primary, until the replica keeps up again. @param {string} reason */
  leaveReplica(reason) {
    const { replica, parts } = this;
    if (replica === null || this.handover !== null) return;
    const { clock, probe, events } = parts;
    let primary;
    try {
      primary = this.#makeEar(false);
    } catch {
      // A certificate's file is being replaced: the next tick tries again.
      this.#lose();
      return;
    }
    const { nowMs } = clock;
    this.#returns =
      nowMs - this.#returnedMs < LASTING_MS ? Math.min(this.#returns + 1, MAX_RETURNS) : 0;
    this.#lostMs = NEVER_MS;
    this.current = primary;
    this.handover = new Handover({
      tokenOf: (channel, message) => this.#tokenOf(channel, message),
      lastToken: () => probe.lastToken,
      nextToken: () => probe.nextToken,
      nowMs: () => clock.nowMs,
      deliver: events.onMessage,
      onDone: () => this.#return(primary),
      returns: this.#returns,
    });
    replica.connection.destroy(reason);
    primary.subscriptions.want(replica.subscriptions.channels.keys());
    events.onSwitch(false, reason);
    events.onAway(reason);
    primary.connection.open();
  }

  /** @param {Ear} primary */
  #return(primary) {
    this.handover = null;
    this.current = /** @type {Ear} */ (this.replica);
    this.#isReplicaInStep = true;
    this.#returnedMs = this.parts.clock.nowMs;
    primary.subscriptions.retire();
    primary.connection.close();
    this.parts.events.onSwitch(true, '');
  }

  #ears() {
    const { current, replica } = this;
    return replica === null || replica === current ? [current] : [current, replica];
  }

  /** @param {boolean} isReplica @returns {Ear} */
  #makeEar(isReplica) {
    const { settings, address, config, isSharded, checkReset } = this.parts;
    const connection = new RedisConnection({
      settings: /** @type {RedisSettings} */ (isReplica ? settings.subscribe : settings),
      address,
      name: `${config.redisPrefix}subscriber`,
      timeoutMs: config.redisTimeoutMs,
      checkReset,
      onReady: () => this.#earOnReady(ear),
      onAway: (reason) => this.#earOnAway(ear, reason),
    });
    const subscriptions = new Subscriber({
      connection,
      isSharded,
      roomLingerMs: config.roomLingerMs,
      timeoutMs: config.redisTimeoutMs,
      onLive: () => this.#earOnLive(ear),
      onRefused: (reason) => this.#earOnRefused(ear, reason),
      onMoved: this.parts.events.onMoved,
    });
    /** @type {Ear} */
    const ear = { connection, subscriptions, isReplica };
    this.#listen(ear);
    return ear;
  }

  /** @param {Ear} ear */
  #listen(ear) {
    const { config, counters, settings, isSharded, onSlotMoved, events } = this.parts;
    const onMessage =
      settings.subscribe === undefined
        ? events.onMessage
        : (/** @type {Buffer} */ channel, /** @type {Buffer} */ message) =>
            this.#hear(ear, channel, message);
    const pushes = new RedisPushes({ kind: isSharded ? 'smessage' : 'message', onMessage });
    const { redis } = ear.connection;
    redis.on('connect', () => {
      // Behind the fast path, which gives back its place if it meets a frame that it does not know.
      if (ear.isReplica)
        watchEmptying(redis.stream, () =>
          ear.connection.destroy('the replica has replaced its data'),
        );
      useFastPath('redis_pushes', config, counters, () => pushes.attach(redis.stream));
    });
    // A Redis without pushes (RESP2) has this event.
    redis.on(isSharded ? 'smessageBuffer' : 'messageBuffer', onMessage);
    if (!isSharded) return;
    redis.on('moved', () => {
      ear.subscriptions.countEnded();
      onSlotMoved();
    });
  }

  /** Replicas are configured. @param {Ear} ear @param {Buffer} channel @param {Buffer} message */
  #hear(ear, channel, message) {
    const { handover } = this;
    if (handover === null) {
      if (ear !== this.current) return;
      if (!this.#isReplicaInStep && !this.#beginsStep(channel, message)) return;
      this.parts.events.onMessage(channel, message);
    } else if (!ear.isReplica) {
      if (ear === this.current) handover.hearPrimary(channel, message);
    } else if (ear.subscriptions.isLive) handover.hearReplica(channel, message);
  }

  /** @param {Buffer} channel @param {Buffer} message through the replica */
  #beginsStep(channel, message) {
    const token = this.#tokenOf(channel, message);
    this.#isReplicaInStep = token !== 0 && token === this.parts.probe.token;
    return this.#isReplicaInStep;
  }

  /** @param {Buffer} channel @param {Buffer} message */
  #tokenOf(channel, message) {
    if (message.length !== PROBE_BYTES || !channel.equals(this.probeChannel)) return 0;
    return message.readUInt32BE(0);
  }

  /** @param {Ear} ear */
  #earOnReady(ear) {
    if (ear.isReplica) trackEmptying(ear.connection.redis);
    if (ear === this.current) this.parts.events.onReady();
    ear.subscriptions.restore();
  }

  /** @param {Ear} ear */
  #earOnLive(ear) {
    if (ear !== this.current) return;
    this.#lostMs = NEVER_MS;
    this.parts.events.onLive();
  }

  /** @param {Ear} ear @param {string} reason */
  #earOnAway(ear, reason) {
    this.handover?.reset();
    ear.subscriptions.lose();
    if (ear.isReplica) this.#isReplicaInStep = false;
    if (ear !== this.current) return;
    if (ear.isReplica) this.#lose();
    this.parts.events.onAway(ear.isReplica ? `the replica: ${reason}` : reason);
  }

  /** @param {Ear} ear @param {string} reason */
  #earOnRefused(ear, reason) {
    this.handover?.reset();
    if (ear !== this.current) return;
    if (ear.isReplica && !ear.subscriptions.isLive) this.#lose();
    this.parts.events.onRefused(reason);
  }

  #lose() {
    this.#lostMs = Math.min(this.#lostMs, this.parts.clock.nowMs);
  }
}
