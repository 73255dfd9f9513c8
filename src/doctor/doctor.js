// doctor.js: reports how many connections this machine can hold, and which limit binds first. At
// the start of a server it writes one line if a limit is too low.
//   read.js (reads the machine) -> limits.js (judges) -> report.js (table or JSON), exit code

import { existsSync } from 'node:fs';
import { readCommandLine } from '../config/command-line.js';
import { EXIT } from '../config/exit-codes.js';
import { printable, printableLines } from '../observability/printable.js';
import { readBucket } from './bucket.js';
import { DEFAULT_WANTED, examine, LIMITS } from './limits.js';
import { environmentOf, isElsewhere, READERS, readMachine, readRedis, Unread } from './read.js';
import { summary, toJson, toText } from './report.js';

export { endedNote } from './versions.js';

/** The answers of a command line without options. */
const UNASKED = Object.freeze({ wanted: DEFAULT_WANTED, clients: null, idleTimeoutMs: null });

const UNITS_MS = Object.freeze({ ms: 1, s: 1000, m: 60_000, h: 3_600_000 });

export const DOCTOR_USAGE = `Usage: fanfare doctor [options]   (in a checkout: npm run doctor -- [options])

  --connections N          connections that this server must hold (${DEFAULT_WANTED})
  --pid PID                process of a running server: use its limits and settings, not those of this shell
  --clients here           this machine also opens the connections: it runs the load balancer or load generator
  --clients elsewhere      other machines open the connections
  --lb-idle-timeout TIME   idle time-out of the load balancer, with its unit: 60s, 2m
  --webhooks               send webhook.test to each endpoint of FANFARE_WEBHOOKS, and print the answers
  --hooks                  ask each backend of FANFARE_HOOKS, also with a wrong signature, and print the answers
  --live                   ask the server on this machine whether it is alive, and read no limit: for health checks
  --json                   print JSON (in a checkout: npm --silent run doctor -- --json)
  --help, -h               print this help

The doctor reads WORKERS, REDIS_URL and the other settings like the server does.
Exit codes: ${EXIT.ok} no limit is too low, ${EXIT.failed} a limit is too low, or Redis or the bucket does not work,
${EXIT.usage} wrong option, ${EXIT.config} invalid settings. With --webhooks: ${EXIT.ok} every endpoint received the test, ${EXIT.failed} one
did not. With --hooks: ${EXIT.ok} every backend answered and checks signatures, ${EXIT.failed} one does not.
With --live: ${EXIT.ok} the server answers, ${EXIT.failed} it does not.
`;

/** @import { Config } from '../config/settings.js' */

/**
 * @typedef {{wanted: number, pid: string|null, clients: 'here'|'elsewhere'|null,
 *   idleTimeoutMs: number|null, webhooks: boolean, hooks: boolean, live: boolean,
 *   json: boolean, help: boolean}} Options
 */

/**
 * Prints the report.
 * @param {object} parts @param {string[]} parts.args
 * @param
 *   {(env?: Record<string, string>) => Promise<{settings: {config: Config}|null, faults: string[],
 *     env: Readonly<Record<string, string|undefined>>}>}
 *   parts.loadSettings from the given environment, or from that of this process
 * @param {boolean} [parts.isColoured] the verdicts, for a terminal
 * @returns {Promise<number>} the exit code
 */
export async function runDoctor({ args, loadSettings, isColoured = false }) {
  let options;
  try {
    options = parseOptions(args);
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    process.stderr.write(`fanfare doctor: ${printable(message)}\n\n${DOCTOR_USAGE}`);
    return EXIT.usage;
  }
  const { pid, wanted, clients, idleTimeoutMs, webhooks, hooks, live, json, help } = options;
  if (help) {
    process.stdout.write(DOCTOR_USAGE);
    return EXIT.ok;
  }
  if (live) {
    const { isAlive, text } = await (await import('./live.js')).askLive((await loadSettings()).env);
    process.stdout.write(printableLines(text));
    return isAlive ? EXIT.ok : EXIT.failed;
  }
  if (pid !== null && !existsSync(`/proc/${pid}`)) {
    process.stderr.write(`--pid: no process ${pid}\n`);
    return EXIT.usage;
  }
  const notes = [];
  const env = pid === null ? undefined : environmentOf(pid);
  if (env instanceof Unread)
    notes.push(
      `The settings are those of this shell, because those of process ${pid} cannot be read: ${env.why}.`,
    );
  if (pid === null)
    notes.push('The limits are those of this shell. For those of a running server, use --pid PID.');
  else if (isElsewhere(pid)) {
    notes.push(
      `Process ${pid} is in another network namespace. For its net.* settings, run the doctor under sudo nsenter -t ${pid} -n.`,
    );
  }
  const { settings, faults } = await loadSettings(env instanceof Unread ? undefined : env);
  if (settings === null) {
    process.stderr.write(
      `The server would not start:\n${faults.map((fault) => `  ${printable(fault)}\n`).join('')}`,
    );
    return EXIT.config;
  }
  const { config } = settings;
  if (webhooks || hooks) {
    const test = webhooks
      ? (await import('./webhooks.js')).testEndpoints
      : (await import('./hooks.js')).testBackends;
    const { text, isOk } = await test(config, json);
    process.stdout.write(printableLines(text));
    return isOk ? EXIT.ok : EXIT.failed;
  }
  const readings = await readAll(config, pid ?? 'self');
  const report = examine(readings, { config, wanted, clients, idleTimeoutMs });
  const text = json ? toJson(report, notes) : toText(report, notes, isColoured);
  process.stdout.write(`${text}\n`);
  return report.verdict === 'ok' ? EXIT.ok : EXIT.failed;
}

/**
 * The report of a running server, about its own process.
 * @param {Config} config @returns {Promise<import('./limits.js').Report>}
 */
export async function examineServer(config) {
  return examine(await readAll(config, 'self'), { config, ...UNASKED });
}

/** @param {Config} config @param {string} pid */
async function readAll(config, pid) {
  const keys = /** @type {(keyof typeof READERS)[]} */ (Object.keys(READERS));
  return {
    ...readMachine(keys, pid),
    ...(await readRedis(config.redis)),
    ...(await readBucket(config)),
  };
}

/**
 * Checks the limits that are cheap to read, at the start of a server.
 * @param {Config} config @param {import('./read.js').ReadFile} [read]
 * @returns {string} the first limit that is too low; '' if all are high enough
 */
export function glance(config, read) {
  const limits = LIMITS.filter(({ atStart }) => atStart);
  const keys = /** @type {(keyof typeof READERS)[]} */ (limits.flatMap(({ needs }) => needs));
  const readings = /** @type {import('./limits.js').PartialReadings} */ (
    readMachine(keys, 'self', read)
  );
  const report = examine(readings, { config, ...UNASKED }, limits);
  if (report.verdict === 'ok') return '';
  return `low system limit: ${summary(report)}: run "npm run doctor" (or "fanfare doctor") for the fix`;
}

/** @param {string[]} args @returns {Options} @throws {Error} with the fault */
export function parseOptions(args) {
  const { values } = readCommandLine(args, {
    connections: { type: 'string', default: String(DEFAULT_WANTED) },
    pid: { type: 'string' },
    clients: { type: 'string' },
    'lb-idle-timeout': { type: 'string' },
    webhooks: { type: 'boolean', default: false },
    hooks: { type: 'boolean', default: false },
    live: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  });
  const { connections, pid, clients } = values;
  if (!/^[1-9]\d{0,8}$/.test(connections))
    throw new Error(`--connections: ${connections} is not a positive integer`);
  if (pid !== undefined && !/^[1-9]\d*$/.test(pid))
    throw new Error(`--pid: ${pid} is not a process ID`);
  if (clients !== undefined && clients !== 'here' && clients !== 'elsewhere') {
    throw new Error(`--clients: ${clients} is not "here" or "elsewhere"`);
  }
  return {
    wanted: Number(connections),
    pid: pid ?? null,
    clients: clients ?? null,
    idleTimeoutMs: durationMs(values['lb-idle-timeout']),
    webhooks: values.webhooks,
    hooks: values.hooks,
    live: values.live,
    json: values.json,
    help: values.help === true,
  };
}

/** @param {string|undefined} text */
function durationMs(text) {
  if (text === undefined) return null;
  const match = /^(\d{1,7})(ms|s|m|h)$/.exec(text);
  // A number without a unit is milliseconds for HAProxy and seconds for nginx.
  if (match === null)
    throw new Error(
      `--lb-idle-timeout: ${text} is not a time with a unit, such as 60s, 2m or 4000ms`,
    );
  return Number(match[1]) * UNITS_MS[/** @type {keyof typeof UNITS_MS} */ (match[2])];
}
