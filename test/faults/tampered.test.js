// tampered.test.js: an operator, a script or a firewall changes Redis without the servers'
// knowledge, each for a moment.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { NEMESES } from '../checker/nemesis.js';
import { pause } from '../harness/run.js';
import { testPrivately } from '../helpers/private-network.js';
import { OPTIONS, smoke } from './smoke.js';

/** Clients leave with each fault and come back after it. */
const LEAVING = 5;
const LATE_MS = 500;
const QUIET_MS = 1000;
const TITLE =
  'Redis tampered with: what is refused or given up on never comes late, and clients are told';
const FILE = fileURLToPath(import.meta.url);

testPrivately(TITLE, FILE, { ...OPTIONS, timeout: 4 * OPTIONS.timeout }, () => {
  test(
    'if rights to channels or keys are revoked for a time, publishes are refused and never delivered',
    OPTIONS,
    async (t) => {
      const { report } = await suffer(t, { redisChannelsDenied: 2000, redisKeysDenied: 2000 });
      assert.ok((report.figures.reasons.get('fail UNAVAILABLE') ?? 0) > 0);
    },
  );

  test(
    'if Redis is emptied, rolled back or replaced, every client gets a resync',
    OPTIONS,
    async (t) => {
      const faults = {
        redisFlushed: 0,
        redisRolledBack: 1000,
        redisRolledBackUnseen: 1000,
        redisReplaced: 3000,
      };
      const { report } = await suffer(t, faults);
      assert.ok((report.figures.counts.resync ?? 0) > 0);
      assert.ok(report.figures.notRecovered > 0);
    },
  );

  test(
    'if Redis holds back writes for 12 s, clients are notified that it is away',
    OPTIONS,
    async (t) => {
      const { report } = await suffer(t, { redisWritesHeld: 12_000 });
      assert.ok((report.findings.find(({ id }) => id === 'I15')?.checks ?? 0) > 0);
    },
  );

  test(
    'if packets are dropped in one direction or both, abandoned messages do not arrive late',
    OPTIONS,
    async (t) => {
      const { report } = await suffer(t, {
        packetsDropped: 4000,
        packetsToDropped: 6000,
        packetsFromDropped: 6000,
      });
      assert.ok((report.figures.reasons.get('info OUTCOME_UNKNOWN') ?? 0) > 0);
    },
  );
});

/**
 * @param {import('node:test').TestContext} t
 * @param {Record<string, number>} faults for how many ms, by name
 */
async function suffer(t, faults) {
  return smoke(t, { servers: 2, workers: 1, viaProxy: true, seed: 1 }, async (trial) => {
    const { random, workload } = trial;
    for (const [name, holdMs] of Object.entries(faults)) {
      for (const client of random.shuffled(workload.clients).slice(0, LEAVING))
        client.leave(holdMs + LATE_MS);
      await trial.suffer(NEMESES[name], holdMs);
      await pause(QUIET_MS);
    }
  });
}
