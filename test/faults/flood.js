// flood.js: checks that a flood of any kind does not affect other clients.
//
// A server with default limits and two workers, on the embedded broker. For each kind in turn,
// ADDRESSES × CONNECTIONS sockets flood it, while fifty well-behaved clients exchange twenty
// messages a second. Required of each kind: no worker is replaced, all fifty stay connected, their
// p99 stays under P99_MS, few newcomers are turned away, and the workers' memory returns. Prints a
// Markdown table; the exit code is 1 if a line fails a requirement.
//
// Floods run at the lowest priority (flood/flooder.js), because here they share the server's
// processors.

import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import { readOptions } from '../harness/options.js';
import { pause } from '../harness/run.js';
import { startServer } from '../harness/server.js';
import { writeApps } from '../helpers/pusher.js';
import { APP, KEPT_ROOM, KINDS } from './flood/kinds.js';

const API_KEY = randomBytes(32).toString('hex');

const WORKERS = 2;
const FLOODERS = 2;
const P99_MS = 500;
/** One in twenty newcomers may be refused with `retryAfter` during the flood. */
const MAX_REFUSED_SHARE = 0.05;
/**
 * The bound of a worker's resident memory after a flood: 1.5 times the start, plus the reserve of
 * the heaps.
 */
const MAX_GROWTH = 1.5;
const SLACK_MB = 64;
/** A flood has been over for so long at most when memory is looked at. */
const SETTLE_MS = 30_000;
const SAMPLE_MS = 500;
const WARM_UP_MS = 3000;
/** Time for messages in flight when publishing ends. */
const ARRIVE_MS = 3000;
/** Time for a flooder to stop, at the lowest priority. */
const STOP_MS = 30_000;

/** @typedef {import('./flood/honest.js').Honest} Honest */
/** @typedef {import('./flood/flooder.js').FastHistogram} FastHistogram */
/** @typedef {import('../harness/server.js').Server} Server */
/**
 * @typedef
 *   {{server: Server, honest: import('node:child_process').ChildProcess, startMb: number, hasWebhooks: boolean, cleanups: (() => unknown)[]}}
 *   Stage
 */

const { values, given } = readOptions(
  `Floods of each kind, beside clients that must not notice.

  node test/run.js flood
  node test/run.js flood --seconds 20 --only pongs,pings`,
  `seconds S | number 1..3600 | 120 | duration of each kind
  only LIST | list of ${Object.keys(KINDS).join(' ')} | | kinds
  addresses N | whole 1..250 | 20 | source addresses
  connections N | whole 1..1000 | 100 | connections of each address
  verbose | | | prints what went wrong`,
  { tail: `kinds: ${Object.keys(KINDS).join(', ')}` },
);
const { seconds, addresses, connections } = values;
/** @type {string[]} */
const kinds = given.has('only') ? values.only : Object.keys(KINDS);

/** The one that is up. @type {Stage|null} */
let stage = null;
let failed = false;
try {
  console.log(
    `${addresses} addresses × ${connections} connections, ${seconds} s each; ${WORKERS} workers, Node ${process.version}\n`,
  );
  console.log(
    '| flood | connections | MB sent | closed | p50 ms | p99 ms | max ms | missing | disconnected | newcomers refused | workers replaced | RSS MB start, peak, after | |',
  );
  console.log('|---|---:|---:|---|---:|---:|---:|---:|---:|---|---:|---|---|');
  for (const [i, kind] of kinds.entries()) {
    if (stage !== null && stage.hasWebhooks !== (KINDS[kind].hasWebhooks ?? false)) {
      await tearDown(stage);
      stage = null;
    }
    stage ??= await setUp(KINDS[kind].hasWebhooks ?? false);
    if (KINDS[kind].reads) await fillRoom(stage.server);
    const { row, faults } = await flood(stage, kind, i);
    failed ||= faults.length > 0;
    console.log(
      `| ${row.join(' | ')} | ${faults.length === 0 ? 'ok' : `FAILED: ${faults.join(', ')}`} |`,
    );
    // A server that has ended, or has lost a client, can't be used for the next kind.
    if (faults.length > 0) {
      await tearDown(stage);
      stage = null;
    }
  }
} finally {
  if (stage !== null) await tearDown(stage);
}
process.exit(failed ? 1 : 0);

/** @param {boolean} hasWebhooks @returns {Promise<Stage>} */
async function setUp(hasWebhooks) {
  /** @type {(() => unknown)[]} */
  const cleanups = [];
  const t = /** @type {any} */ ({
    after: (/** @type {() => unknown} */ cleanup) => cleanups.push(cleanup),
  });
  // As an operator would start it: empty means the default.
  const server = await startServer(t, {
    WORKERS: String(WORKERS),
    FANFARE_MAX_LOOP_LAG_MS: '',
    FANFARE_PUSHER_APPS: await appsFile(t, hasWebhooks),
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*',
    FANFARE_HISTORY: `${KEPT_ROOM}=100/300s`,
    API_KEYS: `flood ${API_KEY} all`,
    NODE_ENV: 'production',
  });
  const honest = fork(fileURLToPath(new URL('flood/honest.js', import.meta.url)), {
    serialization: 'advanced',
  });
  cleanups.push(() => honest.kill());
  const joined = once(honest, 'message');
  honest.send({ port: server.port, say: 'come' });
  await joined;
  honest.send({ say: 'begin' });
  await pause(WARM_UP_MS);
  honest.send({ say: 'end' });
  const startMb = Math.max(...residentMb(server.workerPids()));
  return { server, honest, startMb, hasWebhooks, cleanups };
}

/**
 * The app, and perhaps a backend that takes its webhooks.
 * @param {import('../harness/server.js').Owner} t @param {boolean} hasWebhooks
 */
async function appsFile(t, hasWebhooks) {
  const webhooks = [];
  if (hasWebhooks) {
    const backend = createServer((request, response) => {
      request.resume().on('end', () => response.end());
    }).listen(0, '127.0.0.1');
    t.after(() => backend.close());
    await once(backend, 'listening');
    const { port } = /** @type {import('node:net').AddressInfo} */ (backend.address());
    const events = ['cache_miss', 'channel_occupied', 'channel_vacated'];
    webhooks.push({ url: `http://127.0.0.1:${port}/`, events });
  }
  return writeApps(t, [{ ...APP, secret: randomBytes(32).toString('hex'), webhooks }]);
}

/** Publishes 800 KB, so that they are recent when the flood begins. @param {Server} server */
async function fillRoom({ port }) {
  for (let i = 0; i < 100; i++) {
    const body = JSON.stringify({ room: KEPT_ROOM, payload: 'x'.repeat(8000) });
    const headers = { Authorization: `Bearer ${API_KEY}`, 'Content-Type': 'application/json' };
    const url = `http://127.0.0.1:${port}/api/publish`;
    const { ok, status } = await fetch(url, { method: 'POST', headers, body });
    if (!ok) throw new Error(`POST /api/publish: ${status}`);
  }
}

/** @param {Stage} stage */
async function tearDown({ cleanups }) {
  for (const cleanup of cleanups.reverse()) await cleanup();
}

/**
 * One kind, from before to after.
 * @param {Stage} stage
 * @param {string} kind
 * @param {number} index it has addresses of its own, because an earlier flood has used up the
 *   limits of its addresses
 */
async function flood({ server, honest, startMb }, kind, index) {
  const before = server.workerPids();
  const linesBefore = server.lines.length;
  const flooders = Array.from({ length: FLOODERS }, () =>
    fork(fileURLToPath(new URL('flood/flooder.js', import.meta.url))),
  );
  flooders.forEach((flooder, i) => {
    const own = Array.from({ length: addresses }, (_, n) => `127.0.${10 + index}.${n + 1}`);
    const order = {
      kind,
      port: server.port,
      connections,
      addresses: own.filter((_, n) => n % FLOODERS === i),
    };
    flooder.send(order);
  });
  honest.send({ say: 'begin' });
  let peakMb = 0;
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    peakMb = Math.max(peakMb, ...residentMb(server.workerPids()));
    await pause(SAMPLE_MS);
  }
  honest.send({ say: 'end' });
  await pause(ARRIVE_MS);
  const tallies = await Promise.all(flooders.map(stopFlooder));
  const boundMb = startMb * MAX_GROWTH + SLACK_MB;
  const settled = performance.now() + SETTLE_MS;
  let afterMb = Math.max(...residentMb(server.workerPids()));
  while (afterMb > boundMb && performance.now() < settled) {
    await pause(SAMPLE_MS);
    afterMb = Math.max(...residentMb(server.workerPids()));
  }
  // Asked last: a worker that hung in the flood may have been killed since.
  const [seen] = /** @type {[Honest]} */ (await ask(honest, { say: 'report' }));
  const replaced = before.filter((pid) => !server.workerPids().includes(pid)).length;
  if (values.verbose) {
    for (const line of server.lines.slice(linesBefore))
      if (line.level >= 40) console.error(JSON.stringify(line));
    console.error(JSON.stringify({ ...seen, tallies }));
  }
  const deaths = Math.max(
    replaced,
    server.lines.slice(linesBefore).filter(({ msg }) => msg === 'worker died').length,
  );
  const refused = sum(Object.values(seen.refused));
  const faults = [];
  if (deaths > 0) faults.push('a worker was replaced');
  if (seen.disconnected > 0) faults.push('a well-behaved client was disconnected');
  if (!(seen.p99 < P99_MS)) faults.push('p99');
  if (sum(Object.values(seen.errors)) > 0) faults.push(`told ${Object.keys(seen.errors).join()}`);
  if (refused > seen.newcomers * MAX_REFUSED_SHARE) faults.push('newcomers were refused');
  if (!(afterMb <= boundMb)) faults.push(`memory is above ${boundMb.toFixed(0)} MB`);
  const row = [
    KINDS[kind].name,
    sum(tallies.map(({ connects }) => connects)),
    (sum(tallies.map(({ bytes }) => bytes)) / 1e6).toFixed(1),
    listed(merged(tallies.map(({ ends }) => ends))),
    seen.p50.toFixed(1),
    seen.p99.toFixed(1),
    seen.max.toFixed(0),
    seen.missing,
    `${seen.disconnected} ${listed(seen.closes)}`,
    `${refused} of ${seen.newcomers} ${listed(seen.refused)}`,
    deaths,
    [startMb, peakMb, afterMb].map((mb) => mb.toFixed(0)).join(', '),
  ];
  return { row, faults };
}

/** @param {import('node:child_process').ChildProcess} flooder @returns {Promise<FastHistogram>} */
async function stopFlooder(flooder) {
  const gone = once(flooder, 'exit');
  const timer = setTimeout(() => flooder.kill('SIGKILL'), STOP_MS);
  /** @type {FastHistogram} */
  let tally = { connects: 0, opened: 0, bytes: 0, ends: {} };
  flooder.on('message', (/** @type {FastHistogram} */ message) => {
    tally = message;
  });
  flooder.send('stop');
  await gone;
  clearTimeout(timer);
  return tally;
}

/** @param {import('node:child_process').ChildProcess} child @param {object} question */
function ask(child, question) {
  const answer = once(child, 'message');
  child.send(question);
  return answer;
}

/** Resident memory of each process. @param {readonly number[]} pids */
function residentMb(pids) {
  return pids.map((pid) => {
    try {
      return (
        Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1024
      );
    } catch {
      return 0; // it is gone
    }
  });
}

/** @param {readonly Record<string, number>[]} all */
function merged(all) {
  /** @type {Record<string, number>} */
  const total = {};
  for (const counts of all)
    for (const [key, n] of Object.entries(counts)) total[key] = (total[key] ?? 0) + n;
  return total;
}

/** @param {Record<string, number>} counts */
function listed(counts) {
  return Object.entries(counts)
    .sort(([, a], [, b]) => b - a)
    .map(([key, n]) => `${key} × ${n}`)
    .join(', ');
}

/** @param {readonly number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, n) => total + n, 0);
}
