// director.js: the program of the simulated client machine: the clients of test/checker, the faults
// one after another or a script, then calm, and the end of the record.
//
// A simulation loads it as it loads the server, so its clients' timers, sockets and chance are
// simulated.

import { FLICKER_MS } from '../checker/bustle.js';
import { SETTLE_US } from '../checker/indexed-run.js';
import { Random } from '../checker/random.js';
import { WebhookReceiver } from '../checker/webhook-receiver.js';
import { WebhookWatch } from '../checker/webhook-watch.js';
import { Workload } from '../checker/workload.js';
import { pause } from '../harness/run.js';
import { perform } from './acts.js';
import { Bucket } from './bucket.js';
import { HookBackend } from './hook-backend.js';
import { Stage } from './stage.js';

/** This part of the population loses its connections with a fault, and returns within LATE_MS. */
const LEAVING_SHARE = 0.05;
const LATE_MS = 4000;
const BACK_MS = 60_000;
/** After a rest all are busy again, before there is another fault. */
const WAKING_MS = /** @type {const} */ ([0, 5000]);
/** These leave no doubt of what endpoints have accepted: events may not come again. */
const HARMLESS_TO_COURIERS = new Set([
  ...['serverReloaded', 'serverTerminated', 'workerKilled', 'workerFrozen', 'slowReaders'],
  'redisEvicts',
]);
/** What was stored before them stays. */
const STOPS = new Set([...['courierKilled', 'courierFrozen', 'machineSuspended', 'machineAsleep']]);
/** Nobody tells the other servers that these workers are dead. */
const ENDS_SESSIONS = new Set(['machineLost', 'powerLost', 'primaryKilled']);
/** A session that was cleared may come back with the former data. */
const BRINGS_BACK = new Set([
  ...['redisLosesASecond', 'redisRolledBack', 'staleReplicaPromoted', 'primaryOfRedisLost'],
  ...['primaryOfRedisApart', 'brainSplit', 'powerLost'],
]);
/** So much of the newest data is lost. */
const LOST_MS = new Map([
  ['redisLosesASecond', 1000],
  ['powerLost', 1000],
]);
/** After three heartbeats of presence they find out. */
const DEAD_MS = 35_000;
/** What a client is told whose link was cut for longer than it may take to answer a ping. */
const OF_CUTS = /No answer to the pings/;

/**
 * @typedef {object} Planned a fault that will happen
 * @property {string} name of faults.js @property {number} holdMs
 * @property {number} seed of its choices @property {boolean} losesClients
 */
/**
 * Faults that begin together, after a pause. `isLong`: one in which all settles
 * @typedef {{waitMs: number, isLong?: boolean, faults: Planned[]}} Step
 */

/**
 * @param {import('./world.js').World} world
 * @param {any} plan what the seed has drawn
 * @param {import('../checker/record.js').Recorder} recorder
 */
export async function direct(world, plan, recorder) {
  const random = new Random(plan.seed + 1);
  const urls = world.servers.map(({ url }) => url);
  const { load, secret } = plan;
  const watch = plan.hasWebhooks ? await startReceiver(world, plan) : null;
  const backend = plan.hooks === undefined ? null : startBackend(world, plan);
  if (load.hasBucket) serve(world, new Bucket(), plan.bucketPort);
  for (const server of world.servers) server.start();
  for (const server of world.servers) await world.whole(server);
  watch?.begin({
    ports: world.servers.map(({ env }) => Number(env.PORT)),
    secret,
    // A script adds more.
    get users() {
      return world.workload?.population?.users ?? [];
    },
    pending: async () => 0,
  });
  if (plan.ageMs) {
    if (watch !== null) watch.receiver.failing = 0;
    await pause(plan.ageMs);
    watch?.resume();
  }
  const workload = new Workload(
    {
      ...{
        ...load,
        hasCommuters: plan.hasWebhooks,
        hooks: plan.script ? undefined : plan.hooks?.names,
      },
      recorded: plan.script ? undefined : plan.messages,
    },
    urls,
    recorder,
    random,
    urls,
    secret,
    plan.app,
  );
  world.workload = workload;
  if (watch !== null && plan.messages && !plan.script) watch.receiver.recorder = recorder;
  recorder.write({ type: 'gauges', when: 'before', of: 'server', values: { connections: 0 } });
  await workload.start();
  workload.publish();
  if (plan.script === undefined) {
    if (backend !== null) backend.isCalm = false;
    await chaos(world, plan, recorder, watch);
    if (backend !== null) backend.isCalm = true;
    return calm(world, recorder, watch);
  }
  // Only the script moves its clients.
  workload.population?.silence();
  const receiver = watch?.receiver ?? null;
  if (receiver !== null) receiver.failing = 0;
  const stage = new Stage(world, plan, recorder, random, { receiver, backend });
  const healed = watch?.fault();
  await perform(stage, plan.script);
  // The checker has no record of them.
  await Promise.all(stage.others.map((client) => client.stop()));
  healed?.();
  return { ...(await calm(world, recorder, watch)), unmet: stage.unmet };
}

/** @param {import('./world.js').World} world @param {any} plan */
async function startReceiver(world, plan) {
  const receiver = new WebhookReceiver({ random: new Random(plan.seed + 3) });
  serve(world, receiver, plan.webhookPort);
  receiver.url = `http://127.0.0.1:${plan.webhookPort}/fanfare`;
  receiver.note = (line) => world.fleet.note(line);
  return new WebhookWatch(receiver, '');
}

/** @param {import('./world.js').World} world @param {any} plan */
function startBackend(world, { hookPort, hooks, seed, script }) {
  // A script says itself who is given what.
  const asked = script === undefined ? hooks : { ...hooks, names: [] };
  const backend = new HookBackend((line) => world.fleet.note(line), asked, new Random(seed + 4));
  serve(world, backend, hookPort);
  return backend;
}

/** @param {import('./world.js').World} world @param {{server: import('node:http').Server}} one @param {number} port */
function serve({ fleet, clients }, { server }, port) {
  server.listen(port, '127.0.0.1');
  fleet.network.gateway.set(port, clients.host);
}

/**
 * @param {import('./world.js').World} world @param {{schedule: readonly Step[]}} plan
 * @param {any} recorder @param {WebhookWatch|null} watch
 */
async function chaos(world, { schedule }, recorder, watch) {
  const { workload } = world;
  const { isBusy } = workload.load;
  for (const [i, { waitMs, isLong, faults }] of schedule.entries()) {
    // In a busy run everybody rests before a long pause, so that it shows what is left wrong.
    if (isBusy && isLong && workload.population !== null) {
      workload.rest(true);
      await census(world, watch);
      watch?.resume();
      workload.rest(false);
      await pause(workload.random.between(...WAKING_MS));
    } else {
      await pause(waitMs);
      workload.rest(false);
    }
    if (isBusy && (i + 1 === schedule.length || schedule[i + 1].isLong)) {
      const longest = Math.max(0, ...faults.map(({ holdMs }) => holdMs));
      setTimeout(() => workload.rest(true), workload.random.between(0, 1.2 * longest));
    }
    await Promise.all(faults.map((fault) => suffer(world, fault, recorder, watch)));
  }
}

/** @param {import('./world.js').World} world @param {Planned} planned @param {any} recorder @param {WebhookWatch|null} watch */
async function suffer(world, { name, holdMs, seed, losesClients }, recorder, watch) {
  const random = new Random(seed);
  recorder.write({ type: 'start', name });
  const lostMs = name === 'redisRolledBack' ? world.oldestSnapshotMs : (LOST_MS.get(name) ?? 0);
  if (STOPS.has(name)) watch?.stop();
  const isHarmless = STOPS.has(name) || HARMLESS_TO_COURIERS.has(name);
  const healed = isHarmless ? undefined : watch?.fault(lostMs);
  const heal = await world.faults[name].inflict(world, random);
  if (losesClients)
    world.workload.population?.lose(LEAVING_SHARE, () => random.between(0, LATE_MS));
  await pause(holdMs);
  await heal();
  await world.inRole();
  healed?.();
  const { bustle, population } = world.workload;
  const { people = [], members = [], seated = [] } = population ?? {};
  const users = people.length + members.length + seated.length;
  // Those who went home meanwhile are in the lists until then.
  if (ENDS_SESSIONS.has(name) && bustle !== null && users > 0) await pause(DEAD_MS);
  if (BRINGS_BACK.has(name)) world.broughtBackMs = performance.now();
  recorder.write({ type: 'stop', name });
}

/**
 * Rests until lists must be right, and compares them. In a busy run so long that webhooks are right,
 * too: later visits of the same users would mend what they lack.
 * @param {import('./world.js').World} world @param {WebhookWatch|null} [watch]
 */
async function census({ workload, broughtBackMs, differences }, watch = null) {
  const beganMs = performance.now();
  if (watch !== null) watch.receiver.failing = 0;
  await pause(Math.max(FLICKER_MS, broughtBackMs + DEAD_MS - beganMs));
  await workload.population?.census();
  if (watch === null) return;
  workload.population?.rest();
  differences.push(...(await watch.settle(performance.now() - beganMs)));
}

/** @param {import('./world.js').World} world @param {any} recorder @param {WebhookWatch|null} watch */
async function calm(world, recorder, watch) {
  /** @type {Workload} */
  const workload = world.workload;
  workload.rest(true);
  const isCompared = workload.isResting && workload.population !== null;
  if (isCompared) await census(world, watch);
  else {
    await pause(SETTLE_US / 1000 + 1000);
    await workload.population?.census();
  }
  workload.bustle?.comeBack();
  workload.population?.silence();
  await workload.joined(SETTLE_US / 1000).catch(() => {});
  const { differences } = world;
  if (watch !== null && !isCompared) {
    const { people = [], commuters = [] } = workload.population ?? {};
    const end = performance.now() + BACK_MS;
    while (![...people, ...commuters].every(({ isJoined }) => isJoined) && performance.now() < end)
      await pause(100);
    differences.push(...(await watch.settle()));
  }
  workload.silence();
  const unmarked = await workload.mark().then(
    () => '',
    (error) => error.message,
  );
  await workload.stop();
  recorder.write({ type: 'gauges', when: 'after', of: 'server', values: { connections: 0 } });
  const { states } = workload.population ?? {};
  const tellers = [...workload.everybody, ...(states ? [states] : [])];
  const oddities = tellers.flatMap(({ id, oddities: said }) =>
    said
      .filter((/** @type {string} */ text) => !OF_CUTS.test(text))
      .map((/** @type {string} */ text) => `client ${id}: ${text}`),
  );
  return {
    differences,
    oddities,
    unmarked,
    repeated: watch?.repeated.length ?? 0,
    overlapping: watch?.overlapping.map(({ text }) => text) ?? [],
    disordered: watch?.receiver.disordered ?? [],
    webhooks: watch?.receiver.attempts.length ?? 0,
  };
}
