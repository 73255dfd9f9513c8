// versions.test.js: a release, the working tree and a synthetic next version on one Redis, for some
// seconds: servers start four times. faults/versions.test.js takes minutes (`node test/run.js versions`).

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { parseHistoryRules, RoomRules } from '../../src/config/room-patterns.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { Fleet, settingsOf } from '../contract/transition-fleet.js';
import { smoke } from '../faults/smoke.js';
import { startRedis } from '../harness/redis.js';
import { eventually, start, Worker } from '../helpers/redis-worker.js';
import { replaceServer, unknownVersions } from '../helpers/rolling.js';
import {
  checkOut,
  copyTree,
  edit,
  findBase,
  mainOf,
  makeNext,
  relayFault,
} from '../helpers/versions.js';

const { ref, obstacle } = findBase();

test(`servers of ${ref}, the working tree and the next version share rooms`, {
  timeout: 60_000,
  skip: obstacle || false,
}, async (t) => {
  const [base, tree] = [checkOut(t, ref), copyTree(t)];
  const next = makeNext(t, { writes: true });
  const load = { clients: 20, rooms: 4, publishers: 4, rate: 100 };
  const env = { FANFARE_RECONNECT_WINDOW_MS: '300' };
  const setting = { servers: 2, workers: 1, main: mainOf(base), load, env, calmMs: 200 };
  await smoke(t, setting, async (trial) => {
    const [one, other] = trial.servers;
    await replaceServer(trial, other, tree);
    assert.equal(await unknownVersions(trial), 0);
    await replaceServer(trial, one, next);
  });
});

test(`workers of ${ref} and of the working tree count each other, and drop no report`, {
  timeout: 60_000,
  skip: obstacle || false,
}, async (t) => {
  const path = join(checkOut(t, ref), 'src/backend/redis/broker.js');
  const { RedisBroker } = await import(pathToFileURL(path).href);
  const redis = await startRedis(t);
  const startBase = async () => {
    const worker = new Worker(redis, {}, RedisBroker);
    t.after(() => worker.broker.close());
    await worker.broker.start(worker);
    return worker;
  };
  const [treeA, baseA] = [await start(t, redis), await startBase()];
  const [treeB, baseB] = [await start(t, redis), await startBase()];
  const workers = [treeA, baseA, treeB, baseB];
  for (const [i, { broker }] of workers.entries()) broker.reportConnections(10 ** i);
  for (const { broker } of workers) {
    await eventually(async () => (await broker.countConnections()) === 1111);
    assert.equal(await broker.countWorkers(), 4);
  }
  await baseA.broker.close();
  await treeA.broker.close();
  for (const { broker } of [treeB, baseB]) {
    await eventually(async () => (await broker.countConnections()) === 1100);
    assert.equal(await broker.countWorkers(), 2);
  }
  assert.deepEqual(
    workers.map(({ counters }) => counters.malformed),
    [0, 0, 0, 0],
  );
});

/** Rules as workers of the base call them. @param {string} text as in FANFARE_HISTORY */
function rulesOfBase(text) {
  const rules = new RoomRules(parseHistoryRules([text]).rules);
  const has = (/** @type {string} */ pattern) => rules.own.some((one) => one.pattern === pattern);
  return Object.assign(rules, { has, add: rules.addRules.bind(rules) });
}

test(`workers with webhooks number and record messages by a rule that only a worker of ${ref} has`, {
  timeout: 60_000,
  skip: obstacle || false,
}, async (t) => {
  const path = join(checkOut(t, ref), 'src/backend/redis/broker.js');
  const { RedisBroker } = await import(pathToFileURL(path).href);
  const redis = await startRedis(t);
  const base = new Worker(redis, {}, RedisBroker, rulesOfBase('h.*=10/60s'));
  t.after(() => base.broker.close());
  await base.broker.start(base);
  await base.broker.subscribe('h.1');
  const webhooks = settingsOf({ types: ['message.published'] });
  const fleet = new Fleet(t, redis.settings, 'faults:', webhooks);
  const { config } = fleet;
  fleet.config = { ...config, history: [] };
  const startServer = async () => (await fleet.server())();
  const payload = Buffer.from('1');
  const publication = encodePublication(KIND.MESSAGE, Date.now(), 0, 'ann', payload, 0, 1);
  const publish = async (
    /** @type {Awaited<ReturnType<typeof startServer>>} */ { broker, reporter },
    /** @type {string} */ idempotencyKey,
  ) => {
    const position = await broker.publish('h.1', publication, { idempotencyKey });
    const offset = position?.offset;
    reporter.publish('h.1', { sender: 'ann', payload: '1', offset, idempotencyKey });
    return offset;
  };
  const a = await startServer();
  assert.deepEqual([await publish(a, 'one'), await publish(a, 'one')], [1, 1]);
  const two = await base.broker.publish('h.1', publication, { idempotencyKey: 'two' });
  assert.deepEqual([two?.offset, await publish(a, 'two')], [2, 2]);
  const b = await startServer();
  await base.broker.close();
  assert.deepEqual([await publish(b, 'two'), await publish(b, 'three')], [2, 3]);
  // The servers after the upgrade have the rule themselves.
  fleet.config = config;
  const c = await startServer();
  assert.deepEqual([await publish(c, 'one'), await publish(c, 'four')], [1, 4]);
  await fleet.reached(4);
  assert.deepEqual(
    base.positions.map(({ offset }) => offset),
    [1, 2],
  );
  const events = await fleet.events();
  assert.deepEqual(events.map(({ offset }) => offset).sort(), [1, 2, 3, 4]);
});

test(`if messages between primary and workers differ from those of ${ref}, RELAY_VERSION does too`, {
  skip: obstacle || false,
}, (t) => {
  assert.equal(relayFault(checkOut(t, ref), copyTree(t)), '');
});

test('a message of the relay that changes without RELAY_VERSION, and a lower one, are found', (t) => {
  const [tree, changed, lower] = [copyTree(t), copyTree(t), copyTree(t)];
  const wire = 'backend/embedded/relay-wire.js';
  edit(changed, wire, [['HELLO: 1', 'HELLO: 99']]);
  assert.match(relayFault(tree, changed), /the messages of the relay differ/);
  edit(lower, wire, [['RELAY_VERSION = ', 'RELAY_VERSION = 0.']]);
  assert.match(relayFault(tree, lower), /lower/);
  assert.equal(relayFault(tree, tree), '');
});
