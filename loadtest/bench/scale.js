// scale.js: very many connections at one server, all in one room, a broadcast every few seconds,
// none lost.
//
//   node loadtest/bench/scale.js                           100,000 connections: about four minutes, 4 GB of memory
//   node loadtest/bench/scale.js --connections 5000 --seconds 10
//   node loadtest/bench/scale.js --server fanfare-redis --workers 8
//
// A process may have some 20,000 files, sockets among them, so server and client get as many
// processes as that takes. A source address has some 28,000 ports, so the client uses several. On
// the way up the script stops at a few sizes, which show how memory per connection and processor
// time per delivery grow.

import { setTimeout as sleep } from 'node:timers/promises';
import { markdownTable, show } from '../lib/figures.js';
import { readOptions } from '../lib/options.js';
import {
  availableKb,
  demandMachine,
  MAX_SOCKETS,
  machineSeconds,
  processTree,
  pssKbOf,
} from './machine.js';
import { OPTION, saveReport, stopOnSignal, withServer } from './script.js';
import { quiet } from './servers.js';
import { clean, measured } from './workloads.js';

const STAGES = [1000, 20_000, 50_000];
const { values } = readOptions(
  'Opens very many connections in one room, and broadcasts to them.',
  `connections N | whole 1..10000000 | 100000 | connections in all
  ${OPTION.server}
  workers N | whole 1..256 | | workers of the server; without, as many as the connections need
  processes N | whole 1..256 | | client processes; without, as many as the connections need
  sources N | whole 0..250 | 10 | source addresses from 127.0.0.2 on; 0: the kernel chooses one
  interval S | number 0.01..3600 | 5 | seconds between two broadcasts
  seconds S | number 1..86400 | 60 | duration of the broadcasts
  ${OPTION.payload}
  ${OPTION.client}
  ${OPTION.save}`,
);
const {
  connections,
  server,
  sources,
  interval,
  seconds,
  payload: payloadBytes,
  client,
  save,
} = values;
// Workers do not share connections quite evenly: room for a quarter more than the mean.
const workers = values.workers || Math.max(2, Math.ceil(connections / (MAX_SOCKETS * 0.75)));
const processes = values.processes || Math.max(2, Math.ceil(connections / MAX_SOCKETS));
const limits = demandMachine({ connections, workers, processes, sources });
stopOnSignal();

/** @type {Record<string, any>[]} */
const stages = [];
let failure = '';
/** @type {Record<string, any>} */
let broadcast = {};
const opening = { seconds: 0, cpuSeconds: 0 };
/** The share of each worker shows how evenly the connections are spread. @type {number[]} */
let workersPssKb = [];
let title = server;

await withServer({ server, client, processes, workers }, async ({ target, swarm }) => {
  title = target.title;
  try {
    await load(target, swarm);
  } catch (error) {
    failure = error instanceof Error ? error.message : String(error);
  }
  workersPssKb = processTree([target.pids()[0]])
    .slice(1)
    .map((pid) => pssKbOf([pid]));
});

/**
 * @param {import('./servers.js').Target} target
 * @param {import('./swarm.js').Swarm} swarm
 */
async function load(target, swarm) {
  // The code is compiled and the first rooms exist before the base of the memory is taken.
  await swarm.open({ count: 200, group: 1, room: 'warm', sources });
  await swarm.run({ group: 1, perSecond: 20, seconds: 1, payloadBytes });
  await swarm.hangUp({ group: 1 });
  await quiet(target, 5000);
  await sleep(1000);
  const [kbBefore, availableBefore] = [target.pssKb(), availableKb()];
  let open = 0;
  for (const size of [...STAGES.filter((stage) => stage < connections), connections]) {
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
    const kbPerConnection = (target.pssKb() - kbBefore) / size;
    const systemKbPerConnection = (availableBefore - availableKb()) / size;
    // Enough deliveries for the ticks of the kernel's clock to mean something.
    const messages = Math.max(5, Math.ceil(200_000 / size));
    const perSecond = Math.min(20, 40_000 / size);
    const run = { perSecond, seconds: messages / perSecond, payloadBytes, drainMs: 15_000 };
    const step = await measured(target, () => swarm.run(run));
    if (!clean(step))
      throw new Error(
        `with ${size} members ${step.received} of ${step.expected} arrived, ${step.lost} connections lost`,
      );
    const { p50Ms, p99Ms, maxMs } = step;
    const cpuPerMillion = step.serverCpuSeconds / (step.received / 1e6);
    stages.push({
      members: size,
      kbPerConnection,
      systemKbPerConnection,
      cpuPerMillion,
      p50Ms,
      p99Ms,
      maxMs,
    });
    console.log(
      `${size} connections: ${kbPerConnection.toFixed(2)} kB each in the server (PSS), ${cpuPerMillion.toFixed(1)} CPU-s per 1M deliveries, p99 ${p99Ms.toFixed(0)} ms`,
    );
  }
  console.log(`now ${Math.round(seconds / interval)} broadcasts, one every ${interval} s`);
  const before = machineSeconds();
  const step = await measured(target, () =>
    swarm.run({ perSecond: 1 / interval, seconds, payloadBytes, drainMs: 20_000 }),
  );
  const { histogram, ...figures } = step;
  broadcast = { ...figures, stolenSeconds: machineSeconds().stolen - before.stolen };
  if (!clean(step))
    failure = `${step.received} of ${step.expected} deliveries arrived, ${step.wrong} connections did not get what they should, ${step.lost} connections lost`;
}

const figure = (/** @type {number|undefined} */ value, digits = 1) =>
  show(value ?? Number.NaN, digits);
const last = stages.at(-1) ?? {};
const { received, expected, sent, p50Ms, p99Ms, maxMs, serverCpuSeconds, wallSeconds, cpuSeconds } =
  broadcast;
saveReport({
  script: 'scale',
  title: `${figure(connections, 0)} connections, ${title}`,
  note: `${workers} workers, ${processes} client processes, ${sources} source addresses`,
  lines: [
    ...limits.map((line) => `- ${line}`),
    '',
    failure === ''
      ? `**None lost**: ${figure(received, 0)} of ${figure(expected, 0)} deliveries, each connection with every message once.`
      : `**Failed**: ${failure}`,
    '',
    ...markdownTable(
      ['measured', 'figure'],
      [
        ['opened (upgraded and joined) in', `${figure(opening.seconds)} s`],
        ['server CPU per handshake', `${figure((opening.cpuSeconds * 1000) / connections, 3)} ms`],
        ['memory per connection in the server (PSS)', `${figure(last.kbPerConnection, 2)} kB`],
        [
          'memory per connection of the whole machine, kernel and client included',
          `${figure(last.systemKbPerConnection)} kB`,
        ],
        ['broadcasts', `${figure(sent, 0)}, one every ${interval} s`],
        [
          'latency p50 / p99 / max',
          `${[p50Ms, p99Ms, maxMs].map((ms) => figure(ms)).join(' / ')} ms`,
        ],
        [
          'server CPU during the broadcasts',
          `${figure(serverCpuSeconds)} s of ${figure(wallSeconds)} s; ${figure(serverCpuSeconds / (received / 1e6))} s per 1M deliveries`,
        ],
        ['client CPU', `${figure(cpuSeconds)} s`],
        ['connections lost', figure(broadcast.lost, 0)],
        ['time stolen by the hypervisor', `${figure(broadcast.stolenSeconds, 2)} s`],
      ],
      1,
    ),
    '',
    ...markdownTable(
      [
        'members',
        'memory per connection, kB (PSS)',
        'whole machine, kB',
        'server CPU-s per 1M deliveries',
        'p50, ms',
        'p99, ms',
        'max, ms',
      ],
      stages.map((stage) => [
        figure(stage.members, 0),
        figure(stage.kbPerConnection, 2),
        ...[
          stage.systemKbPerConnection,
          stage.cpuPerMillion,
          stage.p50Ms,
          stage.p99Ms,
          stage.maxMs,
        ].map((value) => figure(value)),
      ]),
    ),
    '',
    `Workers, PSS in MB: ${workersPssKb.map((kb) => figure(kb / 1000)).join(', ')}`,
  ],
  data: {
    server,
    connections,
    workers,
    processes,
    sources,
    opening,
    stages,
    broadcast,
    workersPssKb,
    failure,
  },
  save,
});
process.exit(failure === '' ? 0 : 1);
