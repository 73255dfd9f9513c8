// run.js: the benchmark: Fanfare side by side with other servers.
//
// Each cell of the table has a server process of its own and its own clients. The order is workload
// by workload, within one server after the other (A B C A B C …), so that what slows the machine
// for a while hits neighbours alike.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { readOptions } from '../../test/harness/options.js';
import { describeMachine, machineSeconds, maxFiles } from './machine.js';
import { PROFILES } from './profiles.js';
import { markdown, withoutFigure } from './report.js';
import { OPTION, stopOnSignal } from './script.js';
import { externalServer, isPresent, SERVERS, startServer } from './servers.js';
import { measured } from './step.js';
import { clientProgram, Swarm } from './swarm.js';
import { ROUNDS, TABLES, WORKLOADS } from './workloads.js';

/**
 * A measurement from which the hypervisor took more of the processors' time is one of other guests.
 */
const MAX_STOLEN_SHARE = 0.05;
const MAX_REPEATS = 2;

/** What a run without --only and --workloads leaves out, so that it takes 45 minutes at most. */
const ON_REQUEST = ['tutorial', 'saturated-5000', 'low-5000', 'fixed-rooms'];
const byDefault = (/** @type {string} */ name) => !ON_REQUEST.includes(name);

const { values: options } = readOptions(
  `Measures Fanfare side by side with other servers. Saves Markdown and JSON in loadtest/bench/results/.

  npm run bench                                     all but what --only and --workloads leave out: some 40 minutes
  npm run bench -- --workloads fixed                fixed rates, 5 rounds: 10 minutes
  npm run bench -- --only fanfare,plain-ws --workloads saturated-1000,low-1000 --rounds 5
  npm run bench -- --url ws://127.0.0.1:8000 --profile centrifugo --server-pid 4711 --only plain-ws`,
  `only LIST | list of none ${Object.keys(SERVERS).join(' ')} | ${Object.keys(SERVERS).filter(isPresent).filter(byDefault).join()} | servers to measure; without, those that are installed, but not the tutorial's; none: only those of --url
  workloads LIST | list of ${Object.keys(WORKLOADS).join(' ')} | ${Object.keys(WORKLOADS).filter(byDefault).join()} | workloads to run
  rounds N | whole 1..1000 | | rounds; without, 3, or 5 of fixed and saturated, or 1 with --quick
  quick | | | small and short: to see that it works
  processes N | whole 1..64 | 2 | client processes
  sources N | whole 0..250 | 4 | source addresses from 127.0.0.2 on; 0: the kernel chooses one
  ${OPTION.payload}
  base NAME | | plain-ws | server that the ratios refer to
  other FOLDER | | | another checkout of Fanfare, measured beside this one
  ${OPTION.save}
  Other servers, started by you: one of each for each server
  url URL… | | | URL of the server
  profile NAME… | one of ${Object.keys(PROFILES).join(' ')} | | its protocol
  name NAME… | | | its name in the report
  server-pid PIDS… | | | its processes, separated by commas; their children are counted too
  redis-pid PID | whole 1.. | | the process of its Redis`,
);
const { payload: payloadBytes, sources, processes } = options;
/** @param {string} workload */
const roundsOf = (workload) =>
  options.rounds || (options.quick ? 1 : (WORKLOADS[workload].rounds ?? ROUNDS));
const namedServers = options.only.filter((/** @type {string} */ name) => name !== 'none');
const wantedServers = namedServers.filter(isPresent);
const wantedWorkloads = options.workloads;
const rounds = Math.max(...wantedWorkloads.map(roundsOf));

clientProgram();
installServers();
const startedAt = new Date().toISOString();
const command = `node loadtest/bench/run.js ${process.argv.slice(2).join(' ')}`.trim();
const machine = describeMachine();
const log = (/** @type {string} */ line) => process.stderr.write(`${line}\n`);
if (maxFiles().hard < 19_500)
  log(`a process may have only ${maxFiles().hard} files here: the largest rooms will fail`);

for (const name of namedServers.filter((/** @type {string} */ one) => !isPresent(one)))
  log(`${SERVERS[name].title} is left out: ${SERVERS[name].install}`);

stopOnSignal();

/** @type {import('./report.js').Cell[]} */
const cells = [];
/** How long each measurement took. @type {{ workload: string, seconds: number }[]} */
const done = [];
/** @type {{ start: () => Promise<import('./servers.js').Target>, name: string }[]} */
const servers = [
  ...wantedServers.flatMap((/** @type {string} */ name) => [
    { name, start: () => startServer(name) },
    ...(options.other && name.startsWith('fanfare')
      ? [{ name: `${name} (other)`, start: () => startServer(name, { checkout: options.other }) }]
      : []),
  ]),
  ...options.url.map((/** @type {string} */ url, /** @type {number} */ i) => {
    const target = externalServer({
      url,
      profile: options.profile[i] ?? 'plain',
      pids: (options.serverPid[i] ?? '').split(',').filter(Boolean).map(Number),
      redisPid: options.redisPid || undefined,
      name: options.name[i],
    });
    return { name: target.name, start: async () => target };
  }),
];

const clientLimit = await measureClient();
for (const line of clientLimit.lines) log(line);

const began = performance.now();
for (let round = 1; round <= rounds; round++) {
  for (const workload of wantedWorkloads) {
    if (round > roundsOf(workload)) continue;
    for (const server of servers) {
      log(`\n— round ${round} of ${roundsOf(workload)}, ${workload}, ${server.name}${progress()}`);
      let measurement = await measure(server, workload, round);
      for (let again = 0; isDisturbed(measurement) && again < MAX_REPEATS; again++) {
        log(
          `  ! the hypervisor took ${Math.round(measurement[0].stolenShare * 100)} % of the processors: measured again`,
        );
        measurement = await measure(server, workload, round);
      }
      cells.push(...measurement);
      done.push({ workload, seconds: measurement[0].seconds });
      save(); // after each one, so that an interrupted run has its figures
    }
  }
}
log(`\n${done.length} measurements in ${minutes((performance.now() - began) / 1000)}`);
console.log(save());
for (const { server, workload, round } of withoutFigure(cells)) {
  log(`failed: ${server}, ${workload}, round ${round}`);
  process.exitCode = 1;
}

/**
 * @param {{ name: string, start: () => Promise<import('./servers.js').Target> }} server
 * @param {string} workload
 * @param {number} round
 * @returns {Promise<import('./report.js').Cell[]>} one for each table of the workload
 */
async function measure(server, workload, round) {
  const started = performance.now();
  const before = machineSeconds();
  const swarm = new Swarm({ processes });
  /** @type {import('./servers.js').Target | undefined} */
  let target;
  /** @type {import('./workloads.js').Figures} */
  let figures;
  try {
    target = await server.start();
    swarm.start();
    const { quick } = options;
    const known = knownLoad(server.name, workload);
    figures = await WORKLOADS[workload].run({
      target,
      swarm,
      quick,
      payloadBytes,
      sources,
      known,
      log,
    });
  } catch (error) {
    log(`failed: ${error instanceof Error ? error.stack : error}`);
    figures = {
      values: {},
      flags: [`failed: ${error instanceof Error ? error.message.split('\n')[0] : error}`],
      detail: {},
    };
  }
  await swarm.close();
  await target?.close();
  const seconds = (performance.now() - started) / 1000;
  const stolenShare =
    (machineSeconds().stolen - before.stolen) /
    (seconds * Number(machine.processor.split('× ')[1]));
  await sleep(300);
  const { parts = { [workload]: figures } } = figures;
  return Object.entries(parts).map(([table, one]) => {
    if (one !== figures) log(`  ${TABLES[table].title}`);
    show(TABLES[table], one);
    return {
      server: server.name,
      title: target?.title ?? SERVERS[server.name]?.title ?? server.name,
      workload: table,
      round,
      ...one,
      stolenShare,
      seconds,
    };
  });
}

/**
 * @param {import('./workloads.js').Table} table @param {import('./workloads.js').Figures} figures
 */
function show({ metrics }, { values, flags }) {
  for (const { key, title, unit, digits } of metrics) {
    const value = values[key];
    log(
      `  ${title}: ${value === null || value === undefined ? '–' : value.toLocaleString('en', { maximumFractionDigits: digits ?? 0 })} ${unit}`,
    );
  }
  for (const flag of flags) log(`  ! ${flag}`);
}

/** @param {readonly import('./report.js').Cell[]} measurement */
function isDisturbed([{ stolenShare }]) {
  return stolenShare > MAX_STOLEN_SHARE;
}

/**
 * The result of the last round that had one: a search begins there.
 * @param {string} server @param {string} workload
 */
function knownLoad(server, workload) {
  return cells.findLast(
    (cell) => cell.server === server && cell.workload === workload && cell.load !== undefined,
  )?.load;
}

/**
 * How far it is, and how long it takes from here: what a workload has taken so far, or else a
 * measurement on the average.
 */
function progress() {
  const all = wantedWorkloads.reduce(
    (/** @type {number} */ sum, /** @type {string} */ name) =>
      sum + servers.length * roundsOf(name),
    0,
  );
  if (done.length === 0) return ` (1 of ${all})`;
  const meanOf = (/** @type {typeof done} */ some) =>
    some.reduce((sum, { seconds }) => sum + seconds, 0) / some.length;
  let left = 0;
  for (const workload of wantedWorkloads) {
    const mine = done.filter((one) => one.workload === workload);
    left +=
      (roundsOf(workload) * servers.length - mine.length) * meanOf(mine.length > 0 ? mine : done);
  }
  return ` (${done.length + 1} of ${all}, ${minutes((performance.now() - began) / 1000)} so far, some ${minutes(left)} to go)`;
}

/** @param {number} seconds */
function minutes(seconds) {
  return seconds < 90 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

/**
 * What the client itself can take: its processor time for a delivery, from servers that do almost
 * nothing.
 */
async function measureClient() {
  /**
   * @param {string} name
   * @param {number} members
   * @param {boolean} echo
   * @param {(swarm: Swarm) => Promise<import('./swarm.js').RunResult>} run
   */
  const costOf = async (name, members, echo, run) => {
    const swarm = new Swarm({ processes }).start();
    const target = await startServer(name, { workers: 0 });
    try {
      await swarm.aim({ ...target, echo });
      await swarm.open({ count: members, sources });
      await run(swarm);
      const step = await measured(target, () => run(swarm));
      return { us: (step.cpuSeconds * 1e6) / step.received, perRead: step.frames / step.reads };
    } finally {
      await swarm.close();
      await target.close();
    }
  };
  const joined = await costOf('raw-joined', 200, false, (swarm) =>
    swarm.run({ perSecond: 5000, seconds: 1, payloadBytes }),
  );
  const single = await costOf('raw-single', 1000, false, (swarm) =>
    swarm.run({ perSecond: 20, seconds: 1, payloadBytes }),
  );
  const echoed = await costOf('raw-joined', 64, true, (swarm) =>
    swarm.echo({ seconds: 1, payloadBytes }),
  );
  const perSecond = (/** @type {number} */ us) =>
    `${Math.round(1000 / us).toLocaleString('en')} k/s a core`;
  return {
    processes,
    joined,
    single,
    echoed,
    lines: [
      `client: ${processes} processes; its own limit against a server that does almost nothing: ` +
        `${joined.us.toFixed(3)} µs of its CPU a delivery where ${joined.perRead.toFixed(0)} frames come in a read (${perSecond(joined.us)}), ` +
        `${single.us.toFixed(2)} µs where ${single.perRead.toFixed(1)} do (${perSecond(single.us)}), ${echoed.us.toFixed(2)} µs an echoed message (${perSecond(echoed.us)})`,
    ],
  };
}

function save() {
  const path =
    options.save ||
    fileURLToPath(new URL(`./results/${startedAt.slice(0, 16).replace(':', '')}`, import.meta.url));
  mkdirSync(dirname(path), { recursive: true });
  const report = {
    startedAt,
    command,
    machine,
    client: clientLimit,
    rounds,
    payloadBytes,
    base: options.base,
    cells,
  };
  const text = markdown({ ...report, machine: { ...machine } });
  writeFileSync(`${path}.json`, `${JSON.stringify(report, null, 1)}\n`);
  writeFileSync(`${path}.md`, text);
  return `${text}\nsaved as ${path}.md and .json`;
}

/**
 * The other servers' packages are not part of Fanfare's install: they are fetched when first
 * needed.
 */
function installServers() {
  const directory = fileURLToPath(new URL('.', import.meta.url));
  if (existsSync(`${directory}node_modules/socket.io/package.json`)) return;
  execFileSync('npm', ['ci', '--no-audit', '--no-fund', '--prefix', directory], {
    stdio: 'inherit',
  });
}
