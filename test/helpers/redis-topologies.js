// redis-topologies.js: every way in which Redis may be had in production, each on real processes.

import { redisSettings, startRedis } from '../harness/redis.js';
import { startCluster } from '../harness/redis-cluster.js';
import { startRegion } from './redis-region.js';
import { startSentinels } from './redis-sentinel.js';
import { startTlsRedis } from './redis-tls.js';

/** @typedef {import('../../src/config/redis.js').RedisSettings} RedisSettings */
/** @typedef {{after: (fn: () => unknown) => void}} Lifetime */

/** The rights that docs/deployment.md names. @param {string} prefix of keys and channels */
export function aclRule(prefix) {
  return [
    `resetkeys resetchannels ~${prefix}* &${prefix}*`,
    '-@all +@connection +@pubsub +@read +@write -@dangerous +eval +evalsha +info +time +cluster|slots +cluster|info',
  ].join(' ');
}

/** @type {Record<string, (t: Lifetime) => Promise<RedisSettings>>} */
export const TOPOLOGIES = {
  redis: async (t) => (await startRedis(t)).settings,

  'redis by Sentinel': async (t) => (await startSentinels(t)).settings,

  'redis cluster': async (t) => (await startCluster(t)).settings,

  'redis with a replica to hear from': async (t) => {
    const { settings } = await startRegion(t);
    return settings();
  },

  'redis with TLS': async (t) => (await startTlsRedis(t)).settings(),

  'redis with TLS and certificates of clients': async (t) =>
    (await startTlsRedis(t, { asksClients: true })).settings(),

  'redis with an ACL user': async (t) => {
    const redis = await startRedis(t);
    await redis.cli(
      'ACL',
      'SETUSER',
      'fanfare',
      'on',
      '>hunter2',
      ...aclRule('contract').split(' '),
    );
    await redis.cli('ACL', 'SETUSER', 'default', 'off');
    return redisSettings({
      REDIS_HOST: '127.0.0.1',
      REDIS_PORT: `${redis.port}`,
      REDIS_USERNAME: 'fanfare',
      REDIS_PASSWORD: 'hunter2',
    });
  },
};

/**
 * The kinds that each contract runs on. The others differ from these only in how they connect, so
 * contract/broker alone runs on all of them. With TEST_REDIS=all every contract does.
 */
export const KINDS = Object.freeze(
  process.env.TEST_REDIS === 'all'
    ? Object.keys(TOPOLOGIES)
    : ['redis with an ACL user', 'redis by Sentinel', 'redis cluster'],
);
