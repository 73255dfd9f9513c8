// options.js: the command line of a load tool. One table gives the parser, the checks and --help.
//
// A line of the table is an option: name and value | kind | default | help. Other lines are headings.
//
//   connections N | whole 1..100000  | 1000 | connections in all
//   seconds S     | number 0.1..3600 | 10   | duration
//   client KIND   | one of auto c node | auto | which client
//   phases LIST   | list of connect burst | connect,burst | phases to run
//   sizes LIST    | list of whole 10.. | 10,20 | numbers
//   url URL…      |                  |      | a server; repeat it for several
//   force         |                  |      | a switch has no value
//
// A wrong command line starts nothing: the tool prints one line and ends with exit code 2.

import { parseArgs } from 'node:util';

/** Exit code of a run that did not begin. */
export const NOT_RUN = 2;
const HELP_COLUMNS = 104;

/** Where `npm start` with the same environment listens. */
export const SERVER_HERE = `ws://127.0.0.1:${process.env.PORT || 3000}/ws`;

/** The command line is wrong; the message names the correct form. */
export class UsageError extends Error {}

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {string} value the name of its value in --help; '' for a switch
 * @property {boolean} multiple it may be repeated
 * @property {string} kind
 * @property {string} usual its default, as text; '' if it has none
 * @property {string} help
 */
/** @typedef {Record<string, any>} Values by name, `batch-size` as `batchSize` */
/** @typedef {{values: Values, given: Set<string>, positionals: string[]}} Parsed */

/**
 * @param {string} table
 * @returns {(Row|string)[]} options, and headings between them
 */
function rowsOf(table) {
  const lines = table.split('\n').map((line) => line.trim());
  return lines.filter(Boolean).map((line) => {
    if (!line.includes('|')) return line;
    const [option, kind, usual, help] = line.split('|').map((cell) => cell.trim());
    const [name, value = ''] = option.split(' ');
    const multiple = value.endsWith('…');
    return { name, value: value.replace('…', ''), multiple, kind, usual, help };
  });
}

/**
 * Parses a command line.
 * @param {string} table
 * @param {string[]} args
 * @param {number} [positionals] how many arguments without a name it may have
 * @returns {Parsed|null} null: --help was given. Reading a value that is not in the table throws
 * @throws {UsageError} names the first option that is wrong
 */
export function parse(table, args, positionals = 0) {
  const rows = rowsOf(`${table}\nhelp | | | prints this`).filter((row) => typeof row !== 'string');
  const byName = new Map(rows.map((row) => [row.name, row]));
  // Not strict: Node's own messages are long, and give advice that does not help here.
  const { tokens } = parseArgs({
    args,
    options: Object.fromEntries(
      rows.map(({ name, value }) => [name, { type: value === '' ? 'boolean' : 'string' }]),
    ),
    strict: false,
    tokens: true,
    allowPositionals: true,
  });
  /** @type {Map<string, string[]>} */
  const texts = new Map();
  /** @type {string[]} */
  const unnamed = [];
  for (const token of tokens) {
    if (token.kind === 'positional') unnamed.push(token.value);
    if (token.kind !== 'option') continue;
    const { name, rawName, value } = token;
    const row = byName.get(name);
    if (row === undefined || !rawName.startsWith('--'))
      throw new UsageError(`unknown option: ${rawName}`);
    if (row.value === '' && value !== undefined) throw new UsageError(`--${name} takes no value`);
    if (row.value !== '' && value === undefined) throw new UsageError(`--${name} needs a value`);
    texts.set(name, [...(row.multiple ? (texts.get(name) ?? []) : []), value ?? '']);
  }
  if (unnamed.length > positionals)
    throw new UsageError(`unexpected argument: ${unnamed[positionals]}`);
  if (texts.has('help')) return null;
  /** @type {Values} */
  const values = {};
  for (const row of rows) {
    const usual = row.usual === '' ? [] : [row.usual];
    const read = (texts.get(row.name) ?? usual).map((text) => parsedValue(row, text));
    const key = row.name.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());
    if (row.value === '') values[key] = texts.has(row.name);
    else
      values[key] = row.multiple
        ? read
        : (read[0] ?? (/^(whole|number)/.test(row.kind) ? Number.NaN : ''));
  }
  return { values: checkedReads(values), given: new Set(texts.keys()), positionals: unnamed };
}

/** @param {Pick<Row, 'name'|'kind'>} row @param {string} text @returns {any} */
function parsedValue({ name, kind }, text) {
  if (/^list of (whole|number) /.test(kind))
    return text.split(',').map((part) => parsedValue({ name, kind: kind.slice(8) }, part));
  const [, word = '', rest = ''] = /^(whole|number|one of|list of)\s+(.*)$/.exec(kind) ?? [];
  const choices = rest.split(' ');
  if (word === 'one of' && !choices.includes(text))
    throw new UsageError(`--${name} is one of ${choices.join(', ')}, not ${text}`);
  if (word === 'list of' && !text.split(',').every((part) => choices.includes(part)))
    throw new UsageError(`--${name} is a list of ${choices.join(', ')}, not ${text}`);
  if (word === 'list of') return text.split(',');
  if (word !== 'whole' && word !== 'number') return text;
  const [min, max = Number.POSITIVE_INFINITY] = rest.split('..').filter(Boolean).map(Number);
  const value = Number(text);
  const range = Number.isFinite(max) ? `from ${min} to ${max}` : `of at least ${min}`;
  if (text.trim() === '' || !(value >= min && value <= max))
    throw new UsageError(`--${name} is a number ${range}, not ${text}`);
  if (word === 'whole' && !Number.isInteger(value))
    throw new UsageError(`--${name} is a whole number, not ${text}`);
  return value;
}

/**
 * @param {string} text
 * @param {string[]} [protocols]
 * @returns {URL}
 * @throws {UsageError}
 */
export function targetUrl(text, protocols = ['ws:', 'wss:']) {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !protocols.includes(url.protocol)) {
    const starts = protocols.map((one) => `${one}//`).join(' or ');
    throw new UsageError(`not a URL that begins with ${starts}: ${text}`);
  }
  return url;
}

/** @param {Values} values */
function checkedReads(values) {
  return new Proxy(values, {
    get(target, key) {
      if (typeof key === 'string' && !(key in target)) throw new Error(`no option ${key}`);
      return Reflect.get(target, key);
    },
  });
}

/**
 * Reads the options of a tool that has just started. Ends the process for --help, and for a wrong
 * command line.
 * @param {string} usage the purpose of the tool and an example, in lines
 * @param {string} table
 * @param {object} [how]
 * @param {number} [how.positionals] how many arguments without a name it may have
 * @param {(parsed: Parsed) => string|undefined} [how.check] returns a fault of the options together
 * @param {string} [how.tail] the last lines of --help
 * @returns {Parsed}
 */
export function readOptions(usage, table, { positionals, check, tail } = {}) {
  try {
    const parsed = parse(table, process.argv.slice(2), positionals);
    if (parsed === null) {
      process.stdout.write(helpText(usage, table, tail));
      process.exit(0);
    }
    const fault = check?.(parsed);
    if (fault) throw new UsageError(fault);
    return parsed;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    endUnused(error.message);
  }
}

/** Ends the process before it has begun anything. @param {string} why @returns {never} */
export function endUnused(why) {
  process.stderr.write(`${why} (--help lists the options)\n`);
  process.exit(NOT_RUN);
}

/**
 * @param {string} usage
 * @param {string} table
 * @param {string} [tail]
 * @returns {string} the text of --help
 */
export function helpText(usage, table, tail = '') {
  const rows = rowsOf(`${table}\nhelp | | | prints this`);
  const heads = rows.map((row) => (typeof row === 'string' ? '' : `--${row.name} ${row.value}`));
  const width = Math.max(24, ...heads.map((head) => head.length + 2));
  const lines = rows.flatMap((row, i) => {
    if (typeof row === 'string') return ['', row];
    const help = row.usual === '' ? row.help : `${row.help} [${row.usual}]`;
    const [first, ...more] = wrapped(help, HELP_COLUMNS - width);
    return [
      `  ${heads[i].padEnd(width)}${first}`,
      ...more.map((text) => ' '.repeat(width + 2) + text),
    ];
  });
  const text = [usage, '', ...lines, ...(tail === '' ? [] : ['', tail])].join('\n');
  return `${text.replaceAll(/\n{3,}/g, '\n\n')}\n`;
}

/**
 * @param {string} text
 * @param {number} width
 * @returns {string[]} lines of at most `width` characters
 */
function wrapped(text, width) {
  return text.match(new RegExp(`\\S{${width},}|\\S.{0,${width - 1}}(?=\\s|$)`, 'g')) ?? [''];
}
