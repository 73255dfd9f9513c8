// redis-passwords.test.js: passwords of Redis from files are read before each attempt to connect, so
// that they can be rotated while the server runs (src/config/redis.js, backend/redis/connection.js).
// faults/redis-passwords has Sentinels and a cluster.

import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { redisSettings, startRedis } from '../harness/redis.js';
import { until } from '../harness/server.js';
import { connect, cut, RIGHTS, rotate, setUser } from '../helpers/redis-passwords.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

/** @typedef {import('../harness/redis.js').RedisServer} RedisServer */

const OPTIONS = { timeout: 30_000 };

for (const [
  setting,
  textOf,
] of /** @type {[string, (server: RedisServer, password: string) => string][]} */ ([
  ['REDIS_PASSWORD_FILE', (_server, password) => `${password}\n`],
  ['REDIS_URL_FILE', ({ port }, password) => `redis://fanfare:${password}@127.0.0.1:${port}\n`],
])) {
  test(`a connection takes a new password from ${setting}`, OPTIONS, async (t) => {
    const redis = await startRedis(t);
    await setUser([redis], '>old-password', ...RIGHTS);
    const path = join(temporaryFolder(t), 'secret');
    writeFileSync(path, textOf(redis, 'old-password'));
    const host = {
      REDIS_HOST: '127.0.0.1',
      REDIS_PORT: `${redis.port}`,
      REDIS_USERNAME: 'fanfare',
    };
    const env = setting === 'REDIS_URL_FILE' ? {} : host;
    const { connection, reasons } = connect(t, redisSettings({ ...env, [setting]: path }));
    await until(() => connection.isWritable, 5000, 'the first connection');

    // A file that cannot be read for a moment changes nothing.
    rmSync(path);
    await cut([redis]);
    await until(() => reasons.length > 0 && connection.isWritable, 5000, 'the old password');

    await rotate([redis], path, textOf(redis, 'new-password'));
    await until(() => !connection.isWritable, 5000, 'the cut');
    await until(() => connection.isWritable, 10_000, 'the new password');
    for (const secret of ['old-password', 'new-password'])
      assert.equal(connection.describe(new Error(`x ${secret}`)), 'x ***');
    assert.ok(!reasons.join().includes('-password'), reasons.join());
  });
}
