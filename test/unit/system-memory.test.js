import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  heapOfWorker,
  partOfWorker,
  privateBytes,
  readPart,
} from '../../src/config/system-memory.js';
import { createCounters } from '../../src/observability/counters.js';
import { workerArguments } from '../../src/primary/worker-process.js';
import { Health } from '../../src/worker/health.js';

const GIB = 2 ** 30;
const MIB = 2 ** 20;

test('the parts of all workers and of the primary are at most the whole memory', () => {
  for (const all of [GIB / 2, GIB, 4 * GIB, 24 * GIB, 256 * GIB]) {
    for (const workers of [1, 2, 4]) {
      const part = partOfWorker(all, workers);
      assert.ok(
        workers * part < all && workers * part >= all / 2,
        `${workers} workers of ${all}: ${part}`,
      );
      assert.ok(heapOfWorker(part, Number.POSITIVE_INFINITY) < part);
    }
  }
  // V8's own limit is never raised, and a worker that would not start gets the minimum.
  assert.equal(heapOfWorker(24 * GIB, 4 * GIB), 4 * GIB);
  assert.ok(partOfWorker(GIB / 4, 64) >= 64 * MIB);
});

test("a control group's limit counts, not the machine's memory", () => {
  /** @type {Record<string, string>} */
  const files = {
    '/proc/self/mountinfo': '30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n',
    '/proc/self/cgroup': '0::/fanfare.service\n',
    '/sys/fs/cgroup/fanfare.service/memory.max': `${GIB}\n`,
  };
  const read = (/** @type {string} */ path) => {
    if (path in files) return files[path];
    throw Object.assign(new Error('no such file'), { code: 'ENOENT' });
  };
  assert.equal(readPart(4, read), partOfWorker(GIB, 4));
});

test('memory outside the heap counts as used', () => {
  const before = privateBytes();
  const health = new Health({
    counters: createCounters(),
    loopLag: { observe: () => {} },
    memoryBytes: 1000 * MIB,
  });
  const buffers = Array.from({ length: 20 }, () => Buffer.alloc(10 * MIB, 1));
  assert.ok(privateBytes() - before > 190 * MIB);
  health.beat(1000);
  assert.ok(health.heapPercent() > (100 * (before + 190 * MIB)) / (1000 * MIB));
  assert.equal(buffers.length, 20);
});

test('shared memory, such as program text, does not count', () => {
  assert.ok(privateBytes() < process.memoryUsage.rss());
});

test('a worker gets a heap limit for its part, unless the operator has set one', () => {
  const [flag] = workerArguments(64, '').filter((one) => one.startsWith('--max-old-space-size='));
  assert.equal(
    Number(flag.split('=')[1]),
    Math.floor(heapOfWorker(readPart(64), Number.POSITIVE_INFINITY) / MIB),
  );
  for (const set of [
    '--max-old-space-size=100',
    '--max_old_space_size=100',
    '--no-warnings --max-old-space-size=100',
  ]) {
    assert.ok(!workerArguments(64, set).some((one) => one.startsWith('--max-old-space-size')), set);
  }
  const module = fileURLToPath(new URL('../../src/primary/worker-process.js', import.meta.url));
  const code = `import { workerArguments } from ${JSON.stringify(module)}; console.log(workerArguments(64, '').join(' '))`;
  const { stdout } = spawnSync(
    process.execPath,
    ['--max-old-space-size=123', '--input-type=module', '-e', code],
    {
      encoding: 'utf8',
    },
  );
  assert.match(stdout, /^--max-old-space-size=123 /);
  assert.equal(stdout.match(/max-old-space-size/g)?.length, 1);
});
