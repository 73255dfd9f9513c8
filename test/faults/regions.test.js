// regions.test.js: a worker hears through a replica of its region, which stops, lags, takes a new copy
// of the data, is promoted, or loses its primary.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseHistoryRules } from '../../src/config/room-patterns.js';
import { redisSettings, startRedis } from '../harness/redis.js';
import { startRegion } from '../helpers/redis-region.js';
import { startSentinels, until } from '../helpers/redis-sentinel.js';
import { delivers, eventually, outcome, Stream, start } from '../helpers/redis-worker.js';
import { startTcpProxy } from '../helpers/tcp-proxy.js';

const limit = { timeout: 120_000 };
/** Longer than any replica may be late. */
const LATE_MS = 6000;
const CUT_MS = 5000;
const { rules: history } = parseHistoryRules(['kept=1000/300s']);

/** @typedef {import('../helpers/redis-worker.js').Worker} Worker */
/** @typedef {import('node:test').TestContext} TestContext */

/**
 * A worker beside the primary, which publishes to `room` all the time, and one beside the replica.
 * @param {TestContext} t
 * @param {{settings: import('../../src/config/redis.js').RedisSettings}} primary
 * @param {import('../../src/config/redis.js').RedisSettings} settings of the far worker
 */
async function startWorkers(t, primary, settings) {
  const [near, far] = [
    await start(t, primary, { history }),
    await start(t, { settings }, { history }),
  ];
  await far.broker.subscribe('room');
  assert.deepEqual([far.state, far.node.hearing.isReplica], ['up', true]);
  const stream = new Stream(near, 'room', 10);
  t.after(() => stream.end());
  await eventually(() => numbersOf(far).length > 10);
  return { near, far, stream };
}

/** What a worker has heard of the stream. @param {Worker} worker */
function numbersOf({ texts }) {
  return texts.filter((text) => text.startsWith('room #')).map((text) => Number(text.slice(6)));
}

/** Nothing was repeated or reordered. @param {Worker} worker @returns {number} how many were lost */
function lostOf(worker) {
  const numbers = numbersOf(worker);
  let lost = 0;
  for (let i = 1; i < numbers.length; i++) {
    assert.ok(numbers[i] > numbers[i - 1], `${numbers[i]} after ${numbers[i - 1]}`);
    lost += numbers[i] - numbers[i - 1] - 1;
  }
  return lost;
}

/** @param {Worker} worker @param {boolean} isReplica what it hears in the end */
function hears(worker, isReplica) {
  return eventually(
    () => worker.node.hearing.isReplica === isReplica && worker.state === 'up',
    30_000,
  );
}

/** Waits for the return to the replica, which must cost nothing. @param {Worker} far */
async function returns(far) {
  const lost = lostOf(far);
  const outages = far.states.length;
  const tookMs = await hears(far, true);
  const heard = numbersOf(far).length;
  await eventually(() => numbersOf(far).length > heard + 20);
  assert.equal(lostOf(far), lost, 'the return to the replica lost messages');
  assert.equal(far.states.length, outages, 'the return to the replica was an outage');
  return tookMs;
}

// Most of their time is waiting.
describe('hearing through a replica', { concurrency: 4 }, () => {
  test(
    'a replica that stops: the worker publishes all the time, hears from the primary within 5 s, and returns',
    limit,
    async (t) => {
      const { primary, replica, settings } = await startRegion(t);
      const { near, far } = await startWorkers(t, primary, settings());
      await near.broker.subscribe('answers');
      const answers = new Stream(far, 'answers', 10);
      t.after(() => answers.end());
      await replica.kill();
      const leftMs = await hears(far, false);
      assert.ok(leftMs < 5000, `${leftMs} ms`);
      await delivers(near, far, 1000);
      await replica.restart();
      const returnedMs = await returns(far);
      t.diagnostic(
        `left after ${Math.round(leftMs)} ms, back ${Math.round(returnedMs)} ms after the start`,
      );
      assert.ok(answers.sent('OK').length > 100);
      assert.equal(answers.results.length, answers.sent('OK').length, 'publishes failed');
      assert.deepEqual(far.counters.hearing, { primary: 0, replica: 1 });
      assert.ok(far.lines.length < 15, JSON.stringify(far.lines));
    },
  );

  test(
    'a replica that lags: the worker hears from the primary, and nothing late is repeated',
    limit,
    async (t) => {
      const { primary, wire, settings } = await startRegion(t);
      const { near, far } = await startWorkers(t, primary, settings());
      wire.change({ latencyMs: LATE_MS });
      const leftMs = await hears(far, false);
      assert.ok(leftMs < 8000, `${leftMs} ms`);
      await delivers(near, far, 1000);
      // What is late arrives at the replica now, and is ignored.
      await new Promise((resolve) => setTimeout(resolve, LATE_MS));
      lostOf(far);
      assert.equal(far.node.hearing.isReplica, false);
      wire.change({});
      t.diagnostic(
        `left after ${Math.round(leftMs)} ms, back ${Math.round(await returns(far))} ms later`,
      );
    },
  );

  test('a short cut between primary and replica loses nothing', limit, async (t) => {
    const { primary, wire, settings, inStep } = await startRegion(t);
    const { far } = await startWorkers(t, primary, settings());
    wire.cut();
    await inStep();
    await eventually(() => far.state === 'up');
    const heard = numbersOf(far).length;
    await eventually(() => numbersOf(far).length > heard + 20);
    assert.equal(lostOf(far), 0);
    assert.equal(far.node.hearing.isReplica, true);
  });

  test('a replica that takes a new copy of the data is noticed', limit, async (t) => {
    const { primary, wire, settings, inStep } = await startRegion(t, {
      args: ['--repl-backlog-size', '16384'],
    });
    const { near, far } = await startWorkers(t, primary, settings());
    const outages = far.states.length;
    wire.change({ isSilent: true });
    // More than the backlog keeps.
    for (let i = 0; i < 10; i++) await near.broker.publish('other', Buffer.alloc(10_000));
    wire.cut();
    wire.change({});
    await inStep();
    await eventually(() => far.states.length > outages && far.state === 'up');
    // The next message shows the gap.
    const heard = numbersOf(far).length;
    await eventually(() => numbersOf(far).length > heard + 20);
    assert.ok(lostOf(far) > 0, 'the fault has no effect');
    assert.ok(
      far.lines.some(({ reason }) => `${reason}`.includes('has replaced its data')),
      JSON.stringify(far.lines),
    );
    await hears(far, true);
  });

  test('a replica that restarts from an older copy repeats nothing', limit, async (t) => {
    const { primary, replica, wire, settings, inStep } = await startRegion(t);
    const { far } = await startWorkers(t, primary, settings());
    await replica.cli('SAVE');
    const saved = numbersOf(far).length;
    await eventually(() => numbersOf(far).length > saved + 50);
    wire.change({ isSilent: true });
    await replica.kill();
    await replica.restart();
    await eventually(() => far.node.subscriptions.isLive);
    // The replica gets all that followed its copy from the backlog of the primary.
    wire.cut();
    wire.change({});
    await inStep();
    const heard = numbersOf(far).length;
    await eventually(() => far.state === 'up' && numbersOf(far).length > heard + 50);
    assert.match(await primary.cli('INFO', 'stats'), /sync_partial_ok:[1-9]/);
    lostOf(far);
  });

  test(
    'a replica that is promoted by mistake is left, and heard again when it follows',
    limit,
    async (t) => {
      const { primary, replica, wire, settings, inStep } = await startRegion(t);
      const { far } = await startWorkers(t, primary, settings());
      await replica.cli('REPLICAOF', 'NO', 'ONE');
      const leftMs = await hears(far, false);
      assert.ok(leftMs < 8000, `${leftMs} ms`);
      await replica.cli('REPLICAOF', '127.0.0.1', `${wire.port}`);
      await inStep();
      await returns(far);
    },
  );

  test(
    'a cut of the whole line: publishes are refused, nothing is repeated, rooms with history are compared',
    limit,
    async (t) => {
      const { primary, wire, settings } = await startRegion(t);
      const line = await startTcpProxy(t, primary.port);
      const { near, far } = await startWorkers(t, primary, settings({ REDIS_URL: line.url }));
      const cutMs = Number(process.env.TEST_CUT_MS ?? CUT_MS);
      for (const one of [wire, line]) one.change({ isSilent: true });
      await eventually(() => far.state === 'degraded');
      assert.equal(await outcome(far.broker.publish('room', Buffer.from('x'))), 'UNAVAILABLE');
      await new Promise((resolve) => setTimeout(resolve, cutMs));
      const { epoch } = /** @type {import('../../src/backend/broker.js').Position} */ (
        await near.broker.publish('kept', Buffer.from('kept'))
      );
      for (const one of [wire, line]) {
        one.cut();
        one.change({});
      }
      const upMs = await eventually(() => far.state === 'up', 30_000);
      await delivers(near, far, 2000);
      const page = await far.broker.history('kept', { after: 0, limit: 10 });
      assert.deepEqual([page.epoch, page.offset], [epoch, 1]);
      await hears(far, true);
      t.diagnostic(`cut for ${cutMs} ms, up after ${Math.round(upMs)} ms, ${lostOf(far)} lost`);
    },
  );

  test(
    'a large publication reaches a room whose members are all in the other region',
    limit,
    async (t) => {
      const { primary, settings } = await startRegion(t);
      const { near, far } = await startWorkers(t, primary, settings());
      await far.broker.subscribe('large');
      const large = Buffer.alloc(100_000, 'x');
      await near.broker.publish('large', large);
      await eventually(() => far.texts.some((text) => /^x{40}$/.test(text)));
      await far.broker.close();
      const key = `faults:far`;
      assert.ok(Number(await primary.cli('PTTL', key)) > 0);
      // Without such workers nothing is stored for an empty room.
      await primary.cli('DEL', key);
      await near.broker.publish('empty', large);
      assert.equal(await primary.cli('KEYS', 'faults:blob:{empty}*'), '');
    },
  );

  test('a worker uses the next replica of its list if one is lost', limit, async (t) => {
    const { primary, replica, wire, settings } = await startRegion(t);
    const second = await startRedis(t, { args: ['--replicaof', '127.0.0.1', `${wire.port}`] });
    await until(async () => (await second.cli('INFO', 'replication')).includes('status:up'));
    const list = `${replica.url},${second.url}`;
    const { far } = await startWorkers(t, primary, settings({ REDIS_SUBSCRIBE_URL: list }));
    await replica.kill();
    const heard = numbersOf(far).length;
    await eventually(() => far.state === 'up' && numbersOf(far).length > heard + 20);
    assert.equal(far.node.hearing.isReplica, true);
    assert.match(await second.cli('CLIENT', 'LIST'), /name=faults:subscriber/);
    lostOf(far);
  });

  test(
    'Sentinel replaces the primary: the worker hears the new one, and then through its replica',
    limit,
    async (t) => {
      const { primary, replica, settings } = await startSentinels(t, { downAfterMs: 1000 });
      const local = await startRedis(t, { args: ['--replicaof', '127.0.0.1', `${primary.port}`] });
      await until(async () => (await local.cli('INFO', 'replication')).includes('status:up'));
      const subscribe = redisSettings({
        REDIS_URL: primary.url,
        REDIS_SUBSCRIBE_URL: local.url,
      }).subscribe;
      const { near, far } = await startWorkers(t, { settings }, { ...settings, subscribe });
      const first = /** @type {import('../../src/backend/broker.js').Position} */ (
        await near.broker.publish('kept', Buffer.from('kept'))
      );
      // Sentinels look for replicas every ten seconds.
      await until(async () => /\nslave1:/.test(`\n${await primary.cli('INFO', 'replication')}`));
      await primary.kill();
      await eventually(async () => (await replica.cli('ROLE')).startsWith('master'), 30_000);
      const upMs = await eventually(() => far.state === 'up' && near.state === 'up', 30_000);
      await delivers(near, far, 5000);
      const page = await far.broker.history('kept', { after: 0, limit: 10 });
      assert.notEqual(page.epoch, first.epoch);
      lostOf(far);
      // The replica follows the new primary when a Sentinel says so.
      await local.cli('REPLICAOF', '127.0.0.1', `${replica.port}`);
      await hears(far, true);
      await delivers(near, far, 2000);
      lostOf(far);
      t.diagnostic(`up ${Math.round(upMs)} ms after the failover`);
    },
  );
});
