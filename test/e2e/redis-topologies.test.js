// redis-topologies.test.js: a cluster's client beside its shards, and TLS that one side does not
// trust.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCluster } from '../harness/redis-cluster.js';
import { NO_TLS, startTlsRedis } from '../helpers/redis-tls.js';
import { eventually, start } from '../helpers/redis-worker.js';

const TIMEOUT_MS = 30_000;

test('in a cluster, one client reaches the keys of all slots, also while a node is away', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const cluster = await startCluster(t);
  const a = await start(t, cluster);
  const { connection } = a.broker;
  await eventually(() => connection.isWritable);
  const keys = cluster.primaries.map((primary) => cluster.roomIn(primary, 'key'));
  for (const key of keys) assert.equal(await connection.redis.set(key, key), 'OK');
  await cluster.primaries[2].kill();
  await assert.rejects(connection.redis.set(keys[2], 'x'));
  assert.equal(await connection.redis.get(keys[0]), keys[0]);
  assert.equal(await connection.redis.get(keys[1]), keys[1]);
});

test('in a cluster, the client connects again for all commands, and leaves a primary that fell silent', {
  timeout: 2 * TIMEOUT_MS,
}, async (t) => {
  const cluster = await startCluster(t, { hasReplicas: true });
  const [primary] = cluster.primaries;
  const { connection } = (await start(t, cluster)).broker;
  const key = cluster.roomIn(primary, 'key');
  const redis = /** @type {import('ioredis').Cluster} */ (connection.redis);
  await eventually(() => connection.isWritable);
  await redis.set(key, 'kept');
  const isConnected = () => redis.nodes().some(({ options }) => options.port === primary.port);
  // As after the time-out of idle connections.
  await primary.cli('CLIENT', 'KILL', 'TYPE', 'normal');
  await eventually(() => !isConnected() && connection.isWritable);
  const answers = await Promise.all(Array.from({ length: 20 }, () => redis.get(key)));
  assert.deepEqual(new Set(answers), new Set(['kept']));
  await eventually(async () => (await cluster.nodes[3].cli('DBSIZE')) === '1');
  // A machine that is gone resets no connection.
  primary.freeze();
  t.after(() => primary.thaw());
  const reads = async () => (await redis.get(key).catch(() => '')) === 'kept';
  await eventually(reads, TIMEOUT_MS);
});

test('without a valid certificate or password of Redis, the worker logs the reason and sends nothing', {
  timeout: TIMEOUT_MS,
  skip: NO_TLS,
}, async (t) => {
  const { redis, settings, tlsPort } = await startTlsRedis(t, { asksClients: true });
  const [stranger, unknown] = await Promise.all([
    // Without the authority, and without a certificate of one's own.
    start(t, { settings: settings({ REDIS_TLS_CA_FILE: '' }) }),
    start(t, { settings: settings({ REDIS_TLS_CERT_FILE: '', REDIS_TLS_KEY_FILE: '' }) }),
  ]);
  assert.equal(stranger.state, 'degraded');
  assert.equal(unknown.state, 'degraded');
  assert.match(
    JSON.stringify(stranger.lines),
    /self-signed certificate|unable to verify|unable to get/,
  );
  const known = await start(t, {
    settings: settings({ REDIS_URL: `rediss://localhost:${tlsPort}` }),
  });
  assert.equal(known.state, 'up');
  assert.doesNotMatch(
    await redis.cli('CLIENT', 'LIST'),
    /name=faults:.*name=faults:.*name=faults:/s,
  );
});
