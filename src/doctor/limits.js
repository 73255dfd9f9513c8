// limits.js: the table of system limits. Each row computes the connections that its limit permits
// here, and a command that raises it. If a limit bounds another quantity, its row states the rule
// that converts it:
// - New connections at once: when a server drains, its clients reconnect over
//   FANFARE_RECONNECT_WINDOW_MS, or sooner if they are few. A queue must hold one second of them:
//   as long as a busy worker may not accept.
// - Memory of slow clients: one connection in a thousand fills its kernel buffers.
//
// If no such rule is honest (Redis, packets), the row has no number and only reports a fault.

import { addressText } from '../config/redis.js';
import {
  LISTEN_BACKLOG,
  MAX_BYTES_TO_REDIS,
  OWN_DESCRIPTORS,
  RETURNS_PER_SECOND,
  usableDescriptors,
} from '../config/system-limits.js';
import { heapOfWorker, partOfWorker } from '../config/system-memory.js';
import { Unread } from './read.js';
import { NODE_LINES, nodeNote, STORE_FAULTS, storeNote } from './versions.js';

/** @import { Config } from '../config/settings.js' */

/** Default of --connections. */
export const DEFAULT_WANTED = 10_000;

// Measured: loadtest/bench/results/scale-100000-2026-11-21.md, the greatest of 20,000 to 100,000
// connections (PSS).
const SERVER_BYTES = 6300;
// Measured: kernel memory (Slab of /proc/meminfo) of 8,000 idle TCP connections, halved because
// both ends were on one machine. Linux 6.18.
const KERNEL_BYTES = 4400;
const CONNECTION_BYTES = SERVER_BYTES + KERNEL_BYTES;
// Measured: 29 to 35 MB (PSS) of the primary and of each worker without connections, Node 20.
const PROCESS_BYTES = 40e6;
/** The rest is for other programs and for unsent bytes. */
const MEMORY_SHARE = 0.8;
/** Heap of a worker without connections. */
const IDLE_HEAP_BYTES = 15e6;

/** Assumed: one connection in so many is slow. */
const SLOW_ONE_IN = 1000;
/** No smaller buffer is recommended, because it would slow down clients that read. */
const MIN_BUFFER_BYTES = 65_536;
/** 32768 to 60999, the default of Linux. */
const DEFAULT_PORTS = 28_232;
/** The range that ops/sysctl/99-fanfare.conf sets. */
const WIDE_PORTS = { range: '10000 65535', count: 55_536 };
/** If more than one packet in so many is dropped, the limit is too low. */
const DROPPED_ONE_IN = 10_000;
/** Share of Redis' memory limit above which it is about to refuse writes. */
const REDIS_FULL = 0.9;
/** The default of Redis for `stream-node-max-bytes`. */
const DEFAULT_STREAM_NODE = 4096;

/**
 * @typedef {import('./read.js').Machine & import('./read.js').RedisState & import('./bucket.js').BucketState}
 *   Readings
 */
/** @typedef {{[K in keyof Readings]: Readings[K]|Unread}} PartialReadings */

/**
 * @typedef {object} Situation
 * @property {Config} config @property {number} wanted connections
 * @property {number|null} idleTimeoutMs of the load balancer in front; null if unknown
 * @property {'here'|'elsewhere'|null} clients whether this machine opens the connections (a load
 *   balancer or load generator runs on it); null if unknown
 */

/**
 * @typedef {object} Judgement
 * @property {string} value the current value
 * @property {number|null} [permits] connections; null if the limit does not depend on their number
 * @property {boolean} [isAside] `permits` is informative only and does not bind in this situation
 * @property {string} [fault] the fault, if the number does not show it
 * @property {string} [note] what the operator should know, although nothing is too low
 * @property {string} [fix] command or setting
 */

/**
 * @typedef {object} Limit
 * @property {string} name
 * @property {boolean} [atStart] cheap to read, and a server at this limit refuses connections:
 *   checked at the start of a server
 * @property {readonly (keyof Readings)[]} needs @property {string} source of the reading
 * @property {string} meaning what the limit bounds and the formula of the number, in a sentence
 * @property {(readings: Readings, situation: Situation) => Judgement|null} judge null: does not
 *   apply here
 */

/** @type {readonly Limit[]} in the report's order, which also decides between equal ones */
export const LIMITS = Object.freeze([
  {
    name: 'nofile',
    atStart: true,
    needs: ['openFiles'],
    source: '`/proc/PID/limits`',
    meaning:
      'Open files of one process, one per connection, times `WORKERS`, minus a reserve (256) and the files that a worker has open anyway (64). Node raises its soft limit to the hard limit.',
    judge({ openFiles: { soft, hard } }, { config, wanted }) {
      const each = connectionsOf(soft, config);
      const files = powerOfTwo(Math.ceil(wanted / config.workers) + 320);
      const workers = Math.ceil(wanted / each);
      const raise = `sudo prlimit --pid $$ --nofile=${files}:${files} and start the server from this shell (systemd: LimitNOFILE=${files}; docker: --ulimit nofile=${files}:${files})`;
      return {
        value: `${soft === hard ? withDigits(soft) : `${withDigits(soft)} of ${withDigits(hard)}`} per process, ${plural(config.workers, 'worker')}`,
        permits: config.workers * each,
        fix:
          each > 0 && workers <= 1024
            ? `${raise}; if that is not possible: WORKERS=${workers}`
            : raise,
      };
    },
  },
  {
    name: 'fs.nr_open',
    needs: ['nrOpen'],
    source: '`/proc/sys/fs/nr_open`',
    meaning: 'Upper bound of `nofile`, even for root.',
    judge({ nrOpen }, { config, wanted }) {
      return {
        value: withDigits(nrOpen),
        permits: config.workers * connectionsOf(nrOpen, config),
        fix: sysctl('fs.nr_open', powerOfTwo(Math.ceil(wanted / config.workers) + 320)),
      };
    },
  },
  {
    name: 'fs.file-max',
    atStart: true,
    needs: ['files', 'tcpSockets'],
    source: '`/proc/sys/fs/file-nr`',
    meaning:
      'Open files of the whole machine, one per connection, minus the open files that are not TCP sockets.',
    judge({ files: { used, max }, tcpSockets }, { wanted }) {
      const others = Math.max(0, used - tcpSockets);
      return {
        value: `${withDigits(max)}, ${withDigits(used)} in use`,
        permits: Math.max(0, max - others),
        fix: sysctl('fs.file-max', powerOfTwo(wanted + others)),
      };
    },
  },
  {
    name: 'memory',
    atStart: true,
    needs: ['memoryBytes'],
    source: '`/proc/meminfo`',
    meaning: `Memory of the machine: ${withDigits(CONNECTION_BYTES)} bytes per connection (${withDigits(SERVER_BYTES)} in the server, ${withDigits(KERNEL_BYTES)} in the kernel, measured idle), from 80 % of the memory minus 40 MB per process.`,
    judge({ memoryBytes }, { config, wanted }) {
      return {
        value: bytes(memoryBytes),
        permits: connectionsThatFit(memoryBytes, config),
        fix: `a machine with ${bytes(memoryFor(wanted, config))}, or several machines`,
      };
    },
  },
  {
    name: 'cgroup-memory',
    atStart: true,
    needs: ['cgroupMemory'],
    source:
      '`memory.max`, `memory.high` or `memory.limit_in_bytes` of the control group of the process and its parents',
    meaning:
      'The same for a container or a systemd unit. The kernel memory of a connection counts there too.',
    judge({ cgroupMemory: { bytes: limit, file } }, { config, wanted }) {
      if (limit === Number.POSITIVE_INFINITY) return { value: 'no limit' };
      const needed = Math.ceil(memoryFor(wanted, config) / 2 ** 20);
      return {
        value: `${bytes(limit)} (${file})`,
        permits: connectionsThatFit(limit, config),
        fix: `docker update --memory ${needed}m --memory-swap ${needed}m CONTAINER; systemd: MemoryMax=${needed}M; otherwise echo ${needed}M | sudo tee ${file}`,
      };
    },
  },
  {
    name: 'heap',
    atStart: true,
    needs: ['heapBytes', 'memoryBytes', 'cgroupMemory'],
    source: 'V8; memory divided by `WORKERS`',
    meaning: `Heap of a worker, at most three quarters of its share of the memory. At \`FANFARE_MAX_HEAP_PERCENT\` of the limit it accepts no new connections. ${withDigits(SERVER_BYTES)} bytes per connection, times \`WORKERS\`.`,
    judge({ heapBytes: limit, memoryBytes, cgroupMemory }, { config, wanted }) {
      const share = config.maxHeapPercent / 100;
      const part = partOfWorker(Math.min(memoryBytes, cgroupMemory.bytes), config.workers);
      const heapBytes = heapOfWorker(part, limit);
      const needed = Math.ceil(
        ((wanted / config.workers) * SERVER_BYTES + IDLE_HEAP_BYTES) / share / 2 ** 20,
      );
      return {
        value: `${bytes(heapBytes)} per worker`,
        permits:
          config.workers *
          Math.max(0, Math.floor((heapBytes * share - IDLE_HEAP_BYTES) / SERVER_BYTES)),
        fix:
          heapBytes < limit
            ? `more memory, or fewer WORKERS: each needs a heap of ${needed} MiB`
            : `NODE_OPTIONS=--max-old-space-size=${needed}`,
      };
    },
  },
  {
    name: 'net.netfilter.nf_conntrack_max',
    atStart: true,
    needs: ['conntrack'],
    source: '`/proc/sys/net/netfilter/nf_conntrack_max`; absent: nothing is tracked',
    meaning:
      'Connections that a firewall on this machine can track, one entry each. If the table is full, the kernel silently drops new connections.',
    judge({ conntrack }, { wanted }) {
      if (conntrack === null) return null;
      return {
        value: `${withDigits(conntrack.max)}, ${withDigits(conntrack.used)} in use`,
        permits: conntrack.max,
        fix: sysctl('net.netfilter.nf_conntrack_max', powerOfTwo(2 * wanted)),
      };
    },
  },
  {
    name: 'net.core.somaxconn',
    needs: ['somaxconn'],
    source: '`/proc/sys/net/core/somaxconn`',
    meaning: `Length of the accept queue: the smaller of this value and the ${withDigits(LISTEN_BACKLOG)} that the server requests (listen(2)). It must hold the connections of one second while the clients of a drained server return over \`FANFARE_RECONNECT_WINDOW_MS\`, and at least ${withDigits(RETURNS_PER_SECOND)} a second from each worker.`,
    judge({ somaxconn }, { config, wanted }) {
      const seconds = windowSeconds(config);
      const backlog = Math.min(somaxconn, LISTEN_BACKLOG);
      const slower = `FANFARE_RECONNECT_WINDOW_MS=${Math.ceil(wanted / LISTEN_BACKLOG) * 1000}`;
      return {
        value: `${withDigits(somaxconn)}, listen backlog ${withDigits(backlog)}`,
        permits: returnsThrough(backlog, config),
        fix:
          LISTEN_BACKLOG * seconds >= wanted
            ? `${sysctl('net.core.somaxconn', LISTEN_BACKLOG)} and restart the server`
            : somaxconn < LISTEN_BACKLOG
              ? `${sysctl('net.core.somaxconn', LISTEN_BACKLOG)}, restart the server, and ${slower}`
              : slower,
      };
    },
  },
  {
    name: 'net.ipv4.tcp_max_syn_backlog',
    needs: ['synBacklog', 'synCookies', 'somaxconn'],
    source: '`/proc/sys/net/ipv4/tcp_max_syn_backlog`, `tcp_syncookies`',
    meaning:
      'Half-open connections. With SYN cookies, the default, a full queue loses none. Without them, three quarters of the queue are for new clients (tcp(7)), and it must hold the connections of the same second.',
    judge({ synBacklog, synCookies, somaxconn }, { config }) {
      if (synCookies > 0) return { value: `${withDigits(synBacklog)}, SYN cookies on` };
      const queue = Math.min(Math.floor(synBacklog * 0.75), somaxconn, LISTEN_BACKLOG);
      return {
        value: `${withDigits(synBacklog)}, SYN cookies off`,
        permits: returnsThrough(queue, config),
        fix: sysctl('net.ipv4.tcp_syncookies', 1),
      };
    },
  },
  {
    name: 'net.core.netdev_max_backlog',
    needs: ['deviceBacklog', 'packets'],
    source: '`/proc/sys/net/core/netdev_max_backlog`, `/proc/net/softnet_stat`',
    meaning:
      'Received packets that wait for one processor. A broadcast through loopback or a container bridge is a burst of one packet per receiver. The limit is too low if more than one packet in 10,000 was dropped since boot.',
    judge({ deviceBacklog, packets: { seen, dropped } }) {
      const isLow = dropped * DROPPED_ONE_IN > seen;
      return {
        value: `${withDigits(deviceBacklog)}, ${plural(dropped, 'packet')} dropped`,
        fault: isLow
          ? `${withDigits(dropped)} of ${withDigits(seen)} packets were dropped`
          : undefined,
        fix: sysctl('net.core.netdev_max_backlog', Math.max(16_384, 2 * deviceBacklog)),
      };
    },
  },
  {
    name: 'net.ipv4.ip_local_port_range',
    needs: ['ports'],
    source: '`/proc/sys/net/ipv4/ip_local_port_range`, `ip_local_reserved_ports`',
    meaning:
      'Ports for outgoing connections. A load balancer or load generator on this machine (`--clients here`) has that many per source address and destination. Clients on other machines are not limited (`--clients elsewhere`). Without either option, only a range narrower than the default of Linux (28,232) counts.',
    judge({ ports: { first, last, reserved } }, { wanted, clients }) {
      const permits = Math.max(0, last - first + 1 - reserved);
      const addresses = Math.ceil(wanted / WIDE_PORTS.count);
      const widen = sysctl('net.ipv4.ip_local_port_range', WIDE_PORTS.range);
      return {
        value: `${first}–${last}${reserved > 0 ? `, ${withDigits(reserved)} reserved` : ''} per source address`,
        permits,
        isAside: clients === 'elsewhere' || (clients === null && permits >= DEFAULT_PORTS),
        fix:
          addresses > 1
            ? `${widen} and ${addresses} source addresses (nginx: proxy_bind; HAProxy: one server line with source per address)`
            : widen,
      };
    },
  },
  {
    name: 'net.ipv4.tcp_mem',
    needs: ['tcpMem'],
    source: '`/proc/sys/net/ipv4/tcp_mem`',
    meaning:
      'Memory of all TCP buffers, in pages: one page per connection with data in flight, up to the second number. Above it, the kernel reduces buffers.',
    judge({ tcpMem: [, pressure] }, { wanted }) {
      return { value: `${withDigits(pressure)} pages`, permits: pressure, fix: tcpMemFix(wanted) };
    },
  },
  {
    name: 'net.ipv4.tcp_wmem',
    needs: ['tcpWmem', 'tcpMem', 'pageBytes'],
    source: '`/proc/sys/net/ipv4/tcp_wmem`, `tcp_mem`',
    meaning:
      'Maximum send buffer (the third number), which a client fills if it does not read. Assumed: one connection in a thousand does so, within `tcp_mem`.',
    judge: ({ tcpWmem, tcpMem, pageBytes }, { wanted }) =>
      buffers('net.ipv4.tcp_wmem', tcpWmem, 2, tcpMem, pageBytes, wanted),
  },
  {
    name: 'net.ipv4.tcp_rmem',
    needs: ['tcpRmem', 'tcpMem', 'pageBytes'],
    source: '`/proc/sys/net/ipv4/tcp_rmem`, `tcp_mem`',
    meaning:
      'Receive buffer that a client can fill before the server reads it (the second number; the third applies to fast readers). Assumed: one connection in a thousand does so at once, within `tcp_mem`.',
    judge: ({ tcpRmem, tcpMem, pageBytes }, { wanted }) =>
      buffers('net.ipv4.tcp_rmem', tcpRmem, 1, tcpMem, pageBytes, wanted),
  },
  {
    name: 'connections-per-address',
    needs: [],
    source: '`FANFARE_MAX_CONNECTIONS_PER_IP`, `TRUST_PROXY`',
    meaning:
      'Connections that the server accepts from one client address; with Redis, that all servers accept (`fleet` of `FANFARE_LIMITS`). With `--clients here` and without `TRUST_PROXY`, all clients have the address of this machine.',
    judge(
      _readings,
      {
        config: {
          maxConnectionsPerIp,
          maxConnectionsPerIpMode,
          trustProxy,
          redis,
          fleetLimitsMode,
        },
        clients,
      },
    ) {
      if (maxConnectionsPerIpMode !== 'enforce')
        return { value: `not enforced (${maxConnectionsPerIpMode})` };
      const isShared = clients === 'here' && trustProxy === '';
      const isFleetWide = redis !== null && fleetLimitsMode === 'enforce';
      return {
        value: `${withDigits(maxConnectionsPerIp)} per address${isFleetWide ? ', over all servers' : ''}`,
        permits: isShared ? maxConnectionsPerIp : null,
        fix: 'behind a load balancer: TRUST_PROXY=127.0.0.1/32; for a load test: FANFARE_LIMITS=off',
      };
    },
  },
  {
    name: 'lb-idle-timeout',
    needs: [],
    source: '`--lb-idle-timeout`',
    meaning:
      'Idle time-out of the load balancer. It must be longer than `FANFARE_PING_INTERVAL_MS`, or the load balancer closes every idle connection. It should be longer by `FANFARE_PONG_TIMEOUT_MS`, because a ping may be late.',
    judge(_readings, { config: { pingIntervalMs, pongTimeoutMs }, idleTimeoutMs }) {
      if (idleTimeoutMs === null) return null;
      const needed = Math.ceil((pingIntervalMs + pongTimeoutMs) / 1000);
      const isCut = idleTimeoutMs <= pingIntervalMs;
      return {
        value: `${idleTimeoutMs / 1000} s, a ping every ${pingIntervalMs / 1000} s`,
        permits: isCut ? 0 : null,
        fault:
          idleTimeoutMs < needed * 1000
            ? 'an idle connection is closed before its ping or its pong'
            : undefined,
        fix: `nginx: proxy_read_timeout ${needed}s; proxy_send_timeout ${needed}s; HAProxy: timeout tunnel ${needed}s; or FANFARE_PING_INTERVAL_MS=${Math.floor(idleTimeoutMs / 2)} FANFARE_PONG_TIMEOUT_MS=${Math.floor(idleTimeoutMs / 4)}`,
      };
    },
  },
  {
    name: 'node',
    needs: ['node'],
    source: '`process.version`',
    meaning: `The tests run on these lines of Node, which get security fixes until ${Object.entries(
      NODE_LINES,
    )
      .map(([line, end]) => `${end} (${line})`)
      .join(', ')}. A version without the fix of CVE-2026-111497 (Brotli) gets a note, too.`,
    judge({ node: { version, nowMs } }) {
      return {
        value: version,
        note: nodeNote(version, nowMs),
        fix: `install Node ${Object.keys(NODE_LINES).at(-1)}`,
      };
    },
  },
  {
    name: 'redis',
    needs: ['redisFault'],
    source: 'Redis: `INFO`',
    meaning:
      'Whether Redis answers. Without it the server starts, but publishes get `UNAVAILABLE` until Redis answers.',
    judge({ redisFault }) {
      if (redisFault === null) return null;
      return {
        value: redisFault === '' ? 'answers' : 'does not answer',
        fault: redisFault === '' ? undefined : `no answer (${redisFault})`,
        fix: 'start Redis, or correct its address and password in REDIS_URL or REDIS_*',
      };
    },
  },
  {
    name: 'redis-replica',
    needs: ['redisReplicas'],
    source: 'Redis and its replicas: `INFO`',
    meaning:
      'Whether each server of `REDIS_SUBSCRIBE_URL` is a replica of the primary, and its link is up. Otherwise the workers hear from the primary.',
    judge({ redisReplicas }) {
      if (redisReplicas === null) return null;
      return {
        value: redisReplicas.every(({ fault }) => fault === '') ? 'in step' : 'not all in step',
        fault:
          redisReplicas
            .filter(({ fault }) => fault !== '')
            .map(({ address, fault }) => `${address} ${fault}`)
            .join('; ') || undefined,
        fix: 'name replicas of the primary in REDIS_SUBSCRIBE_URL, and give them the user of the primary',
      };
    },
  },
  {
    name: 'redis-version',
    needs: ['redisVersion'],
    source: 'Redis: `INFO`',
    meaning: `Redis before 6.0 has no RESP3, which separates pushes from replies. Versions without these fixes get a note: ${STORE_FAULTS.map(fixText).join('; ')}.`,
    judge({ redisVersion }) {
      if (redisVersion === null) return null;
      const { product, version } = redisVersion;
      const isOld = Number.parseInt(version, 10) < 6;
      return {
        value: `${product} ${version}`,
        fault: isOld ? 'this version is older than 6.0 and no longer maintained' : undefined,
        note: storeNote(redisVersion),
        fix: 'install a maintained version of Redis or Valkey, or the security updates of your distribution',
      };
    },
  },
  {
    name: 'redis-pubsub-buffer',
    needs: ['redisPubsub'],
    source: 'Redis: `CONFIG GET client-output-buffer-limit`',
    meaning: `Output buffer of a subscriber. If a worker falls further behind, Redis disconnects it, and the worker loses the publications until it reconnects. The buffer must hold a burst of ${bytes(MAX_BYTES_TO_REDIS)}, which one worker may send. The soft limit counts if its time is shorter than \`FANFARE_WORKER_TIMEOUT_MS\`.`,
    judge({ redisPubsub }, { config }) {
      if (redisPubsub === null) return null;
      const { hard, soft, seconds } = redisPubsub;
      const bounds = [hard, seconds * 1000 < config.workerTimeoutMs ? soft : 0].filter(
        (bound) => bound > 0,
      );
      const holds = Math.min(...bounds, Number.POSITIVE_INFINITY);
      return {
        value: `hard ${hard === 0 ? 'none' : bytes(hard)}, soft ${soft === 0 ? 'none' : `${bytes(soft)} for ${seconds} s`}`,
        fault:
          holds < MAX_BYTES_TO_REDIS
            ? `Redis disconnects a worker that is ${bytes(holds)} behind`
            : undefined,
        fix: redisCli(config, 'client-output-buffer-limit "pubsub 268435456 67108864 60"'),
      };
    },
  },
  {
    name: 'redis-maxmemory',
    needs: ['redisMemory'],
    source: 'Redis: `INFO`',
    meaning:
      'Redis stores publications over `FANFARE_MAX_PUBSUB_BYTES`, histories and presence. When it is full, `noeviction` refuses new ones with an error to the publisher. Any other policy may evict accepted publications.',
    judge({ redisMemory }, { config }) {
      if (redisMemory === null) return null;
      const { max, used, policy } = redisMemory;
      /** @type {Judgement} */
      const judgement = {
        value: `${max === 0 ? 'no limit' : `${bytes(used)} of ${bytes(max)}`}, ${policy}`,
      };
      if (max === 0) return judgement;
      if (policy !== 'noeviction') {
        judgement.fault = `${policy} evicts accepted publications when memory runs out`;
        judgement.fix = redisCli(config, 'maxmemory-policy noeviction');
      } else if (used > REDIS_FULL * max) {
        judgement.fault = 'Redis is nearly full and about to refuse publications';
        judgement.fix = redisCli(config, `maxmemory ${powerOfTwo(2 * max)}`);
      }
      return judgement;
    },
  },
  {
    name: 'redis-persistence',
    needs: ['redisPersistence'],
    source: 'Redis: `INFO`, `CONFIG GET save`, `appendfsync`',
    meaning:
      'Redis keeps room histories, presence, and large publications for a minute; live delivery needs no persistence. After a crash of Redis, only the data that it had saved is left; idempotency keys and revocations are such data, too. The verdict is low if Redis refuses writes because it could not save.',
    judge({ redisPersistence }, { config }) {
      if (redisPersistence === null) return null;
      const { save, append, failed } = redisPersistence;
      const needsSaved =
        save === '' &&
        append === '' &&
        (config.history.length > 0 || config.tokens !== null || config.apiKeys.length > 0);
      const kept =
        append === 'always'
          ? 'AOF, always: a crash of Redis loses no history'
          : append === 'everysec'
            ? 'AOF, everysec: a crash of Redis loses a second of history'
            : append !== ''
              ? `AOF, ${append}: a crash of its machine loses up to half a minute of history`
              : save !== ''
                ? 'snapshots: a crash of Redis loses the history since the last one'
                : 'none: a restart of Redis loses all history';
      return {
        value: kept,
        fault: failed ? 'Redis could not write to its disk and refuses writes' : undefined,
        note: needsSaved
          ? 'a restart of Redis ends all room histories, idempotency keys and revocations'
          : undefined,
        fix: failed
          ? `free its disk, then ${redisCli(config, '', 'bgsave')}`
          : redisCli(config, 'appendonly yes'),
      };
    },
  },
  {
    name: 'redis-stream-node',
    needs: ['redisStreamNode'],
    source: 'Redis: `CONFIG GET stream-node-max-bytes`',
    meaning:
      'Memory that Redis reserves for the first messages of a room with history. With 4096, the default of Redis, a room takes at least 4.7 kB; with 1024 it takes 1.6 kB. Rooms with 20 or more messages take 5 to 10 % more with 1024.',
    judge({ redisStreamNode: node }, { config }) {
      if (node === null || config.history.length === 0) return null;
      const isLarge = node === 0 || node > DEFAULT_STREAM_NODE;
      return {
        value:
          node === 0
            ? 'no limit'
            : `${bytes(node)}${node === DEFAULT_STREAM_NODE ? '; 1 KiB saves memory if most rooms have few messages' : ''}`,
        fault: isLarge ? 'Redis reserves too much memory for each room with history' : undefined,
        fix: redisCli(config, 'stream-node-max-bytes 1024'),
      };
    },
  },
  {
    name: 'bucket',
    needs: ['bucket'],
    source: 'the bucket: PUT, GET and DELETE of 1 KB',
    meaning:
      'Whether the bucket of `FANFARE_BLOB_URL` stores, returns and deletes an object. Without it, uploads of large messages get 503.',
    judge({ bucket }) {
      if (bucket === null) return null;
      const { ms, fault } = bucket;
      return {
        value: `${fault === '' ? 'works' : 'fails'}, ${ms} ms`,
        fault: fault === '' ? undefined : fault,
        fix: 'check FANFARE_BLOB_URL, the AWS_* variables and the rights of the key (docs/large-messages.md)',
      };
    },
  },
  {
    name: 'pusher-apps',
    needs: [],
    source: '`FANFARE_PUSHER_APPS`',
    meaning:
      'Apps of Pusher clients. The verdict is a note if an app is shared, and native clients join its private channels without a signature, because no tokens are configured, or Pusher clients read native rooms without a token, because `publicRooms` names them.',
    judge(_readings, { config: { pusher, tokens } }) {
      if (pusher === null) return null;
      const shared = pusher.apps.find(({ isShared }) => isShared);
      const value = plural(pusher.apps.length, 'app');
      if (shared === undefined) return { value };
      const { id, publicRooms } = shared;
      /** @type {{note?: string, fix?: string}} */
      let advice = {};
      if (tokens === null)
        advice = {
          note: `native clients join the private channels of app ${id} without a signature`,
          fix: 'JWT_SECRET=…, or remove "shared" from the app',
        };
      else if (publicRooms === null || publicRooms.length > 0)
        advice = {
          note: `who knows the key of app ${id} reads these native rooms without a token: ${publicRooms?.join(', ') ?? 'all'}`,
          fix: `name only public rooms in "publicRooms" of app ${id}`,
        };
      return { value: `${value}, ${id} is shared`, ...advice };
    },
  },
  {
    name: 'centrifugo-tokens',
    needs: [],
    source: '`FANFARE_CENTRIFUGO_TOKENS`',
    meaning:
      'Tokens of Centrifugo’s clients. The verdict is a note if they are lenient: one without `exp` is valid until it is revoked.',
    judge(_readings, { config: { centrifugo, tokens } }) {
      if (centrifugo === null || tokens === null) return null;
      const { isLenient } = centrifugo;
      return {
        value: isLenient ? 'lenient' : 'strict',
        note: isLenient
          ? 'a token without exp is valid until it is revoked; revocations are kept for good, at most 100,000'
          : undefined,
        fix: isLenient ? 'sign tokens with exp, then FANFARE_CENTRIFUGO_TOKENS=strict' : undefined,
      };
    },
  },
]);

/**
 * @typedef {object} Finding
 * @property {string} name @property {string} value '' if it could not be read
 * @property {number|null} permits connections; null if no number applies
 * @property {boolean} binds whether `permits` limits the connections to this server
 * @property {'ok'|'note'|'low'|'cannot read'} verdict
 * @property {string} why the fault, the note, or the reason why it could not be read; '' if it is
 *   ok
 * @property {string} meaning @property {string|null} fix if it is low, or for a note
 */

/**
 * @typedef {object} Report
 * @property {number} wanted @property {number} workers
 * @property {string|null} first the limit that binds first: among the limits that are too low, the
 *   one that permits least, then those without a number. If none is too low, the next one to bind.
 *   null if no limit could be read
 * @property {number|null} permits connections that `first` permits
 * @property {'ok'|'low'} verdict low if some limit is too low
 * @property {Finding[]} limits
 */

/**
 * @param {PartialReadings} readings @param {Situation} situation @param {readonly Limit[]} [limits]
 * @returns {Report}
 */
export function examine(readings, situation, limits = LIMITS) {
  const findings = [];
  for (const limit of limits) {
    const finding = findingOf(limit, readings, situation);
    if (finding !== null) findings.push(finding);
  }
  let least;
  for (const one of findings) {
    if (one.binds && (least === undefined || Number(one.permits) < Number(least.permits)))
      least = one;
  }
  const low = findings.filter(({ verdict }) => verdict === 'low');
  const first = least?.verdict === 'low' ? least : (low[0] ?? least);
  return {
    wanted: situation.wanted,
    workers: situation.config.workers,
    first: first?.name ?? null,
    permits: first?.permits ?? null,
    verdict: low.length > 0 ? 'low' : 'ok',
    limits: findings,
  };
}

/**
 * @param {Limit} limit @param {PartialReadings} readings @param {Situation} situation
 * @returns {Finding|null} null if the limit does not apply
 */
function findingOf({ name, needs, meaning, judge }, readings, situation) {
  const unread = needs.map((key) => readings[key]).find((reading) => reading instanceof Unread);
  const judged =
    unread instanceof Unread ? UNREAD : judge(/** @type {Readings} */ (readings), situation);
  if (judged === null) return null;
  const { value, permits = null, isAside = false, fault = '', note = '', fix = null } = judged;
  const binds = permits !== null && !isAside;
  const isShort = binds && permits < situation.wanted;
  const isLow = isShort || fault !== '';
  const short = isShort
    ? `${withDigits(permits)} of the ${withDigits(situation.wanted)} wanted connections`
    : '';
  return {
    name,
    value,
    permits,
    binds,
    verdict: unread instanceof Unread ? 'cannot read' : isLow ? 'low' : note !== '' ? 'note' : 'ok',
    why: unread instanceof Unread ? unread.why : fault || short || note,
    meaning: meaning.replaceAll('`', ''),
    fix: isLow || note !== '' ? fix : null,
  };
}

/** @type {Judgement} */
const UNREAD = Object.freeze({ value: '' });

/** @param {number} files of a process @param {Config} config */
function connectionsOf(files, { overloadMode }) {
  // The reserve is used too if the limit is not enforced, and then accepting fails.
  return Math.max(
    0,
    (overloadMode === 'enforce' ? usableDescriptors(files) : files) - OWN_DESCRIPTORS,
  );
}

/** @param {number} memory bytes @param {Config} config */
function connectionsThatFit(memory, { workers }) {
  return Math.max(
    0,
    Math.floor((memory * MEMORY_SHARE - (workers + 1) * PROCESS_BYTES) / CONNECTION_BYTES),
  );
}

/** @param {number} connections @param {Config} config @returns {number} bytes */
function memoryFor(connections, { workers }) {
  return Math.ceil((connections * CONNECTION_BYTES + (workers + 1) * PROCESS_BYTES) / MEMORY_SHARE);
}

/** The time over which the clients of a drained server reconnect. @param {Config} config */
function windowSeconds({ reconnectWindowMs }) {
  return Math.max(1, Math.floor(reconnectWindowMs / 1000));
}

/**
 * Connections of a server whose clients can return through a queue, of which a second must fit.
 * @param {number} queue @param {Config} config
 */
function returnsThrough(queue, config) {
  // However few they are, they come at this rate. The backlog of the server is enough for it.
  const perSecond = Math.min(LISTEN_BACKLOG, RETURNS_PER_SECOND * config.workers);
  return queue < perSecond ? queue : queue * windowSeconds(config);
}

/**
 * Judges a kernel buffer that slow connections fill.
 * @param {string} name @param {readonly number[]} sizes least, first, most
 * @param {number} at index of the size that is filled
 * @param {readonly number[]} tcpMem @param {number} pageBytes @param {number} wanted
 * @returns {Judgement}
 */
function buffers(name, sizes, at, [, pressure], pageBytes, wanted) {
  const most = Math.floor((pressure * pageBytes * SLOW_ONE_IN) / wanted / 4096) * 4096;
  // Each size is at most the next one.
  const smaller = sizes.map((size, i) => (i <= at ? Math.min(size, most) : size));
  return {
    value: sizes.join(' '),
    permits: Math.floor((pressure * pageBytes * SLOW_ONE_IN) / sizes[at]),
    fix:
      most >= MIN_BUFFER_BYTES
        ? sysctl(name, smaller.join(' '))
        : tcpMemFix(Math.ceil((wanted * sizes[at]) / SLOW_ONE_IN / pageBytes)),
  };
}

/** @param {number} pages */
function tcpMemFix(pages) {
  return sysctl(
    'net.ipv4.tcp_mem',
    [Math.ceil(pages * 0.75), pages, Math.ceil(pages * 1.5)].join(' '),
  );
}

/** @param {string} name @param {string|number} value */
function sysctl(name, value) {
  return `sudo sysctl -w ${name}=${typeof value === 'string' ? `"${value}"` : value}`;
}

/**
 * A redis-cli command without credentials, which redis-cli takes from REDISCLI_AUTH.
 * @param {Config} config @param {string} setting @param {string} [command]
 */
function redisCli({ redis }, setting, command = `config set ${setting}`) {
  const { kind, addresses, tls } = /** @type {import('../config/redis.js').RedisSettings} */ (
    redis
  );
  const server = kind === 'server' ? addressText(addresses[0]) : '<each server>';
  return `redis-cli -u ${tls === null ? 'redis' : 'rediss'}://${server} ${command}`;
}

/** @param {number} number @returns {number} the next power of two */
function powerOfTwo(number) {
  return 2 ** Math.ceil(Math.log2(number));
}

/** Groups digits. toLocaleString would take 10 ms in a process that starts. @param {number} number */
export function withDigits(number) {
  if (number === Number.POSITIVE_INFINITY) return 'unlimited';
  return String(Math.round(number)).replace(/\B(?=(?:\d{3})+$)/g, ',');
}

/** @param {number} number @param {string} noun */
function plural(number, noun) {
  return `${withDigits(number)} ${noun}${number === 1 ? '' : 's'}`;
}

/** @param {number} number */
function bytes(number) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(units.length - 1, number < 1024 ? 0 : Math.floor(Math.log2(number) / 10));
  return `${Number((number / 1024 ** power).toPrecision(3))} ${units[power]}`;
}

/** @param {import('./versions.js').StoreFault} fault */
function fixText({ name, fixes }) {
  const versions = Object.entries(fixes).map(([product, list]) => `${product} ${list.join(', ')}`);
  return `${name}: ${versions.join(' and ')}`;
}
