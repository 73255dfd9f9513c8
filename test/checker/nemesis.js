// nemesis.js: the table of faults for servers, Redis and clients. `inflict` causes the fault and
// returns the function that heals it.
//
// Healing ends when the processes are back; the record shows whether service is back.
//
// A fault without effect would be a test that can't fail. So faults that could miss check their
// effect, and throw if there is none. All effects are confined to processes and networks that the
// run has started, which end with it.

import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { startRedis } from '../harness/redis.js';
import { pause } from '../harness/run.js';
import { until } from '../harness/server.js';
import { Firewall, isPrivate } from '../helpers/private-network.js';
import { NEMESES_OF_REGIONS } from './nemesis-regions.js';
import { NEMESES_OF_TOPOLOGIES } from './nemesis-topologies.js';
import { Fanfare, PASSWORD, USER, USER_ARGS } from './trial.js';

/**
 * The faults kill fewer than five workers of a server within a minute, because five are a crash
 * loop.
 */
const MAX_KILLS = 3;
const KILL_WINDOW_MS = 65_000;
const SLOW_SHARE = 0.05;
/** Users that leave unnoticed. */
const STIRRED = 3;
/**
 * Of a flood that fills the kernel's buffers between Redis and a worker that does not read: some 10
 * MB.
 */
const FLOOD_MESSAGES = 400;
const FLOOD_BYTES = 60_000;
/** At 1 ms each. */
const LOADED_KEYS = 2000;
/** A key or channel that the servers do not use, to test the answers of Redis. */
const CANARY = 'canary';
/** Longer than any fault lasts: the end of the fault ends the pause. */
const PAUSE_MS = 120_000;
/** A command that Redis answers at once, unless it is held. */
const ANSWER_MS = 200;
const LINK_MS = 10_000;
const NOTICE_MS = 15_000;

/** @typedef {import('./trial.js').Trial} Trial */
/** @typedef {() => unknown} Heal may be a promise */

/**
 * @typedef {object} Nemesis
 * @property {string} name
 * @property {readonly [number, number]} holdMs for how long, in a random run: from, to
 * @property {'redis'|'sentinel'|'cluster'|'region'} [on] it is Redis that suffers, or the way to it, if the
 *   servers have it in this form
 * @property {boolean} [needsProxy]
 * @property {boolean} [needsWires]
 * @property {boolean} [needsFirewall]
 * @property {boolean} [needsWebhooks]
 * @property {boolean} [kills] a worker may die of it
 * @property {(trial: Trial) => Promise<Heal>} inflict
 */

/** @type {Readonly<Record<string, Nemesis>>} */
export const NEMESES = Object.freeze({
  workerKilled: {
    name: 'a worker killed',
    holdMs: [0, 0],
    kills: true,
    async inflict(trial) {
      const server = vulnerable(trial);
      const pid = await workerOf(trial, server);
      process.kill(pid, 'SIGKILL');
      return async () => {
        await Fanfare.gone([pid]);
        await server.whole();
      };
    },
  },
  workerFrozen: {
    name: 'a worker frozen',
    holdMs: [1000, 6000],
    kills: true,
    async inflict(trial) {
      const server = vulnerable(trial);
      const pid = await workerOf(trial, server);
      process.kill(pid, 'SIGSTOP');
      return () => {
        // Too long, and its primary has killed it.
        if (server.process.workerPids().includes(pid)) process.kill(pid, 'SIGCONT');
        return server.whole();
      };
    },
  },
  primaryKilled: {
    name: 'a primary killed',
    holdMs: [500, 2000],
    async inflict(trial) {
      const server = trial.random.pick(trial.servers);
      const workers = server.process.workerPids();
      server.process.kill('SIGKILL');
      return async () => {
        await Fanfare.gone(workers);
        await server.start();
      };
    },
  },
  serverTerminated: {
    name: 'a server terminated',
    holdMs: [0, 0],
    async inflict(trial) {
      const server = trial.random.pick(trial.servers);
      server.process.kill('SIGTERM');
      return async () => {
        await server.process.exited;
        await server.start();
      };
    },
  },
  serverReloaded: {
    name: 'a server reloaded',
    holdMs: [0, 0],
    async inflict(trial) {
      const server = trial.random.pick(trial.servers);
      const { lines } = server.process;
      // An aborted one is an error of its log, which the run reports at the end.
      const done = () => lines.filter(({ msg }) => /^reload (complete|aborted)/.test(msg)).length;
      const before = done();
      server.process.kill('SIGHUP');
      return async () => {
        await until(() => done() > before, 60_000, 'the end of the reload');
        await server.whole();
      };
    },
  },
  courierKilled: {
    name: 'a courier killed',
    holdMs: [0, 0],
    needsWebhooks: true,
    async inflict(trial) {
      const server = trial.random.pick(trial.servers);
      const pid = await courierOf(server);
      process.kill(pid, 'SIGKILL');
      return () => Fanfare.gone([pid]);
    },
  },
  courierFrozen: {
    name: 'a courier frozen',
    // The lease of its lanes ends after 10 s. Its primary kills it after 30 s.
    holdMs: [1000, 20_000],
    needsWebhooks: true,
    async inflict(trial) {
      const pid = await courierOf(trial.random.pick(trial.servers));
      process.kill(pid, 'SIGSTOP');
      return () => process.kill(pid, 'SIGCONT');
    },
  },
  redisEmptied: {
    name: 'Redis killed, back without its data',
    holdMs: [500, 4000],
    on: 'redis',
    async inflict({ redis }) {
      await redis.kill();
      rmSync(join(redis.folder, 'dump.rdb'), { force: true });
      return () => redis.restart();
    },
  },
  redisFromSnapshot: {
    name: 'Redis killed, back from an older snapshot',
    holdMs: [1000, 4000],
    on: 'redis',
    async inflict({ redis }) {
      await tell(redis, 'SAVE');
      return async () => {
        await redis.kill();
        await pause(500);
        await redis.restart();
        rmSync(join(redis.folder, 'dump.rdb'), { force: true });
      };
    },
  },
  redisFrozen: {
    name: 'Redis frozen',
    holdMs: [1000, 6000],
    on: 'redis',
    async inflict({ redis }) {
      redis.freeze();
      return () => redis.thaw();
    },
  },
  redisPaused: {
    name: 'CLIENT PAUSE 2000 ALL',
    holdMs: [2000, 2000],
    on: 'redis',
    async inflict({ redis }) {
      await tell(redis, 'CLIENT', 'PAUSE', '2000', 'ALL');
      return () => {};
    },
  },
  subscribersKilled: {
    name: 'CLIENT KILL TYPE pubsub',
    holdMs: [0, 0],
    on: 'redis',
    async inflict({ redis }) {
      await tell(redis, 'CLIENT', 'KILL', 'TYPE', 'pubsub');
      return () => {};
    },
  },
  subscriptionCut: {
    name: 'one worker’s subscription cut',
    holdMs: [0, 0],
    on: 'redis',
    async inflict({ redis, random }) {
      const list = await tell(redis, 'CLIENT', 'LIST', 'TYPE', 'pubsub');
      const ids = [...list.matchAll(/^id=(\d+) /gm)].map(([, id]) => id);
      if (ids.length > 0) await tell(redis, 'CLIENT', 'KILL', 'ID', random.pick(ids));
      return () => {};
    },
  },
  subscribersKeptOut: {
    name: 'all subscriptions lost, and users leave meanwhile',
    // Less than the time after which clients are notified of an outage.
    holdMs: [300, 800],
    on: 'redis',
    needsProxy: true,
    async inflict({ redis, proxy, workload }) {
      proxy?.change({ isSilent: true });
      await tell(redis, 'CLIENT', 'KILL', 'TYPE', 'pubsub');
      for (let n = 0; n < STIRRED; n++) workload.population?.stir();
      return () => proxy?.change({});
    },
  },
  subscriberOverflows: {
    name: 'a subscriber beyond its output buffer',
    holdMs: [1500, 2000],
    on: 'redis',
    kills: true,
    async inflict(trial) {
      const { redis, workload } = trial;
      const server = vulnerable(trial);
      const pid = await workerOf(trial, server);
      await tell(redis, 'CONFIG', 'SET', 'client-output-buffer-limit', 'pubsub 256kb 64kb 1');
      process.kill(pid, 'SIGSTOP');
      // If a room has history, the first one has.
      await workload.flood(workload.rooms[0], FLOOD_MESSAGES, FLOOD_BYTES);
      return async () => {
        if (server.process.workerPids().includes(pid)) process.kill(pid, 'SIGCONT');
        await server.whole();
        await tell(redis, 'CONFIG', 'SET', 'client-output-buffer-limit', 'pubsub 32mb 8mb 60');
      };
    },
  },
  slowReaders: {
    name: 'slow readers',
    holdMs: [2000, 12_000],
    async inflict({ workload, random }) {
      const { readers } = workload;
      const slow = random.shuffled(readers).slice(0, Math.ceil(SLOW_SHARE * readers.length));
      for (const client of slow) client.pause();
      return () => {
        for (const client of slow) client.resume();
      };
    },
  },
  redisFull: {
    name: 'Redis out of memory',
    holdMs: [1000, 4000],
    on: 'redis',
    async inflict({ redis }) {
      await tell(redis, 'CONFIG', 'SET', 'maxmemory', '1');
      return () => tell(redis, 'CONFIG', 'SET', 'maxmemory', '0');
    },
  },
  redisReadOnly: {
    name: 'Redis read-only',
    holdMs: [1000, 4000],
    on: 'redis',
    async inflict({ redis }) {
      // A replica of a primary that is not there.
      await tell(redis, 'REPLICAOF', '127.0.0.1', '1');
      return () => tell(redis, 'REPLICAOF', 'NO', 'ONE');
    },
  },
  redisWithoutReplicas: {
    name: 'Redis without enough replicas',
    holdMs: [1000, 4000],
    on: 'redis',
    async inflict({ redis }) {
      await tell(redis, 'CONFIG', 'SET', 'min-replicas-to-write', '3');
      return () => tell(redis, 'CONFIG', 'SET', 'min-replicas-to-write', '0');
    },
  },
  redisBusy: {
    name: 'Redis busy with a script',
    holdMs: [1000, 4000],
    on: 'redis',
    async inflict({ redis }) {
      await tell(redis, 'CONFIG', 'SET', 'busy-reply-threshold', '100');
      const script = redis.cli('EVAL', 'while true do end', '0');
      return async () => {
        await redis.cli('SCRIPT', 'KILL');
        await script;
      };
    },
  },
  redisCannotSave: {
    name: 'Redis unable to save',
    holdMs: [1000, 4000],
    on: 'redis',
    async inflict({ redis }) {
      // If snapshots are configured, Redis refuses writes after a failed one. It fails because the
      // target is a folder.
      const obstacle = join(redis.folder, 'dump.rdb', 'x');
      mkdirSync(obstacle, { recursive: true });
      await tell(redis, 'CONFIG', 'SET', 'save', '3600 1000000');
      await tell(redis, 'BGSAVE');
      await saved(redis, 'err');
      return async () => {
        rmSync(join(redis.folder, 'dump.rdb'), { recursive: true });
        await tell(redis, 'BGSAVE');
        await saved(redis, 'ok');
        await tell(redis, 'CONFIG', 'SET', 'save', '');
        rmSync(join(redis.folder, 'dump.rdb'), { force: true });
      };
    },
  },
  redisLoads: {
    name: 'Redis killed, back while it loads its data',
    holdMs: [0, 0],
    on: 'redis',
    async inflict({ redis }) {
      const fill = `for i = 1, ${LOADED_KEYS} do redis.call('SET', 'filler:' .. i, 'x', 'EX', 60) end`;
      await tell(redis, 'EVAL', fill, '0');
      await tell(redis, 'SAVE');
      await redis.kill();
      const { args } = redis;
      // 1 ms a key, and it answers in between.
      redis.args = [
        ...args,
        '--key-load-delay',
        '1000',
        '--loading-process-events-interval-bytes',
        '1024',
      ];
      await redis.restart();
      redis.args = args;
      return async () => {
        await until(async () => (await redis.cli('PING')) === 'PONG', 30_000, 'the end of loading');
        await tell(redis, 'CONFIG', 'SET', 'key-load-delay', '0');
        rmSync(join(redis.folder, 'dump.rdb'), { force: true });
      };
    },
  },
  redisWritesHeld: {
    name: 'CLIENT PAUSE WRITE',
    holdMs: [2000, 15_000],
    on: 'redis',
    async inflict({ redis }) {
      await tell(redis, 'CLIENT', 'PAUSE', `${PAUSE_MS}`, 'WRITE');
      return async () => {
        const publish = tell(redis, 'PUBLISH', CANARY, 'x');
        const isHeld = await Promise.race([
          publish.then(() => false),
          pause(ANSWER_MS).then(() => true),
        ]);
        mustBe(isHeld, 'writes are held');
        await tell(redis, 'CLIENT', 'UNPAUSE');
        await publish;
      };
    },
  },
  redisFlushed: {
    name: 'FLUSHALL',
    holdMs: [0, 0],
    on: 'redis',
    async inflict({ redis }) {
      await tell(redis, 'SET', CANARY, 'x');
      await tell(redis, 'FLUSHALL');
      mustBe(await isGone(redis), 'Redis is empty');
      return () => {};
    },
  },
  redisChannelsDenied: {
    name: 'the right to the channels taken away',
    holdMs: [1000, 6000],
    on: 'redis',
    inflict: withoutRights(
      ['resetchannels', '&other:*'],
      ['resetchannels', '&fanfare:*'],
      ['PUBLISH', 'fanfare:canary', 'x'],
    ),
  },
  redisKeysDenied: {
    name: 'the right to the keys taken away',
    holdMs: [1000, 6000],
    on: 'redis',
    inflict: withoutRights(
      ['resetkeys', '~other:*'],
      ['resetkeys', '~fanfare:*'],
      ['GET', 'fanfare:canary'],
    ),
  },
  redisRolledBack: {
    name: 'REPLICAOF an older copy and back',
    holdMs: [500, 3000],
    on: 'redis',
    inflict: rolledBack({ areWritesHeld: false }),
  },
  redisRolledBackUnseen: {
    name: 'REPLICAOF an older copy and back, while writes are held',
    holdMs: [500, 3000],
    on: 'redis',
    // No client gets READONLY, because the role changes back before the first write.
    inflict: rolledBack({ areWritesHeld: true }),
  },
  redisReplaced: {
    name: 'the address leads to another Redis, and back',
    holdMs: [2000, 14_000],
    on: 'redis',
    needsProxy: true,
    inflict: replaced((proxy) => proxy.cut()),
  },
  redisReplacedForNew: {
    name: 'the address leads new connections to another Redis, and back',
    holdMs: [2000, 14_000],
    on: 'redis',
    needsProxy: true,
    inflict: replaced((_, redis) => tell(redis, 'CLIENT', 'KILL', 'TYPE', 'pubsub')),
  },
  packetsDropped: {
    name: 'packets to and from Redis dropped',
    holdMs: [2000, 12_000],
    on: 'redis',
    needsProxy: true,
    needsFirewall: true,
    inflict: dropped(['to', 'from'], ({ proxy }) => proxy?.hosts ?? []),
  },
  packetsToDropped: {
    name: 'packets from one server to Redis dropped',
    holdMs: [3000, 12_000],
    on: 'redis',
    needsProxy: true,
    needsFirewall: true,
    inflict: dropped(['to'], ({ proxy, random }) => [random.pick(proxy?.hosts ?? [])]),
  },
  packetsFromDropped: {
    name: 'packets from Redis to one server dropped',
    holdMs: [3000, 12_000],
    on: 'redis',
    needsProxy: true,
    needsFirewall: true,
    inflict: dropped(['from'], ({ proxy, random }) => [random.pick(proxy?.hosts ?? [])]),
  },
  redisSlow: {
    name: 'a slow way to Redis',
    holdMs: [2000, 5000],
    on: 'redis',
    needsProxy: true,
    inflict: weather({ latencyMs: 200, jitterMs: 50 }),
  },
  redisNarrow: {
    name: 'a narrow way to Redis, in slices',
    holdMs: [2000, 5000],
    on: 'redis',
    needsProxy: true,
    inflict: weather({ sliceBytes: 100, bytesPerSecond: 400_000 }),
  },
  redisSilent: {
    name: 'a silent way to Redis',
    holdMs: [1000, 8000],
    on: 'redis',
    needsProxy: true,
    inflict: weather({ isSilent: true }),
  },
  ...NEMESES_OF_REGIONS,
  ...NEMESES_OF_TOPOLOGIES,
});

/**
 * @param {import('../harness/redis.js').RedisServer} redis
 * @param {...string} command
 * @returns {Promise<string>} rejects if Redis refuses it
 */
function tell(redis, ...command) {
  return redis.cli('-e', ...command);
}

/**
 * @param {boolean} isSo
 * @param {string} what the effect of a fault
 * @throws if the fault has no effect
 */
function mustBe(isSo, what) {
  if (!isSo) throw new Error(`the fault has no effect: it is not so that ${what}`);
}

/** @param {import('../harness/redis.js').RedisServer} redis @returns {Promise<boolean>} */
async function isGone(redis) {
  return (await redis.cli('EXISTS', CANARY)) === '0';
}

/**
 * @param {readonly string[]} taken arguments of ACL SETUSER that cause the fault
 * @param {readonly string[]} given for its end
 * @param {readonly string[]} command that needs the right
 * @returns {(trial: Trial) => Promise<Heal>}
 */
function withoutRights(taken, given, command) {
  return async ({ redis }) => {
    const isDenied = async () => {
      const said = await redis.cli(
        '--user',
        USER,
        '--pass',
        PASSWORD,
        '--no-auth-warning',
        ...command,
      );
      return said.includes('NOPERM');
    };
    await tell(redis, 'ACL', 'SETUSER', USER, ...taken);
    mustBe(await isDenied(), 'the right is gone');
    return async () => {
      await tell(redis, 'ACL', 'SETUSER', USER, ...given);
      mustBe(!(await isDenied()), 'the right is back');
    };
  };
}

/**
 * A copy is made of Redis, Redis goes on, then it takes over the copy's data as its replica and is
 * promoted again. The servers' connections last through all of it.
 * @param {{areWritesHeld: boolean}} how @returns {(trial: Trial) => Promise<Heal>}
 */
function rolledBack({ areWritesHeld }) {
  return async ({ redis, lifetime }) => {
    const copy = await startRedis(lifetime, {
      args: [...USER_ARGS, '--repl-diskless-sync-delay', '0'],
    });
    await copy.kill();
    // Not by REPLICAOF: with its first replica a Redis takes another replication id, which would be
    // noticed.
    await tell(redis, 'SAVE');
    copyFileSync(join(redis.folder, 'dump.rdb'), join(copy.folder, 'dump.rdb'));
    await copy.restart();
    return async () => {
      await tell(redis, 'SET', CANARY, 'x');
      if (areWritesHeld) await tell(redis, 'CLIENT', 'PAUSE', `${PAUSE_MS}`, 'WRITE');
      await tell(redis, 'REPLICAOF', '127.0.0.1', `${copy.port}`);
      const isLinked = async () =>
        (await redis.cli('INFO', 'replication')).includes('master_link_status:up');
      await until(isLinked, LINK_MS, 'the copy’s data');
      await tell(redis, 'REPLICAOF', 'NO', 'ONE');
      if (areWritesHeld) await tell(redis, 'CLIENT', 'UNPAUSE');
      mustBe(await isGone(redis), 'Redis has the data of the copy');
      await copy.end();
      rmSync(join(redis.folder, 'dump.rdb'), { force: true });
    };
  };
}

/**
 * The servers' address of Redis leads to another one, which is empty, and then back to the first,
 * which has stayed as it was.
 * @param
 *   {(proxy: import('../helpers/tcp-proxy.js').TcpProxy, redis: import('../harness/redis.js').RedisServer) => unknown}
 *   disconnect
 * @returns {(trial: Trial) => Promise<Heal>}
 */
function replaced(disconnect) {
  return async ({ redis, proxy, lifetime }) => {
    if (proxy === null) throw new Error('needs a proxy');
    const other = await startRedis(lifetime, { args: [...USER_ARGS] });
    proxy.target = other.port;
    await disconnect(proxy, redis);
    const isUsed = async () =>
      (await other.cli('CLIENT', 'LIST', 'TYPE', 'pubsub')).includes('id=');
    await until(isUsed, NOTICE_MS, 'a server at the other Redis');
    return async () => {
      proxy.target = redis.port;
      proxy.cut();
      await other.end();
    };
  };
}

/**
 * @param {readonly ('to'|'from')[]} ways seen from the servers
 * @param {(trial: Trial) => readonly string[]} hosts
 * @returns {(trial: Trial) => Promise<Heal>}
 */
function dropped(ways, hosts) {
  return async (trial) => {
    const { proxy } = trial;
    const firewall = new Firewall(
      hosts(trial).flatMap((host) =>
        ways.map((way) =>
          way === 'to'
            ? ['-p', 'tcp', '-d', host, '--dport', `${proxy?.port}`]
            : ['-p', 'tcp', '-s', host, '--sport', `${proxy?.port}`],
        ),
      ),
    );
    await firewall.add();
    return async () => mustBe((await firewall.remove()) > 0, 'packets are dropped');
  };
}

/**
 * Waits for the end of a snapshot.
 * @param {import('../harness/redis.js').RedisServer} redis @param {'ok'|'err'} status
 */
function saved(redis, status) {
  return until(
    async () => {
      const info = await redis.cli('INFO', 'persistence');
      return (
        info.includes('rdb_bgsave_in_progress:0') &&
        info.includes(`rdb_last_bgsave_status:${status}`)
      );
    },
    10_000,
    `a snapshot with status ${status}`,
  );
}

/**
 * @param {import('../helpers/tcp-proxy.js').Weather} bad @returns {(trial: Trial) => Promise<Heal>}
 */
function weather(bad) {
  return async ({ proxy }) => {
    proxy?.change(bad);
    return () => proxy?.change({});
  };
}

/**
 * Any server whose workers have not died too often of late; it is noted that one may die now.
 * @param {Trial} trial @returns {Fanfare}
 */
function vulnerable({ servers, random }) {
  const [server] = random.shuffled(servers.filter(isVulnerable));
  if (server === undefined) throw new Error('every server has lost as many workers as it may');
  server.kills.push(performance.now());
  return server;
}

/**
 * On a busy machine all of them may have been killed a moment ago.
 * @param {Trial} trial @param {Fanfare} server @returns {Promise<number>}
 */
async function workerOf({ random }, { process: { workerPids } }) {
  await until(() => workerPids().length > 0, NOTICE_MS, 'a worker');
  return random.pick(workerPids());
}

/** It may have been killed a moment ago. @param {Fanfare} server @returns {Promise<number>} */
function courierOf({ process: { courierPid } }) {
  return until(() => courierPid(), NOTICE_MS, 'a courier');
}

/** @param {Fanfare} server */
function isVulnerable({ kills }) {
  return kills.filter((at) => performance.now() - at < KILL_WINDOW_MS).length < MAX_KILLS;
}

/** Those that can be had in a trial now. @param {Trial} trial @returns {Nemesis[]} */
export function possibleNemeses({ proxy, wires, servers, setting, topology, webhooks }) {
  const canKill = servers.some(isVulnerable);
  return Object.values(NEMESES).filter(
    ({ on, needsProxy, needsWires, needsFirewall, needsWebhooks, kills }) =>
      (on === undefined || (!setting.embedded && on === topology)) &&
      (proxy !== null || !needsProxy) &&
      (wires.length > 0 || !needsWires) &&
      (isPrivate || !needsFirewall) &&
      (webhooks !== null || !needsWebhooks) &&
      (canKill || !kills),
  );
}
