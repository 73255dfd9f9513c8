// areas.js: which tests should find a planted bug, the cheap ones first.

import { AGE_MS, NO_CAPS, SLOW_READERS } from '../simulation.js';

/**
 * @typedef {keyof typeof AREAS} Area
 * @typedef {Partial<import('../simulation.js').Plan>} Part of a plan
 * @typedef {Part & {faults: readonly string[], chaosMs?: number, longShare?: number}} Shape of a run:
 *   some of these faults happen in it, for so long
 */

/** Faults that any area meets. */
const COMMON = Object.freeze([
  ...['workerKilled', 'workerFrozen', 'machineSuspended', 'serverReloaded'],
  ...['clientsCut', 'clientsReset', 'slowReaders', 'linksSlow', 'connectionsStalled'],
]);
const OF_REDIS = Object.freeze([
  ...['redisCut', 'redisCutForAll', 'redisReset', 'redisFrozen', 'redisDown', 'redisEmptied'],
  ...['redisRolledBack', 'redisLosesASecond', 'redisFlushed', 'redisFull', 'redisFlaps'],
]);
const OF_REPLICAS = Object.freeze([
  'failoverPlanned',
  'staleReplicaPromoted',
  'primaryOfRedisLost',
]);
const FAULTS_OF_STATES = Object.freeze([
  ...['workerKilled', 'workerFrozen', 'machineSuspended', 'clientsCut'],
]);
/** Connections of clients end. */
const BROKEN = Object.freeze(['workerKilled', 'clientsReset', 'clientsCut', 'slowReaders']);
const LOST_BY_REDIS = Object.freeze(['redisEmptied', 'redisFlushed', 'redisRolledBack']);
/** They take a part of what Redis has, or let a worker read it anew. */
const LOSSES = Object.freeze([
  ...['redisEvicts', 'redisFlushed', 'redisRolledBack', 'redisLosesASecond'],
  ...['staleReplicaPromoted', 'workerKilled'],
]);
/** Nobody may be left who knows what Redis has lost. */
const CRASHES = Object.freeze(['powerLost']);
/** Readers become slower than the messages. */
const SLOWNESS = Object.freeze(['linksSlow', 'slowReaders', 'connectionsStalled', 'clientsCut']);
/** Partitions of recorded events pass from courier to courier, and nothing is lost. */
const OF_COURIERS = Object.freeze([
  ...['courierKilled', 'courierFrozen', 'serverReloaded', 'serverTerminated', 'machineSuspended'],
  ...['workerKilled', 'clientsReset'],
]);
/** What was recorded is lost, or comes again. */
const OF_RECORDS = Object.freeze([
  ...['redisEmptied', 'redisRolledBack', 'redisLosesASecond', 'redisFlushed'],
  ...[...OF_REPLICAS, 'slotsMoved', 'courierKilled', 'serverTerminated'],
]);
/** Answers are late or lost. */
const OF_REPORTERS = Object.freeze([
  ...['workerKilled', 'workerFrozen', 'clientsReset', 'clientsCut', 'linksSlow'],
  ...['machineSuspended', 'courierFrozen', 'serverReloaded'],
  ...['redisCut', 'redisFrozen', 'redisReset'],
]);

/** The topologies in which an area's code runs. The servers are few, so that many runs fit in a minute. */
const TOPOLOGIES = Object.freeze({
  redis: { topology: /** @type {const} */ ('redis'), servers: 2, workers: 1 },
  embedded: { topology: /** @type {const} */ ('embedded'), servers: 1, workers: 2 },
  sentinel: { topology: /** @type {const} */ ('sentinel'), servers: 2, workers: 1 },
  cluster: { topology: /** @type {const} */ ('cluster'), servers: 2, workers: 1 },
});
const LOAD = Object.freeze({
  ...{ clients: 4, rooms: 6, hasHistory: true, roomsPerClient: 2, publishers: 3, rate: 10 },
  isMixed: true,
});
/** Clients come and go all the time. */
const BUSY = Object.freeze({ load: { ...LOAD, isBusy: true }, env: NO_CAPS });
const OF_DOORS = Object.freeze(['streams', 'pushers', 'centrifugos']);
/** Those whom webhooks report; some publishers repeat messages. */
const REPORTED = Object.freeze(['commuters']);
const WEBHOOKS = Object.freeze({
  hasWebhooks: true,
  messages: ['h.0', 'h.2', 'p.1'],
  load: { ...LOAD, clients: 1, isBusy: true, keyed: 2 },
  env: NO_CAPS,
  longShare: 0.4,
});
/** A state takes several steps to send. */
const LARGE_BYTES = 2500;
/** Endpoints that soon have more messages to hear than may wait. */
const SMALL_ENDPOINT = Object.freeze({ maxPending: 2, concurrency: 2 });

/** Many clients, and some publishers that repeat what was refused. */
const OF_STUBBORN = Object.freeze({
  load: { ...LOAD, isBusy: true, keyed: 1, stubborn: 1, clients: 12, roomsPerClient: 3 },
});
/** Clients come to a server that has heard less than the one before. @type {Variant} */
const AHEAD = Object.freeze({
  faults: ['linksSlow', 'redisCut', 'redisOverloaded', 'connectionsStalled', 'clientsReset'],
  groups: ['streams'],
  load: { clients: 10, rooms: 6, rate: 60 },
});
/** Redis has other data when a client comes back. @type {Variant} */
const OTHER_DATA = Object.freeze({
  faults: [
    ...['redisEmptied', 'redisFlushed', 'redisRolledBack', 'redisLosesASecond'],
    ...['failoverPlanned', 'staleReplicaPromoted', 'workerKilled', 'clientsCut'],
  ],
  groups: ['visitors'],
  load: { clients: 6, rooms: 4, rate: 20 },
});
/** Readers that pause miss messages, and presence events, which steps do not bring. @type {Variant} */
const SLOW = Object.freeze({
  ...SLOW_READERS,
  groups: ['people'],
  load: { ...SLOW_READERS.load, clients: 4, rooms: 2, rate: 60, bytes: 1000 },
});
/** Flushes to a room are long enough to be interrupted. @type {Variant} */
const CROWDED = Object.freeze({
  ...SLOW_READERS,
  ...{ groups: [], hiccups: 0.3, servers: 1, workers: 1 },
  load: { ...SLOW_READERS.load, clients: 100, rooms: 1, roomsPerClient: 1, rate: 120, bytes: 1000 },
});

/** Servers that start later learn from the others what Redis has lost. @type {Variant} */
const FORGOTTEN = Object.freeze({
  faults: ['redisEmptied', 'redisFlushed', 'workerKilled', 'serverReloaded', 'primaryKilled'],
  groups: ['suspects'],
});
/** A machine stands still until the others declare its sessions dead. @type {Variant} */
const ASLEEP = Object.freeze({ faults: ['machineAsleep'], load: { isBusy: false } });

/**
 * Other parts than those of the area.
 * @typedef {Omit<Partial<Shape>, 'load'> & {groups?: readonly string[], load?: Partial<NonNullable<Part['load']>>}}
 *   Variant
 */

/**
 * @param {readonly (keyof typeof TOPOLOGIES)[]} topologies of successive seeds
 * @param {readonly string[]} groups of the population @param {readonly string[]} faults
 * @param {Partial<Shape>} [more] @param {readonly Variant[]} [variants] of successive seeds, in each topology
 * @returns {readonly Shape[]}
 */
function runs(topologies, groups, faults, more = {}, variants = [{}]) {
  return variants.flatMap(({ groups: own = groups, ...variant }) => {
    const hasCentrifugo = own.includes('centrifugos') || more.load?.hasCentrifugo === true;
    const load = { ...LOAD, ...more.load, ...variant.load, groups: own, hasCentrifugo };
    const hasPusher = own.includes('pushers') || own.includes('members');
    const part = {
      hasWebhooks: false,
      hasPusher,
      leastReplicas: 0,
      historySize: 60,
      faults,
      ...more,
    };
    return topologies.map((name) => ({ ...TOPOLOGIES[name], ...part, ...variant, load }));
  });
}

/** @param {(readonly Shape[])[]} lists @returns {readonly Shape[]} the first of each, and so on */
function inTurn(...lists) {
  const most = Math.max(...lists.map(({ length }) => length));
  return Array.from({ length: most }, (_, i) => lists.flatMap((list) => list[i] ?? [])).flat();
}

/** `runs`: the shapes of successive simulated runs that meet such a bug. */
export const AREAS = Object.freeze({
  state: {
    unit: ['state-sync', 'histories', 'history-reader', 'protocol', 'redis-scripts'],
    contract: ['state', 'redis-promises', 'history'],
    runs: [
      ...runs(['sentinel'], ['states'], LOSSES, BUSY),
      // Workers miss changes.
      ...runs(['redis'], ['states'], ['redisCut'], BUSY),
      ...runs(['embedded'], ['states'], FAULTS_OF_STATES, BUSY),
      ...runs(['redis'], ['states'], LOSSES, BUSY),
      ...runs(['embedded', 'redis'], ['states'], ['linksSlow', 'slowReaders'], {
        ...SLOW_READERS,
        load: { ...BUSY.load, ...SLOW_READERS.load, bytes: LARGE_BYTES },
      }),
      ...runs(['redis'], ['states'], CRASHES, { ...BUSY, servers: 1 }),
    ],
  },
  audiences: {
    unit: ['audiences', 'hook-order'],
    contract: ['state'],
    runs: runs(
      ['redis', 'embedded', 'redis', 'cluster'],
      [],
      [...COMMON, ...OF_REDIS],
      {
        hasPusher: true,
        hooks: { over: 'http', names: ['onConnect', 'onJoin', 'onPublish'] },
        load: {
          ...{ ...LOAD, groups: [], clients: 1, publishers: 1, rate: 2, rooms: 2 },
          ...{ roomsPerClient: 1, hasAudiences: true, hasBucket: true, hasCentrifugo: true },
        },
      },
      [{}, { hooks: { over: 'http', names: ['onConnect', 'onPublish'] } }],
    ),
  },
  webhooks: {
    unit: [
      'webhook-retries',
      'webhook-delivery',
      'webhook-handover',
      'webhook-periods',
      'webhook-recording',
      'webhook-pusher',
      'courier-interleavings',
      'redis-scripts',
    ],
    contract: ['webhook-queue', 'webhook-transitions', 'webhook-transitions-redis', 'occupancy'],
    runs: inTurn(
      runs(['redis', 'embedded', 'cluster'], REPORTED, OF_COURIERS, {
        ...{ ...WEBHOOKS, ageMs: AGE_MS, chaosMs: 60_000 },
      }),
      runs(['embedded'], REPORTED, ['primaryKilled', 'serverTerminated'], WEBHOOKS),
      runs(['redis', 'sentinel', 'cluster'], REPORTED, OF_RECORDS, WEBHOOKS),
      runs(['redis', 'cluster', 'embedded'], REPORTED, OF_REPORTERS, WEBHOOKS),
      runs(['cluster'], REPORTED, ['linksSlow', 'workerKilled'], {
        ...{ ...WEBHOOKS, chaosMs: 40_000, load: { ...WEBHOOKS.load, rate: 30 } },
      }),
      runs(['embedded', 'redis'], REPORTED, OF_COURIERS, {
        ...{ ...WEBHOOKS, endpoint: SMALL_ENDPOINT },
      }),
    ),
  },
  doors: {
    unit: [
      'centrifugo-resync',
      'centrifugo-connections',
      'sse-recovery',
      'sse',
      'lagging-members',
      'stream-interleavings',
      'every-door-joins',
      'every-door-reads',
    ],
    contract: [],
    runs: [
      ...runs(['redis'], OF_DOORS, [...BROKEN, ...LOST_BY_REDIS]),
      ...runs(['embedded'], OF_DOORS, BROKEN),
      // Who lags here soon lacks what the history no longer has.
      ...runs(['embedded', 'redis'], OF_DOORS, SLOWNESS, {
        ...SLOW_READERS,
        historySize: 32,
        load: {
          ...BUSY.load,
          ...SLOW_READERS.load,
          bytes: 1000,
          last: 3,
          rate: 100,
          publishers: 6,
        },
      }),
      ...runs(['redis', 'embedded'], ['pushers', 'seated'], ['redisReset', 'clientsReset'], {
        ...{ ...BUSY, load: { ...BUSY.load, clients: 1 } },
      }),
    ],
  },
  recovery: {
    unit: ['room-joins', 'room-sync', 'recovery-model', 'sse-recovery', 'hub'],
    contract: ['history'],
    runs: runs(['redis', 'sentinel'], [], [], BUSY, [AHEAD, OTHER_DATA]),
  },
  lagging: {
    unit: ['lagging-members', 'sse-recovery', 'stream-interleavings', 'recovery-model'],
    contract: [],
    runs: runs(
      ['redis'],
      [],
      ['slowReaders', 'redisDown', 'redisLosesASecond', 'clientsReset'],
      { load: { ...LOAD, isBusy: true }, historySize: 150 },
      [SLOW, CROWDED],
    ),
  },
  outages: {
    unit: ['outage-notice', 'hub'],
    contract: [],
    runs: [
      // The farther Redis is, the longer a room that moves is without its subscription.
      ...runs(['cluster'], ['people'], ['slotsMoved'], {
        ...{ ...BUSY, chaosMs: 60_000, longShare: 0.5, farMs: 100 },
        load: { ...LOAD, isBusy: true, clients: 2, rooms: 2 },
      }),
      ...runs(['redis'], ['people'], ['redisFlaps', 'linksSlow', 'clientsReset'], BUSY),
    ],
  },
  redis: {
    unit: [
      ...['redis-publisher', 'redis-broker', 'redis-identity', 'redis-moved-slots', 'data-loss'],
      'subscription-interleavings',
    ],
    contract: ['redis-promises', 'broker', 'history'],
    runs: [
      ...runs(
        ['redis'],
        ['visitors'],
        [
          ...['redisOverloaded', 'redisLineBad', 'redisDown', 'redisFull', 'redisForbidsChannels'],
          ...['linksSlow', 'connectionsStalled', 'clientsReset'],
        ],
        OF_STUBBORN,
      ),
      // Connections break while answers are on their way.
      ...runs(['cluster'], ['visitors'], ['redisReset', 'clientsReset'], {
        ...OF_STUBBORN,
        farMs: 60,
      }),
    ],
  },
  relay: {
    unit: ['relay', 'relay-overload', 'histories'],
    contract: ['broker', 'state'],
    runs: [
      ...runs(
        ['embedded'],
        ['states', 'visitors'],
        ['primaryFrozen', 'primaryKilled', 'serverTerminated', 'workerFrozen', 'clientsReset'],
        { load: { ...LOAD, isBusy: true, stubborn: 2, rate: 40 } },
      ),
      // Publishers keep their connections.
      ...runs(['embedded'], ['visitors'], ['primaryFrozen'], BUSY),
    ],
  },
  presence: {
    unit: ['presence-churn', 'room-users', 'pusher-presence', 'presence-interleavings'],
    contract: ['presence', 'presence-redis'],
    runs: runs(
      ['redis', 'redis', 'sentinel'],
      ['people', 'libraries', 'pushers', 'members'],
      [...COMMON, ...OF_REDIS, 'primaryKilled', 'failoverPlanned', 'machineAsleep'],
      BUSY,
      [{}, ASLEEP, { groups: ['people'] }, { groups: ['members'] }],
    ),
  },
  operations: {
    unit: [
      'lane',
      'hook-order',
      'commands',
      'revocations',
      'command-interleavings',
      'every-door-joins',
    ],
    contract: ['revocations'],
    runs: runs(
      ['redis', 'embedded'],
      ['people', 'suspects', 'libraries'],
      [...COMMON, ...OF_REDIS, 'primaryKilled'],
      BUSY,
      [
        {},
        FORGOTTEN,
        {
          hooks: { over: 'file', names: ['onJoin', 'onPublish'], late: 0.1, failing: 0, known: 3 },
        },
        { hooks: { over: 'http', names: ['onJoin'], late: 0.3, failing: 0 }, groups: ['people'] },
      ],
    ),
  },
});
