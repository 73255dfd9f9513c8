// shrink.js: reduces a run that fails: fewer faults, processes, clients, kinds of clients.
//
// A smaller run has another order of events, so a step that loses the failure proves nothing; it is
// just not taken.

/** @import { Plan } from './simulation.js' */
/** @import { Summary } from './story.js' */

const MAX_RUNS = 40;

/** @param {Summary} summary @returns {string} which rules broke */
export function kindOf({ broken, faults, end }) {
  if (broken.length > 0) return broken[0].id;
  if (faults.length > 0) return faults[0].split('\n')[0].replace(/^\S+ /, '');
  if (end === null) return 'no end';
  if (end.unmet?.length > 0) return end.unmet[0].replace(/:.*/, '');
  const names = ['differences', 'oddities', 'disordered', 'overlapping', 'kept'];
  const name = names.find((one) => end[one].length > 0);
  return name ?? (end.repeated > 0 ? 'repeated' : 'the end');
}

/** @param {Plan} plan @returns {Plan[]} smaller ones, the most promising first */
function smaller(plan) {
  const { schedule, load } = plan;
  const half = Math.ceil(schedule.length / 2);
  const calm = schedule.map((step) => ({ ...step, faults: [] }));
  /** @type {Plan[]} */
  const plans = [];
  const add = (/** @type {Partial<Plan>} */ part) => plans.push({ ...plan, ...part });
  if (schedule.length > 1) {
    add({ schedule: schedule.slice(half) });
    add({ schedule: schedule.slice(0, half) });
    add({ schedule: [...calm.slice(0, half), ...schedule.slice(half)] });
  }
  if (plan.hasWebhooks) add({ hasWebhooks: false });
  if (plan.hasPusher) add({ hasPusher: false });
  if (load.hasCentrifugo) add({ load: { ...load, hasCentrifugo: false } });
  if (load.isMixed)
    add({ load: { ...load, isMixed: false }, hasWebhooks: false, hasPusher: false });
  if (plan.servers > 1) add({ servers: plan.servers - 1 });
  if (plan.workers > 1) add({ workers: plan.workers - 1 });
  if (load.clients > 2) add({ load: { ...load, clients: Math.ceil(load.clients / 2) } });
  // A whole population does not start with fewer rooms.
  if (load.rooms > 2 && !(load.isMixed && load.groups === undefined))
    add({ load: { ...load, rooms: Math.ceil(load.rooms / 2) } });
  if (load.publishers > 1) add({ load: { ...load, publishers: Math.ceil(load.publishers / 2) } });
  if (plan.pieces > 0) add({ pieces: 0 });
  if (plan.losses) add({ losses: 0 });
  if (load.isBusy) add({ load: { ...load, isBusy: false } });
  if (schedule.length <= 8)
    for (let i = 0; i < schedule.length; i++)
      add({ schedule: schedule.filter((_, at) => at !== i) });
  return plans;
}

/**
 * @param {Plan} plan @param {Summary} summary of its run
 * @param {(plan: Plan) => Promise<Summary>} run
 * @returns {Promise<{plan: Plan, summary: Summary, runs: number}>} the least one that still fails in
 *   the same way
 */
export async function shrink(plan, summary, run) {
  const kind = kindOf(summary);
  let best = { plan, summary };
  let runs = 0;
  for (let isSmaller = true; isSmaller && runs < MAX_RUNS; ) {
    isSmaller = false;
    for (const candidate of smaller(best.plan)) {
      if (runs >= MAX_RUNS) break;
      runs++;
      const outcome = await run(candidate).catch(() => null);
      if (outcome === null || outcome.isClean || kindOf(outcome) !== kind) continue;
      best = { plan: candidate, summary: outcome };
      isSmaller = true;
      break;
    }
  }
  return { ...best, runs };
}
