// commands.js: the commands of the program, for its help and for shell completion.

import { EXIT } from '../config/exit-codes.js';
import { nearest } from '../config/nearest.js';

/** Name, arguments, meaning. @typedef {readonly [name: string, args: string, about: string]} Row */

/** Commands for a running server. @type {readonly Row[]} */
const REMOTE = Object.freeze([
  ['publish', 'ROOM PAYLOAD', 'publish a message to a room'],
  ['tail', 'ROOM', 'print the messages of a room as they arrive'],
  ['history', 'ROOM', 'print the messages that a room keeps'],
  ['rooms', '', 'list the rooms that have connections'],
  ['who', 'ROOM', 'list the users or connections of a room'],
  ['connections', '', 'list the connections of a user, a room or an address'],
  ['disconnect', '', 'close the connections of a user, or one connection'],
  ['revoke', '', 'refuse the tokens of a user, or one token'],
  ['servers', '', 'list all servers with their workers'],
]);

/** Commands for this machine. @type {readonly Row[]} */
const LOCAL = Object.freeze([
  ['check', '', 'report whether the settings are valid, without a start'],
  ['doctor', '', 'report how many connections this machine can hold'],
  ['token', '', 'print a token for development, signed with JWT_SECRET'],
  ['completion', 'SHELL', 'print a completion script: bash, zsh or fish'],
  ['help', 'COMMAND', 'print the help of a command'],
]);

/** @type {readonly Row[]} */
export const COMMANDS = Object.freeze([...REMOTE, ...LOCAL]);

const WIDTH = 27;

/** @returns {string} the help of the program */
export function usage() {
  return `Usage: fanfare [command]

Without a command, fanfare starts the server. The settings come from the environment
and from FANFARE_CONFIG_FILE: see docs/configuration.md.

Commands for a running server:
${REMOTE.map(lineOf).join('')}
Commands for this machine:
${LOCAL.map(lineOf).join('')}
  fanfare --help, -h           print this help
  fanfare --version, -v        print the version

Signals of a running server: SIGTERM drains it and exits, SIGHUP reloads the configuration
and the TLS certificate.
Exit codes: ${EXIT.ok} done, ${EXIT.failed} failed, ${EXIT.usage} wrong command or option, ${EXIT.data} wrong data, ${EXIT.unavailable} server unavailable,
${EXIT.protocol} unexpected answer, ${EXIT.permission} no permission, ${EXIT.config} invalid configuration.
`;
}

/** @param {Row} row */
function lineOf([name, args, about]) {
  return `  fanfare ${`${name} ${args}`.trim().padEnd(WIDTH - 7)} ${about}\n`;
}

/** @param {string} name @returns {string} the error text */
export function unknownCommand(name) {
  const names = COMMANDS.map(([one]) => one);
  const meant = nearest(name, [...names, '--help', '--version']);
  const hint = meant === '' ? '' : `; did you mean ${meant}?`;
  const kind = name.startsWith('-') ? 'option' : 'command';
  return `fanfare: unknown ${kind} ${name}${hint}\nSee fanfare --help\n`;
}
