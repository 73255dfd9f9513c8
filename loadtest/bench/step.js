// step.js: one measured run: its cost, its faults, and the remarks that a reader needs.

import { availableParallelism } from 'node:os';
import { percentileMs } from '../../test/harness/latency.js';
import { machineSeconds } from './machine.js';

/** From this share of a core on, a process of the client may be what bounds a row. */
const BUSY_CLIENT = 0.9;
/** The remark of such a row. */
export const CLIENT_BOUND = 'client-bound';
/** From this share of all processors on, processes that are not measured disturb a row. */
const BUSY_OTHERS = 0.15;
/** The remark of such a row: a server without processors joins more, which looks cheap. */
export const DISTURBED = 'disturbed by other processes';

/** For the deliveries of a broadcast that are under way at its end. */
const BROADCAST_DRAIN_MS = 120_000;
/** How often a broadcast is tried that is refused. */
const ATTEMPTS = 5;

/**
 * @typedef {object} Metric
 * @property {string} key
 * @property {string} title
 * @property {string} unit
 * @property {number} digits
 */

/**
 * @param {string} key
 * @param {string} title
 * @param {string} unit
 * @param {number} [digits]
 * @returns {Metric}
 */
export const metric = (key, title, unit, digits = 0) => ({ key, title, unit, digits });

/**
 * Opens connections, all of them or none.
 * @param {import('./swarm.js').Swarm} swarm
 * @param {Parameters<import('./swarm.js').Swarm['open']>[0]} options
 */
export async function openAll(swarm, options) {
  const opened = await swarm.open(options);
  if (opened.failed > 0)
    throw new Error(`${opened.failed} of ${options.count} connections could not be opened`);
}

/**
 * Runs some work and measures its cost for the server, Redis, the client and the machine.
 * @template {import('./swarm.js').RunResult} T
 * @param {import('./servers.js').Target} target
 * @param {() => Promise<T>} work
 */
export async function measured(target, work) {
  const machine = machineSeconds();
  const server = target.cpuSeconds();
  const redis = target.redisCpuSeconds();
  const started = performance.now();
  const result = await work();
  const wallSeconds = (performance.now() - started) / 1000;
  const serverCpuSeconds = target.cpuSeconds() - server;
  const redisCpuSeconds = target.redisCpuSeconds() - redis;
  const after = machineSeconds();
  return {
    ...result,
    wallSeconds,
    serverCpuSeconds,
    redisCpuSeconds,
    stolenSeconds: after.stolen - machine.stolen,
    otherCpuSeconds: Math.max(
      0,
      after.busy - machine.busy - serverCpuSeconds - redisCpuSeconds - result.cpuSeconds,
    ),
    p50Ms: percentileMs(result.histogram, 0.5),
    p95Ms: percentileMs(result.histogram, 0.95),
    p99Ms: percentileMs(result.histogram, 0.99),
  };
}

/** @typedef {Awaited<ReturnType<typeof measured<import('./swarm.js').RunResult>>>} Step */

/**
 * Broadcasts to all members of a room. A server that is full may refuse a message with an error:
 * such messages are counted, and repeated if all were refused.
 * @param {import('./servers.js').Target} target
 * @param {import('./swarm.js').Swarm} swarm
 * @param {Parameters<import('./swarm.js').Swarm['run']>[0]} run
 */
export async function broadcast(target, swarm, run) {
  let refusedBefore = 0;
  for (let attempt = 1; ; attempt++) {
    const step = await measured(target, () =>
      swarm.run({ drainMs: BROADCAST_DRAIN_MS, ...run, refusing: true }),
    );
    // Each process of the client notices a message that none of its connections has. There may be
    // more errors: a message whose outcome is unknown may arrive all the same.
    const refused = (step.refused ?? 0) / swarm.size;
    const isExplained = Number.isInteger(refused) && refused <= (step.errors ?? 0);
    if (step.expected > 0 || !isExplained || attempt === ATTEMPTS)
      return { ...step, refused: refusedBefore + refused, isClean: clean(step) && isExplained };
    refusedBefore += refused;
  }
}

/**
 * Whether each message arrived once at each member, and no connection was lost.
 * @param {import('./swarm.js').RunResult} step
 */
export function clean(step) {
  return (
    step.received === step.expected && step.expected > 0 && step.wrong === 0 && step.lost === 0
  );
}

/** Did a process of the client have hardly any time left? @param {{ busiest: number }} step */
export function isClientBound({ busiest }) {
  return busiest >= BUSY_CLIENT;
}

/** @param {Step} step */
export function flagsOf(step) {
  const flags = [];
  if (!clean(step))
    flags.push(
      `lost: ${step.received} of ${step.expected} arrived, ${step.wrong} connections wrong, ${step.lost} disconnected`,
    );
  if (isClientBound(step)) flags.push(CLIENT_BOUND);
  if (step.otherCpuSeconds > BUSY_OTHERS * availableParallelism() * step.wallSeconds)
    flags.push(DISTURBED);
  if (step.cpuSeconds > step.serverCpuSeconds && step.serverCpuSeconds > 0.1)
    flags.push('the client costs more than the server');
  return flags;
}

/** Figures that every row has. @param {Step} step */
export function costs(step) {
  return {
    serverCpuSeconds: step.serverCpuSeconds,
    clientCpuSeconds: step.cpuSeconds,
    clientBusiest: step.busiest,
    stolenSeconds: step.stolenSeconds,
    otherShare: step.otherCpuSeconds / step.wallSeconds,
  };
}

/** Without its histogram, for the report. @param {Step} step */
export function plain(step) {
  const { histogram, ...rest } = step;
  return rest;
}

/** @param {number} number */
export const fixed = (number) => number.toFixed(1);

/** @param {Step} step */
export function describe(step) {
  const parts = [
    `${step.received}/${step.expected}`,
    `p50 ${fixed(step.p50Ms)} p95 ${fixed(step.p95Ms)} p99 ${fixed(step.p99Ms)} max ${fixed(step.maxMs)} ms`,
    `CPU server ${step.serverCpuSeconds.toFixed(2)} redis ${step.redisCpuSeconds.toFixed(2)} client ${step.cpuSeconds.toFixed(2)} other ${step.otherCpuSeconds.toFixed(2)} s`,
  ];
  if (step.wrong > 0) parts.push(`${step.wrong} connections wrong`);
  if (step.lost > 0) parts.push(`${step.lost} disconnected`);
  return parts.join(', ');
}
