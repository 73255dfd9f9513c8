#!/usr/bin/env node
// capacity.js: the load that one server holds on this machine, at several numbers of connections: memory,
// processor time, the messages a second it keeps up with, and their latency. One row each, in a
// table with all that is needed to repeat it.
//
//   npm run capacity                                   1,000, 5,000, 10,000, 25,000 and 50,000 connections: five minutes
//   npm run capacity -- --sizes 1000,5000              these; others measured before on this machine stay in the table
//   npm run capacity -- --readme                       puts the table into loadtest/README.md, too
//
// Each size gets a fresh server (limits off, embedded broker, as many workers as its connections
// need) and client processes of the benchmark (bench/swarm.js), and goes through the same steps:
//
// 1. connect and join, as fast as it goes: processor time of a handshake;
// 2. rest, with nothing but the heartbeat: memory (PSS), processor time;
// 3. everyday: each connection says something once a minute, for --seconds;
// 4. search: the rate grows until a message is lost or p99 exceeds --limit-p99-ms, then bisection, 2 s a step;
// 5. hold: --seconds at 70 % of that rate, or if that fails at 50 or 35 %. With --messages: that rate, and no search.
//
// A row exists only if no message was lost, repeated or altered, and no connection was lost. MIX
// below has the rooms and their shares of the messages. Client and server share the processors, so
// absolute figures are too low; the figures of the clients stand beside them. README.md computes the
// size of a fleet from the costs.

import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { BUCKETS, meanMs } from '../test/harness/latency.js';
import { readOptions } from '../test/harness/options.js';
import { count, print } from '../test/harness/run.js';
import {
  availableKb,
  checkMachine,
  cpuSecondsOf,
  describeMachine,
  ephemeralPorts,
  MAX_SOCKETS,
} from './bench/machine.js';
import { OPTION, stopOnSignal, withServer } from './bench/script.js';
import { searchRate } from './bench/search.js';
import { quiet } from './bench/servers.js';
import { clean, measured } from './bench/step.js';
import { clientProgram } from './bench/swarm.js';
import { markdown, withTable } from './lib/capacity-table.js';
import { forTerminal, showMs } from './lib/figures.js';

/**
 * Most members are in conversations, many in channels, and a tenth in one hall that grows with the
 * number of connections. Hardly any messages go to the hall. Shares are of connections and of
 * messages.
 */
const MIX = Object.freeze([
  { room: 'conversation-', size: 10, connections: 0.6, messages: 0.65 },
  { room: 'channel-', size: 100, connections: 0.3, messages: 0.34 },
  { room: 'hall-', size: Number.POSITIVE_INFINITY, connections: 0.1, messages: 0.01 },
]);
const SEARCH_START = 250;
const SEARCH_SECONDS = 2;
/** Shares of the highest rate to hold: the next if one fails. */
const HELD_SHARES = [0.7, 0.5, 0.35];
const EVERYDAY_PER_CONNECTION = 1 / 60;
const MOST_MEMBERS_WHO_TALK = 20;
const WARM = MIX.length;

const README = fileURLToPath(new URL('README.md', import.meta.url));
const RESULTS = fileURLToPath(new URL('results/', import.meta.url));

const { values: options } = readOptions(
  `Measures the load that one server holds on this machine, at several numbers of connections.

  npm run capacity
  npm run capacity -- --sizes 5000 --messages 2000      does it hold this? exit code 0 or 1`,
  `sizes LIST | list of whole 10.. | 1000,5000,10000,25000,50000 | numbers of connections, of at least 10
  seconds S | number 1..3600 | 10 | how long a rate is held
  rest-seconds S | number 0..3600 | 5 | how long the connections rest
  limit-p99-ms MS | number 0..600000 | 250 | p99 above which a rate is not held
  messages RATE | number 1..10000000 | | messages a second to hold, instead of a search
  ${OPTION.payload}
  save PATH | | | results of this machine, to add to; without, loadtest/results/capacity.json
  readme | | | also writes the tables to loadtest/README.md`,
);
/** @type {number[]} */
const sizes = options.sizes;
const { seconds, restSeconds, limitP99Ms, payload: payloadBytes } = options;
const file = options.save || `${RESULTS}capacity.json`;

/**
 * Workers do not share connections quite evenly, so they get room for a third more than the mean.
 */
const plans = sizes.map((connections) => ({
  connections,
  workers: Math.max(availableParallelism(), Math.ceil(connections / (MAX_SOCKETS * 0.75))),
  processes: Math.max(2, Math.ceil(connections / MAX_SOCKETS)),
  sources: Math.max(2, Math.ceil(connections / (ephemeralPorts().count * 0.7))),
}));
for (const plan of plans) {
  const { problems } = checkMachine(plan);
  for (const problem of problems)
    print(`missing for ${count(plan.connections)} connections: ${problem}`);
  if (problems.length > 0) process.exit(1);
}
stopOnSignal();

clientProgram();
const machine = describeMachine();
let failed = 0;
for (const plan of plans) {
  /** @type {import('./lib/capacity-table.js').Row} */
  let row;
  try {
    row = await measure(plan);
  } catch (error) {
    failed++;
    print(`FAIL ${count(plan.connections)} connections: ${/** @type {Error} */ (error).message}`);
    continue;
  }
  const results = await saved();
  results.rows = [
    ...results.rows.filter(({ connections }) => connections !== row.connections),
    row,
  ];
  results.rows.sort((a, b) => a.connections - b.connections);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, `${JSON.stringify(results, null, 1)}\n`);
}
const results = await saved();
if (results.rows.length > 0) {
  const tables = markdown(results);
  print(`\n${process.stdout.isTTY ? forTerminal(tables) : tables}\n\nsaved as ${file}`);
}
if (options.readme)
  await writeFile(README, withTable(await readFile(README, 'utf8'), markdown(results)));
process.exit(failed === 0 ? 0 : 1);

/**
 * Earlier results of the same machine with the same versions and options. This run adds its sizes.
 * @returns {Promise<import('./lib/capacity-table.js').Results>}
 */
async function saved() {
  const fresh = { machine, limitP99Ms, seconds, payloadBytes, rows: [] };
  const text = await readFile(file, 'utf8').catch(() => '');
  if (text === '') return fresh;
  const { rows, ...before } = JSON.parse(text);
  return JSON.stringify({ ...fresh, rows: undefined }) === JSON.stringify(before)
    ? { ...before, rows }
    : fresh;
}

/**
 * One size, from the server's start to its end.
 * @param {{connections: number, workers: number, processes: number, sources: number}} plan
 * @returns {Promise<import('./lib/capacity-table.js').Row>} rejects if connections fail or
 *   nothing can be held
 */
async function measure({ connections, workers, processes, sources }) {
  const date = new Date().toISOString().slice(0, 10);
  print(
    `\n${count(connections)} connections: ${workers} workers, ${processes} client processes, ${sources} addresses`,
  );
  return withServer({ server: 'fanfare', processes, workers }, async ({ target, swarm }) => {
    // The code is compiled and the first rooms exist before anything counts.
    await swarm.open({ count: 200, group: WARM, room: 'warm-', rooms: 10, sources });
    await swarm.run({
      group: WARM,
      perSecond: 500,
      seconds: 1,
      publishers: 2,
      everyProcess: true,
      payloadBytes,
    });
    await swarm.hangUp({ group: WARM });
    await quiet(target, 5000);
    const [kbBefore, systemKbBefore] = [target.pssKb(), availableKb()];

    const openCpu = cpuOf(target, swarm);
    const groups = await openMix(swarm, connections, sources);
    await quiet(target, 10_000);
    const handshakes = openCpu();
    print(
      `  connected and joined with ${((handshakes.server * 1000) / connections).toFixed(2)} ms of server CPU each`,
    );

    const restCpu = cpuOf(target, swarm);
    await sleep(restSeconds * 1000);
    const rest = restCpu();
    const kb = target.pssKb() - kbBefore;
    const systemKb = systemKbBefore - availableKb();

    const everyday = await attempt(connections * EVERYDAY_PER_CONNECTION, seconds);
    if (!clean(everyday))
      throw new Error(`everyday load: ${everyday.received} of ${everyday.expected} arrived`);

    const most = options.messages > 0 ? null : await search();
    const rates =
      most === null ? [options.messages] : HELD_SHARES.map((share) => Math.round(most * share));
    for (const rate of rates) {
      const held = await attempt(rate, seconds);
      if (!isHeld(held)) continue;
      const open = await openIn(swarm, groups);
      if (open !== connections) throw new Error(`${connections - open} connections were lost`);
      return {
        connections,
        date,
        commit: String(machine.commit),
        workers,
        processes,
        rooms: groups.reduce((sum, { rooms }) => sum + rooms, 0),
        serverMb: target.pssKb() / 1000,
        kbPerConnection: kb / connections,
        systemKbPerConnection: systemKb / connections,
        handshakeCpuMs: (handshakes.server * 1000) / connections,
        restCores: rest.server / rest.seconds,
        everyday: loadOf(everyday),
        most,
        held: loadOf(held),
      };
    }
    throw new Error(
      `not held with p99 within ${limitP99Ms} ms: ${rates.map(count).join(', ')} messages/s`,
    );

    /** @param {number} rate @param {number} forSeconds */
    async function attempt(rate, forSeconds) {
      const step = await measured(target, () => talk(swarm, groups, rate, forSeconds));
      print(
        `  ${count(rate)} messages/s for ${forSeconds} s: ${count(step.received)} of ${count(step.expected)} deliveries, p99 ${showMs(step.p99Ms)}`,
      );
      return step;
    }

    /** @returns {Promise<number>} the highest messages/s that passed; rejects if none did */
    async function search() {
      const best = await searchRate({
        start: SEARCH_START,
        grow: 2,
        bisections: 2,
        retries: 1,
        attempt: async (rate) => {
          const step = await attempt(rate, SEARCH_SECONDS);
          return { ok: isHeld(step), score: rate, step };
        },
        recover: async () => {
          await quiet(target, 8000);
          if ((await openIn(swarm, groups)) === connections) return;
          for (const { group } of groups) await swarm.hangUp({ group });
          await quiet(target, 8000);
          await openMix(swarm, connections, sources);
        },
      });
      if (best === null) throw new Error(`no rate passed with p99 within ${limitP99Ms} ms`);
      return best.score;
    }
  });
}

/** @param {Step} step */
function isHeld(step) {
  return clean(step) && step.p99Ms <= limitP99Ms;
}

/** @param {Step} step @returns {import('./lib/capacity-table.js').Load} */
function loadOf(step) {
  return {
    messagesPerSecond: step.sent / seconds,
    deliveriesPerSecond: step.received / seconds,
    meanMs: meanMs(step.histogram),
    p99Ms: step.p99Ms,
    serverCores: step.serverCpuSeconds / step.wallSeconds,
    clientCores: step.cpuSeconds / step.wallSeconds,
    clientBusiest: step.busiest,
    cpuPerMillion: step.serverCpuSeconds / (step.received / 1e6),
    stolenCores: step.stolenSeconds / step.wallSeconds,
  };
}

/** @typedef {import('./bench/step.js').Step} Step */

/**
 * @typedef {{group: number, rooms: number, publishers: number, messages: number}} Group a row of
 *   MIX, opened
 */

/**
 * Opens the connections of all rows of MIX, each in a group of its own.
 * @param {import('./bench/swarm.js').Swarm} swarm @param {number} connections @param {number} sources
 * @returns {Promise<Group[]>} rejects if one fails
 */
async function openMix(swarm, connections, sources) {
  /** @type {Group[]} */
  const groups = [];
  let left = connections;
  for (const [group, { room, size, connections: share, messages }] of MIX.entries()) {
    const members = group === MIX.length - 1 ? left : Math.round(connections * share);
    left -= members;
    const rooms = Math.max(1, Math.round(members / size));
    const opened = await swarm.open({
      count: members,
      group,
      room,
      rooms,
      concurrency: 60 * swarm.size,
      sources,
    });
    if (opened.failed > 0)
      throw new Error(`${opened.failed} of ${count(members)} connections failed`);
    const publishers = Math.min(MOST_MEMBERS_WHO_TALK, Math.floor(members / swarm.size / rooms));
    if (publishers === 0)
      throw new Error(
        `${members} members are too few for ${rooms} rooms in ${swarm.size} processes`,
      );
    groups.push({ group, rooms, publishers, messages });
  }
  return groups;
}

/**
 * @param {import('./bench/swarm.js').Swarm} swarm
 * @param {readonly Group[]} groups
 * @returns {Promise<number>} connections that are open now
 */
async function openIn(swarm, groups) {
  let open = 0;
  for (const { group } of groups) open += (await swarm.status(group)).open;
  return open;
}

/**
 * All groups talk at once, each its share of the messages, members in turn.
 * @param {import('./bench/swarm.js').Swarm} swarm
 * @param {readonly Group[]} groups
 * @param {number} perSecond
 * @param {number} forSeconds
 * @returns {Promise<import('./bench/swarm.js').RunResult>}
 */
async function talk(swarm, groups, perSecond, forSeconds) {
  const { pids } = swarm;
  const before = pids.map((pid) => cpuSecondsOf([pid]));
  const startedMs = performance.now();
  const results = await Promise.all(
    groups.map(({ group, publishers, messages }) =>
      swarm.run({
        group,
        // A whole number of messages, one at least: they are spread over the time.
        perSecond: Math.max(1, Math.round(perSecond * messages * forSeconds)) / forSeconds,
        seconds: forSeconds,
        publishers,
        payloadBytes,
        everyProcess: true,
        drainMs: 4000,
      }),
    ),
  );
  // A process's own count would have its other groups in it.
  const cpu = pids.map((pid, i) => cpuSecondsOf([pid]) - before[i]);
  /** @typedef {import('./bench/swarm.js').RunResult} RunResult */
  /** @typedef {Exclude<keyof RunResult, 'histogram'|'refused'|'moved'|'errors'>} Figure */
  const sum = (/** @type {Figure} */ key) =>
    results.reduce((total, result) => total + result[key], 0);
  const most = (/** @type {Figure} */ key) => Math.max(...results.map((result) => result[key]));
  const histogram = new Float64Array(BUCKETS);
  for (const result of results)
    for (let i = 0; i < BUCKETS; i++) histogram[i] += result.histogram[i];
  return {
    open: sum('open'),
    expected: sum('expected'),
    received: sum('received'),
    inWindow: sum('inWindow'),
    wrong: sum('wrong'),
    lost: sum('lost'),
    sent: sum('sent'),
    stray: sum('stray'),
    // A process counts these three over all its groups.
    frames: most('frames'),
    bytes: most('bytes'),
    reads: most('reads'),
    maxMs: most('maxMs'),
    cpuSeconds: cpu.reduce((total, one) => total + one, 0),
    busiest: Math.max(...cpu) / ((performance.now() - startedMs) / 1000),
    histogram,
  };
}

/**
 * Starts to count processor time.
 * @param {import('./bench/servers.js').Target} target
 * @param {import('./bench/swarm.js').Swarm} swarm
 * @returns {() => {server: number, client: number, seconds: number}} since then, in seconds
 */
function cpuOf(target, swarm) {
  const [server, clients, startedMs] = [
    target.cpuSeconds(),
    cpuSecondsOf(swarm.pids),
    performance.now(),
  ];
  return () => ({
    server: target.cpuSeconds() - server,
    client: cpuSecondsOf(swarm.pids) - clients,
    seconds: (performance.now() - startedMs) / 1000,
  });
}
