// faults.js: the faults of a simulated fleet. Each function causes one, and returns what heals it.
//
// They are those of test/checker/nemesis.js, as far as virtual processes and networks have them, and
// some that real ones do not: half-open links, clocks that jump, writes that are lost to the last
// millisecond.

import { FAULTS_OF_REGIONS } from './faults-of-regions.js';
import { cut, FAULTS_OF_REPLICAS, pause } from './faults-of-replicas.js';

/** @import { Random } from '../checker/random.js' */
/** @import { World } from './world.js' */
/** @typedef {() => unknown} Heal may be a promise */

/**
 * @typedef {object} Fault
 * @property {readonly [number, number]} holdMs for how long: from, to
 * @property {'redis'|'replicas'|'sentinel'|'cluster'|'region'|'webhooks'|'patience'} [needs]
 *   `redis`: in any topology; `replicas`: Sentinels or a cluster; `patience`: it must be asked for
 * @property {(world: World, random: Random) => Heal|Promise<Heal>} inflict
 */

/** A server with more unexpected deaths in a minute gives up. */
const MAX_KILLS = 3;
const KILL_WINDOW_MS = 65_000;
const OVERLOAD_STEP_MS = 50;
/** What a Redis that evicts keys takes in `redisEvicts`. */
const EVICTED = /\bstate:\{/;

/** @type {Readonly<Record<string, Fault>>} */
export const FAULTS = Object.freeze({
  workerKilled: {
    holdMs: [0, 500],
    inflict(world, random) {
      const server = random.pick(world.servers);
      if (mayKill(world, server)) random.pick(server.workers)?.signal('SIGKILL');
      return () => world.whole(server);
    },
  },
  workerFrozen: {
    holdMs: [200, 8000],
    inflict(world, random) {
      const server = random.pick(world.servers);
      const worker = mayKill(world, server) ? random.pick(server.workers) : undefined;
      worker?.signal('SIGSTOP');
      return () => {
        worker?.signal('SIGCONT');
        return world.whole(server);
      };
    },
  },
  primaryKilled: {
    holdMs: [500, 3000],
    inflict(world, random) {
      const server = random.pick(world.servers);
      server.primary?.signal('SIGKILL');
      return async () => {
        await world.gone(server);
        server.start();
        await world.whole(server);
      };
    },
  },
  primaryFrozen: {
    // The longest outlast the time limit of a request to the relay.
    holdMs: [200, 10_000],
    inflict(world, random) {
      const { primary } = random.pick(world.servers);
      primary?.signal('SIGSTOP');
      return () => primary?.signal('SIGCONT');
    },
  },
  machineLost: {
    holdMs: [500, 8000],
    inflict(world, random) {
      const server = random.pick(world.servers);
      server.machine.stop();
      return async () => {
        server.start();
        await world.whole(server);
      };
    },
  },
  /** A machine with a server and Redis loses power: the last second of Redis is not on its disk. */
  powerLost: {
    holdMs: [500, 4000],
    needs: 'redis',
    inflict(world, random) {
      const server = random.pick(world.servers);
      const redis = anyOf(world.nodes, random);
      server.machine.stop();
      redis.stop();
      return async () => {
        redis.start('last-second');
        server.start();
        await world.whole(server);
      };
    },
  },
  /** All its processes stand still, as in a suspended virtual machine. */
  machineSuspended: {
    // In longer ones the connections that clients give up reach the limit of their users.
    holdMs: [1000, 8000],
    inflict: suspended,
  },
  /** For so long that others declare its sessions dead. */
  machineAsleep: {
    holdMs: [32_000, 45_000],
    needs: 'patience',
    inflict: suspended,
  },
  serverTerminated: {
    holdMs: [0, 2000],
    inflict(world, random) {
      const server = random.pick(world.servers);
      server.primary?.signal('SIGTERM');
      return async () => {
        await world.gone(server);
        server.start();
        await world.whole(server);
      };
    },
  },
  serverReloaded: {
    holdMs: [0, 4000],
    inflict(world, random) {
      const server = random.pick(world.servers);
      server.primary?.signal('SIGHUP');
      return async () => {
        await world.reloaded(server);
        await world.whole(server);
      };
    },
  },
  courierKilled: {
    holdMs: [0, 2000],
    needs: 'webhooks',
    inflict(world, random) {
      random.pick(world.servers).courier?.signal('SIGKILL');
      return () => {};
    },
  },
  courierFrozen: {
    holdMs: [500, 20_000],
    needs: 'webhooks',
    inflict(world, random) {
      const { courier } = random.pick(world.servers);
      courier?.signal('SIGSTOP');
      return () => courier?.signal('SIGCONT');
    },
  },
  clientsCut: {
    holdMs: [500, 12_000],
    inflict(world, random) {
      const { host } = random.pick(world.servers).machine;
      return cut(world, world.clients.host, host, random.below(3));
    },
  },
  clientsReset: {
    holdMs: [0, 0],
    inflict(world, random) {
      const { network } = world.fleet;
      const { host } = random.pick(world.servers).machine;
      const share = random.next();
      network.breakConnections(world.clients.host, host, () => random.next() < share);
      return () => {};
    },
  },
  slowReaders: {
    holdMs: [2000, 15_000],
    inflict(world, random) {
      const { readers } = world.workload;
      const count = Math.ceil(readers.length * random.between(0.02, 0.15));
      const some = random.shuffled(readers).slice(0, count);
      for (const reader of some) reader.pause();
      return () => {
        for (const reader of some) reader.resume();
      };
    },
  },
  clockJumped: {
    holdMs: [1000, 10_000],
    inflict(world, random) {
      const { machine } = random.pick(world.servers);
      machine.skewMs = random.between(-4000, 4000);
      return () => {
        machine.skewMs = 0;
      };
    },
  },
  linksSlow: {
    holdMs: [1000, 10_000],
    inflict(world, random) {
      const one = random.pick(world.hosts);
      const other = random.pick(world.hosts.filter((host) => host !== one));
      const extraMs = random.between(20, 600);
      for (const way of ways(world, one, other)) way.extraMs = extraMs;
      return () => {
        for (const way of ways(world, one, other)) way.extraMs = 0;
      };
    },
  },
  /** Packets of some connections are lost again and again: those of others overtake them. */
  connectionsStalled: {
    holdMs: [0, 500],
    inflict(world, random) {
      const { network } = world.fleet;
      const share = random.next();
      const ms = random.between(50, 3000);
      for (const from of world.hosts)
        for (const to of world.hosts)
          if (from !== to) network.stall(from, to, ms, () => random.next() < share);
      return () => {};
    },
  },
  redisCut: {
    holdMs: [300, 12_000],
    needs: 'redis',
    inflict(world, random) {
      const { host } = random.pick(world.servers).machine;
      return cut(world, host, anyOf(world.primaries, random).host, random.below(3));
    },
  },
  /** An outage, a short return, and another outage. */
  redisFlaps: {
    holdMs: [1000, 13_000],
    needs: 'redis',
    async inflict(world, random) {
      const redis = anyOf(world.primaries, random);
      const isCut = random.below(2) === 0;
      const begin = () => {
        if (isCut) return cutForAll(world, redis.host, 0);
        redis.stop();
        return () => redis.start('kept');
      };
      const heal = begin();
      await pause(random.between(300, 9000));
      heal();
      await pause(random.between(20, 3000));
      return begin();
    },
  },
  redisCutForAll: {
    holdMs: [300, 9000],
    needs: 'redis',
    inflict(world, random) {
      const kind = random.below(3);
      return cutForAll(world, anyOf(world.primaries, random).host, kind);
    },
  },
  redisReset: {
    holdMs: [0, 0],
    needs: 'redis',
    inflict(world, random) {
      breakSome(world, random);
      return () => {};
    },
  },
  /** The line to it is slow, and connections break again while they are being restored. */
  redisLineBad: {
    holdMs: [1000, 8000],
    needs: 'redis',
    inflict(world, random) {
      const lines = world.servers.flatMap(({ machine }) =>
        world.nodes.flatMap(({ host }) => ways(world, machine.host, host)),
      );
      const extraMs = random.between(1, 200);
      for (const way of lines) way.extraMs = extraMs;
      /** @type {NodeJS.Timeout} */
      let timer;
      const again = () => {
        breakSome(world, random);
        timer = setTimeout(again, random.between(50, 1500));
      };
      again();
      return () => {
        clearTimeout(timer);
        for (const way of lines) way.extraMs = 0;
      };
    },
  },
  redisFrozen: {
    holdMs: [200, 9000],
    needs: 'redis',
    inflict({ nodes }, random) {
      const redis = anyOf(nodes, random);
      redis.freeze();
      return () => redis.thaw();
    },
  },
  /** It has more to do than it can: its answers and messages come ever later. */
  redisOverloaded: {
    holdMs: [3000, 10_000],
    needs: 'redis',
    inflict(world, random) {
      const { host } = anyOf(world.primaries, random);
      const { network } = world.fleet;
      const backs = world.servers.map(({ machine }) => network.way(host, machine.host));
      const mostMs = random.between(500, 4000);
      const growthMs = random.between(0.1, 0.8) * OVERLOAD_STEP_MS;
      const timer = setInterval(() => {
        for (const way of backs) way.extraMs = Math.min(mostMs, way.extraMs + growthMs);
      }, OVERLOAD_STEP_MS);
      return () => {
        clearInterval(timer);
        for (const way of backs) way.extraMs = 0;
      };
    },
  },
  redisDown: restarted([500, 8000], 'kept'),
  redisEmptied: restarted([200, 4000], 'nothing'),
  redisRolledBack: restarted([200, 4000], 'snapshot'),
  redisLosesASecond: restarted([200, 4000], 'last-second'),
  redisFlushed: {
    holdMs: [0, 0],
    needs: 'redis',
    inflict({ primaries }, random) {
      anyOf(primaries, random).server.empty();
      return () => {};
    },
  },
  redisFull: {
    holdMs: [500, 6000],
    needs: 'redis',
    inflict({ primaries }, random) {
      const { server } = anyOf(primaries, random);
      server.isFull = true;
      return () => {
        server.isFull = false;
      };
    },
  },
  redisReadOnly: {
    holdMs: [500, 6000],
    needs: 'redis',
    inflict({ primaries }, random) {
      const { server } = anyOf(primaries, random);
      server.refusesWrites = 'NOREPLICAS Not enough good replicas to write.';
      return () => {
        server.refusesWrites = null;
      };
    },
  },
  /** Redis evicts a key of a room with state. */
  redisEvicts: {
    holdMs: [0, 0],
    needs: 'redis',
    inflict({ primaries }, random) {
      const { server } = anyOf(primaries, random);
      const names = server.keys.names().filter((name) => EVICTED.test(name));
      if (names.length > 0) server.evict(random.pick(names));
      return () => {};
    },
  },
  /** The user of the servers may publish to no channel. */
  redisForbidsChannels: {
    holdMs: [300, 4000],
    needs: 'redis',
    inflict({ primaries }, random) {
      const user = anyOf(primaries, random).server.users.get('default');
      user?.apply('resetchannels');
      return () => user?.apply('allchannels');
    },
  },
  ...FAULTS_OF_REPLICAS,
  ...FAULTS_OF_REGIONS,
});

/** @param {World} world @param {Random} random @returns {Heal} */
function suspended(world, random) {
  const { machine } = random.pick(world.servers);
  const processes = [...machine.processes];
  for (const one of processes) one.signal('SIGSTOP');
  return () => {
    for (const one of processes) one.signal('SIGCONT');
  };
}

/**
 * @param {readonly [number, number]} holdMs
 * @param {'kept'|'nothing'|'snapshot'|'last-second'} what it has when it starts again
 * @returns {Fault}
 */
function restarted(holdMs, what) {
  return {
    holdMs,
    needs: 'redis',
    inflict({ nodes }, random) {
      const redis = anyOf(nodes, random);
      redis.stop();
      return () => redis.start(what);
    },
  };
}

/** Breaks some connections between servers and Redis. @param {World} world @param {Random} random */
function breakSome({ servers, primaries, fleet: { network } }, random) {
  const share = random.next();
  for (const { machine } of servers)
    for (const redis of primaries)
      network.breakConnections(machine.host, redis.host, () => random.next() < share);
}

/** @param {World} world @param {string} redis @param {number} kind as `cut` has it @returns {Heal} */
function cutForAll(world, redis, kind) {
  const heals = world.servers.map(({ machine }) => cut(world, machine.host, redis, kind));
  return () => {
    for (const heal of heals) heal();
  };
}

/** Draws nothing if there is no choice. @template T @param {readonly T[]} list @param {Random} random */
function anyOf(list, random) {
  return list.length === 1 ? list[0] : random.pick(list);
}

/** @param {World} world @param {World['servers'][number]} server */
function mayKill({ nowMs }, server) {
  server.kills = server.kills.filter((atMs) => atMs > nowMs - KILL_WINDOW_MS);
  if (server.kills.length >= MAX_KILLS) return false;
  server.kills.push(nowMs);
  return true;
}

/** @param {World} world @param {string} one @param {string} other */
function ways({ fleet: { network } }, one, other) {
  return [network.way(one, other), network.way(other, one)];
}
