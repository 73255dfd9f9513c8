#!/usr/bin/env node
// main.js: the entry point. It reads the configuration and runs the primary, a worker, the courier
// or a command.
//
// Only this file reads the environment. A primary adds the values of FANFARE_CONFIG_FILE to the
// environment of the workers it forks, so a worker never reads the file and all workers of one
// reload agree.

import cluster from 'node:cluster';
import { existsSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isatty } from 'node:tty';
import { fileURLToPath } from 'node:url';
import { readCertificate } from './config/certificate.js';
import { permitsColour } from './config/colour.js';
import { EXIT } from './config/exit-codes.js';
import { receivedConfig } from './config/handover.js';
import { createLog } from './observability/log.js';
import { printableLines } from './observability/printable.js';

/** Commands without a running server, by the first argument. @type {Record<string, Command>} */
const COMMANDS = {
  check: checkSettings,
  doctor,
  token,
  completion,
  help,
  '--help': help,
  '-h': help,
  '--version': version,
  '-v': version,
};

/** The argument of a worker process, as `courier` is that of the courier. */
const WORKER_ARGUMENT = 'worker';
/** A primary of ours starts its workers as soon as they have loaded. */
const START_WITHIN_MS = 3000;
const FOREIGN_CLUSTER =
  'This process is a cluster worker of another program, such as pm2 with -i, which does not start it. ' +
  'Run one instance (pm2: fork mode, without -i): the server forks its own workers, as many as WORKERS says.';

/** @typedef {(args: string[]) => unknown} Command */
/** @typedef {{type?: string, config?: Sent, texts?: Texts}} Start */
/** @import { Config } from './config/settings.js' */
/** @import { Sent } from './config/handover.js' */
/** @import { Texts } from './config/texts.js' */
/** @import { Settings } from './primary/supervisor.js' */

// Each kind of process loads only its own modules: a primary needs no hub, a worker no supervisor.
if (cluster.isWorker) await worker();
else if (process.argv[2] === 'courier' && process.send !== undefined) await courier();
else await command(process.argv.slice(2));

/** @param {string[]} args */
async function command([name, ...args]) {
  if (name === undefined) return primary();
  if (Object.hasOwn(COMMANDS, name)) return COMMANDS[name](args);
  const { isCliCommand, runCli } = await import('./cli/cli.js');
  const { env, stdin, stdout, stderr } = process;
  if (isCliCommand(name)) {
    process.exitCode = await runCli(name, args, { env, stdin, stdout, stderr });
    return;
  }
  const { unknownCommand } = await import('./cli/commands.js');
  print({ code: EXIT.usage, out: '', err: unknownCommand(name) });
}

/** @param {{code: number, out: string, err: string}} outcome of a command, perhaps with foreign text */
function print({ code, out, err }) {
  process.stdout.write(printableLines(out));
  process.stderr.write(printableLines(err));
  process.exitCode = code;
}

/** Prints the help of the program, or of one command. @param {string[]} args */
async function help([name = 'help']) {
  const { unknownCommand, usage } = await import('./cli/commands.js');
  const { isCliCommand } = await import('./cli/cli.js');
  if (name === 'help' || name.startsWith('-')) print({ code: EXIT.ok, out: usage(), err: '' });
  else if (Object.hasOwn(COMMANDS, name) || isCliCommand(name)) await command([name, '--help']);
  else print({ code: EXIT.usage, out: '', err: unknownCommand(name) });
}

/** @param {string[]} args */
async function completion(args) {
  const { completionCommand } = await import('./cli/completion.js');
  const helps = {
    doctor: async () => (await import('./doctor/doctor.js')).DOCTOR_USAGE,
    token: async () => (await import('./auth/token-command.js')).TOKEN_USAGE,
  };
  print(await completionCommand(args, helps));
}

/** Are the settings valid? @param {string[]} args */
async function checkSettings(args) {
  const { checkCommand } = await import('./cli/check.js');
  print(await checkCommand(args, readSettings));
}

async function version() {
  const manifest = await readFile(new URL('../package.json', import.meta.url), 'utf8');
  process.stdout.write(`${JSON.parse(manifest).version}\n`);
}

/** @param {string[]} args */
async function token(args) {
  if (args.some((one) => one === '--help' || one === '-h')) {
    const { TOKEN_USAGE } = await import('./auth/token-command.js');
    return print({ code: EXIT.ok, out: TOKEN_USAGE, err: '' });
  }
  const { settings, faults } = await readSettings();
  if (!settings) return printFaults(faults);
  const { tokenCommand } = await import('./auth/token-command.js');
  const { tokens, pusher, centrifugo } = settings.config;
  print(
    await tokenCommand(args, tokens, {
      apps: pusher?.byId,
      doors: await doorsOf(centrifugo),
      readInput: async () => readFileSync(0, 'utf8'),
    }),
  );
}

/** @param {Config['centrifugo']} centrifugo @returns {Promise<import('./auth/token-check.js').Door[]>} */
async function doorsOf(centrifugo) {
  const native = { name: 'native' };
  if (centrifugo === null) return [native];
  const { connectionReader, subscriptionReader } = await import(
    './doors/centrifugo/codec/tokens.js'
  );
  const { isLenient } = centrifugo;
  return [
    native,
    { name: 'Centrifugo, connection', read: connectionReader(isLenient) },
    { name: 'Centrifugo, subscription', read: subscriptionReader(isLenient) },
  ];
}

async function primary() {
  // SIGHUP ends a process by default, which is right on a terminal.
  const onTerminal = isatty(0) || isatty(1);
  let isHungUp = false;
  if (!onTerminal) process.on('SIGHUP', () => (isHungUp = true));
  const { settings, faults, warnings } = await readSettings();
  if (!settings) return printFaults(faults);
  // Before the log opens a pipe: hooks/load.js has the reason.
  const { runPrimary } = await import('./primary/primary.js');
  const log = logFor(settings.config);
  for (const warning of warnings) log.warn(warning);
  await runPrimary({
    settings,
    loadSettings: (previous) => reloadSettings(previous, settings, log),
    exec: fileURLToPath(import.meta.url),
    onTerminal,
    isHungUp: () => isHungUp,
    // The package has no load tools.
    hasHello: isatty(1) && existsSync(join(import.meta.dirname, '../loadtest/hello.js')),
    isProduction: process.env.NODE_ENV === 'production',
    byNpm: process.env.npm_command !== undefined || process.env.npm_lifecycle_event !== undefined,
    log,
  });
}

async function worker() {
  // The terminal's Ctrl-C reaches workers too, and may come before they are up. The primary
  // handles them.
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']))
    process.on(signal, () => {});
  const { runWorker } = await import('./worker/process.js');
  // Our primary passes the argument. One of an earlier version does not, but answers at once.
  const isOurs = process.argv[2] === WORKER_ARGUMENT;
  const timer = isOurs
    ? undefined
    : setTimeout(() => printFaults([FOREIGN_CLUSTER]), START_WITHIN_MS);
  // `runWorker` listens before the next message, which may come in the same read.
  process.on('message', async function processOnMessage(/** @type {Start} */ start) {
    if (start?.type !== 'start') return; // another program's primary has sent it
    process.removeListener('message', processOnMessage);
    clearTimeout(timer);
    // Node keeps messages while nobody listens, until `runWorker` does.
    const config = start.config ? receivedConfig(start.config) : await readHere(start.texts);
    if (config) runWorker(config, logFor(config), /** @type {any} */ (start));
  });
  // Messages that arrive while the modules load are lost, so the primary waits for this one.
  process.send?.({ type: 'loaded' });
}

/** A child of the primary, with the environment of the workers. */
async function courier() {
  const { STDIN_HAS_CONFIG, STDIN_HAS_TEXTS } = process.env;
  const config = STDIN_HAS_CONFIG
    ? receivedConfig(jsonOfStdin())
    : await readHere(STDIN_HAS_TEXTS ? jsonOfStdin() : {});
  if (!config) return;
  const { runCourier } = await import('./webhooks/courier.js');
  const { openEventQueue } = await import('./backend/index.js');
  await runCourier(config, logFor(config), openEventQueue);
}

/** The primary is of version 0.2. @param {Texts|undefined} texts */
async function readHere(texts) {
  const { loadConfig } = await import('./config/config.js');
  const { readFrom } = await import('./config/texts.js');
  const { config, faults } = loadConfig(process.env, readFrom(texts));
  if (!config) printFaults(faults);
  return config;
}

/** @returns {any} ends the process if the primary has died before it wrote all of it */
function jsonOfStdin() {
  try {
    return JSON.parse(readFileSync(0, 'utf8'));
  } catch {
    // The error would show secrets.
    process.exit(1);
  }
}

/** How many connections can this machine hold? @param {string[]} args */
async function doctor(args) {
  const { runDoctor } = await import('./doctor/doctor.js');
  const isColoured = process.stdout.isTTY && permitsColour(process.env);
  process.exitCode = await runDoctor({ args, loadSettings: readSettings, isColoured });
}

/**
 * Reads the configuration file and lays the environment over it.
 * @param {Readonly<Record<string, string|undefined>>} [environment]
 * @returns {Promise<{settings: Settings|null, faults: string[], warnings: string[],
 *   env: Settings['env']}>} `env` has both
 */
async function readSettings(environment = process.env) {
  const { loadConfig, parseConfigFile } = await import('./config/config.js');
  const path = environment.FANFARE_CONFIG_FILE ?? '';
  /** @type {{env: Record<string, string>, faults: string[]}} */
  let file = { env: {}, faults: [] };
  if (path !== '') {
    try {
      file = parseConfigFile(await readFile(path, 'utf8'));
    } catch (error) {
      file.faults.push(
        `FANFARE_CONFIG_FILE: cannot read ${path}: ${/** @type {Error} */ (error).message}`,
      );
    }
  }
  const env = { ...file.env, ...environment };
  const { config, faults, warnings } = loadConfig(env);
  const { certificate, faults: certificateFaults } = readCertificate(config?.tls ?? null);
  const all = [...file.faults, ...faults, ...certificateFaults];
  return {
    settings: config && all.length === 0 ? { config, env, certificate } : null,
    faults: all,
    warnings,
    env,
  };
}

/**
 * Reads the settings for a reload, which can't change those that the primary uses.
 * @param {Config} previous
 * @param {Settings} fallback returned with faults, if the new settings are invalid
 * @param {ReturnType<typeof createLog>} log gets a line for each old name
 */
async function reloadSettings(previous, fallback, log) {
  const { settings, faults, warnings } = await readSettings();
  if (!settings) return { settings: fallback, faults };
  for (const warning of warnings) log.warn(warning);
  const { changedFixed } = await import('./config/config.js');
  const fixed = changedFixed(previous, settings.config);
  return {
    settings,
    faults: fixed.map((name) => `${name} cannot be changed by a reload: restart the server`),
  };
}

/** @param {Config} config */
function logFor({ logLevel, logFormat, serverId }) {
  const { NODE_ENV } = process.env;
  const format = logFormat === 'auto' && NODE_ENV === 'production' ? 'json' : logFormat;
  return createLog({
    level: logLevel,
    name: serverId,
    format,
    colour: permitsColour(process.env),
  });
}

/** Prints all faults at once. @param {readonly string[]} faults */
function printFaults(faults) {
  process.stderr.write(
    `fanfare cannot start, the configuration is invalid:\n${printableLines(faults.map((fault) => `  ${fault}\n`).join(''))}`,
  );
  process.exitCode = EXIT.config;
  // The IPC channel would keep a worker alive.
  if (cluster.isWorker) process.exit(EXIT.config);
}
