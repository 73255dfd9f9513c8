// command-line.js: reads the options of a command.

import { parseArgs } from 'node:util';
import { didYouMean } from './nearest.js';

/** @import { ParseArgsConfig } from 'node:util' */

/** Every command has them. */
const HELP = /** @type {const} */ ({ help: { type: 'boolean', short: 'h' } });

/**
 * @template {NonNullable<ParseArgsConfig['options']>} T
 * @param {readonly string[]} args @param {T} options
 * @param {boolean} [allowPositionals]
 * @returns {ReturnType<typeof parseArgs<{args: string[], options: T & typeof HELP,
 *   allowPositionals: true}>>}
 * @throws {Error} with a text for the user
 */
export function readCommandLine(args, options, allowPositionals = false) {
  const all = { ...HELP, ...options };
  try {
    return /** @type {any} */ (
      parseArgs({ args: joined(args, all), options: all, allowPositionals })
    );
  } catch (error) {
    const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
    // Node adds how to write an argument that begins with a hyphen, which hides the fault.
    const [fault] = message.split(". To specify a positional argument starting with a '-'");
    if (code !== 'ERR_PARSE_ARGS_UNKNOWN_OPTION') throw new Error(fault, { cause: error });
    const [, name = ''] = /'-{1,2}([^'=]*)/.exec(fault) ?? [];
    const meant = didYouMean(name, Object.keys(all)).replace('mean ', 'mean --');
    throw new Error(`unknown option --${name}${meant}`, { cause: error });
  }
}

/**
 * Joins an option with a value that begins with a hyphen, as ids of connections may: `--id -a1b2`.
 * Short options have one letter, so a longer text is no option.
 * @param {readonly string[]} args @param {NonNullable<ParseArgsConfig['options']>} options
 * @returns {string[]}
 */
function joined(args, options) {
  /** @type {string[]} */
  const found = [];
  for (const arg of args) {
    const before = found.at(-1) ?? '';
    const takesValue = before.startsWith('--') && options[before.slice(2)]?.type === 'string';
    if (takesValue && /^-[^-]./.test(arg)) found.push(`${found.pop()}=${arg}`);
    else found.push(arg);
  }
  return found;
}
