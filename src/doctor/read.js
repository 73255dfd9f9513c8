// read.js: what this machine, its kernel and Redis say about their limits. Reads, and judges
// nothing.
//
// Everything is read without root. What can't be read becomes an Unread, which says why, and never
// an error: half an answer is better than none, and in a container half of /proc is not there.

import { readFileSync, readlinkSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import { redisOptions, redisSecrets, withoutSecrets } from '../config/redis.js';
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

const REDIS_TIMEOUT_MS = 3000;
const DISCONNECT_TIMEOUT_MS = 100;

/** A limit that could not be read. */
export class Unread {
  /** @param {string} why */
  constructor(why) {
    this.why = why;
  }
}

/** @typedef {import('../config/system-memory.js').ReadFile} ReadFile */

/**
 * One reader for each reading of a machine. They throw where there is nothing to be read.
 * @satisfies {Record<string, (read: ReadFile, pid: string) => unknown>}
 */
export const READERS = {
  /** Of one process. */
  openFiles: (/** @type {ReadFile} */ read, /** @type {string} */ pid) =>
    parseOpenFiles(read(`/proc/${pid}/limits`)) ?? malformed(`/proc/${pid}/limits`),
  nrOpen: integerOf('/proc/sys/fs/nr_open'),
  /** Of the whole machine: allocated, and the most there may be (fs.file-max). */
  files: (/** @type {ReadFile} */ read) => {
    const [used, , max] = integers(read, '/proc/sys/fs/file-nr', 3);
    return { used, max };
  },
  somaxconn: integerOf('/proc/sys/net/core/somaxconn'),
  synBacklog: integerOf('/proc/sys/net/ipv4/tcp_max_syn_backlog'),
  /** 0: off; 1: when the queue is full; 2: always. */
  synCookies: integerOf('/proc/sys/net/ipv4/tcp_syncookies'),
  deviceBacklog: integerOf('/proc/sys/net/core/netdev_max_backlog'),
  /**
   * Packets dropped since boot because that queue was full, and packets in all. One line a
   * processor, in hexadecimal.
   */
  packets: (/** @type {ReadFile} */ read) => {
    let seen = 0;
    let dropped = 0;
    for (const line of read('/proc/net/softnet_stat').trim().split('\n')) {
      const [first, second] = line.trim().split(/\s+/);
      seen += Number.parseInt(first, 16);
      dropped += Number.parseInt(second, 16);
    }
    return Number.isNaN(seen + dropped) ? malformed('/proc/net/softnet_stat') : { seen, dropped };
  },
  /**
   * Ports for connections this machine makes; `reserved` of them are left out
   * (ip_local_reserved_ports).
   */
  ports: (/** @type {ReadFile} */ read) => {
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
  /**
   * In pages: below the first nothing is saved; from the second on the kernel saves; at the third
   * it refuses.
   */
  tcpMem: (/** @type {ReadFile} */ read) => integers(read, '/proc/sys/net/ipv4/tcp_mem', 3),
  /** In bytes: least, first, most. */
  tcpWmem: (/** @type {ReadFile} */ read) => integers(read, '/proc/sys/net/ipv4/tcp_wmem', 3),
  tcpRmem: (/** @type {ReadFile} */ read) => integers(read, '/proc/sys/net/ipv4/tcp_rmem', 3),
  pageBytes: (/** @type {ReadFile} */ read) =>
    kilobytes(read, '/proc/self/smaps', 'KernelPageSize'),
  /** TCP sockets in use in this network namespace. */
  tcpSockets: (/** @type {ReadFile} */ read) => {
    const match = /^TCP: inuse (\d+)/m.exec(read('/proc/net/sockstat'));
    return match ? Number(match[1]) : malformed('/proc/net/sockstat');
  },
  /** null: the kernel tracks no connections. */
  conntrack: (/** @type {ReadFile} */ read) => {
    const folder = '/proc/sys/net/netfilter';
    const max = unlessAbsent(() => integerOf(`${folder}/nf_conntrack_max`)(read));
    return max === null ? null : { max, used: integerOf(`${folder}/nf_conntrack_count`)(read) };
  },
  memoryBytes,
  cgroupMemory,
  /**
   * V8's own limit, which follows the machine's memory and NODE_OPTIONS. A worker is given no more
   * than its part allows.
   */
  heapBytes: (/** @type {ReadFile} */ _read, /** @type {string} */ pid) => {
    if (pid !== 'self') throw new Error('the heap limit of another process cannot be read');
    return getHeapStatistics().heap_size_limit;
  },
};

/** @typedef {{[K in keyof typeof READERS]: ReturnType<typeof READERS[K]>}} Machine */

/**
 * Reads some limits of this machine.
 * @template {keyof Machine} K
 * @param {readonly K[]} keys
 * @param {string} [pid] whose limits and cgroup; `self`
 * @param {ReadFile} [read]
 * @returns {{[P in K]: Machine[P]|Unread}}
 */
export function readMachine(keys, pid = 'self', read = (path) => readFileSync(path, 'utf8')) {
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

/**
 * @param {string} pid
 * @returns {boolean} is it in another network namespace, whose net.* settings are not the ones read
 *   here
 */
export function isElsewhere(pid) {
  // Only its owner and root may look; who may not is told nothing.
  return orElse(
    () => readlinkSync(`/proc/${pid}/ns/net`) !== readlinkSync('/proc/self/ns/net'),
    false,
  );
}

/**
 * The environment a process was started with.
 * @param {string} pid
 * @returns {Record<string, string>|Unread}
 */
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
 * What Redis says; each reading null where no Redis is configured.
 * @typedef {object} RedisState
 * @property {string|null} redisVersion
 * @property {{hard: number, soft: number, seconds: number}|null} redisPubsub output buffer of a
 *   subscriber, in bytes; 0: no limit
 * @property {{max: number, used: number, policy: string}|null} redisMemory bytes; max 0: no limit
 * @property {{save: string, append: string, failed: boolean}|null} redisPersistence `save` empty:
 *   no snapshots; `append` empty: no append-only file; `failed`: Redis refuses writes since the
 *   last one to disk failed
 */

/** @typedef {{[K in keyof RedisState]: RedisState[K]|Unread}} RedisReadings */

/**
 * One server: by Sentinel the primary; of a cluster the first named node that answers, since all
 * should be alike.
 * @param {import('../config/redis.js').RedisSettings|null} settings null: there is none, which is
 *   no fault
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

/**
 * @param {import('../config/redis.js').RedisSettings} settings
 * @param {import('../config/redis.js').Address} node
 * @returns {Promise<RedisReadings>}
 */
async function readServer(settings, node) {
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
  /** @type {unknown} what ioredis itself only calls a closed connection */
  let cause;
  redis.on('error', (error) => {
    cause = error;
  });
  try {
    await redis.connect();
    const info = parseInfo(await redis.info());
    /** Managed services and ACLs deny CONFIG. @param {string} name */
    const setting = async (name) => {
      const [, value] = /** @type {string[]} */ (await redis.config('GET', name));
      return value ?? '';
    };
    return {
      redisVersion: info.get('redis_version') ?? new Unread('INFO has no redis_version'),
      redisPubsub: await setting('client-output-buffer-limit')
        .then(parsePubsubBuffer)
        .catch((error) => unread(error)),
      redisMemory: {
        max: Number(info.get('maxmemory') ?? 0),
        used: Number(info.get('used_memory') ?? 0),
        policy: info.get('maxmemory_policy') ?? '',
      },
      redisPersistence: await persistence(info, setting).catch((error) => unread(error)),
    };
  } catch (error) {
    return allRedis(unread(cause ?? error, redisSecrets(settings)));
  } finally {
    redis.disconnect();
  }
}

/**
 * @template {null|Unread} T
 * @param {T} reading
 * @returns {{[K in keyof RedisState]: T}}
 */
function allRedis(reading) {
  return {
    redisVersion: reading,
    redisPubsub: reading,
    redisMemory: reading,
    redisPersistence: reading,
  };
}

/**
 * @param {Map<string, string>} info
 * @param {(name: string) => Promise<string>} setting
 */
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

/**
 * @param {string} text what INFO answers
 * @returns {Map<string, string>}
 */
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

/**
 * @param {ReadFile} read
 * @param {string} path
 * @param {number} count of numbers it must have
 */
function integers(read, path, count) {
  const words = read(path).trim().split(/\s+/);
  return words.length === count && words.every((word) => /^\d+$/.test(word))
    ? words.map(Number)
    : malformed(path);
}

/**
 * @template T
 * @param {() => T} read
 * @param {T} otherwise
 * @returns {T}
 */
function orElse(read, otherwise) {
  try {
    return read();
  } catch {
    return otherwise; // not to be had here, which its caller allows for
  }
}

/**
 * @param {unknown} error
 * @param {readonly string[]} [secrets]
 */
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
