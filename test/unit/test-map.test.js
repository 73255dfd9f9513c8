// test-map.test.js: test/README.md names every test file, and has a row for every file of src.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { NAMES, PROGRAMS, SETS } from '../suites.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const MAX_LINES = 62;
const text = readFileSync(`${root}test/README.md`, 'utf8');

/** @typedef {{sources: string[], tests: string[]}} Row */

/** @param {string} markdown @returns {Row[]} */
function rowsOf(markdown) {
  const names = (/** @type {string} */ cell) =>
    [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1]);
  return [...markdown.matchAll(/^\| (.*?) \| .*? \| (.*) \|$/gm)]
    .map(([, sources, tests]) => ({ sources: names(sources), tests: names(tests) }))
    .filter(({ tests }) => tests.length > 0);
}

/**
 * @param {readonly Row[]} rows
 * @param {readonly string[]} files `src/main.js`
 * @param {readonly string[]} tests `unit/hub`
 * @returns {{files: string[], tests: string[]}} those that no row names
 */
function unnamed(rows, files, tests) {
  const covers = (/** @type {string} */ source, /** @type {string} */ file) =>
    source.endsWith('/') ? file.startsWith(source) : file === source;
  return {
    files: files.filter(
      (file) => !rows.some((row) => row.sources.some((source) => covers(source, file))),
    ),
    tests: tests.filter((one) => !rows.some((row) => row.tests.some((name) => fits(name, one)))),
  };
}

/**
 * @param {string} name of the map; `*` stands for any letters but a slash
 * @param {string} one a test file
 */
function fits(name, one) {
  return new RegExp(`^${name.replaceAll('*', '[^/]*')}$`).test(one);
}

/** @param {string} folder */
function filesOf(folder) {
  return readdirSync(`${root}${folder}`, { recursive: true }).map((path) => String(path));
}

const sources = filesOf('src')
  .filter((path) => /\.(js|lua)$/.test(path))
  .map((path) => `src/${path}`);
const tests = filesOf('test')
  .filter((path) => path.endsWith('.test.js'))
  .map((path) => path.replace(/\.test\.js$/, ''));

test('test/README.md names every test file and has a row for every file of src', () => {
  assert.ok(sources.length > 50 && tests.length > 50);
  assert.deepEqual(unnamed(rowsOf(text), sources, tests), { files: [], tests: [] });
});

test('each name on the map of the tests is a file, and the map is short', () => {
  for (const { sources: folders, tests: names } of rowsOf(text)) {
    for (const name of names)
      assert.ok(
        tests.some((one) => fits(name, one)),
        name,
      );
    for (const source of folders) assert.ok(existsSync(`${root}${source}`), source);
  }
  assert.ok(text.trimEnd().split('\n').length <= MAX_LINES);
});

test('test/README.md lists what test/run.js can run, as its --help does', () => {
  const listed = [...text.matchAll(/^\| `([\w-]+)` \| ([^|]+) \|$/gm)].map(([, ...row]) => row);
  assert.deepEqual(listed, NAMES);
  for (const { files } of Object.values(SETS))
    for (const file of files) assert.ok(tests.includes(file), file);
  for (const { command } of Object.values(PROGRAMS))
    for (const path of command.match(/\btest\/\S+/g) ?? [])
      assert.ok(existsSync(root + path), path);
});

test('the check finds a test and a source file that the map does not name', () => {
  const rows = rowsOf('| `src/hub/` | rooms | `unit/hub` `e2e/redis-*` |');
  assert.deepEqual(
    unnamed(
      rows,
      ['src/hub/a.js', 'src/main.js'],
      ['unit/hub', 'unit/hub-2', 'e2e/redis-a', 'faults/redis-a'],
    ),
    {
      files: ['src/main.js'],
      tests: ['unit/hub-2', 'faults/redis-a'],
    },
  );
});
