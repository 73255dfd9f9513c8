// subscription-proxy.js: the subscription proxy of a server, in the process of the test.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import pino from 'pino';
import { SubscriptionProxy } from '../../src/backend/redis/subscription-proxy.js';
import { loadConfig } from '../../src/config/config.js';
import { temporaryFolder } from './temporary-folder.js';

/**
 * It ends with the test. Workers start with what it returns (redis-worker.js).
 * @param {import('node:test').TestContext} t
 * @param {{settings: import('../../src/config/redis.js').RedisSettings}} redis
 * @param {Partial<ConstructorParameters<typeof SubscriptionProxy>[0]>} [parts]
 */
export async function startProxy(t, redis, parts = {}) {
  const { config } = loadConfig({ FANFARE_REDIS_PREFIX: 'faults:' });
  assert.ok(config);
  /** @type {Record<string, unknown>[]} */
  const lines = [];
  const proxy = new SubscriptionProxy({
    config: { ...config, redis: redis.settings, redisTimeoutMs: 1500 },
    log: pino({ level: 'debug' }, { write: (line) => lines.push(JSON.parse(line)) }),
    ...parts,
  });
  t.after(() => proxy.close());
  await proxy.start(join(temporaryFolder(t), 'redis'));
  return { proxy, settings: redis.settings, proxyPath: proxy.path, lines };
}
