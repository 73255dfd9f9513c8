// nemesis.test.js: a fault without effect is an error, because a run without its faults would find
// nothing.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEMESES } from '../checker/nemesis.js';
import { Random } from '../checker/random.js';

/** A Redis that says OK and does nothing. */
function indifferentRedis() {
  return {
    folder: '',
    port: 1,
    cli: async (/** @type {string[]} */ ...command) => (command[0] === 'EXISTS' ? '1' : 'OK'),
  };
}

/** @param {string} name */
async function inflictAndHeal(name) {
  const trial = {
    redis: indifferentRedis(),
    random: new Random(1),
    lifetime: { after() {} },
    proxy: null,
  };
  const heal = await NEMESES[name].inflict(
    /** @type {import('../checker/trial.js').Trial} */ (/** @type {unknown} */ (trial)),
  );
  await heal();
}

for (const name of ['redisWritesHeld', 'redisFlushed', 'redisChannelsDenied', 'redisKeysDenied']) {
  test(`${NEMESES[name].name}: it throws if it has no effect on Redis`, async () => {
    await assert.rejects(inflictAndHeal(name), /the fault has no effect/);
  });
}

test(`${NEMESES.laggingReplicaPromoted.name}: it throws if the replica has the latest write`, async () => {
  const follower = { cli: async () => 'master_link_status:up 1' };
  const primary = { cli: async () => 'OK', kill: async () => {} };
  const cluster = {
    shards: async () => [{ primary, replicas: [follower], ranges: [[0, 16_383]] }],
    cutOff: async () => {},
    promote: async () => {},
  };
  const trial = { random: new Random(1), nodes: [], store: { cluster } };
  const inflicted = NEMESES.laggingReplicaPromoted.inflict(
    /** @type {import('../checker/trial.js').Trial} */ (/** @type {unknown} */ (trial)),
  );
  await assert.rejects(inflicted, /the fault has no effect/);
});

test('firewall rules are refused outside a network namespace of their own', async () => {
  for (const name of ['packetsDropped', 'packetsToDropped', 'packetsFromDropped']) {
    const trial = { proxy: { hosts: ['127.0.0.1'], port: 1 }, random: new Random(1) };
    const inflicted = NEMESES[name].inflict(
      /** @type {import('../checker/trial.js').Trial} */ (/** @type {unknown} */ (trial)),
    );
    await assert.rejects(inflicted, /a network of their own/);
  }
});
