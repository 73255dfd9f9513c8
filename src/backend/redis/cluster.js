// cluster.js: the primaries of a Redis Cluster, and the slots of each.
//
// Each primary is a node (node.js) with its own connections, like a single Redis. The cluster
// client of ioredis cannot be used: it resends commands of a lost connection and does not report
// refused subscriptions.
//
// The map of slots comes from `CLUSTER SLOTS`. It is read every INTERVAL_MS, when a node refuses a
// slot (MOVED, the end of a sharded subscription), and at growing intervals while a node is
// unavailable.

import { Redis } from 'ioredis';
import {
  addressText,
  redisCredentials,
  redisOptions,
  redisSecrets,
  withoutSecrets,
} from '../../config/redis.js';
import { BrokerError } from '../errors.js';
import { backoffMs } from './backoff.js';
import { SLOTS, slotOf, slotOfTag } from './slots.js';
import { Subscription } from './subscriber.js';

const CONNECT_TIMEOUT_MS = 2000;
const DISCONNECT_TIMEOUT_MS = 200;
const MIN_INTERVAL_MS = 20;
const INTERVAL_MS = 10_000;
/** How long a node without slots may take to answer the commands under way. */
const RETIRE_TIMEOUT_MS = 2000;

/** @import { Address, RedisSettings } from '../../config/redis.js' */
/** @import { RedisNode } from './node.js' */

export class RedisCluster {
  /**
   * @param {object} parts @param {RedisSettings} parts.settings
   * @param {number} parts.timeoutMs for each answer
   * @param {(address: Address) => RedisNode} parts.makeNode
   * @param {(tag: string) => string} parts.probeChannelOf returns a channel with this hash tag
   * @param {() => void} parts.onUpdate `isUp` may have changed
   * @param {(reason: string) => void} parts.onAway no node returned the map
   */
  constructor({ settings, timeoutMs, makeNode, probeChannelOf, onUpdate, onAway }) {
    this.settings = settings;
    this.timeoutMs = timeoutMs;
    this.makeNode = makeNode;
    this.probeChannelOf = probeChannelOf;
    this.onUpdate = onUpdate;
    this.onAway = onAway;
    /** Nodes by address. @type {Map<string, RedisNode>} */
    this.nodes = new Map();
    /** Primaries and replicas. @type {Map<string, Address>} */
    this.addresses = new Map();
    /** Owners by slot. @type {(RedisNode|null)[]} */
    this.owners = Array(SLOTS).fill(null);
    this.isWhole = false;
    /** Wanted channels whose slot has no node. @type {Set<string>} */
    this.waiting = new Set();
    this.isClosed = false;
    this.isAsking = false;
    this.askedMs = Number.NEGATIVE_INFINITY;
    /** Requests for the map since the cluster was last up. */
    this.looks = 0;
    /** Between requests while the map is incomplete or a node is unavailable. */
    this.pauseMs = 0;
    this.isStale = true;
    /** The node that noticed a change; it is asked first. @type {RedisNode|null} */
    this.witness = null;
  }

  get isUp() {
    if (!this.isWhole) return false;
    for (const node of this.nodes.values()) if (!node.isUp) return false;
    return true;
  }

  /** @param {number} slot */
  nodeOfSlot(slot) {
    return this.owners[slot];
  }

  /** @param {string} channel @returns {Promise<void>} */
  subscribe(channel) {
    const node = this.nodeOfSlot(slotOf(channel));
    if (node !== null) return node.subscriptions.subscribe(channel);
    this.waiting.add(channel);
    return Promise.reject(
      new BrokerError('UNAVAILABLE', 'no node of the cluster serves this slot'),
    );
  }

  /** @param {string} channel */
  unsubscribe(channel) {
    this.waiting.delete(channel);
    this.nodeOfSlot(slotOf(channel))?.subscriptions.unsubscribe(channel);
  }

  /** @param {RedisNode|null} witness the node that refused a slot */
  stale(witness) {
    this.isStale = true;
    this.witness = witness;
    if (performance.now() - this.askedMs >= MIN_INTERVAL_MS) this.#refresh();
  }

  /** @returns {number} in how many ms it wants to be called again */
  tick() {
    const since = performance.now() - this.askedMs;
    const { isUp } = this;
    if (isUp) this.looks = this.pauseMs = 0;
    const interval = isUp ? INTERVAL_MS : this.pauseMs;
    if (since >= (this.isStale ? MIN_INTERVAL_MS : interval)) this.#refresh();
    return isUp && !this.isStale ? INTERVAL_MS - since : 0;
  }

  close() {
    this.isClosed = true;
    for (const node of this.nodes.values()) node.close();
  }

  async #refresh() {
    if (this.isAsking || this.isClosed) return;
    this.isAsking = true;
    this.isStale = false;
    this.askedMs = performance.now();
    if (!this.isUp) this.pauseMs = backoffMs(++this.looks);
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
        reason = withoutSecrets(error, redisSecrets(redisCredentials(this.settings).options));
      }
    }
    this.isAsking = false;
    if (!isTold && !this.isClosed)
      this.onAway(`cannot read the cluster's slots from any node: ${reason}`);
  }

  /**
   * The nodes to ask, one by one: first over open connections, then over new ones.
   * @param {RedisNode|null} witness
   * @returns {Generator<() => Promise<{ranges: Range[], host: string}>>}
   */
  *#sources(witness) {
    const nodes = [...this.nodes].sort(() => Math.random() - 0.5);
    if (witness !== null)
      nodes.sort(([, a], [, b]) => Number(b === witness) - Number(a === witness));
    for (const [address, { commands }] of nodes) {
      if (!commands.isWritable) continue;
      const { host } = /** @type {Address} */ (this.addresses.get(address));
      yield async () => ({ ranges: await commands.redis.cluster('SLOTS'), host });
    }
    const addresses = new Map(
      this.settings.addresses.map((address) => [addressText(address), address]),
    );
    for (const [text, address] of this.addresses) addresses.set(text, address);
    for (const address of [...addresses.values()].sort(() => Math.random() - 0.5))
      yield () => this.#askAnew(address);
  }

  /** @param {Address} address @returns {Promise<{ranges: Range[], host: string}>} */
  async #askAnew(address) {
    const redis = new Redis({
      ...redisOptions(this.settings, address),
      lazyConnect: true,
      connectTimeout: CONNECT_TIMEOUT_MS,
      disconnectTimeout: DISCONNECT_TIMEOUT_MS,
      commandTimeout: this.timeoutMs,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
      disableClientInfo: true,
      enableReadyCheck: false,
    });
    /** ioredis itself only reports a closed connection. @type {unknown} */
    let cause;
    redis.on('error', (error) => {
      cause = error;
    });
    try {
      await redis.connect();
      return { ranges: await redis.cluster('SLOTS'), host: address.host };
    } catch (error) {
      throw cause ?? error;
    } finally {
      redis.disconnect();
    }
  }

  /** @param {Range[]} ranges @param {string} host of the node that returned them */
  #apply(ranges, host) {
    /** @type {Map<string, number>} a slot of each node */
    const primaries = new Map();
    /** @type {string[]} */
    const next = Array(SLOTS).fill('');
    this.addresses.clear();
    for (const [first, last, ...endpoints] of ranges) {
      const addresses = endpoints.map(([name, port]) => {
        // Without a name it is the node that answered
        // (`cluster-preferred-endpoint-type unknown-endpoint`).
        const address = { host: name === null || name === '' || name === '?' ? host : name, port };
        this.addresses.set(addressText(address), address);
        return addressText(address);
      });
      next.fill(addresses[0], first, last + 1);
      primaries.set(addresses[0], first);
    }
    const fresh = [];
    for (const address of primaries.keys()) {
      if (this.nodes.has(address)) continue;
      const node = this.makeNode(/** @type {Address} */ (this.addresses.get(address)));
      this.nodes.set(address, node);
      fresh.push(node);
    }
    const isChanged = next.some(
      (address, slot) => (this.nodes.get(address) ?? null) !== this.owners[slot],
    );
    if (isChanged) {
      this.owners = next.map((address) => this.nodes.get(address) ?? null);
      this.isWhole = !this.owners.includes(null);
      for (const [address, node] of this.nodes) {
        if (!fresh.includes(node)) this.#move(node);
        if (primaries.has(address)) this.#settle(node, fresh.includes(node));
        else this.#retire(address, node);
      }
      for (const channel of this.waiting) {
        const slot = slotOf(channel);
        const node = this.nodeOfSlot(slot);
        if (node === null) continue;
        this.waiting.delete(channel);
        // The cluster may be up, and its rooms compared, before the node has confirmed it.
        node.subscriptions.adopt([new Subscription(channel, slot, true)]);
      }
    }
    for (const node of this.nodes.values()) node.subscriptions.confirmAgain();
    this.onUpdate();
  }

  /** Moves the channels that a node no longer serves. @param {RedisNode} node */
  #move(node) {
    /** @type {Map<RedisNode|null, Subscription[]>} */
    const byOwner = new Map();
    const isOurs = (/** @type {number} */ slot) => this.owners[slot] === node;
    for (const subscription of node.subscriptions.takeMoved(isOurs, this.askedMs)) {
      if (subscription.channel === node.probeChannel) continue;
      const owner = this.owners[subscription.slot];
      const those = byOwner.get(owner);
      if (those === undefined) byOwner.set(owner, [subscription]);
      else those.push(subscription);
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

  /** Lets a node probe through one of its slots. @param {RedisNode} node @param {boolean} isNew */
  #settle(node, isNew) {
    const isOurs = (/** @type {number} */ slot) => this.owners[slot] === node;
    if (!isNew && isOurs(slotOf(node.probeChannel))) return;
    // Every slot has a small number that hashes to it.
    let tag = 0;
    while (!isOurs(slotOfTag(String(tag)))) tag++;
    const channel = this.probeChannelOf(String(tag));
    if (isNew) node.open(channel);
    else node.probeOn(channel);
  }

  /** Ends a node that has lost all its slots. @param {string} address @param {RedisNode} node */
  #retire(address, node) {
    this.nodes.delete(address);
    node.probe.stop();
    const timer = setTimeout(() => node.close(), RETIRE_TIMEOUT_MS).unref();
    node.publisher.drained().then(() => {
      clearTimeout(timer);
      node.close();
    });
  }
}

/**
 * A range of CLUSTER SLOTS: first and last slot, then the name and port of each node, the primary
 * first.
 * @typedef {[number, number, ...[string|null, number, ...unknown[]][]]} Range
 */
