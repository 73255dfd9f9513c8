// nemesis-topologies.js: faults of Sentinel and of a cluster, and of the way from clients to servers.

import { slotOf } from '../../src/backend/redis/slots.js';
import { pause } from '../harness/run.js';
import { until } from '../harness/server.js';

/** A failover, and the old primary's return as a replica, which Sentinel arranges each 10 s. */
const FAILOVER_MS = 30_000;
const RETURN_MS = 60_000;
/** Users that leave while a replica lags. */
const LOST_STIRS = 3;

/** @typedef {import('./nemesis.js').Nemesis} Nemesis */
/** @typedef {import('./trial.js').Trial} Trial */
/** @typedef {import('./trial.js').RedisServer} RedisServer */

/** @type {Readonly<Record<string, Nemesis>>} */
export const NEMESES_OF_TOPOLOGIES = Object.freeze({
  sentinelPrimaryKilled: {
    name: 'Sentinel’s primary killed',
    holdMs: [0, 2000],
    on: 'sentinel',
    async inflict(trial) {
      const { primary, replica } = await pairOf(trial);
      await primary.kill();
      return async () => {
        await until(() => isPrimary(replica), FAILOVER_MS, 'a failover');
        await primary.restart();
        await until(() => follows(primary), RETURN_MS, 'the old primary as a replica');
      };
    },
  },
  sentinelPrimaryFrozen: {
    name: 'Sentinel’s primary frozen',
    holdMs: [5000, 9000],
    on: 'sentinel',
    async inflict(trial) {
      const { primary, replica } = await pairOf(trial);
      primary.freeze();
      return async () => {
        await until(() => isPrimary(replica), FAILOVER_MS, 'a failover');
        primary.thaw();
        await until(() => follows(primary), RETURN_MS, 'the old primary as a replica');
      };
    },
  },
  sentinelKilled: {
    name: 'a Sentinel killed',
    holdMs: [1000, 5000],
    on: 'sentinel',
    async inflict({ random, store: { sentinels = [] } }) {
      const sentinel = random.pick(sentinels);
      await sentinel.kill();
      return () => sentinel.restart();
    },
  },
  slotMoved: {
    name: 'the slot of a room moved',
    holdMs: [0, 0],
    on: 'cluster',
    async inflict({ random, workload, store }) {
      const { cluster } = store;
      if (cluster === undefined) throw new Error('needs a cluster');
      const room = random.pick(workload.rooms);
      const slot = slotOf(room);
      const shards = await cluster.shards();
      const isOurs = (/** @type {typeof shards[number]} */ { ranges }) =>
        ranges.some(([first, last]) => first <= slot && slot <= last);
      const from = shards.find(isOurs)?.primary;
      if (from === undefined) throw new Error('no node of the cluster has the slot');
      const to = random.pick(shards.map(({ primary }) => primary).filter((node) => node !== from));
      await cluster.moveSlot(slot, from, to);
      return () => {};
    },
  },
  nodeKilled: {
    name: 'a node of the cluster killed',
    holdMs: [1000, 5000],
    on: 'cluster',
    async inflict({ random, nodes }) {
      const node = random.pick(nodes);
      await node.kill();
      return async () => {
        await node.restart();
        await serving(nodes);
      };
    },
  },
  nodeFrozen: {
    name: 'a node of the cluster frozen',
    holdMs: [500, 5000],
    on: 'cluster',
    async inflict({ random, nodes }) {
      const node = random.pick(nodes);
      node.freeze();
      return () => {
        node.thaw();
        return serving(nodes);
      };
    },
  },
  laggingReplicaPromoted: {
    name: 'a lagging replica of the cluster promoted',
    holdMs: [500, 3000],
    on: 'cluster',
    async inflict({ random, workload, nodes, store: { cluster } }) {
      if (cluster === undefined) throw new Error('needs a cluster');
      const whole = async () =>
        (await cluster.shards()).filter(({ replicas }) => replicas.length > 0);
      await until(async () => (await whole()).length > 0, RETURN_MS, 'a replica');
      const { primary, replicas, ranges } = random.pick(await whole());
      const [replica] = replicas;
      await until(() => follows(replica), RETURN_MS, 'a replica');
      await cluster.cutOff(primary, replica);
      for (let n = 0; n < LOST_STIRS; n++) workload?.population?.stir();
      await pause(random.between(500, 2000));
      const key = keyIn(ranges);
      await primary.cli('SET', key, 'x');
      await primary.kill();
      await cluster.promote(replica);
      if ((await replica.cli('EXISTS', key)) !== '0')
        throw new Error('the fault has no effect: the replica has the latest write');
      return async () => {
        await primary.restart();
        await until(() => follows(primary), RETURN_MS, 'the old primary as a replica');
        await serving(nodes);
      };
    },
  },
  wiresCut: {
    name: 'the ways of clients cut',
    holdMs: [0, 0],
    needsWires: true,
    async inflict({ wires }) {
      for (const wire of wires) wire.cut();
      return () => {};
    },
  },
  wiresCutOften: {
    name: 'the ways of clients cut again and again',
    holdMs: [0, 0],
    needsWires: true,
    async inflict({ wires, random }) {
      for (let n = 0; n < 10; n++) {
        random.pick(wires).cut();
        await pause(random.between(20, 600));
      }
      return () => {};
    },
  },
  wiresSilent: {
    name: 'the ways of clients silent',
    holdMs: [1000, 8000],
    needsWires: true,
    inflict: weather({ isSilent: true }),
  },
  wiresNarrow: {
    name: 'the ways of clients narrow, in slices',
    holdMs: [2000, 5000],
    needsWires: true,
    inflict: weather({ sliceBytes: 50, bytesPerSecond: 50_000, latencyMs: 50, jitterMs: 40 }),
  },
});

/** @param {import('../helpers/tcp-proxy.js').Weather} bad @returns {Nemesis['inflict']} */
function weather(bad) {
  return async ({ wires }) => {
    for (const wire of wires) wire.change(bad);
    return () => {
      for (const wire of wires) wire.change({});
    };
  };
}

/** Sentinel's two servers, when one follows the other. @param {Trial} trial */
async function pairOf({ nodes }) {
  const [one, other] = nodes;
  const primary = (await isPrimary(one)) ? one : other;
  const replica = primary === one ? other : one;
  await until(() => follows(replica), RETURN_MS, 'a replica');
  return { primary, replica };
}

/** @param {RedisServer} node */
async function isPrimary(node) {
  return (await node.role()) === 'master';
}

/** @param {RedisServer} node */
async function follows(node) {
  return (await node.cli('INFO', 'replication')).includes('master_link_status:up');
}

/** A key in one of the slots. @param {[number, number][]} ranges */
function keyIn(ranges) {
  for (let tag = 0; ; tag++) {
    const slot = slotOf(`{${tag}}`);
    if (ranges.some(([first, last]) => first <= slot && slot <= last)) return `canary:{${tag}}`;
  }
}

/** A primary that comes back refuses writes for some seconds. @param {readonly RedisServer[]} nodes */
async function serving(nodes) {
  for (const node of nodes)
    await until(
      async () => (await node.cli('CLUSTER', 'INFO')).includes('cluster_state:ok'),
      FAILOVER_MS,
      'the cluster in service',
    );
}
