// scale.js: very many idle connections at one server: memory, CPU, a broadcast a minute that reaches
// all, a tenth that vanishes and returns, joins and leaves, a rolling reload, a reconnect storm.
//
//   npm run scale                                    100,000 connections: about eight minutes
//   npm run scale -- --connections 250000            about twelve minutes, 6 GB of memory
//   npm run scale -- --connections 1000000           about forty minutes, 18 GB of memory
//   npm run scale -- --connections 250000 --workload rooms   in small rooms (small-rooms.js)
//   npm run scale -- --connections 5000 --interval 2 --hold 6 --idle 5
//   npm run scale -- --server fanfare-redis --workers 8 --phases none
//
// A process may have some 20,000 files, sockets among them, so server and client get as many
// processes as that takes. A source address has some 28,000 ports, so the client uses several. On
// the way up the script stops at a few sizes, which show how memory per connection and processor
// time per delivery grow. changes.js has what happens to them then. In the storm (storm.js) the
// server drains, and all clients move to a second one: beyond MAX_STORM, only if it is asked for.

import { experiment } from '../lib/experiment.js';
import { markdownTable, show } from '../lib/figures.js';
import { drop, reload, visits } from './changes.js';
import { idleCpu, memory, memoryEach, openUpTo, warmUp } from './held.js';
import { demandMachine, MAX_SOCKETS, machineSeconds, processTree, pssKbOf } from './machine.js';
import { Others } from './others.js';
import { OPTION, startBench } from './script.js';
import { roomLines, smallRooms } from './small-rooms.js';
import { broadcast } from './step.js';
import { storm } from './storm.js';

const STAGES = [20_000, 50_000, 100_000, 250_000, 500_000];
/**
 * Both ends in the kernel take 10.1 kB, the server 2.6 and the client 0.2. A broadcast on its way to
 * all has a buffer of the kernel for each, of a kilobyte.
 */
const KB_PER_CONNECTION = 15;
/** The second server of a storm. */
const KB_IN_SECOND = 3;
/** Most connections of a storm by default: two processors have to close all and to take all. */
const MAX_STORM = 500_000;
/**
 * Pings a second of all connections together. Each costs some 26 us of the server's CPU, and as
 * much of the client's and the kernel's, which share the processors.
 */
const MAX_PINGS = 8400;
/** The shortest ping interval in seconds: the server's default. */
const MIN_PING = 30;
/** From this number on connections are held longer. */
const MANY = 1_000_000;
const HOLD = { few: 180, many: 600 };
/** Seconds at rest at each stage. */
const STAGE_IDLE_S = 3;
/** Most seconds of joins and leaves. */
const VISITS_SECONDS = 10;
/** A worker that is replaced has this time: its start, and its drain. */
const REPLACE_MS = 20_000;

/**
 * Ports of one source address that are used, of the 28,232 that Linux has by default. connect(2)
 * tries every other port first. If it finds half of the range in use, it looks at each of these
 * ports before it tries the rest: 10 ms instead of 0.1 ms for each connection (Linux 6.18).
 */
const PORTS_PER_SOURCE = 12_000;

/**
 * @typedef {object} Outcome the measurements so far
 * @property {string} title
 * @property {Size} size
 * @property {string[]} limits of the machine
 * @property {Record<string, any>[]} stages
 * @property {{seconds: number, cpuSeconds: number, failed: number}} opening
 * @property {Record<string, any>} measured
 * @property {string} failure '': none
 */
/** @typedef {ReturnType<typeof sizeOf>} Size */
/** @typedef {Awaited<ReturnType<typeof startBench>>} Bench */
/** @typedef {import('../../test/harness/options.js').Values} Values */

await experiment({
  question: 'Opens very many connections in one room, broadcasts to them, and drains their server.',
  options: `connections N | whole 1..10000000 | 100000 | connections in all
  workload NAME | one of broadcast rooms | broadcast | broadcast: all are in one room; rooms: each is in a small one, and messages go to all rooms in turn
  ${OPTION.server}
  workers N | whole 1..256 | | workers of the server; without, as many as the connections need
  processes N | whole 1..256 | | client processes; without, as many as the connections need
  sources N | whole 0..250 | | source addresses from 127.0.0.2 on; 0: the kernel chooses one; without, as many as needed
  ping S | number 1..3600 | | ping interval of the server; without, 30 s, or longer for more than 250,000 connections
  idle S | number 0.1..3600 | | duration of the measurement of idle CPU; without, one ping interval
  interval S | number 0.01..3600 | 60 | seconds between two broadcasts
  members N | whole 1..64 | 4 | members of each small room
  cores N | number 0.01..256 | 0.8 | small rooms get as many messages as let the server use this much
  rate N | number 0.01..10000000 | | messages a second to small rooms; without, the script finds it
  hold S | number 1..86400 | | duration of the broadcasts or messages; without, 180 s, or 600 s for a million
  phases LIST | list of none drop visits reload storm | | what follows the broadcasts: a part vanishes and returns; joins and leaves; all workers are replaced; the server drains. Without, all; of more than 500,000 connections, no storm
  drop PERCENT | number 0.1..90 | 10 | connections that vanish at once
  visits N | whole 1..1000000 | 10000 | joins a second, and as many leaves
  ignore-delays | | | in the storm, clients return at once, whatever delay the server names
  window S | number 0.1..600 | 20 | FANFARE_RECONNECT_WINDOW_MS in seconds: the delays of the storm
  limit S | number 10..86400 | | the script ends itself after this time; without, what such a run needs at most
  ${OPTION.payload}`,

  async setup({ owner, values }) {
    const { server, connections } = values;
    const size = sizeOf(values);
    const { phases, processes, workers, limit } = size;
    const limits = demandMachine({
      connections,
      ...size,
      ...(phases.includes('storm')
        ? { kbPerConnection: KB_PER_CONNECTION + KB_IN_SECOND, servers: 2 }
        : { kbPerConnection: KB_PER_CONNECTION }),
    });
    setTimeout(async () => {
      console.error(`not done within ${limit} s`);
      await owner.end();
      process.exit(1);
    }, limit * 1000).unref();
    const env = {
      FANFARE_RECONNECT_WINDOW_MS: String(values.window * 1000),
      FANFARE_PING_INTERVAL_MS: String(size.ping * 1000),
    };
    const bench = await startBench(owner, { server, processes, workers, env });
    return { size, limits, bench, env };
  },

  async measure({ size, limits, bench, env }, { values }) {
    /** @type {Outcome} */
    const outcome = {
      ...{ title: bench.target.title, size, limits, stages: [], measured: {}, failure: '' },
      opening: { seconds: 0, cpuSeconds: 0, failed: 0 },
    };
    try {
      if (values.workload === 'rooms') await smallRooms(bench, values, outcome);
      else {
        await load(bench, values, outcome);
        await change(bench, values, outcome, env);
      }
    } catch (error) {
      outcome.failure = error instanceof Error ? error.message : String(error);
    }
    return outcome;
  },

  report([[outcome]], values) {
    const { connections, server, workload, interval } = values;
    const { size, opening, stages, failure, measured } = outcome;
    const { workers, processes, sources, ping } = size;
    const isRooms = workload === 'rooms';
    const { received, expected } = measured.run ?? measured.broadcast ?? {};
    return {
      title: `${figure(connections, 0)} connections${isRooms ? ' in small rooms' : ''}, ${outcome.title}`,
      note: `${workers} workers, ${processes} client processes, ${sources} source addresses, a ping every ${ping} s`,
      lines: [
        ...outcome.limits.map((/** @type {string} */ line) => `- ${line}`),
        `- a ping every ${ping} s`,
        '',
        failure === ''
          ? `**None lost**: ${figure(received, 0)} of ${figure(expected, 0)} deliveries, each connection with every message once.`
          : `**Failed**: ${failure}`,
        '',
        ...(isRooms ? roomLines(measured, opening, connections) : linesOf(outcome, values)),
      ],
      data: {
        ...{ server, connections, workload, ...size, interval },
        ...{ opening, stages, failure, measured },
      },
      failed: failure !== '',
    };
  },
});

/** As given, or as the connections need. @param {Values} values */
function sizeOf({ connections, workload, workers, processes, sources, ...rest }) {
  const ping = rest.ping || Math.max(MIN_PING, 10 * Math.round(connections / MAX_PINGS / 10));
  const hold = rest.hold || (connections >= MANY ? HOLD.many : HOLD.few);
  const ofBroadcast = ['drop', 'visits', 'reload', ...(connections > MAX_STORM ? [] : ['storm'])];
  const usual = workload === 'rooms' ? [] : ofBroadcast;
  /** @type {string[]} */
  const wanted = rest.phases || usual;
  const phases = wanted.filter((name) => name !== 'none');
  return {
    ...{ ping, hold, phases },
    idle: rest.idle || ping,
    limit: rest.limit || Math.ceil(900 + hold + connections / 400),
    // Workers do not share connections quite evenly: room for a quarter more than the mean.
    workers: workers || Math.max(2, Math.ceil(connections / (MAX_SOCKETS * 0.75))),
    processes: processes || Math.max(2, Math.ceil(connections / MAX_SOCKETS)),
    sources: Number.isNaN(sources)
      ? Math.max(10, Math.ceil(connections / PORTS_PER_SOURCE))
      : sources,
  };
}

/** @param {Bench} bench @param {Values} values @param {Outcome} outcome gets what was measured */
async function load(bench, values, outcome) {
  const { connections, interval, payload: payloadBytes } = values;
  const { target, swarm } = bench;
  const { measured: report, size } = outcome;
  const { sources, hold, idle } = size;
  const { base, empty } = await warmUp(bench, { sources, idle: idle / 3, payloadBytes });
  report.empty = empty;
  for (const members of [...STAGES.filter((each) => each < connections), connections])
    await stage(bench, outcome, { members, base, payloadBytes });
  report.workersPssKb = processTree([target.pids()[0]])
    .slice(1)
    .map((pid) => pssKbOf([pid]));
  report.idle = { ...(await idleCpu(target, idle)), pssKb: target.pssKb() };
  console.log(`idle: ${figure(report.idle.cores, 3)} cores in the server`);
  console.log(`now ${Math.round(hold / interval)} broadcasts, one every ${interval} s`);
  const before = machineSeconds();
  const run = { perSecond: 1 / interval, seconds: hold, payloadBytes };
  const step = await broadcast(target, swarm, run);
  const { histogram, ...figures } = step;
  report.broadcast = { ...figures, stolenSeconds: machineSeconds().stolen - before.stolen };
  if (!step.isClean)
    throw new Error(
      `${step.received} of ${step.expected} deliveries arrived, ${step.wrong} connections did not get what they should, ${step.lost} connections lost`,
    );
}

/**
 * What follows the broadcasts.
 * @param {Bench} bench @param {Values} values @param {Outcome} outcome gets what was measured
 * @param {Record<string, string>} env of the server
 */
async function change({ target, swarm }, values, outcome, env) {
  const { connections, server, payload: payloadBytes, window } = values;
  const { measured: report, size } = outcome;
  const { sources, workers, processes, phases } = size;
  /** @param {string} what @param {{ others: Record<string, any>, after?: Record<string, any> }} done */
  const check = (what, { others, after }) => {
    if (!others.isClean) throw new Error(`${what}: the others lost deliveries or connections`);
    if (after && !after.isClean)
      throw new Error(`after the ${what}: ${after.received} of ${after.expected} arrived`);
  };
  const others = new Others(target, payloadBytes);
  try {
    if (phases.some((name) => name !== 'storm')) await others.open(sources);
    if (phases.includes('drop')) {
      const dropped = Math.floor((connections * values.drop) / 100);
      console.log(`now ${figure(dropped, 0)} connections vanish and come back`);
      report.drop = await drop({
        ...{ target, swarm, others, connections, dropped, sources, payloadBytes },
        concurrency: 60 * processes,
      });
      const { open } = report.drop;
      if (open !== connections) throw new Error(`drop: ${open} of ${connections} are back`);
      check('drop', report.drop);
    }
    if (phases.includes('visits')) {
      console.log(`now ${values.visits} joins and as many leaves a second`);
      report.visits = await visits({
        ...{ target, swarm, others, perSecond: values.visits },
        seconds: Math.min(VISITS_SECONDS, size.hold),
      });
      const { visits: wanted, joined, left, lost } = report.visits;
      if (joined !== wanted || left !== wanted || lost > 0)
        throw new Error(`${joined} of ${wanted} joins and ${left} leaves were answered`);
      check('visits', report.visits);
    }
    if (phases.includes('reload')) {
      console.log('now a reload replaces all workers');
      report.reload = await reload({
        ...{ target, swarm, others, payloadBytes },
        timeoutMs: workers * (REPLACE_MS + window * 1000),
      });
      const { open } = report.reload;
      if (open !== connections) throw new Error(`reload: ${open} of ${connections} are back`);
      check('reload', report.reload);
    }
  } finally {
    await others.close();
  }
  if (!phases.includes('storm')) return;
  console.log('now the server drains');
  report.storm = await storm({
    ...{ target, swarm, server, workers, env, payloadBytes, sources },
    obey: !values.ignoreDelays,
    timeoutMs: (window + 180) * 1000,
  });
  const { open, left } = report.storm;
  if (left < connections || open !== connections)
    throw new Error(`storm: ${left} connections left, ${open} of ${connections} are back`);
  check('storm', report.storm);
}

/**
 * Opens connections up to a number, then measures memory, and the CPU of some broadcasts.
 * @param {Bench} bench
 * @param {Outcome} outcome gets a stage
 * @param {{members: number, base: ReturnType<typeof memory>, payloadBytes: number}} options
 */
async function stage(bench, outcome, { members, base, payloadBytes }) {
  const { target, swarm } = bench;
  const { stages, opening, size } = outcome;
  const open = stages.at(-1)?.members ?? 0;
  await openUpTo(bench, opening, { members, open, sources: size.sources });
  // Pings of many connections cost as much as a broadcast that takes long.
  const { cores } = await idleCpu(target, STAGE_IDLE_S);
  const now = memory(bench);
  // Enough deliveries for the ticks of the kernel's clock to mean something.
  const messages = Math.max(2, Math.ceil(200_000 / members));
  const perSecond = Math.min(20, 40_000 / members);
  const run = { perSecond, seconds: messages / perSecond, payloadBytes };
  const step = await broadcast(target, swarm, run);
  if (!step.isClean)
    throw new Error(
      `with ${members} members ${step.received} of ${step.expected} arrived, ${step.lost} connections lost`,
    );
  const { p50Ms, p99Ms, maxMs } = step;
  stages.push({
    members,
    ...memoryEach(base, now, members),
    idleCores: cores,
    cpuPerMillion: perMillion(step, cores),
    ...{ p50Ms, p99Ms, maxMs },
  });
  const { kbPerConnection, kernelKbPerConnection, cpuPerMillion } = stages[stages.length - 1];
  console.log(
    `${figure(members, 0)} connections, opened in ${figure(opening.seconds)} s: ${figure(kbPerConnection, 2)} kB each in the server (PSS), ${figure(kernelKbPerConnection, 2)} kB in the kernel (both ends), ${figure(cpuPerMillion)} CPU-s per 1M deliveries, p99 ${figure(p99Ms, 0)} ms`,
  );
}

/**
 * The server's CPU seconds for a million deliveries, without what it takes at rest.
 * @param {{ serverCpuSeconds: number, wallSeconds: number, received: number }} step
 * @param {number} idleCores
 */
function perMillion({ serverCpuSeconds, wallSeconds, received }, idleCores) {
  return (serverCpuSeconds - idleCores * wallSeconds) / (received / 1e6);
}

/** @param {string} what @param {Record<string, any>} others @returns {[string, string][]} */
function othersRows(what, others) {
  const { count, perSecond, beforeP50Ms, beforeP99Ms, refused, closed, received, expected } =
    others;
  return [
    ...(Number.isNaN(beforeP99Ms)
      ? []
      : /** @type {[string, string][]} */ ([
          [
            `${what}: p50 / p99 of ${figure(count, 0)} others, ${perSecond} messages/s, before`,
            `${figure(beforeP50Ms)} / ${figure(beforeP99Ms)} ms`,
          ],
        ])),
    [
      `${what}: the same meanwhile, and the maximum`,
      `${[others.p50Ms, others.p99Ms, others.maxMs].map((each) => figure(each)).join(' / ')} ms`,
    ],
    [
      `${what}: deliveries to the others`,
      `${figure(received, 0)} of ${figure(expected, 0)}${closed > 0 ? `, without those that were closed and came back (${figure(closed, 0)} times)` : ''}${refused > 0 ? `; ${refused} messages were refused` : ''}`,
    ],
  ];
}

/** @param {string} what @param {Record<string, any>} after @returns {[string, string]} */
function afterRow(what, { received, expected, p99Ms }) {
  return [
    `after the ${what}: a broadcast reached`,
    `${figure(received, 0)} of ${figure(expected, 0)}, p99 ${figure(p99Ms)} ms`,
  ];
}

/** @param {Record<string, any>} report @returns {[string, string][]} names and figures */
function changeRows({ drop, visits, reload }) {
  /** @type {[string, string][]} */
  const rows = [];
  if (drop)
    rows.push(
      [
        `drop: ${figure(drop.dropped, 0)} connections vanished at once, and all were back after`,
        `${figure(drop.seconds)} s; ${figure(drop.failed, 0)} handshakes failed`,
      ],
      [
        'drop: CPU of the server; of the whole machine',
        `${figure(drop.serverCpuSeconds)} s; ${figure(drop.machineBusySeconds)} s`,
      ],
      ...othersRows('drop', drop.others),
      afterRow('drop', drop.after),
    );
  if (visits)
    rows.push(
      [
        `visits: ${figure(visits.perSecond, 0)} joins and as many leaves a second, answered`,
        `${figure(visits.joined, 0)} and ${figure(visits.left, 0)} of ${figure(visits.visits, 0)}, in ${figure(visits.seconds)} s`,
      ],
      [
        'visits: a join takes p50 / p99 / max',
        `${[visits.p50Ms, visits.p99Ms, visits.maxMs].map((each) => figure(each)).join(' / ')} ms`,
      ],
      [
        'visits: CPU of the server; of the whole machine',
        `${figure(visits.serverCores, 2)} cores; ${figure(visits.machineCores, 2)} cores`,
      ],
      ...othersRows('visits', visits.others),
    );
  if (reload)
    rows.push(
      [
        `reload: all ${reload.workers} workers replaced after; the slowest`,
        `${figure(reload.seconds)} s; ${figure(slowest(reload.replacedSeconds))} s`,
      ],
      [
        'reload: time away p50 / p99 / max',
        `${[reload.awayP50Seconds, reload.awayP99Seconds, reload.maxSeconds].map((each) => figure(each)).join(' / ')} s`,
      ],
      [
        'reload: connections closed (some more than once); attempts that failed',
        `${figure(reload.left, 0)}; ${figure(reload.retries, 0)}`,
      ],
      [
        'reload: most connections back within one second; CPU of the machine',
        `${figure(Math.max(...reload.backBySecond), 0)}; ${figure(reload.machineBusySeconds)} s`,
      ],
      ...othersRows('reload', reload.others),
      afterRow('reload', reload.after),
    );
  return rows;
}

/** @param {readonly number[]} times when each was done, one after another */
function slowest(times) {
  return Math.max(...times.map((time, i) => time - (times[i - 1] ?? 0)));
}

/** @param {number|undefined} value */
function figure(value, digits = 1) {
  return show(value ?? Number.NaN, digits);
}

/**
 * @param {Record<string, any> | undefined} s the storm
 * @param {number} connections
 * @returns {[string, string][]} names and figures
 */
function stormRows(s, connections) {
  if (!s) return [];
  const { others, after } = s;
  return [
    [
      'storm: all connections closed, and all back, after the signal',
      `${figure(s.lastLeftSeconds)} s, ${figure(s.lastBackSeconds)} s`,
    ],
    [
      'storm: time away p50 / p99 / max',
      `${[s.awayP50Seconds, s.awayP99Seconds, s.maxSeconds].map((each) => figure(each)).join(' / ')} s`,
    ],
    [
      'storm: attempts that failed; connections that were closed again after their return',
      `${figure(s.retries, 0)}; ${figure(s.left - connections, 0)}`,
    ],
    ['storm: most connections back within one second', figure(Math.max(...s.backBySecond), 0)],
    [
      'storm: CPU of the second server; of the machine',
      `${figure(s.serverCpuSeconds)} s; ${figure(s.machineBusySeconds)} s`,
    ],
    ...othersRows('storm', others),
    afterRow('storm', after),
  ];
}

/** @param {Outcome} outcome @param {Values} values @returns {string[]} the report */
function linesOf({ size, stages, opening, measured: report }, values) {
  const { connections, interval } = values;
  const { workers, hold } = size;
  const last = stages.at(-1) ?? {};
  const { empty, idle: idling, workersPssKb = [] } = report;
  const { sent, refused, ...step } = report.broadcast ?? {};
  const { p50Ms, p99Ms, maxMs, serverCpuSeconds, wallSeconds, cpuSeconds } = step;
  return [
    ...markdownTable(
      ['measured', 'figure'],
      [
        [
          'opened (upgraded and joined) in; handshakes that failed',
          `${figure(opening.seconds)} s; ${figure(opening.failed, 0)}`,
        ],
        ['server CPU per handshake', `${figure((opening.cpuSeconds * 1000) / connections, 3)} ms`],
        [
          'memory of the server without connections (PSS)',
          `${figure(empty?.pssKb / 1000, 0)} MB, ${figure(empty?.pssKb / 1000 / (workers + 1))} MB a process`,
        ],
        [
          'memory of the server with all connections (PSS)',
          `${figure(idling?.pssKb / 1000, 0)} MB, ${figure(idling?.pssKb / connections, 2)} kB a connection, processes included`,
        ],
        [
          'memory per connection in the server (PSS): the growth',
          `${figure(last.kbPerConnection, 2)} kB`,
        ],
        [
          'memory per connection in the kernel: the server’s end; both ends',
          `${figure(last.kernelKbPerConnection / 2, 2)} kB; ${figure(last.kernelKbPerConnection, 2)} kB`,
        ],
        ['memory per connection in the client', `${figure(last.clientKbPerConnection, 2)} kB`],
        [
          'memory per connection of the whole machine',
          `${figure(last.systemKbPerConnection, 2)} kB`,
        ],
        ['idle CPU of the server without connections', `${figure(empty?.cores, 3)} cores`],
        [
          'idle CPU of the server with all; of the whole machine',
          `${figure(idling?.cores, 3)} cores; ${figure(idling?.machineCores, 3)} cores`,
        ],
        [
          'broadcasts; those that the server refused, with an error',
          `${figure(sent, 0)}, one every ${interval} s, in ${figure(hold, 0)} s; ${figure(refused, 0)}`,
        ],
        [
          'latency p50 / p99 / max',
          `${[p50Ms, p99Ms, maxMs].map((ms) => figure(ms)).join(' / ')} ms`,
        ],
        [
          'server CPU during the broadcasts',
          `${figure(serverCpuSeconds)} s of ${figure(wallSeconds)} s`,
        ],
        [
          'server CPU of a million deliveries in them, without the idle CPU',
          `${figure(report.broadcast && perMillion(report.broadcast, idling.cores))} s`,
        ],
        ['client CPU', `${figure(cpuSeconds)} s`],
        ['connections lost', figure(report.broadcast?.lost, 0)],
        ['time stolen by the hypervisor', `${figure(report.broadcast?.stolenSeconds, 2)} s`],
        ...changeRows(report),
        ...stormRows(report.storm, connections),
      ],
      1,
    ),
    '',
    ...markdownTable(
      [
        'members',
        'server, kB each (PSS)',
        'kernel, kB each (both ends)',
        'idle, cores',
        'whole machine, kB each',
        'server CPU-s per 1M deliveries, without idle',
        'p50, ms',
        'p99, ms',
        'max, ms',
      ],
      stages.map((each) => [
        figure(each.members, 0),
        figure(each.kbPerConnection, 2),
        figure(each.kernelKbPerConnection, 2),
        figure(each.idleCores, 2),
        ...[each.systemKbPerConnection, each.cpuPerMillion, each.p50Ms, each.p99Ms, each.maxMs].map(
          (value) => figure(value),
        ),
      ]),
    ),
    '',
    `Workers, PSS in MB: ${workersPssKb.map((/** @type {number} */ kb) => figure(kb / 1000)).join(', ')}`,
    ...(report.storm
      ? ['', `Back, by second after the signal: ${report.storm.backBySecond.join(', ')}`]
      : []),
  ];
}
