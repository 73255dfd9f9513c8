// redis-passwords.test.js: passwords are rotated under connections by Sentinels and to a cluster.
// contract/redis-passwords has one server.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { RedisClusterClient } from '../../src/backend/redis/cluster-client.js';
import { redisSettings } from '../harness/redis.js';
import { startCluster } from '../harness/redis-cluster.js';
import { until } from '../harness/server.js';
import { connect, RIGHTS, rotate, setUser } from '../helpers/redis-passwords.js';
import { startSentinels } from '../helpers/redis-sentinel.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const OPTIONS = { timeout: 60_000 };

test('a connection by Sentinels takes new passwords from both files', OPTIONS, async (t) => {
  const { primary, sentinels } = await startSentinels(t);
  await setUser([primary], '>old-password', ...RIGHTS);
  for (const one of sentinels) await one.cli('ACL', 'SETUSER', 'watcher', '>old-watch', ...RIGHTS);
  const folder = temporaryFolder(t);
  const [path, watchPath] = ['secret', 'watch'].map((name) => join(folder, name));
  writeFileSync(path, 'old-password');
  writeFileSync(watchPath, 'old-watch');
  const { connection } = connect(
    t,
    redisSettings({
      REDIS_SENTINELS: sentinels.map(({ port }) => `127.0.0.1:${port}`).join(','),
      REDIS_SENTINEL_NAME: 'main',
      REDIS_USERNAME: 'fanfare',
      REDIS_PASSWORD_FILE: path,
      REDIS_SENTINEL_USERNAME: 'watcher',
      REDIS_SENTINEL_PASSWORD_FILE: watchPath,
    }),
  );
  await until(() => connection.isWritable, 5000, 'the first connection');
  writeFileSync(watchPath, 'new-watch');
  for (const one of sentinels)
    await one.cli('ACL', 'SETUSER', 'watcher', '>new-watch', '<old-watch');
  await rotate([primary], path, 'new-password');
  await until(() => !connection.isWritable, 5000, 'the cut');
  await until(() => connection.isWritable, 10_000, 'the new passwords');
});

test('the client of a cluster takes a new password from its file', OPTIONS, async (t) => {
  const { nodes } = await startCluster(t);
  await setUser(nodes, '>old-password', ...RIGHTS);
  const path = join(temporaryFolder(t), 'secret');
  writeFileSync(path, 'old-password');
  const client = new RedisClusterClient({
    settings: redisSettings({
      REDIS_CLUSTER: nodes.map(({ port }) => `127.0.0.1:${port}`).join(','),
      REDIS_USERNAME: 'fanfare',
      REDIS_PASSWORD_FILE: path,
    }),
    timeoutMs: 1000,
  });
  t.after(() => client.close());
  await client.open();
  await client.redis.set('a', '1');
  await rotate(nodes, path, 'new-password');
  const works = async () => {
    try {
      return client.isWritable && (await client.redis.get('a')) === '1';
    } catch {
      return false;
    }
  };
  await until(works, 15_000, 'the new password');
});
