// workloads.js: the workloads, one function each.
//
// A workload gets a fresh server and a fresh swarm of client processes and answers with figures. A
// figure of a run that lost or repeated a message does not exist (null): the report shows it as
// failed, never as fast.

import { setTimeout as sleep } from 'node:timers/promises';
import { percentileMs } from '../../test/harness/latency.js';
import { fixedRates, fixedRooms } from './fixed-rates.js';
import { searchRate } from './search.js';
import { quiet } from './servers.js';
import {
  CLIENT_BOUND,
  clean,
  costs,
  describe,
  fixed,
  flagsOf,
  isClientBound,
  measured,
  metric,
  openAll,
  plain,
} from './step.js';

/**
 * @typedef {object} Bench the means of a workload
 * @property {import('./servers.js').Target} target
 * @property {import('./swarm.js').Swarm} swarm
 * @property {boolean} quick shorter and smaller: to see that it works, not to compare
 * @property {number} payloadBytes
 * @property {number} sources
 * @property {number} [known] the load that an earlier round's search found for this server
 * @property {(line: string) => void} log
 * @property {(() => Promise<number>)|null} [liveBytes] collects the server's garbage and returns the
 *   bytes of its live heap; null: the server cannot do that
 */

/**
 * @typedef {object} Figures
 * @property {Record<string, number | null>} values by the metric's key
 * @property {string[]} flags remarks for the reader: client-bound, messages were lost, …
 * @property {Record<string, unknown>} detail kept in the JSON report
 * @property {number} [load] the one a search found
 * @property {Record<string, Figures>} [parts] of its tables, if they are several
 */

/**
 * @typedef {object} Table of the report
 * @property {string} title
 * @property {readonly import('./step.js').Metric[]} metrics the first one leads
 */

/**
 * @typedef {object} Workload
 * @property {string} title
 * @property {readonly import('./step.js').Metric[]} metrics
 * @property {Record<string, Table>} [parts] its tables, if they are several
 * @property {number} [rounds] servers started for it; without, ROUNDS
 * @property {(bench: Bench) => Promise<Figures>} run
 */

/** Servers started for a workload that says nothing else. */
export const ROUNDS = 3;
/** … and for those whose figures the README compares first. */
const MANY_ROUNDS = 5;

/** Milliseconds at the 95th percentile within which a saturated server must still deliver. */
const SATURATED_P95_MS = 500;
/** … at the 99th with many small rooms. */
const ROOMS_P99_MS = 250;

/** The remark of a server whose protocol has no echo. */
export const NO_ECHO = 'has no echo';

/** @type {Record<string, Workload>} */
export const WORKLOADS = {
  fixed: { ...fixedRates, rounds: MANY_ROUNDS },
  'fixed-rooms': { ...fixedRooms, rounds: MANY_ROUNDS },
  ...saturated(1000),
  ...saturated(5000),
  idle: {
    title: '10,000 idle connections, each opened, upgraded and joined to one room',
    metrics: [
      metric('handshakesPerSecond', 'handshakes/s', '/s'),
      metric('cpuMsPerHandshake', 'server CPU per handshake', 'ms', 3),
      metric('kbPerConnection', 'memory per idle connection (PSS)', 'kB', 2),
    ],
    run: idle,
  },
  ...lowRate(1000, { warmUpSeconds: 7, warmSeconds: 6 }),
  ...lowRate(5000, { warmUpSeconds: 4, warmSeconds: 3 }),
  echo: {
    title: 'echo: 64 connections, one message on its way each',
    metrics: [
      metric('messagesPerSecond', 'messages/s', '/s'),
      metric('cpuUsPerMessage', 'server CPU per message', 'µs', 1),
      metric('p99Ms', 'p99', 'ms', 2),
    ],
    run: echo,
  },
  rooms: {
    title: `1,000 rooms of 10 members: most messages/s with p99 ≤ ${ROOMS_P99_MS} ms, none lost`,
    metrics: [
      metric('messagesPerSecond', 'messages/s', '/s'),
      metric('cpuUsPerMessage', 'server CPU per message', 'µs', 1),
      metric('redisCpuUsPerMessage', 'Redis CPU per message', 'µs', 1),
    ],
    run: smallRooms,
  },
  neighbours: {
    title:
      'a small room beside a room of 10,000: p99 of 100 small rooms of 10, 100 messages/s, alone and while the big room gets 10 messages/s',
    metrics: [
      metric('timesSlower', 'p99 beside ÷ alone', '×', 1),
      metric('p99AloneMs', 'p99 alone', 'ms', 2),
      metric('p99BesideMs', 'p99 beside', 'ms', 2),
      metric('bigP99Ms', "the big room's p99", 'ms', 1),
    ],
    run: neighbours,
  },
};

/** @type {Record<string, Table>} by name */
export const TABLES = Object.fromEntries(
  Object.entries(WORKLOADS).flatMap(([name, workload]) =>
    Object.entries(workload.parts ?? { [name]: workload }),
  ),
);

/** @type {Workload['run']} */
async function idle({ target, swarm, quick, sources, liveBytes = null }) {
  const count = quick ? 2000 : 10_000;
  await swarm.aim(target);
  // The first connections pay for compiling the code: they are opened before, and stay.
  await swarm.open({ count: 200, group: 1, room: 'warm', sources });
  await quiet(target, 3000);
  const kbBefore = target.pssKb();
  const cpuBefore = target.cpuSeconds();
  const opened = await swarm.open({ count, sources });
  await quiet(target, 3000);
  const cpuSeconds = target.cpuSeconds() - cpuBefore;
  await sleep(quick ? 1000 : 5000);
  const kbAfter = target.pssKb();
  const { open, lost } = await swarm.status();
  const complete = opened.open === count && opened.failed === 0 && open === count;
  const flags = complete
    ? []
    : [`${opened.failed} of ${count} connections failed, ${lost} were lost`];
  const busiest = opened.cpuSeconds / opened.seconds / swarm.size;
  if (isClientBound({ busiest })) flags.push(CLIENT_BOUND);
  /** @type {Record<string, number>} */
  const live = {};
  if (liveBytes !== null) {
    // A collection may discard compiled code, so the first one comes after the handshakes.
    const before = await liveBytes();
    await openAll(swarm, { count: count / 2, group: 2, sources });
    await quiet(target, 3000);
    live.liveKbPerConnection = ((await liveBytes()) - before) / 1000 / (count / 2);
  }
  return {
    values: {
      handshakesPerSecond: complete ? count / opened.seconds : null,
      cpuMsPerHandshake: complete ? (cpuSeconds * 1000) / count : null,
      kbPerConnection: complete ? (kbAfter - kbBefore) / count : null,
      ...live,
      clientCpuSeconds: opened.cpuSeconds,
      clientBusiest: busiest,
      serverCpuSeconds: cpuSeconds,
    },
    flags,
    detail: { count, opened, kbBefore, kbAfter, lost },
  };
}

/**
 * @param {number} members
 * @param {{ warmUpSeconds: number, warmSeconds: number }} seconds unmeasured between fresh and
 *   warm, and measured: the second enough for half a second of the server's CPU
 * @returns {Record<string, Workload>}
 */
function lowRate(members, { warmUpSeconds, warmSeconds }) {
  return {
    [`low-${members}`]: {
      title: `${members.toLocaleString('en')} members, 10 messages/s: the first 3 s of a server just started, and then warm`,
      metrics: [
        metric('cpuPerMillion', 'server CPU-s per 1M deliveries', 's', 1),
        metric('warmCpuPerMillion', 'the same, warm', 's', 1),
        metric('p50Ms', 'p50, warm', 'ms', 1),
        metric('p95Ms', 'p95, warm', 'ms', 1),
        metric('p99Ms', 'p99, warm', 'ms', 1),
      ],
      async run({ target, swarm, quick, payloadBytes, sources, log }) {
        await swarm.aim(target);
        await openAll(swarm, { count: members, sources });
        await quiet(target, 3000);
        const fresh = await measured(target, () =>
          swarm.run({ perSecond: 10, seconds: quick ? 1 : 3, payloadBytes }),
        );
        log(`fresh: ${describe(fresh)}`);
        // Compilers and collectors that the first seconds have set off are done by then.
        await swarm.run({ perSecond: 10, seconds: quick ? 1 : warmUpSeconds, payloadBytes });
        const step = await measured(target, () =>
          swarm.run({ perSecond: 10, seconds: quick ? 2 : warmSeconds, payloadBytes }),
        );
        log(`warm: ${describe(step)}`);
        return {
          values: {
            cpuPerMillion: clean(fresh) ? fresh.serverCpuSeconds / (fresh.received / 1e6) : null,
            warmCpuPerMillion: clean(step) ? step.serverCpuSeconds / (step.received / 1e6) : null,
            p50Ms: clean(step) ? step.p50Ms : null,
            p95Ms: clean(step) ? step.p95Ms : null,
            p99Ms: clean(step) ? step.p99Ms : null,
            ...costs(step),
          },
          flags: [...flagsOf(fresh), ...flagsOf(step)],
          detail: { fresh: plain(fresh), step: plain(step) },
        };
      },
    },
  };
}

/** @param {number} members @returns {Record<string, Workload>} */
function saturated(members) {
  return {
    [`saturated-${members}`]: {
      title: `${members.toLocaleString('en')} members, saturated: most deliveries/s with p95 ≤ ${SATURATED_P95_MS} ms, none lost`,
      metrics: [
        metric('deliveriesPerSecond', 'deliveries/s', '/s'),
        metric('cpuPerMillion', 'server CPU-s per 1M deliveries', 's', 2),
        metric('bytesPerFrame', 'bytes per frame', 'B'),
      ],
      rounds: MANY_ROUNDS,
      async run({ target, swarm, quick, payloadBytes, sources, known, log }) {
        await swarm.aim(target);
        await openAll(swarm, { count: members, sources });
        const seconds = quick ? 0.8 : 1.6;
        await swarm.run({ perSecond: 15_000 / members, seconds: 0.7, payloadBytes });
        const best = await searchRate({
          start: 30_000,
          grow: 2.5,
          bisections: quick ? 1 : 4,
          retries: quick ? 0 : 1,
          known,
          attempt: async (rate) => {
            const step = await measured(target, () =>
              swarm.run({ perSecond: rate / members, seconds, payloadBytes }),
            );
            // What arrived while messages were sent: a backlog that is delivered afterwards is no
            // throughput.
            const ok = clean(step) && step.p95Ms <= SATURATED_P95_MS;
            log(`${Math.round(rate).toLocaleString('en')}/s: ${describe(step)}${ok ? '' : ' ✗'}`);
            return { ok, score: step.inWindow / seconds, step };
          },
          recover: (step) => rest(step, target, swarm, { count: members, sources }),
        });
        return searched(best, (step, score) => ({
          deliveriesPerSecond: score,
          cpuPerMillion: step.serverCpuSeconds / (step.received / 1e6),
          bytesPerFrame: step.bytes / step.frames,
        }));
      },
    },
  };
}

/** @type {Workload['run']} */
async function smallRooms({ target, swarm, quick, payloadBytes, sources, known, log }) {
  const rooms = quick ? 100 : 1000;
  const publishers = Math.floor(10 / swarm.size);
  const members = { count: rooms * publishers * swarm.size, rooms, room: 'room-', sources };
  await swarm.aim(target);
  await openAll(swarm, members);
  const seconds = quick ? 1 : 2;
  const options = { payloadBytes, everyProcess: true, publishers };
  // Warm: what code that is not compiled yet makes late in the first seconds is no limit of the
  // server's.
  await swarm.run({
    perSecond: quick ? 500 : Math.max(2000, (known ?? 0) / 2),
    seconds: quick ? 1 : 4,
    ...options,
  });
  const best = await searchRate({
    start: 2000,
    grow: 2,
    bisections: quick ? 1 : 3,
    retries: quick ? 0 : 1,
    known,
    attempt: async (rate) => {
      const step = await measured(target, () =>
        swarm.run({ perSecond: rate, seconds, ...options }),
      );
      const ok = clean(step) && step.p99Ms <= ROOMS_P99_MS;
      log(
        `${Math.round(rate).toLocaleString('en')} messages/s: ${describe(step)}${ok ? '' : ' ✗'}`,
      );
      return { ok, score: step.inWindow / seconds / (members.count / rooms), step };
    },
    recover: (step) => rest(step, target, swarm, members),
  });
  return searched(best, (step, score) => ({
    messagesPerSecond: score,
    cpuUsPerMessage: (step.serverCpuSeconds * 1e6) / step.sent,
    redisCpuUsPerMessage:
      step.redisCpuSeconds > 0 ? (step.redisCpuSeconds * 1e6) / step.sent : null,
  }));
}

/** @type {Workload['run']} */
async function echo({ target, swarm, quick, payloadBytes, sources }) {
  if (!target.profile.echo)
    return { values: { messagesPerSecond: null }, flags: [NO_ECHO], detail: {} };
  await swarm.aim({ ...target, echo: true });
  await openAll(swarm, { count: 64, sources });
  await swarm.echo({ seconds: 1, payloadBytes });
  const seconds = quick ? 1 : 3;
  const step = await measured(target, () => swarm.echo({ seconds, payloadBytes }));
  const ok = step.lost === 0 && step.open === 64;
  const flags = [];
  if (!ok) flags.push(`${step.lost} connections lost`);
  if (isClientBound(step)) flags.push(CLIENT_BOUND);
  if (step.cpuSeconds > step.serverCpuSeconds) flags.push('the client costs more than the server');
  return {
    values: {
      messagesPerSecond: ok ? step.inWindow / seconds : null,
      cpuUsPerMessage: ok ? (step.serverCpuSeconds * 1e6) / step.received : null,
      p99Ms: ok ? step.p99Ms : null,
      ...costs(step),
    },
    flags,
    detail: { step: plain(step) },
  };
}

/** @type {Workload['run']} */
async function neighbours(bench) {
  // The small rooms have a client process of their own. Otherwise a late delivery may only be one
  // that its client has not read yet, because thousands of the big room came before it.
  const smallSwarm = bench.swarm.another(1).start();
  try {
    return await compareNeighbours(bench, smallSwarm);
  } finally {
    await smallSwarm.close();
  }
}

/**
 * @param {Bench} bench its swarm is in the big room
 * @param {import('./swarm.js').Swarm} smallSwarm in the small rooms
 * @returns {Promise<Figures>}
 */
async function compareNeighbours({ target, swarm, quick, payloadBytes, sources, log }, smallSwarm) {
  const big = quick ? 2000 : 10_000;
  const rooms = 100;
  const seconds = quick ? 2 : 5;
  await swarm.aim(target);
  await smallSwarm.aim(target);
  await openAll(swarm, { count: big, room: 'big', sources });
  await openAll(smallSwarm, { count: rooms * 10, rooms, room: 'small-', sources });
  const small = { perSecond: 100, payloadBytes, publishers: 10, drainMs: 4000 };
  await Promise.all([
    smallSwarm.run({ ...small, seconds: 1 }),
    swarm.run({ perSecond: 5, seconds: 1, payloadBytes, drainMs: 4000 }),
  ]);
  await quiet(target, 3000);
  const alone = await measured(target, () => smallSwarm.run({ ...small, seconds }));
  /** @type {import('./swarm.js').RunResult | undefined} */
  let bigRun;
  const beside = await measured(target, async () => {
    const [smallResult, bigResult] = await Promise.all([
      smallSwarm.run({ ...small, seconds }),
      swarm.run({ perSecond: 10, seconds, payloadBytes, drainMs: 4000 }),
    ]);
    bigRun = bigResult;
    return smallResult;
  });
  const bigResult = /** @type {import('./swarm.js').RunResult} */ (bigRun);
  const bigP99Ms = percentileMs(bigResult.histogram, 0.99);
  log(
    `alone ${describe(alone)}; beside ${describe(beside)}; big p99 ${fixed(bigP99Ms)} ms, ${bigResult.received}/${bigResult.expected}`,
  );
  const ok = clean(alone) && clean(beside);
  const bigOk = clean({ ...beside, ...bigResult });
  const flags = flagsOf(beside);
  if (!bigOk)
    flags.push(`the big room lost messages: ${bigResult.received} of ${bigResult.expected}`);
  return {
    values: {
      timesSlower: ok && bigOk ? beside.p99Ms / alone.p99Ms : null,
      p99AloneMs: ok ? alone.p99Ms : null,
      p99BesideMs: ok && bigOk ? beside.p99Ms : null,
      bigP99Ms: bigOk ? bigP99Ms : null,
      ...costs(beside),
    },
    flags,
    detail: { alone: plain(alone), beside: plain(beside), bigP99Ms },
  };
}

/**
 * After a step that failed: a server that has nothing left to do, and new connections where some
 * are gone or have missed something. One that was only late has nothing behind it that the next
 * step could meet.
 * @param {import('./step.js').Step} step
 * @param {import('./servers.js').Target} target
 * @param {import('./swarm.js').Swarm} swarm
 * @param {Parameters<import('./swarm.js').Swarm['open']>[0]} options
 */
async function rest(step, target, swarm, options) {
  if (clean(step)) return quiet(target, 3000);
  await swarm.hangUp();
  await quiet(target, 8000);
  await openAll(swarm, options);
  await quiet(target, 3000);
}

/**
 * @param {{ score: number, step: import('./step.js').Step, load: number } | null} best
 * @param {(step: import('./step.js').Step, score: number) => Record<string, number | null>} valuesOf
 * @returns {Figures}
 */
function searched(best, valuesOf) {
  if (!best) return { values: {}, flags: ['no rate passed'], detail: {} };
  return {
    values: { ...valuesOf(best.step, best.score), ...costs(best.step) },
    flags: flagsOf(best.step),
    detail: { step: plain(best.step) },
    load: best.load,
  };
}
