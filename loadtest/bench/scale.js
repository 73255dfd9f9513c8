// scale.js: very many connections at one server, all in one room, a broadcast every few seconds,
// none lost.
//
//   node loadtest/bench/scale.js                           100,000 connections: about four minutes, 4 GB of memory
//   node loadtest/bench/scale.js --connections 5000 --seconds 10
//   node loadtest/bench/scale.js --server fanfare-redis --workers 8
//
// A process may have some 20,000 files, sockets among them, so the server gets as many workers as
// that takes, and so does the client; a source address has some 28,000 ports, so there are several
// of those. On the way up it stops at a few sizes, to show how memory per connection and processor
// time per delivery grow with their number.

import { mkdirSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parsedArgs } from '../lib/options.js';
import {
  availableKb,
  cpuSecondsOf,
  describeMachine,
  machineSeconds,
  processTree,
  pssKbOf,
} from './machine.js';
import { checkMachine } from './machine-check.js';
import { quiet, SERVERS, startServer, stopAll } from './servers.js';
import { findClient, MAX_SOCKETS, Swarm } from './swarm.js';
import { clean, measured } from './workloads.js';

const { values: options } = parsedArgs({
  options: {
    connections: { type: 'string', default: '100000' },
    server: { type: 'string', default: 'fanfare' },
    workers: { type: 'string' },
    processes: { type: 'string' },
    sources: { type: 'string', default: '10' },
    interval: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '60' },
    payload: { type: 'string', default: '100' },
    client: { type: 'string', default: 'auto' },
    save: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
if (options.help) {
  console.log(`node loadtest/bench/scale.js [--connections 100000] [--server ${Object.keys(SERVERS).join('|')}] [--workers N] [--processes N]
  [--sources 10] [--interval 5] [--seconds 60] [--payload 100] [--client auto|c|node] [--save PATH]`);
  process.exit(0);
}

const connections = Number(options.connections);
// Workers do not share connections quite evenly: room for a quarter more than the mean.
const workers = Number(
  options.workers ?? Math.max(2, Math.ceil(connections / (MAX_SOCKETS * 0.75))),
);
const processes = Number(options.processes ?? Math.max(2, Math.ceil(connections / MAX_SOCKETS)));
const sources = Number(options.sources);
const intervalSeconds = Number(options.interval);
const seconds = Number(options.seconds);
const payloadBytes = Number(options.payload);

const check = checkMachine({ connections, workers, processes, sources });
for (const line of check.lines) console.log(line);
if (check.problems.length > 0) {
  for (const problem of check.problems) console.error(`missing: ${problem}`);
  process.exit(1);
}
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
  process.once(signal, async () => {
    await stopAll();
    process.exit(1);
  });
}

const startedAt = new Date().toISOString();
const machine = describeMachine();
const swarm = new Swarm({
  client: findClient(/** @type {'auto' | 'c' | 'node'} */ (options.client)),
  processes,
}).start();
const target = await startServer(options.server, { workers });
/** @type {Record<string, unknown>[]} */
const stages = [];
let failure = '';
/** @type {Record<string, any>} */
let broadcast = {};
let memory = { kbPerConnection: Number.NaN, systemKbPerConnection: Number.NaN };
const opening = { seconds: 0, cpuSeconds: 0 };

try {
  await swarm.aim(target);
  // The code is compiled and the first rooms exist before memory is taken as the base.
  await swarm.open({ count: 200, group: 1, room: 'warm', sources });
  await swarm.run({ group: 1, perSecond: 20, seconds: 1, payloadBytes });
  await swarm.hangUp({ group: 1 });
  await quiet(target, 5000);
  await sleep(1000);
  const kbBefore = target.pssKb();
  const availableBefore = availableKb();
  let open = 0;

  for (const size of [1000, 20_000, 50_000, connections]
    .filter((each, i, all) => each <= connections && all.indexOf(each) === i)
    .sort((a, b) => a - b)) {
    const cpuBefore = target.cpuSeconds();
    const opened = await swarm.open({
      count: size - open,
      concurrency: 60 * processes,
      sources,
      timeoutMs: 600_000,
    });
    opening.seconds += opened.seconds;
    opening.cpuSeconds += target.cpuSeconds() - cpuBefore;
    if (opened.failed > 0 || opened.open !== size)
      throw new Error(`${opened.failed} connections failed, ${opened.open} of ${size} are open`);
    open = size;
    await quiet(target, 10_000);
    await sleep(3000);
    memory = {
      kbPerConnection: (target.pssKb() - kbBefore) / size,
      systemKbPerConnection: (availableBefore - availableKb()) / size,
    };
    // Enough deliveries for the ticks of the kernel's clock to mean something.
    const messages = Math.max(5, Math.ceil(200_000 / size));
    const step = await measured(target, () =>
      swarm.run({
        perSecond: Math.min(20, 40_000 / size),
        seconds: messages / Math.min(20, 40_000 / size),
        payloadBytes,
        drainMs: 15_000,
      }),
    );
    if (!clean(step))
      throw new Error(
        `with ${size} members ${step.received} of ${step.expected} arrived, ${step.lost} connections lost`,
      );
    stages.push({
      members: size,
      kbPerConnection: memory.kbPerConnection,
      systemKbPerConnection: memory.systemKbPerConnection,
      cpuPerMillion: step.serverCpuSeconds / (step.received / 1e6),
      p50Ms: step.p50Ms,
      p99Ms: step.p99Ms,
      maxMs: step.maxMs,
    });
    console.log(
      `${size} connections: ${memory.kbPerConnection.toFixed(2)} kB each in the server (PSS), ${memory.systemKbPerConnection.toFixed(1)} kB each of the whole machine; ` +
        `${(step.serverCpuSeconds / (step.received / 1e6)).toFixed(1)} CPU-s per 1M deliveries, p50 ${step.p50Ms.toFixed(0)}, p99 ${step.p99Ms.toFixed(0)} ms`,
    );
  }

  console.log(
    `${connections} connections after ${opening.seconds.toFixed(0)} s; now ${Math.round(seconds / intervalSeconds)} broadcasts, one every ${intervalSeconds} s`,
  );
  const before = machineSeconds();
  const step = await measured(target, () =>
    swarm.run({ perSecond: 1 / intervalSeconds, seconds, payloadBytes, drainMs: 20_000 }),
  );
  const after = machineSeconds();
  const { histogram, ...figures } = step;
  broadcast = { ...figures, stolenSeconds: after.stolen - before.stolen };
  if (!clean(step))
    failure = `${step.received} of ${step.expected} deliveries arrived, ${step.wrong} connections have not got what they should, ${step.lost} connections lost`;
} catch (error) {
  failure = error instanceof Error ? error.message : String(error);
}

// Read while the server runs; a worker's share shows how evenly the connections are spread.
const workersNow = processTree([target.pids()[0]])
  .slice(1)
  .map((pid) => ({ pid, pssKb: pssKbOf([pid]), cpuSeconds: cpuSecondsOf([pid]) }));
const report = {
  startedAt,
  server: options.server,
  title: target.title,
  connections,
  workers,
  processes,
  sources,
  machine,
  check: check.lines,
  opening,
  memory,
  stages,
  broadcast,
  workersNow,
  failure,
};
await swarm.close();
await target.close();

const number = (/** @type {unknown} */ value, digits = 1) =>
  typeof value === 'number' && Number.isFinite(value)
    ? value.toLocaleString('en', { maximumFractionDigits: digits })
    : '–';
const text = [
  `# ${number(connections, 0)} connections, ${target.title}, ${startedAt}`,
  '',
  `\`node loadtest/bench/scale.js ${process.argv.slice(2).join(' ')}\`: ${workers} workers, ${processes} client processes, ${sources} source addresses`,
  '',
  ...Object.entries(machine).map(([key, value]) => `- ${key}: ${value}`),
  ...check.lines.map((line) => `- ${line}`),
  '',
  failure === ''
    ? `**None lost**: ${number(broadcast.received, 0)} of ${number(broadcast.expected, 0)} deliveries, each connection with every message once.`
    : `**Failed**: ${failure}`,
  '',
  '| what | figure |',
  '|---|---:|',
  `| opened (upgraded and joined) in | ${number(opening.seconds)} s |`,
  `| server CPU per handshake | ${number((opening.cpuSeconds * 1000) / connections, 3)} ms |`,
  `| memory per connection in the server (PSS) | ${number(memory.kbPerConnection, 2)} kB |`,
  `| memory per connection of the whole machine, kernel and client included | ${number(memory.systemKbPerConnection)} kB |`,
  `| broadcasts | ${number(broadcast.sent, 0)}, one every ${intervalSeconds} s |`,
  `| latency p50 / p99 / max | ${number(broadcast.p50Ms)} / ${number(broadcast.p99Ms)} / ${number(broadcast.maxMs)} ms |`,
  `| server CPU during the broadcasts | ${number(broadcast.serverCpuSeconds)} s of ${number(broadcast.wallSeconds)} s; ${number(broadcast.serverCpuSeconds / (broadcast.received / 1e6))} s per 1M deliveries |`,
  `| client CPU | ${number(broadcast.cpuSeconds)} s |`,
  `| connections lost | ${number(broadcast.lost, 0)} |`,
  `| time stolen by the hypervisor | ${number(broadcast.stolenSeconds, 2)} s |`,
  '',
  '| members | memory per connection, kB (PSS) | whole machine, kB | server CPU-s per 1M deliveries | p50, ms | p99, ms | max, ms |',
  '|---:|---:|---:|---:|---:|---:|---:|',
  ...stages.map(
    (stage) =>
      `| ${number(stage.members, 0)} | ${number(stage.kbPerConnection, 2)} | ${number(stage.systemKbPerConnection)} | ${number(stage.cpuPerMillion)} | ${number(stage.p50Ms)} | ${number(stage.p99Ms)} | ${number(stage.maxMs)} |`,
  ),
  '',
  `Workers, PSS in MB: ${workersNow.map(({ pssKb }) => number(pssKb / 1000)).join(', ')}`,
  '',
].join('\n');
const path =
  options.save ??
  fileURLToPath(
    new URL(
      `./results/scale-${connections}-${startedAt.slice(0, 16).replace(':', '')}`,
      import.meta.url,
    ),
  );
mkdirSync(new URL('./results/', import.meta.url), { recursive: true });
writeFileSync(`${path}.json`, `${JSON.stringify(report, null, 1)}\n`);
writeFileSync(`${path}.md`, text);
console.log(`\n${text}\nsaved as ${path}.md and .json`);
process.exit(failure === '' ? 0 : 1);
