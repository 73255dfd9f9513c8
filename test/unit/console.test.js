import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { loadConfig } from '../../src/config/config.js';
import { consoleAccess } from '../../src/config/console.js';
import { LIMIT_MODES } from '../../src/config/settings.js';
import { Actions, MAX_TAILS } from '../../src/console/actions.js';
import { readAssets } from '../../src/console/assets.js';
import { CHART_METRICS, CHARTS } from '../../src/console/charts.js';
import { Console } from '../../src/console/console.js';
import { Gate } from '../../src/console/gate.js';
import { History, POINTS, quantile, SAMPLE_MS } from '../../src/console/history.js';
import { LIMIT_METRICS, LIMITS, limitsOf } from '../../src/console/limits.js';
import { Aggregate } from '../../src/observability/aggregate.js';
import { createCounters } from '../../src/observability/counters.js';
import { createMetrics } from '../../src/observability/registry.js';

/** @typedef {import('../../src/console/actions.js').Worker} Worker */

const SECRET = 'a'.repeat(40);

/** @param {Record<string, string>} [env] */
function configOf(env = {}) {
  const { config, faults } = loadConfig(env);
  assert.ok(config, faults.join('\n'));
  return config;
}

/** @param {Record<string, number>} totals @param {[number, Record<string, number>][]} [workers] */
function reading(totals, workers = []) {
  return {
    totals: new Map(Object.entries(totals)),
    workers: new Map(workers.map(([slot, values]) => [slot, new Map(Object.entries(values))])),
  };
}

/** @param {History} history @param {string} chart @param {string} name */
function valuesOf(history, chart, name) {
  return history.samplesSince(0).lines.find((line) => line.chart === chart && line.name === name)
    ?.values;
}

test('counters become rates a second, and the first sample has none', () => {
  const history = new History();
  history.addSample(
    2000,
    reading({ fanfare_deliveries_total: 50, websocket_connections_total: 3 }),
  );
  history.addSample(
    4000,
    reading({ fanfare_deliveries_total: 150, websocket_connections_total: 4 }),
  );
  assert.deepEqual(valuesOf(history, 'deliveries', 'deliveries'), [null, 50]);
  assert.deepEqual(valuesOf(history, 'connections', 'connections'), [3, 4]);
});

test('each label that has counted has a line, with the events of each sample', () => {
  const history = new History();
  history.addSample(2000, reading({}));
  const key = 'fanfare_admissions_refused_total';
  history.addSample(3000, reading({ [`${key}{per_ip}`]: 2, [`${key}{origin}`]: 0 }));
  assert.deepEqual(valuesOf(history, 'refusals', 'per_ip'), [null, 2]);
  assert.equal(valuesOf(history, 'refusals', 'origin'), undefined);
});

test('a worker has lines of its own, with gaps for the time before it started', () => {
  const history = new History();
  const memory = { process_resident_memory_bytes: 1000 };
  history.addSample(1000, reading({}, [[0, memory]]));
  history.addSample(
    2000,
    reading({}, [
      [0, memory],
      [1, memory],
    ]),
  );
  history.addSample(3000, reading({}, [[1, memory]]));
  assert.deepEqual(valuesOf(history, 'memory', 'worker 0'), [1000, 1000, null]);
  assert.deepEqual(valuesOf(history, 'memory', 'worker 1'), [null, 1000, 1000]);
});

test('quantiles come from the observations of one sample', () => {
  const history = new History();
  const name = 'fanfare_bus_round_trip_seconds';
  const counts = (/** @type {number} */ low, /** @type {number} */ high) =>
    reading({ [`${name}{0.001}`]: low, [`${name}{0.01}`]: high, [`${name}{+Inf}`]: high });
  history.addSample(1000, counts(100, 100));
  history.addSample(2000, counts(100, 200));
  history.addSample(3000, counts(100, 200));
  assert.deepEqual(valuesOf(history, 'bus', 'p50'), [null, 5.5, null]);
  assert.deepEqual(valuesOf(history, 'bus', 'p99'), [null, 9.91, null]);
});

test('a quantile in the last bucket is its lower bound', () => {
  const buckets = [
    { bound: 1, count: 1 },
    { bound: Number.POSITIVE_INFINITY, count: 10 },
  ];
  assert.equal(quantile(buckets, 0.99), 1);
  assert.ok(Number.isNaN(quantile([], 0.5)));
});

test('the history keeps 15 minutes, and a page reads only what is new to it', () => {
  const history = new History();
  const count = POINTS + 50;
  for (let i = 0; i < count; i++)
    history.addSample((i + 1) * SAMPLE_MS, reading({ websocket_connections_total: i }));
  const { times } = history.samplesSince(0);
  assert.equal(POINTS * SAMPLE_MS, 15 * 60_000);
  assert.equal(times.length, POINTS);
  assert.equal(times[0], 51 * SAMPLE_MS);
  assert.equal(valuesOf(history, 'connections', 'connections')?.at(-1), count - 1);
  assert.deepEqual(history.samplesSince(times[POINTS - 3]).times, times.slice(-2));
});

test('a clock that is set back neither turns the charts around nor changes their rates', () => {
  const history = new History();
  const times = [60_000, 63_000, 3000, 6000, 75_000];
  for (const [i, timeMs] of times.entries())
    history.addSample(timeMs, reading({ fanfare_deliveries_total: i * 30 }));
  assert.deepEqual(history.samplesSince(0).times, [60_000, 63_000, 66_000, 69_000, 75_000]);
  assert.deepEqual(
    history.samplesSince(0).lines.find(({ chart }) => chart === 'deliveries')?.values,
    [...[null, 10, 10, 10, 5]],
  );
});

test('samples that are further apart show no more than 15 minutes', () => {
  const history = new History();
  for (let i = 1; i <= POINTS; i++) history.addSample(i * 4 * SAMPLE_MS, reading({}));
  const { times } = history.samplesSince(0);
  assert.equal(times.at(-1), POINTS * 4 * SAMPLE_MS);
  assert.equal(times.length, POINTS / 4);
});

test('the console samples every 3 s, and every 12 s while nothing happens and nobody watches', async () => {
  const beat = { connections: 0, isSteady: true };
  const worker = { id: 1, slot: 0, state: 'ready', beat };
  let samples = 0;
  const page = new Console(
    /** @type {any} */ ({
      config: () => configOf(),
      workers: () => [worker],
      nextReady: () => undefined,
      collect: async () => samples++,
      aggregate: new Aggregate(),
    }),
  );
  let nowMs = 0;
  /** Samples in a minute. */
  const sampled = () => {
    const before = samples;
    for (const end = nowMs + 60_000; nowMs < end; nowMs += 1000) page.sampleIfDue(nowMs);
    return samples - before;
  };
  assert.equal(sampled(), 5);
  beat.connections = 1;
  assert.equal(sampled(), 20);
  beat.connections = 0;
  beat.isSteady = false;
  assert.equal(sampled(), 20);
  beat.isSteady = true;
  worker.state = 'draining';
  assert.equal(sampled(), 20);
  worker.state = 'ready';
  assert.equal(sampled(), 5);
  page.fleet.pageAsked(Date.now());
  assert.equal(sampled(), 20);
});

test('marks are kept as long as the samples', () => {
  const history = new History();
  history.mark(0, 'start', 'old');
  history.mark(POINTS * SAMPLE_MS + 1, 'restart', 'new');
  assert.deepEqual(
    history.samplesSince(0).marks.map(({ text }) => text),
    ['new'],
  );
});

test('a full history of a large server takes less than 5 MB', (t) => {
  setFlagsFromString('--expose-gc');
  const collect = /** @type {() => void} */ (runInNewContext('gc'));
  const used = () => {
    collect();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  const history = new History();
  /** @type {[number, Record<string, number>][]} */
  const workers = Array.from({ length: 1024 }, (_, slot) => [
    slot,
    { process_resident_memory_bytes: slot, fanfare_event_loop_lag_seconds: slot },
  ]);
  /** @param {number} count */
  const totals = (count) =>
    reading(
      Object.fromEntries(
        Array.from({ length: 1000 }, (_, i) => [`websocket_errors_total{code_${i}}`, count]),
      ),
      workers,
    );
  const beforeBytes = used();
  for (let i = 0; i < POINTS; i++) {
    history.addSample(i * SAMPLE_MS, totals(i));
    history.mark(i * SAMPLE_MS, 'restart', `worker ${i} died (SIGKILL)`);
  }
  const bytes = used() - beforeBytes;
  const { lines, marks } = history.samplesSince(0);
  assert.deepEqual([lines.length, marks.length], [500, 200]);
  t.diagnostic(`${(bytes / 1e6).toFixed(2)} MB`);
  assert.ok(bytes > 1e6 && bytes < 5e6, `${bytes} bytes`);
});

test('charts and limits read metrics that the workers have', async () => {
  const worker = createMetrics(createCounters(), { worker: 0 });
  const aggregate = new Aggregate();
  aggregate.update(1, worker.snapshot());
  const names = new Set([...CHART_METRICS, ...LIMIT_METRICS]);
  const totals = aggregate.totals(names);
  for (const name of names)
    assert.ok(
      [...totals.keys()].some((key) => key === name || key.startsWith(`${name}{`)),
      name,
    );
  for (const key of LIMITS.flatMap(({ acted, observed }) => [...acted, observed]))
    assert.ok(totals.has(key), key);
  assert.equal(new Set(CHARTS.map(({ id }) => id)).size, CHARTS.length);
  for (const { setting, acted, observed, mode } of limitsOf(configOf(), totals)) {
    assert.ok(acted === null || acted === 0, setting);
    assert.equal(observed, 0, setting);
    assert.equal(mode, 'enforce');
  }
  const config = configOf({ FANFARE_FRAMES_RATE: '60/min burst 7' });
  const frames = limitsOf(config, totals).find(({ setting }) => setting === 'FANFARE_FRAMES_RATE');
  assert.deepEqual([frames?.value, frames?.unit], [60, 'a minute, burst 7']);
});

test('each mode of a limit has a row in the table of limits', () => {
  const shown = LIMITS.map(({ limit }) => limit);
  // The mode of two limits over all servers; their rows have its consequences.
  const modes = LIMIT_MODES.map(({ limit }) => limit);
  assert.deepEqual([...new Set([...shown, 'fleet'])].sort(), modes.sort());
});

test('each file that the page or a script of it asks for is sent, packages included', async () => {
  const assets = readAssets();
  const imported = new Set();
  for (const [path, { headers, read }] of assets) {
    const text = String(await read());
    const isScript = headers['Content-Type'].startsWith('text/javascript');
    const pattern = isScript
      ? /^(?:import|export) ?(?:\{[^}]*\}|\w+)? ?from ?['"](.+?)['"]/gm
      : /(?:href|src)="(.+?)"/g;
    for (const [, asked] of text.matchAll(pattern)) {
      const wanted = new URL(asked, `http://localhost${path}`);
      assert.ok(assets.has(wanted.pathname), `${path} asks for ${asked}`);
      imported.add(wanted.pathname);
    }
  }
  for (const name of ['main', 'preact', 'htm', 'uplot', 'charts'])
    assert.ok(imported.has(`/console/${name}.js`), name);
});

test('without a key the console is open on loopback, and off elsewhere', () => {
  const access = (/** @type {Record<string, string>} */ env) => consoleAccess(configOf(env)).access;
  const key = { API_KEYS: `ops ${SECRET} console` };
  assert.equal(access({}), 'open');
  assert.equal(access({ METRICS_HOST: '::1' }), 'open');
  assert.equal(access({ METRICS_HOST: '0.0.0.0' }), 'off');
  assert.equal(access({ METRICS_HOST: '0.0.0.0', API_KEYS: `web ${SECRET} publish` }), 'off');
  assert.equal(access({ METRICS_HOST: '0.0.0.0', ...key }), 'key');
  assert.equal(access({ FANFARE_CONSOLE: 'key', ...key }), 'key');
  assert.equal(access({ FANFARE_CONSOLE: 'on' }), 'open');
  assert.equal(access({ FANFARE_CONSOLE: 'off' }), 'off');
});

test('a console that is ordered but has no key is a fault of the configuration', () => {
  const faults = (/** @type {Record<string, string>} */ env) => loadConfig(env).faults;
  assert.deepEqual(faults({ FANFARE_CONSOLE: 'on', METRICS_HOST: '0.0.0.0' }), [
    'FANFARE_CONSOLE: on, but no API key has the right "console" and METRICS_HOST 0.0.0.0 is not a loopback address',
  ]);
  assert.deepEqual(faults({ FANFARE_CONSOLE: 'key' }), [
    'FANFARE_CONSOLE: key, but no API key has the right "console"',
  ]);
});

/** @param {Record<string, string>} env @param {Record<string, string>} headers */
function admit(env, headers) {
  const config = configOf(env);
  const request = { headers: { host: 'localhost:9090', 'x-fanfare-console': '1', ...headers } };
  const found = new Gate(() => config).admitVisitor(
    /** @type {import('node:http').IncomingMessage} */ (/** @type {unknown} */ (request)),
  );
  return 'code' in found ? found.code : found.rights;
}

test('an open console refuses other hosts, other origins and requests without its header', () => {
  assert.ok(admit({}, {}).includes('publish'));
  for (const host of ['127.0.0.1', '127.0.0.1:9090', '[::1]:9090', 'LOCALHOST:9090'])
    assert.ok(admit({}, { host }).includes('publish'), host);
  for (const host of ['evil.example', '127.0.0.1.evil.example', 'localhost.evil.example', ''])
    assert.equal(admit({}, { host }), 'HOST_NOT_ALLOWED', host);
  assert.ok(admit({}, { origin: 'http://localhost:9090' }).includes('publish'));
  assert.equal(admit({}, { origin: 'http://localhost:3000' }), 'FOREIGN_REQUEST');
  assert.equal(admit({}, { origin: 'null' }), 'FOREIGN_REQUEST');
  assert.equal(admit({}, { 'sec-fetch-site': 'same-site' }), 'FOREIGN_REQUEST');
  assert.equal(
    admit({}, { 'x-fanfare-console': /** @type {any} */ (undefined) }),
    'FOREIGN_REQUEST',
  );
});

test('a closed console needs a key with the right console, and grants the rights of that key', () => {
  const env = {
    METRICS_HOST: '0.0.0.0',
    API_KEYS: `ops ${SECRET} console,history; web ${SECRET}b publish`,
  };
  const host = 'fanfare.internal:9090';
  assert.equal(admit(env, { host }), 'UNAUTHORIZED');
  assert.equal(admit(env, { host, authorization: `Bearer ${SECRET}x` }), 'UNAUTHORIZED');
  assert.equal(admit(env, { host, authorization: `Bearer ${SECRET}b` }), 'PERMISSION_DENIED');
  assert.deepEqual(admit(env, { host, authorization: `Bearer ${SECRET}` }), ['console', 'history']);
  assert.equal(admit({ METRICS_HOST: '0.0.0.0' }, { host }), 'CONSOLE_OFF');
});

/** A worker that keeps the messages it got. @param {number} [id] */
function fakeWorker(id = 1) {
  /** @type {any[]} */
  const sent = [];
  return { id, sent, send: (/** @type {any} */ message) => sent.push(message) };
}

const REQUEST = { route: 'rooms', params: {}, query: {}, body: '', rights: [], rooms: null };

test('a request goes to a ready worker, and its answer comes back', async () => {
  const worker = fakeWorker();
  const actions = new Actions(() => worker);
  const outcome = actions.run(REQUEST);
  const [{ type, id, request }] = worker.sent;
  assert.equal(type, 'operate');
  assert.equal(request, REQUEST);
  actions.receive({ type: 'operated', id, status: 200, body: '{}' });
  assert.deepEqual(await outcome, { status: 200, body: '{}' });
});

test('if the worker of a request exits, the outcome is unknown; its tails end', async () => {
  const worker = fakeWorker();
  const actions = new Actions(() => worker);
  let ended = 0;
  actions.tail('a', { onLines() {}, onEnd: () => ended++ });
  const outcome = actions.run(REQUEST);
  actions.gone(fakeWorker(2));
  assert.equal(ended, 0);
  actions.gone(worker);
  assert.equal((await outcome).status, 504);
  assert.equal(ended, 1);
});

test('without a ready worker a request is refused, and tails are bounded', async () => {
  assert.equal((await new Actions(() => undefined).run(REQUEST)).status, 503);
  const worker = fakeWorker();
  const actions = new Actions(() => worker);
  const listener = { onLines() {}, onEnd() {} };
  const stops = Array.from({ length: MAX_TAILS }, () => actions.tail('a', listener));
  assert.equal(actions.tail('a', listener), null);
  stops[0]?.();
  assert.equal(worker.sent.at(-1).type, 'untail');
  assert.ok(actions.tail('a', listener));
});
