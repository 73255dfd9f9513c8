// simulation.js: one simulated run: draws it from a seed, runs it, and checks its record.

import { fileURLToPath } from 'node:url';
import { RECORDED_ROOM } from '../checker/audience-people.js';
import { Checker } from '../checker/checker.js';
import { HISTORY_PREFIX } from '../checker/client.js';
import { settingsOf } from '../checker/population.js';
import { Random } from '../checker/random.js';
import { WEBHOOK_SECRET } from '../checker/webhook-receiver.js';
import { APP, countedEntry, entryOf } from '../helpers/pusher.js';
import { FAULTS } from './faults.js';
import { loadPackages } from './modules.js';
import { World } from './world.js';

const DIRECTOR = new URL('director.js', import.meta.url);
const WEBHOOK_PORT = 9100;
const HOOK_PORT = 9200;
const BUCKET_PORT = 9300;
const HOOKS_URL = `http://127.0.0.1:${HOOK_PORT}/hooks`;
const HOOKS_FILE = fileURLToPath(new URL('hooks-file.js', import.meta.url));
const SECRET = 'ab'.repeat(32);
const STATE_DIR = '/state';
const MINUTE_MS = 60_000;
const CHAOS_MS = 2 * MINUTE_MS;
/**
 * Some pauses are long enough for all to settle, so everything accepted before must have arrived. A
 * short run has one, at its end.
 */
const LONG_QUIET_SHARE = 0.15;
const SHORT_MS = 30_000;
const LONG_QUIET_MS = 16_000;
/** After the faults: calm, the truth of webhooks, markers, the end. */
const REST_MS = 12 * MINUTE_MS;
/** Longer than the gap of a new Redis makes couriers uncertain. */
export const AGE_MS = 45_000;
/** Readers that stop are noticed after a few messages of so many bytes. */
const NARROW_BYTES = 4096;
/**
 * Small messages, or large ones, of which a reader need not miss many. Replies of all rooms of a
 * client, which come at once, hold no more.
 */
const NARROW_LOADS = Object.freeze([
  { bytes: 300, last: 4 },
  { bytes: 1000, last: 3 },
]);
const NARROW = Object.freeze({
  FANFARE_MAX_MESSAGE_BYTES: '10240',
  FANFARE_MAX_UNSENT_BYTES: '16384',
});
/** Connections that a server has not seen end count for their users. */
export const NO_CAPS = Object.freeze({ FANFARE_MAX_CONNECTIONS_PER_USER: '1000' });
/** Readers that pause lag after a few messages. */
export const SLOW_READERS = Object.freeze({
  windowBytes: NARROW_BYTES,
  env: NARROW,
  load: Object.freeze({ ...NARROW_LOADS[0], isNarrow: true }),
});
/** Steps of a script may wait for a condition. */
const SCRIPT_MS = 30 * MINUTE_MS;
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

/** Messages of more bytes lie in a bucket. */
const BUCKET = Object.freeze({
  FANFARE_BLOB_URL: `http://127.0.0.1:${BUCKET_PORT}/messages`,
  FANFARE_MAX_INLINE_BYTES: '14336',
  FANFARE_STATE_MAX_VALUE_BYTES: '14336',
  AWS_ACCESS_KEY_ID: 'id',
  AWS_SECRET_ACCESS_KEY: 'secret',
});

/** Settings that shorten delays from minutes to seconds. */
const ENV = Object.freeze({
  FANFARE_LIMITS: 'off',
  FANFARE_FAST_PATHS: 'off',
  FANFARE_CONSOLE: 'off',
  FANFARE_WORKER_TIMEOUT_MS: '3000',
  FANFARE_RECONNECT_WINDOW_MS: '2000',
  FANFARE_SHUTDOWN_TIMEOUT_MS: '15000',
  FANFARE_ROOM_LINGER_MS: '500',
  // Half-open connections are noticed before the checker demands calm.
  FANFARE_PING_INTERVAL_MS: '5000',
  FANFARE_PONG_TIMEOUT_MS: '3000',
});

/**
 * @typedef {object} Outcome
 * @property {Plan} plan @property {import('../checker/checker.js').Report} report
 * @property {string[]} faults of programs: errors that nothing caught
 * @property {any} end what the director says
 * @property {string} hash of the trace @property {number} virtualMs @property {number} events
 * @property {string[]|null} trace @property {boolean} isClean
 */

/**
 * What a seed means. Everything in it is JSON, so that a reduced run can be written down.
 * @typedef {object} Plan
 * @property {number} seed @property {'redis'|'embedded'|'sentinel'|'cluster'|'region'} topology
 * @property {number} servers @property {number} workers of each
 * @property {number} pieces share of parcels that arrive in pieces
 * @property {number} [losses] share of parcels that are lost once
 * @property {number} [hiccups] share of readings of a server's clock at which time has passed
 * @property {number} [windowBytes] that a connection may have under way and unread
 * @property {number} [farMs] by how much the way from a server to Redis is longer than others
 * @property {number} leastReplicas primaries with fewer that keep up refuse writes
 * @property {number} historySize @property {boolean} hasWebhooks @property {boolean} hasPusher
 * @property {import('../checker/workload.js').Load} load
 * @property {import('./director.js').Step[]} schedule of faults
 * @property {import('./acts.js').Act[]} [script] instead of a schedule
 * @property {string[]} [messages] patterns of rooms: a second endpoint gets what clients publish there
 * @property {Record<string, unknown>} [endpoint] more settings of the endpoints
 * @property {number} [ageMs] the servers run so long before clients come
 * @property {{over: 'http'|'file', names: string[], late?: number, failing?: number, known?: number}}
 *   [hooks] that servers ask a back end; the shares of its answers that are late or fail during the
 *   faults; `known`: each so many'th answer of a file comes at once
 * @property {Record<string, unknown>} [app] more settings of the app of Pusher clients
 * @property {Record<string, string>} [env] more settings of all servers
 * @property {Record<string, string>[]} [envs] more settings of each server
 * @property {number} [spares] @property {Record<string, string>} [aliases] as World has them
 */

/** What the plan of a script need not say: nobody is there but the clients that the script has. */
const SCRIPTED = Object.freeze({
  seed: 1,
  topology: /** @type {const} */ ('redis'),
  servers: 2,
  workers: 1,
  pieces: 0,
  leastReplicas: 0,
  historySize: 60,
  hasWebhooks: false,
  hasPusher: false,
  load: {
    ...{ clients: 0, rooms: 4, hasHistory: true, roomsPerClient: 0, publishers: 0, rate: 0 },
    ...{ isMixed: true, hasCentrifugo: false, groups: [] },
  },
  schedule: [],
});

/** @param {Partial<Plan>} given as an entry of the corpus has it @returns {Plan} */
export function wholePlan(given) {
  return { ...SCRIPTED, ...given, load: { ...SCRIPTED.load, ...given.load } };
}

/**
 * How to draw a schedule: some of these faults, for so long, with this share of long pauses.
 * @typedef {{only?: readonly string[], chaosMs?: number, longShare?: number}} Drawn
 */

/** @param {number} seed @param {Partial<Plan> & Drawn} [given] instead of what it draws @returns {Plan} */
export function drawPlan(seed, { only, chaosMs, longShare, ...given } = {}) {
  const random = new Random(seed);
  /** @type {Plan['topology']} */
  const drawn = random.pick(['redis', 'redis', 'embedded', 'sentinel', 'cluster']);
  // A third of the first kind. The chance of its own keeps the meaning of the other seeds.
  const isRegion = drawn === 'redis' && new Random(seed + 5).next() < 0.33;
  /** @type {Plan['topology']} */
  const topology = isRegion ? 'region' : drawn;
  const isMixed = random.next() < 0.5;
  const hasWebhooks = isMixed && random.next() < 0.4;
  /** @type {Plan} */
  const plan = {
    seed,
    topology,
    servers: 2 + random.below(2),
    workers: 1 + random.below(3),
    pieces: random.pick([0, 0, 0.1]),
    leastReplicas: random.pick([0, 1]),
    historySize: random.pick([32, 60, 150]),
    hasWebhooks,
    hasPusher: isMixed && random.next() < 0.5,
    load: {
      clients: isMixed ? 20 : 60,
      rooms: 8,
      hasHistory: true,
      roomsPerClient: 3,
      publishers: 8,
      // A server that is asked to publish less often is not known to be away.
      rate: random.pick([5, 10, 40]),
      isMixed,
      hasCentrifugo: isMixed && random.next() < 0.3,
    },
    schedule: /** @type {import('./director.js').Step[]} */ ([]),
    ...given,
  };
  if (given.load === undefined)
    Object.assign(plan.load, {
      ...{ keyed: random.pick([0, 2, 4]), appenders: random.pick([0, 4, 8]) },
      hasAudiences: isMixed && random.next() < 0.5,
    });
  if (given.load === undefined && plan.load.hasAudiences)
    plan.load.hasBucket = new Random(seed + 7).below(2) === 0;
  if (given.load === undefined && given.hooks === undefined && isMixed && random.next() < 0.4)
    plan.hooks = drawHooks(random);
  // Two of the rooms: each message is one request.
  if (plan.hasWebhooks && given.messages === undefined && random.below(2) === 0)
    plan.messages = ['h.0', 'p.1', ...(plan.load.hasAudiences ? [RECORDED_ROOM] : [])];
  // The gap of a new fleet ends, after which transitions cancel each other.
  if (plan.hasWebhooks && new Random(seed + 6).below(2) === 0) plan.ageMs ??= AGE_MS;
  drawDensity(plan, new Random(seed + 4));
  if (plan.topology === 'embedded') plan.servers = 1;
  // Its replica may be away, and decides nothing.
  if (plan.topology === 'region') plan.leastReplicas = 0;
  const how = { only, chaosMs, longShare };
  plan.schedule = given.schedule ?? drawSchedule(plan, new Random(seed + 2), how);
  return plan;
}

/** @param {Random} random @returns {NonNullable<Plan['hooks']>} */
function drawHooks(random) {
  const all = ['onConnect', 'onJoin', 'onPublish'];
  return {
    over: random.pick(/** @type {const} */ (['http', 'file'])),
    names: random.shuffled(all).slice(0, 1 + random.below(all.length)),
    late: random.pick([0, 0.1]),
    failing: random.pick([0, 0.03]),
  };
}

/**
 * How much happens at a time: in half of the runs clients come and go all the time, in some packets
 * are lost, or readers are slow to be told of more than a few bytes.
 * @param {Plan} plan gets it, as far as it does not say it @param {Random} random
 */
function drawDensity(plan, random) {
  if (plan.hasWebhooks || plan.hooks !== undefined) return;
  const isBusy = random.below(2) === 0;
  const losses = random.pick([0, 0, 0.003, 0.02]);
  const isNarrow = random.below(3) === 0;
  plan.losses ??= losses;
  plan.load = { isBusy, ...plan.load };
  if (plan.load.isBusy) plan.env = { ...NO_CAPS, ...plan.env };
  if (!isNarrow || plan.windowBytes !== undefined) return;
  plan.windowBytes = SLOW_READERS.windowBytes;
  plan.env = { ...SLOW_READERS.env, ...plan.env };
  plan.load = { ...random.pick(NARROW_LOADS), isNarrow: true, ...plan.load };
}

/**
 * Swarm testing: most runs lack most faults, so that those they have meet each other often.
 * @param {Omit<Plan, 'schedule'>} plan @param {Random} random @param {Drawn} how
 */
function drawSchedule({ topology, hasWebhooks }, random, how) {
  const { only, chaosMs = CHAOS_MS } = how;
  const { longShare = chaosMs > SHORT_MS ? LONG_QUIET_SHARE : 0 } = how;
  const possible = Object.keys(FAULTS).filter((name) =>
    isPossible(name, { topology, hasWebhooks, only }),
  );
  const share = random.pick([0.15, 0.3, 0.6, 1]);
  const some = possible.filter((name) => only?.includes(name) ?? random.next() < share);
  const [low, high] = random.pick([
    [200, 1500],
    [1000, 8000],
  ]);
  const together = random.pick([0, 0.3]);
  /** @type {import('./director.js').Step[]} */
  const schedule = [];
  for (let atMs = 0; atMs < chaosMs; ) {
    const isLong = random.next() < longShare;
    const waitMs = isLong ? LONG_QUIET_MS : random.between(low, high);
    const count = some.length === 0 ? 0 : random.next() < together ? 2 : 1;
    const faults = Array.from({ length: count }, () => {
      const name = random.pick(some);
      const [from, to] = FAULTS[name].holdMs;
      const holdMs = Math.round(random.between(from, to));
      return { name, holdMs, seed: random.below(2 ** 32), losesClients: random.next() < 0.5 };
    });
    schedule.push({ waitMs: Math.round(waitMs), ...(isLong && { isLong }), faults });
    atMs += waitMs + Math.max(0, ...faults.map(({ holdMs }) => holdMs));
  }
  return schedule;
}

/**
 * @param {string} name of a fault
 * @param {Pick<Plan, 'topology'|'hasWebhooks'> & {only?: readonly string[]}} parts
 */
export function isPossible(name, { topology, hasWebhooks, only }) {
  const { needs } = FAULTS[name];
  if (needs === 'patience') return only?.includes(name) ?? false;
  if (needs === 'webhooks') return hasWebhooks;
  if (needs === 'redis') return topology !== 'embedded';
  if (needs === 'replicas') return topology === 'sentinel' || topology === 'cluster';
  return needs === undefined || needs === topology;
}

/** @param {Plan} plan */
function settingsFor(plan) {
  const { load, topology, hasWebhooks, hasPusher, endpoint } = plan;
  const common = {
    ...{ secret: WEBHOOK_SECRET, graceMs: 1000, timeoutMs: 2000, concurrency: 16 },
    url: `http://127.0.0.1:${WEBHOOK_PORT}/fanfare`,
  };
  const endpoints = [
    {
      ...common,
      name: 'back-end',
      types: [
        ...['room.occupied', 'room.vacated', 'member.joined', 'member.left'],
        ...['user.connected', 'user.disconnected'],
      ],
    },
    ...(plan.messages
      ? [{ ...common, name: 'log', types: ['message.published'], rooms: plan.messages }]
      : []),
  ].map((one) => ({ ...one, ...endpoint }));
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
    ...hookSettings(plan.hooks),
    ...(load.hasBucket && BUCKET),
    ...(topology === 'embedded' && load.isMixed && { FANFARE_STATE_DIR: STATE_DIR }),
    ...(load.hasHistory && { FANFARE_HISTORY: historyOf(plan) }),
    ...plan.env,
  };
  /** @type {Record<string, string>} */
  const files = {
    ...(hasPusher && {
      '/etc/apps.json': JSON.stringify([
        entryOf({ shared: true, ...plan.app }),
        ...(load.isBusy ? [countedEntry()] : []),
      ]),
    }),
    ...(plan.hooks?.over === 'http' && {
      '/etc/hooks.json': JSON.stringify([{ url: HOOKS_URL, hooks: plan.hooks.names }]),
    }),
    ...(hasWebhooks && { '/etc/webhooks.json': JSON.stringify(endpoints) }),
  };
  return { env, files };
}

/** @param {Plan} plan @returns {string} the rules of rooms with history */
function historyOf({ historySize }) {
  return [`${HISTORY_PREFIX}*`, 'private-*'].map((name) => `${name}=${historySize}/300s`).join();
}

/** @param {Plan['hooks']} hooks @returns {Record<string, string>} */
function hookSettings(hooks) {
  if (hooks === undefined) return {};
  return hooks.over === 'http'
    ? { FANFARE_HOOKS: '/etc/hooks.json', FANFARE_HOOKS_SECRET: WEBHOOK_SECRET }
    : {
        ...{
          FANFARE_HOOKS: HOOKS_FILE,
          HOOK_BACKEND: HOOKS_URL,
          HOOK_NAMES: hooks.names.join(','),
        },
        ...(hooks.known && { HOOK_KNOWN: `${hooks.known}` }),
      };
}

/** @param {Plan} plan @returns {number} ms within which it has ended */
function timeFor({ schedule, script = [], ageMs = 0, load }) {
  const chaosMs = schedule.reduce(
    (sum, { waitMs, faults }) => sum + waitMs + Math.max(0, ...faults.map(({ holdMs }) => holdMs)),
    0,
  );
  const scriptMs = script.reduce((sum, { afterMs = 0 }) => sum + afterMs, 0);
  // Busy clients rest until lists and webhooks must be right.
  const restsMs = load.isBusy ? schedule.length * MINUTE_MS : 0;
  // A fault may wait a minute for what it heals.
  return ageMs + 2 * chaosMs + restsMs + (script.length > 0 ? scriptMs + SCRIPT_MS : 0) + REST_MS;
}

/**
 * Runs a simulation.
 * @param {Plan} plan @param {object} [options]
 * @param {boolean} [options.keepsTrace]
 * @param {readonly string[]} [options.trees] of the servers' programs, as World has them
 * @returns {Promise<Outcome>}
 */
export async function simulate(plan, { keepsTrace = false, trees } = {}) {
  await loadPackages(PACKAGES);
  const world = new World({ ...plan, ...settingsFor(plan) }, trees);
  const { fleet } = world;
  const { simulator } = fleet;
  if (keepsTrace || plan.script !== undefined) fleet.trace = [];
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
      const parts = {
        ...plan,
        secret: SECRET,
        webhookPort: WEBHOOK_PORT,
        hookPort: HOOK_PORT,
        bucketPort: BUCKET_PORT,
        app: plan.hasPusher ? APP : null,
      };
      parts.load = { ...plan.load, kept: plan.historySize, hasPusher: plan.hasPusher };
      end = await direct(world, parts, recorder);
    };
    const parts = { exec: '', args: ['director'], env: {}, channel: /** @type {const} */ ('none') };
    const director = world.clients.start({ ...parts, parent: null });
    await simulator.run(timeFor(plan), () => end !== null || director?.isAlive === false);
    recorder.write({ type: 'end' });
  } finally {
    fleet.restoreGlobals();
  }
  if (end !== null) end.kept = world.kept;
  const report = checker.report();
  const isClean =
    report.isClean &&
    end !== null &&
    fleet.faults.length === 0 &&
    end.differences.length === 0 &&
    end.oddities.length === 0 &&
    (end.unmet ?? []).length === 0 &&
    end.unmarked === '' &&
    end.disordered.length === 0 &&
    end.overlapping.length === 0 &&
    end.kept.length === 0 &&
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
