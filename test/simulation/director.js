// director.js: the program of the simulated client machine: the clients of test/checker, the faults
// one after another, then calm, and the end of the record.
//
// A simulation loads it as it loads the server, so its clients' timers, sockets and chance are
// simulated.

import { SETTLE_US } from '../checker/indexed-run.js';
import { Random } from '../checker/random.js';
import { WebhookReceiver } from '../checker/webhook-receiver.js';
import { WebhookWatch } from '../checker/webhook-watch.js';
import { Workload } from '../checker/workload.js';
import { pause } from '../harness/run.js';

const LONG_QUIET_SHARE = 0.15;
const BACK_MS = 60_000;

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
  for (const server of world.servers) server.start();
  for (const server of world.servers) await world.whole(server);
  const workload = new Workload(
    { ...load, hasCommuters: plan.hasWebhooks },
    urls,
    recorder,
    random,
    urls,
    secret,
    plan.app,
  );
  world.workload = workload;
  recorder.write({ type: 'gauges', when: 'before', of: 'server', values: { connections: 0 } });
  watch?.begin({
    ports: world.servers.map(({ env }) => Number(env.PORT)),
    secret,
    users: workload.population?.users ?? [],
    pending: async () => 0,
  });
  await workload.start();
  workload.publish();
  await chaos(world, plan, recorder, watch);
  return calm(world, workload, recorder, watch);
}

/** @param {import('./world.js').World} world @param {any} plan */
async function startReceiver(world, plan) {
  const receiver = new WebhookReceiver({ random: new Random(plan.seed + 3) });
  receiver.server.listen(plan.webhookPort, '127.0.0.1');
  receiver.url = `http://127.0.0.1:${plan.webhookPort}/fanfare`;
  world.fleet.network.gateway.set(plan.webhookPort, world.clients.host);
  return new WebhookWatch(receiver, '');
}

/** @param {import('./world.js').World} world @param {any} plan @param {any} recorder @param {WebhookWatch|null} watch */
async function chaos(world, plan, recorder, watch) {
  const { workload } = world;
  const random = new Random(plan.seed + 2);
  const end = performance.now() + plan.chaosMs;
  while (performance.now() < end) {
    const [low, high] = plan.quietMs;
    await pause(random.next() < LONG_QUIET_SHARE ? SETTLE_US / 1000 + 1000 : random.between(low, high));
    if (plan.faults.length === 0) continue;
    const count = random.next() < plan.doubles ? 2 : 1;
    const faults = Array.from({ length: count }, () => random.pick(plan.faults));
    await Promise.all(faults.map((fault) => suffer(world, fault, random, recorder, watch, workload)));
  }
}

/** @param {import('./world.js').World} world @param {any} fault @param {Random} random @param {any} recorder @param {WebhookWatch|null} watch @param {any} workload */
async function suffer(world, { name, holdMs, inflict }, random, recorder, watch, workload) {
  recorder.write({ type: 'start', name });
  const healed = watch?.fault();
  const heal = await inflict(world);
  if (random.next() < 0.5) workload.population?.lose(0.05, () => random.between(0, 4000));
  await pause(random.between(holdMs[0], holdMs[1]));
  await heal();
  healed?.();
  recorder.write({ type: 'stop', name });
}

/** @param {import('./world.js').World} world @param {Workload} workload @param {any} recorder @param {WebhookWatch|null} watch */
async function calm(world, workload, recorder, watch) {
  await workload.population?.census();
  workload.population?.silence();
  await workload.joined(SETTLE_US / 1000).catch(() => {});
  let differences = /** @type {string[]} */ ([]);
  if (watch !== null) {
    const { people = [], commuters = [] } = workload.population ?? {};
    const end = performance.now() + BACK_MS;
    while (![...people, ...commuters].every(({ isJoined }) => isJoined) && performance.now() < end)
      await pause(100);
    differences = await watch.settle();
  }
  workload.silence();
  const unmarked = await workload.mark().then(
    () => '',
    (error) => error.message,
  );
  await workload.stop();
  recorder.write({ type: 'gauges', when: 'after', of: 'server', values: { connections: 0 } });
  const oddities = workload.everybody.flatMap(({ id, oddities: said }) =>
    said.map((/** @type {string} */ text) => `client ${id}: ${text}`),
  );
  return {
    differences,
    oddities,
    unmarked,
    repeated: watch?.repeated.length ?? 0,
    disordered: watch?.receiver.disordered ?? [],
    webhooks: watch?.receiver.attempts.length ?? 0,
  };
}
