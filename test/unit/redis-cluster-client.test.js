// redis-cluster-client.test.js: the client of a cluster reads the map of its nodes again and again.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RedisClusterClient } from '../../src/backend/redis/cluster-client.js';
import { loadConfig } from '../../src/config/config.js';

test('the map is read every 5 s while the nodes are known, and not after the end', (t) => {
  t.mock.timers.enable({ apis: ['setInterval', 'setTimeout'] });
  const { config } = loadConfig({ REDIS_CLUSTER: '127.0.0.1:1' });
  assert.ok(config?.redis);
  const client = new RedisClusterClient({ settings: config.redis, timeoutMs: 100 });
  let reads = 0;
  t.mock.method(client.redis, 'refreshSlotsCache', () => void reads++);
  t.mock.timers.tick(10_000);
  assert.equal(reads, 0);
  client.redis.status = 'ready';
  t.mock.timers.tick(10_000);
  assert.equal(reads, 2);
  client.close();
  client.redis.status = 'ready';
  t.mock.timers.tick(60_000);
  assert.equal(reads, 2);
});
