import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs, { closeSync, openSync, readdirSync, statSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { collectDefaultMetrics, Registry } from 'prom-client';
import { Aggregate } from '../../src/observability/aggregate.js';
import { createCounters } from '../../src/observability/counters.js';
import {
  COURIER_METRICS,
  METRICS,
  PRIMARY_METRICS,
  WORKER_METRICS,
} from '../../src/observability/metrics.js';
import {
  createCourierMetrics,
  createMetrics,
  createPrimaryMetrics,
} from '../../src/observability/registry.js';
import { samples } from '../harness/server.js';
import { fallen } from '../helpers/counters.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const noPrlimit = spawnSync('prlimit', ['--version']).error && 'no prlimit here';

/**
 * As it arrives in the primary.
 * @param {import('../../src/observability/aggregate.js').Snapshot[]} snapshot
 * @returns {import('../../src/observability/aggregate.js').Snapshot[]}
 */
const overIpc = (snapshot) => JSON.parse(JSON.stringify(snapshot));

/** @param {number} slot */
function worker(slot) {
  const counters = createCounters();
  const metrics = createMetrics(counters, { worker: slot });
  return { counters, metrics, snapshot: () => overIpc(metrics.snapshot()) };
}

/**
 * @param {Pick<ReturnType<typeof worker>, 'snapshot'>} worker @param {string} name of a metric
 * @returns {number} its first value
 */
function firstOf({ snapshot }, name) {
  return Number(snapshot().find(({ form }) => form?.name === name)?.values[0]);
}

/** @param {Pick<ReturnType<typeof worker>, 'snapshot'>} one */
const openFilesOf = (one) => firstOf(one, 'process_open_fds');

const primary = createPrimaryMetrics({
  workersUp: () => ({ 0: 1, 1: 0 }),
  deaths: () => ({ crashed: 1, hung: 0, start: 0 }),
  isCrashLoop: () => false,
  hasReloadSucceeded: () => true,
  restarts: () => 3,
  reloads: () => 0,
  skew: () => 1,
  rebalances: () => ({ done: 0 }),
  leftOut: () => ({ plain: 0, history: 0 }),
  reconciledPlaces: () => 0,
  fleetLimits: () => ({ servers: 1, decisions: {}, reports: {}, keys: {}, excess: {} }),
  presenceEvents: () => ({ join: 0, leave: 0, suppressed: 0 }),
  history: () => ({
    bytes: 0,
    publications: 0,
    lost: { publications: 0, positions: 0, keys: 0, reads: 0 },
  }),
  opsSocketsClosed: () => ({ full: 0, pipelined: 0 }),
  courierRestarts: () => 0,
});

const courier = createCourierMetrics(
  {
    pending: () => ({ 'example.com': 3 }),
    oldestSeconds: () => ({ 'example.com': 0 }),
    up: () => ({ 'example.com': 1 }),
    attempts: () => ({ 'example.com,delivered': 2 }),
    dropped: () => ({ 'example.com,overflow': 0 }),
    cancelled: () => ({ 'example.com': 0 }),
    partitions: () => 16,
    size: () => ({ entries: 0, pending: 0, bytes: 0, failures: 0 }),
  },
  ['example.com'],
);

test('counters, gauges and histograms of two workers are added up', async () => {
  const [a, b] = [worker(0), worker(1)];
  Object.assign(a.counters, { connections: 3, messages: 10 });
  Object.assign(b.counters, { connections: 4, messages: 5 });
  a.counters.errors.INVALID_ROOM = 2;
  b.counters.errors.INVALID_ROOM = 1;
  a.metrics.messageDuration.observe(0.1);
  a.metrics.messageDuration.observe(20);
  b.metrics.messageDuration.observe(9999);
  const aggregate = new Aggregate();
  aggregate.update(1, a.snapshot());
  aggregate.update(2, b.snapshot());
  const values = samples(await aggregate.toPrometheus());
  assert.equal(values.get('websocket_connections_total'), 7);
  assert.equal(values.get('websocket_messages_total'), 15);
  assert.equal(values.get('websocket_errors_total{code="INVALID_ROOM"}'), 3);
  assert.equal(values.get('websocket_message_duration_ms_bucket{le="0.1"}'), 1);
  assert.equal(values.get('websocket_message_duration_ms_bucket{le="15"}'), 1);
  assert.equal(values.get('websocket_message_duration_ms_bucket{le="50"}'), 2);
  assert.equal(values.get('websocket_message_duration_ms_bucket{le="500"}'), 2);
  assert.equal(values.get('websocket_message_duration_ms_bucket{le="+Inf"}'), 3);
  assert.equal(values.get('websocket_message_duration_ms_count'), 3);
  assert.equal(values.get('websocket_message_duration_ms_sum')?.toFixed(4), '10019.1000');
  assert.equal(values.get('fanfare_worker_connections{worker="0"}'), 3);
  assert.equal(values.get('fanfare_worker_connections{worker="1"}'), 4);
});

test('the descriptors of a server are those of its fullest process', async () => {
  const [before, after] = [worker(0), worker(0)];
  const aggregate = new Aggregate();
  aggregate.update(1, before.snapshot());
  const alone = samples(await aggregate.toPrometheus());
  aggregate.update(2, after.snapshot()); // as in a reload
  const both = samples(await aggregate.toPrometheus());
  assert.equal(both.get('process_max_fds'), alone.get('process_max_fds'));
  const open = Number(alone.get('process_open_fds'));
  assert.ok(Number(both.get('process_open_fds')) < 1.5 * open);
});

test('reading a counter twice does not count twice', async () => {
  const one = worker(0);
  one.counters.messages = 4;
  one.counters.refused.origin = 2;
  one.snapshot();
  const aggregate = new Aggregate();
  aggregate.update(1, one.snapshot());
  const values = samples(await aggregate.toPrometheus());
  assert.equal(values.get('websocket_messages_total'), 4);
  assert.equal(values.get('fanfare_admissions_refused_total{reason="origin"}'), 2);
});

test('no counter falls when workers exit, and their gauges disappear', async () => {
  const [a, b] = [worker(0), worker(1)];
  Object.assign(a.counters, { connections: 3, messages: 10 });
  Object.assign(b.counters, { connections: 4, messages: 5 });
  a.metrics.fanout.observe(7);
  b.metrics.fanout.observe(700);
  const aggregate = new Aggregate();
  aggregate.update(1, a.snapshot());
  aggregate.update(2, b.snapshot());
  const before = await aggregate.toPrometheus();
  aggregate.depart(1);
  const after = await aggregate.toPrometheus();
  assert.deepEqual(fallen(before, after), []);
  assert.equal(samples(after).get('websocket_connections_total'), 4);
  assert.equal(samples(after).get('fanfare_worker_connections{worker="0"}'), undefined);

  // Its successor counts on top; the second one leaves into the same account.
  const next = worker(0);
  next.counters.messages = 1;
  aggregate.update(3, next.snapshot());
  aggregate.depart(2);
  aggregate.depart(2);
  const last = await aggregate.toPrometheus();
  assert.deepEqual(fallen(after, last), []);
  assert.equal(samples(last).get('websocket_messages_total'), 16);
  assert.equal(samples(last).get('fanfare_fanout_members_bucket{le="10"}'), 1);
  assert.equal(samples(last).get('fanfare_fanout_members_count'), 2);
  aggregate.depart(3);
  assert.deepEqual(fallen(last, await aggregate.toPrometheus()), []);
});

test('a sum of fractions is the same in any order of addition', async () => {
  const workers = [worker(0), worker(1), worker(2)];
  const aggregate = new Aggregate();
  // (0.1 + 0.2) + 0.3 > (0.2 + 0.3) + 0.1
  for (const [i, ms] of [0.1, 0.2, 0.3].entries()) {
    workers[i].metrics.messageDuration.observe(ms);
    aggregate.update(i, workers[i].snapshot());
  }
  const before = await aggregate.toPrometheus();
  for (const id of [1, 2]) aggregate.depart(id);
  const after = await aggregate.toPrometheus();
  const name = 'websocket_message_duration_ms_sum';
  assert.equal(samples(after).get(name), samples(before).get(name));
  assert.deepEqual(fallen(before, after), []);
});

test('a snapshot leaves out the forms that its receiver has, and sends those that change', async () => {
  const { counters, metrics } = worker(0);
  const known = new Map();
  const names = ['websocket_messages_total', 'fanfare_turn_seconds', 'fanfare_app_connections'];
  const next = () => overIpc(metrics.snapshot(names, known));
  const aggregate = new Aggregate();
  /** Which of its metrics have a form. */
  const update = () => {
    const snapshot = next();
    aggregate.update(1, snapshot);
    return snapshot.map(({ form }) => form !== undefined);
  };
  assert.deepEqual(update(), [true, true, true]);
  counters.messages = 5;
  metrics.turnSeconds.flushes.observe(0.003);
  assert.deepEqual(update(), [false, false, false]);
  counters.apps.connections = { shop: 2 };
  assert.deepEqual(update(), [false, false, true]);
  counters.apps.connections = { blog: 3 };
  assert.deepEqual(update(), [false, false, true]);
  const values = samples(await aggregate.toPrometheus());
  assert.equal(values.get('websocket_messages_total'), 5);
  assert.equal(values.get('fanfare_turn_seconds_count{slot="flushes"}'), 1);
  assert.equal(values.get('fanfare_app_connections{app="blog"}'), 3);
  assert.equal(values.get('fanfare_app_connections{app="shop"}'), undefined);
  // Nothing was sent if a metric could not be read.
  const later = new Map();
  const { apps } = counters;
  Object.defineProperty(apps, 'connections', {
    configurable: true,
    get() {
      throw new Error('not readable');
    },
  });
  assert.throws(() => metrics.snapshot(names, later), /not readable/);
  assert.equal(later.size, 0);
  Object.defineProperty(apps, 'connections', { value: {} });
  // Another receiver knows none of them.
  assert.ok(metrics.snapshot().every(({ form }) => form !== undefined));
});

test('the help text is that of the newest process', async () => {
  const aggregate = new Aggregate();
  /** @param {string} help @returns {import('../../src/observability/aggregate.js').Snapshot} */
  const reading = (help) => ({
    form: { name: 'x_total', help, type: 'counter', aggregator: 'sum', series: [{ labels: {} }] },
    values: [1],
  });
  aggregate.update(1, [reading('Old.')]);
  aggregate.update(2, [reading('New.')]);
  aggregate.depart(1);
  aggregate.update(2, [{ values: [5] }]);
  assert.match(
    await aggregate.toPrometheus(),
    /^# HELP x_total New\.\n# TYPE x_total counter\nx_total 6$/m,
  );
});

test('event-loop lag is the highest of the workers, and the broker is up if it is up for all workers', async () => {
  const [a, b] = [worker(0), worker(1)];
  a.counters.brokerUp = 1;
  const aggregate = new Aggregate();
  /**
   * @param {import('../../src/observability/aggregate.js').Snapshot[]} snapshot @param {number} lag
   */
  const withLag = (snapshot, lag) => {
    const names = ['fanfare_event_loop_lag_seconds', 'nodejs_eventloop_lag_p99_seconds'];
    for (const { form, values } of snapshot) if (names.includes(form?.name ?? '')) values[0] = lag;
    return snapshot;
  };
  aggregate.update(1, withLag(a.snapshot(), 0.5));
  aggregate.update(2, withLag(b.snapshot(), 0.1));
  const values = samples(await aggregate.toPrometheus());
  assert.equal(values.get('fanfare_event_loop_lag_seconds'), 0.5);
  assert.equal(values.get('nodejs_eventloop_lag_p99_seconds'), 0.5);
  assert.equal(values.get('fanfare_broker_up'), 0);
});

test('the highest event-loop lag since the last scrape survives what is read in between', () => {
  const one = worker(0);
  const { loopLag } = one.metrics;
  const highest = () =>
    ['fanfare_event_loop_lag_seconds', 'nodejs_eventloop_lag_max_seconds'].map(
      (name) => Math.round(firstOf(one, name) * 10) / 10,
    );
  loopLag.observe(900);
  assert.deepEqual(highest(), [0.9, 0], 'a collection that is no scrape');
  loopLag.recent = []; // 15 s later
  loopLag.read();
  assert.deepEqual(highest(), [0.9, 0.9]);
  loopLag.read();
  assert.deepEqual(highest(), [0.9, 0], 'another Prometheus server, soon after');
});

test('the connection rate counts new connections, not existing ones', async () => {
  const one = worker(0);
  one.counters.accepted = 50;
  const aggregate = new Aggregate();
  aggregate.update(1, one.snapshot());
  const rate = /** @type {number} */ (
    samples(await aggregate.toPrometheus()).get('websocket_connection_rate')
  );
  assert.ok(rate > 0 && rate <= 50, `${rate}`);
  for (let second = 0; second < 6; second++) one.metrics.sampleRates(performance.now());
  aggregate.update(1, one.snapshot());
  assert.equal(samples(await aggregate.toPrometheus()).get('websocket_connection_rate'), 0);
});

test("prom-client's default metrics have the same names, types and labels here", async () => {
  const theirs = new Registry();
  collectDefaultMetrics({ register: theirs });
  globalThis.setTimeout(() => {}, 10_000).unref(); // a resource and a handle, so that they have labels
  const aggregate = new Aggregate();
  aggregate.update(1, worker(0).snapshot());
  const text = await aggregate.toPrometheus();
  /** @param {string} page @param {string} name */
  const labelsOf = (page, name) => {
    const [, labels = ''] = new RegExp(`^${name}(?:_bucket)?\\{(.*)\\}`, 'm').exec(page) ?? [];
    return [...labels.matchAll(/(\w+)=/g)].map(([, label]) => label).sort();
  };
  const theirText = await theirs.metrics();
  for (const metric of await theirs.getMetricsAsJSON()) {
    const { name, type, aggregator } = /** @type {Record<string, any>} */ (metric);
    // prom-client itself leaves this one out of the sum over processes.
    if (aggregator === 'omit') continue;
    assert.match(text, new RegExp(`^# TYPE ${name} ${type}$`, 'm'));
    const labels = labelsOf(theirText, name);
    if (labels.length > 0) assert.deepEqual(labelsOf(text, name), labels, name);
  }
});

test('garbage collections are counted by kind', async () => {
  const one = worker(0);
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  // The observer is told in a later turn.
  for (let turns = 0; turns < 100; turns++) await turn();
  const aggregate = new Aggregate();
  aggregate.update(1, one.snapshot());
  const count = samples(await aggregate.toPrometheus()).get(
    'nodejs_gc_duration_seconds_count{kind="major"}',
  );
  assert.ok((count ?? 0) >= 1, `${count}`);
});

test('memory, descriptors and processor time are those of the process', async () => {
  const one = worker(0);
  /** @param {string} name */
  const first = (name) => firstOf(one, name);
  /** @param {number} seen @param {number} expected */
  const isNear = (seen, expected) => seen > 0.7 * expected && seen < 1.4 * expected;
  const { user, system } = process.cpuUsage();
  assert.ok(isNear(first('process_resident_memory_bytes'), process.memoryUsage.rss()));
  assert.ok(isNear(first('process_cpu_seconds_total'), (user + system) / 1e6));
  assert.ok(isNear(first('process_open_fds'), readdirSync('/proc/self/fd').length));
  assert.ok(first('process_max_fds') >= first('process_open_fds'));
  assert.ok(first('process_virtual_memory_bytes') > first('process_resident_memory_bytes'));
});

test('open files are counted at each scrape if the kernel knows their number', {
  skip: statSync('/proc/self/fd').size === 0 && 'Linux before 6.2 does not',
}, async (t) => {
  const one = worker(0);
  const before = openFilesOf(one);
  const files = Array.from({ length: 20 }, () => openSync('/dev/null', 'r'));
  t.after(() => {
    for (const file of files) closeSync(file);
  });
  const growth = openFilesOf(one) - before;
  assert.ok(growth > 10 && growth < 30, `${growth}`); // other tests may open and close some
});

test('open files are listed if the kernel does not know their number', async (t) => {
  t.mock.method(fs, 'statSync', () => ({ size: 0 }));
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  const seen = openFilesOf(worker(0));
  const expected = readdirSync('/proc/self/fd').length;
  assert.ok(Math.abs(seen - expected) < 10, `${seen} of ${expected}`);
});

test('a walk over all sockets is not part of each scrape', async (t) => {
  const one = worker(0);
  const walk = t.mock.method(process, 'getActiveResourcesInfo');
  for (let scrape = 0; scrape < 3; scrape++) one.snapshot();
  assert.equal(walk.mock.callCount(), 1);
});

test("the fixed names and prom-client's defaults are present", async () => {
  const aggregate = new Aggregate();
  aggregate.update(1, worker(0).snapshot());
  aggregate.update(-1, overIpc(courier.snapshot()));
  aggregate.update(0, overIpc(primary.snapshot()));
  const text = await aggregate.toPrometheus();
  assert.match(
    text,
    /^fanfare_webhooks_attempts_total\{endpoint="example.com",outcome="delivered"\} 2$/m,
  );
  const types = new Map(
    [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name, type]),
  );
  assert.equal(types.get('websocket_connections_total'), 'gauge');
  assert.equal(types.get('websocket_messages_total'), 'counter');
  assert.equal(types.get('websocket_errors_total'), 'counter');
  assert.equal(types.get('websocket_connection_rate'), 'gauge');
  assert.equal(types.get('websocket_message_duration_ms'), 'histogram');
  assert.equal(types.get('redis_publish_lag_ms'), 'histogram');
  for (const name of [
    'message_queue_depth',
    'nodejs_heap_used_bytes',
    'nodejs_heap_size_used_bytes',
    'process_open_fds',
    'nodejs_active_handles_total',
  ]) {
    assert.equal(types.get(name), 'gauge', name);
  }
  for (const { name, type } of [
    ...METRICS,
    ...WORKER_METRICS,
    ...PRIMARY_METRICS,
    ...COURIER_METRICS,
  ])
    assert.equal(types.get(name), type, name);
});

test('promtool reports faults of the fixed names only', {
  skip: spawnSync('promtool', ['--version']).error && 'no promtool here',
}, async () => {
  const aggregate = new Aggregate();
  aggregate.update(1, worker(0).snapshot());
  aggregate.update(2, worker(1).snapshot());
  aggregate.update(-1, overIpc(courier.snapshot()));
  aggregate.update(0, overIpc(primary.snapshot()));
  const { stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
    input: await aggregate.toPrometheus(),
    encoding: 'utf8',
  });
  const fixed = [
    'redis_publish_lag_ms',
    'websocket_connections_total',
    'websocket_message_duration_ms',
  ];
  const faults = `${stdout}${stderr}`
    .split('\n')
    .filter((line) => line !== '' && !fixed.includes(line.split(' ')[0]));
  // prom-client's own: gauges called _total.
  assert.deepEqual(
    faults.filter((line) => !line.startsWith('nodejs_active_')),
    [],
  );
});

test('a process without a free descriptor still returns its metrics', { skip: noPrlimit }, () => {
  const source = `
    import { openSync } from 'node:fs';
    import { createMetrics } from './src/observability/registry.js';
    import { createCounters } from './src/observability/counters.js';
    const { snapshot } = createMetrics(createCounters(), { worker: 0 });
    for (;;) try { openSync('/dev/null'); } catch ({ code }) { console.log(code); break; }
    const names = snapshot().map(({ form }) => form.name);
    process.exit(names.includes('nodejs_heap_used_bytes') ? 0 : 2);`;
  const args = ['--nofile=100:100', process.execPath, '--input-type=module', '--eval', source];
  const { status, stdout, stderr } = spawnSync('prlimit', args, { cwd: root, encoding: 'utf8' });
  assert.deepEqual([status, stdout], [0, 'EMFILE\n'], stderr);
});
