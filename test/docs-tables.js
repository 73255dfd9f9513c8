// docs-tables.js: the generated tables of the documentation, written from the tables in the code.
//
//   npm run docs      rewrites them; test/unit/docs.test.js checks that they are up to date
//
// A table stands in a page between `<!-- table: NAME -->` and `<!-- end -->`. Each table stands in
// exactly one page.

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isMap, parseDocument } from 'yaml';
import { APP_FIELDS } from '../src/config/app-fields.js';
import { ESSENTIALS, LIMIT_MODES, SETTINGS } from '../src/config/settings.js';
import { LIMITS } from '../src/doctor/limits.js';
import { endings as centrifugoEndings } from '../src/doors/centrifugo/codec/codes.js';
import { endings as pusherEndings } from '../src/doors/pusher/codec/closes.js';
import {
  COURIER_METRICS,
  METRICS,
  PRIMARY_METRICS,
  WORKER_METRICS,
} from '../src/observability/metrics.js';
import { API_ERRORS, CLOSES, ERRORS, OVER, REFUSALS, WS_CLOSES } from '../src/protocol/codes.js';
import { errorOf } from '../src/protocol/refusal.js';
import { docPages } from './helpers/doc-pages.js';
import { readCorpus } from './simulation/corpus.js';
import { MUTANTS } from './simulation/mutants/list.js';
import { FOLDERS, IMPORTS } from './source-map.js';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const MARKED = /<!-- table: (\w+) -->\n[\s\S]*?<!-- end -->/g;

/** Every table by its name in the pages. @type {Record<string, () => string>} */
const TABLES = {
  errors,
  apiErrors,
  closes,
  refusals,
  pusherCloses,
  centrifugoCloses,
  essentials,
  settings,
  apps,
  modes,
  metrics,
  limits,
  chartValues,
  formerFaults,
  plantedAreas,
  plantedFound,
  plantedMissed,
  coreFolders: () => folders('core'),
  doorFolders: () => folders('doors'),
  aroundFolders: () => folders('around'),
  coreFiles: () => files('core'),
  doorFiles: () => files('doors'),
  aroundFiles: () => files('around'),
};

function formerFaults() {
  const mean = { schedule: 'a seed', script: 'a script', former: 'a script, former code' };
  return table(
    ['entry', 'fault', 'mended by', 'breaks', 'expressed by'],
    readCorpus().map(({ name, entry: { about, fix, rule, former, plan } }) => [
      `\`${name}\``,
      about,
      fix,
      /^I\d+$/.test(rule) ? rule : `\`${rule}\``,
      mean[former ? 'former' : plan.script ? 'script' : 'schedule'],
    ]),
  );
}

function plantedAreas() {
  const areas = [...new Set(MUTANTS.map(({ area }) => area))];
  const numbers = areas.map((area) => {
    const bugs = MUTANTS.filter((mutant) => mutant.area === area);
    const tried = bugs.flatMap(({ simulation }) => simulation ?? []);
    return { area, numbers: [bugs.length, tried.length, tried.filter(isFound).length] };
  });
  const sum = (/** @type {number} */ i) => numbers.reduce((all, one) => all + one.numbers[i], 0);
  return table(
    ['area', 'bugs', 'looked for', 'found'],
    [...numbers, { area: 'all', numbers: [sum(0), sum(1), sum(2)] }].map((row) => [
      row.area,
      ...row.numbers.map(String),
    ]),
  );
}

function plantedFound() {
  const found = MUTANTS.flatMap(({ name, whatAUserWouldSee, simulation }) =>
    simulation && isFound(simulation) ? { name, whatAUserWouldSee, ...simulation } : [],
  );
  return table(
    ['bug', 'what a user would see', 'found after', 'by'],
    found
      .toSorted((one, other) => one.seconds - other.seconds)
      .map((bug) => [`\`${bug.name}\``, bug.whatAUserWouldSee, `${bug.seconds} s`, bug.found]),
  );
}

function plantedMissed() {
  const missed = MUTANTS.flatMap(({ name, simulation = { seconds: 0, why: 'not tried' } }) =>
    isFound(simulation) ? [] : { name, ...simulation },
  );
  return table(
    ['bug', 'looked for', 'why it was not found'],
    missed.map(({ name, seconds, why }) => [`\`${name}\``, `${seconds} s`, why]),
  );
}

/**
 * @param {import('./simulation/mutants/list.js').Looked} looked
 * @returns {looked is {seconds: number, found: string}}
 */
function isFound(looked) {
  return 'found' in looked;
}

function errors() {
  return table(
    ['error', 'message', 'client action'],
    Object.entries(ERRORS).map(([code, { message, client }]) => [
      `<a id="${code}"></a>\`${code}\``,
      message,
      client,
    ]),
  );
}

function apiErrors() {
  return table(
    ['status', 'error', 'message', 'client action'],
    Object.entries(API_ERRORS).map(([code, { status, message, client }]) => [
      String(status),
      `\`${code}\``,
      message,
      client,
    ]),
  );
}

function closes() {
  const rows = [...Object.values(CLOSES), ...Object.values(WS_CLOSES)];
  return table(
    ['code', 'reason', 'cause', 'when is it over?', 'client action'],
    rows
      .sort((one, other) => one.code - other.code)
      .map(({ code, reason, cause, over, client }) => [
        `<a id="${code}"></a>${code}`,
        reason,
        cause,
        over,
        client,
      ]),
  );
}

function refusals() {
  return table(
    ['status', '`error`', 'message', 'when is it over?', '`Retry-After`', '`EventSource`'],
    [...OVER].map(([code, over]) => {
      const { status = 400, message, retryAfterS = 0 } = REFUSALS[code];
      const passes = retryAfterS > 0;
      const names = [String(status), `\`${errorOf({ code })}\``, message, over];
      return [...names, passes ? 'yes' : 'no', passes ? '200, `retry:`, the end' : '204'];
    }),
  );
}

function pusherCloses() {
  return doorCloses('pusher-js', pusherEndings());
}

function centrifugoCloses() {
  return doorCloses('clients', centrifugoEndings());
}

/**
 * @param {string} who
 * @param {readonly {code: number, cause: string, over: string, clients: string}[]} endings
 */
function doorCloses(who, endings) {
  return table(
    ['code', 'cause', 'when is it over?', who],
    endings
      .toSorted((one, other) => one.code - other.code)
      .map(({ code, cause, over, clients }) => [String(code), cause, over, clients]),
  );
}

function essentials() {
  return settingsTable(
    ESSENTIALS.map((env) => {
      const row = SETTINGS.find((one) => one.env === env);
      if (row === undefined) throw new Error(`no setting ${env}`);
      return row;
    }),
  );
}

function settings() {
  const sections = [...new Set(SETTINGS.map(({ section }) => section))];
  return sections
    .map((name) => {
      const rows = SETTINGS.filter(({ section, old }) => section === name && old === undefined);
      return `### ${name}\n\n${settingsTable(rows)}\n`;
    })
    .join('\n');
}

/** @param {readonly import('../src/config/settings.js').Setting[]} settings */
function settingsTable(settings) {
  const rows = settings.map((setting) => {
    const { env, fixed, meaning } = setting;
    return [`\`${env}\``, defaultOf(setting), boundsOf(setting), fixed ? 'fixed' : '', meaning];
  });
  return table(['name', 'default', 'allowed', '', 'meaning'], rows);
}

/** @param {import('../src/config/settings.js').Setting} setting */
function boundsOf({ type, min, max, unit = '', values = [] }) {
  if (type === 'rate') return '`N/min burst N`';
  if (type !== 'integer') return values.join(', ');
  return `${min} to ${max} ${unit}`.trim();
}

/** @param {import('../src/config/settings.js').Setting} setting */
function defaultOf({ env, default: value }) {
  if (env === 'WORKERS') return 'one per core';
  if (env === 'SERVER_ID') return 'the host’s name';
  if (value === '' || (Array.isArray(value) && value.length === 0)) return '';
  return String(value);
}

function apps() {
  return table(
    ['field', 'default', 'preset `soketi`', 'allowed', 'meaning'],
    APP_FIELDS.map(({ field, value, soketi, alias, allowed, meaning }) => [
      `\`${field}\``,
      value,
      soketi,
      allowed,
      alias === '' ? meaning : `${meaning} soketi: \`${alias}\`.`,
    ]),
  );
}

function modes() {
  return table(
    ['name in `FANFARE_LIMITS`', 'limit', 'old name'],
    LIMIT_MODES.map(({ limit, bounds, old }) => [`\`${limit}\``, bounds, `\`${old}\``]),
  );
}

function metrics() {
  const rows = [...METRICS, ...WORKER_METRICS, ...PRIMARY_METRICS, ...COURIER_METRICS].map(
    ({ name, type, label, help }) => [`\`${name}${label ? `{${label}}` : ''}\``, type, help],
  );
  // The primary counts some things as its workers do, under the same name.
  return table(
    ['metric', 'type', 'meaning'],
    rows.filter(([name], i) => rows.findIndex(([other]) => other === name) === i),
  );
}

function limits() {
  return table(
    ['limit', 'read from', 'what it bounds, and how the doctor turns it into connections'],
    LIMITS.map(({ name, source, meaning }) => [`\`${name}\``, source, meaning]),
  );
}

/** @param {keyof typeof FOLDERS} group */
function folders(group) {
  return table(
    ['folder', 'what it is'],
    Object.entries(FOLDERS[group]).map(([folder, about]) => [`\`${withSlash(folder)}\``, about]),
  );
}

/** The files of each folder, by their first comments. @param {keyof typeof FOLDERS} group */
function files(group) {
  const paths = readdirSync(`${ROOT}src`, { recursive: true })
    .map(String)
    .filter((path) => /\.(?:js|lua)$/.test(path));
  return Object.entries(FOLDERS[group])
    .map(([folder, about]) => {
      const own = paths.filter((path) => path === folder || dirname(path) === folder).sort();
      const rows = own.map((path) => [
        `[${path.slice(path.lastIndexOf('/') + 1)}](../../src/${path})`,
        openingOf(readFileSync(`${ROOT}src/${path}`, 'utf8')),
      ]);
      const name = withSlash(folder);
      return `### ${name}\n\n${sentence(about)} ${mayImport(folder)}\n\n${table(['file', ''], rows)}\n`;
    })
    .join('\n');
}

/** @param {string} folder @returns {string} what it may import, as a sentence */
function mayImport(folder) {
  const row = IMPORTS[folder];
  if (row === undefined) return `Imports as \`${dirname(folder)}/\`.`;
  const names = [...row.may, ...row.packages].map((name) => `\`${name}\``);
  return names.length === 0 ? 'Imports no other folder.' : `May import ${names.join(', ')}.`;
}

/** @param {string} folder */
const withSlash = (folder) => (folder.endsWith('.js') ? folder : `${folder}/`);

/** @param {string} text */
const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

/**
 * The first sentence of a file's first comment, `hub.js: rooms and connections of a worker.`,
 * without the name.
 * @param {string} source @returns {string} '' if the comment does not begin with a file's name
 */
export function openingOf(source) {
  const [, opening = ''] = /^(?:#!.*\n)?((?:(?:\/\/|--) .*\n)+)/.exec(source) ?? [];
  const text = opening.replace(/^(?:\/\/|--) /gm, '').replaceAll('\n', ' ');
  const [, first = ''] =
    /^[\w-]+\.(?:js|lua): (.+?(?:\?(?= |$)|(?=[.:]?$|\. )))/.exec(text.trim()) ?? [];
  return first;
}

/** @param {string[]} head @param {string[][]} rows */
function table(head, rows) {
  const line = (/** @type {string[]} */ cells) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

/** A page with its tables as the code has them now. @param {string} text @returns {string} */
export function withTables(text) {
  return text.replace(MARKED, (_all, /** @type {string} */ name) => {
    if (!(name in TABLES)) throw new Error(`a page asks for a table ${name}, which does not exist`);
    return `<!-- table: ${name} -->\n${TABLES[name]()}\n<!-- end -->`;
  });
}

/** The comment above a value says what it is. */
function chartValues() {
  const { contents } = parseDocument(readFileSync(`${ROOT}ops/helm/fanfare/values.yaml`, 'utf8'));
  return table(['value', 'default', 'meaning'], [...valuesIn(contents, '')]);
}

/**
 * @param {any} map @param {string} prefix
 * @returns {Generator<string[]>}
 */
function* valuesIn(map, prefix) {
  for (const [i, { key, value }] of map.items.entries()) {
    // The parser gives the comment of the first key to its map, unless a blank line ends it.
    const comment = key.commentBefore ?? (i === 0 ? map.commentBefore : undefined);
    const path = `${prefix}${key.value}`;
    const meaning = comment?.trim().replace(/\s*\n\s*/g, ' ');
    const isNested = isMap(value) && value.items.length > 0;
    const text = JSON.stringify(value);
    const shown = text.length > 100 ? '[values.yaml](values.yaml)' : `\`${text}\``;
    if (meaning) yield [`\`${path}\``, shown, meaning];
    else if (!isNested) throw new Error(`values.yaml: ${path} has no comment`);
    if (!meaning && isNested) yield* valuesIn(value, `${path}.`);
  }
}

/**
 * The pages that have generated tables.
 * @returns {{path: string, text: string, tables: string[]}[]} paths from the root
 */
export function pages() {
  return ['README.md', 'src/README.md', 'ops/helm/fanfare/README.md', ...docPages()]
    .map((path) => {
      const text = readFileSync(ROOT + path, 'utf8');
      return { path, text, tables: [...text.matchAll(MARKED)].map(([, name]) => name) };
    })
    .filter(({ tables }) => tables.length > 0);
}

export const TABLE_NAMES = Object.keys(TABLES);

if (process.argv.includes('--write'))
  for (const { path, text } of pages()) writeFileSync(ROOT + path, withTables(text));
