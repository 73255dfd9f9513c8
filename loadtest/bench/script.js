// script.js: parts of the benchmark's scripts: common options, a server with its clients, probes.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onSignal, Run } from '../../test/harness/run.js';
import { until } from '../../test/harness/server.js';
import { SERVERS, startServer, stopAll } from './servers.js';
import { Swarm } from './swarm.js';

/** Options that several scripts have. */
export const OPTION = Object.freeze({
  server: `server NAME | one of ${Object.keys(SERVERS).join(' ')} | fanfare | the server to measure`,
  payload: 'payload BYTES | whole 64..65536 | 100 | size of a payload',
  save: 'save PATH | | | path of the report without its ending; without, a file of bench/results/',
});
const PROBE_MS = 20_000;

/** Ctrl-C stops the servers, too. */
export function stopOnSignal() {
  onSignal(async () => {
    await stopAll();
    process.exit(1);
  });
}

/**
 * Starts a server and client processes that aim at it. Both end with their owner.
 * @param {import('../../test/harness/server.js').Owner} owner
 * @param {object} options
 * @param {string} options.server
 * @param {number} [options.processes] of the client
 * @param {number} [options.workers]
 * @param {string} [options.checkout] of Fanfare; without, this one
 * @param {Record<string, string>} [options.env]
 */
export async function startBench(owner, { server, processes = 2, workers, checkout, env }) {
  owner.after(stopAll);
  const swarm = new Swarm({ processes }).start();
  owner.after(() => swarm.close());
  const target = await startServer(server, { workers, checkout, env });
  await swarm.aim(target);
  return { target, swarm };
}

/**
 * Starts a server and its clients for one function.
 * @template T
 * @param {Parameters<typeof startBench>[1]} options
 * @param {(parts: Awaited<ReturnType<typeof startBench>>) => Promise<T>} body
 * @returns {Promise<T>}
 */
export async function withServer(options, body) {
  const owner = new Run('');
  try {
    return await body(await startBench(owner, options));
  } finally {
    await owner.end();
  }
}

/**
 * Loads a script of servers/ into each process of a server. On SIGUSR2 the script writes figures to
 * a file, which `ask` reads.
 * @param {import('../../test/harness/server.js').Owner} owner @param {string} script
 */
export function preload(owner, script) {
  const directory = mkdtempSync(join(tmpdir(), 'fanfare-bench-'));
  owner.after(() => rmSync(directory, { recursive: true, force: true }));
  const path = fileURLToPath(new URL(`./servers/${script}`, import.meta.url));
  return {
    env: { NODE_OPTIONS: `--require ${path}`, BENCH_REPORT_DIR: directory },
    /** @param {number} pid @returns {Promise<Record<string, number>>} */
    async ask(pid) {
      const report = join(directory, `${pid}.json`);
      rmSync(report, { force: true });
      process.kill(pid, 'SIGUSR2');
      return until(() => readJson(report), PROBE_MS, `the answer of process ${pid}`);
    },
  };
}

/**
 * Lets all processes of a server collect their garbage.
 * @param {import('./servers.js').Target} target
 * @param {ReturnType<typeof preload>} probe of collect.cjs
 * @returns {Promise<number>} bytes of their live heaps, with what these keep outside
 */
export async function liveBytesOf(target, probe) {
  let bytes = 0;
  for (const pid of target.pids()) {
    const { heapUsed, external } = await probe.ask(pid);
    bytes += heapUsed + external;
  }
  return bytes;
}

/** @param {string} path @returns {Record<string, number>|null} null while it is incomplete */
function readJson(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return null;
  }
}
