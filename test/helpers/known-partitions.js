// known-partitions.js: a Redis that has seen webhooks before. Without it, the first courier cannot tell a
// new Redis from one that has lost its data, and announces a gap.

/**
 * @param {import('../harness/redis.js').RedisServer} redis in a cluster the primary of the
 *   first lane
 * @param {string} [prefix]
 */
export async function knowLanes(redis, prefix = 'fanfare:') {
  const replication = await redis.cli('INFO', 'replication');
  const id = /master_replid:(\w+)/.exec(replication)?.[1];
  await redis.cli('HSET', `${prefix}webhooks:{lane-0}:state`, 'mark', `${id}:${Date.now()}`);
}
