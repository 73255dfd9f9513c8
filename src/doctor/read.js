// read.js: reads the limits of this machine, its kernel and Redis. limits.js judges them.
//
// Everything is read without root. A value that can't be read becomes an Unread with the reason,
// not an error: in a container half of /proc may be missing.

import { readFileSync, readlinkSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import {
  addressText,
  redisCredentials,
  redisOptions,
  redisSecrets,
  withoutSecrets,
} from '../config/redis.js';
import { parseOpenFiles } from '../config/system-limits.js';
import {
  cgroupMemory,
  integerOf,
  kilobytes,
  malformed,
  memoryBytes,
  unlessAbsent,
} from '../config/system-memory.js';
import { redactUrl } from '../observability/log.js';

/** @import { Address, RedisSettings } from '../config/redis.js' */
/** @import { RedisVersion } from './versions.js' */

const REDIS_TIMEOUT_MS = 3000;
const DISCONNECT_TIMEOUT_MS = 100;

export class Unread {
  /** @param {string} why */
  constructor(why) {
    this.why = why;
  }
}

/** @typedef {import('../config/system-memory.js').ReadFile} ReadFile */

/**
 * One reader for each reading of a machine. A reader throws if the value can't be read.
 * @satisfies {Record<string, (read: ReadFile, pid: string) => unknown>}
 */
export const READERS = {
  /** The files that one process may open. */
  openFiles: (read, pid) =>
    parseOpenFiles(read(`/proc/${pid}/limits`)) ?? malformed(`/proc/${pid}/limits`),
  nrOpen: integerOf('/proc/sys/fs/nr_open'),
  /** Files of the whole machine: those allocated, and their maximum (fs.file-max). */
  files: (read) => {
    const [used, , max] = integers(read, '/proc/sys/fs/file-nr', 3);
    return { used, max };
  },
  somaxconn: integerOf('/proc/sys/net/core/somaxconn'),
  synBacklog: integerOf('/proc/sys/net/ipv4/tcp_max_syn_backlog'),
  /** 0: off; 1: when the queue is full; 2: always. */
  synCookies: integerOf('/proc/sys/net/ipv4/tcp_syncookies'),
  deviceBacklog: integerOf('/proc/sys/net/core/netdev_max_backlog'),
  /** All packets, and those dropped at a full queue: a line per processor, hexadecimal. */
  packets: (read) => {
    let seen = 0;
    let dropped = 0;
    for (const line of read('/proc/net/softnet_stat').trim().split('\n')) {
      const [first, second] = line.trim().split(/\s+/);
      seen += Number.parseInt(first, 16);
      dropped += Number.parseInt(second, 16);
    }
    return Number.isNaN(seen + dropped) ? malformed('/proc/net/softnet_stat') : { seen, dropped };
  },
  /** Ports for outgoing connections. `reserved` of them are excluded (ip_local_reserved_ports). */
  ports: (read) => {
    const [first, last] = integers(read, '/proc/sys/net/ipv4/ip_local_port_range', 2);
    let reserved = 0;
    for (const part of orElse(() => read('/proc/sys/net/ipv4/ip_local_reserved_ports'), '')
      .trim()
      .split(',')) {
      const [from, to = from] = part.split('-').map(Number);
      if (part !== '') reserved += Math.max(0, Math.min(to, last) - Math.max(from, first) + 1);
    }
    return { first, last, reserved };
  },
  /** Numbers of pages: the kernel saves memory from the second on, and refuses at the third. */
  tcpMem: (read) => integers(read, '/proc/sys/net/ipv4/tcp_mem', 3),
  /** Bytes: least, first, most. */
  tcpWmem: (read) => integers(read, '/proc/sys/net/ipv4/tcp_wmem', 3),
  tcpRmem: (read) => integers(read, '/proc/sys/net/ipv4/tcp_rmem', 3),
  pageBytes: (read) => kilobytes(read, '/proc/self/smaps', 'KernelPageSize'),
  /** TCP sockets in use in this network namespace. */
  tcpSockets: (read) => {
    const match = /^TCP: inuse (\d+)/m.exec(read('/proc/net/sockstat'));
    return match ? Number(match[1]) : malformed('/proc/net/sockstat');
  },
  /** null if the kernel does not track connections. */
  conntrack: (read) => {
    const folder = '/proc/sys/net/netfilter';
    const max = unlessAbsent(() => integerOf(`${folder}/nf_conntrack_max`)(read));
    return max === null ? null : { max, used: integerOf(`${folder}/nf_conntrack_count`)(read) };
  },
  memoryBytes,
  cgroupMemory,
  /** V8's default, of memory and NODE_OPTIONS. A worker's heap keeps to its share, too. */
  heapBytes: (_read, pid) => {
    if (pid !== 'self') throw new Error('the heap limit of another process cannot be read');
    return getHeapStatistics().heap_size_limit;
  },
  /** The version of Node, and the Unix time, because the support of a version ends. */
  node: (_read, pid) => {
    if (pid !== 'self') throw new Error('the Node version of another process cannot be read');
    return { version: process.version, nowMs: Date.now() };
  },
};

/** @typedef {{[K in keyof typeof READERS]: ReturnType<typeof READERS[K]>}} Machine */

/**
 * Reads some limits of this machine.
 * @template {keyof Machine} K @param {readonly K[]} keys
 * @param {string} pid process whose limits and cgroup are read, or `self`
 * @param {ReadFile} [read] @returns {{[P in K]: Machine[P]|Unread}}
 */
export function readMachine(keys, pid, read = (path) => readFileSync(path, 'utf8')) {
  const found = /** @type {{[P in K]: Machine[P]|Unread}} */ ({});
  for (const key of keys) {
    try {
      found[key] = /** @type {Machine[K]} */ (READERS[key](read, pid));
    } catch (error) {
      found[key] = new Unread(reasonOf(error));
    }
  }
  return found;
}

/** @param {string} pid @returns {boolean} is it in another network namespace? */
export function isElsewhere(pid) {
  // Only the owner of the process and root may read this. Without permission the answer is false.
  return orElse(
    () => readlinkSync(`/proc/${pid}/ns/net`) !== readlinkSync('/proc/self/ns/net'),
    false,
  );
}

/** The environment that a process started with. @param {string} pid @returns {Record<string, string>|Unread} */
export function environmentOf(pid) {
  try {
    const entries = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').filter(Boolean);
    return Object.fromEntries(
      entries.map((entry) => [entry.split('=', 1)[0], entry.slice(entry.indexOf('=') + 1)]),
    );
  } catch (error) {
    return new Unread(reasonOf(error));
  }
}

/**
 * The readings of Redis. Each is null if no Redis is configured.
 * @typedef {object} RedisState
 * @property {string|null} redisFault why it does not answer; empty: it does
 * @property {{address: string, fault: string}[]|null} redisReplicas those of REDIS_SUBSCRIBE_URL, and
 *   why workers do not hear through each; null if there are none
 * @property {RedisVersion|null} redisVersion
 * @property {{hard: number, soft: number, seconds: number}|null} redisPubsub output buffer of a
 *   subscriber, in bytes; 0: no limit
 * @property {{max: number, used: number, policy: string}|null} redisMemory bytes; max 0: no limit
 * @property {{save: string, append: string, failed: boolean}|null} redisPersistence `save` empty:
 *   no snapshots; `append` empty: no append-only file; `failed`: Redis refuses writes because the
 *   last write to disk failed
 * @property {number|null} redisStreamNode bytes of a node of a stream; 0: no limit
 */

/** @typedef {{[K in keyof RedisState]: RedisState[K]|Unread}} RedisReadings */

/**
 * Reads one server: the primary that Sentinel names, or the first configured node of a cluster that
 * answers, because all nodes should be alike.
 * @param {RedisSettings|null} settings null: no Redis is configured
 * @returns {Promise<RedisReadings>}
 */
export async function readRedis(settings) {
  if (settings === null) return allRedis(null);
  const nodes = settings.kind === 'cluster' ? settings.addresses : settings.addresses.slice(0, 1);
  /** @type {RedisReadings} */
  let readings = allRedis(null);
  for (const node of nodes) {
    readings = await readServer(settings, node);
    if (!(readings.redisVersion instanceof Unread)) break;
  }
  return readings;
}

/** @param {RedisSettings} settings @param {Address} node @returns {Promise<RedisReadings>} */
async function readServer(settings, node) {
  try {
    return await inRedis(settings, node, async (redis) => {
      const info = parseInfo(await redis.info());
      /** Managed services and ACLs deny CONFIG. @param {string} name */
      const setting = async (name) => {
        const [, value] = /** @type {string[]} */ (await redis.config('GET', name));
        return value ?? '';
      };
      return {
        redisFault: '',
        redisReplicas: await readReplicas(settings.subscribe, info),
        redisVersion: versionOf(info),
        redisPubsub: await setting('client-output-buffer-limit')
          .then(parsePubsubBuffer)
          .catch((error) => unread(error)),
        redisMemory: {
          max: Number(info.get('maxmemory') ?? 0),
          used: Number(info.get('used_memory') ?? 0),
          policy: info.get('maxmemory_policy') ?? '',
        },
        redisPersistence: await persistence(info, setting).catch((error) => unread(error)),
        redisStreamNode: await setting('stream-node-max-bytes')
          .then(Number)
          .catch((error) => unread(error)),
      };
    });
  } catch (error) {
    const reason = unread(error, redisSecrets(redisCredentials(settings).options));
    const redisReplicas = settings.subscribe === undefined ? null : reason;
    return { ...allRedis(reason), redisReplicas, redisFault: reason.why };
  }
}

/**
 * @param {RedisSettings|undefined} settings undefined: workers hear from the primary
 * @param {Map<string, string>} primary its INFO
 * @returns {Promise<RedisState['redisReplicas']>}
 */
async function readReplicas(settings, primary) {
  if (settings === undefined) return null;
  const secrets = redisSecrets(redisCredentials(settings).options);
  return Promise.all(
    settings.addresses.map(async (node) => {
      const fault = await inRedis(settings, node, async (redis) =>
        replicaFault(parseInfo(await redis.info()), primary),
      ).catch((error) => `does not answer (${unread(error, secrets).why})`);
      return { address: addressText(node), fault };
    }),
  );
}

/**
 * @param {Map<string, string>} replica its INFO @param {Map<string, string>} primary
 * @returns {string} why workers do not hear the primary through it; '': they do
 */
export function replicaFault(replica, primary) {
  // Sentinel may have promoted it: it is the primary itself.
  if (replica.get('run_id') === primary.get('run_id')) return '';
  if (replica.get('role') !== 'slave') return 'is not a replica';
  // Until it has its first copy, it has an ID of its own.
  if (replica.get('master_link_status') !== 'up') return 'has no link to its primary';
  const isOurs = replica.get('master_replid') === primary.get('master_replid');
  return isOurs ? '' : 'is a replica of another primary';
}

/**
 * @template T @param {RedisSettings} settings @param {Address} node
 * @param {(redis: import('ioredis').Redis) => Promise<T>} read
 * @returns {Promise<T>} rejects with the cause if there is no connection
 */
async function inRedis(settings, node, read) {
  const { Redis } = await import('ioredis');
  const redis = new Redis({
    ...redisOptions(settings, node),
    sentinelCommandTimeout: REDIS_TIMEOUT_MS,
    sentinelRetryStrategy: () => null,
    lazyConnect: true,
    connectTimeout: REDIS_TIMEOUT_MS,
    commandTimeout: REDIS_TIMEOUT_MS,
    disconnectTimeout: DISCONNECT_TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
    disableClientInfo: true,
  });
  /** @type {unknown} the cause, which ioredis reports only as a closed connection */
  let cause;
  redis.on('error', (error) => {
    cause = error;
  });
  try {
    await redis.connect();
    return await read(redis);
  } catch (error) {
    throw cause ?? error;
  } finally {
    redis.disconnect();
  }
}

/**
 * Valkey gives its own version beside that of the Redis with which it is compatible.
 * @param {Map<string, string>} info @returns {RedisVersion|Unread}
 */
export function versionOf(info) {
  const valkey = info.get('valkey_version');
  if (valkey !== undefined) return { product: 'Valkey', version: valkey };
  const version = info.get('redis_version');
  return version === undefined
    ? new Unread('INFO has no redis_version')
    : { product: 'Redis', version };
}

/** @template {null|Unread} T @param {T} reading @returns {{[K in keyof RedisState]: T}} */
function allRedis(reading) {
  return {
    redisFault: reading,
    redisReplicas: reading,
    redisVersion: reading,
    redisPubsub: reading,
    redisMemory: reading,
    redisPersistence: reading,
    redisStreamNode: reading,
  };
}

/** @param {Map<string, string>} info @param {(name: string) => Promise<string>} setting */
async function persistence(info, setting) {
  const isAppending = info.get('aof_enabled') === '1';
  const save = await setting('save');
  const stops = save !== '' && (await setting('stop-writes-on-bgsave-error')) === 'yes';
  return {
    save,
    append: isAppending ? await setting('appendfsync') : '',
    failed:
      (stops && info.get('rdb_last_bgsave_status') === 'err') ||
      (isAppending && info.get('aof_last_write_status') === 'err'),
  };
}

/** @param {string} text the reply of INFO @returns {Map<string, string>} */
export function parseInfo(text) {
  return new Map(
    text
      .split(/\r?\n/)
      .filter((line) => line.includes(':') && !line.startsWith('#'))
      .map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)]),
  );
}

/** @param {string} text `normal 0 0 0 replica 268435456 67108864 60 pubsub 33554432 8388608 60` */
export function parsePubsubBuffer(text) {
  const match = /\bpubsub (\d+) (\d+) (\d+)/.exec(text);
  if (match === null)
    throw new Error('CONFIG GET client-output-buffer-limit returned nothing about pubsub');
  const [hard, soft, seconds] = match.slice(1).map(Number);
  return { hard, soft, seconds };
}

/** @param {ReadFile} read @param {string} path @param {number} count of numbers it must have */
function integers(read, path, count) {
  const words = read(path).trim().split(/\s+/);
  return words.length === count && words.every((word) => /^\d+$/.test(word))
    ? words.map(Number)
    : malformed(path);
}

/** @template T @param {() => T} read @param {T} otherwise @returns {T} */
function orElse(read, otherwise) {
  try {
    return read();
  } catch {
    return otherwise; // the file is not readable here
  }
}

/** @param {unknown} error @param {readonly string[]} [secrets] */
function unread(error, secrets = []) {
  return new Unread(redactUrl(withoutSecrets(reasonOf(error), secrets)));
}

/** @param {unknown} error */
function reasonOf(error) {
  const { code, path, message, errors } =
    /** @type {NodeJS.ErrnoException & {errors?: Error[]}} */ (
      error instanceof Error ? error : new Error(String(error))
    );
  if (code === 'ENOENT' && path) return `${path} does not exist`;
  if ((code === 'EACCES' || code === 'EPERM') && path) return `no permission to read ${path}`;
  // Node tries all of a name's addresses and wraps their errors in one without a message.
  return message || errors?.map((each) => each.message).join('; ') || code || 'unknown';
}
