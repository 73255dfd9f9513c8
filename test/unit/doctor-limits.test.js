// doctor-limits.test.js: each limit of the machine, as the doctor judges it (doctor/limits.js).

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { LIMITS } from '../../src/doctor/limits.js';
import { Unread } from '../../src/doctor/read.js';
import { toText } from '../../src/doctor/report.js';
import { GIB, look, plenty, rowOf } from '../helpers/doctor.js';

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
  // Few clients return at 500 a second for each of four workers, so more than the queue are too many.
  [
    'net.core.somaxconn',
    { somaxconn: 128 },
    128,
    /sysctl -w net\.core\.somaxconn=4096 and restart/,
  ],
  ['net.ipv4.tcp_max_syn_backlog', { synBacklog: 128, synCookies: 0 }, 96, /tcp_syncookies=1$/],
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
  ['redis', { redisFault: 'connect ECONNREFUSED' }, null, /^start Redis/],
  [
    'redis-replica',
    { redisReplicas: [{ address: 'near:6379', fault: 'is not a replica' }] },
    null,
    /^name replicas of the primary in REDIS_SUBSCRIBE_URL/,
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

const NOTES_ONLY = ['node', 'pusher-apps', 'centrifugo-tokens'];

test('every limit has a case', () => {
  assert.deepEqual(
    LOWEST.map(([name]) => name),
    LIMITS.map(({ name }) => name).filter((name) => !NOTES_ONLY.includes(name)),
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
    redisFault: null,
    redisReplicas: null,
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

test('tokens of Centrifugo clients are noted if they need not expire', () => {
  const name = 'centrifugo-tokens';
  const env = { FANFARE_CENTRIFUGO: 'on', FANFARE_CENTRIFUGO_TOKENS: 'lenient' };
  assert.ok(!look(plenty(), { env }).limits.some((row) => row.name === name));
  const secret = { JWT_SECRET: 'x'.repeat(32) };
  const lenient = rowOf(look(plenty(), { env: { ...env, ...secret } }), name);
  assert.deepEqual([lenient.verdict, lenient.value], ['note', 'lenient']);
  const strict = { FANFARE_CENTRIFUGO: 'on', ...secret };
  assert.equal(rowOf(look(plenty(), { env: strict }), name).verdict, 'ok');
});

test('a shared app of Pusher clients is noted if rooms need neither token nor signature', () => {
  const one = {
    FANFARE_PUSHER_APP_ID: '7',
    FANFARE_PUSHER_APP_KEY: 'key',
    FANFARE_PUSHER_APP_SECRET: 'a-secret-of-some-length',
  };
  assert.ok(!look(plenty()).limits.some(({ name }) => name === 'pusher-apps'));
  const alone = rowOf(look(plenty(), { env: one }), 'pusher-apps');
  assert.deepEqual([alone.verdict, alone.value], ['ok', '1 app']);
  const path = join(mkdtempSync(join(tmpdir(), 'fanfare-')), 'apps.json');
  const app = { id: '7', key: 'key', secret: 'a-secret-of-some-length', shared: true };
  writeFileSync(path, JSON.stringify([app]));
  const env = { FANFARE_PUSHER_APPS: path };
  const open = rowOf(look(plenty(), { env }), 'pusher-apps');
  assert.deepEqual([open.verdict, open.value], ['note', '1 app, 7 is shared']);
  assert.match(open.why, /without a signature/);
  const guarded = { ...env, JWT_SECRET: 'x'.repeat(32) };
  const verdictOf = (/** @type {readonly string[]} */ publicRooms) => {
    writeFileSync(path, JSON.stringify([{ ...app, publicRooms }]));
    const { verdict, why } = rowOf(look(plenty(), { env: guarded }), 'pusher-apps');
    return [verdict, /native rooms without a token: (.*)/.exec(why)?.[1]];
  };
  assert.deepEqual(verdictOf([]), ['ok', undefined]);
  assert.deepEqual(verdictOf(['news.*', 'blog']), ['note', 'news.*, blog']);
  rmSync(dirname(path), { recursive: true });
});

test('no fix shows a credential', () => {
  const report = look({ ...plenty(), redisPubsub: { hard: 1, soft: 1, seconds: 1 } });
  assert.ok(!toText(report, []).includes('secret'));
});
