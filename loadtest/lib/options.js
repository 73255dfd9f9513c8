// options.js: the command line of a load tool, from one table of options: the parser, --help and
// the checks.
//
// A wrong command line starts nothing: it is answered with one line and exit code 2.

import { parseArgs } from 'node:util';

/** Exit code of a run that did not begin. */
export const NOT_RUN = 2;

/** The command line makes no sense; the message says what would. */
export class UsageError extends Error {}

/**
 * One option. A row without `value` is a switch; a row with `min` is a number, which is whole
 * unless `fraction` is set.
 * @typedef {object} Row
 * @property {string} name
 * @property {string} help
 * @property {string} [value] what --help calls its value
 * @property {string} [default]
 * @property {number} [min]
 * @property {number} [max]
 * @property {boolean} [fraction]
 * @property {readonly string[]} [oneOf] the values there are
 * @property {readonly string[]} [listOf] its value is a list of these, separated by commas
 * @property {boolean} [multiple] may be given several times
 * @property {string} [group] a heading above it in --help
 */

/** @type {Row} */
const HELP = { name: 'help', help: 'prints this' };

/** The options of one run. Reading one that is not in the table is a fault of the tool. */
export class Options {
  #rows;
  #given;

  /**
   * @param {readonly Row[]} table
   * @param {string[]} args
   * @param {{positionals?: number}} [limits] arguments without a name, at most
   * @throws {UsageError} names the first option that is wrong
   */
  constructor(table, args, { positionals = 0 } = {}) {
    this.#rows = new Map([...table, HELP].map((row) => [row.name, row]));
    /** @type {Record<string, {type: 'string'|'boolean'}>} */
    const types = {};
    for (const { name, value } of this.#rows.values())
      types[name] = { type: value === undefined ? 'boolean' : 'string' };
    // Not strict: Node's own messages are long, and some advise what is of no use here.
    const { tokens } = parseArgs({
      args,
      options: types,
      strict: false,
      tokens: true,
      allowPositionals: true,
    });
    /** @type {Map<string, string[]>} */
    this.#given = new Map();
    /** @type {string[]} */
    this.positionals = [];
    for (const token of tokens) {
      if (token.kind === 'positional') this.positionals.push(token.value);
      if (token.kind === 'option') this.#take(token);
    }
    if (this.positionals.length > positionals)
      throw new UsageError(`unexpected argument: ${this.positionals[positionals]}`);
    if (this.flag('help')) return;
    for (const row of this.#rows.values()) this.#check(row);
  }

  /** @param {{name: string, rawName: string, value?: string}} token */
  #take({ name, rawName, value }) {
    const row = this.#rows.get(name);
    if (row === undefined || !rawName.startsWith('--'))
      throw new UsageError(`unknown option: ${rawName}`);
    if (row.value === undefined && value !== undefined)
      throw new UsageError(`--${name} takes no value`);
    if (row.value !== undefined && value === undefined)
      throw new UsageError(`--${name} needs a value`);
    const before = this.#given.get(name) ?? [];
    this.#given.set(name, row.multiple ? [...before, value ?? ''] : [value ?? '']);
  }

  /** @param {Row} row */
  #check({ name, min, max = Number.POSITIVE_INFINITY, fraction = false, oneOf, listOf }) {
    for (const text of this.list(name)) {
      if (oneOf && !oneOf.includes(text))
        throw new UsageError(`--${name} is one of ${oneOf.join(', ')}, not ${text}`);
      for (const part of listOf ? text.split(',') : [])
        if (!listOf?.includes(part))
          throw new UsageError(`--${name} is a list of ${listOf?.join(', ')}, not ${text}`);
      if (min === undefined) continue;
      const value = Number(text);
      const range = max === Number.POSITIVE_INFINITY ? `from ${min} on` : `from ${min} to ${max}`;
      if (text.trim() === '' || !(value >= min && value <= max))
        throw new UsageError(`--${name} is a number ${range}, not ${text}`);
      if (!fraction && !Number.isInteger(value))
        throw new UsageError(`--${name} is a whole number, not ${text}`);
    }
  }

  /**
   * @param {string} name
   * @returns {Row}
   */
  #row(name) {
    const row = this.#rows.get(name);
    if (row === undefined) throw new Error(`no option ${name}`);
    return row;
  }

  /**
   * @param {string} name
   * @returns {string[]} as often as it was given; else its default, if there is one
   */
  list(name) {
    const { default: usual } = this.#row(name);
    return this.#given.get(name) ?? (usual === undefined ? [] : [usual]);
  }

  /**
   * @param {string} name
   * @returns {string} '' if it was not given and has no default
   */
  text(name) {
    return this.list(name).at(-1) ?? '';
  }

  /**
   * @param {string} name of a row with `min`
   * @returns {number} NaN if it was not given and has no default
   */
  number(name) {
    const [text] = this.list(name).slice(-1);
    return text === undefined ? Number.NaN : Number(text);
  }

  /**
   * @param {string} name
   * @returns {boolean}
   */
  flag(name) {
    this.#row(name);
    return this.#given.has(name);
  }

  /**
   * @param {string} name
   * @returns {boolean} whether it was given, default or not
   */
  has(name) {
    return this.flag(name);
  }
}

/**
 * The options of a tool that has just been started. Ends the process for --help, and for a wrong
 * command line.
 * @param {string} usage what the tool does and an example, in lines
 * @param {readonly Row[]} table
 * @param {object} [how]
 * @param {number} [how.positionals] arguments without a name, at most
 * @param {(options: Options) => string|undefined} [how.check] says what is wrong with the options
 *   together
 * @param {string} [how.tail] what --help says behind the options
 * @param {string[]} [how.args]
 * @returns {Options}
 */
export function readOptions(
  usage,
  table,
  { positionals, check, tail = '', args = process.argv.slice(2) } = {},
) {
  try {
    const options = new Options(table, args, { positionals });
    if (options.flag('help')) {
      process.stdout.write(helpText(usage, table, tail));
      process.exit(0);
    }
    const fault = check?.(options);
    if (fault) throw new UsageError(fault);
    return options;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    endUnused(error.message);
  }
}

/**
 * `parseArgs` of a tool that has a table of its own: a wrong command line is answered in the same
 * way.
 * @template {import('node:util').ParseArgsConfig} T
 * @param {T} config
 */
export function parsedArgs(config) {
  try {
    return parseArgs(config);
  } catch (error) {
    // Its first sentence says what is wrong, the others how to give such an option as a value.
    endUnused(/** @type {Error} */ (error).message.split(/\.\s/)[0]);
  }
}

/**
 * Ends the process before it has begun anything.
 * @param {string} why
 * @returns {never}
 */
export function endUnused(why) {
  process.stderr.write(`${why} (--help lists the options)\n`);
  process.exit(NOT_RUN);
}

/**
 * @param {string} usage
 * @param {readonly Row[]} table
 * @param {string} [tail]
 * @returns {string} what --help prints
 */
export function helpText(usage, table, tail = '') {
  const lines = [usage, ''];
  const width = Math.max(
    ...table.map(({ name, value = '' }) => name.length + value.length + 5),
    24,
  );
  for (const row of [...table, HELP]) {
    if (row.group) lines.push('', row.group);
    const rows = wrapped(
      row.default === undefined ? row.help : `${row.help} [${row.default}]`,
      104 - width,
    );
    lines.push(`  ${`--${row.name} ${row.value ?? ''}`.padEnd(width)}${rows[0]}`);
    lines.push(...rows.slice(1).map((text) => ' '.repeat(width + 2) + text));
  }
  if (tail !== '') lines.push('', tail);
  return `${lines.join('\n').replaceAll(/\n{3,}/g, '\n\n')}\n`;
}

/**
 * @param {string} text
 * @param {number} width
 * @returns {string[]}
 */
function wrapped(text, width) {
  const rows = [''];
  for (const word of text.split(' ')) {
    const last = rows[rows.length - 1];
    if (last !== '' && last.length + 1 + word.length > width) rows.push(word);
    else rows[rows.length - 1] = last === '' ? word : `${last} ${word}`;
  }
  return rows;
}
