// topologies.test.js: failovers of Sentinel, and a cluster that moves and loses slots.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { slotOf } from '../../src/backend/redis/slots.js';
import { clusterStore, sentinelStore } from '../checker/stores.js';
import { pause } from '../harness/run.js';
import { until } from '../harness/server.js';
import { historyMemberships, newLine, OPTIONS, smoke } from './smoke.js';

const MAX_OUTAGE_MS = 15_000;
/**
 * In a few seconds with a node away: a line when it goes, one when it comes, and not one for each
 * attempt.
 */
const MAX_LINES = 20;

/** @typedef {import('../checker/trial.js').Trial} Trial */
/** @typedef {import('../checker/trial.js').Lifetime} Lifetime */

/**
 * Waits until the other node is the primary and every worker publishes to it.
 * @param {Trial} trial
 */
async function failedOver({ nodes: [, replica], server, workload }) {
  await until(async () => (await replica.role()) === 'master', MAX_OUTAGE_MS, 'a failover');
  await until(
    async () => (await server.metrics()).get('fanfare_broker_up') === 1,
    MAX_OUTAGE_MS,
    'Redis',
  );
  const { publishers } = workload;
  const accepted = () => publishers.every(({ lastOkMs }) => performance.now() - lastOkMs < 1000);
  await until(accepted, MAX_OUTAGE_MS, 'publishing');
}

test(
  '12: if Sentinel’s primary is killed, a new epoch starts, and every client gets a resync',
  OPTIONS,
  async (t) => {
    const { trial, report } = await smoke(t, { store: sentinelStore }, (trial) =>
      trial.suffer(
        {
          name: 'the primary killed',
          holdMs: [0, 0],
          async inflict() {
            await trial.redis.kill();
            return () => failedOver(trial);
          },
        },
        0,
      ),
    );
    const { figures } = report;
    assert.deepEqual([...figures.closes], []);
    assert.ok((figures.counts.resync ?? 0) >= historyMemberships(trial.workload.clients));
    assert.ok(figures.publishing.longestUs < MAX_OUTAGE_MS * 1000);
  },
);

test(
  '13: if Sentinel’s primary is frozen for 9 s and returns, no worker stays with it',
  OPTIONS,
  async (t) => {
    const { trial, report } = await smoke(t, { store: sentinelStore }, (trial) =>
      trial.suffer(
        {
          name: 'the primary frozen',
          holdMs: [0, 0],
          async inflict() {
            trial.redis.freeze();
            return async () => {
              await failedOver(trial);
              trial.redis.thaw();
              const isReplica = async () => (await trial.redis.role()) === 'slave';
              await until(isReplica, 30_000, 'the old primary as a replica');
            };
          },
        },
        9000,
      ),
    );
    const { figures } = report;
    assert.deepEqual([...figures.closes], []);
    assert.ok((figures.counts.resync ?? 0) >= historyMemberships(trial.workload.clients));
  },
);

/** @type {import('../harness/redis-cluster.js').Cluster} the one of the test under way */
let cluster;

/** @param {Lifetime} t */
async function startStore(t) {
  const store = await clusterStore(t);
  cluster = store.cluster;
  return store;
}

test('18: if slots move to another node of a cluster, no room stays silent', OPTIONS, async (t) => {
  const { report } = await smoke(t, { store: startStore }, async (trial) => {
    for (const room of trial.workload.rooms) {
      const from = cluster.primaryOf(room);
      const to =
        cluster.primaries[(cluster.primaries.indexOf(from) + 1) % cluster.primaries.length];
      await trial.suffer(
        {
          name: `the slot of ${room} moved`,
          holdMs: [0, 0],
          async inflict() {
            await cluster.moveSlot(slotOf(room), from, to);
            return () => {};
          },
        },
        0,
      );
      await pause(300);
    }
  });
  assert.deepEqual([...report.figures.closes], []);
});

test(
  '19: if a node of a cluster is killed for 5 s, publishes to its slots are refused, and the others continue',
  OPTIONS,
  async (t) => {
    let lines = 0;
    const { trial, report } = await smoke(t, { store: startStore }, async (trial) => {
      const { server, workload } = trial;
      const [victim] = cluster.primaries;
      const away = newLine(server, /^Redis is unavailable/);
      const before = {
        lines: server.lines.length,
        refused: workload.refused,
        accepted: workload.accepted,
      };
      await trial.suffer(
        {
          name: 'a node killed',
          holdMs: [0, 0],
          async inflict() {
            await victim.kill();
            return async () => {
              await victim.restart();
              // A primary that comes back refuses writes for two more seconds.
              const isServing = async () =>
                (await victim.cli('CLUSTER', 'INFO')).includes('cluster_state:ok');
              await until(isServing, MAX_OUTAGE_MS, 'the node in service');
            };
          },
        },
        5000,
        () => {
          assert.ok(away());
          lines = server.lines.length - before.lines;
          t.diagnostic(
            `meanwhile ${workload.refused - before.refused} refused, ${workload.accepted - before.accepted} accepted`,
          );
          assert.ok(workload.refused > before.refused);
          assert.ok(workload.accepted - before.accepted > 100);
        },
      );
    });
    assert.ok(lines <= MAX_LINES, `${lines} lines`);
    assert.deepEqual([...report.figures.closes], []);
    const { clients } = trial.workload;
    for (const { degraded } of clients)
      assert.ok(degraded.length === 0 || degraded.at(-1) === false);
  },
);
