// revocations.test.js: the contract of a backend's list of revocations (src/backend/revocations.js),
// for every backend.

import assert from 'node:assert/strict';
import { appendFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { startRedis } from '../../loadtest/lib/redis.js';
import { until } from '../../loadtest/lib/server.js';
import { compact, RevocationFile } from '../../src/backend/embedded/revocation-file.js';
import { RedisRevocations } from '../../src/backend/redis/revocations.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { BACKENDS, startServer } from './suite.js';

/** @typedef {import('../../src/backend/revocations.js').Revocation} Revocation */

const soon = Date.now() + 60_000;
/** @param {string} user @param {number} issuedBeforeMs @param {number} keepUntilMs @returns {Revocation} */
const ofUser = (user, issuedBeforeMs, keepUntilMs) => ({
  user,
  tokenId: null,
  issuedBeforeMs,
  keepUntilMs,
});
/** @param {string} tokenId @returns {Revocation} */
const ofToken = (tokenId) => ({ user: null, tokenId, issuedBeforeMs: 0, keepUntilMs: soon });

/** @param {readonly Revocation[]} list */
const sorted = (list) => list.map((one) => JSON.stringify(one)).sort();

for (const name of BACKENDS) {
  test(`${name}: one worker reads the revocations that another adds`, {
    timeout: 20_000,
  }, async (t) => {
    const make = await startServer(t, name, {});
    const workers = [];
    for (let i = 0; i < 2; i++) {
      const { broker, revocations } = await make();
      await broker.start({ onPublication() {}, onLost() {}, onState() {} });
      await until(() => broker.state === 'up', 5000, 'the broker');
      workers.push(revocations);
    }
    const [a, b] = workers;
    assert.deepEqual(await b.read(), []);
    const list = [ofUser('älice "x"', 5, soon), ofUser('bob', 6, soon), ofToken('älice "x"')];
    for (const one of list) assert.equal(await a.add(one), true);
    assert.deepEqual(sorted(await b.read()), sorted(list));
    assert.equal(await b.add(list[0]), true);
    assert.deepEqual(sorted(await a.read()), sorted(list));
  });
}

/**
 * The stores that outlive a server.
 * @type {Record<string, (t: import('node:test').TestContext) => Promise<() => import('../../src/backend/revocations.js').RevocationStore>>}
 */
const STORES = {
  embedded: async (t) => {
    const folder = temporaryFolder(t);
    return () => new RevocationFile(folder);
  },
  redis: async (t) => {
    const { settings } = await startRedis(t);
    const { RedisConnection } = await import('../../src/backend/redis/connection.js');
    let isReady = false;
    const connection = new RedisConnection({
      settings,
      name: 'test',
      timeoutMs: 1000,
      onReady: () => {
        isReady = true;
      },
      onAway() {},
    });
    t.after(() => connection.close());
    connection.open();
    await until(() => isReady, 5000, 'Redis');
    return () => new RedisRevocations({ connection, prefix: 'test:' });
  },
};

for (const [name, start] of Object.entries(STORES)) {
  test(`${name}: a later revocation of a user replaces the earlier one`, async (t) => {
    const make = await start(t);
    const store = make();
    await store.add(ofUser('a', 5, soon));
    await store.add(ofUser('a', 9, soon - 10));
    await store.add(ofUser('a', 7, soon + 10));
    assert.deepEqual(await make().read(), [ofUser('a', 9, soon + 10)]);
    assert.deepEqual(await store.read(), [ofUser('a', 9, soon + 10)]);
  });

  test(`${name}: an expired revocation is not read`, async (t) => {
    const make = await start(t);
    await make().add(ofUser('a', 5, Date.now() - 1));
    await make().add(ofUser('b', 5, soon));
    assert.deepEqual(await make().read(), [ofUser('b', 5, soon)]);
  });
}

test('redis: the keys expire with the last revocation, and expired revocations are removed', async (t) => {
  const redis = await startRedis(t);
  const { RedisConnection } = await import('../../src/backend/redis/connection.js');
  const { settings } = redis;
  const connection = new RedisConnection({
    settings,
    name: 'test',
    timeoutMs: 1000,
    onReady() {},
    onAway() {},
  });
  t.after(() => connection.close());
  connection.open();
  await until(() => connection.isWritable, 5000, 'Redis');
  const store = new RedisRevocations({ connection, prefix: 'test:' });
  await store.add(ofUser('old', 1, Date.now() - 5));
  await store.add(ofUser('a', 1, soon));
  await store.add(ofUser('b', 1, soon - 30_000));
  assert.equal(await redis.cli('HLEN', 'test:{revocations}:entries'), '2');
  for (const key of ['entries', 'expiry', 'version']) {
    const leftMs = Number(await redis.cli('PTTL', `test:{revocations}:${key}`));
    assert.ok(Math.abs(Date.now() + leftMs - soon) < 2000, `${key} has ${leftMs} ms left`);
  }
  await redis.kill();
  await until(() => !connection.isWritable, 5000, 'the loss of Redis');
  await assert.rejects(store.add(ofUser('c', 1, soon)), { code: 'UNAVAILABLE' });
  await assert.rejects(store.read(), { code: 'UNAVAILABLE' });
});

test('embedded: a truncated line does not affect other lines, and a start removes expired revocations', async (t) => {
  const folder = temporaryFolder(t);
  const store = new RevocationFile(folder);
  await store.add(ofUser('a', 1, soon));
  await appendFile(store.path, '["b",null,1,');
  await store.add(ofUser('c', 1, soon));
  await store.add(ofUser('old', 1, Date.now() - 1));
  const kept = sorted([ofUser('a', 1, soon), ofUser('c', 1, soon)]);
  assert.deepEqual(sorted(await store.read()), kept);
  const before = await stat(store.path);
  await compact(folder);
  const after = await stat(store.path);
  assert.ok(after.size < before.size);
  assert.equal(after.mode & 0o777, 0o600);
  assert.deepEqual(sorted(await store.read()), kept);
  await compact(join(folder, 'nothing here'));
});

test('embedded: a start reports a folder that cannot hold revocations', async (t) => {
  const { path } = new RevocationFile(temporaryFolder(t));
  await appendFile(path, '');
  await assert.rejects(compact(path), { code: 'EEXIST' });
  await assert.rejects(compact(join(path, 'below a file')), { code: 'ENOTDIR' });
});
