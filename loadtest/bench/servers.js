// servers.js: the servers that are measured: how each is started, watched and stopped.
//
// Each has two processes with connections (its cluster primary comes on top), a fresh redis-server
// of its own where it uses one, and a port outside the range of ephemeral ports. What is started
// here is stopped here, by its process id.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { cpuSecondsOf, ephemeralPorts, processTree, pssKbOf } from './machine.js';
import { PROFILES } from './profiles.js';

const file = (/** @type {string} */ path) => fileURLToPath(new URL(path, import.meta.url));

/**
 * @typedef {object} ServerKind
 * @property {string} title
 * @property {string} script
 * @property {keyof typeof PROFILES} profile
 * @property {boolean} redis
 * @property
 *   {(port: number, metricsPort: number, redisUrl: string, workers: number) => Record<string, string>}
 *   env
 */

/**
 * @param {number} port
 * @param {number} metricsPort
 * @param {number} workers
 */
const fanfare = (port, metricsPort, workers) => ({
  PORT: String(port),
  METRICS_PORT: String(metricsPort),
  WORKERS: String(workers),
  FANFARE_LIMITS: 'off',
  FANFARE_DRAIN_DELAY_MS: '0',
  LOG_LEVEL: 'warn',
});
/** @type {ServerKind['env']} */
const withRedis = (port, _metricsPort, redisUrl, workers) => ({
  PORT: String(port),
  REDIS_URL: redisUrl,
  WORKERS: String(workers),
});

/** @type {Record<string, ServerKind>} */
export const SERVERS = {
  fanfare: {
    title: 'Fanfare, embedded broker',
    script: file('../../src/main.js'),
    profile: 'fanfare',
    redis: false,
    env: (port, metricsPort, _redisUrl, workers) => fanfare(port, metricsPort, workers),
  },
  'fanfare-redis': {
    title: 'Fanfare, Redis',
    script: file('../../src/main.js'),
    profile: 'fanfare',
    redis: true,
    env: (port, metricsPort, redisUrl, workers) => ({
      ...fanfare(port, metricsPort, workers),
      REDIS_URL: redisUrl,
    }),
  },
  tutorial: {
    title: 'tutorial server (cluster, ws, Redis)',
    script: file('servers/tutorial.js'),
    profile: 'plain',
    redis: true,
    env: withRedis,
  },
  'plain-ws': {
    title: 'plain ws (stringify once, Redis)',
    script: file('servers/plain-ws.js'),
    profile: 'plain',
    redis: true,
    env: withRedis,
  },
  'socket-io': {
    title: 'Socket.IO, Redis adapter',
    script: file('servers/socket-io.js'),
    profile: 'socketio',
    redis: true,
    env: withRedis,
  },
};

/**
 * Not measured beside the others: they show what the client can take.
 * @type {Record<string, ServerKind>}
 */
export const RAW_SERVERS = {
  'raw-joined': {
    title: 'raw server, frames joined',
    script: file('servers/raw.js'),
    profile: 'plain',
    redis: false,
    env: (port) => ({ PORT: String(port) }),
  },
  'raw-single': {
    title: 'raw server, one write a frame',
    script: file('servers/raw.js'),
    profile: 'plain',
    redis: false,
    env: (port) => ({ PORT: String(port), RAW_JOIN: 'off' }),
  },
};

let lastPort = 20_000 + (process.pid % 4000);

/**
 * A port that is free now and, where the range of those leaves any, is no ephemeral port: no
 * outgoing connection takes it.
 */
export async function freePort() {
  const { low, high } = ephemeralPorts();
  const avoid = low > 20_000 || high < 32_000;
  for (let tries = 0; tries < 10_000; tries++) {
    lastPort = lastPort >= 32_000 ? 20_000 : lastPort + 1;
    if (avoid && lastPort >= low && lastPort <= high) continue;
    const server = createServer();
    const free = await new Promise((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(lastPort, () => server.close(() => resolve(true)));
    });
    if (free) return lastPort;
  }
  throw new Error('no free port between 20000 and 32000');
}

/**
 * @param {number} port
 * @param {import('node:child_process').ChildProcess} child
 * @param {() => string} output
 * @param {number} [timeoutMs]
 */
async function listening(port, child, output, timeoutMs = 20_000) {
  const deadline = performance.now() + timeoutMs;
  while (performance.now() < deadline) {
    if (child.exitCode !== null || child.signalCode !== null)
      throw new Error(`it ended before it listened:\n${output()}`);
    // From another address: on a port of the ephemeral range, where nobody listens yet, a socket
    // may connect to itself, and the port is taken for a minute.
    const socket = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' });
    const open = await new Promise((resolve) => {
      socket.once('connect', () => resolve(true));
      socket.once('error', () => resolve(false));
    });
    socket.destroy();
    if (open) return;
    await sleep(20);
  }
  throw new Error(`nothing listens on port ${port} after ${timeoutMs} ms:\n${output()}`);
}

/**
 * @param {import('node:child_process').ChildProcess} child
 * @param {number[]} tree
 * @param {number} timeoutMs
 */
async function stop(child, tree, timeoutMs) {
  if (child.exitCode === null && child.signalCode === null) {
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await Promise.race([ended, sleep(timeoutMs, null, { ref: false })]);
  }
  for (const pid of tree) {
    try {
      process.kill(pid, 'SIGKILL'); // whoever of the tree is still there
    } catch {
      // gone already, which is what we want
    }
  }
}

/**
 * Everything started here, so that an interrupted run leaves nothing behind.
 * @type {Set<() => Promise<void>>}
 */
const running = new Set();

export async function stopAll() {
  await Promise.all([...running].map((stopOne) => stopOne()));
}

/** A redis-server with nothing on disk. */
async function startRedis() {
  const port = await freePort();
  const directory = mkdtempSync(join(tmpdir(), 'fanfare-bench-'));
  const child = spawn(
    'redis-server',
    [
      '--port',
      String(port),
      '--bind',
      '127.0.0.1',
      '--save',
      '',
      '--appendonly',
      'no',
      '--dir',
      directory,
    ],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let output = '';
  child.on('error', (error) => {
    output += error.message;
  });
  child.stdout?.on('data', (text) => {
    output = (output + text).slice(-4000);
  });
  if (child.pid === undefined) {
    await once(child, 'error').catch(() => {});
    throw new Error('redis-server could not be started: is it installed?');
  }
  const close = async () => {
    running.delete(close);
    await stop(child, [/** @type {number} */ (child.pid)], 3000);
    rmSync(directory, { recursive: true, force: true });
  };
  running.add(close);
  await listening(port, child, () => output);
  return { url: `redis://127.0.0.1:${port}`, pid: child.pid, close };
}

/**
 * A server under measurement.
 * @typedef {object} Target
 * @property {string} name
 * @property {string} title
 * @property {string} host
 * @property {number} port
 * @property {number | null} metricsPort
 * @property {import('./profiles.js').Profile} profile
 * @property {() => number} cpuSeconds of all its processes, 0 where unknown
 * @property {() => number} redisCpuSeconds
 * @property {() => number} pssKb
 * @property {() => number[]} pids
 * @property {() => Promise<void>} close
 */

/**
 * Starts a server and waits until it takes connections.
 * @param {string} name
 * @param {{ workers?: number, env?: Record<string, string> }} [options]
 * @returns {Promise<Target>}
 */
export async function startServer(name, { workers = 2, env = {} } = {}) {
  const kind = SERVERS[name] ?? RAW_SERVERS[name];
  if (!kind) throw new Error(`no server named ${name}: ${Object.keys(SERVERS).join(', ')}`);
  const redis = kind.redis ? await startRedis() : null;
  const port = await freePort();
  const metricsPort = await freePort();
  const child = spawn(process.execPath, [kind.script], {
    env: { ...process.env, ...kind.env(port, metricsPort, redis?.url ?? '', workers), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (text) => {
      output = (output + text).slice(-4000);
    });
  }
  const pid = /** @type {number} */ (child.pid);
  const close = async () => {
    running.delete(close);
    await stop(child, processTree([pid]), 5000);
    await redis?.close();
  };
  running.add(close);
  try {
    await listening(port, child, () => output);
    // A cluster listens as soon as its first worker does: wait for all of them, and for the start's
    // own work to end.
    const expected = kind.script.endsWith('raw.js') ? 1 : workers + 1;
    for (let tries = 0; tries < 200 && processTree([pid]).length < expected; tries++)
      await sleep(20);
    const target = {
      ...described(
        name,
        kind.title,
        port,
        metricsPort,
        PROFILES[kind.profile],
        () => processTree([pid]),
        redis?.pid,
      ),
      close,
    };
    await quiet(target, 5000);
    const left = target.pids().length;
    if (left < expected) throw new Error(`${left} of ${expected} processes are there:\n${output}`);
    return target;
  } catch (error) {
    await close();
    const { message } = /** @type {Error} */ (error);
    throw new Error(`${kind.title} does not start: ${message}`, { cause: error });
  }
}

/**
 * A server that was started by someone else.
 * @param {{ url: string, profile: string, pids: number[], redisPid?: number, name?: string }}
 *   options
 * @returns {Target}
 */
export function externalServer({ url, profile, pids, redisPid, name }) {
  const { hostname, port, pathname, search } = new URL(url);
  const known = PROFILES[profile];
  if (!known) throw new Error(`no profile named ${profile}: ${Object.keys(PROFILES).join(', ')}`);
  const path = pathname === '/' && search === '' ? known.path : pathname + search;
  return {
    ...described(
      name ?? `${profile} at ${url}`,
      name ?? url,
      Number(port || 80),
      null,
      { ...known, path },
      () => processTree(pids),
      redisPid,
    ),
    host: hostname,
    close: async () => {},
  };
}

/**
 * @param {string} name
 * @param {string} title
 * @param {number} port
 * @param {number | null} metricsPort
 * @param {import('./profiles.js').Profile} profile
 * @param {() => number[]} pids
 * @param {number} [redisPid]
 */
function described(name, title, port, metricsPort, profile, pids, redisPid) {
  return {
    name,
    title,
    host: '127.0.0.1',
    port,
    metricsPort,
    profile,
    pids,
    cpuSeconds: () => cpuSecondsOf(pids()),
    redisCpuSeconds: () => (redisPid === undefined ? 0 : cpuSecondsOf([redisPid])),
    pssKb: () => pssKbOf(pids()),
  };
}

/**
 * Waits until the server has nothing to do: less than a twentieth of a processor over 200 ms.
 * @param {Pick<Target, 'cpuSeconds' | 'redisCpuSeconds'>} target
 * @param {number} timeoutMs
 */
export async function quiet(target, timeoutMs) {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const before = target.cpuSeconds() + target.redisCpuSeconds();
    await sleep(200);
    if (
      target.cpuSeconds() + target.redisCpuSeconds() - before <= 0.01 ||
      performance.now() > deadline
    )
      return;
  }
}
