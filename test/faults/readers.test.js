// readers.test.js: clients that read more slowly than the server writes.

import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Latency } from '../../loadtest/lib/latency.js';
import { pause } from '../../loadtest/lib/run.js';
import { NEMESES } from '../checker/nemesis.js';
import { readRecord } from '../checker/record.js';
import { closedClients, OPTIONS, smoke, tookMs } from './smoke.js';

const SLOW = 5;
const CLOSED = 'fanfare_slow_consumers_total{consequence="closed"}';
/**
 * The kernel buffers some megabytes before anything waits in the server; then the age decides. A
 * connection that is given up loses those bytes, and a replay may bring as many bytes as may wait
 * for a connection.
 */
const SETTING = Object.freeze({
  env: { FANFARE_MAX_UNSENT_AGE_MS: '1000', FANFARE_MAX_UNSENT_BYTES: '33554432' },
  load: { bytes: 12_000 },
});
const MAX_P99_MS = 250;

test(
  '22: slow readers are closed and recover, and do not delay other readers',
  OPTIONS,
  async (t) => {
    const path = join(tmpdir(), `fanfare-slow-${process.pid}.jsonl`);
    t.after(() => rmSync(path, { force: true }));
    /** @type {Set<number>} */
    let slow = new Set();
    const { trial, report } = await smoke(t, { path, ...SETTING }, async (trial) => {
      const readers = trial.random.shuffled(trial.workload.clients).slice(0, SLOW);
      slow = new Set(readers.map(({ id }) => id));
      const areClosed = async () => {
        // A scrape costs the workers something, too.
        await pause(250);
        return (await trial.server.metrics()).get(CLOSED) === SLOW;
      };
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
        0,
        async () => {
          const closedMs = await tookMs(areClosed, 30_000, 'the end of slow readers');
          t.diagnostic(`closed within ${Math.round(closedMs)} ms`);
        },
      );
      await trial.workload.joined();
    });
    assert.deepEqual(new Set(closedClients(trial).map(({ id }) => id)), slow);
    // 4003, if it arrived before the connection was given up.
    for (const code of report.figures.closes.keys())
      assert.ok(code === 4003 || code === 1006, `${code}`);
    // They had missed less than a replay may bring.
    assert.equal(report.figures.notRecovered, 0);
    const latency = latencyOfOthers(path, slow);
    t.diagnostic(`the others: ${latency}`);
    assert.ok((latency.percentile(99) ?? 0) < MAX_P99_MS, `${latency}`);
  },
);

/**
 * From sending to receiving, of the clients that read.
 * @param {string} path
 * @param {ReadonlySet<number>} slow
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
