// report.js: the report for people (a table, then faults, notes and fixes) and for programs (JSON).

import { count } from './limits.js';

/** Version of the JSON. It rises when a field goes or changes its meaning, not for new ones. */
export const FORMAT = 1;
const MAX_VALUE_WIDTH = 60;

/** @import { Finding, Report } from './limits.js' */

/**
 * @param {Report} report @param {readonly string[]} notes
 * @returns {string} one JSON object; its shape is in docs/operations.md
 */
export function toJson({ wanted, workers, first, permits, verdict, limits }, notes) {
  return JSON.stringify(
    { format: FORMAT, wanted, workers, verdict, first, permits, limits, notes },
    null,
    2,
  );
}

/** @param {Report} report @param {readonly string[]} notes @returns {string} */
export function toText(report, notes) {
  const { wanted, workers, limits } = report;
  const rows = limits.map((one) => [one.name, fitted(one.value), permitsOf(one), one.verdict]);
  const lines = [
    `${count(wanted)} connections wanted, on ${count(workers)} worker${workers === 1 ? '' : 's'}`,
    '',
    ...table([['limit', 'value', 'permits', 'verdict'], ...rows]),
    '',
    `First to bind: ${summary(report)}`,
  ];
  for (const shown of ['low', 'note'])
    for (const { name, verdict, why, meaning, fix } of limits) {
      if (verdict === shown) lines.push('', `${name}: ${why}`, ...wrapped(meaning));
      if (verdict === shown && fix !== null) lines.push(`  Fix: ${fix}`);
    }
  /** Limits, by the reason why they could not be read. @type {Map<string, string[]>} */
  const unread = new Map();
  for (const { name, verdict, why } of limits) {
    if (verdict === 'cannot read') unread.set(why, [...(unread.get(why) ?? []), name]);
  }
  if (unread.size > 0) lines.push('', 'Cannot be read:');
  for (const [why, names] of unread) lines.push(`  ${names.join(', ')}: ${why}`);
  if (notes.length > 0) lines.push('', ...notes);
  return lines.join('\n');
}

/** @param {Report} report @returns {string} the first limit to bind, in one line */
export function summary({ first, permits, verdict, limits }) {
  const one = limits.find(({ name }) => name === first);
  if (one === undefined) return 'unknown, because no limit could be read';
  if (permits === null) return `${one.name}: ${one.why}`;
  return `${one.name}, at ${count(permits)} connections${verdict === 'ok' ? ' (enough)' : ''}`;
}

/** @param {Finding} finding */
function permitsOf({ permits, binds }) {
  if (permits === null) return '–';
  // In brackets: informative only, does not bind here.
  return binds ? count(permits) : `(${count(permits)})`;
}

/** @param {string} text */
function fitted(text) {
  return text.length <= MAX_VALUE_WIDTH ? text : `${text.slice(0, MAX_VALUE_WIDTH - 1)}…`;
}

/** Numbers go to the right. @param {readonly string[][]} rows */
function table(rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  return rows.map((row) =>
    row
      .map((cell, column) =>
        column === 2 ? cell.padStart(widths[column]) : cell.padEnd(widths[column]),
      )
      .join('  ')
      .trimEnd(),
  );
}

/** @param {string} text @returns {string[]} lines of about 100 columns, indented */
function wrapped(text) {
  return text.match(/\S.{0,97}(?=\s|$)/g)?.map((line) => `  ${line}`) ?? [];
}
