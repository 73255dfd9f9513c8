// small-rooms.js: the other workload of scale.js: very many connections in small rooms, as those of
// real applications are.
//
// Messages go to all rooms in turn, and the members of a room take turns as senders. The script
// looks for the rate at which the server uses a given share of the processors, its idle CPU
// included, and then holds that rate. Every delivery is counted and timed, from the time its
// message was due. The members of a room belong to one client process, but to different workers,
// because the kernel spreads connections over the workers.

import { setTimeout as sleep } from 'node:timers/promises';
import { percentileMs } from '../../test/harness/latency.js';
import { markdownTable, show } from '../lib/figures.js';
import { idleCpu, memory, memoryEach, openUpTo, warmUp } from './held.js';
import { machineSeconds } from './machine.js';
import { clean, measured, plain } from './step.js';

/** The search begins with this many messages a second, and multiplies them by this at most. */
const FIRST_RATE = 200;
const MOST_GROWTH = 4;
/** Probes of the search, of this length: a message costs less when there are more. */
const PROBES = 6;
const PROBE_SECONDS = 5;
/** The search ends when the server's share is this close to the wanted one. */
const CLOSE_ENOUGH = 0.04;
const SETTLE_SECONDS = 90;
/** A rate at which more than one message in a hundred takes longer is too high. */
const LATE_MS = 1000;
/** What arrives later than this after the last message is lost. */
const DRAIN_MS = 30_000;

/** @typedef {import('./held.js').Bench} Bench */
/** @typedef {import('./held.js').Opening} Opening */
/** @typedef {import('../../test/harness/options.js').Values} Values */

/**
 * @param {Bench} bench @param {Values} values
 * @param {{size: {sources: number, idle: number, hold: number}, opening: Opening, measured: Record<string, any>}}
 *   outcome gets what was measured
 */
export async function smallRooms(bench, values, outcome) {
  const { target, swarm } = bench;
  const { connections, members, payload: payloadBytes } = values;
  const { size, opening, measured: report } = outcome;
  const { sources, idle, hold } = size;
  const rooms = Math.floor(connections / members);
  const own = { room: 'small-', ownRooms: { rooms, members } };
  report.rooms = { rooms, members };
  const { base, empty } = await warmUp(bench, { sources, idle: idle / 3, payloadBytes });
  report.empty = empty;
  await openUpTo(bench, opening, { members: rooms * members, sources, ...own });
  report.memory = memoryEach(base, memory(bench), rooms * members);
  console.log(`${rooms} rooms of ${members} open after ${show(opening.seconds, 1)} s`);
  report.idle = { ...(await idleCpu(target, idle)), pssKb: target.pssKb() };
  console.log(`idle: ${show(report.idle.cores, 3)} cores in the server`);
  const send = (/** @type {number} */ perSecond, /** @type {number} */ seconds) =>
    measured(target, () =>
      swarm.run({
        ...{ perSecond, seconds, payloadBytes, drainMs: DRAIN_MS },
        ...{ publishers: members, inOwnRooms: true },
      }),
    );
  report.search = [];
  const rate =
    values.rate || (await settledRate(send, values.cores, Math.min(SETTLE_SECONDS, hold), report));
  const stolen = machineSeconds().stolen;
  console.log(`now ${Math.round(rate)} messages a second, for ${hold} s`);
  const step = await send(rate, hold);
  report.run = {
    ...{ perSecond: rate, p999Ms: percentileMs(step.histogram, 0.999) },
    ...plain(step),
    stolenSeconds: machineSeconds().stolen - stolen,
  };
  demandClean(step);
}

/**
 * With many workers each has few messages, and V8 optimizes their code only after some minutes: so
 * the first rate is held for a while, and the second search begins there.
 * @param {Parameters<typeof findRate>[0]} send @param {number} cores
 * @param {number} seconds @param {Record<string, any>} report gets the probes
 */
async function settledRate(send, cores, seconds, report) {
  const first = await findRate(send, cores, report, FIRST_RATE);
  console.log(`${show(first)} messages a second for ${seconds} s, until the code is compiled`);
  demandClean(await send(first, seconds));
  return findRate(send, cores, report, first);
}

/**
 * The rate at which the server uses this many cores, or the highest below it if messages are late
 * there because other processes have the processors. The CPU of a message is taken from the last
 * probe, so the search comes close within a few.
 * @param {(perSecond: number, seconds: number) => Promise<import('./step.js').Step>} send
 * @param {number} cores @param {Record<string, any>} report gets the probes
 * @param {number} start
 */
async function findRate(send, cores, report, start) {
  const spare = cores - report.idle.cores;
  if (spare <= 0.05)
    throw new Error(`the idle server uses ${show(report.idle.cores, 2)} of ${cores} cores`);
  let held = 0;
  let tooMany = Number.POSITIVE_INFINITY;
  let rate = start;
  for (let probe = 0; probe < PROBES; probe++) {
    const step = await send(rate, PROBE_SECONDS);
    demandClean(step);
    const used = step.serverCpuSeconds / step.wallSeconds;
    const isLate = step.p99Ms > LATE_MS;
    report.search.push({ perSecond: rate, cores: used, p99Ms: step.p99Ms });
    console.log(
      `${show(rate)} messages a second: ${show(used, 2)} cores, p99 ${show(step.p99Ms)} ms`,
    );
    if (isLate || used > cores * (1 + CLOSE_ENOUGH)) tooMany = Math.min(tooMany, rate);
    else held = Math.max(held, rate);
    if (!isLate && Math.abs(used - cores) <= CLOSE_ENOUGH * cores) break;
    const each = Math.max(0.01 * cores, used - report.idle.cores) / rate;
    const next = isLate ? rate / 2 : Math.min(rate * MOST_GROWTH, spare / each);
    // Between what is held and what was too much.
    if (next > held && next < tooMany) rate = next;
    else rate = tooMany < Infinity ? Math.sqrt((held || tooMany / 4) * tooMany) : held * 1.2;
    await sleep(1000);
  }
  if (held === 0) throw new Error('messages are late at every rate');
  return held;
}

/** @param {import('./step.js').Step} step @throws if a delivery or a connection was lost */
function demandClean(step) {
  if (clean(step)) return;
  const { received, expected, wrong, lost } = step;
  throw new Error(
    `${received} of ${expected} deliveries arrived, ${wrong} connections did not get what they should, ${lost} connections lost`,
  );
}

/** @param {Record<string, any>} report @param {Opening} opening @param {number} connections */
export function roomLines({ rooms, empty, memory, idle, run = {} }, opening, connections) {
  const { perSecond, sent, p50Ms, p95Ms, p99Ms, p999Ms, maxMs, received } = run;
  const { serverCpuSeconds, wallSeconds, cpuSeconds } = run;
  const figures = (/** @type {number[]} */ values, digits = 1) =>
    values.map((value) => show(value ?? Number.NaN, digits)).join(' / ');
  const one = (/** @type {number|undefined} */ value, digits = 1) =>
    show(value ?? Number.NaN, digits);
  const cores = serverCpuSeconds / wallSeconds;
  return markdownTable(
    ['measured', 'figure'],
    [
      ['rooms; members of each', `${one(rooms?.rooms, 0)}; ${one(rooms?.members, 0)}`],
      [
        'opened (upgraded and joined) in; handshakes that failed',
        `${one(opening.seconds)} s; ${one(opening.failed, 0)}`,
      ],
      ['server CPU per handshake', `${one((opening.cpuSeconds * 1000) / connections, 3)} ms`],
      ['memory of the server without connections (PSS)', `${one(empty?.pssKb / 1000, 0)} MB`],
      ['memory of the server with all connections (PSS)', `${one(idle?.pssKb / 1000, 0)} MB`],
      [
        'memory per connection in the server (PSS): the growth, rooms included',
        `${one(memory?.kbPerConnection, 2)} kB`,
      ],
      [
        'memory per connection in the kernel: both ends; of the whole machine',
        `${one(memory?.kernelKbPerConnection, 2)} kB; ${one(memory?.systemKbPerConnection, 2)} kB`,
      ],
      ['idle CPU of the server without connections', `${one(empty?.cores, 3)} cores`],
      [
        'idle CPU of the server with all; of the whole machine',
        `${one(idle?.cores, 3)} cores; ${one(idle?.machineCores, 3)} cores`,
      ],
      [
        'messages a second; deliveries a second',
        `${one(perSecond, 0)}; ${one(perSecond * rooms?.members, 0)}`,
      ],
      ['messages; deliveries', `${one(sent, 0)}; ${one(received, 0)}, in ${one(wallSeconds)} s`],
      [
        'latency p50 / p95 / p99 / p99.9 / max',
        `${figures([p50Ms, p95Ms, p99Ms, p999Ms, maxMs])} ms`,
      ],
      ['server CPU; client CPU', `${figures([cores, cpuSeconds / wallSeconds], 2)} cores`],
      [
        'server CPU of a message, without the idle CPU',
        `${one(((cores - idle?.cores) / perSecond) * 1e6, 0)} us`,
      ],
      ['connections lost', one(run.lost, 0)],
      ['time stolen by the hypervisor', `${one(run.stolenSeconds, 2)} s`],
    ],
    1,
  );
}
