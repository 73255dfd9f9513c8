// servers.js: the servers that are measured: how each is started, watched and stopped.
//
// Each has two processes with connections (its cluster primary comes on top), and a fresh
// redis-server if it needs one. Ports are outside the range of ephemeral ports. A server that is
// not installed with the benchmark is a row only if it is present.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { freePort, isListening, startRedis } from '../../test/harness/redis.js';
import { compile, hasCompiler, pathOf } from './compile.js';
import { commitOf, cpuSecondsOf, processTree, pssKbOf } from './machine.js';
import { PROFILES } from './profiles.js';

const START_MS = 20_000;
const START_MS_PER_WORKER = 1000;
const STOP_MS = 5000;
const OUTPUT_CHARS = 4000;

/**
 * @typedef {object} ServerKind
 * @property {string} title
 * @property {string} [script] of a server in Node
 * @property {string} [source] of a server in C, if a C compiler is present
 * @property {{ name: string, args: string[], portName: string }} [program] another one, found in
 *   PATH: its command, and the environment variable of its port
 * @property {string} [package] its package, if the benchmark does not install it
 * @property {string} [install] a command that makes it present
 * @property {string} profile of profiles.js
 * @property {boolean} redis it needs one, and gets REDIS_URL
 * @property {Record<string, string>} [env] beside PORT, METRICS_PORT, WORKERS
 */

const FANFARE = Object.freeze({
  script: '../../src/main.js',
  profile: 'fanfare',
  env: { FANFARE_LIMITS: 'off', FANFARE_DRAIN_DELAY_MS: '0', LOG_LEVEL: 'warn' },
});
const RAW = Object.freeze({ script: 'servers/raw.js', profile: 'plain', redis: false });

/** @type {Record<string, ServerKind>} */
export const SERVERS = {
  fanfare: { title: 'Fanfare, embedded broker', redis: false, ...FANFARE },
  'fanfare-redis': { title: 'Fanfare, Redis', redis: true, ...FANFARE },
  tutorial: {
    title: 'tutorial server (cluster, ws, Redis)',
    script: 'servers/tutorial.js',
    profile: 'plain',
    redis: true,
  },
  'plain-ws': {
    title: 'plain ws (stringify once, Redis)',
    script: 'servers/plain-ws.js',
    profile: 'plain',
    redis: true,
  },
  'socket-io': {
    title: 'Socket.IO, Redis adapter',
    script: 'servers/socket-io.js',
    profile: 'socketio',
    redis: true,
  },
  uws: {
    title: 'uWebSockets.js, Redis between its workers',
    script: 'servers/uws.js',
    package: 'uwebsockets',
    install: 'npm install --no-save --prefix loadtest/bench uwebsockets@3.0.6',
    profile: 'plain',
    redis: true,
  },
  limit: {
    title: 'limit: as little as possible, in C',
    source: 'servers/limit.c',
    install: 'install a C compiler named cc',
    profile: 'plain',
    redis: false,
  },
  centrifugo: {
    title: 'Centrifugo, in memory',
    program: { name: 'centrifugo', args: [], portName: 'CENTRIFUGO_HTTP_SERVER_PORT' },
    install: 'put the binary of Centrifugo 6 into a directory of PATH',
    profile: 'centrifugo',
    redis: false,
    env: {
      GOMAXPROCS: '2',
      CENTRIFUGO_CLIENT_ALLOW_ANONYMOUS_CONNECT_WITHOUT_TOKEN: 'true',
      CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_ALLOW_PUBLISH_FOR_CLIENT: 'true',
      CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_ALLOW_PUBLISH_FOR_ANONYMOUS: 'true',
      CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_ALLOW_SUBSCRIBE_FOR_CLIENT: 'true',
      CENTRIFUGO_CHANNEL_WITHOUT_NAMESPACE_ALLOW_SUBSCRIBE_FOR_ANONYMOUS: 'true',
      CENTRIFUGO_CLIENT_CONNECTION_LIMIT: '0',
      CENTRIFUGO_CLIENT_QUEUE_MAX_SIZE: '67108864',
      CENTRIFUGO_LOG_LEVEL: 'error',
    },
  },
};

/** @param {string} name of a server @returns {boolean} whether it is installed here */
export function isPresent(name) {
  const { package: wanted, program, source } = SERVERS[name];
  if (source !== undefined) return hasCompiler();
  if (program !== undefined) return pathOf(program.name) !== '';
  return (
    wanted === undefined ||
    existsSync(new URL(`./node_modules/${wanted}/package.json`, import.meta.url))
  );
}

/**
 * They show the limit of the client, and are not measured beside the others.
 * @type {Record<string, ServerKind>}
 */
const RAW_SERVERS = {
  'raw-joined': { title: 'raw server, frames joined', ...RAW },
  'raw-single': { title: 'raw server, one write a frame', ...RAW, env: { RAW_JOIN: 'off' } },
};

/**
 * A server under measurement.
 * @typedef {object} Target
 * @property {string} name
 * @property {string} title
 * @property {string} host
 * @property {number} port
 * @property {number | null} metricsPort
 * @property {string} redisUrl '' without Redis
 * @property {import('./profiles.js').Profile} profile
 * @property {() => number} cpuSeconds of all its processes, 0 if unknown
 * @property {() => number} redisCpuSeconds
 * @property {() => number} pssKb
 * @property {() => number[]} pids
 * @property {() => Promise<void>} close
 */

/** Ends all processes started here, so that an interrupted run leaves none behind. */
const running = new Set(/** @type {(() => Promise<void>)[]} */ ([]));

export async function stopAll() {
  await Promise.all([...running].map((stopOne) => stopOne()));
}

/**
 * Starts a server and waits until it takes connections.
 * @param {string} name
 * @param {object} [options]
 * @param {number} [options.workers]
 * @param {Record<string, string>} [options.env]
 * @param {string} [options.checkout] of Fanfare, in place of this one
 * @returns {Promise<Target>}
 */
export async function startServer(name, { workers = 2, env = {}, checkout = '' } = {}) {
  const known = SERVERS[name] ?? RAW_SERVERS[name];
  const kind = known && checkout !== '' ? ofCheckout(known, checkout) : known;
  if (!kind) throw new Error(`no server named ${name}: ${Object.keys(SERVERS).join(', ')}`);
  if (kind.install !== undefined && !isPresent(name))
    throw new Error(`${kind.title} is not installed: ${kind.install}`);
  /** @type {(() => unknown)[]} */
  const ends = [];
  const close = async () => {
    running.delete(close);
    for (const end of ends.splice(0).reverse()) await end();
  };
  running.add(close);
  try {
    const redis = kind.redis ? await startRedis({ after: (end) => ends.push(end) }) : null;
    const [port, metricsPort] = [await freePort(), await freePort()];
    const child = spawn(...commandOf(kind), {
      env: {
        ...process.env,
        PORT: String(port),
        ...(kind.program ? { [kind.program.portName]: String(port) } : {}),
        METRICS_PORT: String(metricsPort),
        WORKERS: String(workers),
        ...(redis ? { REDIS_URL: redis.url } : {}),
        ...kind.env,
        ...env,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (text) => {
        output = (output + text).slice(-OUTPUT_CHARS);
      });
    const pid = /** @type {number} */ (child.pid);
    ends.push(() => stop(child));
    const target = {
      ...described(
        name,
        kind.title,
        port,
        PROFILES[kind.profile],
        () => processTree([pid]),
        redis?.process?.pid,
      ),
      metricsPort,
      redisUrl: redis?.url ?? '',
      close,
    };
    // A cluster listens as soon as its first worker does: wait for all of them, and for the end of
    // the work at the start.
    const expected = kind.program || kind.script?.endsWith('raw.js') ? 1 : workers + 1;
    const deadline = performance.now() + START_MS + workers * START_MS_PER_WORKER;
    while (!(await isListening(port)) || target.pids().length < expected) {
      if (child.exitCode !== null || child.signalCode !== null || performance.now() > deadline)
        throw new Error(`${kind.title} does not start:\n${output}`);
      await sleep(20);
    }
    await quiet(target, 5000);
    const left = target.pids().length;
    if (left < expected)
      throw new Error(`${kind.title}: ${left} of ${expected} processes:\n${output}`);
    return target;
  } catch (error) {
    await close();
    throw error;
  }
}

/** @param {ServerKind} kind of Fanfare @param {string} checkout @returns {ServerKind} */
function ofCheckout(kind, checkout) {
  const folder = resolve(checkout);
  return {
    ...kind,
    title: `${kind.title}, ${commitOf(folder)}`,
    script: join(folder, 'src/main.js'),
  };
}

/** @param {ServerKind} kind @returns {[string, string[]]} */
function commandOf({ script = '', program, source }) {
  if (source !== undefined) return [compile(source), []];
  if (program !== undefined) return [pathOf(program.name), program.args];
  return [process.execPath, [resolve(fileURLToPath(new URL('.', import.meta.url)), script)]];
}

/** @param {import('node:child_process').ChildProcess} child */
async function stop(child) {
  // A process id that has ended may belong to another process by now.
  if (child.exitCode !== null || child.signalCode !== null) return;
  const tree = processTree([/** @type {number} */ (child.pid)]);
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await Promise.race([ended, sleep(STOP_MS, null, { ref: false })]);
  for (const pid of tree) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // it has ended
    }
  }
}

/**
 * A server that someone else started.
 * @param {{ url: string, profile: string, pids: number[], redisPid?: number, name?: string }}
 *   options
 * @returns {Target}
 */
export function externalServer({ url, profile, pids, redisPid, name }) {
  const { hostname, port, pathname, search } = new URL(url);
  const known = PROFILES[profile];
  if (!known) throw new Error(`no profile named ${profile}: ${Object.keys(PROFILES).join(', ')}`);
  const path = pathname === '/' && search === '' ? known.path : pathname + search;
  const treeOf = () => processTree(pids);
  return {
    ...described(
      name ?? `${profile} at ${url}`,
      name ?? url,
      Number(port || 80),
      { ...known, path },
      treeOf,
      redisPid,
    ),
    host: hostname,
    metricsPort: null,
    redisUrl: '',
    close: async () => {},
  };
}

/**
 * @param {string} name
 * @param {string} title
 * @param {number} port
 * @param {import('./profiles.js').Profile} profile
 * @param {() => number[]} pids
 * @param {number} [redisPid]
 */
function described(name, title, port, profile, pids, redisPid) {
  return {
    ...{ name, title, host: '127.0.0.1', port, profile, pids },
    cpuSeconds: () => cpuSecondsOf(pids()),
    redisCpuSeconds: () => (redisPid === undefined ? 0 : cpuSecondsOf([redisPid])),
    pssKb: () => pssKbOf(pids()),
  };
}

/**
 * Waits until the server is idle: less than a twentieth of a processor over 200 ms.
 * @param {Pick<Target, 'cpuSeconds' | 'redisCpuSeconds'>} target @param {number} timeoutMs
 */
export async function quiet(target, timeoutMs) {
  const deadline = performance.now() + timeoutMs;
  const cpu = () => target.cpuSeconds() + target.redisCpuSeconds();
  for (;;) {
    const before = cpu();
    await sleep(200);
    if (cpu() - before <= 0.01 || performance.now() > deadline) return;
  }
}
