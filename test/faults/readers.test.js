// readers.test.js: clients that read slower than is written.

import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Latency } from '../../loadtest/lib/latency.js';
import { NEMESES } from '../checker/nemesis.js';
import { readRecord } from '../checker/record.js';
import { closedClients, OPTIONS, smoke } from './smoke.js';

const SLOW = 5;
const MAX_P99_MS = 250;

test('22: slow readers are closed and recover, and nobody waits for them', OPTIONS, async (t) => {
  const path = join(tmpdir(), `fanfare-slow-${process.pid}.jsonl`);
  t.after(() => rmSync(path, { force: true }));
  /** @type {Set<number>} */
  let slow = new Set();
  let closed = 0;
  const { trial, report } = await smoke(
    t,
    // Below the default, since the kernel takes some megabytes of its own before anything waits here.
    { path, env: { FANFARE_MAX_UNSENT_BYTES: '262144', FANFARE_MAX_UNSENT_AGE_MS: '2000' }, load: { bytes: 12_000 } },
    async (trial) => {
      const readers = trial.random.shuffled(trial.workload.clients).slice(0, SLOW);
      slow = new Set(readers.map(({ id }) => id));
      await trial.suffer(
        {
          ...NEMESES.slowReaders,
          async inflict() {
            for (const reader of readers) reader.pause();
            return () => {
              for (const reader of readers) reader.resume();
            };
          },
        },
        12_000,
        async () => {
          const name = 'fanfare_slow_consumers_total{consequence="closed"}';
          closed = (await trial.server.metrics()).get(name) ?? 0;
        },
      );
      await trial.workload.joined();
    },
  );
  assert.equal(closed, SLOW);
  assert.deepEqual(new Set(closedClients(trial).map(({ id }) => id)), slow);
  assert.equal(report.figures.notRecovered, 0);
  const latency = latencyOfOthers(path, slow);
  t.diagnostic(`the others: ${latency}`);
  assert.ok((latency.percentile(99) ?? 0) < MAX_P99_MS, `${latency}`);
});

/** From sending to receiving, of the clients that read. @param {string} path @param {ReadonlySet<number>} slow */
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
