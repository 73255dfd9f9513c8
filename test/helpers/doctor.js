// doctor.js: a machine whose limits are all high, and the doctor's report about it.

import assert from 'node:assert/strict';
import { loadConfig } from '../../src/config/config.js';
import { examine } from '../../src/doctor/limits.js';

const PLENTY = 1e9;
export const GIB = 2 ** 30;

/** A machine whose limits are all high. @returns {import('../../src/doctor/limits.js').Readings} */
export function plenty() {
  return {
    openFiles: { soft: PLENTY, hard: PLENTY },
    nrOpen: PLENTY,
    files: { used: 1000, max: PLENTY },
    somaxconn: 65_535,
    synBacklog: 65_535,
    synCookies: 1,
    deviceBacklog: 65_535,
    packets: { seen: PLENTY, dropped: 0 },
    ports: { first: 1024, last: 65_535, reserved: 0 },
    tcpMem: [PLENTY, PLENTY, PLENTY],
    tcpWmem: [4096, 16_384, 1_048_576],
    tcpRmem: [4096, 131_072, 6_291_456],
    pageBytes: 4096,
    tcpSockets: 10,
    conntrack: { max: PLENTY, used: 5 },
    memoryBytes: 1000 * GIB,
    cgroupMemory: { bytes: Number.POSITIVE_INFINITY, file: '' },
    heapBytes: 100 * GIB,
    node: { version: 'v26.12.1', nowMs: Date.parse('2026-11-23') },
    redisFault: '',
    redisReplicas: [{ address: 'near:6379', fault: '' }],
    redisVersion: { product: 'Redis', version: '8.10.1' },
    redisPubsub: { hard: 32 * 2 ** 20, soft: 8 * 2 ** 20, seconds: 60 },
    redisMemory: { max: 0, used: 1, policy: 'noeviction' },
    redisPersistence: { save: '3600 1', append: 'everysec', failed: false },
    redisStreamNode: 1024,
    bucket: { ms: 20, fault: '' },
  };
}

/** @param {Record<string, string>} [env] */
export function configOf(env = {}) {
  const { config, faults } = loadConfig({
    WORKERS: '4',
    REDIS_URL: 'redis://user:secret@example.org:7000/2',
    ...env,
  });
  assert.deepEqual(faults, []);
  return /** @type {import('../../src/config/settings.js').Config} */ (config);
}

/**
 * @param {import('../../src/doctor/limits.js').PartialReadings} readings
 * @param {object} [how]
 * @param {number} [how.wanted]
 * @param {'here'|'elsewhere'|null} [how.clients]
 * @param {number|null} [how.idleTimeoutMs]
 * @param {Record<string, string>} [how.env]
 */
export function look(
  readings,
  { wanted = 50_000, clients = null, idleTimeoutMs = null, env } = {},
) {
  return examine(readings, { wanted, clients, idleTimeoutMs, config: configOf(env) });
}

/** @param {import('../../src/doctor/limits.js').Report} report @param {string} name */
export function rowOf(report, name) {
  const row = report.limits.find((one) => one.name === name);
  assert.ok(row, `no row ${name}`);
  return row;
}

/** Files of a machine, by path; those of a container lack some. */
export const FILES = Object.freeze({
  '/proc/self/limits':
    'Limit                     Soft Limit           Hard Limit           Units     \nMax processes             96365                96365                processes \nMax open files            1024                 1048576              files     \n',
  '/proc/sys/fs/nr_open': '1048576\n',
  '/proc/sys/fs/file-nr': '450\t0\t9223372036854775807\n',
  '/proc/sys/net/core/somaxconn': '4096\n',
  '/proc/sys/net/ipv4/tcp_max_syn_backlog': '2048\n',
  '/proc/sys/net/ipv4/tcp_syncookies': '1\n',
  '/proc/sys/net/core/netdev_max_backlog': '1000\n',
  '/proc/net/softnet_stat':
    '0000000a 00000001 0000004f 00000000\n00000010 0000000f 00000038 00000000\n',
  '/proc/sys/net/ipv4/ip_local_port_range': '32768\t60999\n',
  '/proc/sys/net/ipv4/ip_local_reserved_ports': '3000,32768-32777,40000,60990-61010\n',
  '/proc/sys/net/ipv4/tcp_mem': '287901\t383869\t575802\n',
  '/proc/sys/net/ipv4/tcp_wmem': '4096\t16384\t4194304\n',
  '/proc/sys/net/ipv4/tcp_rmem': '4096\t131072\t33554432\n',
  '/proc/self/smaps':
    '00400000-00452000 r-xp 00000000 08:02 1 /usr/bin/x\nSize:   328 kB\nKernelPageSize:       64 kB\n',
  '/proc/net/sockstat':
    'sockets: used 13\nTCP: inuse 7 orphan 0 tw 0 alloc 9 mem 0\nUDP: inuse 0 mem 0\n',
  '/proc/sys/net/netfilter/nf_conntrack_max': '262144\n',
  '/proc/sys/net/netfilter/nf_conntrack_count': '12\n',
  '/proc/meminfo': 'MemTotal:       24684096 kB\nMemFree:        24248640 kB\n',
  '/proc/self/cgroup': '0::/system.slice/fanfare.service\n',
  '/proc/self/mountinfo':
    '31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n',
  '/sys/fs/cgroup/system.slice/fanfare.service/memory.max': 'max\n',
  '/sys/fs/cgroup/system.slice/fanfare.service/memory.high': 'max\n',
});

/**
 * @param {Record<string, string>} files
 * @param {readonly string[]} [forbidden]
 * @returns {import('../../src/doctor/read.js').ReadFile}
 */
export function reader(files, forbidden = []) {
  return (path) => {
    const code = forbidden.includes(path) ? 'EACCES' : path in files ? '' : 'ENOENT';
    if (code) throw Object.assign(new Error(`${code}: ${path}`), { code, path });
    return files[path];
  };
}
