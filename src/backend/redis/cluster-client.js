// cluster-client.js: the cluster client of ioredis, which finds each key's node, for commands that
// may be repeated. Publishes do not use it (cluster.js).

import { Cluster } from 'ioredis';
import { redisAccess, redisSecrets, withoutSecrets } from '../../config/redis.js';
import { backoffMs } from './backoff.js';

const CONNECT_TIMEOUT_MS = 2000;
/** Between reads of the map, because a silent primary does not answer MOVED. */
const MAP_INTERVAL_MS = 5000;

export class RedisClusterClient {
  /** @param {{settings: import('../../config/redis.js').RedisSettings, timeoutMs: number}} parts */
  constructor({ settings, timeoutMs }) {
    this.secrets = redisSecrets(settings);
    this.redis = new Cluster([...settings.addresses], {
      lazyConnect: true,
      // With a delay the client would resend the commands of a lost connection.
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

  /** Reads the map. */
  refresh() {
    if (this.isWritable) this.redis.refreshSlotsCache();
  }

  /** The nodes are known. Otherwise a command would wait without a time-out. */
  get isWritable() {
    return this.redis.status === 'ready';
  }

  /** For the log, without secrets. @param {unknown} error */
  describe(error) {
    return withoutSecrets(error, this.secrets);
  }

  close() {
    clearInterval(this.timer);
    this.redis.disconnect();
  }
}
