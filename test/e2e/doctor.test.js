// doctor.test.js: the doctor against real limits: of descriptors, of ports, of a control group, of
// Redis. Where it names a number, the machine is asked whether it is true; where it names a
// command, the command is run.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
import { startRedis } from '../harness/redis.js';
import { startServer } from '../harness/server.js';

const MAIN = fileURLToPath(new URL('../../src/main.js', import.meta.url));
const OPTIONS = { timeout: 60_000 };
const PORTS = 'net.ipv4.ip_local_port_range';

const isRoot = process.getuid?.() === 0;
const noPrlimit = spawnSync('prlimit', ['--version']).error && 'no prlimit here';
const noNamespaces = !isRoot
  ? 'network namespaces need root'
  : spawnSync('unshare', ['--net', 'sh', '-c', 'ip link set lo up && sysctl -n net.core.somaxconn'])
      .status !== 0 && 'no network namespaces to be had';

/** @typedef {import('../../src/doctor/limits.js').Finding} Finding */
/** @typedef {import('../../src/doctor/limits.js').Report & {notes: string[]}} Report */

/**
 * Runs the doctor.
 * @param {string[]} args
 * @param {object} [how]
 * @param {Record<string, string>} [how.env]
 * @param {string[]} [how.prefix] command that runs it
 * @param {number} [how.uid]
 */
function run(args, { env = {}, prefix = [], uid } = {}) {
  const [command, ...rest] = [...prefix, process.execPath, MAIN, 'doctor', ...args];
  return spawnSync(command, rest, {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, WORKERS: '2', ...env },
    ...(uid === undefined ? {} : { uid, gid: uid }),
  });
}

/**
 * @param {string[]} args
 * @param {Parameters<typeof run>[1]} [how]
 * @returns {Report & {code: number|null}}
 */
function examined(args, how) {
  const { status, stdout, stderr } = run([...args, '--json'], how);
  assert.equal(stderr, '');
  return withoutDrops({ code: status, ...JSON.parse(stdout) });
}

/**
 * The packets that this machine has dropped since boot, for example in a load test, are not under
 * the control of a test. So these tests ignore that finding.
 * @template {Report & {code: number|null}} T
 * @param {T} report
 * @returns {T}
 */
function withoutDrops(report) {
  const limits = report.limits.filter(({ name }) => name !== 'net.core.netdev_max_backlog');
  if (report.first !== 'net.core.netdev_max_backlog') return { ...report, limits };
  const low = limits.filter(({ verdict }) => verdict === 'low');
  const verdict = low.length > 0 ? 'low' : 'ok';
  return { ...report, limits, verdict, first: (low[0] ?? limits[0]).name, code: low.length && 1 };
}

/** @param {Report} report @param {string} name @returns {Finding} */
function rowOf(report, name) {
  const row = report.limits.find((one) => one.name === name);
  assert.ok(row, `no row ${name}`);
  return row;
}

test(
  'where nothing is too low the doctor exits with 0, and says what would be next',
  OPTIONS,
  () => {
    const report = examined(['--connections', '1', '--clients', 'elsewhere']);
    assert.equal(report.code, 0, JSON.stringify(report));
    assert.equal(report.verdict, 'ok');
    assert.ok(report.limits.some(({ name }) => name === report.first));
  },
);

test('--live asks the running server, whatever has become of its settings', OPTIONS, async (t) => {
  const server = await startServer(t, { WORKERS: '1' });
  const env = { METRICS_PORT: String(server.metricsPort), REDIS_URL: 'no URL' };
  const live = run(['--live'], { env });
  assert.deepEqual(
    [live.status, live.stdout],
    [0, `http://127.0.0.1:${server.metricsPort}/livez answers 200\n`],
  );
  server.kill('SIGTERM');
  await server.exited;
  const gone = run(['--live'], { env });
  assert.equal(gone.status, 1);
  assert.match(gone.stdout, /: ECONNREFUSED\n$/);
});

test('a wrong command line exits with 64, a wrong setting with 78', OPTIONS, () => {
  const wrong = run(['--wanted', '5']);
  assert.equal(wrong.status, 64);
  assert.match(wrong.stderr, /unknown option --wanted\n[\s\S]*Usage: fanfare doctor/);
  const unset = run([], { env: { WORKERS: 'many' } });
  assert.equal(unset.status, 78);
  assert.match(unset.stderr, /The server would not start:\n {2}WORKERS: "many"/);
  const gone = run(['--pid', String(spawnSync('true').pid)]);
  assert.equal(gone.status, 64);
  assert.match(gone.stderr, /--pid: no process \d+/);
  assert.equal(run(['--help']).status, 0);
});

test('with few descriptors nofile is the first limit, and a server holds exactly the number of the doctor', {
  ...OPTIONS,
  skip: noPrlimit,
}, async (t) => {
  const prefix = ['prlimit', '--nofile=400:400'];
  const env = { WORKERS: '1', FANFARE_MAX_CONNECTIONS_PER_IP_MODE: 'off' };
  const report = examined([], { prefix, env });
  assert.deepEqual([report.code, report.first, report.permits], [1, 'nofile', 236]);
  const [, workers] = /WORKERS=(\d+)$/.exec(String(rowOf(report, 'nofile').fix)) ?? [];
  assert.equal(
    rowOf(examined([], { prefix, env: { ...env, WORKERS: workers } }), 'nofile').verdict,
    'ok',
  );

  const server = await startServer(t, env, { prefix });
  const warning = server.lines.find(({ msg }) => /low system limit/.test(msg));
  assert.match(warning?.msg, /^low system limit: nofile, at 236 connections: run "npm run doctor"/);
  // Of a server that runs, from a shell that has more: its limits, and its settings.
  const other = examined(['--pid', String(server.pid)], { env: { WORKERS: '7' } });
  assert.deepEqual([other.workers, other.first, other.permits], [1, 'nofile', 236]);

  for (let i = 0; i < 236; i++)
    assert.equal(await dial(t, server.port), 101, `connection ${i + 1}`);
  assert.equal(await dial(t, server.port), 503);
});

test('a server with high limits does not mention them', OPTIONS, async (t) => {
  // Whether this machine has enough is the doctor's to say.
  const { verdict } = examined([], { env: { WORKERS: '1' } });
  const server = await startServer(t, { WORKERS: '1' });
  const said = server.lines.some(({ msg }) => /low system limit/.test(msg));
  if (verdict === 'ok') assert.equal(said, false);
});

/**
 * Dials until it fails, from one address to one address and port; prints how many there were, and
 * why no more.
 */
const DIAL = `
  const { createServer, connect } = require('node:net');
  const server = createServer().listen({ port: 3000, host: '127.0.0.1', backlog: 4096 }, async () => {
    for (let count = 0; ; count++) {
      const error = await new Promise((resolve) => {
        const socket = connect(3000, '127.0.0.1', () => resolve(null));
        socket.on('error', resolve);
      });
      if (error) {
        console.log(JSON.stringify([count, error.code]));
        process.exit();
      }
    }
  });`;

test('in a namespace with few ports these are the first limit, and as many connections can be opened', {
  ...OPTIONS,
  skip: noNamespaces,
}, () => {
  const narrow = [
    'unshare',
    '--net',
    'sh',
    '-c',
    `ip link set lo up && sysctl -qw ${PORTS}="40000 40199" && exec "$@"`,
    'sh',
  ];
  const report = examined([], { prefix: narrow });
  assert.deepEqual([report.code, report.first, report.permits], [1, PORTS, 200]);
  const [command, ...args] = [...narrow, process.execPath, '-e', DIAL];
  assert.deepEqual(JSON.parse(execFileSync(command, args, { encoding: 'utf8' })), [
    200,
    'EADDRNOTAVAIL',
  ]);
  // Of a process outside it is said that these are not its settings.
  assert.match(
    examined(['--pid', String(process.pid)], { prefix: narrow }).notes.join(),
    /another network namespace/,
  );
  // The load balancer is elsewhere: so are the ports.
  assert.notEqual(examined(['--clients', 'elsewhere'], { prefix: narrow }).first, PORTS);
});

test('each network command of the doctor has the effect that it promises', {
  ...OPTIONS,
  skip: noNamespaces,
}, () => {
  const low = {
    [PORTS]: '40000 40199',
    'net.core.somaxconn': '64',
    'net.ipv4.tcp_syncookies': '0',
    'net.ipv4.tcp_max_syn_backlog': '64',
    'net.ipv4.tcp_wmem': '4096 16384 2000000000',
    'net.ipv4.tcp_rmem': '4096 2000000000 2000000000',
  };
  const lower = Object.entries(low).map(([name, value]) => `sysctl -qw ${name}="${value}"`);
  /** @param {string[]} commands */
  const within = (commands) => [
    'unshare',
    '--net',
    'sh',
    '-c',
    `set -e; { ${commands.join('; ')}; } >/dev/null; exec "$@"`,
    'sh',
  ];
  const before = examined([], { prefix: within(lower) });
  const names = Object.keys(low).filter((name) => name !== 'net.ipv4.tcp_syncookies');
  // A kernel that shows its tcp_mem in no namespace leaves the buffers unjudged there.
  const judged = names.filter((name) => rowOf(before, name).verdict !== 'cannot read');
  assert.ok(judged.length >= 3, judged.join());
  for (const name of judged) assert.equal(rowOf(before, name).verdict, 'low', name);
  const fixes = judged.map((name) =>
    String(rowOf(before, name).fix)
      .replace(/^sudo /, '')
      .replace(/ and .*/, ''),
  );
  const after = examined([], { prefix: within([...lower, ...fixes]) });
  for (const name of judged)
    assert.equal(rowOf(after, name).verdict, 'ok', `${name} after ${fixes}`);
});

test('the doctor reads the same limits without root', {
  ...OPTIONS,
  skip: !isRoot && 'the other tests have no root either',
}, (t) => {
  // In a clone that is root's alone, as in a folder of mktemp, no other user can start anything.
  if (spawnSync('test', ['-r', MAIN], { uid: 65_534, gid: 65_534 }).status !== 0)
    return t.skip('this clone is private');
  const root = examined([]);
  const nobody = run(['--json'], { uid: 65_534 });
  const report = withoutDrops({ code: nobody.status, ...JSON.parse(nobody.stdout) });
  const verdicts = (/** @type {Report} */ { limits }) =>
    limits.map(({ name, verdict }) => [name, verdict]);
  assert.deepEqual(verdicts(report), verdicts(root));
  // Of root's process it sees the limits, and says that it does not see the settings.
  const foreign = JSON.parse(run(['--json', '--pid', String(process.pid)], { uid: 65_534 }).stdout);
  assert.equal(rowOf(foreign, 'nofile').verdict, rowOf(report, 'nofile').verdict);
  assert.match(
    foreign.notes.join(),
    /The settings are those of this shell.*no permission to read \/proc\/\d+\/environ/,
  );
});

test('in a control group with little memory, memory is the first limit', OPTIONS, (t) => {
  const group = memoryGroup(t, 128 * 2 ** 20);
  if (typeof group === 'string') return t.skip(group);
  const prefix = ['sh', '-c', `echo $$ > ${group.folder}/cgroup.procs && exec "$@"`, 'sh'];
  const report = examined([], { prefix });
  // (0.8 x 128 MiB - 3 processes x 40 MB) / 10,700 bytes is less than nothing.
  assert.deepEqual([report.code, report.first, report.permits], [1, 'cgroup-memory', 0]);
  assert.match(rowOf(report, 'cgroup-memory').value, /^128 MiB \(/);
});

test(
  'a subscriber’s buffer in Redis that is too small is found, and its command makes it large enough',
  OPTIONS,
  async (t) => {
    const redis = await startRedis(t, {
      args: ['--client-output-buffer-limit', 'pubsub', '1mb', '256kb', '5'],
    });
    const env = { REDIS_URL: redis.url };
    const before = examined(['--connections', '100', '--clients', 'elsewhere'], { env });
    const row = rowOf(before, 'redis-pubsub-buffer');
    assert.deepEqual([before.code, before.first, row.verdict], [1, 'redis-pubsub-buffer', 'low']);
    assert.equal(row.value, 'hard 1 MiB, soft 256 KiB for 5 s');
    assert.equal(execFileSync('sh', ['-c', String(row.fix)], { encoding: 'utf8' }).trim(), 'OK');
    const after = examined(['--connections', '100', '--clients', 'elsewhere'], { env });
    assert.equal(rowOf(after, 'redis-pubsub-buffer').verdict, 'ok');
    assert.equal(after.code, 0);
    assert.match(rowOf(after, 'redis-version').value, /^(Redis|Valkey) \d+\.\d+\.\d+$/);
    assert.equal(rowOf(after, 'node').value, process.version);
    assert.match(rowOf(after, 'redis-persistence').value, /^none/);

    await redis.cli('config', 'set', 'maxmemory', '100mb', 'maxmemory-policy', 'allkeys-lru');
    await redis.cli('config', 'set', 'save', '60 1', 'appendonly', 'yes');
    const changed = examined(['--connections', '100', '--clients', 'elsewhere'], { env });
    assert.match(rowOf(changed, 'redis-maxmemory').value, /of 100 MiB, allkeys-lru$/);
    assert.equal(changed.first, 'redis-maxmemory');
    assert.match(rowOf(changed, 'redis-persistence').value, /^AOF, everysec/);

    await redis.cli('config', 'set', 'stream-node-max-bytes', '1024');
    const withHistory = { env: { ...env, FANFARE_HISTORY: 'chat.*=10/1h' } };
    const small = examined(['--connections', '100', '--clients', 'elsewhere'], withHistory);
    assert.equal(rowOf(small, 'redis-stream-node').value, '1 KiB');
  },
);

test(
  'a Redis that denies CONFIG is no fault, and one that does not answer is',
  OPTIONS,
  async (t) => {
    const redis = await startRedis(t);
    await redis.cli('acl', 'setuser', 'doctor', 'on', '>secret', '+@all', '-config', '~*', '&*');
    const report = examined(['--connections', '100', '--clients', 'elsewhere'], {
      env: { REDIS_URL: `redis://doctor:secret@127.0.0.1:${redis.port}` },
    });
    const row = rowOf(report, 'redis-pubsub-buffer');
    assert.deepEqual([report.code, row.verdict], [0, 'cannot read']);
    assert.match(row.why, /NOPERM/);
    assert.match(rowOf(report, 'redis-version').verdict, /^(ok|note)$/); // its fixes may be missing
    const denied = examined(['--connections', '100', '--clients', 'elsewhere'], {
      env: { REDIS_URL: `redis://doctor:s3cret@127.0.0.1:${redis.port}` },
    });
    assert.match(rowOf(denied, 'redis').why, /WRONGPASS/);
    assert.ok(!JSON.stringify(denied).includes('s3cret'));
    await redis.kill();
    const away = examined(['--connections', '100', '--clients', 'elsewhere'], {
      env: { REDIS_URL: redis.url },
    });
    assert.deepEqual([away.code, rowOf(away, 'redis').verdict], [1, 'low']);
    assert.match(rowOf(away, 'redis').why, /^no answer \(.*ECONNREFUSED/);
    assert.equal(rowOf(away, 'redis-version').verdict, 'cannot read');
  },
);

/**
 * @param {import('node:test').TestContext} t
 * @param {number} port
 * @returns {Promise<number|undefined>} the HTTP status of the answer
 */
async function dial(t, port) {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
  t.after(() => socket.terminate());
  socket.on('error', () => {});
  const answered = Promise.race([
    once(socket, 'upgrade').then(([{ statusCode }]) => statusCode),
    once(socket, 'unexpected-response').then(([, { statusCode }]) => statusCode),
  ]);
  const status = await answered;
  if (status === 101 && socket.readyState !== WebSocket.OPEN) await once(socket, 'open');
  return status;
}

/**
 * A control group that is gone after the test.
 * @param {import('node:test').TestContext} t
 * @param {number} bytes
 * @returns {{folder: string}|string} why there is none
 */
function memoryGroup(t, bytes) {
  const name = `fanfare-test-${process.pid}`;
  for (const [folder, file] of [
    [`/sys/fs/cgroup/memory/${name}`, 'memory.limit_in_bytes'],
    [`/sys/fs/cgroup/${name}`, 'memory.max'],
  ]) {
    try {
      mkdirSync(folder);
    } catch {
      continue; // not this hierarchy, or not ours to write to
    }
    t.after(() => rmdirSync(folder));
    try {
      writeFileSync(`${folder}/${file}`, String(bytes));
      return { folder };
    } catch {
      // Its parent does not hand the memory controller down.
    }
  }
  return 'no control group for memory to be had';
}
