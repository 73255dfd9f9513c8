// cluster-client.js: the cluster client of ioredis, which finds each key's node, for commands that
// may be repeated. Publishes do not use it (cluster.js).

import { Cluster } from 'ioredis';
import { redisAccess, redisCredentials, redisSecrets, withoutSecrets } from '../../config/redis.js';
import { backoffMs } from './backoff.js';
import { SLOTS, slotOfTag } from './slots.js';

const CONNECT_TIMEOUT_MS = 2000;
/** The most secrets to keep out of logs: those of several rotations, plain and URL-encoded. */
const MAX_SECRETS = 16;
/** Between reads of the map, because a silent primary does not answer MOVED. */
const MAP_INTERVAL_MS = 5000;

/**
 * @typedef {object} ClusterPrimary
 * @property {import('ioredis').Redis} redis its connection
 * @property {string} tag a small number, whose slot it serves
 * @property {boolean} hasFleetSlot it serves the slot of `{*}`
 */

export class RedisClusterClient {
  /** @param {{settings: import('../../config/redis.js').RedisSettings, timeoutMs: number}} parts */
  constructor({ settings, timeoutMs }) {
    this.settings = settings;
    this.secrets = redisSecrets(settings);
    this.redis = new Cluster([...settings.addresses], {
      lazyConnect: true,
      // The client would resend the commands of a lost connection if there were a delay.
      retryDelayOnFailover: 0,
      slotsRefreshTimeout: timeoutMs,
      clusterRetryStrategy: backoffMs,
      // Names are not resolved here, because the certificate is checked against them.
      ...(settings.tls === null ? {} : { dnsLookup: (name, callback) => callback(null, name) }),
      redisOptions: {
        ...redisAccess(settings),
        connectTimeout: CONNECT_TIMEOUT_MS,
        commandTimeout: timeoutMs,
        disableClientInfo: true,
      },
    });
    // ioredis' slotsRefreshInterval never ends if a read is under way at `close`.
    this.timer = setInterval(() => this.refresh(), MAP_INTERVAL_MS).unref();
    // The nodes report an outage.
    this.redis.on('error', () => {});
    // A node connects after this event, with the credentials of then.
    this.redis.on('+node', (node) => Object.assign(node.options, this.#credentials()));
    // Keeps idle connections open. Without one to a primary, ioredis sends scripts to replicas,
    // which refuse them.
    this.redis.on('refresh', () => {
      for (const node of this.redis.nodes('master')) node.ping().catch(() => {}); // next time
    });
  }

  /** Resolves when the first attempt has ended. ioredis retries until `close`. */
  open() {
    return this.redis.connect().catch(() => {});
  }

  /** Reads the map, by connections of its own with the options of the known nodes. */
  refresh() {
    if (!this.isWritable) return;
    const credentials = this.#credentials();
    for (const node of this.redis.nodes('all')) Object.assign(node.options, credentials);
    this.redis.refreshSlotsCache();
  }

  #credentials() {
    const { options } = redisCredentials(this.settings);
    const secrets = new Set([...redisSecrets(options), ...this.secrets]);
    this.secrets = [...secrets].slice(0, MAX_SECRETS);
    return options;
  }

  /** The nodes are known. Otherwise a command would wait without a time-out. */
  get isWritable() {
    return this.redis.status === 'ready';
  }

  /** Throws if a slot has no reachable one. @returns {ClusterPrimary[]} those with slots */
  primaries() {
    const { slots } = this.redis;
    const fleet = slots[slotOfTag('*')]?.[0];
    const nodes = new Map(
      this.redis
        .nodes('master')
        .map((redis) => [`${redis.options.host}:${redis.options.port}`, redis]),
    );
    const serving = new Set(Array.from({ length: SLOTS }, (_, slot) => slots[slot]?.[0]));
    for (const name of serving)
      if (!nodes.has(name)) throw new Error(`no connection to a primary of the cluster (${name})`);
    /** @type {Map<string, ClusterPrimary>} */
    const found = new Map();
    // Every slot has a small number that hashes to it.
    for (let tag = 0; found.size < serving.size; tag++) {
      const name = slots[slotOfTag(String(tag))][0];
      const redis = /** @type {import('ioredis').Redis} */ (nodes.get(name));
      if (!found.has(name))
        found.set(name, { redis, tag: String(tag), hasFleetSlot: name === fleet });
    }
    return [...found.values()];
  }

  /** Describes an error for the log, without secrets. @param {unknown} error */
  describe(error) {
    return withoutSecrets(error, this.secrets);
  }

  close() {
    clearInterval(this.timer);
    this.redis.disconnect();
  }
}
