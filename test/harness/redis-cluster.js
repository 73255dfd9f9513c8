// redis-cluster.js: a Redis Cluster of three primaries, with or without replicas, whose slots can
// be moved.

import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { slotOf } from '../../src/backend/redis/slots.js';
import { freePort, redisSettings, startRedis } from './redis.js';
import { until } from './server.js';

const PRIMARIES = 3;
const SLOTS = 16_384;

/**
 * Starts one; it ends with the test.
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {object} [options]
 * @param {boolean} [options.hasReplicas] one for each primary
 * @param {boolean} [options.failsOver] otherwise only the test promotes replicas
 * @param {number} [options.nodeTimeoutMs] of silence until a node is called failed
 */
export async function startCluster(
  t,
  { hasReplicas = false, failsOver = true, nodeTimeoutMs = 1500 } = {},
) {
  const start = async () =>
    startRedis(t, {
      args: [
        ...['--cluster-enabled', 'yes', '--cluster-port', `${await freePort()}`],
        ...['--cluster-node-timeout', `${nodeTimeoutMs}`],
        // Without it the loss of one shard is the loss of all.
        ...['--cluster-require-full-coverage', 'no'],
        ...(failsOver ? [] : ['--cluster-replica-no-failover', 'yes']),
      ],
    });
  const nodes = await Promise.all(
    Array.from({ length: hasReplicas ? 2 * PRIMARIES : PRIMARIES }, start),
  );
  const primaries = nodes.slice(0, PRIMARIES);
  for (const [i, node] of nodes.entries()) {
    await node.cli('CLUSTER', 'SET-CONFIG-EPOCH', `${i + 1}`);
    if (i >= PRIMARIES) continue;
    const first = Math.floor((i * SLOTS) / PRIMARIES);
    const last = Math.floor(((i + 1) * SLOTS) / PRIMARIES) - 1;
    await node.cli('CLUSTER', 'ADDSLOTSRANGE', `${first}`, `${last}`);
  }
  for (const node of nodes.slice(1)) {
    await nodes[0].cli(
      'CLUSTER',
      'MEET',
      '127.0.0.1',
      `${node.port}`,
      node.args[node.args.indexOf('--cluster-port') + 1],
    );
  }
  const isWhole = async (/** @type {import('./redis.js').RedisServer} */ node) => {
    const info = await node.cli('CLUSTER', 'INFO');
    return (
      info.includes('cluster_state:ok') &&
      info.includes(`cluster_known_nodes:${nodes.length}`) &&
      info.includes(`cluster_slots_ok:${SLOTS}`)
    );
  };
  for (const node of nodes) await until(() => isWhole(node));
  const cluster = new Cluster(
    nodes,
    await Promise.all(nodes.map((node) => node.cli('CLUSTER', 'MYID'))),
  );
  for (const [i, replica] of nodes.slice(PRIMARIES).entries()) {
    await replica.cli(
      'CLUSTER',
      'REPLICATE',
      /** @type {string} */ (cluster.ids.get(primaries[i])),
    );
  }
  for (const replica of nodes.slice(PRIMARIES)) {
    await until(async () => /master_link_status:up/.test(await replica.cli('INFO', 'replication')));
  }
  return cluster;
}

/** @typedef {import('./redis.js').RedisServer} RedisServer */

export class Cluster {
  /**
   * @param {import('./redis.js').RedisServer[]} nodes the primaries first
   * @param {string[]} ids of each
   */
  constructor(nodes, ids) {
    this.nodes = nodes;
    this.ids = new Map(nodes.map((node, i) => [node, ids[i]]));
    /** As they began. */
    this.primaries = nodes.slice(0, PRIMARIES);
  }

  get settings() {
    return redisSettings({
      REDIS_CLUSTER: this.primaries.map(({ port }) => `127.0.0.1:${port}`).join(','),
    });
  }

  /** The first owner of a room's slot. @param {string} room */
  primaryOf(room) {
    return this.primaries[Math.floor(((slotOf(room) + 1) * PRIMARIES - 1) / SLOTS)];
  }

  /**
   * A room in a slot of this primary, at the beginning.
   * @param {import('./redis.js').RedisServer} primary @param {string} name
   */
  roomIn(primary, name) {
    for (let i = 0; ; i++) if (this.primaryOf(`${name}-${i}`) === primary) return `${name}-${i}`;
  }

  /**
   * What `rollBack` restores.
   * @param {import('./redis.js').RedisServer} primary
   * @returns {Promise<Buffer>}
   */
  async save(primary) {
    await primary.cli('SAVE');
    return readFile(join(primary.folder, 'dump.rdb'));
  }

  /**
   * Restarts a primary with older data: it loses its later writes.
   * @param {import('./redis.js').RedisServer} primary @param {Buffer} saved
   */
  async rollBack(primary, saved) {
    await primary.kill();
    await writeFile(join(primary.folder, 'dump.rdb'), saved);
    await primary.restart();
  }

  /**
   * Moves a slot with all its keys, in the order redis-cli keeps.
   * @param {number} slot
   * @param {import('./redis.js').RedisServer} from
   * @param {import('./redis.js').RedisServer} to
   */
  async moveSlot(slot, from, to) {
    const fromId = /** @type {string} */ (this.ids.get(from));
    const toId = /** @type {string} */ (this.ids.get(to));
    await to.cli('CLUSTER', 'SETSLOT', `${slot}`, 'IMPORTING', fromId);
    await from.cli('CLUSTER', 'SETSLOT', `${slot}`, 'MIGRATING', toId);
    for (;;) {
      const keys = (await from.cli('CLUSTER', 'GETKEYSINSLOT', `${slot}`, '100'))
        .split('\n')
        .filter((key) => key !== '');
      if (keys.length === 0) break;
      await from.cli('MIGRATE', '127.0.0.1', `${to.port}`, '', '0', '5000', 'KEYS', ...keys);
    }
    const primaries = (await this.shards()).map(({ primary }) => primary);
    for (const node of [to, from, ...primaries.filter((other) => other !== to && other !== from)]) {
      await node.cli('CLUSTER', 'SETSLOT', `${slot}`, 'NODE', toId);
    }
  }

  /**
   * The present primaries, as a node that answers knows them.
   * @returns {Promise<{primary: RedisServer, replicas: RedisServer[], ranges: [number, number][]}[]>}
   */
  async shards() {
    const byId = new Map([...this.ids].map(([node, id]) => [id, node]));
    const text = await this.#ask('CLUSTER', 'NODES');
    const lines = text.split('\n').map((line) => line.trim().split(' '));
    const isAlive = (/** @type {string} */ flags) => !/\b(?:fail|noaddr|handshake)\b/.test(flags);
    const nodeOf = (/** @type {string} */ id) => /** @type {RedisServer} */ (byId.get(id));
    return lines.flatMap(([id, , flags, , , , , , ...slots]) => {
      if (!/master/.test(flags) || !isAlive(flags) || slots.length === 0) return [];
      const replicas = lines
        .filter(([, , other, of]) => /slave/.test(other) && of === id && isAlive(other))
        .map(([replica]) => nodeOf(replica));
      const ranges = slots
        .filter((range) => !range.startsWith('['))
        .map((range) => {
          const [first, last = first] = range.split('-').map(Number);
          return /** @type {[number, number]} */ ([first, last]);
        });
      return [{ primary: nodeOf(id), replicas, ranges }];
    });
  }

  /** @param {string[]} command to any node that answers */
  async #ask(...command) {
    /** @type {unknown} */
    let fault;
    for (const node of this.nodes) {
      try {
        return await node.cli(...command);
      } catch (error) {
        fault = error;
      }
    }
    throw fault;
  }

  /**
   * Lets a replica fall behind its primary: from now on it gets nothing, until `promote`.
   * @param {RedisServer} primary @param {RedisServer} replica
   */
  async cutOff(primary, replica) {
    replica.freeze();
    // What is in the kernel's buffers by now, the replica still reads.
    await primary.cli('CLIENT', 'KILL', 'TYPE', 'replica');
  }

  /** Promotes a replica whose primary is dead. @param {RedisServer} replica */
  async promote(replica) {
    replica.thaw();
    await until(async () => {
      // Redis refuses it while the cluster's own election goes on.
      await replica.cli('CLUSTER', 'FAILOVER', 'TAKEOVER').catch(() => '');
      return /role:master/.test(await replica.cli('INFO', 'replication'));
    });
  }
}
