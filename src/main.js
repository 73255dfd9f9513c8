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
import { changedFixed, loadConfig, parseConfigFile } from './config/config.js';
import { readFrom, recordInto } from './config/texts.js';
import { createLog } from './observability/log.js';

/** sysexits.h: EX_USAGE and EX_CONFIG. */
const EXIT_USAGE = 64;
const EXIT_CONFIG = 78;

const USAGE = `Usage: fanfare [command]

Without a command, fanfare starts the server. The settings come from the environment
and from FANFARE_CONFIG_FILE: see docs/configuration.md.

  fanfare publish ROOM PAYLOAD  publish a message to a room of a running server
  fanfare tail ROOM             print the messages of a room as they arrive
  fanfare rooms                 list the rooms that have connections
  fanfare who ROOM              list the users or connections of a room

  fanfare doctor [options]  report how many connections this machine can hold (doctor --help)
  fanfare token [options]   print a token for development, signed with JWT_SECRET (token --help)
  fanfare --help            print this help
  fanfare --version         print the version

Signals of a running server: SIGTERM drains it and exits, SIGHUP reloads the configuration
and the TLS certificate.
Exit codes: 0 stopped, 1 failed, ${EXIT_USAGE} unknown argument, ${EXIT_CONFIG} invalid configuration.
`;

/** The commands, by the first argument. @type {Record<string, (args: string[]) => unknown>} */
const COMMANDS = {
  publish: (args) => cli('publish', args),
  tail: (args) => cli('tail', args),
  rooms: (args) => cli('rooms', args),
  who: (args) => cli('who', args),
  doctor,
  token,
  help,
  '--help': help,
  '-h': help,
  '--version': version,
  '-v': version,
};

/** @import { Config } from './config/settings.js' */
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
  process.stderr.write(`unknown argument: ${name}\n\n${USAGE}`);
  process.exitCode = EXIT_USAGE;
}

function help() {
  process.stdout.write(USAGE);
}

async function version() {
  const manifest = await readFile(new URL('../package.json', import.meta.url), 'utf8');
  process.stdout.write(`${JSON.parse(manifest).version}\n`);
}

/** @param {string[]} args */
async function token(args) {
  const { settings, faults } = await readSettings();
  if (!settings) return refuse(faults);
  const { tokenCommand } = await import('./auth/token-command.js');
  const { code, out, err } = await tokenCommand(args, settings.config.tokens);
  process.stdout.write(out);
  process.stderr.write(err);
  process.exitCode = code;
}

/**
 * A command that talks to a running server. It reads no settings of a server.
 * @param {import('./cli/cli.js').CommandName} name @param {string[]} args
 */
async function cli(name, args) {
  const { runCli } = await import('./cli/cli.js');
  const { env, stdin, stdout, stderr } = process;
  process.exitCode = await runCli(name, args, { env, stdin, stdout, stderr });
}

async function primary() {
  // By default SIGHUP ends a process. On a terminal that is right.
  const onTerminal = isatty(0) || isatty(1);
  let isHungUp = false;
  if (!onTerminal) process.on('SIGHUP', () => (isHungUp = true));
  const { settings, faults, warnings } = await readSettings();
  if (!settings) return refuse(faults);
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
  // `runWorker` listens before the next message, which may come in the same read.
  process.once('message', (/** @type {{texts?: Texts}} */ start) => {
    const { config, faults } = loadConfig(process.env, readFrom(start.texts));
    if (!config) return refuse(faults);
    runWorker(config, logFor(config), /** @type {any} */ (start));
  });
  // Messages that arrive while the modules load are lost, so the primary waits for this one.
  process.send?.({ type: 'loaded' });
}

/** A child of the primary, with the environment of the workers. */
async function courier() {
  // An earlier primary hands nothing over.
  const texts = process.env.STDIN_HAS_TEXTS ? textsOfStdin() : {};
  const { config, faults } = loadConfig(process.env, readFrom(texts));
  if (!config) return refuse(faults);
  const { runCourier } = await import('./webhooks/courier.js');
  await runCourier(config, logFor(config));
}

/** @returns {Texts} ends the process if the primary has died before it wrote all of them */
function textsOfStdin() {
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
  process.exitCode = await runDoctor({ args, loadSettings: readSettings });
}

/**
 * Reads the configuration file and lays the environment over it.
 * @param {Readonly<Record<string, string|undefined>>} [environment]
 * @returns {Promise<{settings: Settings|null, faults: string[], warnings: string[]}>}
 */
async function readSettings(environment = process.env) {
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
  /** @type {Record<string, string>} */
  const texts = {};
  const { config, faults, warnings } = loadConfig(env, recordInto(texts));
  const { certificate, faults: certificateFaults } = readCertificate(config?.tls ?? null);
  const all = [...file.faults, ...faults, ...certificateFaults];
  return {
    settings: config && all.length === 0 ? { config, env, certificate, texts } : null,
    faults: all,
    warnings,
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
  const fixed = changedFixed(previous, settings.config);
  return {
    settings,
    faults: fixed.map((name) => `${name} cannot be changed by a reload: restart the server`),
  };
}

/** @param {Config} config */
function logFor({ logLevel, logFormat, serverId }) {
  const { NODE_ENV, NO_COLOR = '', TERM } = process.env;
  const format = logFormat === 'auto' && NODE_ENV === 'production' ? 'json' : logFormat;
  // https://no-color.org: any value that is not empty.
  return createLog({
    level: logLevel,
    name: serverId,
    format,
    colour: NO_COLOR === '' && TERM !== 'dumb',
  });
}

/** Prints all faults at once. @param {readonly string[]} faults */
function refuse(faults) {
  process.stderr.write(
    `fanfare cannot start, the configuration is invalid:\n${faults.map((fault) => `  ${fault}\n`).join('')}`,
  );
  process.exitCode = EXIT_CONFIG;
  // The IPC channel would keep a worker alive.
  if (cluster.isWorker) process.exit(EXIT_CONFIG);
}
