// simulation.js: one simulated run: draws it from a seed, runs it, and checks its record.

import { Checker } from '../checker/checker.js';
import { settingsOf } from '../checker/population.js';
import { Random } from '../checker/random.js';
import { WEBHOOK_SECRET } from '../checker/webhook-receiver.js';
import { HISTORY_PREFIX } from '../checker/workload.js';
import { APP, entryOf } from '../helpers/pusher.js';
import { FAULTS } from './faults.js';
import { loadPackages } from './modules.js';
import { World } from './world.js';

const DIRECTOR = new URL('director.js', import.meta.url);
const WEBHOOK_PORT = 9100;
const SECRET = 'ab'.repeat(32);
const STATE_DIR = '/state';
const MINUTE_MS = 60_000;
/** The director's packages. */
const PACKAGES = Object.freeze([
  'standardwebhooks',
  'centrifuge',
  'centrifuge/build/protobuf',
  'eventsource',
  'pusher',
  'pusher-js',
  'fast-check',
]);

/** Settings that shorten delays from minutes to seconds. */
const ENV = Object.freeze({
  FANFARE_LIMITS: 'off',
  FANFARE_FAST_PATHS: 'off',
  FANFARE_CONSOLE: 'off',
  FANFARE_WORKER_TIMEOUT_MS: '3000',
  FANFARE_RECONNECT_WINDOW_MS: '2000',
  FANFARE_SHUTDOWN_TIMEOUT_MS: '15000',
  FANFARE_ROOM_LINGER_MS: '500',
});

/**
 * @typedef {object} Outcome
 * @property {any} plan @property {import('../checker/checker.js').Report} report
 * @property {string[]} faults of programs: errors that nothing caught
 * @property {any} end what the director says
 * @property {string} hash of the trace @property {number} virtualMs @property {number} events
 * @property {string[]|null} trace @property {boolean} isClean
 */

/**
 * What a seed means.
 * @param {number} seed @param {Partial<any>} [given] instead of what the seed draws
 */
export function drawPlan(seed, given = {}) {
  const random = new Random(seed);
  const topology = random.pick(['redis', 'redis', 'embedded']);
  const servers = topology === 'embedded' ? 1 : 2 + random.below(2);
  const isMixed = random.next() < 0.5;
  const hasWebhooks = isMixed && random.next() < 0.4;
  // Swarm testing: most runs lack most faults, so that those they have meet each other often.
  const share = random.pick([0.15, 0.3, 0.6, 1]);
  const plan = {
    seed,
    topology,
    servers,
    workers: 1 + random.below(3),
    pieces: random.pick([0, 0, 0.1]),
    doubles: random.pick([0, 0.3]),
    quietMs: random.pick([
      [200, 1500],
      [1000, 8000],
    ]),
    chaosMs: 2 * MINUTE_MS,
    historySize: random.pick([60, 150]),
    hasWebhooks,
    hasPusher: isMixed && random.next() < 0.5,
    load: {
      clients: isMixed ? 20 : 60,
      rooms: 8,
      hasHistory: true,
      roomsPerClient: 3,
      publishers: 8,
      rate: random.pick([2, 10, 40]),
      isMixed,
      hasPusher: false,
      hasCentrifugo: isMixed && random.next() < 0.3,
    },
    share,
    ...given,
  };
  const possible = Object.entries(FAULTS)
    .filter(([, { needs }]) => needs !== 'redis' || plan.topology === 'redis')
    .filter(([, { needs }]) => needs !== 'webhooks' || plan.hasWebhooks)
    .map(([name, fault]) => ({ name, ...fault }));
  const only = /** @type {string[]|undefined} */ (given.only);
  const some = possible.filter(({ name }) =>
    only === undefined ? random.next() < plan.share : only.includes(name),
  );
  return { ...plan, faults: some.length > 0 || only ? some : [random.pick(possible)] };
}

/** @param {ReturnType<typeof drawPlan>} plan */
function settingsFor(plan) {
  const { load, topology, historySize, hasWebhooks, hasPusher } = plan;
  const endpoint = {
    ...{ name: 'back-end', secret: WEBHOOK_SECRET, graceMs: 1000, timeoutMs: 2000, concurrency: 16 },
    types: [
      ...['room.occupied', 'room.vacated', 'member.joined', 'member.left'],
      ...['user.connected', 'user.disconnected'],
    ],
    url: `http://127.0.0.1:${WEBHOOK_PORT}/fanfare`,
  };
  /** @type {Record<string, string>} */
  const env = {
    ...ENV,
    ...(load.isMixed && settingsOf(SECRET)),
    ...(hasPusher && { FANFARE_PUSHER_APPS: '/etc/apps.json' }),
    ...(load.hasCentrifugo && {
      FANFARE_CENTRIFUGO: 'on',
      FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*',
    }),
    ...(hasWebhooks && { FANFARE_WEBHOOKS: '/etc/webhooks.json' }),
    ...(topology === 'embedded' && load.isMixed && { FANFARE_STATE_DIR: STATE_DIR }),
    ...(load.hasHistory && { FANFARE_HISTORY: `${HISTORY_PREFIX}*=${historySize}/300s` }),
  };
  /** @type {Record<string, string>} */
  const files = {
    ...(hasPusher && { '/etc/apps.json': JSON.stringify([entryOf({ shared: true })]) }),
    ...(hasWebhooks && { '/etc/webhooks.json': JSON.stringify([endpoint]) }),
  };
  return { env, files };
}

/**
 * Runs a simulation.
 * @param {ReturnType<typeof drawPlan>} plan @param {object} [options]
 * @param {boolean} [options.keepsTrace]
 * @returns {Promise<Outcome>}
 */
export async function simulate(plan, { keepsTrace = false } = {}) {
  await loadPackages(PACKAGES);
  const world = new World({ ...plan, ...settingsFor(plan) });
  const { fleet } = world;
  const { simulator } = fleet;
  if (keepsTrace) fleet.trace = [];
  await fleet.prepare();
  const checker = new Checker();
  const recorder = /** @type {any} */ ({
    write(/** @type {any} */ what) {
      fleet.note(`record ${JSON.stringify(what)}`);
      checker.see({ t: Math.round(simulator.nowMs * 1000), ...what });
    },
  });
  /** @type {any} */
  let end = null;
  try {
    world.clients.direct = async (/** @type {any} */ owner) => {
      const { direct } = /** @type {any} */ (await owner.modules.load(DIRECTOR.href));
      const parts = { ...plan, secret: SECRET, webhookPort: WEBHOOK_PORT, app: plan.hasPusher ? APP : null };
      parts.load = { ...plan.load, hasPusher: plan.hasPusher };
      end = await direct(world, parts, recorder);
    };
    world.clients.start({ exec: '', args: ['director'], env: {}, channel: 'none', parent: null });
    const limit = plan.chaosMs + 12 * MINUTE_MS;
    await simulator.run(limit, () => end !== null || fleet.faults.length > 50);
    recorder.write({ type: 'end' });
  } finally {
    fleet.restoreGlobals();
  }
  const report = checker.report();
  const isClean =
    report.isClean &&
    end !== null &&
    fleet.faults.length === 0 &&
    end.differences.length === 0 &&
    end.oddities.length === 0 &&
    end.unmarked === '' &&
    end.disordered.length === 0 &&
    end.repeated === 0;
  return {
    ...{ plan, report, end, isClean },
    faults: fleet.faults,
    hash: fleet.hash(),
    virtualMs: simulator.nowMs,
    events: simulator.events,
    trace: fleet.trace,
  };
}
