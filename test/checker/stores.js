// stores.js: the forms in which the servers of a trial have Redis: Sentinel with a replica, a cluster,
// or a primary with a replica in another region.

import { startCluster } from '../harness/redis-cluster.js';
import { startRegion } from '../helpers/redis-region.js';
import { startSentinels } from '../helpers/redis-sentinel.js';
import { startTcpProxy } from '../helpers/tcp-proxy.js';

const DOWN_AFTER_MS = 1500;

/** @typedef {import('./trial.js').Lifetime} Lifetime */
/** @typedef {import('./trial.js').Store} Store */

/** @param {Lifetime} t @returns {Promise<Store>} */
export async function sentinelStore(t) {
  const { primary, replica, sentinels } = await startSentinels(t, { downAfterMs: DOWN_AFTER_MS });
  const env = {
    REDIS_SENTINELS: sentinels.map(({ port }) => `127.0.0.1:${port}`).join(','),
    REDIS_SENTINEL_NAME: 'main',
  };
  return { nodes: [primary, replica], env, sentinels };
}

/**
 * @param {Lifetime} t @param {{hasReplicas?: boolean, failsOver?: boolean}} [options]
 * @returns {Promise<Store & {cluster: import('../harness/redis-cluster.js').Cluster}>}
 */
export async function clusterStore(t, options) {
  const cluster = await startCluster(t, options);
  const { primaries, nodes } = cluster;
  const env = { REDIS_CLUSTER: primaries.map(({ port }) => `127.0.0.1:${port}`).join(',') };
  return { nodes, env, cluster };
}

/**
 * Every other server is in the region of the replica.
 * @param {Lifetime} t @returns {Promise<Store>}
 */
export async function regionStore(t) {
  const args = ['--repl-backlog-size', '16384'];
  const { primary, replica, wire } = await startRegion(t, { args });
  const line = await startTcpProxy(t, primary.port);
  const env = { REDIS_URL: primary.url };
  const region = {
    ...{ replica, wire, line },
    env: { REDIS_URL: line.url, REDIS_SUBSCRIBE_URL: replica.url },
  };
  return { nodes: [primary], env, region };
}
