// report.js: the report for people (a table, then faults, notes and fixes) and for programs (JSON).

import { styleText } from 'node:util';
import { printable, printableLines } from '../observability/printable.js';
import { withDigits } from './limits.js';

/** Version of the JSON. It rises when a field goes or changes its meaning, not for new ones. */
export const FORMAT = 1;
const MAX_VALUE_WIDTH = 60;
/** The styles of verdicts on a terminal. @type {Record<string, Parameters<typeof styleText>[0]>} */
const STYLES = {
  ok: 'green',
  note: 'yellow',
  low: 'red',
  'cannot read': 'dim',
};

/** @import { Finding, Report } from './limits.js' */

/**
 * @param {Report} report @param {readonly string[]} notes
 * @returns {string} one JSON object; its shape is in docs/operations.md
 */
export function toJson({ wanted, workers, first, permits, verdict, limits }, notes) {
  const report = { format: FORMAT, wanted, workers, verdict, first, permits, limits, notes };
  return printableLines(JSON.stringify(report, null, 2));
}

/**
 * @param {Report} report @param {readonly string[]} notes
 * @param {boolean} [isColoured] for a terminal
 * @returns {string} printable: values come from Redis and from files
 */
export function toText(report, notes, isColoured = false) {
  /** @param {string} verdict @param {string} text */
  const paint = (verdict, text) =>
    isColoured ? styleText(STYLES[verdict], text, { validateStream: false }) : text;
  const { wanted, workers, limits } = report;
  const rows = limits.map((one) => [one.name, fitted(one.value), permitsOf(one), one.verdict]);
  const lines = [
    `${withDigits(wanted)} connections wanted, on ${withDigits(workers)} worker${workers === 1 ? '' : 's'}`,
    '',
    ...table([['limit', 'value', 'permits', 'verdict'], ...rows], paint),
    '',
    `First to bind: ${paint(report.verdict, printable(summary(report)))}`,
  ];
  for (const shown of ['low', 'note'])
    for (const { name, verdict, why, meaning, fix } of limits) {
      if (verdict !== shown) continue;
      const head = `${paint(verdict, name)}: ${printable(why)}`;
      lines.push('', head, ...wrapped(printable(meaning)));
      if (fix !== null) lines.push(`  Fix: ${printable(fix)}`);
    }
  /** Limits, by the reason why they could not be read. @type {Map<string, string[]>} */
  const unread = new Map();
  for (const { name, verdict, why } of limits) {
    if (verdict === 'cannot read') unread.set(why, [...(unread.get(why) ?? []), name]);
  }
  if (unread.size > 0) lines.push('', 'Cannot be read:');
  for (const [why, names] of unread) lines.push(`  ${names.join(', ')}: ${printable(why)}`);
  if (notes.length > 0) lines.push('', ...notes.map(printable));
  return lines.join('\n');
}

/** @param {Report} report @returns {string} the first limit to bind, in one line */
export function summary({ first, permits, verdict, limits }) {
  const one = limits.find(({ name }) => name === first);
  if (one === undefined) return 'unknown, because no limit could be read';
  if (permits === null) return `${one.name}: ${one.why}`;
  return `${one.name}, at ${withDigits(permits)} connections${verdict === 'ok' ? ' (enough)' : ''}`;
}

/** @param {Finding} finding */
function permitsOf({ permits, binds }) {
  if (permits === null) return '–';
  // Brackets: informative only, does not bind here.
  return binds ? withDigits(permits) : `(${withDigits(permits)})`;
}

/** @param {string} text */
function fitted(text) {
  return text.length <= MAX_VALUE_WIDTH ? text : `${text.slice(0, MAX_VALUE_WIDTH - 1)}…`;
}

/**
 * Numbers go to the right.
 * @param {readonly string[][]} rows @param {(verdict: string, text: string) => string} paint
 */
function table(rows, paint) {
  const cells = rows.map((row) => row.map(printable));
  const widths = cells[0].map((_, column) => Math.max(...cells.map((row) => row[column].length)));
  return cells.map(([limit, value, permits, verdict], i) =>
    [
      limit.padEnd(widths[0]),
      value.padEnd(widths[1]),
      permits.padStart(widths[2]),
      i === 0 ? verdict : paint(verdict, verdict),
    ].join('  '),
  );
}

/** @param {string} text @returns {string[]} lines of about 100 columns, indented */
function wrapped(text) {
  return text.match(/\S.{0,97}(?=\s|$)/g)?.map((line) => `  ${line}`) ?? [];
}
