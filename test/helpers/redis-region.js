// redis-region.js: a primary of Redis, and its replica in another region. The wire between them can
// be slow, silent or cut.

import { redisSettings, startRedis } from '../harness/redis.js';
import { until } from './redis-sentinel.js';
import { startTcpProxy } from './tcp-proxy.js';

/**
 * Starts them; they end with the test.
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {object} [options] @param {string[]} [options.args] of the primary
 */
export async function startRegion(t, { args = [] } = {}) {
  const primary = await startRedis(t, { args: ['--repl-diskless-sync-delay', '0', ...args] });
  const wire = await startTcpProxy(t, primary.port);
  const replica = await startRedis(t, { args: ['--replicaof', '127.0.0.1', `${wire.port}`] });
  const inStep = () =>
    until(async () => (await replica.cli('INFO', 'replication')).includes('master_link_status:up'));
  await inStep();
  return {
    primary,
    replica,
    wire,
    /** Waits until the replica follows its primary. */
    inStep,
    /** Of a server in the region of the replica. @param {Record<string, string>} [env] */
    settings: (env = {}) =>
      redisSettings({ REDIS_URL: primary.url, REDIS_SUBSCRIBE_URL: replica.url, ...env }),
  };
}
