import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { loadConfig } from '../../src/config/config.js';
import { Aggregate } from '../../src/observability/aggregate.js';
import { Snapshots } from '../../src/primary/snapshots.js';
import { LAST_REQUESTS_MS, Supervisor } from '../../src/primary/supervisor.js';
import { samples, until } from '../harness/server.js';
import { fallen } from '../helpers/counters.js';

const FIXTURE = fileURLToPath(new URL('../helpers/fixture-worker.js', import.meta.url));

/**
 * @param {Record<string, string>} env @returns {import('../../src/primary/supervisor.js').Settings}
 */
function settingsOf(env) {
  const all = {
    WORKERS: '2',
    FANFARE_DRAIN_DELAY_MS: '0',
    FANFARE_SHUTDOWN_TIMEOUT_MS: '3000',
    FANFARE_WORKER_TIMEOUT_MS: '1000',
    ...env,
  };
  const { FIXTURE: _, ...rest } = /** @type {Record<string, string>} */ (all);
  const { config, faults } = loadConfig(rest);
  if (!config) throw new Error(faults.join('; '));
  return { config, env: all, certificate: null };
}

/**
 * A supervisor over fixture workers, in this process.
 * @param {import('node:test').TestContext} t @param {Record<string, string>} [env]
 */
function supervise(t, env = {}) {
  /** @type {Record<string, any>[]} */
  const lines = [];
  const log = pino({ level: 'debug' }, { write: (line) => lines.push(JSON.parse(line)) });
  /** @type {(value: any) => void} */
  let onReady = () => {};
  const ready = new Promise((resolve) => (onReady = resolve));
  /** @type {(code: number) => void} */
  let onStopped = () => {};
  /** @type {Promise<number>} */
  const stopped = new Promise((resolve) => (onStopped = resolve));
  /**
   * The configuration that the next reload finds.
   * @type {{settings: import('../../src/primary/supervisor.js').Settings, faults: string[]}}
   */
  const next = { settings: settingsOf(env), faults: [] };
  const aggregate = new Aggregate();
  const sampled = new Aggregate();
  const supervisor = new Supervisor({
    settings: settingsOf(env),
    log,
    relayPath: '/nowhere',
    aggregate,
    console: { aggregate: sampled, names: new Set(['fixture_total']) },
    exec: FIXTURE,
    loadSettings: async () => ({ ...next }),
    onReady,
    onStopped,
  });
  t.after(async () => {
    const ends = [...supervisor.processes.values()].map((one) => one.ended);
    clearInterval(supervisor.timer);
    for (const timer of supervisor.replacements.values()) clearTimeout(timer);
    supervisor.kill();
    await Promise.all(ends);
  });
  supervisor.start();
  /** @param {string} text @param {number} [timeoutMs] */
  const logged = (text, timeoutMs) =>
    until(() => lines.find(({ msg }) => msg.includes(text)), timeoutMs, `the log line "${text}"`);
  const pids = () => supervisor.slots.map((one) => (one?.state === 'ready' ? one.pid : undefined));
  const allReady = () =>
    until(
      () => supervisor.readiness().ready === supervisor.settings.config.workers,
      20_000,
      'all ready',
    );
  return { supervisor, aggregate, sampled, lines, logged, ready, stopped, next, pids, allReady };
}

/** @param {number|undefined} pid @param {NodeJS.Signals} signal */
const kill = (pid, signal) => process.kill(/** @type {number} */ (pid), signal);

test('a worker that dies is replaced within two seconds, the others are left alone', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, ready, pids, allReady } = supervise(t);
  await ready;
  const before = pids();
  const killedMs = performance.now();
  kill(before[0], 'SIGKILL');
  await until(() => supervisor.readiness().ready === 1);
  await allReady();
  assert.ok(performance.now() - killedMs < 2000);
  assert.notEqual(pids()[0], before[0]);
  assert.equal(pids()[1], before[1]);
  assert.equal(supervisor.restarts, 1);
});

test('workers that die repeatedly are reported and do not end a server that still serves', {
  timeout: 30_000,
}, async (t) => {
  const { supervisor, ready, pids, allReady, logged, lines } = supervise(t);
  await ready;
  const survivor = pids()[1];
  for (let death = 1; death <= 5; death++) {
    const pid = pids()[0];
    kill(pid, 'SIGKILL');
    await until(() => pids()[0] !== pid);
    await until(() => pids()[0] !== undefined, 10_000, `the replacement after death ${death}`);
  }
  await allReady();
  const line = await logged('5 workers died within 60 s');
  assert.equal(line.level, 50);
  assert.equal(lines.filter(({ msg }) => msg.includes('workers died within')).length, 1);
  assert.equal(supervisor.deaths.isCrashLoop(), true);
  assert.equal(supervisor.isStopping, false);
  assert.deepEqual(supervisor.deaths.byCause, { crashed: 5, hung: 0, start: 0 });
  assert.equal(pids()[1], survivor);
});

test('workers that are all killed as hung are replaced and do not end the server', {
  timeout: 30_000,
}, async (t) => {
  const { supervisor, ready, pids, allReady } = supervise(t, {
    WORKERS: '5',
    FANFARE_WORKER_TIMEOUT_MS: '500',
  });
  await ready;
  const before = pids();
  for (const pid of before) kill(pid, 'SIGSTOP');
  await until(() => supervisor.deaths.byCause.hung === 5, 10_000, 'five deaths');
  await allReady();
  assert.ok(pids().every((pid) => !before.includes(pid)));
  assert.deepEqual(supervisor.deaths.byCause, { crashed: 0, hung: 5, start: 0 });
  assert.equal(supervisor.isStopping, false);
});

test('workers that cannot start end the server only when no other one serves', {
  timeout: 60_000,
}, async (t) => {
  const { supervisor, ready, stopped, pids, logged } = supervise(t);
  await ready;
  const [first, second] = pids();
  supervisor.settings = settingsOf({ FIXTURE: 'die' });
  kill(first, 'SIGKILL');
  await until(() => supervisor.deaths.byCause.start === 5, 30_000, 'five failed starts');
  assert.equal(supervisor.isStopping, false);
  assert.equal(pids()[1], second);
  kill(second, 'SIGKILL');
  assert.equal(await stopped, 1);
  await logged('giving up: no worker is serving, and the last');
});

test('after each further death the pause before the restart is longer', {
  timeout: 20_000,
}, async (t) => {
  const { ready, pids, allReady, lines } = supervise(t, { WORKERS: '1' });
  await ready;
  for (let death = 1; death <= 3; death++) {
    await allReady();
    const pid = pids()[0];
    kill(pid, 'SIGKILL');
    await until(() => pids()[0] !== pid);
  }
  await allReady();
  assert.deepEqual(
    lines.filter(({ msg }) => msg === 'replacing worker').map(({ afterMs }) => afterMs),
    [100, 200, 400],
  );
});

test('a first start that fails is fatal at once, and the error has the reason', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, stopped, logged } = supervise(t, { WORKERS: '1', FIXTURE: 'fail' });
  assert.equal(await stopped, 1);
  await logged('cannot start: listen EADDRINUSE');
  assert.equal(supervisor.restarts, 0);
});

test('a worker that is late to start ends the server, which names the file of hooks', {
  timeout: 20_000,
}, async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const env = { WORKERS: '1', FIXTURE: 'mute', FANFARE_HOOKS: FIXTURE };
  const { stopped, logged } = supervise(t, env);
  t.mock.timers.tick(15_500);
  t.mock.timers.reset();
  assert.equal(await stopped, 1);
  const { msg } = await logged('cannot start: not ready after 15500 ms');
  assert.ok(msg.includes(FIXTURE), msg);
});

test('a hung worker is killed and replaced', { timeout: 20_000 }, async (t) => {
  const { ready, pids, allReady, logged } = supervise(t, { WORKERS: '1' });
  await ready;
  const [hung] = pids();
  kill(hung, 'SIGSTOP');
  await logged('worker hung');
  await until(() => pids()[0] !== hung);
  await allReady();
});

test('a request of the console does not go to a silent worker, which may hang', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, ready, pids } = supervise(t, { FANFARE_WORKER_TIMEOUT_MS: '60000' });
  await ready;
  const [silent, other] = pids();
  kill(silent, 'SIGSTOP');
  const turns = () => [supervisor.nextReady()?.pid, supervisor.nextReady()?.pid];
  assert.deepEqual(turns().sort(), [silent, other].sort());
  await until(() => !turns().includes(silent), 8000);
  assert.deepEqual(turns(), [other, other]);
});

test('a silent worker that still reads and writes is left alone as busy; one that only loops is killed', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, ready, pids, logged, lines } = supervise(t);
  await ready;
  const [busy, stuck] = pids();
  // Both keep their event loop from turning: the first for three times the time-out, with system
  // calls.
  supervisor.slots[0]?.worker.send({ type: 'busy', ms: 3000 });
  supervisor.slots[1]?.worker.send({ type: 'stuck' });
  const line = await logged('worker hung');
  assert.equal(line.workerPid, stuck);
  await logged('worker is busy');
  await logged('busy worker responds again', 10_000);
  assert.equal(pids()[0], busy);
  assert.equal(lines.filter(({ msg }) => msg.includes('worker hung')).length, 1);
});

test('a busy worker is killed if its event loop does not turn for a long time', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, ready, pids, logged } = supervise(t, {
    WORKERS: '1',
    FANFARE_WORKER_TIMEOUT_MS: '500',
  });
  await ready;
  const [busy] = pids();
  supervisor.slots[0]?.worker.send({ type: 'busy', ms: 60_000 });
  await logged('worker is busy');
  const line = await logged('worker hung', 10_000);
  assert.equal(line.workerPid, busy);
});

test('a scrape does not wait for a hung worker longer than its second, and no counter falls', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, aggregate, ready, pids } = supervise(t, {
    FANFARE_WORKER_TIMEOUT_MS: '10000',
  });
  await ready;
  await supervisor.snapshots.collect();
  await supervisor.snapshots.collect();
  const before = await aggregate.toPrometheus();
  assert.deepEqual(supervisor.workersUp(), { 0: 1, 1: 1 });
  kill(pids()[1], 'SIGSTOP');
  const startedMs = performance.now();
  await supervisor.snapshots.collect();
  const tookMs = performance.now() - startedMs;
  // The worker is killed only after ten.
  assert.ok(tookMs > 900 && tookMs < 5000, `${tookMs} ms`);
  assert.deepEqual(supervisor.workersUp(), { 0: 1, 1: 0 });
  assert.deepEqual(fallen(before, await aggregate.toPrometheus()), []);

  // Its late answer is a newer snapshot, and no answer to a later question.
  kill(pids()[1], 'SIGCONT');
  await until(
    async () => samples(await aggregate.toPrometheus()).get('fixture_total') === 6,
    5000,
    'the late answer',
  );
  assert.deepEqual(supervisor.workersUp(), { 0: 1, 1: 0 });
});

test('the counts of an exited worker stay in the metrics', { timeout: 20_000 }, async (t) => {
  const { supervisor, aggregate, ready, pids, allReady } = supervise(t);
  await ready;
  await supervisor.snapshots.collect();
  const before = await aggregate.toPrometheus();
  kill(pids()[0], 'SIGKILL');
  await until(() => aggregate.last.size < 2, 5000, 'the departure');
  assert.deepEqual(fallen(before, await aggregate.toPrometheus()), []);
  await allReady();
  await supervisor.snapshots.collect();
  assert.equal(samples(await aggregate.toPrometheus()).get('fixture_total'), 1 + 2 + 1);
});

test('the console gets its own metrics alone, and keeps the counts of an exited worker', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, aggregate, sampled, ready, pids } = supervise(t);
  await ready;
  const all = new Set(['fixture_total', 'fixture_pid']);
  await supervisor.samples.collect();
  assert.deepEqual([...sampled.totals(all)], [['fixture_total', 2]]);
  assert.deepEqual([...aggregate.totals(all)], []);
  // Each collection has requests of its own: no answer to one replaces that to another.
  for (let i = 0; i < 3; i++) await supervisor.samples.collect();
  await supervisor.snapshots.collect();
  assert.equal(aggregate.totals(all).get('fixture_total'), 2 * 5);
  assert.deepEqual(supervisor.workersUp(), { 0: 1, 1: 1 });
  kill(pids()[0], 'SIGKILL');
  await until(() => sampled.last.size < 2, 5000, 'the departure');
  assert.equal(sampled.totals(all).get('fixture_total'), 2 * 4);
});

test('a collection tells the workers whether it is a scrape', async () => {
  /** @type {boolean[]} */
  const told = [];
  const one = /** @type {import('../../src/primary/worker-process.js').WorkerProcess} */ (
    /** @type {unknown} */ ({
      id: 1,
      state: 'ready',
      requestMetrics(
        /** @type {number} */ request,
        /** @type {null} */ _,
        /** @type {boolean} */ is,
      ) {
        told.push(is);
        snapshots.receive(one, request, []);
      },
    })
  );
  const snapshots = new Snapshots(new Aggregate(), new Map([[1, one]]));
  await snapshots.collect();
  await snapshots.collect({ isScrape: false });
  assert.deepEqual(told, [true, false]);
  // Scrapes share one collection, but not one that ends no period.
  await Promise.all([
    snapshots.collect({ isScrape: false }),
    snapshots.collect(),
    snapshots.collect(),
    snapshots.collect({ isScrape: false }),
  ]);
  assert.deepEqual(told.slice(2), [false, true]);
});

test('metrics of a worker that come long after its exit do not count twice', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const aggregate = new Aggregate();
  const snapshots = new Snapshots(aggregate, new Map());
  const channel = { isConnected: () => true, once: () => {} };
  const one = /** @type {import('../../src/primary/worker-process.js').WorkerProcess} */ (
    /** @type {unknown} */ ({ id: 1, worker: channel })
  );
  /** @type {import('../../src/observability/aggregate.js').Form} */
  const form = {
    name: 'fixture_total',
    help: '',
    type: 'counter',
    aggregator: 'sum',
    series: [{ labels: {} }],
  };
  const total = async () => samples(await aggregate.toPrometheus()).get('fixture_total');
  snapshots.receive(one, 1, [{ form, values: [3] }]);
  snapshots.depart(one);
  // Its last messages may still come, for a while.
  snapshots.receive(one, 0, [{ values: [5] }]);
  assert.equal(await total(), 5);
  t.mock.timers.tick(2000);
  snapshots.receive(one, 0, [{ form, values: [7] }]);
  snapshots.receive(one, 0, [{ values: [7] }]);
  assert.equal(await total(), 5);
});

test('a reload replaces the workers when all new ones are ready', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, ready, pids, logged } = supervise(t);
  await ready;
  const before = pids();
  let fewest = 2;
  let most = 0;
  const watch = setInterval(() => {
    fewest = Math.min(fewest, supervisor.readiness().ready);
    most = Math.max(most, supervisor.processes.size);
  }, 1);
  t.after(() => clearInterval(watch));
  supervisor.reload();
  await logged('reload complete');
  assert.equal(fewest, 2);
  assert.equal(most, 4);
  assert.ok(pids().every((pid) => pid && !before.includes(pid)));
  assert.equal(supervisor.restarts, 0);
  assert.equal(supervisor.reloads, 1);
});

test('a reload reports the longer of the old and the new reconnect window', {
  timeout: 20_000,
}, async (t) => {
  const windowOf = (/** @type {number} */ ms) =>
    settingsOf({ WORKERS: '1', FANFARE_RECONNECT_WINDOW_MS: String(ms) });
  const { supervisor, ready, stopped, next } = supervise(t, {
    WORKERS: '1',
    FANFARE_RECONNECT_WINDOW_MS: '1000',
  });
  await ready;
  /** @type {number[]} */
  const times = [];
  supervisor.observer = { onDrain: (returnMs) => times.push(returnMs) };
  for (const ms of [30_000, 2000]) {
    next.settings = windowOf(ms);
    supervisor.reload();
    await until(() => !supervisor.isRolling);
  }
  supervisor.stop(0);
  await stopped;
  assert.deepEqual(times, [LAST_REQUESTS_MS + 30_000, LAST_REQUESTS_MS + 30_000, 2000]);
});

test('several reload requests during a reload cause one more reload', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, ready } = supervise(t, { WORKERS: '1' });
  await ready;
  for (let i = 0; i < 4; i++) supervisor.reload();
  await until(() => !supervisor.isRolling);
  assert.equal(supervisor.reloads, 2);
});

test('a reload with a faulty configuration changes nothing', { timeout: 20_000 }, async (t) => {
  const { supervisor, ready, pids, logged, next } = supervise(t, { WORKERS: '1' });
  await ready;
  const before = pids();
  next.faults = ['FANFARE_X: unknown setting'];
  /** @type {string[]} */
  const marks = [];
  supervisor.observer = { onMark: (_kind, text) => marks.push(text) };
  supervisor.reload();
  const line = await logged('reload aborted: the new configuration');
  assert.deepEqual(line.faults, next.faults);
  assert.deepEqual(marks, ['Reload aborted: the new configuration is invalid, see the log']);
  assert.deepEqual(pids(), before);
  await until(() => !supervisor.isRolling);
  assert.equal(supervisor.hasReloadSucceeded, false);
  next.faults = [];
  supervisor.reload();
  await until(() => !supervisor.isRolling);
  assert.equal(supervisor.hasReloadSucceeded, true);
});

test('a reload whose new worker does not start leaves the old ones and their configuration', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, ready, pids, allReady, logged, next } = supervise(t, { WORKERS: '1' });
  await ready;
  const before = pids();
  next.settings = settingsOf({ WORKERS: '1', FIXTURE: 'die' });
  supervisor.reload();
  await logged('reload aborted: the new worker');
  await until(() => !supervisor.isRolling);
  assert.equal(supervisor.hasReloadSucceeded, false);
  assert.deepEqual(pids(), before);
  assert.deepEqual(supervisor.deaths.byCause, { crashed: 0, hung: 0, start: 0 });
  // A replacement gets the old configuration.
  kill(before[0], 'SIGKILL');
  await until(() => pids()[0] !== before[0]);
  await allReady();
});

test('a worker that dies during a reload is replaced as well', { timeout: 20_000 }, async (t) => {
  const { supervisor, ready, pids, allReady, next } = supervise(t, { WORKERS: '3' });
  await ready;
  const before = pids();
  next.settings = settingsOf({ WORKERS: '3', FIXTURE: 'mute' });
  supervisor.reload();
  await until(() => supervisor.processes.size === 4, 5000, 'the new worker');
  kill(before[0], 'SIGKILL');
  kill(before[2], 'SIGKILL');
  await until(
    () => pids()[2] !== before[2] && pids()[2] !== undefined,
    5000,
    'the replacement beside the roll',
  );
  // The one whose successor is being tried waits for it; the successor fails.
  const candidate = [...supervisor.processes.values()].find(
    (one) => one.state === 'starting' && one.slot === 0,
  );
  candidate?.kill();
  await allReady();
  assert.ok(!pids().includes(before[0]));
  assert.equal(pids()[1], before[1]);
});

test('a reload cancels the replacement of a worker that has just died', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, ready, pids, allReady, next } = supervise(t, { WORKERS: '1' });
  await ready;
  next.settings = settingsOf({ WORKERS: '1', FIXTURE: 'mute' });
  kill(pids()[0], 'SIGKILL');
  await until(() => supervisor.replacements.size === 1, 5000, 'the pause');
  supervisor.reload();
  await until(() => supervisor.successors.length === 1, 5000, 'the new worker');
  assert.equal(supervisor.replacements.size, 0);
  supervisor.successors[0].kill();
  await allReady();
});

test('a replacement that still starts when a reload takes over is killed, not drained', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, ready, pids, logged, next, lines } = supervise(t, { WORKERS: '1' });
  await ready;
  next.settings = settingsOf({ WORKERS: '1' });
  supervisor.settings = settingsOf({ WORKERS: '1', FIXTURE: 'mute' });
  kill(pids()[0], 'SIGKILL');
  await until(() => supervisor.slots[0]?.state === 'starting', 5000, 'the replacement');
  const { pid } = supervisor.slots[0] ?? {};
  supervisor.reload();
  await logged('reload complete');
  const exit = await until(() =>
    lines.find(({ workerPid, code }) => workerPid === pid && code === null),
  );
  assert.equal(exit.signal, 'SIGKILL');
  assert.equal(exit.msg, 'worker exited');
});

test('stop drains the workers and ends with 0', { timeout: 20_000 }, async (t) => {
  const { supervisor, ready, stopped, lines } = supervise(t);
  await ready;
  supervisor.stop(0);
  assert.equal(supervisor.readiness().draining, true);
  assert.equal(await stopped, 0);
  assert.equal(supervisor.processes.size, 0);
  assert.equal(lines.filter(({ msg, code }) => msg === 'worker exited' && code === 0).length, 2);
});

test('stop kills workers that do not exit in time, and ends with 1', {
  timeout: 20_000,
}, async (t) => {
  const { supervisor, ready, stopped, logged } = supervise(t, {
    WORKERS: '1',
    FIXTURE: 'stubborn',
    FANFARE_SHUTDOWN_TIMEOUT_MS: '1500',
  });
  await ready;
  const startedMs = performance.now();
  supervisor.stop(0);
  assert.equal(await stopped, 1);
  assert.ok(performance.now() - startedMs < 2500);
  await logged('did not exit in time');
});

test('stop during a reload ends all workers', { timeout: 20_000 }, async (t) => {
  const { supervisor, ready, stopped, next } = supervise(t);
  await ready;
  next.settings = settingsOf({ FIXTURE: 'mute' });
  supervisor.reload();
  await until(() => supervisor.processes.size === 3, 5000, 'the new worker');
  supervisor.stop(0);
  assert.equal(await stopped, 0);
  assert.equal(supervisor.processes.size, 0);
});

test('the fullest worker is ordered to relocate connections, and a reload interrupts that', {
  timeout: 30_000,
}, async (t) => {
  const { supervisor, ready, logged } = supervise(t, {
    FIXTURE: 'uneven',
    FANFARE_RECONNECT_WINDOW_MS: '0',
    FANFARE_REBALANCE_SKEW_PERCENT: '120',
  });
  await ready;
  const orders = supervisor.slots.map((one) => {
    assert.ok(one);
    /** @type {import('../../src/worker/control-messages.js').ToWorker[]} */
    const sent = [];
    const send = one.send.bind(one);
    one.send = (message) => {
      if (message.type === 'rebalance') sent.push(message);
      send(message);
    };
    return sent;
  });
  await until(() => orders[0].length > 0);
  assert.deepEqual(orders[0][0], { type: 'rebalance', connections: 10 });
  assert.deepEqual(orders[1], []);
  assert.equal(supervisor.skew().toFixed(2), '1.82');
  supervisor.reload();
  await logged('rebalance interrupted');
  await logged('reload complete');
  assert.equal(supervisor.balancer.results.abandoned, 0);
});
