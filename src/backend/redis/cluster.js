// cluster.js: the primaries of a Redis Cluster, and which of them has which slots.
//
// Each primary is a shard with connections of its own (redis-shard.js), as a single Redis is: what
// is lost with one of them is lost for its slots alone, its answers come in order, and a
// publication is never sent twice. ioredis' own cluster client does neither: it sends again what a
// lost connection may have carried, and does not tell when a subscription was refused. What it
// would add is the map below.
//
// The map is what `CLUSTER SLOTS` says. It is asked for again where a node says that a slot is not
// its own (MOVED, the end of a sharded subscription), all the time while a shard is away, since
// another may take its place, and now and then. Then the channels of a slot that has moved are
// moved to its new shard.

import { Redis } from 'ioredis';
import { addressText, redisOptions, redisSecrets, withoutSecrets } from '../../config/redis.js';
import { BrokerError } from '../errors.js';
import { SLOTS, slotOf, slotOfTag } from './slots.js';

const CONNECT_TIMEOUT_MS = 2000;
const DISCONNECT_TIMEOUT_MS = 200;
/** Between two looks at the map, whatever happens. */
const MIN_INTERVAL_MS = 20;
/** While it is not whole, or a shard is away; grows by as much up to the largest. */
const RETRY_STEP_MS = 100;
const MAX_RETRY_MS = 1000;
/** While nothing is amiss. */
const INTERVAL_MS = 10_000;
/** A shard without slots has this long to answer what is under way. */
const RETIRE_TIMEOUT_MS = 2000;

/** @typedef {import('./node.js').RedisNode} RedisNode */
/** @typedef {import('../../config/redis.js').Address} Address */

export class RedisCluster {
  /**
   * @param {object} parts
   * @param {import('../../config/redis.js').RedisSettings} parts.settings
   * @param {number} parts.timeoutMs for each answer
   * @param {(node: Address) => RedisNode} parts.makeShard
   * @param {(tag: string) => string} parts.probeChannelOf a channel with this hash tag
   * @param {() => void} parts.onUpdate `isUp` may have changed
   * @param {(reason: string) => void} parts.onAway no node tells the map
   */
  constructor({ settings, timeoutMs, makeShard, probeChannelOf, onUpdate, onAway }) {
    this.settings = settings;
    this.timeoutMs = timeoutMs;
    this.makeShard = makeShard;
    this.probeChannelOf = probeChannelOf;
    this.onUpdate = onUpdate;
    this.onAway = onAway;
    /** By address. @type {Map<string, RedisNode>} */
    this.shards = new Map();
    /**
     * Nodes that were heard of, primaries and replicas, by address.
     * @type {Map<string, Address>}
     */
    this.nodes = new Map();
    /** @type {(RedisNode|null)[]} */
    this.owners = Array(SLOTS).fill(null);
    /** Every slot has a shard. */
    this.isWhole = false;
    /** Wanted channels whose slot has none. @type {Set<string>} */
    this.waiting = new Set();
    this.isClosed = false;
    this.isAsking = false;
    this.askedMs = Number.NEGATIVE_INFINITY;
    /** Looks since all was well. */
    this.looks = 0;
    this.isStale = true;
    /** The one that noticed; it knows more than the others. @type {RedisNode|null} */
    this.witness = null;
  }

  get isUp() {
    if (!this.isWhole) return false;
    for (const shard of this.shards.values()) if (!shard.isUp) return false;
    return true;
  }

  /**
   * @param {number} slot
   * @returns {RedisNode|null}
   */
  of(slot) {
    return this.owners[slot];
  }

  /**
   * @param {string} channel
   * @returns {Promise<void>}
   */
  subscribe(channel) {
    const shard = this.of(slotOf(channel));
    if (shard !== null) return shard.subscriptions.subscribe(channel);
    this.waiting.add(channel);
    return Promise.reject(
      new BrokerError('UNAVAILABLE', 'no node of the cluster serves this slot'),
    );
  }

  /** @param {string} channel */
  unsubscribe(channel) {
    this.waiting.delete(channel);
    this.of(slotOf(channel))?.subscriptions.unsubscribe(channel);
  }

  /** @param {RedisNode|null} witness that has been told so, if one has */
  stale(witness) {
    this.isStale = true;
    this.witness = witness;
    if (performance.now() - this.askedMs >= MIN_INTERVAL_MS) this.#refresh();
  }

  /** To be called every few milliseconds. */
  tick() {
    const since = performance.now() - this.askedMs;
    const { isUp } = this;
    if (isUp) this.looks = 0;
    const interval = isUp ? INTERVAL_MS : Math.min(RETRY_STEP_MS * (this.looks + 1), MAX_RETRY_MS);
    if (since >= (this.isStale ? MIN_INTERVAL_MS : interval)) this.#refresh();
  }

  close() {
    this.isClosed = true;
    for (const shard of this.shards.values()) shard.close();
  }

  async #refresh() {
    if (this.isAsking || this.isClosed) return;
    this.isAsking = true;
    this.isStale = false;
    this.askedMs = performance.now();
    if (!this.isUp) this.looks++;
    const { witness } = this;
    this.witness = null;
    let reason = '';
    let isTold = false;
    for (const ask of this.#sources(witness)) {
      if (this.isClosed) return;
      try {
        const { ranges, host } = await ask();
        isTold = ranges.length > 0;
        if (!isTold) throw new Error('the node knows no slots');
        if (!this.isClosed) this.#apply(ranges, host);
        break;
      } catch (error) {
        reason = withoutSecrets(error, redisSecrets(this.settings));
      }
    }
    this.isAsking = false;
    if (!isTold && !this.isClosed)
      this.onAway(`cannot read the cluster's slots from any node: ${reason}`);
  }

  /**
   * Whom to ask, one after another: over what is connected, then anew.
   * @param {RedisNode|null} witness
   * @returns {Generator<() => Promise<{ranges: Range[], host: string}>>}
   */
  *#sources(witness) {
    const shards = [...this.shards].sort(() => Math.random() - 0.5);
    if (witness !== null)
      shards.sort(([, a], [, b]) => Number(b === witness) - Number(a === witness));
    for (const [address, { commands }] of shards) {
      if (!commands.isWritable) continue;
      const { host } = /** @type {Address} */ (this.nodes.get(address));
      yield async () => ({ ranges: await commands.redis.cluster('SLOTS'), host });
    }
    const nodes = new Map(
      this.settings.addresses.map((address) => [addressText(address), address]),
    );
    for (const [text, address] of this.nodes) nodes.set(text, address);
    for (const address of [...nodes.values()].sort(() => Math.random() - 0.5))
      yield () => this.#askAnew(address);
  }

  /**
   * @param {Address} node
   * @returns {Promise<{ranges: Range[], host: string}>}
   */
  async #askAnew(node) {
    const redis = new Redis({
      ...redisOptions(this.settings, node),
      lazyConnect: true,
      connectTimeout: CONNECT_TIMEOUT_MS,
      disconnectTimeout: DISCONNECT_TIMEOUT_MS,
      commandTimeout: this.timeoutMs,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
      disableClientInfo: true,
      enableReadyCheck: false,
    });
    /** @type {unknown} what ioredis itself only calls a closed connection */
    let cause;
    redis.on('error', (error) => {
      cause = error;
    });
    try {
      await redis.connect();
      return { ranges: await redis.cluster('SLOTS'), host: node.host };
    } catch (error) {
      throw cause ?? error;
    } finally {
      redis.disconnect();
    }
  }

  /**
   * @param {Range[]} ranges
   * @param {string} host of who told them
   */
  #apply(ranges, host) {
    /** @type {Map<string, number>} a slot of each */
    const primaries = new Map();
    /** @type {string[]} */
    const next = Array(SLOTS).fill('');
    this.nodes.clear();
    for (const [first, last, ...nodes] of ranges) {
      const addresses = nodes.map(([name, port]) => {
        // Without a name it is the one asked (cluster-preferred-endpoint-type unknown-endpoint).
        const address = { host: name === null || name === '' || name === '?' ? host : name, port };
        this.nodes.set(addressText(address), address);
        return addressText(address);
      });
      next.fill(addresses[0], first, last + 1);
      primaries.set(addresses[0], first);
    }
    /** @type {RedisNode[]} */
    const fresh = [];
    for (const address of primaries.keys()) {
      if (this.shards.has(address)) continue;
      const shard = this.makeShard(/** @type {Address} */ (this.nodes.get(address)));
      this.shards.set(address, shard);
      fresh.push(shard);
    }
    const isChanged = next.some(
      (address, slot) => (this.shards.get(address) ?? null) !== this.owners[slot],
    );
    if (isChanged) {
      this.owners = next.map((address) => this.shards.get(address) ?? null);
      this.isWhole = !this.owners.includes(null);
      for (const [address, shard] of this.shards) {
        if (!fresh.includes(shard)) this.#move(shard);
        if (primaries.has(address)) this.#settle(shard, fresh.includes(shard));
        else this.#retire(address, shard);
      }
      for (const channel of this.waiting) {
        const shard = this.of(slotOf(channel));
        if (shard === null) continue;
        this.waiting.delete(channel);
        shard.subscriptions.subscribe(channel).catch(() => {}); // it is wanted there now, whatever becomes of this
      }
    }
    this.onUpdate();
  }

  /** Takes from a shard what is no longer its own. @param {RedisNode} shard */
  #move(shard) {
    /** @type {Map<RedisNode|null, import('./subscriber.js').Wanted[]>} */
    const byOwner = new Map();
    for (const wanted of shard.subscriptions.take((slot) => this.owners[slot] === shard)) {
      if (wanted.channel === shard.probeChannel) continue;
      const owner = this.owners[wanted.slot];
      const those = byOwner.get(owner);
      if (those === undefined) byOwner.set(owner, [wanted]);
      else those.push(wanted);
    }
    for (const [owner, those] of byOwner) {
      if (owner !== null) owner.subscriptions.adopt(those);
      else {
        for (const { channel, confirming } of those) {
          this.waiting.add(channel);
          confirming?.reject(
            new BrokerError('UNAVAILABLE', 'no node of the cluster serves this slot'),
          );
        }
      }
    }
  }

  /**
   * Sees that a shard probes through a slot of its own.
   * @param {RedisNode} shard
   * @param {boolean} isNew
   */
  #settle(shard, isNew) {
    const isOurs = (/** @type {number} */ slot) => this.owners[slot] === shard;
    if (!isNew && isOurs(slotOf(shard.probeChannel))) return;
    // Every slot has a short number that leads to it.
    let tag = 0;
    while (!isOurs(slotOfTag(String(tag)))) tag++;
    const channel = this.probeChannelOf(String(tag));
    if (isNew) shard.open(channel);
    else shard.probeOn(channel);
  }

  /**
   * Ends a shard that has no slots any more.
   * @param {string} address
   * @param {RedisNode} shard
   */
  #retire(address, shard) {
    this.shards.delete(address);
    shard.probe.stop();
    const timer = setTimeout(() => shard.close(), RETIRE_TIMEOUT_MS).unref();
    shard.publisher.drained().then(() => {
      clearTimeout(timer);
      shard.close();
    });
  }
}

/**
 * What CLUSTER SLOTS tells: first and last slot, then nodes, the primary first: their name, port
 * and more.
 * @typedef {[number, number, ...[string|null, number, ...unknown[]][]]} Range
 */
