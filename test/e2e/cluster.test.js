import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { WebSocket } from 'ws';
import { freePort } from '../harness/redis.js';
import { scrape, spawnServer, startServer, until } from '../harness/server.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const OPTIONS = { timeout: 60_000 };
const MAIN = fileURLToPath(new URL('../../src/main.js', import.meta.url));

/** @param {number} metricsPort */
async function readyWorkers(metricsPort) {
  const response = await fetch(`http://127.0.0.1:${metricsPort}/readyz`);
  return /** @type {{ready: number, workers: number, draining: boolean}} */ (await response.json());
}

/** @param {number} pid */
function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** @param {import('node:test').TestContext} t @param {number} port @param {string} [localAddress] */
async function connect(t, port, localAddress) {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { localAddress });
  t.after(() => socket.terminate());
  socket.on('error', () => {});
  await once(socket, 'open');
  return socket;
}

/** @param {import('../harness/server.js').Owner} t @param {string} text */
function configFile(t, text) {
  const folder = temporaryFolder(t);
  const path = join(folder, 'fanfare.env');
  writeFileSync(path, text);
  return path;
}

// Tests share servers. The last test of each server ends it.

/** Two workers, at the start with 50 connections for an address. */
const pair = shared(async (owner) => {
  const path = configFile(owner, 'FANFARE_MAX_CONNECTIONS_PER_IP=50\n');
  const beganMs = performance.now();
  const server = await startServer(owner, { FANFARE_CONFIG_FILE: path });
  return { server, path, startMs: performance.now() - beganMs };
});

/** Its file can be changed, and no reload accepts the change. */
const firm = shared(async (owner) => {
  const path = configFile(owner, '');
  const server = await startServer(owner, { FANFARE_CONFIG_FILE: path, WORKERS: '1' });
  return { server, path };
});

/** It gives up a worker after a second. The next one listens at the same port. */
const brief = shared(async (owner) =>
  startServer(owner, {
    FANFARE_WORKER_TIMEOUT_MS: '1000',
    WORKERS: '1',
    PORT: String(await freePort()),
  }),
);

/** In production, with tokens; its drain begins after ten seconds. */
const closed = shared(async (owner) => {
  const folder = temporaryFolder(owner);
  const server = await startServer(owner, {
    WORKERS: '1',
    NODE_ENV: 'production',
    JWT_SECRET: 's'.repeat(32),
    FANFARE_DRAIN_DELAY_MS: '10000',
    TMPDIR: folder,
  });
  return { server, folder };
});

test(
  'a worker killed with -9 is replaced within two seconds, and only its clients drop; five such deaths are logged as an error, and the server goes on',
  OPTIONS,
  async (t) => {
    const { server, startMs } = await pair();
    // On a busy machine: no longer than the start of the whole server.
    const boundMs = Math.max(2000, startMs);
    const sockets = await Promise.all(Array.from({ length: 20 }, () => connect(t, server.port)));
    let dropped = 0;
    for (const socket of sockets) socket.on('close', () => dropped++);
    const before = server.workerPids();
    assert.equal(before.length, 2);
    const [victim, survivor] = before;
    const { slot } = await server.line(({ workerPid }) => workerPid === victim);
    const its = (await scrape(server.metricsPort)).values.get(
      `fanfare_worker_connections{worker="${slot}"}`,
    );
    const startedMs = performance.now();
    process.kill(victim, 'SIGKILL');
    await until(() => server.workerPids().some((pid) => !before.includes(pid)));
    await until(async () => (await readyWorkers(server.metricsPort)).ready === 2);
    const tookMs = performance.now() - startedMs;
    assert.ok(tookMs < boundMs, `${tookMs} of ${boundMs} ms`);
    assert.ok(server.workerPids().includes(survivor));
    await until(() => dropped === its);

    for (let death = 2; death <= 5; death++) {
      await until(async () => (await readyWorkers(server.metricsPort)).ready === 2);
      const next = server.workerPids().find((pid) => pid !== survivor);
      process.kill(/** @type {number} */ (next), 'SIGKILL');
      await until(() => !isAlive(/** @type {number} */ (next)));
    }
    await server.line(
      ({ level, msg }) => level === 50 && msg.startsWith('5 workers died within 60 s'),
    );
    await until(async () => (await readyWorkers(server.metricsPort)).ready === 2);
    const { values } = await scrape(server.metricsPort);
    assert.equal(values.get('fanfare_worker_crash_loop'), 1);
    assert.equal(values.get('fanfare_worker_deaths_total{cause="crashed"}'), 5);
    assert.ok(isAlive(survivor));
    assert.equal(dropped, its);
  },
);

test(
  'SIGHUP replaces all workers with the new configuration, and as many as before are ready',
  OPTIONS,
  async (t) => {
    const { server, path } = await pair();
    const socket = await connect(t, server.port);
    const closed = once(socket, 'close');
    const before = server.workerPids();
    writeFileSync(path, 'FANFARE_MAX_CONNECTIONS_PER_IP=1\n');
    let fewest = Number.POSITIVE_INFINITY;
    let isRolling = true;
    const watching = until(async () => {
      fewest = Math.min(fewest, (await readyWorkers(server.metricsPort)).ready);
      return !isRolling;
    }, 40_000);
    server.kill('SIGHUP');
    await server.line(({ msg }) => msg === 'reload complete', 30_000);
    isRolling = false;
    await watching;
    assert.equal(fewest, 2);
    const after = server.workerPids();
    assert.equal(after.length, 2);
    assert.ok(after.every((pid) => !before.includes(pid)));
    const [code] = await closed;
    assert.equal(code, 1012);
    // The new limit holds.
    await connect(t, server.port);
    const second = new WebSocket(`ws://127.0.0.1:${server.port}/`);
    const [, response] = await once(
      second.on('error', () => {}),
      'unexpected-response',
    );
    assert.equal(response.statusCode, 429);
  },
);

test(
  'when the primary is killed with -9 the workers drain their clients and leave',
  OPTIONS,
  async (t) => {
    const { server } = await pair();
    const workers = server.workerPids();
    const socket = await connect(t, server.port, '127.0.0.2'); // with a cap of its own
    const closed = once(socket, 'close');
    server.kill('SIGKILL');
    assert.equal((await closed)[0], 1012);
    await until(() => !workers.some(isAlive));
  },
);

test(
  'the banner says where it listens, the broker, the limits and that it is open to everyone',
  OPTIONS,
  async () => {
    const { server } = await firm();
    await server.line(({ msg }) => msg.startsWith('access'));
    const text = server.lines.map(({ msg }) => msg).join('\n');
    assert.match(text, new RegExp(`ws://127\\.0\\.0\\.1:${server.port}`));
    assert.match(text, new RegExp(`http://127\\.0\\.0\\.1:${server.metricsPort}/metrics`));
    assert.match(text, /broker +embedded/);
    assert.match(text, /100 connections per address/);
    assert.match(text, /open to everyone/);
    assert.doesNotMatch(text, /npm run hello/);
    // A clone on a laptop is open on purpose.
    assert.deepEqual(
      server.lines.filter(({ level, msg }) => level >= 40 && /open/.test(msg)),
      [],
    );
  },
);

for (const { what, line, fault } of [
  {
    what: 'a faulty configuration',
    line: 'FANFARE_MAX_CONNECTIONS_PER_IP=many',
    fault: 'FANFARE_MAX_CONNECTIONS_PER_IP',
  },
  {
    what: 'a changed fixed setting',
    line: 'FANFARE_REDIS_PREFIX=other:',
    fault: 'FANFARE_REDIS_PREFIX cannot be changed',
  },
]) {
  test(`SIGHUP with ${what} changes nothing`, OPTIONS, async () => {
    const { server, path } = await firm();
    const before = server.workerPids();
    writeFileSync(path, `${line}\n`);
    server.kill('SIGHUP');
    await server.line(
      ({ msg, faults }) => msg.startsWith('reload aborted') && faults.join().includes(fault),
    );
    assert.deepEqual(server.workerPids(), before);
  });
}

test('SIGINT closes clients with 1012 and exits 0', OPTIONS, async (t) => {
  const { server } = await firm();
  const socket = await connect(t, server.port);
  const closed = once(socket, 'close');
  server.kill('SIGINT');
  assert.equal((await closed)[0], 1012);
  assert.deepEqual(await server.exited, { code: 0, signal: null });
});

test('SIGHUP while the primary starts reloads after the start', OPTIONS, async (t) => {
  const path = join(temporaryFolder(t), 'fanfare.env');
  execFileSync('mkfifo', [path]);
  const server = spawnServer(t, { FANFARE_CONFIG_FILE: path, WORKERS: '1' });
  const pipe = await open(path, 'w'); // when the primary reads
  server.kill('SIGHUP');
  rmSync(path);
  writeFileSync(path, '');
  await pipe.close();
  await server.line(({ msg }) => msg === 'reload complete', 20_000);
  await server.line(({ msg }) => String(msg).startsWith('fanfare is ready'));
});

test(
  'systemctl reload right after the start waits until the server handles SIGHUP',
  OPTIONS,
  async (t) => {
    const unit = readFileSync(
      new URL('../../ops/systemd/fanfare.service', import.meta.url),
      'utf8',
    );
    const command = String(/^ExecReload=\+(.+)$/m.exec(unit)?.[1]);
    const server = spawnServer(t, { WORKERS: '1' });
    const env = { ...process.env, MAINPID: String(server.pid) };
    await promisify(execFile)('/bin/sh', ['-c', command], { env, timeout: 20_000 });
    await server.line(({ msg }) => msg === 'reload complete', 20_000);
  },
);

test('a file that no reload has accepted does not reach replacements', OPTIONS, async (t) => {
  const file = join(temporaryFolder(t), 'webhooks.json');
  const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  const endpoint = { name: 'one', url: 'http://127.0.0.1:10/', secret };
  writeFileSync(file, JSON.stringify([endpoint]));
  const server = await startServer(t, { WORKERS: '1', FANFARE_WEBHOOKS: file });
  const courier = await until(() => server.courierPid());
  const [worker] = server.workerPids();
  writeFileSync(file, '[{ "name":');
  server.kill('SIGHUP');
  await server.line(({ msg }) => String(msg).startsWith('reload aborted'));
  process.kill(worker, 'SIGKILL');
  process.kill(courier, 'SIGKILL');
  await server.line(({ msg, workerPid }) => msg === 'worker ready' && workerPid !== worker);
  await until(() => server.courierPid() && server.courierPid() !== courier);
  await until(async () => (await scrape(server.metricsPort)).values.has('fanfare_webhooks_lanes'));
});

test(
  'SIGTERM: while it waits for the load balancer it is not ready, and still serves; then it closes clients with 1012 and exits 0',
  OPTIONS,
  async (t) => {
    const server = await startServer(t, { FANFARE_DRAIN_DELAY_MS: '1500', WORKERS: '1' });
    const workers = server.workerPids();
    server.kill('SIGTERM');
    await until(async () => (await readyWorkers(server.metricsPort)).draining);
    await until(async () => (await fetch(`http://127.0.0.1:${server.port}/readyz`)).status === 503);
    const socket = await connect(t, server.port);
    const [code] = await once(socket, 'close');
    assert.equal(code, 1012);
    assert.deepEqual(await server.exited, { code: 0, signal: null });
    assert.ok(!workers.some(isAlive));
  },
);

test('a hung worker is killed and replaced', OPTIONS, async () => {
  const server = await brief();
  const [hung] = server.workerPids();
  process.kill(hung, 'SIGSTOP');
  await server.line(({ msg }) => msg === 'worker hung: killed');
  await server.line(({ msg, workerPid }) => msg === 'worker ready' && workerPid !== hung);
  assert.ok(!server.workerPids().includes(hung));
  assert.equal((await readyWorkers(server.metricsPort)).ready, 1);
});

test(
  'a signal that reaches the workers as well, as Ctrl-C does, changes nothing',
  OPTIONS,
  async (t) => {
    const server = await brief();
    const socket = await connect(t, server.port);
    const closed = once(socket, 'close');
    for (const pid of [...server.workerPids(), server.pid]) process.kill(pid, 'SIGINT');
    assert.equal((await closed)[0], 1012);
    assert.equal((await server.exited).code, 0);
  },
);

test(
  'all faults of the configuration are logged at once, with exit code 78',
  OPTIONS,
  async (t) => {
    const path = configFile(t, 'FANFARE_NO_SUCH=1\n');
    const server = spawnServer(t, {
      PORT: 'abc',
      FANFARE_PING_INTERVAL_MS: '1',
      FANFARE_CONFIG_FILE: path,
    });
    assert.deepEqual(await server.exited, { code: 78, signal: null });
    for (const name of ['PORT', 'FANFARE_PING_INTERVAL_MS', 'FANFARE_NO_SUCH'])
      assert.match(server.stderr(), new RegExp(`\\b${name}\\b`));
  },
);

test('a worker of another cluster, as of pm2 -i, says so and exits with 78', OPTIONS, async (t) => {
  const main = join(temporaryFolder(t), 'foreign.cjs');
  writeFileSync(
    main,
    `const cluster = require('node:cluster');
    cluster.setupPrimary({ exec: ${JSON.stringify(MAIN)} });
    const worker = cluster.fork();
    worker.on('message', () => worker.send({ type: 'process:msg' }));
    worker.on('exit', (code) => process.exit(code));`,
  );
  const server = spawnServer(t, {}, { main });
  assert.deepEqual(await server.exited, { code: 78, signal: null });
  assert.match(server.stderr(), /cluster worker of another program, such as pm2 with -i/);
  assert.match(server.stderr(), /fork mode.*WORKERS/);
  assert.deepEqual(server.lines, []);
});

test('a missing configuration file is a fault', OPTIONS, async (t) => {
  const server = spawnServer(t, { FANFARE_CONFIG_FILE: '/nowhere/fanfare.env' });
  assert.equal((await server.exited).code, 78);
  assert.match(server.stderr(), /FANFARE_CONFIG_FILE.*nowhere/);
});

test(
  'in production a server that is open to everyone says so at the level warn, and the banner says that Redis is unreachable',
  OPTIONS,
  async (t) => {
    const open = await startServer(t, {
      WORKERS: '1',
      NODE_ENV: 'production',
      REDIS_URL: `redis://127.0.0.1:${await freePort()}`,
    });
    const line = await open.line(({ msg }) => msg.startsWith('access is open to everyone'));
    assert.equal(line.level, 40);
    const broker = await open.line(({ msg }) => msg.startsWith('broker  '));
    assert.match(broker.msg, /^broker +Redis at redis:\S+ is unreachable: publishes are refused/);
    assert.ok(open.lines.some(({ msg }) => msg === 'fanfare is ready: 1 worker, degraded'));
  },
);

test('in production a server with tokens does not say that it is open', OPTIONS, async () => {
  const { server } = await closed();
  await server.line(({ msg }) => msg.startsWith('http api'));
  assert.ok(!server.lines.some(({ msg }) => msg.includes('open to everyone')));
});

test('a second signal exits at once with 1 and leaves no temporary files', OPTIONS, async () => {
  const { server, folder } = await closed();
  assert.equal(readdirSync(folder).length, 1);
  const workers = server.workerPids();
  server.kill('SIGTERM');
  await server.line(({ msg }) => msg === 'draining');
  const startedMs = performance.now();
  server.kill('SIGTERM');
  assert.deepEqual(await server.exited, { code: 1, signal: null });
  const tookMs = performance.now() - startedMs;
  assert.ok(tookMs < 5000, `${tookMs} ms: half of the delay`);
  await until(() => !workers.some(isAlive));
  assert.deepEqual(readdirSync(folder), []);
});
