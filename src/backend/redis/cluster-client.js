// cluster-client.js: ioredis' own client of a cluster, which finds each key's node, for commands
// that may be repeated. Publishes do not go through it: see cluster.js.

import { Cluster } from 'ioredis';
import { redisAccess, redisSecrets, withoutSecrets } from '../../config/redis.js';
import { backoffMs } from './backoff.js';

const CONNECT_TIMEOUT_MS = 2000;

export class RedisClusterClient {
  /** @param {{settings: import('../../config/redis.js').RedisSettings, timeoutMs: number}} parts */
  constructor({ settings, timeoutMs }) {
    this.secrets = redisSecrets(settings);
    this.redis = new Cluster([...settings.addresses], {
      lazyConnect: true,
      enableOfflineQueue: false,
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
    // The shards report an outage; this client goes by `isWritable`.
    this.redis.on('error', () => {});
  }

  open() {
    this.redis.connect().catch(() => {}); // ioredis retries without end
  }

  /**
   * Connects to each primary now, and to new ones when the client has connected again. Otherwise
   * the first command to a primary opens its connection, and those that follow meanwhile fail.
   */
  connectAll() {
    const connect = () => {
      for (const node of this.redis.nodes('master'))
        if (node.status === 'wait') node.connect().catch(() => {}); // the next command reports it
    };
    this.redis.on('ready', connect);
    connect();
  }

  get isWritable() {
    return this.redis.status === 'ready';
  }

  /** An error for the log, without secrets. @param {unknown} error */
  describe(error) {
    return withoutSecrets(error, this.secrets);
  }

  close() {
    this.redis.disconnect();
  }
}
