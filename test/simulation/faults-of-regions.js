// faults-of-regions.js: the faults of a replica through which the workers of a region hear.

import { cut } from './faults-of-replicas.js';

const STEP_MS = 20_000;
/** By how much a replica is late. */
const LATE_MS = /** @type {const} */ ([40, 400, 1400, 1600, 5000]);
const DATA = /** @type {const} */ (['kept', 'nothing', 'snapshot']);

/** @import { Fault } from './faults.js' */

/** @type {Readonly<Record<string, Fault>>} */
export const FAULTS_OF_REGIONS = Object.freeze({
  regionReplicaStopped: {
    holdMs: [200, 9000],
    needs: 'region',
    inflict({ nodes: [, replica] }, random) {
      replica.stop();
      return () => replica.start(random.pick(DATA));
    },
  },
  regionReplicaFrozen: {
    holdMs: [200, 9000],
    needs: 'region',
    inflict({ nodes: [, replica] }) {
      replica.freeze();
      return () => replica.thaw();
    },
  },
  regionReplicaLate: {
    holdMs: [2000, 15_000],
    needs: 'region',
    inflict({ nodes: [primary, replica], fleet: { network } }, random) {
      const way = network.way(primary.host, replica.host);
      const former = way.extraMs;
      way.extraMs = random.pick(LATE_MS);
      return () => {
        way.extraMs = former;
      };
    },
  },
  regionReplicaCut: {
    holdMs: [200, 12_000],
    needs: 'region',
    inflict(world, random) {
      const [primary, replica] = world.nodes;
      return cut(world, primary.host, replica.host, random.below(3));
    },
  },
  /** The backlog is too small for the cut. */
  regionReplicaCopied: {
    holdMs: [2500, 5000],
    needs: 'region',
    inflict({ nodes: [primary, replica] }) {
      const bytes = primary.server.backlogBytes;
      replica.replication.reconnect();
      primary.server.backlogBytes = 0;
      return () => {
        primary.server.backlogBytes = bytes;
      };
    },
  },
  regionReplicaPromoted: {
    holdMs: [200, 8000],
    needs: 'region',
    inflict({ nodes: [primary, replica] }) {
      replica.replication.promote();
      return () => replica.replication.follow(primary);
    },
  },
  /** The whole line between the regions, with the servers of both. */
  regionLineCut: {
    holdMs: [500, 12_000],
    needs: 'region',
    inflict(world) {
      const [primary, replica] = world.nodes;
      const far = world.servers.filter((_, i) => i % 2 === 1);
      const hosts = [replica.host, ...far.map(({ machine }) => machine.host)];
      const heals = hosts.map((host) => cut(world, primary.host, host, 0));
      return () => {
        for (const heal of heals) heal();
      };
    },
  },
  regionFailover: {
    holdMs: [500, 8000],
    needs: 'region',
    inflict(world, random) {
      const [primary, replica] = world.nodes;
      primary.stop();
      replica.replication.promote();
      world.lead(replica);
      return async () => {
        primary.start(random.pick(DATA));
        primary.replication.follow(replica);
        await world.until(() => primary.replication.isInStep, STEP_MS);
        await pause(1000);
        primary.replication.promote();
        replica.replication.follow(primary);
        world.lead(primary);
        await world.until(() => replica.replication.isInStep, STEP_MS);
      };
    },
  },
});

/** Of the director's time. @param {number} ms @returns {Promise<void>} */
function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
