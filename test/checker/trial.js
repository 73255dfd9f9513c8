// trial.js: the parts of a run with faults: servers, a Redis, a workload and a record.

import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, startRedis } from '../harness/redis.js';
import { pause } from '../harness/run.js';
import { readiness, scrape, startServer, until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { knowLanes } from '../helpers/known-partitions.js';
import { isPrivate } from '../helpers/private-network.js';
import { APP, entryOf, writeApps } from '../helpers/pusher.js';
import { aclRule } from '../helpers/redis-topologies.js';
import { startTcpProxy } from '../helpers/tcp-proxy.js';
import { HISTORY_PREFIX } from './client.js';
import { SETTLE_US } from './indexed-run.js';
import { settingsOf } from './population.js';
import { Random } from './random.js';
import { Recorder } from './record.js';
import { checkRecord } from './report.js';
import { watchWebhooks } from './webhook-watch.js';
import { Workload } from './workload.js';

const OF_FLEET = /:(?:census|limits|workers|servers)$/;
const READY_MS = 30_000;
const GONE_MS = 60_000;
/** Users stay away for up to 40 s. */
const BACK_MS = 90_000;
/**
 * How long gauges may take to fall to their values of before. An emptied room stays subscribed for
 * 2 s. Redis keeps a dead connection whose reset a firewall has dropped until its kernel
 * retransmits: after 8 s without packets that is up to 13 s later.
 */
const GAUGES_BACK_MS = 30_000;
const READING_MS = 300;
/** A replica that was left often is heard again after 48 probes of 1.5 s. */
const REGION_MS = 120_000;
/** Gauges that must return to their earlier values when all clients have left. */
const GAUGES = Object.freeze([
  'websocket_connections_total',
  'fanfare_rooms',
  'message_queue_depth',
]);

/** @typedef {{after: (fn: () => unknown) => void}} Lifetime */
/** @typedef {import('../harness/redis.js').RedisServer} RedisServer */
/**
 * Redis servers, and the settings with which a Fanfare server finds them.
 * @typedef {object} Store
 * @property {RedisServer[]} nodes
 * @property {Record<string, string>} env
 * @property {RedisServer[]} [sentinels]
 * @property {import('../harness/redis-cluster.js').Cluster} [cluster]
 * @property {Region} [region]
 */
/**
 * Another region, with every other server.
 * @typedef {object} Region
 * @property {RedisServer} replica through which they hear
 * @property {TcpProxy} wire from the replica to its primary
 * @property {TcpProxy} line from these servers to the primary
 * @property {Record<string, string>} env settings of these servers
 */
/** @typedef {import('../helpers/tcp-proxy.js').TcpProxy} TcpProxy */

/**
 * @typedef {object} Setting
 * @property {number} servers
 * @property {number} workers of each
 * @property {import('./workload.js').Load} load
 * @property {number} [seed]
 * @property {number} [historySize] publications kept of a room
 * @property {boolean} [embedded] one server with the embedded broker; a Redis runs unused
 * @property {boolean} [viaProxy] between servers and Redis stands a TcpProxy
 * @property {string[]} [redisArgs]
 * @property {(t: Lifetime) => Promise<Store>} [store] instead of one Redis
 * @property {Record<string, string>} [env] of the servers
 * @property {boolean} [hasWebhooks] with a receiver and commuters; needs `load.isMixed`
 * @property {string} [path] of the record; without one it is made and removed
 * @property {string} [main] entry point of another version, with which all servers start
 */

/**
 * The servers' user of Redis, with the rights that docs/deployment.md names. Some faults take
 * rights away.
 */
export const USER = 'fanfare';
export const PASSWORD = 's3cret';
/** Of a redis-server that has this user, also after a restart. */
export const USER_ARGS = Object.freeze([
  '--user',
  USER,
  'on',
  `>${PASSWORD}`,
  ...aclRule('fanfare:').split(' '),
]);

/** Settings that shorten delays from minutes to seconds. */
const ENV = Object.freeze({
  FANFARE_LIMITS: 'off',
  FANFARE_WORKER_TIMEOUT_MS: '3000',
  FANFARE_RECONNECT_WINDOW_MS: '2000',
  FANFARE_SHUTDOWN_TIMEOUT_MS: '15000',
  FANFARE_ROOM_LINGER_MS: '500',
});

/** For anonymous clients of Centrifugo's protocol. */
const CENTRIFUGO = Object.freeze({
  FANFARE_CENTRIFUGO: 'on',
  FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*',
});

/** One Fanfare server, on a port that stays the same. */
export class Fanfare {
  /**
   * @param {Lifetime} t
   * @param {Record<string, string>} env
   * @param {string} [main] the entry point of another version
   */
  constructor(t, env, main) {
    this.t = t;
    this.env = env;
    this.main = main;
    /** @type {import('../harness/server.js').Server} */
    // @ts-expect-error: start() makes it
    this.process = undefined;
    /** Logs of the processes there were. @type {import('../harness/server.js').LogLine[][]} */
    this.logs = [];
    /**
     * When workers were killed on purpose: five within a minute make a server give up.
     * @type {number[]}
     */
    this.kills = [];
  }

  async start() {
    this.process = await startServer(
      /** @type {import('node:test').TestContext} */ (this.t),
      this.env,
      { main: this.main },
    );
    this.logs.push(this.process.lines);
    this.kills = [];
  }

  get url() {
    return `ws://127.0.0.1:${this.env.PORT}/`;
  }

  /** @returns {Promise<number>} number of ready workers; 0 if there is no answer */
  async ready() {
    return readiness(this.process.metricsPort).then(
      ({ ready = 0 }) => ready,
      () => 0,
    );
  }

  /** Waits until it has all its workers. @returns {Promise<unknown>} */
  whole() {
    const workers = Number(this.env.WORKERS);
    const isWhole = async () =>
      (await this.ready()) === workers && this.process.workerPids().length === workers;
    return until(isWhole, READY_MS, 'all workers');
  }

  /** Waits until none of these processes is left. @param {readonly number[]} pids */
  static gone(pids) {
    return until(() => pids.every((pid) => !isAlive(pid)), GONE_MS, 'the end of all processes');
  }

  /** @returns {Promise<Map<string, number>>} */
  async metrics() {
    const { metricsPort } = this.process;
    // While this process was busy the server may have closed the idle connection that fetch had
    // kept.
    const { values } = await scrape(metricsPort).catch(() => scrape(metricsPort));
    return values;
  }

  /** @returns {import('../harness/server.js').LogLine[]} */
  get lines() {
    return this.logs.flat();
  }
}

export class Trial {
  /**
   * @param {Lifetime} lifetime
   * @param {Setting} setting
   * @param {Store} store
   * @param {import('../helpers/tcp-proxy.js').TcpProxy|null} proxy
   * @param {Fanfare[]} servers
   * @param {import('../helpers/tcp-proxy.js').TcpProxy[]} wires ways of clients to each server
   * @param {string} secret of the HTTP API
   * @param {import('./webhook-watch.js').WebhookWatch|null} webhooks
   */
  constructor(lifetime, setting, store, proxy, servers, wires, secret, webhooks) {
    this.lifetime = lifetime;
    this.setting = setting;
    this.store = store;
    /** Every Redis there is. */
    this.nodes = store.nodes;
    this.proxy = proxy;
    this.servers = servers;
    this.wires = wires;
    this.secret = secret;
    this.webhooks = webhooks;
    /** How the receiver's model differs from the truth at the end. @type {string[]} */
    this.differences = [];
    this.random = new Random(setting.seed ?? Math.floor(Math.random() * 2 ** 32));
    this.path = setting.path ?? join(tmpdir(), `fanfare-record-${process.pid}-${Date.now()}.jsonl`);
    this.recorder = new Recorder(this.path);
    /** @type {Record<string, Record<string, number>>} */
    this.gaugesBefore = {};
    const urls = servers.map(({ url }) => url);
    // Chance of its own: how often the workload asks for some depends on how fast the machine is.
    this.workload = new Workload(
      { ...setting.load, hasCommuters: webhooks !== null },
      urls,
      this.recorder,
      new Random(this.random.seed + 1),
      wires.length === 0 ? urls : wires.map(({ hosts, port }) => `ws://${hosts[0]}:${port}/`),
      secret,
      setting.load.hasPusher ? APP : null,
    );
  }

  get topology() {
    const { sentinels, cluster, region } = this.store;
    if (region) return 'region';
    return sentinels ? 'sentinel' : cluster ? 'cluster' : 'redis';
  }

  /** The first one: most trials have no other. */
  get redis() {
    return this.nodes[0];
  }

  /** The first server: most trials have one. */
  get server() {
    return this.servers[0];
  }

  /** Everybody joins and the publishing begins. */
  async begin() {
    await this.#gauges('before');
    this.webhooks?.begin({
      ports: this.servers.map(({ env }) => Number(env.PORT)),
      secret: this.secret,
      users: this.workload.population?.users ?? [],
      pending: () => this.#pending(),
    });
    await this.workload.start();
    this.workload.publish();
  }

  /**
   * Inflicts a fault, waits, and heals it.
   * @param {import('./nemesis.js').Nemesis} nemesis
   * @param {number} holdMs between the two
   * @param {() => unknown} [meanwhile] right before it is healed
   */
  async suffer({ name, inflict }, holdMs, meanwhile) {
    this.recorder.write({ type: 'start', name });
    const healed = this.webhooks?.fault();
    const heal = await inflict(this);
    await pause(holdMs);
    await meanwhile?.();
    await heal();
    healed?.();
    this.recorder.write({ type: 'stop', name });
  }

  /**
   * The end: all is calm, markers go out, everyone leaves; then the record is checked.
   * @returns {Promise<import('./checker.js').Report>}
   */
  async finish() {
    const { workload, recorder } = this;
    await workload.population?.census();
    workload.population?.silence();
    // The markers show the clients that do not return.
    await workload.joined(SETTLE_US / 1000).catch(() => {});
    if (this.webhooks !== null) this.differences = await this.#calm(this.webhooks);
    workload.silence();
    await workload.mark();
    await workload.stop();
    if (this.store.region !== undefined)
      await until(() => this.#hearReplica(), REGION_MS, 'all workers back at the replica');
    await this.#gauges('after');
    recorder.close();
    const report = checkRecord(this.path);
    if (this.setting.path === undefined) rmSync(this.path);
    return report;
  }

  /** @param {import('./webhook-watch.js').WebhookWatch} webhooks */
  async #calm(webhooks) {
    const { people = [], commuters = [] } = this.workload.population ?? {};
    const areBack = () => [...people, ...commuters].every(({ isJoined }) => isJoined);
    await until(areBack, BACK_MS, 'all people in their rooms');
    return webhooks.settle();
  }

  /** Do all workers of the region hear through its replica? */
  async #hearReplica() {
    for (const server of this.servers)
      if ((await server.metrics()).get('fanfare_hearing_workers{from="primary"}')) return false;
    return true;
  }

  /** Webhooks that wait, over all servers. */
  async #pending() {
    let pending = 0;
    for (const server of this.servers)
      for (const [name, value] of await server.metrics())
        if (name.startsWith('fanfare_webhooks_pending{')) pending += value;
    return pending;
  }

  /** Unexpected messages of clients and log lines of servers. @returns {string[]} */
  oddities() {
    const said = this.workload.everybody.flatMap(({ id, oddities }) =>
      oddities.map((text) => `client ${id}: ${text}`),
    );
    const logged = this.servers.flatMap(({ lines, process: { stderr } }) => [
      ...lines.filter(isOfOurMaking).map((line) => JSON.stringify(line)),
      ...unexpected(stderr(), this.topology),
    ]);
    return [...said, ...logged];
  }

  /** @param {'before'|'after'} when */
  async #gauges(when) {
    const gauges = when === 'before' ? await this.#readGauges() : await this.#gaugesBack();
    if (when === 'before') this.gaugesBefore = gauges;
    for (const [of, values] of Object.entries(gauges))
      this.recorder.write({ type: 'gauges', when, of, values });
  }

  /** Reads the gauges until none is above its value of before, or the time is over. */
  async #gaugesBack() {
    const end = performance.now() + GAUGES_BACK_MS;
    for (;;) {
      await pause(READING_MS);
      const now = await this.#readGauges();
      const isBack = Object.entries(this.gaugesBefore).every(([of, values]) =>
        Object.entries(values).every(
          ([name, value]) => (now[of]?.[name] ?? Number.POSITIVE_INFINITY) <= value,
        ),
      );
      if (isBack || performance.now() > end) return now;
    }
  }

  /** @returns {Promise<Record<string, Record<string, number>>>} by server or `Redis`, by name */
  async #readGauges() {
    /** @type {Record<string, Record<string, number>>} */
    const result = { Redis: { channels: 0 } };
    for (const node of this.nodes)
      if (node.process !== null) result.Redis.channels += await channels(node);
    for (const [i, server] of this.servers.entries()) {
      const metrics = await server.metrics();
      result[`server ${i}`] = Object.fromEntries(
        GAUGES.map((name) => [name, metrics.get(name) ?? Number.NaN]),
      );
    }
    return result;
  }
}

/**
 * @param {Lifetime} t ends it all
 * @param {Setting} setting
 * @returns {Promise<Trial>} servers are up, no client is connected
 */
export async function startTrial(t, setting) {
  const {
    servers: count,
    workers,
    load,
    historySize = 1000,
    embedded = false,
    viaProxy = false,
  } = setting;
  const store = await (setting.store?.(t) ?? oneRedis(t, setting.redisArgs));
  const { nodes, env } = store;
  // An address for each server, so that a firewall can tell them apart.
  const hosts = Array.from({ length: count }, (_, i) =>
    isPrivate ? `127.0.1.${i + 1}` : '127.0.0.1',
  );
  const proxy = viaProxy ? await startTcpProxy(t, nodes[0].port, [...new Set(hosts)]) : null;
  const secret = newSecret();
  const webhooks = setting.hasWebhooks
    ? await watchWebhooks(t, new Random((setting.seed ?? 0) + 3))
    : null;
  // Otherwise a run would begin with a gap, and no transition would cancel another for its first 40 s.
  if (webhooks !== null && !embedded)
    await knowLanes(store.cluster?.primaryOf('lane-0') ?? nodes[0]);
  const servers = [];
  const wires = [];
  for (let i = 0; i < count; i++) {
    const settings = {
      ...ENV,
      ...(load.isMixed && settingsOf(secret)),
      ...(load.hasPusher && { FANFARE_PUSHER_APPS: writeApps(t, [entryOf({ shared: true })]) }),
      ...(load.hasCentrifugo && CENTRIFUGO),
      ...(load.isMixed && embedded && { FANFARE_STATE_DIR: await stateFolder(t) }),
      ...setting.env,
      ...(webhooks !== null && { FANFARE_WEBHOOKS: webhooks.file }),
      ...(load.hasHistory && { FANFARE_HISTORY: `${HISTORY_PREFIX}*=${historySize}/300s` }),
      WORKERS: `${workers}`,
      PORT: `${await freePort()}`,
      SERVER_ID: `server-${i}`,
      ...(!embedded && env),
      ...(!embedded && proxy && { REDIS_URL: `redis://${hosts[i]}:${proxy.port}` }),
      ...(i % 2 === 1 && store.region?.env),
    };
    const server = new Fanfare(t, settings, setting.main);
    await server.start();
    servers.push(server);
    if (load.isMixed) wires.push(await startTcpProxy(t, Number(settings.PORT)));
  }
  const trial = new Trial(t, setting, store, proxy, servers, wires, secret, webhooks);
  t.after(async () => {
    await trial.workload.stop();
    trial.recorder.close();
    if (setting.path === undefined) rmSync(trial.path, { force: true });
  });
  return trial;
}

/** @param {Lifetime} t @param {string[]|undefined} args @returns {Promise<Store>} */
async function oneRedis(t, args) {
  const redis = await startRedis(t, { args: [...USER_ARGS, ...(args ?? [])] });
  return {
    nodes: [redis],
    env: { REDIS_URL: redis.url, REDIS_USERNAME: USER, REDIS_PASSWORD: PASSWORD },
  };
}

/** For revocations without a Redis. @param {Lifetime} t */
async function stateFolder(t) {
  const folder = await mkdtemp(join(tmpdir(), 'fanfare-state-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/**
 * Channels that somebody is subscribed to. Those for answers to surveys are left out, because a worker
 * keeps one from the first request of the HTTP API on, and those of the fleet, which differ between
 * versions.
 * @param {RedisServer} redis
 */
async function channels(redis) {
  const lists = [await redis.cli('PUBSUB', 'CHANNELS'), await redis.cli('PUBSUB', 'SHARDCHANNELS')];
  return lists
    .flatMap((list) => list.split('\n'))
    .filter((name) => name !== '' && !/\{\*[^}]+\}/.test(name) && !OF_FLEET.test(name)).length;
}

/**
 * Is a log line about a fault of the server itself? Workers die and hang here because they are made
 * to.
 * @param {import('../harness/server.js').LogLine} line
 */
function isOfOurMaking({ level, msg, err }) {
  // A worker that was starting when its primary was killed.
  if (err?.message === 'the relay link is closed') return false;
  return level >= 60 || (level >= 50 && !OF_NEMESES.test(msg));
}

/**
 * What a server wrote beside its log. ioredis gives the connections with which it watches Sentinels
 * no listener for errors, and writes a line and its stack each time it does not reach one.
 * @param {string} stderr @param {string} topology
 */
function unexpected(stderr, topology) {
  const isOfSentinels = topology === 'sentinel';
  const rest = !isOfSentinels
    ? stderr
    : stderr.replace(/^\[ioredis\] Unhandled error event:.*\n(?: +at .*\n)*/gm, '');
  return rest === '' ? [] : [rest];
}

/**
 * Lines at level `error` that servers log when their processes are killed or frozen, and when the
 * receiver of webhooks fails on purpose.
 */
const OF_NEMESES =
  /^(worker died|worker hung: killed|worker did not exit in time|lost the relay: draining|the courier|webhooks: 20 failures)/;

/** @param {number} pid */
function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
