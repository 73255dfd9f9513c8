// server.js: starts real Fanfare servers for tests and load tools, and reads their metrics.
//
// The system chooses the ports, and the log says which they are. The processes of a server end with
// the test or the run that started it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const MAIN = fileURLToPath(new URL('../../src/main.js', import.meta.url));
/** Four workers need 1 s of processor time to start. A busy machine may take long to give it. */
const READY_TIMEOUT_MS = 30_000;
const SCRAPE_TIMEOUT_MS = 3000;
const POLL_MS = 20;
/** The warning on an old line of Node: Node is the choice of who runs the tests. */
const AGED = /^Node \d+ has had no security fixes/;

/** The settings of a run that does not test a limit. */
export const NO_LIMITS = Object.freeze({ FANFARE_LIMITS: 'off', LOG_LEVEL: 'info' });

/** The owner of a process, which ends with it: a `node:test` context, or a `Run` of a load tool. */
/** @typedef {{after: (cleanup: () => unknown) => void}} Owner */

/** @typedef {Record<string, any>} LogLine */

/**
 * A server under test.
 * @typedef {object} Server
 * @property {number} pid of the primary
 * @property {number} port
 * @property {number} metricsPort
 * @property {LogLine[]} lines of its log so far
 * @property {() => string} stderr
 * @property {(predicate: (line: LogLine) => boolean, timeoutMs?: number) => Promise<LogLine>} line
 *   waits for a log line
 * @property {Promise<{code: number|null, signal: string|null}>} exited
 * @property {(signal: NodeJS.Signals) => void} kill the primary
 * @property {() => number[]} workerPids of the processes the primary has now, without the courier
 * @property {() => number|null} courierPid of the process that sends webhooks
 */

/** A field that the test suite hides from all processes (test/run.js). */
const { TEST_HIDDEN_FIELD, NODE_OPTIONS } = process.env;
const HIDDEN = TEST_HIDDEN_FIELD === undefined ? {} : { TEST_HIDDEN_FIELD, NODE_OPTIONS };

/**
 * Puts something between the tests and every server that `startServer` starts.
 * @typedef
 *   {(t: Owner) => Promise<{env: Record<string, string>, portOf: (port: number) => Promise<number>}>}
 *   Layer settings of the server, and the port to use instead of its own
 */
/** @type {Layer|null} */
let layer = null;

/** For the test suite. @param {Layer} given */
export function setLayer(given) {
  layer = given;
}

/**
 * @typedef {object} Launch
 * @property {string[]} [prefix] command that becomes the server: `prlimit --nofile=400`
 * @property {string} [main] another copy of it
 */

/**
 * Starts the server without waiting for it.
 * @param {Owner} t @param {Record<string, string>} [env] @param {Launch} [launch]
 */
export function spawnServer(t, env = {}, { prefix = [], main = MAIN } = {}) {
  const [command, ...args] = [...prefix, process.execPath, main];
  const child = spawn(command, args, {
    env: {
      PATH: process.env.PATH,
      ...HIDDEN,
      PORT: '0',
      METRICS_PORT: '0',
      HOST: '127.0.0.1',
      WORKERS: '2',
      FANFARE_DRAIN_DELAY_MS: '0',
      // Most tests do not test a machine that stands still for a moment.
      FANFARE_MAX_LOOP_LAG_MS: '10000',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const pid = /** @type {number} */ (child.pid);
  /** @type {LogLine[]} */
  const lines = [];
  let stderr = '';
  let rest = '';
  child.stdout.setEncoding('utf8').on('data', (/** @type {string} */ text) => {
    const parts = (rest + text).split('\n');
    rest = /** @type {string} */ (parts.pop());
    lines.push(...parts.map((part) => JSON.parse(part)).filter(({ msg }) => !AGED.test(msg)));
  });
  child.stderr.setEncoding('utf8').on('data', (/** @type {string} */ text) => {
    stderr += text;
  });
  /** @type {Promise<{code: number|null, signal: string|null}>} */
  const exited = once(child, 'exit').then(([code, signal]) => ({ code, signal }));
  t.after(async () => {
    const workers = childrenOf(pid);
    child.kill('SIGKILL');
    for (const worker of workers) killQuietly(worker);
    await exited;
  });
  return {
    pid,
    lines,
    stderr: () => stderr,
    exited,
    kill: (/** @type {NodeJS.Signals} */ signal) => child.kill(signal),
    workerPids: () => childrenOf(pid).filter((child) => !isCourier(child)),
    courierPid: () => childrenOf(pid).find(isCourier) ?? null,
    /** @param {(line: LogLine) => boolean} predicate @param {number} [timeoutMs] */
    async line(predicate, timeoutMs = 10_000) {
      const end = performance.now() + timeoutMs;
      for (;;) {
        const found = lines.find(predicate);
        if (found) return found;
        if (performance.now() > end)
          throw new Error(
            `no such log line; the log:\n${lines.map((line) => JSON.stringify(line)).join('\n')}\n${stderr}`,
          );
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      }
    },
  };
}

/**
 * Starts the server and waits until it serves.
 * @param {Owner} t
 * @param {Record<string, string>} [env]
 * @param {Launch} [launch]
 * @returns {Promise<Server>} rejects with the server's log if it does not start
 */
export async function startServer(t, env, launch) {
  const between = layer === null ? null : await layer(t);
  const server = spawnServer(t, { ...between?.env, ...env }, launch);
  const ready = await Promise.race([
    server.line(({ msg }) => String(msg).startsWith('fanfare is ready'), READY_TIMEOUT_MS),
    server.exited.then(({ code }) => {
      const log = server.lines.map(({ msg }) => msg).join('\n');
      throw new Error(`the server ended with ${code}:\n${log}\n${server.stderr()}`);
    }),
  ]);
  const port = between === null ? ready.port : await between.portOf(ready.port);
  return { ...server, port, metricsPort: ready.metricsPort };
}

/** @param {Pick<Server, 'port'>} server */
export function urlOf(server) {
  return `ws://127.0.0.1:${server.port}/ws`;
}

/**
 * Polls until `probe` returns something true.
 * @template T
 * @param {() => T|Promise<T>} probe
 * @param {number} [timeoutMs]
 * @param {string} [what] for the message
 * @returns {Promise<NonNullable<T>>}
 */
export async function until(probe, timeoutMs = 10_000, what = 'that') {
  const end = performance.now() + timeoutMs;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (performance.now() > end) throw new Error(`${what} did not happen within ${timeoutMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/**
 * The samples of a metrics page: full name with labels → value.
 * @param {string} text @returns {Map<string, number>}
 */
export function samples(text) {
  /** @type {Map<string, number>} */
  const result = new Map();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const at = line.lastIndexOf(' ');
    result.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return result;
}

/**
 * Reads a page of metrics.
 * @param {number|string} where the operations port of a server here, or the URL of any page of
 *   metrics
 * @returns {Promise<{text: string, values: Map<string, number>}>} rejects if the server does not
 *   answer with 200 in time
 */
export async function scrape(where) {
  const url = typeof where === 'number' ? `http://127.0.0.1:${where}/metrics` : where;
  const response = await fetch(url, { signal: AbortSignal.timeout(SCRAPE_TIMEOUT_MS) });
  const text = await response.text();
  if (response.status !== 200)
    throw new Error(`${new URL(url).pathname} answered ${response.status}`);
  return { text, values: samples(text) };
}

/**
 * Connections of each worker, by the worker's number.
 * @param {ReadonlyMap<string, number>} values @returns {Map<string, number>}
 */
export function connectionsPerWorker(values) {
  /** @type {Map<string, number>} */
  const result = new Map();
  for (const [name, value] of values) {
    const match = /^fanfare_worker_connections\{worker="(\d+)"\}$/.exec(name);
    if (match) result.set(match[1], value);
  }
  return result;
}

/**
 * @param {number} metricsPort
 * @returns {Promise<Record<string, any>>} the body of /readyz, with its HTTP `status`
 */
export async function readiness(metricsPort) {
  const response = await fetch(`http://127.0.0.1:${metricsPort}/readyz`, {
    signal: AbortSignal.timeout(SCRAPE_TIMEOUT_MS),
  });
  const body = /** @type {object} */ (await response.json());
  return { ...body, status: response.status };
}

/** @param {number} pid @returns {number[]} */
export function childrenOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
      .trim()
      .split(' ')
      .filter(Boolean)
      .map(Number);
  } catch {
    return []; // it is gone
  }
}

/** @param {number} pid */
function isCourier(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').endsWith('\0courier\0');
  } catch {
    return false; // it is gone
  }
}

/** @param {number} pid */
function killQuietly(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // it is gone
  }
}
