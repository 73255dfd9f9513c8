// cluster-loss.test.js: a primary of a Redis Cluster loses its last writes, and the others do not.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { PARTITIONS, partitionOf } from '../../src/webhooks/queue.js';
import { Fleet, settingsOf, TIMES } from '../contract/transition-fleet.js';
import { startCluster } from '../harness/redis-cluster.js';
import { until } from '../helpers/redis-sentinel.js';

/** @typedef {import('../contract/transition-fleet.js').Worker} Worker */
/** @typedef {import('../harness/redis.js').RedisServer} RedisServer */

const TIMEOUT_MS = 60_000;
/** After this time a worker whose machine is gone, too, is dead. */
const TTL_MS = 3000;

/** @type {import('../harness/redis-cluster.js').Cluster} */
let cluster;
let prefixes = 0;
/** @type {(() => unknown)[]} */
const ends = [];
before(async () => {
  cluster = await startCluster({ after: (end) => ends.push(end) });
});
test.after(() => Promise.all(ends.map((end) => end())));

/** @param {import('node:test').TestContext} t @param {Parameters<typeof settingsOf>[0]} [wanted] */
function fleetOf(t, wanted = {}) {
  return new Fleet(t, cluster.settings, `contract-loss-${++prefixes}:`, settingsOf(wanted));
}

/**
 * The primary of the sessions, and another one with a room in it, whose partition is on a third.
 * @param {string} name
 */
function placesOf(name) {
  const sessions = cluster.primaryOf('*');
  const rooms = /** @type {RedisServer} */ (cluster.primaries.find((one) => one !== sessions));
  for (let i = 0; ; i++) {
    const room = cluster.roomIn(rooms, `${name}-${i}`);
    const partition = cluster.primaryOf(`lane-${partitionOf(room)}`);
    if (partition !== rooms && partition !== sessions) return { sessions, rooms, room };
  }
}

/** @param {Worker} worker @param {string} room @returns {Promise<number>} -1: not now */
function countOf(worker, room) {
  return worker.presence.read(room, true).then(
    ({ count }) => count,
    () => -1,
  );
}

/** @param {Worker[]} workers @param {() => Promise<void>} outage of a primary */
async function survive(workers, outage) {
  await outage();
  await until(async () => workers.every(({ broker }) => broker.state === 'up'));
}

test('a user whose leave the primary of the room has lost leaves again, and the room has reporter', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const fleet = fleetOf(t);
  const worker = await fleet.server();
  const [a, b] = [await worker(), await worker()];
  const { rooms, room } = placesOf('lost-leave');
  a.reporter.count(room, 1);
  a.join(room, 'ann');
  await fleet.reached(2);
  const saved = await cluster.save(rooms);
  a.leave(room, 'ann');
  a.reporter.count(room, 0);
  assert.deepEqual((await fleet.recorded(4)).slice(2).sort(), [
    `member.left ${room} ann`,
    `room.vacated ${room}`,
  ]);
  await survive([a, b], () => cluster.rollBack(rooms, saved));
  await until(async () => (await countOf(b, room)) === 0);
  assert.deepEqual((await fleet.recorded(6)).slice(4).sort(), [
    `member.left ${room} ann`,
    `room.vacated ${room}`,
  ]);
  b.reporter.count(room, 1);
  await fleet.reached(7);
  b.reporter.count(room, 0);
  assert.deepEqual((await fleet.recorded(8)).slice(6), [
    `room.occupied ${room}`,
    `room.vacated ${room}`,
  ]);
  assert.deepEqual(await b.occupancy.list({}), []);
});

test('users of a dead worker leave although the primary of the sessions has lost their list', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const fleet = fleetOf(t);
  fleet.times = { ...TIMES, ttlMs: TTL_MS };
  const [one, two] = [await fleet.server(), await fleet.server()];
  const [a, b] = [await one(), await two()];
  const { sessions, room } = placesOf('lost-list');
  await until(async () => (await countOf(a, room)) === 0 && (await countOf(b, room)) === 0);
  const saved = await cluster.save(sessions);
  a.reporter.count(room, 1);
  a.join(room, 'ann');
  await fleet.reached(2);
  // The machine ends as a whole, at the moment of the loss.
  a.machine.nameSession('');
  a.kill();
  await survive([b], () => cluster.rollBack(sessions, saved));
  await until(async () => (await countOf(b, room)) === 0);
  assert.deepEqual((await fleet.recorded(4)).slice(2).sort(), [
    `member.left ${room} ann`,
    `room.vacated ${room}`,
  ]);
});

test('a loss on a primary without the partition of its rooms counts in their partition; the first start does not', {
  timeout: TIMEOUT_MS,
}, async (t) => {
  const fleet = fleetOf(t);
  const worker = await (await fleet.server())();
  const { rooms, room } = placesOf('lost-transition');
  worker.reporter.count(room, 1);
  await fleet.reached(1);
  /** By partition; none while a primary is down. @returns {Promise<number[]>} */
  const lost = () =>
    Promise.all(
      Array.from(
        { length: PARTITIONS },
        async (_, partition) => (await fleet.queue.lost(partition)).count,
      ),
    ).catch(() => []);
  const visited = async () => {
    const all = await cluster
      .primaryOf('*')
      .cli('HVALS', `${fleet.config.redisPrefix}webhooks:presence:{*}:visits`);
    return all.split('\n').filter((state) => state === 'done').length;
  };
  await until(async () => (await visited()) === 3);
  assert.deepEqual(await lost(), Array(PARTITIONS).fill(0));
  // Times of visits.lua: a mark is younger than the first start.
  await new Promise((resolve) => setTimeout(resolve, 2100));
  await rooms.kill();
  await until(async () => worker.broker.state === 'degraded');
  worker.reporter.count(room, 0);
  await rooms.restart();
  await until(async () => (await lost()).filter((count) => count > 0).length === PARTITIONS);
});
