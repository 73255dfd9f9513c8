// shard-visits.test.js: which primaries of a cluster are visited, and what a visit finds. One Redis
// plays all primaries; faults/cluster-loss has a real cluster.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { Redis } from 'ioredis';
import { readScript } from '../../src/backend/redis/scripts.js';
import { ShardVisits } from '../../src/backend/redis/shard-visits.js';
import { startRedis } from '../harness/redis.js';
import { until } from '../harness/server.js';

const CLAIM_MS = 30_000;

/** @type {import('../harness/redis.js').RedisServer} */
let server;
/** @type {Redis} */
let redis;
/** @type {(() => unknown)[]} */
const ends = [];
before(async () => {
  server = await startRedis({ after: (end) => ends.push(end) });
  redis = new Redis(server.port);
});
test.after(async () => {
  redis.disconnect();
  await Promise.all(ends.map((end) => end()));
});

/** @param {string} key @param {string[]} args @returns {Promise<(string|number)[]>} */
async function visits(key, ...args) {
  return /** @type {(string|number)[]} */ (await redis.eval(readScript('visits'), 1, key, ...args));
}

/** @param {string} name @param {number} ageMs */
async function markOf(name, ageMs) {
  const [seconds] = await redis.time();
  return `${name}:1:${Number(seconds) * 1000 - ageMs}`;
}

const claim = (/** @type {string} */ who) => ['claim', who, `${CLAIM_MS}`];

test('the first start ever visits all primaries, and none has lost writes', async () => {
  const [star, other] = [await markOf('star', 0), await markOf('other', 900)];
  assert.deepEqual(await visits('first', ...claim('a'), star, star, other), [0, star, 0, other, 0]);
  // A second worker starts at the same time.
  assert.deepEqual(await visits('first', ...claim('b'), star, star, other), [1]);
  await visits('first', 'done', 'a', `${CLAIM_MS}`, star, star, other);
  assert.deepEqual(await visits('first', ...claim('b'), star, star, other), [0]);
});

test('a primary with a later mark has lost writes, and the others are not visited again', async () => {
  const [star, other] = [await markOf('star', 0), await markOf('other', 0)];
  await visits('later', ...claim('a'), star, star, other);
  await visits('later', 'done', 'a', `${CLAIM_MS}`, star, star, other);
  const again = await markOf('other', -10_000);
  assert.deepEqual(await visits('later', ...claim('a'), star, star, again), [0, again, 1]);
});

test('if the primary of the sessions has lost everything, all are visited and it counts', async () => {
  const [star, other] = [await markOf('star', 0), await markOf('other', 3_600_000)];
  assert.deepEqual(await visits('star', ...claim('a'), star, star, other), [0, star, 0, other, 1]);
});

test('if the primary of the sessions has lost its last writes, all are visited again', async () => {
  const [star, other] = [await markOf('star', 0), await markOf('other', 0)];
  await visits('back', ...claim('a'), star, star, other);
  await visits('back', 'done', 'a', `${CLAIM_MS}`, star, star, other);
  const later = await markOf('star', -10_000);
  assert.deepEqual(await visits('back', ...claim('a'), later, later, other), [
    ...[0, later, 1],
    ...[other, 0],
  ]);
  await visits('back', 'done', 'a', `${CLAIM_MS}`, later, later, other);
  // Nothing is kept about the former one.
  assert.equal(await redis.hlen('back'), 3);
});

test('a visitor without a sign of life is replaced', async () => {
  const star = await markOf('star', 0);
  await visits('dead', 'claim', 'a', '50', star, star);
  assert.deepEqual(await visits('dead', 'claim', 'b', '50', star, star), [1]);
  await until(async () => (await visits('dead', 'claim', 'b', '50', star, star)).length > 1);
});

test('the mark of a primary changes with a restart and a replication ID, not if its backlog ends', async () => {
  const shard = async () => String(await redis.eval(readScript('shard'), 1, 'shard'));
  const first = await shard();
  assert.equal(await shard(), first);
  // After an hour without replicas Redis ends the backlog, and takes another ID without a second.
  const [run, , ms] = first.split(':');
  const withoutBacklog = `${run}:${'a'.repeat(40)}:${ms}`;
  await redis.set('shard', withoutBacklog);
  assert.equal(await shard(), withoutBacklog);
  // REPLICAOF and back: the former ID is the second one.
  await server.cli('REPLICAOF', '127.0.0.1', '1');
  await server.cli('REPLICAOF', 'NO', 'ONE');
  const second = await shard();
  assert.notEqual(second, withoutBacklog);
  await redis.set('shard', `${'b'.repeat(40)}:${second.split(':')[1]}:${ms}`);
  assert.match(await shard(), new RegExp(`^${run}:`));
  await redis.del('shard');
  assert.notEqual(await shard(), '');
});

/**
 * @param {string} prefix
 * @param {Partial<ConstructorParameters<typeof ShardVisits>[0]>} [parts]
 */
function visitsOf(prefix, parts = {}) {
  /** @type {Map<string, string[]>} */
  const found = new Map();
  const one = new ShardVisits({
    connection: {
      isWritable: true,
      redis,
      describe: String,
      primaries: () => [{ redis, tag: '0', hasFleetSlot: true }],
    },
    prefix,
    visitor: 'a',
    held: [
      {
        head: `${prefix}presence:{`,
        tail: 'users:*',
        sessionsOf: async (keys) => keys.map((key) => [key.split(':users:')[1], key]),
      },
    ],
    onFound: async (rooms) => {
      for (const [session, keys] of rooms)
        found.set(session, [...(found.get(session) ?? []), ...keys]);
    },
    log: { info() {}, warn() {} },
    retryMs: 10,
    ...parts,
  });
  return { one, found };
}

test('a visit finds the sessions of all rooms, in pages, and of no other prefix', async (t) => {
  const pipeline = redis.pipeline();
  for (let i = 0; i < 2000; i++) pipeline.sadd(`p[a]*:presence:{room-${i}}:users:s`, 'ann');
  pipeline.sadd('pa:presence:{room}:users:other', 'ann');
  await pipeline.exec();
  const { one, found } = visitsOf('p[a]*:');
  t.after(() => one.close());
  one.check();
  await until(() => one.isIdle);
  assert.deepEqual([...found.keys()], ['s']);
  assert.equal(new Set(found.get('s')).size, 2000);
});

test('a loss while another worker is visiting is not kept waiting', async (t) => {
  const star = String(await redis.eval(readScript('shard'), 1, 'wake:presence:{0}:shard'));
  await visits('wake:presence:{*}:visits', ...claim('b'), star, star);
  let asked = 0;
  const { one } = visitsOf('wake:', {
    onFound: async () => {},
    connection: {
      isWritable: true,
      redis,
      describe: String,
      primaries: () => {
        asked++;
        return [{ redis, tag: '0', hasFleetSlot: true }];
      },
    },
  });
  t.after(() => one.close());
  one.check();
  await until(() => asked === 1);
  one.check(); // before the claim is answered
  await until(() => asked === 2);
  // The mark and the claim have been answered.
  for (let i = 0; i < 3; i++) await redis.ping();
  assert.equal(one.isIdle, false);
  one.check();
  await until(() => asked === 3);
});

test('a visit that fails is repeated, and counts as done only after the loss was announced', async (t) => {
  let announced = 0;
  const { one } = visitsOf('retry:', {
    onLost: async () => {
      if (++announced === 1) throw new Error('no node');
    },
  });
  t.after(() => one.close());
  await redis.hset('retry:presence:{*}:visits', 'since', '1');
  one.check();
  await until(() => one.isIdle);
  assert.equal(announced, 2);
  assert.deepEqual((await redis.hvals('retry:presence:{*}:visits')).sort(), ['1', 'done']);
});
