// nemesis-regions.js: faults of a replica through which servers hear, and of its line to the primary.

import { pause } from '../harness/run.js';
import { until } from '../harness/server.js';

const LINK_MS = 60_000;
/** More than the replica's backlog keeps. */
const COPY_MESSAGES = 10;
const COPY_BYTES = 10_000;

/** @typedef {import('./nemesis.js').Nemesis} Nemesis */
/** @typedef {import('./trial.js').Trial} Trial */
/** @typedef {import('./trial.js').RedisServer} RedisServer */

/** @type {Readonly<Record<string, Nemesis>>} */
export const NEMESES_OF_REGIONS = Object.freeze({
  regionReplicaKilled: {
    name: 'the region’s replica killed',
    holdMs: [300, 8000],
    on: 'region',
    async inflict(trial) {
      const { replica } = regionOf(trial);
      await replica.kill();
      return async () => {
        await replica.restart();
        await inStep(replica);
      };
    },
  },
  regionReplicaFrozen: {
    name: 'the region’s replica frozen',
    holdMs: [500, 9000],
    on: 'region',
    async inflict(trial) {
      const { replica } = regionOf(trial);
      replica.freeze();
      return async () => {
        replica.thaw();
        await inStep(replica);
      };
    },
  },
  regionReplicaDelayed: {
    name: 'the region’s replica late',
    holdMs: [3000, 15_000],
    on: 'region',
    async inflict(trial) {
      const { wire } = regionOf(trial);
      const latencyMs = trial.random.pick([40, 400, 1400, 1600, 5000]);
      wire.change({ latencyMs, jitterMs: latencyMs / 4 });
      return () => wire.change({});
    },
  },
  regionReplicaCut: {
    name: 'the line to the region’s replica cut',
    holdMs: [300, 12_000],
    on: 'region',
    async inflict(trial) {
      const { wire, replica } = regionOf(trial);
      wire.change({ isSilent: true });
      return async () => {
        wire.cut();
        wire.change({});
        await inStep(replica);
      };
    },
  },
  regionReplicaCopied: {
    name: 'the region’s replica takes a new copy of the data',
    holdMs: [0, 2000],
    on: 'region',
    async inflict(trial) {
      const { wire, replica } = regionOf(trial);
      wire.change({ isSilent: true });
      await trial.workload.flood(trial.workload.rooms[0], COPY_MESSAGES, COPY_BYTES);
      return async () => {
        wire.cut();
        wire.change({});
        await inStep(replica);
      };
    },
  },
  regionReplicaPromoted: {
    name: 'the region’s replica promoted by mistake',
    holdMs: [300, 8000],
    on: 'region',
    async inflict(trial) {
      const { wire, replica } = regionOf(trial);
      await replica.cli('REPLICAOF', 'NO', 'ONE');
      return async () => {
        await replica.cli('REPLICAOF', '127.0.0.1', `${wire.port}`);
        await inStep(replica);
      };
    },
  },
  regionFailover: {
    name: 'the primary killed, the region’s replica in its place',
    holdMs: [1000, 8000],
    on: 'region',
    async inflict(trial) {
      const { redis: primary, proxy } = trial;
      const { wire, line, replica } = regionOf(trial);
      /** The address of the primary leads to a server from now on. @param {RedisServer} server */
      const lead = (server) => {
        for (const way of [proxy, line]) {
          if (way === null) throw new Error('needs a proxy');
          way.target = server.port;
          way.cut();
        }
      };
      await inStep(replica);
      await primary.kill();
      await pause(trial.random.between(0, 2000));
      await replica.cli('REPLICAOF', 'NO', 'ONE');
      lead(replica);
      return async () => {
        await primary.restart();
        await primary.cli('REPLICAOF', '127.0.0.1', `${replica.port}`);
        await inStep(primary);
        await replica.cli('FAILOVER', 'TO', '127.0.0.1', `${primary.port}`);
        const isBack = async () => (await primary.cli('ROLE')).startsWith('master');
        await until(isBack, LINK_MS, 'the way back');
        lead(primary);
        await replica.cli('REPLICAOF', '127.0.0.1', `${wire.port}`);
        await inStep(replica);
      };
    },
  },
  regionLineCut: {
    name: 'the whole line between the regions cut',
    holdMs: [1000, 12_000],
    on: 'region',
    async inflict(trial) {
      const { wire, line, replica } = regionOf(trial);
      for (const one of [wire, line]) one.change({ isSilent: true });
      return async () => {
        for (const one of [wire, line]) {
          one.cut();
          one.change({});
        }
        await inStep(replica);
      };
    },
  },
});

/** @param {Trial} trial */
function regionOf({ store: { region } }) {
  if (region === undefined) throw new Error('needs a region');
  return region;
}

/** Waits until it follows its primary. @param {RedisServer} replica */
function inStep(replica) {
  const isLinked = async () =>
    (await replica.cli('INFO', 'replication')).includes('master_link_status:up');
  return until(isLinked, LINK_MS, 'a replica in step');
}
