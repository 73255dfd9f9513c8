// faults-of-replicas.js: the faults of a simulated Redis with replicas: failovers, stale replicas,
// primaries that go on by themselves, slots that move.

import { slotOf } from '../../src/backend/redis/slots.js';

/** A failover, with its elections. */
const FAILOVER_MS = 20_000;
/** By how much a replica is behind when it is promoted: from, to. */
const LAG_MS = /** @type {const} */ ([300, 3000]);
const MAX_SLOTS = 8;
const MOVES_MS = /** @type {const} */ ([50, 1000]);
/** What a server of Redis has when it starts again. */
const DATA = /** @type {const} */ (['kept', 'kept', 'nothing', 'snapshot', 'last-second']);

/** @import { Random } from '../checker/random.js' */
/** @import { Fault, Heal } from './faults.js' */
/** @import { RedisHost } from './redis-host.js' */
/** @import { World } from './world.js' */

/** @type {Readonly<Record<string, Fault>>} */
export const FAULTS_OF_REPLICAS = Object.freeze({
  failoverPlanned: {
    holdMs: [0, 2000],
    needs: 'replicas',
    inflict(world, random) {
      const { replica } = pairOf(world, random);
      if (world.cluster !== null) world.cluster.promote(replica);
      else world.sentinels?.failOver();
      return () => {};
    },
  },
  primaryOfRedisLost: {
    holdMs: [0, 6000],
    needs: 'replicas',
    inflict(world, random) {
      const { primary, replica } = pairOf(world, random);
      primary.stop();
      return async () => {
        await promoted(world, replica);
        primary.start(random.pick(DATA));
      };
    },
  },
  staleReplicaPromoted: {
    holdMs: [0, 4000],
    needs: 'replicas',
    async inflict(world, random) {
      const { primary, replica } = pairOf(world, random);
      const heal = cut(world, primary.host, replica.host, random.below(2));
      await pause(random.between(...LAG_MS));
      primary.stop();
      return async () => {
        await promoted(world, replica);
        heal();
        primary.start(random.pick(DATA));
      };
    },
  },
  replicaCut: {
    holdMs: [300, 12_000],
    needs: 'replicas',
    inflict(world, random) {
      const { primary, replica } = pairOf(world, random);
      return cut(world, primary.host, replica.host, random.below(3));
    },
  },
  primaryOfRedisFrozen: {
    holdMs: [1000, 9000],
    needs: 'replicas',
    inflict(world, random) {
      const { primary } = pairOf(world, random);
      primary.freeze();
      return () => primary.thaw();
    },
  },
  sentinelKilled: {
    holdMs: [500, 8000],
    needs: 'sentinel',
    inflict({ sentinels }, random) {
      const sentinel = random.pick(sentinels?.hosts ?? []);
      sentinel.stop();
      return () => sentinel.start('kept');
    },
  },
  /** The servers hear of the new primary, and may reach the old one. */
  primaryOfRedisApart: {
    holdMs: [1000, 10_000],
    needs: 'replicas',
    inflict(world, random) {
      const { primary } = pairOf(world, random);
      return apart(world, [primary.host], [...peersOf(world)]);
    },
  },
  /** Some servers are on the side of the old primary. */
  brainSplit: {
    holdMs: [1000, 8000],
    needs: 'replicas',
    inflict(world, random) {
      const { primary } = pairOf(world, random);
      const servers = random.shuffled(world.servers.map(({ machine }) => machine.host));
      const few = servers.splice(0, random.below(servers.length));
      return apart(world, [primary.host, ...few], [...peersOf(world), ...servers]);
    },
  },
  /** A resharding: slots move all the time. */
  slotsMoved: {
    holdMs: [0, 6000],
    needs: 'cluster',
    inflict(world, random) {
      const { cluster, workload } = world;
      if (cluster === null) throw new Error('needs a cluster');
      /** @type {NodeJS.Timeout} */
      let timer;
      const moveSome = () => {
        for (let i = random.below(MAX_SLOTS); i >= 0; i--)
          cluster.move(
            slotOf(random.pick(workload.joinedRooms)),
            random.below(world.primaries.length),
          );
        timer = setTimeout(moveSome, random.between(...MOVES_MS));
      };
      moveSome();
      return () => {
        clearTimeout(timer);
        return world.until(() => cluster.moves.size === 0, FAILOVER_MS);
      };
    },
  },
});

/** @param {World} world @param {Random} random @returns {{primary: RedisHost, replica: RedisHost}} */
function pairOf({ primaries, nodes, cluster }, random) {
  const primary = primaries.length === 1 ? primaries[0] : random.pick(primaries);
  const other = /** @type {RedisHost} */ (nodes.find((node) => node !== primary));
  return { primary, replica: cluster?.replicaOf(primary) ?? other };
}

/** @param {World} world @returns {string[]} hosts of Redis and its Sentinels */
function peersOf({ nodes, sentinels }) {
  return [...nodes, ...(sentinels?.hosts ?? [])].map(({ host }) => host);
}

/** @param {World} world @param {string[]} some @param {string[]} others @returns {Heal} */
function apart(world, some, others) {
  const heals = some.flatMap((one) =>
    others.filter((other) => !some.includes(other)).map((other) => cut(world, one, other, 0)),
  );
  return () => {
    for (const heal of heals) heal();
  };
}

/** @param {World} world @param {RedisHost} replica */
async function promoted(world, replica) {
  await world.until(() => world.primaries.includes(replica), FAILOVER_MS);
}

/**
 * @param {World} world @param {string} one @param {string} other
 * @param {number} kind 0: both directions, 1 and 2: one of them @returns {Heal}
 */
export function cut({ fleet: { network } }, one, other, kind) {
  const pairs = [
    [one, other],
    [other, one],
  ].filter((_, i) => kind !== 2 - i);
  for (const [from, to] of pairs) network.cut(from, to);
  return () => {
    for (const [from, to] of pairs) network.heal(from, to);
  };
}

/** Of the director's time. @param {number} ms @returns {Promise<void>} */
export function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
