// redis.test.js: Redis is killed, frozen, silent, full, or replaced by one without its data; and
// subscriptions are cut.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEMESES } from '../checker/nemesis.js';
import { USER_ARGS } from '../checker/trial.js';
import { startRedis } from '../harness/redis.js';
import { pause } from '../harness/run.js';
import { until } from '../harness/server.js';
import { historyMemberships, newLine, OPTIONS, smoke, tookMs } from './smoke.js';

/** A silent Redis must be noticed within that: two intervals of the probe, and its time-out. */
const NOTICED_MS = 5000;

/** @typedef {import('../checker/trial.js').Trial} Trial */
/** @typedef {import('../checker/checker.js').Report} Report */

/** No client was closed. @param {Report} report */
function assertNobodyLeft({ figures }) {
  assert.deepEqual([...figures.closes], []);
}

/**
 * Every member of every room with history got a `resync`.
 * @param {Trial} trial @param {Report} report
 */
function assertAllTold({ workload }, { figures }) {
  const resyncs = figures.counts.resync ?? 0;
  assert.ok(resyncs >= historyMemberships(workload.clients), `${resyncs}`);
}

/** All publications could be fetched, so no client got a `resync`. @param {Report} report */
function assertNobodyTold({ figures }) {
  assert.equal(figures.counts.resync ?? 0, 0);
  assert.equal(figures.notRecovered, 0);
}

/** @param {Report} report @param {string} reason */
function refusals({ figures }, reason) {
  return figures.reasons.get(reason) ?? 0;
}

test(
  '5: if Redis is killed and returns empty after 5 s, clients stay, get `resync`, and start over',
  OPTIONS,
  async (t) => {
    const { trial, report } = await smoke(t, {}, (trial) =>
      trial.suffer(NEMESES.redisEmptied, 5000),
    );
    assertNobodyLeft(report);
    assertAllTold(trial, report);
    for (const { degraded } of trial.workload.clients) assert.deepEqual(degraded, [true, false]);
    // All publishes during the outage were refused at once, except those in flight.
    assert.ok(
      refusals(report, 'fail UNAVAILABLE') > 500,
      `${refusals(report, 'fail UNAVAILABLE')}`,
    );
    assert.ok(
      refusals(report, 'info OUTCOME_UNKNOWN') < 100,
      `${refusals(report, 'info OUTCOME_UNKNOWN')}`,
    );
  },
);

test(
  '6: if Redis is frozen for 6 s, outcomes are unknown, it is noticed within 5 s, and nothing is lost',
  OPTIONS,
  async (t) => {
    const { report } = await smoke(t, {}, async (trial) => {
      const away = newLine(trial.server, /^Redis is unavailable/);
      const noticed = tookMs(away, NOTICED_MS + 2000, 'that Redis is frozen');
      await trial.suffer(NEMESES.redisFrozen, 6000);
      const noticedMs = await noticed;
      t.diagnostic(`noticed within ${Math.round(noticedMs)} ms`);
      assert.ok(noticedMs < NOTICED_MS, `${noticedMs}`);
    });
    assertNobodyLeft(report);
    assertNobodyTold(report);
    assert.ok(refusals(report, 'info OUTCOME_UNKNOWN') > 0);
  },
);

test(
  '6: after CLIENT PAUSE 2000 ALL outcomes may be unknown, and nothing is lost',
  OPTIONS,
  async (t) => {
    const { report } = await smoke(t, {}, (trial) => trial.suffer(NEMESES.redisPaused, 2000));
    assertNobodyLeft(report);
    assertNobodyTold(report);
  },
);

test(
  '7: if Redis is silent for 8 s, it is noticed within 5 s, and nothing is lost',
  OPTIONS,
  async (t) => {
    const { report } = await smoke(t, { viaProxy: true }, async (trial) => {
      const away = newLine(trial.server, /^Redis is unavailable/);
      const noticed = tookMs(away, NOTICED_MS + 2000, 'that Redis is silent');
      await trial.suffer(NEMESES.redisSilent, 8000);
      const noticedMs = await noticed;
      t.diagnostic(`noticed within ${Math.round(noticedMs)} ms`);
      assert.ok(noticedMs < NOTICED_MS, `${noticedMs}`);
    });
    assertNobodyLeft(report);
    assertNobodyTold(report);
  },
);

test(
  '10: if a subscriber exceeds its output buffer, the publications that Redis dropped are fetched',
  OPTIONS,
  async (t) => {
    const setting = { historySize: 2000, env: { FANFARE_WORKER_TIMEOUT_MS: '20000' } };
    const { trial } = await smoke(t, setting, async (trial) => {
      const subscribers = async () => {
        const list = await trial.redis.cli('CLIENT', 'LIST', 'TYPE', 'pubsub');
        return new Set([...list.matchAll(/^id=(\d+)/gm)].map(([, id]) => id));
      };
      const before = await subscribers();
      // Counted by Redis itself from 7.2 on only.
      const isDropped = async () => {
        const now = await subscribers();
        return [...before].some((id) => !now.has(id));
      };
      await trial.suffer(NEMESES.subscriberOverflows, 0, async () => {
        const droppedMs = await tookMs(isDropped, 15_000, 'a subscriber dropped');
        t.diagnostic(`dropped within ${Math.round(droppedMs)} ms`);
      });
      await trial.workload.joined();
    });
    assert.ok(((await trial.server.metrics()).get('fanfare_broker_reconnects_total') ?? 0) >= 1);
    // The flooded room lost more messages than one read brings, so its members get a `resync`. All
    // others were fetched.
    const told = new Set(trial.workload.clients.flatMap(({ resyncs }) => resyncs));
    told.delete(trial.workload.rooms[0]);
    assert.deepEqual([...told], []);
  },
);

test(
  '11: after CLIENT KILL TYPE pubsub, the publications in between are fetched',
  OPTIONS,
  async (t) => {
    let reconnects = 0;
    const { report } = await smoke(t, {}, async (trial) => {
      for (let i = 0; i < 5; i++) {
        await trial.suffer(NEMESES.subscribersKilled, 0);
        await pause(1000);
      }
      reconnects = (await trial.server.metrics()).get('fanfare_broker_reconnects_total') ?? 0;
    });
    assert.ok(reconnects >= 5, `${reconnects}`);
    assertNobodyLeft(report);
    assertNobodyTold(report);
  },
);

test(
  '14: if a stale replica is promoted, a new epoch starts, and every client gets a resync',
  OPTIONS,
  async (t) => {
    const { trial, report } = await smoke(t, { viaProxy: true }, async (trial) => {
      const { redis, proxy } = trial;
      const replica = await startRedis(t, {
        args: [...USER_ARGS, '--replicaof', '127.0.0.1', `${redis.port}`],
      });
      await until(async () =>
        (await replica.cli('INFO', 'replication')).includes('master_link_status:up'),
      );
      await pause(500);
      await trial.suffer(
        {
          ...NEMESES.redisEmptied,
          async inflict() {
            // From now on it falls behind.
            await replica.cli('REPLICAOF', '127.0.0.1', '1');
            await pause(1000);
            await redis.kill();
            await replica.cli('REPLICAOF', 'NO', 'ONE');
            if (proxy) proxy.target = replica.port;
            trial.nodes = [replica];
            return () => {};
          },
        },
        0,
      );
    });
    assertNobodyLeft(report);
    assertAllTold(trial, report);
  },
);

test(
  '15: if Redis restarts from a snapshot, a new epoch starts, and every client gets a resync',
  OPTIONS,
  async (t) => {
    const { trial, report } = await smoke(t, {}, (trial) =>
      trial.suffer(NEMESES.redisFromSnapshot, 2000),
    );
    assertNobodyLeft(report);
    assertAllTold(trial, report);
  },
);

test(
  '15: if Redis restarts from its log of the last second, a new epoch starts, and every client gets a resync',
  OPTIONS,
  async (t) => {
    const redisArgs = ['--appendonly', 'yes', '--appendfsync', 'everysec'];
    const { trial, report } = await smoke(t, { redisArgs }, (trial) =>
      trial.suffer(NEMESES.redisEmptied, 1000),
    );
    assert.match(await trial.redis.cli('INFO', 'persistence'), /aof_enabled:1/);
    assertNobodyLeft(report);
    assertAllTold(trial, report);
  },
);

test(
  '17: if Redis is full, read-only, without replicas, unable to save, busy or loading, publishes are refused and not delivered',
  OPTIONS,
  async (t) => {
    /** @type {Map<string, number>} */
    const refused = new Map();
    const {
      redisFull,
      redisWithoutReplicas,
      redisCannotSave,
      redisReadOnly,
      redisBusy,
      redisLoads,
    } = NEMESES;
    const { report } = await smoke(t, {}, async (trial) => {
      // A Redis that is busy, has no replicas or is loading must not block connections.
      for (const nemesis of [
        redisFull,
        redisWithoutReplicas,
        redisCannotSave,
        redisReadOnly,
        redisBusy,
        redisLoads,
      ]) {
        const before = trial.workload.refused;
        await trial.suffer(nemesis, 1500);
        refused.set(nemesis.name, trial.workload.refused - before);
        await pause(1000);
      }
    });
    t.diagnostic([...refused].map(([name, count]) => `${name}: ${count} refused`).join(', '));
    for (const [name, count] of refused) assert.ok(count > 0, name);
    assertNobodyLeft(report);
  },
);
