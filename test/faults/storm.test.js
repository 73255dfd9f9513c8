// storm.test.js: thousands of clients of one room come back at once, and each says what it has seen.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pause } from '../../loadtest/lib/run.js';
import { startTrial } from '../checker/trial.js';
import { until } from '../helpers/server.js';

const CLIENTS = 5000;
const WORKERS = 2;
const MISSED = 50;
const MAX_LAG_S = 0.2;

test(`${CLIENTS} clients of a room come back at once: all recover, of one read a worker`, {
  timeout: 180_000,
}, async (t) => {
  const load = { clients: CLIENTS, rooms: 1, hasHistory: true, roomsPerClient: 1, publishers: 1, rate: 0 };
  const trial = await startTrial(t, { servers: 1, workers: WORKERS, load });
  const { server, workload } = trial;
  const { clients, rooms, marker } = workload;
  await trial.begin();
  await workload.send(marker, rooms[0], 10);
  const reads = async () => (await server.metrics()).get('fanfare_history_reads_total') ?? 0;

  // Long enough for the room to be given up by the workers: who comes back finds nothing in memory.
  await Promise.all(clients.map((client) => client.stop()));
  await until(async () => (await server.metrics()).get('fanfare_rooms') === 0);
  await pause(1000);
  await workload.send(marker, rooms[0], MISSED);
  const readsBefore = await reads();

  // The lag is the worst since the scrape before, or of the last ten seconds.
  await until(
    async () => ((await server.metrics()).get('fanfare_event_loop_lag_seconds') ?? 1) < 0.05,
    30_000,
    'quiet',
  );
  const started = performance.now();
  for (const client of clients) client.start();
  await workload.joined(60_000);
  const last = `${marker.id}:${marker.sequence}:${rooms[0]}`;
  await until(() => clients.every(({ markers }) => markers.has(last)), 60_000, 'all that was missed');
  const tookMs = performance.now() - started;
  const lag = (await server.metrics()).get('fanfare_event_loop_lag_seconds') ?? Number.NaN;
  const readsOfStorm = (await reads()) - readsBefore;

  const report = await trial.finish();
  const { recovered, notRecovered } = report.figures;
  t.diagnostic(
    `${recovered} recovered in ${Math.round(tookMs)} ms: ${readsOfStorm} reads, lag ${Math.round(lag * 1000)} ms`,
  );
  assert.deepEqual(
    report.findings.flatMap(({ examples }) => examples),
    [],
  );
  assert.equal(recovered, CLIENTS);
  assert.equal(notRecovered, 0);
  assert.ok(readsOfStorm >= 1 && readsOfStorm <= rooms.length * WORKERS, `${readsOfStorm} reads`);
  assert.ok(lag < MAX_LAG_S, `${lag} s`);
  assert.deepEqual(trial.oddities(), []);
});
