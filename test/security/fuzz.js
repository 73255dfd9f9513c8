// fuzz.js: sends nearly valid bytes to every input of the server, for as long as you like.
//
// The targets of fuzz/targets.js run in this process; `server` is a real server with two workers,
// its sockets, and an honest client beside them. A failure is minimized and printed with its
// seed. An input with a new kind of outcome joins the corpus of its run; with `--keep` short ones
// join that of test/security/corpus/ as well. Exit code 1 if anything failed.

import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { readOptions } from '../harness/options.js';
import { childrenOf, samples, startServer, until } from '../harness/server.js';
import { handshake } from '../helpers/raw-http.js';
import { numbersFrom, planFrom } from './fuzz/mutate.js';
import { TARGETS } from './fuzz/targets.js';
import { Wire } from './wire.js';

const BATCH = 64;
const MAX_FAILURES = 3;
/** The bound of a run's corpus. Kinds are few, and one input of each kind is enough. */
const MAX_ENTRIES = 1000;
const MAX_KEPT = 10;
const MAX_KEPT_BYTES = 400;
/** One in this number of executions is a connection to the real server. */
const SERVER_SHARE = 0.02;
const SERVER_CONNECTIONS = 50;
const SERVER_STAY_MS = 100;
const SERVER_PATIENCE_MS = 5000;
/** Resident memory of a worker after all of it. */
const SERVER_MAX_MB = 300;

/** @typedef {import('./fuzz/parts.js').Target} Target */
/** @typedef {import('./fuzz/parts.js').Running} Running */
/** @typedef {import('./fuzz/mutate.js').Plan} Plan */

const { values, given } = readOptions(
  `Nearly valid bytes for every input of the server.

  node test/run.js fuzz
  node test/run.js fuzz --executions 10000 --only frames,commands`,
  `executions N | whole 1.. | 1000000 | in all
  seed S | whole 0.. | ${Date.now() % 1_000_000} | draws the mutations
  only LIST | list of ${TARGETS.map(({ name }) => name).join(' ')} server | | targets
  keep | | | adds short inputs with a new kind of outcome to test/security/corpus/`,
  { tail: `targets: ${TARGETS.map(({ name }) => name).join(', ')}, server` },
);
const { executions, seed } = values;
const only = given.has('only') ? new Set(values.only) : null;
const chosen = TARGETS.filter(({ name }) => only?.has(name) ?? true);

let failures = 0;
/** @type {unknown[]} */
const escaped = [];
process.on('uncaughtException', (error) => escaped.push(error));
process.on('unhandledRejection', (error) => escaped.push(error));

console.log(`seed ${seed}\n`);
console.log('| target | executions | a second | kinds of outcome | heap MB | failures |');
console.log('|---|---:|---:|---:|---:|---:|');
const shares = chosen.reduce((sum, { share }) => sum + share, 0);
let total = 0;
const began = performance.now();
for (const target of chosen)
  total += await fuzz(target, Math.ceil((executions * target.share) / shares));
if (only === null || only.has('server'))
  total += await fuzzServer(Math.ceil(executions * SERVER_SHARE));
const tookS = (performance.now() - began) / 1000;
console.log(`\n${total} executions in ${tookS.toFixed(0)} s, ${failures} failures`);
process.exit(failures > 0 ? 1 : 0);

/**
 * @param {Target} target
 * @param {number} count
 * @returns {Promise<number>} how many there were
 */
async function fuzz(target, count) {
  const { name, corpus } = target;
  const next = numbersFrom(seed);
  /** @type {Map<string, number>} */
  const kinds = new Map();
  /** @type {Buffer[]} */
  const kept = [];
  let running = await target.start();
  let failed = 0;
  let done = 0;
  const start = performance.now();
  while (done < count && failed < MAX_FAILURES) {
    /** @type {Plan[]} */
    const plans = [];
    while (plans.length < Math.min(BATCH, count - done)) plans.push(planFrom(next));
    const inputs = plans.map((plan) => corpus.mutated(plan));
    const numbers = plans.map(next);
    try {
      const outcomes = await run(running, inputs, numbers);
      for (const [i, kind] of outcomes.entries()) {
        if (!kinds.has(kind) && corpus.entries.length < MAX_ENTRIES) {
          corpus.entries.push(inputs[i]);
          if (kept.length < MAX_KEPT && inputs[i].length < MAX_KEPT_BYTES) kept.push(inputs[i]);
        }
        kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
      }
    } catch (error) {
      failed++;
      running = await explain(target, plans, numbers, error);
    }
    done += plans.length;
  }
  const seconds = (performance.now() - start) / 1000;
  await running.close();
  failures += failed;
  if (values.keep && kept.length > 0) keep(target, kept);
  const heapMb = process.memoryUsage().heapUsed / 2 ** 20;
  console.log(
    `| ${name} | ${done} | ${(done / seconds).toFixed(0)} | ${kinds.size} | ${heapMb.toFixed(0)} | ${failed} |`,
  );
  return done;
}

/** @param {Running} running @param {readonly Buffer[]} inputs @param {readonly number[]} numbers */
async function run(running, inputs, numbers) {
  const outcomes = await running.run(inputs, numbers);
  // Targets put work off, as streams do. Without a turn of the event loop it would pile up.
  await turn();
  if (escaped.length > 0) throw escaped.splice(0)[0];
  return outcomes;
}

/**
 * Finds the failing input of a batch, and the steps that it needs.
 * @param {Target} target
 * @param {readonly Plan[]} plans
 * @param {readonly number[]} numbers
 * @param {unknown} error
 * @returns {Promise<Running>} a fresh one
 */
async function explain(target, plans, numbers, error) {
  /**
   * @param {Plan} plan
   * @param {number} n
   * @returns {Promise<unknown>} the error; null if there is none
   */
  const fault = async (plan, n) => {
    const running = await target.start();
    try {
      await run(running, [target.corpus.mutated(plan)], [n]);
      return null;
    } catch (error) {
      return error;
    } finally {
      await running.close();
      await turn();
      escaped.length = 0;
    }
  };
  for (const [i, whole] of plans.entries()) {
    let plan = whole;
    let found = await fault(plan, numbers[i]);
    if (found === null) continue;
    for (let k = plan.steps.length - 1; k >= 0; k--) {
      const shorter = { entry: plan.entry, steps: plan.steps.filter((_, at) => at !== k) };
      const same = await fault(shorter, numbers[i]);
      if (same !== null) [plan, found] = [shorter, same];
    }
    const input = target.corpus.mutated(plan).toString('latin1');
    console.error(`\n${target.name}: ${JSON.stringify(input)}\ncut by ${numbers[i]}\n`, found);
    return target.start();
  }
  console.error(`\n${target.name}: a batch failed of which none fails alone\n`, error);
  return target.start();
}

/** @param {Target} target @param {readonly Buffer[]} inputs */
function keep({ name, file }, inputs) {
  const json = JSON.parse(readFileSync(file, 'utf8'));
  for (const input of inputs) {
    const text = input.toString('latin1');
    if (!Object.values(json.seeds).includes(text))
      json.seeds[`kept ${Object.keys(json.seeds).length}`] = text;
  }
  writeFileSync(file, `${JSON.stringify(json, null, 2)}\n`);
  console.error(`kept ${inputs.length} inputs of ${name}`);
}

/** The sockets of a real server. @param {number} count @returns {Promise<number>} */
async function fuzzServer(count) {
  const frames = /** @type {Target} */ (TARGETS.find(({ name }) => name === 'frames'));
  const http = /** @type {Target} */ (TARGETS.find(({ name }) => name === 'HTTP heads'));
  const next = numbersFrom(seed);
  /** @type {(() => unknown)[]} */
  const cleanups = [];
  const t = /** @type {any} */ ({
    after: (/** @type {() => unknown} */ cleanup) => cleanups.push(cleanup),
  });
  const faults = [];
  const server = await startServer(t, {
    FANFARE_LIMITS: 'off',
    FANFARE_HISTORY: 'h.*=10/60s',
    FANFARE_PRESENCE: 'p.*',
  });
  const workers = server.workerPids();
  const honest = await new Wire(server.port).opened();
  let isOver = false;
  let slowestMs = 0;
  const talking = (async () => {
    for (let id = 0; !isOver; id++) {
      const asked = performance.now();
      await honest.ask({ type: 'echo', payload: id });
      slowestMs = Math.max(slowestMs, performance.now() - asked);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })().catch((error) => faults.push(`the honest client: ${error.message}`));
  const start = performance.now();
  let done = 0;
  /** @type {Map<string, number>} */
  const kinds = new Map();
  const one = () =>
    /** @type {Promise<void>} */ (
      new Promise((resolve) => {
        const socket = connect({ port: server.port, host: '127.0.0.1' });
        const isHttp = next() % 3 === 0;
        const bytes = (isHttp ? http : frames).corpus.mutated(planFrom(next));
        const at = next() % (bytes.length + 1);
        const way = next() % 3;
        let said = '';
        socket.on('connect', async () => {
          if (!isHttp) socket.write(handshake());
          socket.write(bytes.subarray(0, at));
          await turn();
          socket.write(bytes.subarray(at));
          // The server would wait for the rest of half a frame.
          setTimeout(() => socket.destroy(), SERVER_STAY_MS);
          if (way === 0) socket.end();
          else if (way === 1) setTimeout(() => socket.destroy(), 5);
          else setTimeout(() => socket.resetAndDestroy(), 5);
        });
        socket.on('data', (data) => {
          if (said === '') said = data.toString('latin1', 9, 12);
        });
        socket.on('error', () => {});
        socket.on('close', () => {
          kinds.set(said, (kinds.get(said) ?? 0) + 1);
          done++;
          resolve();
        });
      })
    );
  await Promise.all(
    Array.from({ length: SERVER_CONNECTIONS }, async () => {
      while (done < count) await one();
    }),
  );
  const seconds = (performance.now() - start) / 1000;
  isOver = true;
  await talking;
  honest.destroy();
  const page = () =>
    fetch(`http://127.0.0.1:${server.metricsPort}/metrics`).then((response) => response.text());
  await until(
    async () => samples(await page()).get('websocket_connections_total') === 0,
    30_000,
    'the end of all connections',
  ).catch((error) => faults.push(error.message));
  const now = childrenOf(server.pid);
  if (workers.some((pid) => !now.includes(pid))) faults.push('a worker died');
  const megabytes = now.map(
    (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024,
  );
  if (Math.max(...megabytes) > SERVER_MAX_MB)
    faults.push(`memory: ${megabytes.map(Math.round).join()} MB`);
  for (const line of server.lines) if (line.level >= 50) faults.push(JSON.stringify(line));
  if (slowestMs > SERVER_PATIENCE_MS)
    faults.push(`the honest client waited for ${slowestMs.toFixed(0)} ms`);
  for (const cleanup of cleanups.reverse()) await cleanup();
  for (const fault of faults) console.error(`server: ${fault}`);
  failures += faults.length;
  console.log(
    `| server, honest client’s slowest echo ${slowestMs.toFixed(0)} ms | ${done} | ${(done / seconds).toFixed(0)} | ${kinds.size} | ${Math.max(...megabytes).toFixed(0)} (RSS) | ${faults.length} |`,
  );
  return done;
}
