// bench.test.js: the checks of the benchmark: a server that loses, repeats or alters messages fails
// in it.

import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { hasCompiler } from '../../loadtest/bench/compile.js';
import { DoorSwarm } from '../../loadtest/bench/door-swarm.js';
import { Others } from '../../loadtest/bench/others.js';
import { PROFILES } from '../../loadtest/bench/profiles.js';
import { equalSets, markdown, ratio, withoutFigure } from '../../loadtest/bench/report.js';
import { searchRate } from '../../loadtest/bench/search.js';
import { startServer } from '../../loadtest/bench/servers.js';
import { CLIENT_BOUND, clean, DISTURBED, flagsOf } from '../../loadtest/bench/step.js';
import { Swarm } from '../../loadtest/bench/swarm.js';
import { NO_ECHO, ROUNDS, TABLES, WORKLOADS } from '../../loadtest/bench/workloads.js';
import { addHistogram, BUCKETS, bucketOf, middleOf, percentileMs } from '../harness/latency.js';

const NO_COMPILER = hasCompiler() ? false : 'no C compiler';

/**
 * @param {import('node:test').TestContext} t
 * @param {Record<string, string>} env
 */
async function swarmAt(t, env) {
  const target = await startServer('raw-single', { workers: 0, env });
  t.after(() => target.close());
  const swarm = new Swarm({ processes: 2 }).start();
  t.after(() => swarm.close());
  await swarm.aim(target);
  return { swarm, target };
}

test('the client counts every delivery of an honest server', {
  skip: NO_COMPILER,
  timeout: 20_000,
}, async (t) => {
  const { swarm } = await swarmAt(t, {});
  assert.equal((await swarm.open({ count: 41 })).open, 41);
  const result = await swarm.run({ perSecond: 200, seconds: 0.5 });
  assert.equal(result.expected, 4100);
  assert.equal(result.received, 4100);
  assert.ok(clean(result));
  assert.ok(percentileMs(result.histogram, 0.5) < 500);
  await swarm.hangUp({ keep: 10 });
  assert.equal((await swarm.status()).open, 10);
});

for (const fault of ['drop', 'repeat', 'alter']) {
  test(`the client notices a server that does this to one delivery in a hundred: ${fault}`, {
    skip: NO_COMPILER,
    timeout: 20_000,
  }, async (t) => {
    const { swarm } = await swarmAt(t, { RAW_FAULT: fault });
    await swarm.open({ count: 20 });
    const result = await swarm.run({ perSecond: 100, seconds: 0.5, drainMs: 300 });
    assert.equal(result.expected, 1000);
    assert.ok(result.wrong > 0);
    assert.ok(!clean(result));
  });
}

test('the client echoes, and comes and goes', { skip: NO_COMPILER, timeout: 20_000 }, async (t) => {
  const { swarm, target } = await swarmAt(t, {});
  const cycles = await swarm.cycle({ count: 300, concurrency: 20, timeoutMs: 10_000 });
  assert.deepEqual([cycles.cycles, cycles.failed], [300, 0]);
  await swarm.hangUp();
  await swarm.aim({ ...target, echo: true });
  await swarm.open({ count: 4 });
  assert.ok((await swarm.echo({ seconds: 0.2 })).received > 4);
});

test('a connection whose join is refused has failed, and a later attempt opens it', {
  skip: NO_COMPILER,
  timeout: 20_000,
}, async (t) => {
  const { swarm } = await swarmAt(t, { RAW_FAULT: 'join' });
  const { open, failed, seconds } = await swarm.open({ count: 30, timeoutMs: 15_000 });
  assert.deepEqual([open, failed], [20, 10]);
  assert.ok(seconds < 10, 'not at the deadline');
  assert.equal((await swarm.open({ count: 2 })).open, 22);
});

test('a member whose join is refused gets its place in its room at a later attempt', {
  skip: NO_COMPILER,
  timeout: 20_000,
}, async (t) => {
  const target = await startServer('raw-single', { workers: 0, env: { RAW_FAULT: 'join' } });
  t.after(() => target.close());
  const swarm = new Swarm({ processes: 1 }).start();
  t.after(() => swarm.close());
  await swarm.aim(target);
  const members = { count: 0, ownRooms: { rooms: 1, members: 9 } };
  const open = [];
  for (let i = 0; i < 3; i++) open.push((await swarm.open(members)).open);
  assert.deepEqual(open, [6, 8, 9]);
  // Each of the nine places sends one message.
  const run = { perSecond: 90, seconds: 0.1, publishers: 9, inOwnRooms: true };
  const result = await swarm.run(run);
  assert.deepEqual([result.sent, result.expected, clean(result)], [9, 81, true]);
});

for (const { fault, isClean } of [
  { fault: 'refuse', isClean: true },
  { fault: 'swallow', isClean: false },
])
  test(`others are well: ${isClean}, if a server does this to each tenth message: ${fault}`, {
    skip: NO_COMPILER,
    timeout: 60_000,
  }, async (t) => {
    const target = await startServer('raw-single', { workers: 0, env: { RAW_FAULT: fault } });
    t.after(() => target.close());
    const others = new Others(target, 100, 300);
    t.after(() => others.close());
    await others.open(0);
    const { others: report } = await others.during(sleep(1500));
    assert.ok(report.refused > 0);
    assert.equal(report.errors, isClean ? report.refused : 0);
    assert.equal(report.received, report.expected);
    assert.equal(report.isClean, isClean);
  });

test('publishers of another door come back with the members after a loss', {
  skip: NO_COMPILER,
  timeout: 20_000,
}, async (t) => {
  const target = await startServer('raw-single', { workers: 0 });
  t.after(() => target.close());
  const swarm = new DoorSwarm({ processes: 2 }, PROFILES.plain);
  swarm.start();
  t.after(() => swarm.close());
  await swarm.aim(target);
  for (let i = 0; i < 2; i++) {
    assert.equal((await swarm.open({ count: 10 })).open, 10);
    assert.equal((await swarm.status(3)).open, 8);
    const result = await swarm.run({ perSecond: 100, seconds: 0.2 });
    assert.ok(clean(result), JSON.stringify(result));
    await swarm.hangUp();
    assert.equal((await swarm.status(3)).open, 0);
  }
});

test('a search finds the largest load that passes, within a bisection step', async () => {
  const tried = [];
  const best = await searchRate({
    start: 1000,
    grow: 2.5,
    bisections: 5,
    retries: 0,
    attempt: async (load) => {
      tried.push(load);
      return { ok: load <= 33_000, score: load, step: null };
    },
    recover: async () => {},
  });
  assert.ok(best);
  assert.ok(best.score <= 33_000 && best.score > 33_000 * 0.94, `${best.score}`);
  assert.ok(tried.length < 12);
});

test('a search goes down from a start that is too high, and gives up if nothing passes', async () => {
  const search = (/** @type {number} */ limit) =>
    searchRate({
      start: 1000,
      grow: 2,
      bisections: 3,
      retries: 0,
      attempt: async (load) => ({ ok: load <= limit, score: load, step: null }),
      recover: async () => {},
    });
  const best = await search(300);
  assert.ok(best && best.score <= 300 && best.score > 240, `${best?.score}`);
  assert.equal(await search(0), null);
});

test('a search around a known load is short, and goes further if that load no longer holds', async () => {
  const search = async (/** @type {number} */ limit) => {
    let tried = 0;
    const best = await searchRate({
      start: 1000,
      grow: 2,
      bisections: 4,
      retries: 0,
      known: 20_000,
      attempt: async (load) => {
        tried++;
        return { ok: load <= limit, score: load, step: null };
      },
      recover: async () => {},
    });
    assert.equal(best?.load, best?.score);
    return { found: /** @type {number} */ (best?.load), tried };
  };
  const same = await search(21_000);
  assert.ok(same.found <= 21_000 && same.found > 19_000 && same.tried <= 6, JSON.stringify(same));
  for (const limit of [1500, 90_000]) {
    const { found } = await search(limit);
    assert.ok(found <= limit && found > limit * 0.88, `${found}`);
  }
});

test('a failed attempt is repeated before it counts', async () => {
  let first = true;
  const best = await searchRate({
    start: 100,
    grow: 2,
    bisections: 0,
    retries: 1,
    attempt: async (load) => {
      const ok = load <= 400 && !(load === 200 && first);
      if (load === 200) first = false;
      return { ok, score: load, step: null };
    },
    recover: async () => {},
  });
  assert.equal(best?.score, 400);
});

test('a failed attempt of the bisection is repeated as well', async () => {
  for (const known of [undefined, 6000]) {
    const failed = new Set();
    const best = await searchRate({
      start: 1000,
      grow: 2.5,
      bisections: 4,
      retries: 1,
      known,
      attempt: async (load) => {
        // The first attempt at each load has a bad moment.
        const ok = load <= 6200 && (failed.has(load) || known !== undefined);
        failed.add(load);
        return { ok, score: load, step: null };
      },
      recover: async () => {},
    });
    assert.ok(best && best.score <= 6200 && best.score > 6200 * 0.94, `${known}: ${best?.score}`);
  }
});

test('a load that failed in a long bad moment has another chance at the end of its search', async () => {
  for (const limit of [20_000, 3000]) {
    /** @type {number[]} */
    const tried = [];
    const best = await searchRate({
      start: 1000,
      grow: 2,
      bisections: 2,
      retries: 1,
      attempt: async (load) => {
        tried.push(load);
        // The third and fourth attempts fail, whatever their load.
        const isBad = tried.length === 3 || tried.length === 4;
        return { ok: load <= limit && !isBad, score: load, step: null };
      },
      recover: async () => {},
    });
    assert.ok(best && best.score <= limit && best.score > limit * 0.75, `${best?.score}`);
    assert.ok(tried.length < 20, `${tried}`);
  }
});

test('a histogram keeps latencies within 1.6 %, and has no percentile of nothing', () => {
  for (const us of [0, 1, 127, 128, 129, 1000, 12_345, 999_999, 20_000_000]) {
    const middle = middleOf(bucketOf(us));
    assert.ok(Math.abs(middle - us) <= Math.max(0.5, us * 0.016), `${us} became ${middle}`);
  }
  const histogram = new Float64Array(BUCKETS);
  assert.equal(percentileMs(histogram, 0.5), Number.NaN);
  addHistogram(histogram, `${bucketOf(1000)}:95,${bucketOf(9000)}:5`);
  assert.ok(percentileMs(histogram, 0.5) < 1.02);
  assert.ok(percentileMs(histogram, 0.99) > 8.8);
});

test('ratios are taken within a round', () => {
  const cell = (
    /** @type {string} */ server,
    /** @type {number} */ round,
    /** @type {number | null} */ x,
  ) => ({
    server,
    title: server,
    workload: 'w',
    round,
    values: { x },
    flags: [],
    detail: {},
    stolenShare: 0,
    seconds: 1,
  });
  // The machine was ten times slower in the second round, and the base failed in the third.
  const cells = [
    cell('a', 1, 20),
    cell('base', 1, 10),
    cell('a', 2, 2),
    cell('base', 2, 1),
    cell('a', 3, 99),
    cell('base', 3, null),
  ];
  assert.equal(ratio(cells, 'a', 'base', 'w', 'x'), 2);
});

test('a measurement without a figure has failed', () => {
  const cell = (/** @type {number | null} */ value, /** @type {string[]} */ flags = []) => ({
    ...{
      server: 'a',
      title: 'a',
      workload: 'echo',
      round: 1,
      values: { messagesPerSecond: value },
    },
    ...{ flags, detail: {}, stolenShare: 0, seconds: 1 },
  });
  const failed = [cell(null, ['failed: connect ECONNREFUSED']), cell(0), cell(Number.NaN)];
  assert.deepEqual(withoutFigure([cell(1), cell(null, [NO_ECHO]), ...failed]), failed);
});

test('servers whose ranges have a value in common are equal within noise', () => {
  const server = (/** @type {string} */ title, /** @type {number[]} */ ...numbers) => ({
    title,
    numbers,
  });
  assert.deepEqual(equalSets([server('a', 8.8, 8.6), server('b', 8.7, 9), server('c', 4, 5)]), [
    ['a', 'b'],
  ]);
  // b is equal to both others, which differ.
  assert.deepEqual(equalSets([server('a', 1, 2), server('b', 2, 4), server('c', 3, 5)]), [
    ['a', 'b'],
    ['b', 'c'],
  ]);
  assert.deepEqual(equalSets([server('a', 1, 9), server('b', 2, 3), server('c', 4, 5)]), [
    ['a', 'b'],
    ['a', 'c'],
  ]);
  // One round has no noise.
  assert.deepEqual(equalSets([server('a', 1), server('b', 1)]), []);
  assert.deepEqual(equalSets([server('a', 1, 2), server('b', 3, 4)]), []);
});

test('the report has ranges, the share of the client, and what noise hides', () => {
  const cells = [1, 2].flatMap((round) =>
    [8, 8.1].map((rate, i) => ({
      ...{ server: `s${i}`, title: `Server ${i}`, workload: 'saturated-1000', round },
      values: { deliveriesPerSecond: (rate + round / 10) * 1e6, clientBusiest: 0.93 },
      ...{ flags: [CLIENT_BOUND], detail: {}, stolenShare: 0, seconds: 1 },
    })),
  );
  const text = markdown({
    ...{ startedAt: 'now', command: 'run.js', machine: {}, client: { lines: [] }, cells },
    base: 's0',
  });
  assert.match(text, /Server 1 \| 8,250,000 \(8,200,000–8,300,000\) × 1\.01/);
  assert.match(text, /\| 93 \| client-bound \(2 of 2\) \|/);
  assert.match(text, /Equal within noise, deliveries\/s: Server 0 = Server 1/);
});

test('a row says that its client or other processes may have bounded it', () => {
  const usual = { received: 1, expected: 1, wrong: 0, lost: 0, cpuSeconds: 0, serverCpuSeconds: 0 };
  const flags = (/** @type {number} */ busiest, /** @type {number} */ otherShare) => {
    const otherCpuSeconds = otherShare * availableParallelism();
    const step = { ...usual, busiest, otherCpuSeconds, wallSeconds: 1 };
    return flagsOf(/** @type {any} */ (step));
  };
  assert.deepEqual(flags(0.89, 0.14), []);
  assert.deepEqual(flags(0.9, 0), [CLIENT_BOUND]);
  assert.deepEqual(flags(0.5, 0.16), [DISTURBED]);
});

test('the fixed rates and the highest one are measured on at least five servers', () => {
  for (const name of ['fixed', 'fixed-rooms', 'saturated-1000'])
    assert.ok((WORKLOADS[name].rounds ?? 0) >= 5);
  assert.ok(ROUNDS >= 3);
  const parts = Object.keys(WORKLOADS.fixed.parts ?? {});
  assert.deepEqual(parts, ['fixed-100', 'fixed-1000', 'fixed-3000', 'fixed-4000']);
  for (const part of parts) assert.ok(TABLES[part].metrics.some(({ key }) => key === 'p95Ms'));
});

test('the limit delivers over its processes', {
  skip: NO_COMPILER,
  timeout: 20_000,
}, async (t) => {
  const target = await startServer('limit', { workers: 3 });
  t.after(() => target.close());
  assert.equal(target.pids().length, 4);
  const swarm = new Swarm({ processes: 2 }).start();
  t.after(() => swarm.close());
  await swarm.aim(target);
  assert.equal((await swarm.open({ count: 60 })).open, 60);
  const result = await swarm.run({ perSecond: 400, seconds: 0.5, payloadBytes: 1000 });
  assert.deepEqual([result.expected, result.received], [12_000, 12_000]);
  assert.ok(clean(result));
  await swarm.hangUp();
  await swarm.aim({ ...target, echo: true });
  await swarm.open({ count: 4 });
  assert.ok((await swarm.echo({ seconds: 0.2 })).received > 4);
});
