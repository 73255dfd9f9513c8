// script.js: the frame of a script of the benchmark: its server and clients, its end, its report.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { onSignal } from '../lib/run.js';
import { describeMachine } from './machine.js';
import { SERVERS, startServer, stopAll } from './servers.js';
import { findClient, Swarm } from './swarm.js';

/** Options that several scripts have. */
export const OPTION = Object.freeze({
  server: `server NAME | one of ${Object.keys(SERVERS).join(' ')} | fanfare | the server to measure`,
  client:
    'client KIND | one of auto c node | auto | auto is C if there is a compiler named cc, else Node',
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
 * Starts a server and client processes that aim at it, and stops both.
 * @template T
 * @param {object} options
 * @param {string} options.server
 * @param {'auto' | 'c' | 'node'} options.client
 * @param {number} [options.processes] of the client
 * @param {number} [options.workers]
 * @param {Record<string, string>} [options.env]
 * @param {(parts: {target: import('./servers.js').Target, swarm: Swarm}) => Promise<T>} body
 * @returns {Promise<T>}
 */
export async function withServer({ server, client, processes = 2, workers, env }, body) {
  const swarm = new Swarm({ client: findClient(client), processes }).start();
  /** @type {import('./servers.js').Target|undefined} */
  let target;
  try {
    target = await startServer(server, { workers, env });
    await swarm.aim(target);
    return await body({ target, swarm });
  } finally {
    await swarm.close();
    await target?.close();
  }
}

/**
 * Loads a script of servers/ into each process of a server. On SIGUSR2 the script writes figures to
 * a file, which `ask` reads.
 * @param {string} script
 */
export function preload(script) {
  const directory = mkdtempSync(join(tmpdir(), 'fanfare-bench-'));
  const path = fileURLToPath(new URL(`./servers/${script}`, import.meta.url));
  return {
    env: { NODE_OPTIONS: `--require ${path}`, BENCH_REPORT_DIR: directory },
    /**
     * @param {number} pid
     * @returns {Promise<Record<string, number>>}
     */
    async ask(pid) {
      const report = join(directory, `${pid}.json`);
      rmSync(report, { force: true });
      process.kill(pid, 'SIGUSR2');
      const deadline = performance.now() + PROBE_MS;
      for (;;) {
        try {
          return JSON.parse(readFileSync(report, 'utf8'));
        } catch (cause) {
          if (performance.now() > deadline)
            throw new Error(`process ${pid} does not answer`, { cause });
          await sleep(20);
        }
      }
    },
    end: () => rmSync(directory, { recursive: true, force: true }),
  };
}

/**
 * Prints a report, and saves it as Markdown and JSON.
 * @param {object} report
 * @param {string} report.script its name
 * @param {string} report.title
 * @param {string} [report.note] follows the command line
 * @param {readonly string[]} report.lines
 * @param {object} report.data
 * @param {string} report.save path without its ending; '' for the usual one
 */
export function saveReport({ script, title, note = '', lines, data, save }) {
  const startedAt = new Date(Date.now() - performance.now()).toISOString();
  // The place of the report is no part of the measurement.
  const args = process.argv
    .slice(2)
    .join(' ')
    .replace(/ ?--save[ =]\S+/, '');
  const command = `node loadtest/bench/${script}.js ${args}`.trim();
  const machine = describeMachine();
  const text = [
    `# ${title}, ${startedAt}`,
    '',
    `\`${command}\`${note === '' ? '' : `: ${note}`}`,
    '',
    ...Object.entries(machine).map(([key, value]) => `- ${key}: ${value}`),
    '',
    ...lines,
    '',
  ].join('\n');
  const results = fileURLToPath(new URL('./results/', import.meta.url));
  const path = save || `${results}${script}-${startedAt.slice(0, 16).replace(':', '')}`;
  mkdirSync(results, { recursive: true });
  writeFileSync(`${path}.md`, text);
  writeFileSync(
    `${path}.json`,
    `${JSON.stringify({ startedAt, command, machine, ...data }, null, 1)}\n`,
  );
  console.log(`\n${text}\nsaved as ${path}.md and .json`);
}
