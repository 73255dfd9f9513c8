// cluster-client.js: ioredis' own client of a cluster, which finds each key's node, for commands
// that may be repeated. Publishes do not go through it: see cluster.js.

import { Cluster } from 'ioredis';
import { redisAccess, redisSecrets, withoutSecrets } from '../../config/redis.js';
import { backoffMs } from './backoff.js';

const CONNECT_TIMEOUT_MS = 2000;
/** Between two reads of the map. A primary that is silent does not answer MOVED. */
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
    // ioredis's slotsRefreshInterval never ends if a read is under way at `close`.
    this.timer = setInterval(() => this.refresh(), MAP_INTERVAL_MS).unref();
    // The shards report an outage; this client goes by `isWritable`.
    this.redis.on('error', () => {});
    // Keeps the connections open if Redis closes idle ones. Without any to a primary, ioredis sends
    // scripts to replicas, which refuse them.
    this.redis.on('refresh', () => {
      for (const node of this.redis.nodes('master')) node.ping().catch(() => {}); // next time
    });
  }

  /** @returns {Promise<void>} the first try has ended; ioredis retries without end */
  open() {
    return this.redis.connect().catch(() => {});
  }

  /** The map has changed: reads it now. */
  refresh() {
    if (this.isWritable) this.redis.refreshSlotsCache();
  }

  /**
   * Are the nodes known? Then a command waits for its node to connect, up to its time-out.
   * Otherwise it would wait without end.
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
