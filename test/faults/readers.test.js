// readers.test.js: clients that read more slowly than the server writes.

import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { HISTORY_PREFIX } from '../checker/client.js';
import { NEMESES } from '../checker/nemesis.js';
import { readRecord } from '../checker/record.js';
import { Latency } from '../harness/latency.js';
import { pause } from '../harness/run.js';
import { closedClients, OPTIONS, smoke, tookMs } from './smoke.js';

const SLOW = 5;
const LAGGING = 'fanfare_lagging_members';
const CAUGHT_UP = 'fanfare_lagging_members_ended_total{outcome="caught_up"}';
const RESYNC = 'fanfare_lagging_members_ended_total{outcome="resync"}';
const CLOSED = 'fanfare_slow_consumers_total{consequence="closed"}';
/**
 * The kernel buffers some megabytes before a member lags. Until then pings reach the buffer too, and
 * a client that does not read answers none: no ping may be due.
 */
const SETTING = Object.freeze({
  env: { FANFARE_PING_INTERVAL_MS: '300000' },
  load: { bytes: 12_000, roomsPerClient: 2 },
});
const MAX_P99_MS = 250;

for (const embedded of [false, true]) {
  const backend = embedded ? 'embedded' : 'Redis';

  test(
    `22: slow readers keep their connections, catch up in order, and do not delay other readers (${backend})`,
    OPTIONS,
    async (t) => {
      const path = join(tmpdir(), `fanfare-slow-${process.pid}.jsonl`);
      t.after(() => rmSync(path, { force: true }));
      /** @type {Set<number>} */
      let slow = new Set();
      const { trial, report } = await smoke(t, { path, embedded, ...SETTING }, async (trial) => {
        slow = await lag(t, trial, 0);
        const haveEnded = async () => {
          await pause(250);
          return (await trial.server.metrics()).get(LAGGING) === 0;
        };
        const ms = await tookMs(haveEnded, 30_000, 'all have caught up');
        t.diagnostic(`caught up within ${Math.round(ms)} ms`);
        const metrics = await trial.server.metrics();
        assert.ok(Number(metrics.get(CAUGHT_UP)) >= SLOW, `${metrics.get(CAUGHT_UP)}`);
        assert.deepEqual([metrics.get(RESYNC), metrics.get(CLOSED)], [0, 0]);
      });
      assert.deepEqual(closedClients(trial), []);
      assert.deepEqual(
        trial.workload.clients.flatMap(({ resyncs }) => resyncs),
        [],
      );
      assert.equal(report.figures.notRecovered, 0);
      const latency = latencyOfOthers(path, slow);
      t.diagnostic(`the others: ${latency}`);
      assert.ok((latency.percentile(99) ?? 0) < MAX_P99_MS, `${latency}`);
    },
  );
}

test(
  '22: slow readers whose messages the history no longer has get a resync',
  OPTIONS,
  async (t) => {
    const { trial } = await smoke(
      t,
      { embedded: true, historySize: 5, ...SETTING },
      async (trial) => {
        // At 20 messages a second and room, all that the history had is gone after this.
        await lag(t, trial, 2000);
        const haveResynced = async () => {
          await pause(250);
          const metrics = await trial.server.metrics();
          return metrics.get(LAGGING) === 0 && Number(metrics.get(RESYNC)) >= SLOW;
        };
        await tookMs(haveResynced, 30_000, 'all have got a resync');
      },
    );
    assert.deepEqual(closedClients(trial), []);
  },
);

/**
 * Some clients that are in rooms with history only stop reading, until the server counts them as
 * lagging; then they read again.
 * @param {import('node:test').TestContext} t
 * @param {import('../checker/trial.js').Trial} trial
 * @param {number} holdMs they lag so long
 * @returns {Promise<Set<number>>} their ids
 */
async function lag(t, trial, holdMs) {
  const { workload, random, server } = trial;
  const patient = workload.clients.filter(({ places }) =>
    [...places.keys()].every((room) => room.startsWith(HISTORY_PREFIX)),
  );
  const readers = random.shuffled(patient).slice(0, SLOW);
  assert.equal(readers.length, SLOW);
  const areLagging = async () => {
    // A scrape costs the workers something, too.
    await pause(250);
    return Number((await server.metrics()).get(LAGGING)) >= 2 * SLOW;
  };
  const nemesis = {
    ...NEMESES.slowReaders,
    async inflict() {
      for (const reader of readers) reader.pause();
      return () => {
        for (const reader of readers) reader.resume();
      };
    },
  };
  await trial.suffer(nemesis, 0, async () => {
    const ms = await tookMs(areLagging, 45_000, 'slow readers lag in both of their rooms');
    t.diagnostic(`lagging after ${Math.round(ms)} ms`);
    await pause(holdMs);
  });
  return new Set(readers.map(({ id }) => id));
}

/**
 * From sending to receiving, of the clients that read.
 * @param {string} path @param {ReadonlySet<number>} slow
 */
function latencyOfOthers(path, slow) {
  const latency = new Latency();
  /** @type {Map<string, number>} */
  const sent = new Map();
  for (const event of readRecord(path)) {
    if (event.type === 'invoke') sent.set(event.value, event.t);
    else if (event.type === 'deliver' && !slow.has(event.client))
      latency.add((event.t - Number(sent.get(event.value))) / 1000);
  }
  return latency;
}
