// redis-identity.test.js: when a changed replication ID proves that nothing was lost, and when not.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { ReplyError } from 'ioredis';
import { RedisIdentity } from '../../src/backend/redis/identity.js';

const NONE = '0'.repeat(40);
const FORMER = 'a'.repeat(40);
const OTHER = 'b'.repeat(40);

/** @typedef {{role: string, master_replid: string, master_replid2: string, master_repl_offset: number}} Replication */

async function build(isFenced = true) {
  /** @type {Replication} */
  const replication = {
    role: 'master',
    master_replid: FORMER,
    master_replid2: NONE,
    master_repl_offset: 1000,
  };
  const stream = {};
  const answers = { isLate: false, isRefused: false };
  /** @param {string} section */
  const info = async (section) => {
    if (answers.isLate) throw new Error('Command timed out');
    if (answers.isRefused) throw new ReplyError('NOPERM this user has no permissions');
    return Object.entries(section === 'server' ? { run_id: 'r' } : replication)
      .map(([name, value]) => `${name}:${value}\r\n`)
      .join('');
  };
  /** @type {string[]} */
  const events = [];
  const connection = {
    isWritable: true,
    redis: { stream, info },
    destroy: () => void events.push('destroyed'),
  };
  const identity = new RedisIdentity({
    commands: /** @type {any} */ (connection),
    intervalMs: () => 1500,
    isFenced,
    onUpdate() {},
    onMoved: (_server, former, replicationId) => void events.push(`${former} ${replicationId}`),
  });
  let nowMs = 0;
  identity.commandsOnReady(nowMs);
  await turn();
  /** @param {Partial<Replication>} change */
  const see = async (change) => {
    Object.assign(replication, change);
    nowMs += 2000;
    identity.tick(nowMs);
    await turn();
    return events;
  };
  return { identity, see, answers };
}

test('it is asked with a probe, so that both leave together from then on', async () => {
  const { identity } = await build();
  const tick = async (/** @type {number} */ nowMs, isProbing = false) => {
    identity.tick(nowMs, isProbing);
    await turn();
    return identity.askedMs;
  };
  assert.equal(await tick(50, true), 0, 'too soon');
  assert.equal(await tick(400), 0);
  assert.equal(await tick(400, true), 400);
  assert.equal(identity.dueMs, 1900);
  assert.equal(await tick(1900, true), 1900);
  assert.equal(await tick(3399), 1900);
  assert.equal(await tick(3400), 3400, 'without probes it keeps its interval');
});

test('a primary whose first replica attaches has lost nothing', async () => {
  for (const master_repl_offset of [1000, 1001]) {
    const { see } = await build();
    const change = { master_replid: OTHER, master_repl_offset };
    assert.deepEqual(await see(change), [`${FORMER} ${OTHER}`]);
    // The new one is the one to compare with from then on.
    assert.deepEqual(await see({}), [`${FORMER} ${OTHER}`]);
  }
});

for (const [what, change] of /** @type {[string, Partial<Replication>][]} */ ([
  ['is behind the offset of the last look', { master_repl_offset: 999 }],
  ['remembers the former ID of a promoted replica', { master_replid2: FORMER }],
]))
  test(`a server with another replication ID that ${what} may have lost data`, async () => {
    const { see } = await build();
    assert.deepEqual(await see({ master_replid: OTHER, ...change }), ['destroyed']);
  });

for (const isFenced of [true, false])
  test(`a replica is left, also if it was one from the start, ${isFenced ? 'with' : 'without'} fences`, async () => {
    const { see } = await build(isFenced);
    assert.deepEqual(await see({ role: 'slave' }), ['destroyed']);
  });

test('a change that nobody watched for five seconds may have been a promotion', async () => {
  const { identity, see } = await build();
  identity.seenAt -= 5001;
  assert.deepEqual(await see({ master_replid: OTHER }), ['destroyed']);
});

test('after a look without a change, the offset and the time of that look count', async () => {
  const { identity, see } = await build();
  identity.seenAt -= 5001;
  await see({ master_repl_offset: 2000 });
  const change = { master_replid: OTHER, master_repl_offset: 1500 };
  assert.deepEqual(await see(change), ['destroyed']);
});

test('a server that did not answer in time is not known to be a primary, and is asked again', async () => {
  const { identity, see, answers } = await build();
  // Also if the answer has arrived: after a stall of this process its timer comes first.
  answers.isLate = true;
  identity.commandsOnReady(2000);
  await turn();
  assert.equal(identity.isPrimary, false);
  assert.deepEqual(await see({}), []);
  assert.equal(identity.isPrimary, false);
  answers.isLate = false;
  await see({});
  assert.ok(identity.isPrimary);
});

test('a server whose user may not use INFO counts as a primary', async () => {
  const { identity, answers } = await build();
  answers.isRefused = true;
  identity.commandsOnReady(2000);
  await turn();
  assert.ok(identity.isPrimary);
});
