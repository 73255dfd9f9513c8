// cluster-client.js: ioredis' own client of a cluster, which finds each key's node, for commands
// that may be repeated. Publishes do not go through it: see cluster.js.

import { Cluster } from 'ioredis';
import { redisAccess, redisSecrets, withoutSecrets } from '../../config/redis.js';
import { backoffMs } from './backoff.js';

const CONNECT_TIMEOUT_MS = 2000;
/** Interval between two reads of the map: a primary that is silent does not say MOVED. */
const MAP_INTERVAL_MS = 5000;

export class RedisClusterClient {
  /** @param {{settings: import('../../config/redis.js').RedisSettings, timeoutMs: number}} parts */
  constructor({ settings, timeoutMs }) {
    this.secrets = redisSecrets(settings);
    this.redis = new Cluster([...settings.addresses], {
      lazyConnect: true,
      // With a delay the client resends the commands of a lost connection.
      retryDelayOnFailover: 0,
      slotsRefreshTimeout: timeoutMs,
      clusterRetryStrategy: backoffMs,
      // Names are not resolved beforehand, because a certificate contains names.
      ...(settings.tls === null ? {} : { dnsLookup: (name, callback) => callback(null, name) }),
      redisOptions: {
        ...redisAccess(settings),
        connectTimeout: CONNECT_TIMEOUT_MS,
        commandTimeout: timeoutMs,
        disableClientInfo: true,
      },
    });
    // Not ioredis's slotsRefreshInterval: if a read is under way at `close`, it goes on for ever.
    this.timer = setInterval(() => this.refresh(), MAP_INTERVAL_MS).unref();
    // The shards report an outage; this client goes by `isWritable`.
    this.redis.on('error', () => {});
    // Keeps the connections open if Redis closes idle ones. Without any to a primary, ioredis sends
    // scripts to replicas, which refuse them.
    this.redis.on('refresh', () => {
      for (const node of this.redis.nodes('master')) node.ping().catch(() => {}); // it is repeated
    });
  }

  open() {
    this.redis.connect().catch(() => {}); // ioredis retries without end
  }

  /** The map has changed: reads it now. */
  refresh() {
    if (this.isWritable) this.redis.refreshSlotsCache();
  }

  /**
   * Are the nodes known? A command waits until its node is connected, at most for its time-out.
   * If this is false, it would wait without end.
   */
  get isWritable() {
    return this.redis.status === 'ready';
  }

  /** An error for the log, without secrets. @param {unknown} error */
  describe(error) {
    return withoutSecrets(error, this.secrets);
  }

  close() {
    clearInterval(this.timer);
    this.redis.disconnect();
  }
}
