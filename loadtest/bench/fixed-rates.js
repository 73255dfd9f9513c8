// fixed-rates.js: the cost and the latency of a delivery at fixed rates, which do not depend on what
// the client could still take.
//
// One server gets all rates, in ascending order. A rate that it does not hold ends its row.

import { quiet } from './servers.js';
import { clean, costs, describe, flagsOf, measured, metric, openAll, plain } from './step.js';

const MEMBERS = 1000;
const RATES = [100, 1000, 3000, 4000];
/** Milliseconds at the 95th percentile above which a rate does not hold. */
const P95_MS = 500;
/** Compilers and collectors that the first seconds set off are done by then. */
const WARM_UP_SECONDS = 5;

const METRICS = [
  metric('cpuPerMillion', 'server CPU-s per 1M deliveries', 's', 2),
  metric('p50Ms', 'p50', 'ms', 1),
  metric('p95Ms', 'p95', 'ms', 1),
  metric('redisCpuPerMillion', "Redis' own CPU-s per 1M", 's', 3),
  metric('clientPerMillion', "client's CPU-s per 1M", 's', 2),
];

/** @param {number} rate */
const nameOf = (rate) => `fixed-${rate}`;

/** @type {import('./workloads.js').Workload} */
export const fixedRates = {
  title: 'fixed rates',
  metrics: [],
  parts: Object.fromEntries(
    RATES.map((rate) => [
      nameOf(rate),
      {
        title: `1,000 members, ${rate.toLocaleString('en')} messages/s: what a delivery costs, and how long it takes`,
        metrics: METRICS,
      },
    ]),
  ),

  async run({ target, swarm, quick, payloadBytes, sources, log }) {
    /** @type {Record<string, import('./workloads.js').Figures>} */
    const parts = {};
    await swarm.aim(target);
    await openAll(swarm, { count: MEMBERS, sources });
    const warmUpSeconds = quick ? 1 : WARM_UP_SECONDS;
    await swarm.run({ perSecond: RATES[0], seconds: warmUpSeconds, payloadBytes });
    let isHeld = true;
    for (const rate of RATES) {
      parts[nameOf(rate)] = { values: {}, flags: ['does not hold'], detail: {} };
      if (!isHeld) continue;
      await quiet(target, 1000);
      // What the new rate makes the compilers do is not measured.
      const first = await measured(target, () =>
        swarm.run({ perSecond: rate, seconds: quick ? 0.3 : 0.7, payloadBytes }),
      );
      isHeld = holds(first);
      if (!isHeld) {
        log(`${rate} messages/s: ${describe(first)} ✗`);
        continue;
      }
      const step = await measured(target, () =>
        swarm.run({ perSecond: rate, seconds: quick ? 0.7 : 3, payloadBytes }),
      );
      isHeld = holds(step);
      log(`${rate} messages/s: ${describe(step)}${isHeld ? '' : ' ✗'}`);
      if (isHeld) parts[nameOf(rate)] = figuresOf(step);
    }
    return { values: {}, flags: [], detail: {}, parts };
  },
};

/** @param {import('./step.js').Step} step */
function holds(step) {
  return clean(step) && step.p95Ms <= P95_MS;
}

/** @param {import('./step.js').Step} step @returns {import('./workloads.js').Figures} */
function figuresOf(step) {
  const perMillion = (/** @type {number} */ seconds) => seconds / (step.received / 1e6);
  return {
    values: {
      cpuPerMillion: perMillion(step.serverCpuSeconds),
      p50Ms: step.p50Ms,
      p95Ms: step.p95Ms,
      redisCpuPerMillion: step.redisCpuSeconds > 0 ? perMillion(step.redisCpuSeconds) : null,
      clientPerMillion: perMillion(step.cpuSeconds),
      ...costs(step),
    },
    flags: flagsOf(step),
    detail: { step: plain(step) },
  };
}
