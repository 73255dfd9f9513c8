// fixed-rates.js: the cost and the latency of a delivery or message at fixed rates, which do not
// depend on what the client could still take.
//
// One server gets all rates, in ascending order. A rate that it does not hold ends its row. The cost
// of a message falls as the rate grows, because more of them share a write or a wake-up. So compare
// servers at one rate, not each at the highest that it holds.

import { quiet } from './servers.js';
import { clean, costs, describe, flagsOf, measured, metric, openAll, plain } from './step.js';

/** Milliseconds at the 95th percentile above which a rate does not hold. */
const P95_MS = 500;
/** Compilers and collectors that the first seconds set off are done by then. */
const WARM_UP_SECONDS = 5;

const LATENCY = [metric('p50Ms', 'p50', 'ms', 1), metric('p95Ms', 'p95', 'ms', 1)];

/**
 * @typedef {object} Kind of rooms
 * @property {string} name of the workload, and the beginning of those of its tables
 * @property {string} title
 * @property {readonly number[]} rates messages a second
 * @property {Parameters<typeof openAll>[1]} members
 * @property {Partial<Parameters<import('./swarm.js').Swarm['run']>[0]>} senders
 * @property {readonly import('./step.js').Metric[]} metrics
 * @property {(step: import('./step.js').Step) => Record<string, number|null>} valuesOf
 */

export const fixedRates = atFixedRates({
  name: 'fixed',
  title: '1,000 members, RATE messages/s: what a delivery costs, and how long it takes',
  rates: [100, 1000, 3000, 4000],
  members: { count: 1000 },
  senders: {},
  metrics: [
    metric('cpuPerMillion', 'server CPU-s per 1M deliveries', 's', 2),
    ...LATENCY,
    metric('redisCpuPerMillion', "Redis' own CPU-s per 1M", 's', 3),
    metric('clientPerMillion', "client's CPU-s per 1M", 's', 2),
  ],
  valuesOf: (step) => {
    const perMillion = (/** @type {number} */ seconds) => seconds / (step.received / 1e6);
    return {
      cpuPerMillion: perMillion(step.serverCpuSeconds),
      redisCpuPerMillion: step.redisCpuSeconds > 0 ? perMillion(step.redisCpuSeconds) : null,
      clientPerMillion: perMillion(step.cpuSeconds),
    };
  },
});

export const fixedRooms = atFixedRates({
  name: 'fixed-rooms',
  title: '1,000 rooms of 10, RATE messages/s: what a message costs, and how long it takes',
  rates: [1000, 2000, 4000, 8000],
  members: { count: 10_000, rooms: 1000, room: 'room-' },
  senders: { everyProcess: true, publishers: 5 },
  metrics: [
    metric('cpuUsPerMessage', 'server CPU per message', 'µs', 0),
    metric('redisCpuUsPerMessage', 'Redis CPU per message', 'µs', 0),
    ...LATENCY,
    metric('p99Ms', 'p99', 'ms', 1),
    metric('clientUsPerMessage', 'client CPU per message', 'µs', 0),
  ],
  valuesOf: (step) => {
    const perMessage = (/** @type {number} */ seconds) => (seconds * 1e6) / step.sent;
    return {
      cpuUsPerMessage: perMessage(step.serverCpuSeconds),
      redisCpuUsPerMessage: step.redisCpuSeconds > 0 ? perMessage(step.redisCpuSeconds) : null,
      clientUsPerMessage: perMessage(step.cpuSeconds),
    };
  },
});

/** @param {Kind} kind @returns {import('./workloads.js').Workload} */
function atFixedRates({ name, title, rates, members, senders, metrics, valuesOf }) {
  const nameOf = (/** @type {number} */ rate) => `${name}-${rate}`;
  return {
    title: 'fixed rates',
    metrics: [],
    parts: Object.fromEntries(
      rates.map((rate) => [
        nameOf(rate),
        { title: title.replace('RATE', rate.toLocaleString('en')), metrics },
      ]),
    ),

    async run({ target, swarm, quick, payloadBytes, sources, log }) {
      /** @type {Record<string, import('./workloads.js').Figures>} */
      const parts = {};
      await swarm.aim(target);
      await openAll(swarm, { ...members, sources });
      const send = (/** @type {number} */ perSecond, /** @type {number} */ seconds) =>
        swarm.run({ perSecond, seconds, payloadBytes, ...senders });
      await send(rates[0], quick ? 1 : WARM_UP_SECONDS);
      let isHeld = true;
      for (const rate of rates) {
        parts[nameOf(rate)] = { values: {}, flags: ['does not hold'], detail: {} };
        if (!isHeld) continue;
        await quiet(target, 1000);
        // What the new rate makes the compilers do is not measured.
        const first = await measured(target, () => send(rate, quick ? 0.3 : 0.7));
        isHeld = holds(first);
        if (!isHeld) {
          log(`${rate} messages/s: ${describe(first)} ✗`);
          continue;
        }
        const step = await measured(target, () => send(rate, quick ? 0.7 : 3));
        isHeld = holds(step);
        log(`${rate} messages/s: ${describe(step)}${isHeld ? '' : ' ✗'}`);
        if (isHeld) parts[nameOf(rate)] = figuresOf(step, valuesOf(step));
      }
      return { values: {}, flags: [], detail: {}, parts };
    },
  };
}

/** @param {import('./step.js').Step} step */
function holds(step) {
  return clean(step) && step.p95Ms <= P95_MS;
}

/**
 * @param {import('./step.js').Step} step @param {Record<string, number|null>} values
 * @returns {import('./workloads.js').Figures}
 */
function figuresOf(step, values) {
  const { p50Ms, p95Ms, p99Ms } = step;
  return {
    values: { ...values, p50Ms, p95Ms, p99Ms, ...costs(step) },
    flags: flagsOf(step),
    detail: { step: plain(step) },
  };
}
