// hooks.js: what an onConnect costs: none, a function, a backend over HTTP.
//
//   node loadtest/bench/hooks.js                  handshakes a second, one after the other for each client
//   node loadtest/bench/hooks.js --part storm     5,000 at once, and a backend that answers 200 at once
//
// Server, backend and clients share the cores of this machine. So compare the kinds with each other.
// The table at the end has the median rate of the rounds (docs/hooks-http.md).

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BUCKETS, bucketOf, percentileMs } from '../../test/harness/latency.js';
import { readOptions } from '../../test/harness/options.js';
import { count, run } from '../../test/harness/run.js';
import { NO_LIMITS, scrape, startServer, urlOf } from '../../test/harness/server.js';
import { HandshakeError, WsClient } from '../../test/harness/ws-client.js';
import { markdownTable, median, show } from '../lib/figures.js';
import { cpuSecondsOf } from './machine.js';

const BACKEND = fileURLToPath(new URL('hooks-backend.js', import.meta.url));
const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const WARM_UP_MS = 3000;

const { values } = readOptions(
  'Measures handshakes with an onConnect.',
  `part NAME | one of rate storm | rate | steady handshakes, or all at once
  kinds LIST | list of none file http kept | none,file,http,kept | hooks; kept: answers are used again
  rounds N | whole 1..20 | 3 | rounds of the rate, the kinds in turns
  seconds S | number 1..60 | 4 | time of a round
  clients N | whole 1..10000 | 100 | clients of the rate, each with one handshake at a time
  connections N | whole 1..50000 | 5000 | connections of the storm
  workers N | whole 1..64 | 2 | processes with connections
  ms MS | number 0..1000 | 5 | time that the hook takes
  allowed N | whole 1..100000 | 200 | requests that the backend answers at once; others get 503`,
);
const { part, kinds, rounds, seconds, clients, connections, workers, ms, allowed } = values;

/** @param {import('../../test/harness/run.js').Run} test @param {string} kind */
async function start(test, kind) {
  const backend = fork(
    BACKEND,
    [ms, part === 'storm' ? allowed : 1e5, kind === 'kept' ? 60 : 0].map(String),
  );
  test.after(() => backend.kill());
  const [{ port }] = await once(backend, 'message');
  const folder = await mkdtemp(join(tmpdir(), 'fanfare-hooks-'));
  test.after(() => rm(folder, { recursive: true }));
  const file = join(folder, 'hooks.mjs');
  await writeFile(
    file,
    `import { setTimeout } from 'node:timers/promises';
     export async function onConnect() { await setTimeout(${ms}); return true; }`,
  );
  const hooks = kind === 'file' ? file : `http://127.0.0.1:${port}/`;
  const list = join(folder, 'hooks.json');
  await writeFile(list, JSON.stringify([{ url: hooks, hooks: ['onConnect'] }]));
  /** @type {Record<string, string>} */
  const env = {
    none: {},
    file: { FANFARE_HOOKS: file },
  }[kind] ?? { FANFARE_HOOKS: list, FANFARE_HOOKS_SECRET: SECRET };
  const calls = { FANFARE_HOOK_CALLS: String(Math.ceil(allowed / workers)) };
  const server = await startServer(test, {
    ...{ ...NO_LIMITS, WORKERS: String(workers) },
    ...env,
    ...(part === 'storm' && kind !== 'none' ? calls : {}),
  });
  const figures = async () => {
    backend.send('figures');
    return (await once(backend, 'message'))[0];
  };
  const pids = { workers: server.workerPids(), backend: [Number(backend.pid)] };
  return { server, url: new URL(urlOf(server)), figures, pids };
}

/** @param {URL} url @param {number} endMs @param {(ms: number) => void} onOpen */
async function openAndClose(url, endMs, onOpen) {
  while (performance.now() < endMs) {
    const beganMs = performance.now();
    const client = await new WsClient(url).open();
    onOpen(performance.now() - beganMs);
    client.destroy();
  }
}

/** @param {import('../../test/harness/run.js').Run} test @param {string} kind */
async function startKind(test, kind) {
  const { url, pids, figures } = await start(test, kind);
  const latencies = new Float64Array(BUCKETS);
  const cpuS = { workers: 0, backend: 0 };
  return { url, pids, figures, latencies, cpuS, all: 0, rates: /** @type {number[]} */ ([]) };
}

/** One round. @param {Awaited<ReturnType<typeof startKind>>} one */
async function measureRound(one) {
  const warmMs = performance.now() + WARM_UP_MS;
  const endMs = warmMs + 1000 * seconds;
  let opens = 0;
  const onOpen = (/** @type {number} */ tookMs) => {
    one.all++;
    if (performance.now() < warmMs) return;
    opens++;
    one.latencies[bucketOf(1000 * tookMs)]++;
  };
  const cpuS = () => [cpuSecondsOf(one.pids.workers), cpuSecondsOf(one.pids.backend)];
  const [workers, backend] = cpuS();
  await Promise.all(Array.from({ length: clients }, () => openAndClose(one.url, endMs, onOpen)));
  one.cpuS.workers += cpuS()[0] - workers;
  one.cpuS.backend += cpuS()[1] - backend;
  one.rates.push(Math.round(opens / seconds));
}

/** @param {import('../../test/harness/run.js').Run} test */
async function measureRate(test) {
  /** @type {[string, Awaited<ReturnType<typeof startKind>>][]} */
  const all = [];
  for (const kind of kinds) all.push([kind, await startKind(test, kind)]);
  for (let round = 0; round < rounds; round++) for (const [, one] of all) await measureRound(one);
  const rows = [];
  for (const [kind, { rates, latencies, cpuS, figures, all: opens }] of all) {
    const [p50, p99] = [0.5, 0.99].map((share) => percentileMs(latencies, share).toFixed(1));
    const isMet = Math.min(...rates) > 0;
    test.check(`${kind}: handshakes/s in each round`, '> 0', rates.join(' '), isMet);
    test.note('ms of a handshake, p50 and p99', `${p50} ${p99}`);
    const us = [cpuS.workers, cpuS.backend].map((s) => Math.round((1e6 * s) / opens));
    test.note('us of CPU for each, workers and backend', us.join(' '));
    const { requests, connections: made } = await figures();
    test.note('backend: requests, connections', `${requests} ${made}`);
    const [workersMs, backendMs] = us.map((one) => show(one / 1000, 2));
    rows.push([kind, show(median(rates)), `${workersMs}, ${backendMs}`, p50, p99]);
  }
  const head = [
    'onConnect',
    'handshakes/s',
    'CPU for each, ms: workers, backend',
    'p50, ms',
    'p99, ms',
  ];
  console.log(`\n${markdownTable(head, rows, 1).join('\n')}\n`);
}

/** @param {import('../../test/harness/run.js').Run} test */
async function measureStorm(test) {
  for (const kind of kinds) {
    const { server, url, figures } = await start(test, kind);
    await new WsClient(url).open();
    const beganMs = performance.now();
    const open = Array.from({ length: connections }, () => new WsClient(url));
    const results = await Promise.allSettled(open.map((client) => client.open()));
    const tookMs = performance.now() - beganMs;
    const refused = results.filter(({ status }) => status === 'rejected');
    const reasons = refused.map((one) => /** @type {PromiseRejectedResult} */ (one).reason);
    const isFair = reasons.every(
      (error) => error instanceof HandshakeError && error.status === 503,
    );
    test.check(`${kind}: every client connects or gets 503`, 'true', isFair);
    test.note(
      'connected, refused',
      `${count(connections - refused.length)}, ${refused.length} in ${Math.round(tookMs)} ms`,
    );
    const { requests, refused: over, most } = await figures();
    test.note('backend: requests, most at once, over its limit', `${requests}, ${most}, ${over}`);
    const { values: samples } = await scrape(server.metricsPort);
    for (const [name, value] of samples)
      if (name.startsWith('fanfare_hook_failures_total') && value > 0) test.note(name, value);
    for (const client of open) client.destroy();
    server.kill('SIGKILL');
  }
}

await run(`onConnect of ${ms} ms: ${part}`, part === 'rate' ? measureRate : measureStorm, 600_000);
