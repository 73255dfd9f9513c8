// command.js: the contract of a command for a running server.

/** @import { ParseArgsConfig } from 'node:util' */
/** @import { Output } from './output.js' */

/** @typedef {Readonly<Record<string, string|boolean|(string|boolean)[]|undefined>>} Values of options */

/**
 * @typedef {object} Command what a command exports as `command`
 * @property {string} usage
 * @property {readonly string[]} names of its arguments; `PAYLOAD?` may be absent
 * @property {NonNullable<ParseArgsConfig['options']>} options besides the common ones
 * @property {(context: Context) => Promise<void>} run rejects with a Failure or a FanfareError
 */

/**
 * @typedef {object} Context
 * @property {readonly string[]} args of the command's names
 * @property {Values} values of its options
 * @property {Target} target @property {Output} output @property {NodeJS.ReadStream} stdin
 * @property {AbortSignal} signal a signal, or the end of the reader, stops the command
 */

/**
 * The server. Without a key and a token, a command is a client of an open server.
 * @typedef {object} Target
 * @property {string} url as given
 * @property {string} apiKey '' if there is none
 * @property {string} token '' if there is none
 */

export {};
