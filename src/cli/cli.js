// cli.js: runs a command that talks to a running server.
//   main.js -> cli.js (options, credentials, exit code) -> one file a command -> api.js, client.js
//
// On a terminal a command prints columns, in a pipe JSON lines; notes and errors go to stderr.

import { constants } from 'node:os';
import { permitsColour } from '../config/colour.js';
import { readCommandLine } from '../config/command-line.js';
import { printable } from '../observability/printable.js';
import { EXIT, Failure } from './failure.js';
import { Output } from './output.js';

/** @import { Command, Context, Target } from './command.js' */

const DEFAULT_URL = 'http://localhost:3000';
const PROTOCOLS = ['http:', 'https:', 'ws:', 'wss:'];

const COMMON_USAGE = `
  --url URL          the server, ${DEFAULT_URL} if absent (FANFARE_URL)
  --api-key SECRET   the secret of an API key (FANFARE_API_KEY)
  --token TOKEN      the token of a user (FANFARE_TOKEN)
  --json             a JSON object on each line, as in a pipe
  --help, -h         print this help

A key or token on the command line is visible to other users of this machine: prefer the variables.
`;

const COMMON_OPTIONS = /** @type {const} */ ({
  url: { type: 'string' },
  'api-key': { type: 'string' },
  token: { type: 'string' },
  json: { type: 'boolean' },
});

/** Commands by name. Only one is loaded. */
const COMMANDS = {
  publish: () => import('./publish.js'),
  tail: () => import('./tail.js'),
  history: () => import('./history.js'),
  rooms: () => import('./rooms.js'),
  who: () => import('./who.js'),
  connections: () => import('./connections.js'),
  disconnect: () => import('./disconnect.js'),
  revoke: () => import('./revoke.js'),
  servers: () => import('./servers.js'),
};

/** @typedef {keyof typeof COMMANDS} CommandName */

/**
 * @typedef {{env: Readonly<Record<string, string|undefined>>, stdin: NodeJS.ReadStream,
 *   stdout: NodeJS.WriteStream, stderr: NodeJS.WriteStream}} Surroundings
 */

/** @param {string} name @returns {name is CommandName} */
export function isCliCommand(name) {
  return Object.hasOwn(COMMANDS, name);
}

/** @param {CommandName} name @returns {Promise<string>} its help */
export async function usageOf(name) {
  const { command } = await COMMANDS[name]();
  return `Usage: fanfare ${command.usage}${COMMON_USAGE}`;
}

/**
 * @param {CommandName} name @param {string[]} args @param {Surroundings} surroundings
 * @returns {Promise<number>} the exit code
 */
export async function runCli(name, args, { env, stdin, stdout, stderr }) {
  const { command } = await COMMANDS[name]();
  const stop = new AbortController();
  const release = stopOn(stop, stdout);
  try {
    const { values, positionals } = parse(args, command);
    if (values.help) {
      stdout.write(await usageOf(name));
      return EXIT.ok;
    }
    checkArguments(command, positionals);
    const isPlain = !permitsColour(env);
    const output = new Output({ stdout, stderr, isJson: values.json === true, isPlain });
    const target = targetOf(values, env);
    const { signal } = stop;
    await command.run({ args: positionals, values, target, output, stdin, signal });
    return exitCodeOf(stop.signal) ?? EXIT.ok;
  } catch (error) {
    const interrupted = exitCodeOf(stop.signal);
    if (interrupted !== null) return interrupted;
    const { exitCode, message } = Failure.of(error);
    stderr.write(`fanfare ${name}: ${printable(message)}\n`);
    if (exitCode === EXIT.usage) stderr.write(`See fanfare ${name} --help\n`);
    return exitCode;
  } finally {
    release();
  }
}

/** @param {string[]} args @param {Command} command */
function parse(args, { options }) {
  try {
    const all = { ...COMMON_OPTIONS, ...options };
    const { values, positionals } = readCommandLine(args, all, true);
    return { values: /** @type {Context['values']} */ (values), positionals };
  } catch (error) {
    throw new Failure(EXIT.usage, /** @type {Error} */ (error).message);
  }
}

/** @param {Command} command @param {readonly string[]} given @throws {Failure} */
function checkArguments({ names }, given) {
  const required = names.filter((name) => !name.endsWith('?'));
  if (given.length >= required.length && given.length <= names.length) return;
  throw new Failure(
    EXIT.usage,
    names.length === 0
      ? 'this command has no arguments, only options'
      : `expected ${names.join(' ').replaceAll('?', '')}`,
  );
}

/**
 * Options win over variables: with `--token` a key of the environment does not count.
 * @param {Context['values']} values @param {Surroundings['env']} env @returns {Target}
 */
function targetOf({ url: given, 'api-key': apiKey, token }, env) {
  const url = String(given ?? (env.FANFARE_URL || DEFAULT_URL));
  if (!URL.canParse(url) || !PROTOCOLS.includes(new URL(url).protocol))
    throw new Failure(EXIT.usage, `the URL is not like ${DEFAULT_URL} or wss://chat.example`);
  if (apiKey === undefined && token === undefined)
    return { url, apiKey: env.FANFARE_API_KEY ?? '', token: env.FANFARE_TOKEN ?? '' };
  return { url, apiKey: String(apiKey ?? ''), token: String(token ?? '') };
}

/**
 * Stops the command at Ctrl-C, and when the reader of a pipe has ended (`| head`).
 * @param {AbortController} stop @param {NodeJS.WriteStream} stdout @returns {() => void} undoes it
 */
function stopOn(stop, stdout) {
  /** @param {NodeJS.Signals} signal */
  const onSignal = (signal) => stop.abort(128 + constants.signals[signal]);
  /** @param {NodeJS.ErrnoException} error */
  const onError = (error) => {
    if (error.code !== 'EPIPE') throw error;
    stop.abort(EXIT.ok);
  };
  const signals = /** @type {const} */ (['SIGINT', 'SIGTERM']);
  for (const signal of signals) process.once(signal, onSignal);
  stdout.on('error', onError);
  return () => {
    for (const signal of signals) process.off(signal, onSignal);
  };
}

/** @param {AbortSignal} signal @returns {number|null} null: nothing has stopped the command */
function exitCodeOf({ aborted, reason }) {
  return aborted ? reason : null;
}
