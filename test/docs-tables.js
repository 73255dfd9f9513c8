// docs-tables.js: the tables of README.md, made from the code.
//
//   npm run docs      writes them; test/unit/docs.test.js holds them equal

import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { SETTINGS } from '../src/config/config.js';
import { LIMITS } from '../src/doctor/limits.js';
import { METRICS, PRIMARY_METRICS, WORKER_METRICS } from '../src/observability/metrics.js';
import { CLOSES, ERRORS } from '../src/protocol/codes.js';

const README = fileURLToPath(new URL('../README.md', import.meta.url));

/** Every table by its name in README.md's marks. @type {Record<string, () => string>} */
const TABLES = { errors, closes, settings, metrics, limits };

function errors() {
  return table(
    ['error', 'says', 'what to do'],
    Object.entries(ERRORS).map(([code, { message, client }]) => [`\`${code}\``, message, client]),
  );
}

function closes() {
  return table(
    ['code', 'reason', 'what to do'],
    Object.values(CLOSES).map(({ code, reason, client }) => [String(code), reason, client]),
  );
}

function settings() {
  const rows = SETTINGS.map((setting) => {
    const { env, fixed, meaning } = setting;
    return [`\`${env}\``, defaultOf(setting), fixed ? 'fixed' : '', meaning];
  });
  return table(['name', 'default', '', 'meaning'], rows);
}

/** @param {import('../src/config/config.js').Setting} setting */
function defaultOf({ env, type, default: value, values }) {
  if (env === 'WORKERS') return 'one per core';
  if (env === 'SERVER_ID') return 'the host’s name';
  if (type === 'mode' && value === undefined) return '`FANFARE_LIMITS`';
  if (value === '' || (Array.isArray(value) && value.length === 0)) return '';
  return `${value}${type === 'enum' ? ` (of ${values?.join(', ')})` : ''}`;
}

function metrics() {
  const rows = [...METRICS, ...WORKER_METRICS, ...PRIMARY_METRICS].map(
    ({ name, type, label, help }) => [`\`${name}${label ? `{${label}}` : ''}\``, type, help],
  );
  // The primary counts some things as its workers do, under the same name.
  return table(
    ['metric', 'type', ''],
    rows.filter(([name], i) => rows.findIndex(([other]) => other === name) === i),
  );
}

function limits() {
  return table(
    ['limit', 'read from', 'what it bounds, and how it becomes a number of connections'],
    LIMITS.map(({ name, source, meaning }) => [`\`${name}\``, source, meaning]),
  );
}

/**
 * @param {string[]} head
 * @param {string[][]} rows
 */
function table(head, rows) {
  const line = (/** @type {string[]} */ cells) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

/**
 * README.md with its tables as the code has them now.
 * @param {string} text
 * @returns {string}
 */
export function withTables(text) {
  return text.replace(
    /<!-- table: (\w+) -->\n[\s\S]*?<!-- end -->/g,
    (_all, /** @type {string} */ name) => {
      if (!(name in TABLES)) throw new Error(`README.md wants a table ${name}; there is none`);
      return `<!-- table: ${name} -->\n${TABLES[name]()}\n<!-- end -->`;
    },
  );
}

/** @returns {string} */
export function readme() {
  return readFileSync(README, 'utf8');
}

export const TABLE_NAMES = Object.keys(TABLES);

if (process.argv.includes('--write')) writeFileSync(README, withTables(readme()));
