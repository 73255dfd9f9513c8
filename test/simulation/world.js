// world.js: what a director and the faults see of a simulated deployment.

import { join } from 'node:path';
import { FAULTS } from './faults.js';
import { Fleet } from './fleet.js';
import { settingsKnownTo } from './old-trees.js';
import { Sentinels } from './sentinels.js';
import { SimulatedCluster } from './simulated-cluster.js';

const FIRST_PORT = 8101;
const GONE_MS = 40_000;
const WHOLE_MS = 60_000;
const POLL_MS = 50;
const SNAPSHOT_MS = 1000;
const SNAPSHOTS = 8;
/** Servers of Redis in each topology. */
const NODES = Object.freeze({ embedded: 0, redis: 1, sentinel: 2, cluster: 6, region: 2 });
/** Keys of a room's messages end with them. */
const OF_MESSAGES = /^fanfare:(?:history|state|once|blob):/;
/** The name of the primary, where each region finds it. */
const PRIMARY = 'primary';
const MAX_LAG_MS = 3000;

/** @import { Machine } from './machine.js' */
/** @import { SimulatedProcess } from './simulated-process.js' */

/**
 * @typedef {object} Plan what the seed has drawn
 * @property {number} seed @property {keyof typeof NODES} topology
 * @property {number} servers @property {number} workers of each
 * @property {Record<string, string>} env of the servers
 * @property {Record<string, string>[]} [envs] more of it, for each server
 * @property {Record<string, string>} files on the disk of each server, by path
 * @property {number} pieces share of parcels that arrive in pieces
 * @property {number} [losses] share of parcels that are lost once
 * @property {number} [hiccups] share of readings of a server's clock at which time has passed
 * @property {number} [windowBytes] that a connection may have under way and unread
 * @property {number} [farMs] by how much the way from a server to Redis is longer than others
 * @property {number} leastReplicas primaries with fewer that keep up refuse writes
 * @property {number} [spares] more servers of Redis, `spare-0` …, of which the topology does not know
 * @property {Record<string, string>} [aliases] more names of servers of Redis
 */

/** A server of the deployment, over its restarts. */
class SimulatedFanfare {
  /** @type {SimulatedProcess|null} */
  primary = null;
  /** When workers were killed. @type {number[]} */
  kills = [];
  /** Reloads that have ended. */
  reloads = 0;

  /**
   * @param {Fleet} fleet @param {Machine} machine @param {Record<string, string>} env
   * @param {string|undefined} main its program, if it is of another tree
   */
  constructor(fleet, machine, env, main) {
    this.fleet = fleet;
    this.machine = machine;
    this.env = env;
    this.main = main;
  }

  /** Another fault may have ended, and started it. */
  start() {
    if (this.primary?.isAlive) return;
    this.kills = [];
    this.primary = this.fleet.startServer(this.machine, this.env, this.main);
  }

  /** Those that have not ended. @returns {SimulatedProcess[]} */
  get workers() {
    return [...this.machine.processes].filter(({ kind, isAlive }) => kind === 'cluster' && isAlive);
  }

  get courier() {
    return [...this.machine.processes].find(({ args }) => args[0] === 'courier') ?? null;
  }

  get url() {
    return `ws://127.0.0.1:${this.env.PORT}/`;
  }
}

export class World {
  /** @type {any} the workload of the director */
  workload = null;
  /** Between what webhooks have said and the truth. @type {string[]} */
  differences = [];
  /** When a fault last brought back former data. */
  broughtBackMs = Number.NEGATIVE_INFINITY;
  faults = FAULTS;

  /**
   * @param {Plan} plan
   * @param {readonly string[]} [trees] of programs: the servers run them in turn. None: this one
   */
  constructor(plan, trees = []) {
    this.plan = plan;
    this.trees = trees;
    this.fleet = new Fleet(plan.seed);
    const { fleet } = this;
    fleet.network.pieces = plan.pieces;
    fleet.network.losses = plan.losses ?? 0;
    fleet.simulator.hiccups = plan.hiccups ?? 0;
    if (plan.windowBytes !== undefined) fleet.network.windowBytes = plan.windowBytes;
    const count = NODES[plan.topology];
    this.nodes = Array.from({ length: count }, (_, i) =>
      fleet.addRedis(count === 1 ? 'redis' : `redis-${i}`),
    );
    for (let i = 0; i < (plan.spares ?? 0); i++) this.nodes.push(fleet.addRedis(`spare-${i}`));
    for (const [name, to] of Object.entries(plan.aliases ?? {}))
      fleet.names.set(name, /** @type {string} */ (fleet.names.get(to)));
    this.oldestSnapshotMs = SNAPSHOTS * SNAPSHOT_MS;
    for (const node of this.nodes) {
      node.keepSnapshots(SNAPSHOT_MS, SNAPSHOTS);
      if (count > 1) node.replication.requireReplicas(plan.leastReplicas, MAX_LAG_MS);
    }
    this.sentinels = plan.topology === 'sentinel' ? new Sentinels(fleet, this.nodes) : null;
    this.cluster = plan.topology === 'cluster' ? new SimulatedCluster(fleet, this.nodes) : null;
    if (plan.topology === 'region') {
      const [primary, replica] = this.nodes;
      this.lead(primary);
      replica.replication.follow(primary);
    }
    /** @type {SimulatedFanfare[]} */
    this.servers = [];
    for (let i = 0; i < plan.servers; i++) this.#addServer(i);
    this.clients = fleet.addMachine('clients', false);
    for (const { machine } of this.servers)
      for (const { host } of this.nodes)
        for (const [from, to] of [
          [machine.host, host],
          [host, machine.host],
        ])
          fleet.network.way(from, to).extraMs = plan.farMs ?? 0;
  }

  /** @param {number} i */
  #addServer(i) {
    const { plan, fleet } = this;
    const machine = fleet.addMachine(`server-${i}`);
    const port = FIRST_PORT + i;
    fleet.network.gateway.set(port, machine.host);
    for (const [path, text] of Object.entries(plan.files))
      machine.disk.put(path, Buffer.from(text), 0);
    const env = {
      ...plan.env,
      PORT: String(port),
      WORKERS: String(plan.workers),
      SERVER_ID: `server-${i}`,
      ...this.#redisEnv,
      // Every other server is in the region of the replica.
      ...(plan.topology === 'region' && i % 2 === 1 && { REDIS_SUBSCRIBE_URL: this.nodes[1].url }),
      ...(plan.env.REDIS_URL && { REDIS_URL: plan.env.REDIS_URL }),
      ...plan.envs?.[i],
    };
    const { trees } = this;
    const tree = trees[i % trees.length];
    const main = tree === undefined ? undefined : join(tree, 'src/main.js');
    const known = tree === undefined ? env : settingsKnownTo(tree, env);
    this.servers.push(new SimulatedFanfare(fleet, machine, known, main));
  }

  /** The address of the primary leads to this server from now on. @param {import('./redis-host.js').RedisHost} node */
  lead({ host }) {
    this.fleet.names.set(PRIMARY, host);
  }

  get nowMs() {
    return this.fleet.simulator.nowMs;
  }

  /** @returns {Record<string, string>} */
  get #redisEnv() {
    if (this.sentinels !== null) return this.sentinels.env;
    if (this.cluster !== null) return this.cluster.env;
    if (this.plan.topology === 'region') return { REDIS_URL: `redis://${PRIMARY}` };
    return this.nodes.length === 0 ? {} : { REDIS_URL: this.nodes[0].url };
  }

  /** Those that should serve clients. @returns {readonly import('./redis-host.js').RedisHost[]} */
  get primaries() {
    if (this.cluster !== null) return this.cluster.primaries;
    if (this.plan.topology === 'region') return this.nodes.slice(0, 1);
    return this.sentinels === null ? this.nodes : [this.sentinels.primary];
  }

  /** Keys of messages that Redis would keep for ever. */
  get kept() {
    const isKept = (/** @type {string} */ name, /** @type {{expiresMs: number}} */ key) =>
      key.expiresMs === 0 && OF_MESSAGES.test(name);
    return this.primaries.flatMap(({ server }) =>
      [...server.keys.keys].flatMap(([name, key]) => (isKept(name, key) ? [name] : [])),
    );
  }

  get hosts() {
    const machines = [this.clients, ...this.servers.map(({ machine }) => machine)];
    return [...machines, ...this.nodes, ...(this.sentinels?.hosts ?? [])].map(({ host }) => host);
  }

  /** Has each server of Redis its role, and its data? */
  async inRole() {
    const { sentinels, cluster, plan } = this;
    if (plan.topology === 'region') return this.until(() => this.nodes.every(inStep), WHOLE_MS);
    if (sentinels === null && cluster === null) return;
    await this.until(
      () => (sentinels ?? cluster)?.isSettled === true && this.nodes.every(inStep),
      WHOLE_MS,
    );
  }

  /** Has it all its workers? @param {SimulatedFanfare} server */
  async whole(server) {
    await this.until(() => server.workers.length === this.plan.workers, WHOLE_MS);
  }

  /** All its processes have ended. @param {SimulatedFanfare} server */
  async gone(server) {
    await this.until(() => server.machine.processes.size === 0, GONE_MS);
    server.machine.stop();
  }

  /** @param {SimulatedFanfare} server */
  async reloaded(server) {
    const old = new Set(server.workers);
    await this.until(() => server.workers.every((one) => !old.has(one)), WHOLE_MS);
  }

  /** Must run in a simulated process. @param {() => boolean} condition @param {number} withinMs */
  async until(condition, withinMs) {
    const end = this.nowMs + withinMs;
    while (!condition() && this.nowMs < end)
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** @param {import('./redis-host.js').RedisHost} node */
function inStep({ isRunning, replication }) {
  return isRunning && replication.isInStep;
}
