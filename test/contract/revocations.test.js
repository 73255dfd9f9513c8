// revocations.test.js: the contract of a backend's list of revocations (src/backend/revocations.js),
// for every backend.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { appendFile, open, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { RevocationLog } from '../../src/auth/revocation-log.js';
import { Revocations } from '../../src/auth/revocations.js';
import { compact, RevocationFile } from '../../src/backend/embedded/revocation-file.js';
import { RedisRevocations } from '../../src/backend/redis/revocations.js';
import { KEPT_ALWAYS_MS, KEPT_MS } from '../../src/backend/revocations.js';
import { createAuthCounters } from '../../src/observability/counters.js';
import { startRedis } from '../harness/redis.js';
import { until } from '../harness/server.js';
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
    const { connection } = await startConnection(t);
    return () => new RedisRevocations({ connection, prefix: 'test:' });
  },
};

/** @param {import('node:test').TestContext} t */
async function startConnection(t) {
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
  return { redis, connection };
}

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

for (const isAlways of [false, true]) {
  const what = isAlways
    ? 'kept always stay in a full list'
    : 'kept past their time leave a full list';
  const keptMs = isAlways ? KEPT_ALWAYS_MS : KEPT_MS + Date.now() - 1000;

  test(`redis: revocations ${what}`, async (t) => {
    const { redis, connection } = await startConnection(t);
    const store = new RedisRevocations({ connection, prefix: 'test:' });
    await store.add(ofUser('past', 1, keptMs));
    await store.add(ofUser('kept', 1, KEPT_MS + soon));
    assert.equal((await store.read()).length, 2);
    const keys = store.keys.join(' ').split(' ');
    const add = (/** @type {string} */ user) =>
      connection.redis.eval(
        ...[store.script, 3, ...keys, JSON.stringify([user, null])],
        ...[1, KEPT_MS + soon, Date.now(), 2, 1],
      );
    assert.equal(await add('new'), isAlways ? 0 : 1);
    const users = (await store.read()).map(({ user }) => user).sort();
    assert.deepEqual(users, isAlways ? ['kept', 'past'] : ['kept', 'new']);
    assert.ok(Number(await redis.cli('PTTL', keys[0])) > 1e15);
  });

  test(`embedded: revocations ${what}`, async (t) => {
    const folder = temporaryFolder(t);
    const store = new RevocationFile(folder, { max: 2 });
    await store.add(ofUser('past', 1, keptMs));
    await store.add(ofUser('kept', 1, KEPT_MS + soon));
    await compact(folder);
    assert.equal((await store.read()).length, 2);
    assert.equal(await store.add(ofUser('new', 1, soon)), !isAlways);
    const users = (await store.read()).map(({ user }) => user).sort();
    assert.deepEqual(users, isAlways ? ['kept', 'past'] : ['kept', 'new']);
  });
}

test('redis: the keys expire with the last revocation, and expired revocations are removed', async (t) => {
  const { redis, connection } = await startConnection(t);
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

test('redis: a list that Redis has evicted is read as lost, so that workers add it again', async (t) => {
  const { redis, connection } = await startConnection(t);
  const [store, other] = [1, 2].map(() => new RedisRevocations({ connection, prefix: 'test:' }));
  await store.add(ofUser('a', 1, soon));
  assert.equal((await store.read()).length, 1);
  await redis.cli('DEL', 'test:{revocations}:entries');
  assert.deepEqual(await store.read(), []);
  await store.add(ofUser('a', 1, soon));
  assert.deepEqual(await other.read(), [ofUser('a', 1, soon)]);
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

test('embedded: a revocation that the disk takes only in part is not answered as kept', async (t) => {
  const { path } = new RevocationFile(temporaryFolder(t));
  await writeFile(path, '\n'.repeat(1000));
  const script = `
    import { RevocationFile } from ${JSON.stringify(String(new URL('../../src/backend/embedded/revocation-file.js', import.meta.url)))};
    const store = new RevocationFile(${JSON.stringify(join(path, '..'))});
    const revocation = { user: 'mallory', tokenId: null, issuedBeforeMs: 1, keepUntilMs: ${soon} };
    console.log(await store.add(revocation).catch(({ code }) => code));`;
  // The kernel ends a write at the limit of the file, as a full disk does.
  const command = 'ulimit -f 1; exec "$0" --input-type=module --eval "$1"';
  const { stdout } = await promisify(execFile)('bash', ['-c', command, process.execPath, script]);
  assert.equal((await stat(path)).size, 1024, 'the limit has cut the write');
  assert.equal(stdout.trim(), 'OUTCOME_UNKNOWN');
});

test('embedded: in a full list a known user can be revoked again, and expired ones make room', async (t) => {
  const store = new RevocationFile(temporaryFolder(t), { max: 2 });
  await store.add(ofUser('a', 1, soon));
  await store.add(ofUser('b', 1, soon));
  assert.equal(await store.add(ofUser('c', 1, soon)), false);
  assert.equal(await store.add(ofUser('a', 5, soon)), true);
  assert.deepEqual(
    sorted(await store.read()),
    sorted([ofUser('a', 5, soon), ofUser('b', 1, soon)]),
  );
  const short = new RevocationFile(temporaryFolder(t), { max: 1 });
  await short.add(ofUser('old', 1, Date.now() - 1));
  assert.equal(await short.add(ofUser('new', 1, soon)), true);
});

test('embedded: what has been read is not read again', async (t) => {
  const store = new RevocationFile(temporaryFolder(t));
  await store.add(ofUser('a', 1, soon));
  assert.deepEqual(await store.read(), [ofUser('a', 1, soon)]);
  const { size } = await stat(store.path);
  const file = await open(store.path, 'r+');
  await file.write('x'.repeat(size - 1), 0);
  await file.close();
  await store.add(ofUser('b', 1, soon));
  assert.deepEqual(
    sorted(await store.read()),
    sorted([ofUser('a', 1, soon), ofUser('b', 1, soon)]),
  );
});

test('embedded: a damaged line is reported at each start, until the operator repairs it', async (t) => {
  const folder = temporaryFolder(t);
  /** @type {unknown[]} */
  const reports = [];
  const start = () =>
    new RevocationFile(folder, { onUnreadable: (lines, path) => reports.push([lines, path]) });
  const store = start();
  await store.add(ofUser('a', 1, soon));
  await appendFile(store.path, '["eve,null,1,2]\n');
  assert.deepEqual(await store.read(), [ofUser('a', 1, soon)]);
  await appendFile(store.path, 'another\n');
  await store.read();
  await store.read();
  const { path } = store;
  assert.deepEqual(reports.splice(0), [
    [1, path],
    [2, path],
  ]);
  await compact(folder);
  await start().read();
  assert.deepEqual(reports, [[2, path]]);
  await writeFile(path, `["eve",null,1,${soon}]\n`);
  assert.deepEqual(await start().read(), [ofUser('eve', 1, soon)]);
  assert.equal(reports.length, 1);
});

test('redis: lost revocations, and lost times of one, are added again from memory', async (t) => {
  const { redis, connection } = await startConnection(t);
  const make = () => new RedisRevocations({ connection, prefix: 'test:' });
  const revocations = new Revocations({ maxLifetimeS: 3600, counters: createAuthCounters() });
  const log = new RevocationLog({
    store: make(),
    announce: async () => {},
    revocations,
    onRevoked() {},
    log: { warn: (fields) => assert.fail(String(fields)), info() {} },
  });
  t.after(() => log.close());
  await log.start();
  await log.revoke({ user: 'eve', issuedBeforeMs: 1000 });
  const early = await redis.cli('HGET', 'test:{revocations}:entries', '["eve",null]');
  await log.revoke({ user: 'eve' });
  await log.revoke({ tokenId: 't1' });
  await log.revoke({ user: 'zoe' });
  const all = sorted([...revocations.entries()]);
  assert.deepEqual(sorted(await make().read()), all);

  // Redis goes back to an older state: eve's second revocation and t1 are lost.
  await redis.cli('HSET', 'test:{revocations}:entries', '["eve",null]', early);
  await redis.cli('HDEL', 'test:{revocations}:entries', '[null,"t1"]');
  await redis.cli('INCR', 'test:{revocations}:version');
  await log.refresh();
  assert.deepEqual(sorted(await make().read()), all);

  await redis.cli('FLUSHALL');
  await log.refresh();
  assert.deepEqual(sorted(await make().read()), all);
});

test('redis: an addition after a loss is read, although the number of additions is the same', async (t) => {
  const { redis, connection } = await startConnection(t);
  const [reader, writer] = [0, 1].map(() => new RedisRevocations({ connection, prefix: 'test:' }));
  await writer.add(ofUser('a', 1, soon));
  const version = await redis.cli('GET', 'test:{revocations}:version');
  await writer.add(ofUser('lost', 1, soon));
  await reader.read();
  await redis.cli('HDEL', 'test:{revocations}:entries', '["lost",null]');
  await redis.cli('SET', 'test:{revocations}:version', version);
  await writer.add(ofUser('b', 1, soon));
  assert.deepEqual(
    sorted(await reader.read()),
    sorted([ofUser('a', 1, soon), ofUser('b', 1, soon)]),
  );
});
