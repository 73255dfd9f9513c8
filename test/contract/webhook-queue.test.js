// webhook-queue.test.js: the contract of the queue between the backend, which records events, and
// the courier (src/webhooks/queue.js), for both backends.

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { EmbeddedEventQueue } from '../../src/backend/embedded/event-queue.js';
import { EventRecorder } from '../../src/backend/embedded/event-recorder.js';
import { RedisClusterClient } from '../../src/backend/redis/cluster-client.js';
import { RedisConnection } from '../../src/backend/redis/connection.js';
import { openEventQueue } from '../../src/backend/redis/event-queue.js';
import { RedisRecording } from '../../src/backend/redis/recording.js';
import { PARTITIONS, partitionOf } from '../../src/webhooks/queue.js';
import { startRedis } from '../harness/redis.js';
import { KINDS, TOPOLOGIES } from '../helpers/redis-topologies.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { configOf, eventually } from './suite.js';

/** @typedef {import('../../src/webhooks/queue.js').EventQueue} EventQueue */
/** @typedef {import('../../src/config/redis.js').RedisSettings} RedisSettings */
/** @typedef {import('node:test').TestContext} TestContext */

/**
 * @typedef {object} Partitions
 * @property {EventQueue} queue of a courier
 * @property {EventQueue} other of a second courier; the same object if the backend has one server
 * @property {(room: string, count: number, isMoved?: boolean) => Promise<void>} record messages;
 *   `isMoved` false: in a cluster they stay in the outbox of the room
 * @property {(partition: number) => Promise<void>} expire ends the lease of a partition
 * @property {string} [prefix] of keys in Redis
 */

const TIMEOUT_MS = 20_000;
const MAX_ENTRIES = 200;
const covers = () => true;

/** @type {(() => unknown)[]} */
const ends = [];
after(() => Promise.all(ends.map((end) => end())));

let prefixes = 0;

/**
 * @param {TestContext} t @param {RedisSettings} redis
 * @returns {Promise<Partitions>}
 */
async function lanesOn(t, redis) {
  const prefix = `contract-queue-${++prefixes}:`;
  const config = configOf({ redis, redisPrefix: prefix });
  const [one, two] = [openEventQueue({ config }), openEventQueue({ config })];
  const timeoutMs = config.redisTimeoutMs;
  const connection =
    redis.kind === 'cluster'
      ? new RedisClusterClient({ settings: redis, timeoutMs })
      : new RedisConnection({
          settings: redis,
          name: 'test',
          timeoutMs,
          onReady() {},
          onAway() {},
        });
  connection.open();
  t.after(() => {
    for (const opened of [one, two, connection]) opened.close();
  });
  await eventually(() =>
    [one.queue.connection, two.queue.connection, connection].every(({ isWritable }) => isWritable),
  );
  const isSharded = redis.kind === 'cluster';
  const recording = new RedisRecording({
    connection,
    prefix,
    isSharded,
    covers,
    maxEntries: MAX_ENTRIES,
  });
  for (let partition = 0; partition < PARTITIONS; partition++)
    await eventually(() =>
      /** @type {any} */ (connection.redis)
        .get(recording.keys.ofPartition(partition, 'lease'))
        .then(
          () => true,
          () => false,
        ),
    );
  return {
    prefix,
    queue: one.queue,
    other: two.queue,
    record: async (room, count, isMoved = true) => {
      for (let i = 0; i < count; i += 100) {
        const waiting = await recording.recordMessages(
          room,
          Array.from({ length: Math.min(100, count - i) }, (_, n) => {
            const fields = `"room":"${room}","from":"ann","payload":${i + n}`;
            const type = /** @type {const} */ ('message.published');
            return { type, mark: '', fields };
          }),
        );
        if (waiting > 0 && isMoved) await recording.move(room, waiting);
      }
    },
    expire: async (partition) => {
      const { redis: client } = /** @type {any} */ (connection);
      await client.del(recording.keys.ofPartition(partition, /** @type {any} */ ('lease')));
    },
  };
}

/** @param {string} fields */
function messageOf(fields) {
  return { kind: /** @type {const} */ ('message.published'), mark: '', fields };
}

/** @returns {Promise<Partitions>} */
async function lanesInMemory() {
  let skippedMs = 0;
  const nowMs = () => performance.now() + skippedMs;
  const queue = new EmbeddedEventQueue({ maxEntries: MAX_ENTRIES, nowMs });
  const recorder = new EventRecorder({ covers, queue });
  return {
    queue,
    other: queue,
    record: async (room, count) => {
      for (let i = 0; i < count; i++)
        recorder.message(room, messageOf(`"room":"${room}","from":"ann","payload":${i}`));
    },
    expire: async () => {
      skippedMs += 60_000;
    },
  };
}

/** @type {Record<string, (t: TestContext) => Promise<Partitions>>} */
const CANDIDATES = {
  embedded: lanesInMemory,
  ...Object.fromEntries(
    KINDS.map((kind) => {
      /** @type {Promise<RedisSettings>|null} */
      let shared = null;
      const lifetime = { after: (/** @type {() => unknown} */ end) => ends.push(end) };
      return [
        kind,
        async (/** @type {TestContext} */ t) =>
          lanesOn(t, await (shared ??= TOPOLOGIES[kind](lifetime))),
      ];
    }),
  ),
};

/**
 * @param {string} behaviour
 * @param {(partitions: Partitions, t: TestContext) => Promise<void>} body
 */
function it(behaviour, body) {
  for (const [name, start] of Object.entries(CANDIDATES))
    test(`${name}: ${behaviour}`, { timeout: TIMEOUT_MS }, async (t) => body(await start(t), t));
}

/** @param {import('../../src/webhooks/queue.js').Entry} entry */
const eventOf = ({ body }) => JSON.parse(body);

/** Takes a partition. @param {EventQueue} queue @param {number} partition @returns {Promise<number>} */
async function take(queue, partition) {
  const fence = await queue.acquire(partition);
  assert.ok(fence !== null);
  return fence;
}

const PARTITION = partitionOf('room');

/** @type {import('../../src/webhooks/queue.js').Change} */
const NOTHING = { set: new Map(), remove: [], upTo: null };

it('a partition has one owner, until it is released or its lease ends; fences ascend', async (partitions) => {
  const { queue, other, expire } = partitions;
  const first = await take(queue, PARTITION);
  assert.equal(await other.acquire(PARTITION), null);
  assert.equal(await queue.renew(PARTITION, first), true);
  const elsewhere = await take(other, (PARTITION + 1) % PARTITIONS);
  await queue.release(PARTITION, first);
  const second = await take(other, PARTITION);
  assert.ok(second > first);
  // A release by an earlier owner changes nothing.
  await queue.release(PARTITION, first);
  assert.equal(await queue.acquire(PARTITION), null);
  await expire(PARTITION);
  const third = await take(queue, PARTITION);
  assert.ok(third > second);
  assert.equal(await other.renew(PARTITION, second), false);
  await other.release((PARTITION + 1) % PARTITIONS, elsewhere);
});

it('events of a room are read in order, page by page, with numbers without holes', async (partitions) => {
  const { queue, record } = partitions;
  await record('room', 150);
  const first = await queue.read(PARTITION, null, 100);
  const rest = await queue.read(PARTITION, first[99].id, 100);
  assert.equal(first.length, 100);
  assert.equal(rest.length, 50);
  const events = [...first, ...rest].map(eventOf);
  assert.deepEqual(
    events.map(({ seq }) => seq),
    Array.from({ length: 150 }, (_, i) => i + 1),
  );
  assert.deepEqual(
    events.map(({ payload }) => payload),
    Array.from({ length: 150 }, (_, i) => i),
  );
  assert.equal(new Set(events.map(({ epoch }) => epoch)).size, 1);
  const [{ type, room, from, at }] = events;
  assert.deepEqual({ type, room, from }, { type: 'message.published', room: 'room', from: 'ann' });
  assert.ok(Math.abs(Date.now() - at) < 60_000);
  assert.deepEqual(await queue.read(PARTITION, rest[49].id, 100), []);
  assert.deepEqual(await queue.read((PARTITION + 1) % PARTITIONS, null, 100), []);
});

it('a commit stores and removes pending events and trims what was applied, in one step', async (partitions) => {
  const { queue, record } = partitions;
  await record('room', 3);
  const fence = await take(queue, PARTITION);
  const entries = await queue.read(PARTITION, null, 10);
  const set = new Map([
    ['a', '{"n":1}'],
    ['b', '"é\\u0000"'],
  ]);
  assert.equal(
    await queue.commit(PARTITION, fence, { set, remove: [], upTo: entries[1].id }),
    true,
  );
  assert.deepEqual(await queue.load(PARTITION), set);
  assert.deepEqual(await queue.read(PARTITION, null, 10), [entries[2]]);
  const { entries: waiting, pending, bytes } = await queue.size();
  assert.deepEqual({ waiting, pending }, { waiting: 1, pending: 2 });
  assert.ok(bytes > 20);
  const change = { set: new Map([['a', '{"n":2}']]), remove: ['b', 'unknown'], upTo: null };
  assert.equal(await queue.commit(PARTITION, fence, change), true);
  assert.deepEqual(await queue.load(PARTITION), new Map([['a', '{"n":2}']]));
  assert.deepEqual(await queue.read(PARTITION, null, 10), [entries[2]]);
});

it('a commit with a fence that is out of date changes nothing', async (partitions) => {
  const { queue, other, record, expire } = partitions;
  await record('room', 2);
  const stale = await take(queue, PARTITION);
  const [first, second] = await queue.read(PARTITION, null, 10);
  assert.equal(
    await queue.commit(PARTITION, stale, { ...NOTHING, set: new Map([['a', '1']]) }),
    true,
  );
  await expire(PARTITION);
  const change = { set: new Map([['b', '2']]), remove: ['a'], upTo: second.id };
  // Even before another process has taken the partition.
  assert.equal(await queue.commit(PARTITION, stale, change), false);
  const fence = await take(other, PARTITION);
  assert.equal(await queue.commit(PARTITION, stale, change), false);
  assert.deepEqual(await other.load(PARTITION), new Map([['a', '1']]));
  assert.deepEqual(await other.read(PARTITION, null, 10), [first, second]);
  assert.equal(await other.commit(PARTITION, fence, change), true);
  assert.deepEqual(await other.load(PARTITION), new Map([['b', '2']]));
});

it('a partition without a courier is bounded: the oldest events go, and are counted', async (partitions) => {
  const { queue, record } = partitions;
  await record('room', 1000);
  const kept = await queue.read(PARTITION, null, 1000);
  const { count: lost, upTo: announced } = await queue.lost(PARTITION);
  assert.equal(kept.length + lost, 1000);
  // Redis trims whole nodes of a stream.
  assert.ok(kept.length >= MAX_ENTRIES && kept.length < MAX_ENTRIES + 200, `${kept.length}`);
  assert.equal(eventOf(kept[kept.length - 1]).seq, 1000);
  assert.equal(eventOf(kept[0]).seq, lost + 1);
  // They stay lost until the commit that announces them, which may be repeated.
  assert.equal((await queue.lost(PARTITION)).count, lost);
  const fence = await take(queue, PARTITION);
  for (let n = 0; n < 2; n++)
    assert.equal(await queue.commit(PARTITION, fence, { ...NOTHING, announced }), true);
  assert.equal((await queue.lost(PARTITION)).count, 0);
  await record('room', 400);
  assert.ok((await queue.lost(PARTITION)).count > 0);
});

it('a hold and a doubt are known to all couriers, until they end', async ({ queue, other }) => {
  assert.deepEqual(await other.periods(), { leavesMs: 0, uncertainMs: 0 });
  await queue.pauseLeaves(60_000);
  await queue.pauseLeaves(1000);
  await queue.makeUncertain(100);
  const { leavesMs, uncertainMs } = await other.periods();
  assert.ok(leavesMs > 50_000 && leavesMs <= 60_000, `${leavesMs}`);
  assert.ok(uncertainMs > 0 && uncertainMs <= 100, `${uncertainMs}`);
  await eventually(async () => (await other.periods()).uncertainMs === 0);
});

it('5,000 pending events of one commit are all loaded', async (partitions) => {
  const fence = await take(partitions.queue, PARTITION);
  const set = new Map(Array.from({ length: 5000 }, (_, i) => [`field-${i}`, `${i}`]));
  assert.equal(await partitions.queue.commit(PARTITION, fence, { ...NOTHING, set }), true);
  assert.deepEqual([...(await partitions.queue.load(PARTITION))].sort(), [...set].sort());
});

// Features of one backend only.

test('redis: after Redis has lost its data, fences ascend, the epoch is another, and a loss is reported', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const { queue, record } = await lanesOn(t, redis.settings);
  await record('room', 1);
  const fence = await take(queue, PARTITION);
  const [before] = (await queue.read(PARTITION, null, 1)).map(eventOf);
  assert.equal((await queue.lost(PARTITION)).count, 0);
  await redis.cli('FLUSHALL');
  await eventually(() =>
    queue.renew(PARTITION, fence).then(
      (isOurs) => !isOurs,
      () => false,
    ),
  );
  assert.equal(await queue.commit(PARTITION, fence, NOTHING), false);
  assert.ok((await take(queue, PARTITION)) > fence);
  assert.equal((await queue.lost(PARTITION)).count, 1);
  await eventually(() =>
    record('room', 1).then(
      () => true,
      () => false,
    ),
  );
  const [again] = (await queue.read(PARTITION, null, 1)).map(eventOf);
  assert.equal(again.seq, 1);
  assert.notEqual(again.epoch, before.epoch);
});

test('redis: a partition is read and trimmed without options that Redis 6.0 lacks', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  // XTRIM fails here as XTRIM MINID does there.
  const args = ['--rename-command', 'XTRIM', '', '--slowlog-log-slower-than', '0'];
  const redis = await startRedis(t, { args });
  const { queue, record } = await lanesOn(t, redis.settings);
  await record('room', 120);
  const fence = await take(queue, PARTITION);
  const first = await queue.read(PARTITION, null, 110);
  const rest = await queue.read(PARTITION, first[109].id, 110);
  assert.equal(rest.length, 10);
  assert.doesNotMatch(
    await redis.cli('SLOWLOG', 'GET', '-1'),
    /^\(\d+-\d+$/m,
    'an exclusive range',
  );
  for (let n = 0; n < 2; n++)
    assert.equal(await queue.commit(PARTITION, fence, { ...NOTHING, upTo: first[109].id }), true);
  assert.deepEqual(await queue.read(PARTITION, null, 110), rest);
});

test('redis: after another primary has taken over, the epoch is another, and a loss is reported', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t, { args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
  const { queue, record, expire } = await lanesOn(t, redis.settings);
  await record('room', 3);
  await take(queue, PARTITION);
  const [before] = (await queue.read(PARTITION, null, 1)).map(eventOf);
  await redis.stop();
  // It has its data, but no worker can know that.
  await redis.restart();
  await eventually(() =>
    record('room', 1).then(
      () => true,
      () => false,
    ),
  );
  await eventually(() => queue.size().then(Boolean, () => false));
  const after = (await queue.read(PARTITION, null, 10)).map(eventOf).at(-1);
  assert.equal(after.seq, 1);
  assert.notEqual(after.epoch, before.epoch);
  await expire(PARTITION);
  await take(queue, PARTITION);
  assert.equal((await queue.lost(PARTITION)).count, 1);
});

test('redis: a courier that has never owned a partition knows of it, and reports that Redis has lost it', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const { queue, other, prefix } = await lanesOn(t, redis.settings);
  await take(queue, PARTITION);
  assert.equal(await other.acquire(PARTITION), null);
  await redis.cli('FLUSHALL');
  await take(other, PARTITION);
  assert.equal((await other.lost(PARTITION)).count, 1);
  // One that begins now cannot notice it, but learns it from another one.
  const third = openEventQueue({
    config: configOf({ redis: redis.settings, redisPrefix: String(prefix) }),
  });
  t.after(() => third.close());
  await eventually(() => third.queue.connection.isWritable);
  await redis.cli('FLUSHALL');
  await take(third.queue, PARTITION);
  assert.equal((await third.queue.lost(PARTITION)).count, 0);
  for (let n = 0; n < 2; n++) assert.equal(await queue.acquire(PARTITION), null);
  assert.equal((await third.queue.lost(PARTITION)).count, 1);
});

test('redis: a partition without a mark is a loss if the first partition has one; without any, nobody can tell', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const { queue, prefix } = await lanesOn(t, redis.settings);
  const state = (/** @type {number} */ partition) => `${prefix}webhooks:{lane-${partition}}:state`;
  const begun = async () => {
    const { queue, close } = openEventQueue({
      config: configOf({ redis: redis.settings, redisPrefix: String(prefix) }),
    });
    t.after(close);
    await eventually(() => queue.connection.isWritable);
    return queue;
  };
  const knows = async (/** @type {import('../../src/webhooks/queue.js').EventQueue} */ one) => {
    const all = [];
    for (const partition of [0, PARTITION]) {
      const { count, isUnknown } = await one.lost(partition);
      all.push([count, isUnknown]);
    }
    return all;
  };
  // The first start ever.
  const fence = await take(queue, 0);
  await queue.release(PARTITION, await take(queue, PARTITION));
  assert.deepEqual(await knows(queue), [
    [0, true],
    [0, false],
  ]);
  assert.equal(await queue.commit(0, fence, { ...NOTHING, announced: 0 }), true);
  await queue.release(0, fence);
  // Another start.
  const second = await begun();
  for (const partition of [0, PARTITION])
    await second.release(partition, await take(second, partition));
  assert.deepEqual(await knows(second), [
    [0, false],
    [0, false],
  ]);
  // The first partition is an hour old, and the other one is lost with all couriers.
  const mark = String(await redis.cli('HGET', state(0), 'mark'));
  const [id, ms] = mark.split(':');
  await redis.cli('HSET', state(0), 'mark', `${id}:${Number(ms) - 3_600_000}`);
  await redis.cli('DEL', state(PARTITION));
  const third = await begun();
  for (const partition of [0, PARTITION])
    await third.release(partition, await take(third, partition));
  assert.deepEqual(await knows(third), [
    [0, false],
    [1, false],
  ]);
  // All of it is lost with all couriers, and the one that notices dies before it announces it.
  await redis.cli('FLUSHALL');
  await (await begun()).acquire(0);
  assert.deepEqual(await knows(await begun()), [
    [0, true],
    [0, false],
  ]);
});

test('redis: another replication ID is a loss, unless the primary has only got its first replica', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const { queue } = await lanesOn(t, redis.settings);
  const fence = await take(queue, PARTITION);
  const other = await take(queue, PARTITION + 1);
  const idOf = async () => /master_replid:(\w+)/.exec(await redis.cli('INFO', 'replication'))?.[1];
  const first = await idOf();
  const replica = await startRedis(t, { args: ['--replicaof', '127.0.0.1', `${redis.port}`] });
  await eventually(async () =>
    (await replica.cli('INFO', 'replication')).includes('master_link_status:up'),
  );
  assert.notEqual(await idOf(), first);
  assert.equal(await queue.renew(PARTITION, fence), true);
  assert.equal((await queue.lost(PARTITION)).count, 0);
  // It was a replica meanwhile, so it has a second ID.
  await redis.cli('REPLICAOF', '127.0.0.1', '1');
  await redis.cli('REPLICAOF', 'NO', 'ONE');
  /** @type {boolean|null} */
  let isRenewed = null;
  await eventually(async () => {
    isRenewed = await queue.renew(PARTITION, fence).catch(() => null);
    return isRenewed !== null;
  });
  // What the owner has in memory may be of the lost data.
  assert.equal(isRenewed, false);
  assert.equal((await queue.lost(PARTITION)).count, 1);
  const set = new Map([['[]', '{}']]);
  assert.equal(await queue.commit(PARTITION + 1, other, { ...NOTHING, set }), false);
  assert.equal((await queue.load(PARTITION + 1)).size, 0);
  for (const [partition, before] of [
    [PARTITION, fence],
    [PARTITION + 1, other],
  ]) {
    assert.ok((await take(queue, partition)) > before);
    assert.equal((await queue.lost(partition)).count, 1);
  }
});

test('redis: a courier that comes back from another Redis reports a loss', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const { queue } = await lanesOn(t, redis.settings);
  const fence = await take(queue, PARTITION);
  await queue.release(PARTITION, fence);
  /** @type {any} */ (queue).marks.set(PARTITION, 'another');
  await take(queue, PARTITION);
  assert.equal((await queue.lost(PARTITION)).count, 1);
});

test('redis: an owner that is suspended loses its partition, and changes nothing when it wakes up', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const redis = await startRedis(t);
  const { queue, record } = await lanesOn(t, redis.settings);
  const prefix = `contract-queue-${prefixes}:`;
  await record('room', 2);
  const [first, second] = await queue.read(PARTITION, null, 2);
  const owner = fork(new URL('../helpers/partition-owner.js', import.meta.url), [
    JSON.stringify(redis.settings),
    prefix,
    `${PARTITION}`,
    '500',
  ]);
  t.after(() => owner.kill('SIGKILL'));
  const [{ fence }] = await once(owner, 'message');
  // It renews its lease for longer than one lasts.
  const end = performance.now() + 1000;
  while (performance.now() < end) assert.equal(await queue.acquire(PARTITION), null);
  owner.kill('SIGSTOP');
  /** @type {number|null} */
  let mine = null;
  await eventually(async () => (mine = await queue.acquire(PARTITION)) !== null);
  assert.ok(Number(mine) > fence);
  await queue.commit(PARTITION, Number(mine), { ...NOTHING, set: new Map([['kept', '1']]) });
  owner.kill('SIGCONT');
  owner.send('commit');
  assert.deepEqual((await once(owner, 'message'))[0], { committed: false });
  assert.deepEqual(await queue.load(PARTITION), new Map([['kept', '1']]));
  assert.deepEqual(await queue.read(PARTITION, null, 10), [first, second]);
});

test('redis cluster: events that were moved twice, or late, are in their partition once', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const partitions = await CANDIDATES['redis cluster'](t);
  await Promise.all(Array.from({ length: 10 }, () => partitions.record('room', 15)));
  const events = (await partitions.queue.read(PARTITION, null, 1000)).map(eventOf);
  assert.deepEqual(
    events.map(({ seq }) => seq),
    Array.from({ length: 150 }, (_, i) => i + 1),
  );
});

test('redis cluster: events that an outbox had no room for are counted as lost', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const partitions = await CANDIDATES['redis cluster'](t);
  await take(partitions.queue, PARTITION);
  await partitions.record('room', 1);
  await partitions.record('room', MAX_ENTRIES + 100, false);
  await partitions.record('room', 1);
  const events = (await partitions.queue.read(PARTITION, null, 1000)).map(eventOf);
  const last = events[events.length - 1];
  assert.equal(last.seq, MAX_ENTRIES + 102);
  const { count } = await partitions.queue.lost(PARTITION);
  assert.ok(count > 0);
  // The partition itself has a bound, too, and counts what it drops.
  assert.equal(count + events.length, last.seq);
});

test('embedded: a backlog takes messages without payloads, before a transition is dropped', async () => {
  const text = 'é,"payload":,"seq":'.repeat(100);
  const payload = JSON.stringify({ text });
  const fields = `"room":"room","from":"ann","payload":${payload}`;
  for (const [maxLength, whole] of [
    [1e9, 1000],
    [200 * payload.length, 98],
  ]) {
    const queue = new EmbeddedEventQueue({ maxLength });
    const recorder = new EventRecorder({ covers, queue });
    recorder.transition('join', 'room');
    for (let i = 0; i < 1100; i++) recorder.message('room', messageOf(fields));
    const [transition, ...messages] = (await queue.read(PARTITION, null, 2000)).map(eventOf);
    assert.deepEqual([transition.type, messages.length], ['room.occupied', 1100]);
    const { from, payload: none, bytes, seq } = messages[1099];
    const size = Buffer.byteLength(payload);
    assert.deepEqual([from, none, bytes, seq], ['ann', undefined, size, 1101]);
    const kept = messages.filter((one) => one.bytes === undefined);
    assert.ok(kept.length <= whole && kept.length > whole - 8, `${kept.length}`);
    assert.deepEqual(kept.at(-1).payload, { text });
  }
});

test('embedded: however many rooms are new in a moment, no epoch is ahead of the clock', () => {
  let now = 1_000_000;
  /** @type {import('../../src/webhooks/queue.js').WebhookEvent[]} */
  const events = [];
  const queue = {
    append: (/** @type {string} */ _, /** @type {string} */ body) =>
      void events.push(JSON.parse(body)),
  };
  const recorder = new EventRecorder({ covers, queue, now: () => now });
  for (let i = 0; i < 40_000; i++) recorder.message(`r-${i}`, messageOf(`"room":"r-${i}"`));
  assert.equal(
    events.find(({ epoch }) => Number(epoch) > now),
    undefined,
  );
  // A room that was forgotten has another epoch, and one in use keeps its own.
  for (let i = 60_000; i < 150_000; i++) {
    if (i % 1000 === 0) recorder.message('r-0', messageOf('"room":"r-0"'));
    recorder.message(`r-${i}`, messageOf(`"room":"r-${i}"`));
  }
  now += 10;
  const latestOf = (/** @type {string} */ room) => {
    recorder.message(room, messageOf(`"room":"${room}"`));
    return events[events.length - 1];
  };
  const [first, second] = events;
  assert.deepEqual([latestOf('r-0').epoch, latestOf('r-0').seq], [first.epoch, 93]);
  assert.notEqual(latestOf('r-1').epoch, second.epoch);
  assert.equal(latestOf('r-1').seq, 2);
});

test('embedded: a queue that was saved is continued, with another epoch', async (t) => {
  const folder = temporaryFolder(t);
  const before = new EmbeddedEventQueue();
  await before.open(folder);
  new EventRecorder({ covers, queue: before }).message('room', messageOf('"room":"room"'));
  const fence = await take(before, PARTITION);
  await before.commit(PARTITION, fence, { ...NOTHING, set: new Map([['a', '1']]) });
  await before.save(folder);
  const after = new EmbeddedEventQueue();
  await after.open(folder);
  new EventRecorder({ covers, queue: after, now: () => Date.now() + 1 }).message(
    'room',
    messageOf('"room":"room"'),
  );
  const events = (await after.read(PARTITION, null, 10)).map(eventOf);
  assert.deepEqual(
    events.map(({ seq }) => seq),
    [1, 1],
  );
  assert.notEqual(events[1].epoch, events[0].epoch);
  assert.deepEqual(await after.load(PARTITION), new Map([['a', '1']]));
  assert.equal((await after.lost(PARTITION)).count, 0);
  assert.deepEqual(await readdir(folder), ['webhooks.json']);
});

test('embedded: a hold goes on after a restart, until the same time', async (t) => {
  const folder = temporaryFolder(t);
  const before = new EmbeddedEventQueue();
  await before.pauseLeaves(60_000);
  await before.save(folder);
  /** @param {number} passedMs since then, by the clock of the server */
  const held = async (passedMs) => {
    const file = join(folder, 'webhooks.json');
    const text = await readFile(file, 'utf8');
    const time = t.mock.method(
      Date,
      'now',
      () => performance.timeOrigin + performance.now() + passedMs,
    );
    const queue = new EmbeddedEventQueue({ nowMs: () => 0 });
    await queue.open(folder);
    time.mock.restore();
    await writeFile(file, text);
    return (await queue.periods()).leavesMs;
  };
  const leftMs = await held(10_000);
  assert.ok(leftMs > 40_000 && leftMs <= 50_000, `${leftMs}`);
  assert.equal(await held(70_000), 0);
  assert.ok((await held(-3_600_000)) <= 60_000, 'a clock that was set back');
});

test('embedded: after a server was killed, a loss is reported in each partition', async (t) => {
  const folder = temporaryFolder(t);
  const killed = new EmbeddedEventQueue();
  await killed.open(folder);
  const next = new EmbeddedEventQueue();
  await next.open(folder);
  for (let partition = 0; partition < PARTITIONS; partition++)
    assert.equal((await next.lost(partition)).count, 1);
  await next.save(folder);
  const text = await readFile(join(folder, 'webhooks.json'), 'utf8');
  await writeFile(join(folder, 'webhooks.json'), text.slice(0, -20));
  const last = new EmbeddedEventQueue();
  await last.open(folder);
  assert.equal((await last.lost(0)).count, 1);
});

test('embedded: a file that cannot be written leaves nothing beside it', async (t) => {
  const folder = temporaryFolder(t);
  // As a full disk, but at the last step.
  await mkdir(join(folder, 'webhooks.json'));
  await assert.rejects(new EmbeddedEventQueue().save(folder), { code: 'EISDIR' });
  assert.deepEqual(await readdir(folder), ['webhooks.json']);
});
