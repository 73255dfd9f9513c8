// nemesis.js: what is done to servers, to Redis and to clients, one table. `inflict` does it and returns what heals it.
//
// Healing ends when the processes are back; whether service is back is what the record shows.

import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pause } from '../../loadtest/lib/run.js';
import { until } from '../helpers/server.js';
import { Fanfare } from './trial.js';

/** A server gives up after five deaths of workers within a minute; what is done to it stays below that. */
const MAX_KILLS = 3;
const KILL_WINDOW_MS = 65_000;
const SLOW_SHARE = 0.05;
/** Of a flood that fills the kernel's buffers between Redis and a worker that does not read: some 10 MB. */
const FLOOD_MESSAGES = 400;
const FLOOD_BYTES = 60_000;
/** At 1 ms each. */
const LOADED_KEYS = 2000;

/** @typedef {import('./trial.js').Trial} Trial */
/** @typedef {() => unknown} Heal may be a promise */

/**
 * @typedef {object} Nemesis
 * @property {string} name
 * @property {readonly [number, number]} holdMs for how long, in a random run: from, to
 * @property {boolean} [ofRedis] it is Redis that suffers, or the way to it
 * @property {boolean} [needsProxy]
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
      const pid = trial.random.pick(server.process.workerPids());
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
      const pid = trial.random.pick(server.process.workerPids());
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
      const done = () => server.process.lines.filter(({ msg }) => msg === 'reload done').length;
      const before = done();
      server.process.kill('SIGHUP');
      return async () => {
        await until(() => done() > before, 60_000, 'the end of the reload');
        await server.whole();
      };
    },
  },
  redisEmptied: {
    name: 'Redis killed, back without its data',
    holdMs: [500, 4000],
    ofRedis: true,
    async inflict({ redis }) {
      await redis.kill();
      rmSync(join(redis.folder, 'dump.rdb'), { force: true });
      return () => redis.restart();
    },
  },
  redisFromSnapshot: {
    name: 'Redis killed, back from an older snapshot',
    holdMs: [1000, 4000],
    ofRedis: true,
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
    ofRedis: true,
    async inflict({ redis }) {
      redis.freeze();
      return () => redis.thaw();
    },
  },
  redisPaused: {
    name: 'CLIENT PAUSE 2000 ALL',
    holdMs: [2000, 2000],
    ofRedis: true,
    async inflict({ redis }) {
      await tell(redis, 'CLIENT', 'PAUSE', '2000', 'ALL');
      return () => {};
    },
  },
  subscribersKilled: {
    name: 'CLIENT KILL TYPE pubsub',
    holdMs: [0, 0],
    ofRedis: true,
    async inflict({ redis }) {
      await tell(redis, 'CLIENT', 'KILL', 'TYPE', 'pubsub');
      return () => {};
    },
  },
  subscriptionCut: {
    name: 'one worker’s subscription cut',
    holdMs: [0, 0],
    ofRedis: true,
    async inflict({ redis, random }) {
      const list = await tell(redis, 'CLIENT', 'LIST', 'TYPE', 'pubsub');
      const ids = [...list.matchAll(/^id=(\d+) /gm)].map(([, id]) => id);
      if (ids.length > 0) await tell(redis, 'CLIENT', 'KILL', 'ID', random.pick(ids));
      return () => {};
    },
  },
  subscriberOverflows: {
    name: 'a subscriber beyond its output buffer',
    holdMs: [1500, 2000],
    ofRedis: true,
    kills: true,
    async inflict(trial) {
      const { redis, workload } = trial;
      const server = vulnerable(trial);
      const pid = trial.random.pick(server.process.workerPids());
      await tell(redis, 'CONFIG', 'SET', 'client-output-buffer-limit', 'pubsub 256kb 64kb 1');
      process.kill(pid, 'SIGSTOP');
      // A room with history, where there is one: the first has it.
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
      const slow = random.shuffled(workload.clients).slice(0, Math.ceil(SLOW_SHARE * workload.clients.length));
      for (const client of slow) client.pause();
      return () => {
        for (const client of slow) client.resume();
      };
    },
  },
  redisFull: {
    name: 'Redis out of memory',
    holdMs: [1000, 4000],
    ofRedis: true,
    async inflict({ redis }) {
      await tell(redis, 'CONFIG', 'SET', 'maxmemory', '1');
      return () => tell(redis, 'CONFIG', 'SET', 'maxmemory', '0');
    },
  },
  redisReadOnly: {
    name: 'Redis read-only',
    holdMs: [1000, 4000],
    ofRedis: true,
    async inflict({ redis }) {
      // A replica of a primary that is not there.
      await tell(redis, 'REPLICAOF', '127.0.0.1', '1');
      return () => tell(redis, 'REPLICAOF', 'NO', 'ONE');
    },
  },
  redisWithoutReplicas: {
    name: 'Redis without enough replicas',
    holdMs: [1000, 4000],
    ofRedis: true,
    async inflict({ redis }) {
      await tell(redis, 'CONFIG', 'SET', 'min-replicas-to-write', '3');
      return () => tell(redis, 'CONFIG', 'SET', 'min-replicas-to-write', '0');
    },
  },
  redisBusy: {
    name: 'Redis busy with a script',
    holdMs: [1000, 4000],
    ofRedis: true,
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
    ofRedis: true,
    async inflict({ redis }) {
      // It refuses writes after a snapshot that failed, where it is to make some: nothing can be renamed to a folder.
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
    ofRedis: true,
    async inflict({ redis }) {
      const fill = `for i = 1, ${LOADED_KEYS} do redis.call('SET', 'filler:' .. i, 'x', 'EX', 60) end`;
      await tell(redis, 'EVAL', fill, '0');
      await tell(redis, 'SAVE');
      await redis.kill();
      const { args } = redis;
      // 1 ms a key, and it answers in between.
      redis.args = [...args, '--key-load-delay', '1000', '--loading-process-events-interval-bytes', '1024'];
      await redis.restart();
      redis.args = args;
      return async () => {
        await until(async () => (await redis.cli('PING')) === 'PONG', 30_000, 'the end of loading');
        await tell(redis, 'CONFIG', 'SET', 'key-load-delay', '0');
        rmSync(join(redis.folder, 'dump.rdb'), { force: true });
      };
    },
  },
  redisSlow: {
    name: 'a slow way to Redis',
    holdMs: [2000, 5000],
    ofRedis: true,
    needsProxy: true,
    inflict: weather({ latencyMs: 200, jitterMs: 50 }),
  },
  redisNarrow: {
    name: 'a narrow way to Redis, in slices',
    holdMs: [2000, 5000],
    ofRedis: true,
    needsProxy: true,
    inflict: weather({ sliceBytes: 100, bytesPerSecond: 400_000 }),
  },
  redisSilent: {
    name: 'a silent way to Redis',
    holdMs: [1000, 8000],
    ofRedis: true,
    needsProxy: true,
    inflict: weather({ isSilent: true }),
  },
});

/** @param {import('../helpers/redis.js').RedisServer} redis @param {...string} command @returns {Promise<string>} rejects where Redis refuses it */
function tell(redis, ...command) {
  return redis.cli('-e', ...command);
}

/** Waits for the end of a snapshot. @param {import('../helpers/redis.js').RedisServer} redis @param {'ok'|'err'} status */
function saved(redis, status) {
  return until(
    async () => {
      const info = await redis.cli('INFO', 'persistence');
      return info.includes('rdb_bgsave_in_progress:0') && info.includes(`rdb_last_bgsave_status:${status}`);
    },
    10_000,
    `a snapshot with status ${status}`,
  );
}

/** @param {import('../helpers/tcp-proxy.js').Weather} bad @returns {(trial: Trial) => Promise<Heal>} */
function weather(bad) {
  return async ({ proxy }) => {
    proxy?.change(bad);
    return () => proxy?.change({});
  };
}

/** Any server whose workers have not died too often of late; it is noted that one may die now. @param {Trial} trial @returns {Fanfare} */
function vulnerable({ servers, random }) {
  const [server] = random.shuffled(servers.filter(isVulnerable));
  if (server === undefined) throw new Error('every server has lost as many workers as it may');
  server.kills.push(performance.now());
  return server;
}

/** @param {Fanfare} server */
function isVulnerable({ kills }) {
  return kills.filter((at) => performance.now() - at < KILL_WINDOW_MS).length < MAX_KILLS;
}

/** Those that can be had in a trial now. @param {Trial} trial @returns {Nemesis[]} */
export function possibleNemeses({ proxy, servers, setting }) {
  const canKill = servers.some(isVulnerable);
  return Object.values(NEMESES).filter(
    ({ ofRedis, needsProxy, kills }) =>
      (!setting.embedded || !ofRedis) && (proxy !== null || !needsProxy) && (canKill || !kills),
  );
}
