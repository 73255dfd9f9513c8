// doctor-readings.test.js: how the doctor reads files of the kernel, control groups, Redis and the
// bucket (doctor/read.js, doctor/bucket.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readBucket } from '../../src/doctor/bucket.js';
import {
  parseInfo,
  parsePubsubBuffer,
  READERS,
  readMachine,
  readRedis,
  replicaFault,
  Unread,
} from '../../src/doctor/read.js';
import { FILES, reader } from '../helpers/doctor.js';

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
  const { bucket } = await readBucket({ blobs, blobTimeoutMs: 10_000 });
  assert.equal(bucket?.fault, 'the bucket failed: ECONNREFUSED');
});

test('a configuration without Redis is not a fault', async () => {
  assert.deepEqual(await readRedis(null), {
    redisFault: null,
    redisReplicas: null,
    redisVersion: null,
    redisPubsub: null,
    redisMemory: null,
    redisPersistence: null,
    redisStreamNode: null,
  });
});

test('a server to hear from must be a replica of the primary, with a link', () => {
  const primary = new Map([
    ['run_id', 'a'],
    ['role', 'master'],
    ['master_replid', 'x'],
  ]);
  const replica = { run_id: 'b', role: 'slave', master_replid: 'x', master_link_status: 'up' };
  const faultOf = (/** @type {Partial<typeof replica>} */ change) =>
    replicaFault(new Map(Object.entries({ ...replica, ...change })), primary);
  assert.equal(faultOf({}), '');
  assert.equal(faultOf({ run_id: 'a', role: 'master' }), '');
  assert.equal(faultOf({ role: 'master' }), 'is not a replica');
  assert.equal(faultOf({ master_replid: 'y' }), 'is a replica of another primary');
  assert.equal(faultOf({ master_link_status: 'down' }), 'has no link to its primary');
});
