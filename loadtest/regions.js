// regions.js: two regions in two network namespaces, with a slow and lossy wire between them.
//
//   node loadtest/regions.js --save loadtest/bench/results/regions
//
//   near: primary of Redis, a server, clients  ====wire====  far: replica, a server, clients
//
// Measures how long messages take to both regions, beside the one-way time, and the bytes on the
// wire: with one and with 20 far workers, which hear through the replica (REDIS_SUBSCRIBE_URL) or
// from the primary.
//
// The wire is netem where the kernel has it, and wire.py (a tunnel that delays and drops packets)
// where it lacks it. Needs root, `ip` and redis-server; and python3 without netem. What it makes, it
// takes away.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { readOptions } from '../test/harness/options.js';
import { pause, print, run } from '../test/harness/run.js';
import { NO_LIMITS, startServer, until } from '../test/harness/server.js';
import { show } from './lib/figures.js';

const { values: options } = readOptions(
  'Two regions in two network namespaces, with a slow and lossy wire between them. Needs root.',
  `delay MS | number 0..1000 | 40 | one way
  loss P | number 0..50 | 1 | percent of the packets of each direction that are lost
  workers LIST | list of 1 20 | 1,20 | far workers whose bytes are compared
  rate N | whole 1..1000 | 100 | messages a second, for the bytes
  bytes N | whole 1..50000 | 1000 | of their padding
  seconds N | whole 5..300 | 20 | of each run
  save PATH | | | writes PATH.md and PATH.json`,
);

const NEAR = { name: `fanfare-${process.pid}-near`, host: '10.231.0.1' };
const FAR = { name: `fanfare-${process.pid}-far`, host: '10.231.0.2' };
const REDIS_PORT = 6379;
const PORT = 3000;
const DEVICE = 'wire';
const CLIENT = fileURLToPath(new URL('regions/client.js', import.meta.url));
const WIRE = fileURLToPath(new URL('regions/wire.py', import.meta.url));
/** Requests on the wire at rest: heartbeats, probes, positions. */
const REST_MS = 10_000;
const LINK_MS = 60_000;
const FEW = { members: 20, rate: 20, bytes: 100 };
/** Of the one-way time. */
const MARGIN_MS = 10;
const EQUAL = 0.1;

/** @typedef {import('../test/harness/run.js').Run} Run */
/** @typedef {typeof NEAR} Region */
/** @typedef {{count: number, p50: number, p99: number, max: number}} Times */
/** @typedef {{sent: number, tookMs: Record<string, Times>}} Figures */
/** @typedef {{from: string, to: string, times: Times, wantedMs: number}} Way */
/** @typedef {{how: string, workers: number, restBytes: number, bytes: number, p50: number, p99: number}} Load */

await run(`two regions, ${options.delay} ms apart, ${options.loss} % loss`, measure, 480_000);

/** @param {Run} test */
async function measure(test) {
  const wire = await startWire(test);
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-regions-'));
  test.after(() => rmSync(folder, { recursive: true, force: true }));
  await startRedis(test, NEAR, folder, []);
  await startRedis(test, FAR, folder, ['--replicaof', NEAR.host, `${REDIS_PORT}`]);
  await until(
    () => redis(FAR, 'INFO', 'replication').includes('link_status:up'),
    LINK_MS,
    'a link',
  );
  const ways = await latencies(test);
  /** @type {Load[]} */
  const loads = [];
  for (const how of ['replica', 'primary'])
    for (const workers of options.workers) loads.push(await bytes(test, how, Number(workers)));
  const oneWayMs = options.delay;
  for (const { from, to, times, wantedMs } of ways)
    test.check(
      `p50 from ${from} to ${to}`,
      `at most ${wantedMs + MARGIN_MS} ms`,
      `${show(times.p50, 1)} ms (p99 ${show(times.p99)} ms, ${times.count} deliveries)`,
      times.p50 <= wantedMs + MARGIN_MS,
    );
  const [one, many] = loads.filter(({ how }) => how === 'replica');
  if (many !== undefined) {
    const ratio = messageBytes(many) / messageBytes(one);
    test.check(
      `bytes of the messages on the wire with ${many.workers} far workers`,
      `those with ${one.workers} ± ${EQUAL * 100} %`,
      `${show(100 * ratio)} %, and ${show((100 * many.bytes) / one.bytes)} % with those at rest`,
      Math.abs(ratio - 1) <= EQUAL,
    );
  }
  if (options.save) save({ wire, oneWayMs, ways, loads });
}

/**
 * Few messages from each region to members in both.
 * @param {Run} test @returns {Promise<Way[]>}
 */
async function latencies(test) {
  const stop = await startServers(test, 'replica', 2);
  const rooms = ['near', 'far'];
  const plans = [NEAR, FAR].map((region, i) => ({ region, ...FEW, rooms, publish: rooms[i] }));
  const [near, far] = await clients(test, plans);
  await stop();
  const { delay } = options;
  return [
    { from: 'near', to: 'near', times: near.tookMs.near, wantedMs: 0 },
    { from: 'near', to: 'far', times: far.tookMs.near, wantedMs: delay },
    { from: 'far', to: 'near', times: near.tookMs.far, wantedMs: delay },
    // To the primary and back.
    { from: 'far', to: 'far', times: far.tookMs.far, wantedMs: 2 * delay },
  ];
}

/**
 * The same messages to members on all far workers.
 * @param {Run} test @param {string} how far workers hear @param {number} workers
 * @returns {Promise<Load>}
 */
async function bytes(test, how, workers) {
  // A replica that nobody hears would take its copy all the same.
  if (how === 'primary') redis(FAR, 'REPLICAOF', 'NO', 'ONE');
  const stop = await startServers(test, how, workers);
  const { rate, bytes: size } = options;
  const rooms = ['room'];
  const plans = [
    { region: NEAR, members: 4, rate, bytes: size, rooms, publish: 'room' },
    { region: FAR, members: 20 * workers, rate: 0, bytes: 0, rooms, publish: '' },
  ];
  let restBytes = 0;
  let before = 0;
  const [, far] = await clients(test, plans, async () => {
    const atRest = carried();
    await pause(REST_MS);
    before = carried();
    restBytes = (1000 * (before - atRest)) / REST_MS;
  });
  const during = (carried() - before) / options.seconds;
  await stop();
  const { p50, p99 } = far.tookMs.room;
  const load = { how, workers, restBytes, bytes: during, p50, p99 };
  print(
    `     ${workers} far workers, heard from the ${how}: ${show(during / 1000)} kB/s, ${show(restBytes / 1000, 1)} at rest; p50 ${show(p50, 1)}, p99 ${show(p99)} ms`,
  );
  return load;
}

/** Without those of probes and heartbeats. @param {Load} load */
function messageBytes({ bytes: during, restBytes }) {
  return during - restBytes;
}

/**
 * Runs clients in their regions at the same time.
 * @param {Run} test @param {(Record<string, unknown> & {region: Region})[]} plans
 * @param {() => Promise<void>} [joined] called when all have joined, before they publish
 * @returns {Promise<Figures[]>}
 */
async function clients(test, plans, joined = async () => {}) {
  const { seconds } = options;
  const started = plans.map(({ region, ...plan }) => {
    const url = `ws://${region.host}:${PORT}/`;
    const child = inside(test, region, process.execPath, [
      CLIENT,
      JSON.stringify({ ...plan, url, seconds }),
    ]);
    return { child, lines: createInterface({ input: child.stdout })[Symbol.asyncIterator]() };
  });
  for (const { lines } of started) await lines.next();
  await joined();
  for (const { child } of started) child.stdin.write('begin\n');
  return Promise.all(started.map(async ({ lines }) => JSON.parse((await lines.next()).value)));
}

/** @param {Run} test @param {string} how the far workers hear @param {number} workers */
async function startServers(test, how, workers) {
  const url = `redis://${NEAR.host}:${REDIS_PORT}`;
  /** @type {import('../test/harness/server.js').Server[]} */
  const servers = [];
  for (const region of [NEAR, FAR]) {
    const isHeard = region === FAR && how === 'replica';
    const env = {
      ...NO_LIMITS,
      HOST: region.host,
      PORT: `${PORT}`,
      WORKERS: `${region === FAR ? workers : 1}`,
      // Members on each worker.
      FANFARE_SCHEDULING: 'round-robin',
      REDIS_URL: url,
      ...(isHeard && { REDIS_SUBSCRIBE_URL: `redis://${FAR.host}:${REDIS_PORT}` }),
    };
    servers.push(await startServer(test, env, { prefix: ['ip', 'netns', 'exec', region.name] }));
  }
  return async () => {
    for (const server of servers) server.kill('SIGTERM');
    await Promise.all(servers.map(({ exited }) => exited));
  };
}

/** @param {Run} test @returns {Promise<string>} what the wire is */
async function startWire(test) {
  for (const { name } of [NEAR, FAR]) {
    ip('netns', 'add', name);
    test.after(() => ip('netns', 'del', name));
    ip('-n', name, 'link', 'set', 'lo', 'up');
  }
  if (withNetem()) return 'veth with netem';
  const args = [NEAR.name, NEAR.host, FAR.name, FAR.host, `${options.delay}`, `${options.loss}`];
  const child = spawn('python3', [WIRE, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  test.after(() => child.stdin.end());
  await once(child.stdout, 'data');
  return 'a tunnel that delays and drops packets (regions/wire.py)';
}

/** @returns {boolean} does the kernel have netem? */
function withNetem() {
  ip('link', 'add', DEVICE, 'netns', NEAR.name, 'type', 'veth', 'peer', DEVICE, 'netns', FAR.name);
  try {
    for (const { name, host } of [NEAR, FAR]) {
      const weather = ['delay', `${options.delay}ms`, 'loss', `${options.loss}%`];
      const netem = ['dev', DEVICE, 'root', 'netem', ...weather, 'limit', '100000'];
      execFileSync('tc', ['-n', name, 'qdisc', 'add', ...netem], { stdio: 'ignore' });
      ip('-n', name, 'addr', 'add', `${host}/24`, 'dev', DEVICE);
      ip('-n', name, 'link', 'set', DEVICE, 'up');
    }
    return true;
  } catch {
    ip('-n', NEAR.name, 'link', 'del', DEVICE);
    return false;
  }
}

/** Bytes that the wire has carried in both directions, headers included. */
function carried() {
  const links = JSON.parse(ip('-n', NEAR.name, '-j', '-s', 'link', 'show', DEVICE));
  const { rx, tx } = links[0].stats64;
  return rx.bytes + tx.bytes;
}

/** @param {Run} test @param {Region} region @param {string} folder @param {string[]} args */
async function startRedis(test, region, folder, args) {
  const own = ['--port', `${REDIS_PORT}`, '--bind', region.host, '--protected-mode', 'no'];
  const stored = ['--save', '', '--dir', folder, '--repl-diskless-sync-delay', '0'];
  inside(test, region, 'redis-server', [...own, ...stored, ...args]);
  await until(() => redis(region, 'PING') === 'PONG', LINK_MS, 'Redis');
}

/** @param {Region} region @param {...string} command */
function redis({ name, host }, ...command) {
  try {
    const cli = ['redis-cli', '-h', host, '-p', `${REDIS_PORT}`, ...command];
    return ip('netns', 'exec', name, ...cli).trim();
  } catch {
    return '';
  }
}

/** @param {Run} test @param {Region} region @param {string} command @param {string[]} args */
function inside(test, { name }, command, args) {
  const child = spawn('ip', ['netns', 'exec', name, command, ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  if (command === 'redis-server') child.stdout.resume();
  test.after(() => child.kill('SIGKILL'));
  return child;
}

/** @param {...string} args */
function ip(...args) {
  return execFileSync('ip', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
}

/** @param {{wire: string, oneWayMs: number, ways: Way[], loads: Load[]}} result */
function save({ wire, oneWayMs, ways, loads }) {
  const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
  const machine = `${cpus()[0].model.trim()} × ${availableParallelism()}`;
  const lines = [
    `# Two regions, ${new Date().toISOString()}`,
    '',
    `\`node loadtest/regions.js ${process.argv.slice(2).join(' ')}\` at ${commit}, on ${machine}, Node ${process.version}.`,
    `The wire: ${wire}, ${oneWayMs} ms one way, ${options.loss} % of the packets lost. Near: the primary of`,
    'Redis and a server. Far: its replica and a server with `REDIS_SUBSCRIBE_URL`.',
    '',
    `## Delivery, ${FEW.rate} messages/s from each region to ${FEW.members} members in each`,
    '',
    '| from | to | least possible, ms | p50, ms | p99, ms | most, ms | deliveries |',
    '|---|---|---:|---:|---:|---:|---:|',
    ...ways.map(
      ({ from, to, times: { p50, p99, max, count }, wantedMs }) =>
        `| ${from} | ${to} | ${wantedMs} | ${show(p50, 1)} | ${show(p99)} | ${show(max)} | ${show(count)} |`,
    ),
    '',
    `## Bytes on the wire, both directions, ${options.rate} messages/s of ${show(options.bytes)} bytes from near, members on every far worker`,
    '',
    '| far workers | hear from the | kB/s | at rest, kB/s | messages alone, kB/s | p50, ms | p99, ms |',
    '|---:|---|---:|---:|---:|---:|---:|',
    ...loads.map((load) => {
      const bytesOf = [load.bytes, load.restBytes, messageBytes(load)].map((n) =>
        show(n / 1000, 1),
      );
      const cells = [load.workers, load.how, ...bytesOf, show(load.p50, 1), show(load.p99)];
      return `| ${cells.join(' | ')} |`;
    }),
    '',
  ];
  mkdirSync(dirname(options.save), { recursive: true });
  writeFileSync(`${options.save}.md`, lines.join('\n'));
  const { delay, loss, rate, bytes: size, seconds } = options;
  const settings = { delay, loss, rate, bytes: size, seconds };
  writeFileSync(
    `${options.save}.json`,
    `${JSON.stringify({ commit, machine, wire, settings, ways, loads }, null, 1)}\n`,
  );
}
