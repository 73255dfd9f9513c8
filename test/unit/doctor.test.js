import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { loadConfig } from '../../src/config/config.js';
import { readBucket } from '../../src/doctor/bucket.js';
import { glance, parseOptions } from '../../src/doctor/doctor.js';
import { DEFAULT_WANTED, examine, LIMITS } from '../../src/doctor/limits.js';
import {
  parseInfo,
  parsePubsubBuffer,
  READERS,
  readMachine,
  readRedis,
  Unread,
  versionOf,
} from '../../src/doctor/read.js';
import { summary, toJson, toText } from '../../src/doctor/report.js';
import { NODE_LINES } from '../../src/doctor/versions.js';

const PLENTY = 1e9;
const GIB = 2 ** 30;

/** A machine whose limits are all high. @returns {import('../../src/doctor/limits.js').Readings} */
function plenty() {
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
    node: { version: 'v26.1.0', nowMs: Date.parse('2026-11-23') },
    redisVersion: { product: 'Redis', version: '8.2.2' },
    redisPubsub: { hard: 32 * 2 ** 20, soft: 8 * 2 ** 20, seconds: 60 },
    redisMemory: { max: 0, used: 1, policy: 'noeviction' },
    redisPersistence: { save: '3600 1', append: 'everysec', failed: false },
    redisStreamNode: 1024,
    bucket: { ms: 20, fault: '' },
  };
}

/** @param {Record<string, string>} [env] */
function configOf(env = {}) {
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
function look(readings, { wanted = 50_000, clients = null, idleTimeoutMs = null, env } = {}) {
  return examine(readings, { wanted, clients, idleTimeoutMs, config: configOf(env) });
}

/** @param {import('../../src/doctor/limits.js').Report} report @param {string} name */
function rowOf(report, name) {
  const row = report.limits.find((one) => one.name === name);
  assert.ok(row, `no row ${name}`);
  return row;
}

/**
 * Each limit as the lowest: the reading, the connections it then permits, and its fix.
 * @type
 *   {readonly [string, Partial<ReturnType<typeof plenty>>, number|null, RegExp, Parameters<typeof look>[1]?][]}
 */
const LOWEST = [
  // 4 workers x (4,096 - 256 in reserve - 64 of its own).
  [
    'nofile',
    { openFiles: { soft: 4096, hard: 4096 } },
    15_104,
    /^sudo prlimit --pid \$\$ --nofile=16384:16384 .*LimitNOFILE=16384.*WORKERS=14$/,
  ],
  ['fs.nr_open', { nrOpen: 4096 }, 15_104, /sysctl -w fs\.nr_open=16384$/],
  // Of 3,000 in use 10 are TCP sockets.
  ['fs.file-max', { files: { used: 3000, max: 9000 } }, 6010, /sysctl -w fs\.file-max=65536$/],
  // (0.8 x 1 GiB - 5 processes x 40 MB) / 10,700 bytes.
  [
    'memory',
    { memoryBytes: GIB },
    61_588,
    /^a machine with 12\.7 GiB/,
    { wanted: 1_000_000, env: { WORKERS: '4', FANFARE_RECONNECT_WINDOW_MS: '600000' } },
  ],
  [
    'cgroup-memory',
    { cgroupMemory: { bytes: GIB / 2, file: '/sys/fs/cgroup/a/memory.max' } },
    21_448,
    /MemoryMax=877M; otherwise echo 877M \| sudo tee \/sys\/fs\/cgroup\/a\/memory\.max$/,
  ],
  // 4 x (0.8 x 64 MiB - 15 MB) / 6,300 bytes.
  ['heap', { heapBytes: 64 * 2 ** 20 }, 24_560, /^NODE_OPTIONS=--max-old-space-size=112$/],
  [
    'net.netfilter.nf_conntrack_max',
    { conntrack: { max: 32_768, used: 30_000 } },
    32_768,
    /nf_conntrack_max=131072$/,
  ],
  // A second of a return over 20 s.
  [
    'net.core.somaxconn',
    { somaxconn: 128 },
    2560,
    /sysctl -w net\.core\.somaxconn=4096 and restart/,
  ],
  ['net.ipv4.tcp_max_syn_backlog', { synBacklog: 128, synCookies: 0 }, 1920, /tcp_syncookies=1$/],
  [
    'net.core.netdev_max_backlog',
    { packets: { seen: 1_000_000, dropped: 101 } },
    null,
    /netdev_max_backlog=131070$/,
  ],
  [
    'net.ipv4.ip_local_port_range',
    { ports: { first: 40_000, last: 40_999, reserved: 10 } },
    990,
    /ip_local_port_range="10000 65535"$/,
  ],
  [
    'net.ipv4.tcp_mem',
    { tcpMem: [20_000, 25_000, 40_000], tcpWmem: [4096, 8192, 8192], tcpRmem: [4096, 8192, 8192] },
    25_000,
    /tcp_mem="37500 50000 75000"$/,
  ],
  // 400 MiB hold 25 readers of 16 MiB that do not read, and so 25,000 connections.
  [
    'net.ipv4.tcp_wmem',
    { tcpMem: [76_800, 102_400, 153_600], tcpWmem: [4096, 16_384, 16_777_216] },
    25_000,
    /tcp_wmem="4096 16384 8388608"$/,
  ],
  [
    'net.ipv4.tcp_rmem',
    { tcpMem: [25_600, 51_200, 51_200], tcpRmem: [4096, 16_777_216, 33_554_432] },
    12_500,
    /tcp_rmem="4096 4194304 33554432"$/,
  ],
  ['connections-per-address', {}, 100, /TRUST_PROXY=127\.0\.0\.1\/32/, { clients: 'here' }],
  [
    'lb-idle-timeout',
    {},
    0,
    /proxy_read_timeout 40s;.* FANFARE_PING_INTERVAL_MS=10000 FANFARE_PONG_TIMEOUT_MS=5000$/,
    { idleTimeoutMs: 20_000 },
  ],
  ['redis-version', { redisVersion: { product: 'Redis', version: '5.0.14' } }, null, /./],
  [
    'redis-pubsub-buffer',
    { redisPubsub: { hard: 2 ** 20, soft: 0, seconds: 0 } },
    null,
    /^redis-cli -u redis:\/\/example\.org:7000 config set client-output-buffer-limit "pubsub \d+ \d+ \d+"$/,
  ],
  [
    'redis-maxmemory',
    { redisMemory: { max: GIB, used: 1, policy: 'allkeys-lru' } },
    null,
    /config set maxmemory-policy noeviction$/,
  ],
  [
    'redis-persistence',
    { redisPersistence: { save: '60 1', append: '', failed: true } },
    null,
    /bgsave$/,
  ],
  [
    'redis-stream-node',
    { redisStreamNode: 16_384 },
    null,
    /config set stream-node-max-bytes 1024$/,
    { env: { FANFARE_HISTORY: 'chat.*=10/1h' } },
  ],
  ['bucket', { bucket: { ms: 20, fault: 'the bucket answered 403' } }, null, /FANFARE_BLOB_URL/],
];

test('every limit has a case', () => {
  assert.deepEqual(
    LOWEST.map(([name]) => name),
    LIMITS.map(({ name }) => name).filter((name) => name !== 'node'), // it has notes only
  );
});

for (const [name, lowered, permits, fix, how] of LOWEST) {
  test(`if ${name} is the lowest limit, it is named first, with its connections and its fix`, () => {
    const report = look({ ...plenty(), ...lowered }, how);
    assert.equal(report.first, name);
    assert.equal(report.permits, permits);
    assert.equal(report.verdict, 'low');
    const row = rowOf(report, name);
    assert.equal(row.verdict, 'low');
    assert.match(String(row.fix), fix);
    assert.ok(row.why);
    // Nothing else is to blame; but a worker's heap is a part of the memory.
    const isMemory = name === 'memory' || name === 'cgroup-memory';
    assert.deepEqual(
      report.limits.filter(({ verdict }) => verdict === 'low').map((one) => one.name),
      isMemory ? [name, 'heap'] : [name],
    );
    if (isMemory) assert.match(String(rowOf(report, 'heap').fix), /^more memory, or fewer WORKERS/);
  });
}

test('a version of Node without support is a note, which changes neither verdict nor exit code', () => {
  /** @type {[version: string, day: string, note: RegExp|null][]} */
  const cases = [
    ['v20.20.2', '2026-04-30T23:00Z', null],
    ['v20.20.2', '2026-05-01', /Node 20 has had no security fixes .* ended on 2026-04-30$/],
    ['v22.23.3', '2027-04-30', null],
    ['v22.23.3', '2027-05-01', /Node 22 .* ended on 2027-04-30$/],
    ['v24.21.0', '2028-05-01', /Node 24 .* ended on 2028-04-30$/],
    ['v26.10.0', '2029-04-30', null],
    ['v26.10.0', '2029-05-01', /Node 26 .* ended on 2029-04-30$/],
    ['v25.1.0', '2026-01-01', /Node 25 is not among the tested lines \(20, 22, 24, 26\)$/],
    ['v28.0.0', '2028-05-01', /not among the tested lines/],
  ];
  for (const [version, day, note] of cases) {
    const report = look({ ...plenty(), node: { version, nowMs: Date.parse(day) } });
    const row = rowOf(report, 'node');
    assert.deepEqual([report.verdict, row.value], ['ok', version]);
    assert.equal(row.verdict, note === null ? 'ok' : 'note', `${version} on ${day}`);
    if (note === null) assert.equal(row.fix, null);
    else {
      assert.match(row.why, note);
      assert.equal(row.fix, 'install Node 26');
      assert.match(toText(report, []), /\nnode: Node .*\n(?: {2}.*\n)+ {2}Fix: install Node 26$/m);
    }
  }
});

test('a version of Redis without the Lua fixes of 2025 is a note', () => {
  /** @type {[info: string, hasFix: boolean, value: string][]} */
  const cases = [
    ['redis_version:6.0.16', false, 'Redis 6.0.16'],
    ['redis_version:6.2.19', false, 'Redis 6.2.19'],
    ['redis_version:6.2.20', true, 'Redis 6.2.20'],
    ['redis_version:7.0.15', false, 'Redis 7.0.15'],
    ['redis_version:7.2.10', false, 'Redis 7.2.10'],
    ['redis_version:7.2.11', true, 'Redis 7.2.11'],
    ['redis_version:7.4.6', true, 'Redis 7.4.6'],
    ['redis_version:8.0.3', false, 'Redis 8.0.3'],
    ['redis_version:8.2.1', false, 'Redis 8.2.1'],
    ['redis_version:8.2.2', true, 'Redis 8.2.2'],
    ['redis_version:8.4.0', true, 'Redis 8.4.0'],
    ['redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.10', false, 'Valkey 7.2.10'],
    ['redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.6', true, 'Valkey 8.0.6'],
    ['redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1', false, 'Valkey 8.1.1'],
    ['redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.0', true, 'Valkey 9.0.0'],
  ];
  for (const [info, hasFix, value] of cases) {
    const report = look({ ...plenty(), redisVersion: versionOf(parseInfo(info)) });
    const row = rowOf(report, 'redis-version');
    assert.deepEqual([report.verdict, row.value], ['ok', value]);
    assert.equal(row.verdict, hasFix ? 'ok' : 'note', value);
    if (!hasFix) assert.match(row.why, /no fix for CVE-2025-49844/);
  }
});

test('all files that list the lines of Node list the same ones', () => {
  const lines = Object.keys(NODE_LINES);
  const newest = lines.at(-1);
  const [floor, ...others] = lines;
  const read = (/** @type {string} */ file) =>
    readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');
  assert.match(read('package.json'), new RegExp(`"node": ">=${floor}\\.`));
  assert.match(read('package.json'), new RegExp(`"@types/node": "\\^${floor}\\.`));
  assert.match(
    read('README.md'),
    new RegExp(`Node ${lines.slice(0, -1).join(', ')} and ${newest}`),
  );
  const list = `Node ${others.slice(0, -1).join(', ')} and ${newest}`;
  for (const file of ['test/README.md', 'test/setup.sh', 'CONTRIBUTING.md'])
    assert.ok(read(file).includes(list), file);
  assert.ok(read('test/nodes.sh').includes(`VERSIONS="${others.join(' ')}"\nNEWEST=${newest}\n`));
  const images = [...read('docker/Dockerfile').matchAll(/^FROM node:(\d+)-/gm)].map(([, n]) => n);
  assert.ok(images.length > 1 && images.every((line) => line === newest));
});

test('a machine that holds the wanted connections is ok, and the next limit to bind is named', () => {
  const report = look({ ...plenty(), conntrack: { max: 60_000, used: 0 } });
  assert.equal(report.verdict, 'ok');
  assert.equal(report.first, 'net.netfilter.nf_conntrack_max');
  assert.equal(report.permits, 60_000);
  assert.ok(report.limits.every(({ fix, why }) => fix === null && why === ''));
});

test('if several limits are too low, the lowest is first, and one without a number comes after them', () => {
  const redisVersion = /** @type {const} */ ({ product: 'Redis', version: '5.0.0' });
  const low = { conntrack: { max: 40_000, used: 0 }, somaxconn: 128, redisVersion };
  assert.equal(look({ ...plenty(), ...low }).first, 'net.core.somaxconn');
  assert.equal(
    look({ ...plenty(), redisVersion, conntrack: { max: 60_000, used: 0 } }).first,
    'redis-version',
  );
});

test('a limit that cannot be read is reported, and does not bind', () => {
  const unread = new Unread('no permission to read it');
  const readings = Object.fromEntries(Object.keys(plenty()).map((key) => [key, unread]));
  const report = look(/** @type {any} */ (readings), { env: { FANFARE_LIMITS: 'off' } });
  assert.equal(report.first, null);
  assert.equal(report.verdict, 'ok');
  const row = rowOf(report, 'nofile');
  assert.deepEqual(
    [row.verdict, row.why, row.permits],
    ['cannot read', 'no permission to read it', null],
  );
  assert.match(toText(report, []), /First to bind: unknown, because no limit could be read/);
});

test('a missing reading affects only the limits that need it', () => {
  const report = look({
    ...plenty(),
    tcpMem: new Unread('there is no tcp_mem here'),
    conntrack: { max: 100, used: 0 },
  });
  assert.equal(report.first, 'net.netfilter.nf_conntrack_max');
  const unread = report.limits
    .filter(({ verdict }) => verdict === 'cannot read')
    .map(({ name }) => name);
  assert.deepEqual(unread, ['net.ipv4.tcp_mem', 'net.ipv4.tcp_wmem', 'net.ipv4.tcp_rmem']);
});

test('if the kernel does not track connections, and without Redis, their rows are absent', () => {
  const none = {
    conntrack: null,
    redisVersion: null,
    redisPubsub: null,
    redisMemory: null,
    redisPersistence: null,
    redisStreamNode: null,
  };
  const names = look({ ...plenty(), ...none }, { env: { REDIS_URL: '' } }).limits.map(
    ({ name }) => name,
  );
  assert.deepEqual(
    names.filter((name) => /redis|conntrack|lb-/.test(name)),
    [],
  );
});

test('ports limit only the connections that this machine opens', () => {
  const name = 'net.ipv4.ip_local_port_range';
  const standard = { ...plenty(), ports: { first: 32_768, last: 60_999, reserved: 0 } };
  const narrow = { ...plenty(), ports: { first: 40_000, last: 40_999, reserved: 0 } };
  const env = { FANFARE_LIMITS: 'off' };
  /** @param {ReturnType<typeof plenty>} readings @param {'here'|'elsewhere'|null} clients */
  const judged = (readings, clients) => {
    const { permits, binds, verdict } = rowOf(look(readings, { clients, env }), name);
    return [permits, binds, verdict];
  };
  assert.deepEqual(judged(standard, 'here'), [28_232, true, 'low']);
  assert.deepEqual(judged(standard, null), [28_232, false, 'ok']);
  assert.deepEqual(judged(narrow, null), [1000, true, 'low']);
  assert.deepEqual(judged(narrow, 'elsewhere'), [1000, false, 'ok']);
  const { fix } = rowOf(look(standard, { clients: 'here', env, wanted: 100_000 }), name);
  assert.match(String(fix), /"10000 65535" and 2 source addresses/);
});

test('the cap per address binds if all clients share one address and the cap is enforced', () => {
  const name = 'connections-per-address';
  /** @param {Record<string, string>} env @param {'here'|null} clients */
  const binds = (env, clients) => rowOf(look(plenty(), { env, clients }), name).binds;
  assert.equal(binds({}, 'here'), true);
  assert.equal(binds({}, null), false);
  assert.equal(binds({ TRUST_PROXY: '1' }, 'here'), false);
  assert.equal(binds({ FANFARE_LIMITS: 'observe' }, 'here'), false);
});

test('with Redis the cap per address is one over all servers, unless that is off', () => {
  /** @param {Record<string, string>} env */
  const value = (env) => rowOf(look(plenty(), { env }), 'connections-per-address').value;
  assert.equal(value({}), '100 per address, over all servers');
  assert.equal(value({ FANFARE_FLEET_LIMITS_MODE: 'observe' }), '100 per address');
});

test('without the reserve, a worker uses all its descriptors', () => {
  const readings = { ...plenty(), openFiles: { soft: 4096, hard: 8192 } };
  const { permits, value } = rowOf(look(readings, { env: { FANFARE_LIMITS: 'off' } }), 'nofile');
  assert.equal(permits, 4 * (4096 - 64));
  assert.equal(value, '4,096 of 8,192 per process, 4 workers');
  assert.equal(
    rowOf(look({ ...plenty(), openFiles: { soft: 50, hard: 50 } }), 'nofile').permits,
    0,
  );
});

test('the listen backlog is the length that the server requests, even if the kernel would allow more', () => {
  const { permits, fix } = rowOf(look(plenty(), { wanted: 100_000 }), 'net.core.somaxconn');
  assert.equal(permits, 4096 * 20);
  assert.equal(fix, 'FANFARE_RECONNECT_WINDOW_MS=25000');
  assert.equal(
    rowOf(look(plenty(), { env: { FANFARE_RECONNECT_WINDOW_MS: '0' } }), 'net.core.somaxconn')
      .permits,
    4096,
  );
});

test('an idle time-out must be longer than the ping interval and the pong time-out together', () => {
  /** @param {number} idleTimeoutMs */
  const judged = (idleTimeoutMs) => {
    const { permits, verdict } = rowOf(look(plenty(), { idleTimeoutMs }), 'lb-idle-timeout');
    return [permits, verdict];
  };
  assert.deepEqual(judged(30_000), [0, 'low']);
  assert.deepEqual(judged(35_000), [null, 'low']);
  assert.deepEqual(judged(40_000), [null, 'ok']);
});

test('the soft limit of a subscriber counts if Redis acts on it before a hung worker is replaced', () => {
  /** @param {number} hard @param {number} soft @param {number} seconds */
  const verdict = (hard, soft, seconds) =>
    rowOf(look({ ...plenty(), redisPubsub: { hard, soft, seconds } }), 'redis-pubsub-buffer')
      .verdict;
  const mib = 2 ** 20;
  assert.equal(verdict(0, 0, 0), 'ok');
  assert.equal(verdict(32 * mib, 8 * mib, 60), 'ok');
  assert.equal(verdict(256 * mib, 8 * mib, 9), 'low');
  assert.equal(verdict(0, 8 * mib, 9), 'low');
  assert.equal(verdict(32 * mib - 1, 0, 0), 'low');
});

test('the persistence of Redis and its policy when its memory is full are reported', () => {
  /** @param {Partial<ReturnType<typeof plenty>>} readings @param {string} name */
  const row = (readings, name) => rowOf(look({ ...plenty(), ...readings }), name);
  const kept = (/** @type {string} */ save, /** @type {string} */ append) =>
    row({ redisPersistence: { save, append, failed: false } }, 'redis-persistence').value.split(
      ':',
    )[0];
  assert.deepEqual(
    [kept('', ''), kept('60 1', ''), kept('60 1', 'everysec'), kept('', 'always'), kept('', 'no')],
    ['none', 'snapshots', 'AOF, everysec', 'AOF, always', 'AOF, no'],
  );
  const memory = (/** @type {number} */ used) =>
    row({ redisMemory: { max: 1000, used, policy: 'noeviction' } }, 'redis-maxmemory').verdict;
  assert.deepEqual([memory(900), memory(901)], ['ok', 'low']);
});

test('a Redis that saves nothing is a note if something would be lost', () => {
  const readings = { ...plenty(), redisPersistence: { save: '', append: '', failed: false } };
  const kept = { ...plenty(), redisPersistence: { save: '', append: 'everysec', failed: false } };
  for (const env of /** @type {Record<string, string>[]} */ ([
    { FANFARE_HISTORY: 'chat.*=10/1h' },
    { JWT_SECRET: 's'.repeat(32) },
    { API_KEYS: `web ${'k'.repeat(32)} publish` },
  ])) {
    const row = rowOf(look(readings, { env }), 'redis-persistence');
    assert.equal(row.verdict, 'note', JSON.stringify(env));
    assert.match(row.why, /ends all room histories, idempotency keys and revocations$/);
    assert.match(String(row.fix), /config set appendonly yes$/);
    assert.equal(rowOf(look(kept, { env }), 'redis-persistence').verdict, 'ok');
  }
  // Live delivery and presence need nothing that Redis keeps.
  assert.equal(rowOf(look(readings), 'redis-persistence').verdict, 'ok');
});

test('the default node of a stream is no fault, and is reported only if rooms have history', () => {
  const readings = { ...plenty(), redisStreamNode: 4096 };
  const env = { FANFARE_HISTORY: 'chat.*=10/1h' };
  const row = rowOf(look(readings, { env }), 'redis-stream-node');
  assert.equal(row.verdict, 'ok');
  assert.match(row.value, /^4 KiB; 1 KiB saves memory/);
  const without = look(readings).limits.map(({ name }) => name);
  assert.ok(!without.includes('redis-stream-node'));
});

test('no fix shows a credential', () => {
  const report = look({ ...plenty(), redisPubsub: { hard: 1, soft: 1, seconds: 1 } });
  assert.ok(!toText(report, []).includes('secret'));
});

/** Files of a machine, by path; those of a container lack some. */
const FILES = Object.freeze({
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
function reader(files, forbidden = []) {
  return (path) => {
    const code = forbidden.includes(path) ? 'EACCES' : path in files ? '' : 'ENOENT';
    if (code) throw Object.assign(new Error(`${code}: ${path}`), { code, path });
    return files[path];
  };
}

const KEYS = /** @type {(keyof typeof READERS)[]} */ (Object.keys(READERS));

test('every file is parsed in the format of the kernel', () => {
  const { heapBytes, node, ...machine } = readMachine(KEYS, 'self', reader(FILES));
  assert.deepEqual(machine, {
    openFiles: { soft: 1024, hard: 1_048_576 },
    nrOpen: 1_048_576,
    files: { used: 450, max: Number('9223372036854775807') },
    somaxconn: 4096,
    synBacklog: 2048,
    synCookies: 1,
    deviceBacklog: 1000,
    packets: { seen: 26, dropped: 16 },
    // 10 + 1 + 10 of those in the range.
    ports: { first: 32_768, last: 60_999, reserved: 21 },
    tcpMem: [287_901, 383_869, 575_802],
    tcpWmem: [4096, 16_384, 4_194_304],
    tcpRmem: [4096, 131_072, 33_554_432],
    pageBytes: 65_536,
    tcpSockets: 7,
    conntrack: { max: 262_144, used: 12 },
    memoryBytes: 24_684_096 * 1024,
    cgroupMemory: { bytes: Number.POSITIVE_INFINITY, file: '' },
  });
  assert.ok(Number(heapBytes) > 2 ** 20);
  assert.ok(!(node instanceof Unread));
  assert.equal(node.version, process.version);
});

test('unlimited open files are read as such, and another process has its own limit', () => {
  const files = {
    '/proc/42/limits':
      'Max open files            unlimited            unlimited            files     \n',
  };
  const { openFiles, heapBytes, node } = readMachine(
    ['openFiles', 'heapBytes', 'node'],
    '42',
    reader(files),
  );
  assert.deepEqual(openFiles, { soft: Number.POSITIVE_INFINITY, hard: Number.POSITIVE_INFINITY });
  assert.ok(heapBytes instanceof Unread);
  assert.ok(node instanceof Unread);
});

test('an empty line means no reserved ports', () => {
  const files = { ...FILES, '/proc/sys/net/ipv4/ip_local_reserved_ports': '\n' };
  assert.deepEqual(readMachine(['ports'], 'self', reader(files)).ports, {
    first: 32_768,
    last: 60_999,
    reserved: 0,
  });
});

test('if a file is missing, forbidden or malformed, the report has the reason', () => {
  const nothing = readMachine(KEYS, 'self', reader({}));
  for (const [key, reading] of Object.entries(nothing)) {
    if (key === 'heapBytes' || key === 'node') continue; // not of a file
    // No such file is how a kernel says that it tracks no connections.
    if (key === 'conntrack') assert.equal(reading, null);
    else
      assert.ok(reading instanceof Unread && /^\/proc\/\S+ does not exist$/.test(reading.why), key);
  }
  const forbidden = readMachine(['nrOpen'], 'self', reader(FILES, ['/proc/sys/fs/nr_open'])).nrOpen;
  assert.deepEqual(forbidden, new Unread('no permission to read /proc/sys/fs/nr_open'));
  const garbage = Object.fromEntries(Object.keys(FILES).map((path) => [path, 'what is this?\n']));
  const { heapBytes, node: _node, ...rest } = readMachine(KEYS, 'self', reader(garbage));
  assert.ok(!(heapBytes instanceof Unread));
  for (const [key, reading] of Object.entries(rest)) {
    assert.ok(
      reading instanceof Unread && /^\/proc\/\S+ has an unexpected format$/.test(reading.why),
      key,
    );
  }
});

/** @type {readonly [string, Record<string, string>, number, string][]} */
const GROUPS = [
  [
    'v2: the group’s own limit',
    { '/sys/fs/cgroup/system.slice/fanfare.service/memory.max': '536870912\n' },
    536_870_912,
    '/sys/fs/cgroup/system.slice/fanfare.service/memory.max',
  ],
  [
    'v2: memory.high, from which on it is throttled, where it is less',
    {
      '/sys/fs/cgroup/system.slice/fanfare.service/memory.max': '536870912\n',
      '/sys/fs/cgroup/system.slice/fanfare.service/memory.high': '400000000\n',
    },
    400_000_000,
    '/sys/fs/cgroup/system.slice/fanfare.service/memory.high',
  ],
  [
    'v2: a lower limit further up',
    {
      '/sys/fs/cgroup/system.slice/fanfare.service/memory.max': '536870912\n',
      '/sys/fs/cgroup/system.slice/memory.max': '268435456\n',
    },
    268_435_456,
    '/sys/fs/cgroup/system.slice/memory.max',
  ],
  [
    'v2 in a container with a namespace of its own',
    { '/proc/self/cgroup': '0::/\n', '/sys/fs/cgroup/memory.max': '1073741824\n' },
    1_073_741_824,
    '/sys/fs/cgroup/memory.max',
  ],
  [
    'v2: a path with a colon, and a mount point with a blank',
    {
      '/proc/self/cgroup': '0::/a:b\n',
      '/proc/self/mountinfo': '31 23 0:28 / /mnt/my\\040groups rw - cgroup2 none rw\n',
      '/mnt/my groups/a:b/memory.max': '4096000\n',
    },
    4_096_000,
    '/mnt/my groups/a:b/memory.max',
  ],
  [
    'v1: a limit',
    {
      '/proc/self/cgroup': '5:cpu,cpuacct:/x\n4:memory:/a/b\n',
      '/proc/self/mountinfo':
        '30 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n',
      '/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes': '9223372036854771712\n',
      '/sys/fs/cgroup/memory/a/memory.limit_in_bytes': '134217728\n',
      '/sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
    },
    134_217_728,
    '/sys/fs/cgroup/memory/a/memory.limit_in_bytes',
  ],
  [
    'v1 in a container: the path is the host’s, the mount is the group; a limit above it shows in its statistics',
    {
      '/proc/self/cgroup': '4:memory:/docker/0123\n0::/\n',
      '/proc/self/mountinfo':
        '35 31 0:32 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n',
      '/sys/fs/cgroup/memory/memory.limit_in_bytes': '268435456\n',
      '/sys/fs/cgroup/memory/memory.stat': 'cache 0\nhierarchical_memory_limit 67108864\n',
    },
    67_108_864,
    '/sys/fs/cgroup/memory/memory.limit_in_bytes',
  ],
  [
    'v2 in a container that sees the host’s paths: a group below the mount',
    {
      '/proc/self/cgroup': '0::/docker/0123/app\n',
      '/proc/self/mountinfo': '31 23 0:28 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n',
      '/sys/fs/cgroup/app/memory.max': '268435456\n',
      '/sys/fs/cgroup/memory.max': 'max\n',
    },
    268_435_456,
    '/sys/fs/cgroup/app/memory.max',
  ],
  [
    'both: v1 has the memory controller, v2 none',
    {
      '/proc/self/cgroup': '4:memory:/s\n0::/t\n',
      '/proc/self/mountinfo':
        '35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n',
      '/sys/fs/cgroup/memory/s/memory.limit_in_bytes': '9223372036854771712\n',
    },
    Number.POSITIVE_INFINITY,
    '',
  ],
];

for (const [name, files, bytes, file] of GROUPS) {
  test(`the memory of a control group, ${name}`, () => {
    const { cgroupMemory } = readMachine(['cgroupMemory'], 'self', reader({ ...FILES, ...files }));
    assert.deepEqual(cgroupMemory, { bytes, file });
  });
}

test('a control group whose limit may not be read does not count as unlimited', () => {
  const path = '/sys/fs/cgroup/system.slice/fanfare.service/memory.max';
  const { cgroupMemory } = readMachine(['cgroupMemory'], 'self', reader(FILES, [path]));
  assert.deepEqual(cgroupMemory, new Unread(`no permission to read ${path}`));
});

test('the answers of Redis are parsed', () => {
  const info = parseInfo(
    '# Server\r\nredis_version:7.0.15\r\nexecutable:/a:b\r\n\r\n# Memory\r\nmaxmemory:0\r\n',
  );
  assert.deepEqual(
    [...info],
    [
      ['redis_version', '7.0.15'],
      ['executable', '/a:b'],
      ['maxmemory', '0'],
    ],
  );
  assert.deepEqual(
    parsePubsubBuffer('normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60'),
    {
      hard: 33_554_432,
      soft: 8_388_608,
      seconds: 60,
    },
  );
  assert.throws(() => parsePubsubBuffer(''), /nothing about pubsub/);
});

test('a configuration without a bucket is not a fault, and a bucket that is away is one', async () => {
  assert.deepEqual(await readBucket({ blobs: null, blobTimeoutMs: 100 }), { bucket: null });
  const blobs = {
    url: 'http://127.0.0.1:1/bucket',
    publicUrl: 'http://127.0.0.1:1/bucket',
    region: '',
    accessKeyId: 'AKIDEXAMPLE',
    secretAccessKey: 'secret-key',
    sessionToken: '',
  };
  const { bucket } = await readBucket({ blobs, blobTimeoutMs: 100 });
  assert.equal(bucket?.fault, 'the bucket failed: ECONNREFUSED');
});

test('a configuration without Redis is not a fault', async () => {
  assert.deepEqual(await readRedis(null), {
    redisVersion: null,
    redisPubsub: null,
    redisMemory: null,
    redisPersistence: null,
    redisStreamNode: null,
  });
});

test('the start of a server reports a limit that is too low, and nothing else', () => {
  const read = reader(FILES);
  const config = configOf();
  assert.equal(
    glance(
      config,
      reader({
        ...FILES,
        '/proc/self/limits': FILES['/proc/self/limits'].replace('1024 ', '4096 '),
      }),
    ),
    '',
  );
  assert.equal(
    glance(config, read),
    'low system limit: nofile, at 2,816 connections: run "npm run doctor" (or "fanfare doctor") for the fix',
  );
  // Not Linux: nothing can be read, and nothing is wrong.
  assert.equal(glance(config, reader({})), '');
  const names = LIMITS.filter(({ atStart }) => atStart).flatMap(({ needs }) => needs);
  assert.ok(
    names.every((name) => name in READERS),
    'no question to Redis at a start',
  );
});

test('the command line is parsed, and its faults are reported', () => {
  assert.deepEqual(parseOptions([]), {
    wanted: DEFAULT_WANTED,
    pid: null,
    clients: null,
    idleTimeoutMs: null,
    webhooks: false,
    json: false,
    help: false,
  });
  const args = [
    '--connections',
    '50000',
    '--pid',
    '42',
    '--clients',
    'here',
    '--lb-idle-timeout',
    '2m',
    '--json',
  ];
  assert.deepEqual(parseOptions(args), {
    wanted: 50_000,
    pid: '42',
    clients: 'here',
    idleTimeoutMs: 120_000,
    webhooks: false,
    json: true,
    help: false,
  });
  /** @type {[string[], RegExp][]} */
  const faults = [
    [['--connections', '0'], /--connections: 0/],
    [['--connections', '1e5'], /--connections: 1e5/],
    [['--pid', 'self'], /--pid: self/],
    [['--clients', 'there'], /--clients: there/],
    [['--lb-idle-timeout', '60'], /with a unit/],
    [['--wanted', '1'], /--wanted/],
    [['1000'], /1000/],
  ];
  for (const [wrong, message] of faults) assert.throws(() => parseOptions(wrong), message);
});

test('the JSON has the fields that docs/operations.md names', () => {
  const report = look({ ...plenty(), somaxconn: 128 });
  const json = JSON.parse(toJson(report, ['a note']));
  assert.deepEqual(Object.keys(json), [
    'format',
    'wanted',
    'workers',
    'verdict',
    'first',
    'permits',
    'limits',
    'notes',
  ]);
  assert.deepEqual(
    [json.format, json.wanted, json.workers, json.verdict, json.first, json.permits, json.notes],
    [1, 50_000, 4, 'low', 'net.core.somaxconn', 2560, ['a note']],
  );
  const fields = ['name', 'value', 'permits', 'binds', 'verdict', 'why', 'meaning', 'fix'];
  for (const row of json.limits) assert.deepEqual(Object.keys(row), fields);
});

test('the table has a row for each limit, and a fix for each low one', () => {
  const report = look({ ...plenty(), somaxconn: 128 }, { clients: 'elsewhere' });
  const text = toText(report, ['a note']);
  for (const { name } of report.limits)
    assert.match(text, new RegExp(`^${name.replaceAll('.', '\\.')} `, 'm'));
  assert.match(text, /^net\.core\.somaxconn +128, listen backlog 128 +2,560 {2}low$/m);
  // Informative only; it does not bind here.
  assert.match(text, /ip_local_port_range .* \(64,512\) {2}ok$/m);
  assert.match(text, /^First to bind: net\.core\.somaxconn, at 2,560 connections$/m);
  assert.match(
    text,
    /^net\.core\.somaxconn: 2,560 of the 50,000 wanted connections\n(?: {2}.*\n)+ {2}Fix: sudo sysctl -w/m,
  );
  assert.ok(text.endsWith('\n\na note'));
  assert.equal(
    summary(look({ ...plenty(), redisVersion: { product: 'Redis', version: '5.0.1' } })),
    'redis-version: this version is older than 6.0 and no longer maintained',
  );
});
