// Which timers run in a server in which nothing happens. Each wake-up costs some 80 us of processor
// time, and most servers are at rest most of the time.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const PROGRAM = fileURLToPath(new URL('../simulation/at-rest.js', import.meta.url));
const run = promisify(execFile);

/**
 * The most runs in a minute, by kind of process and file. A new timer belongs into the beat of its
 * process (`worker/worker.js`, `primary/supervisor.js`), or runs only while it has something to do.
 */
const WORKER = { 'worker/worker.js': 60, 'auth/revocation-log.js': 2 };
const PRIMARY = { 'primary/supervisor.js': 60, 'primary/courier-process.js': 12 };
/** Each of the 16 partitions has a lease and a turn. */
const COURIER = {
  'webhooks/together.js': 120,
  'webhooks/lease.js': 384,
  'webhooks/partition.js': 976,
  'webhooks/delivery.js': 4,
};
const REDIS = {
  worker: {
    ...WORKER,
    // Its ticks are part of the beat.
    'backend/redis/stall-aware-clock.js': 4,
    'backend/redis/session-beat.js': 14,
  },
  primary: { ...PRIMARY, 'backend/embedded/server-places.js': 60 },
  courier: { ...COURIER, 'webhooks/endpoint.js': 2 },
};
const EMBEDDED = { worker: WORKER, primary: PRIMARY, courier: COURIER };
/** The most wake-ups by timers in a minute. Those of the courier's partitions share theirs. */
const WAKE_UPS = {
  redis: { worker: 80, primary: 125, courier: 85 },
  embedded: { worker: 65, primary: 65, courier: 85 },
};

for (const [topology, most] of Object.entries({ redis: REDIS, embedded: EMBEDDED }))
  test(`at rest with ${topology}, only the timers of the table run`, async () => {
    const { stdout } = await run(process.execPath, [PROGRAM, topology]);
    const { runs, wakeUps, faults } = JSON.parse(stdout);
    assert.deepEqual(faults, []);
    assert.deepEqual(Object.keys(runs).sort(), ['courier', 'primary', 'worker']);
    for (const [kind, table] of Object.entries(most)) {
      const unknown = Object.keys(runs[kind]).filter((file) => !(file in table));
      assert.deepEqual(unknown, [], `${kind}: timers that the table lacks`);
      for (const [file, limit] of Object.entries(table))
        assert.ok((runs[kind][file] ?? 0) <= limit, `${kind}, ${file}: ${runs[kind][file]} runs`);
    }
    for (const [kind, limit] of Object.entries(WAKE_UPS[/** @type {'redis'} */ (topology)]))
      assert.ok(wakeUps[kind] <= limit, `${kind}: ${wakeUps[kind]} wake-ups`);
    for (const [kind, file] of [
      ['worker', 'worker/worker.js'],
      ['primary', 'primary/supervisor.js'],
    ])
      assert.ok(runs[kind][file] > 50, `${kind} has a beat`);
  });
