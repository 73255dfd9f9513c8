// source-columns.test.js: comments in src have lines of at most 100 columns.
//
// Biome holds code to the same width, except for strings that it can't break. Drawings, columns of a
// table and long types are excepted here.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const MAX_COLUMNS = 100;
const src = fileURLToPath(new URL('../../src/', import.meta.url));

/**
 * @param {string} path for the message
 * @param {string} text
 * @returns {string[]} one entry per comment line that is too long
 */
function tooLong(path, text) {
  const lines = text.split('\n');
  return lines.flatMap((line, i) => {
    const [, comment] = /^\s*(?:\/\/|\*|\/\*\*|--)\s*(.*)$/.exec(line) ?? [];
    if (comment === undefined || line.length <= MAX_COLUMNS || isDrawn(comment)) return [];
    return [`${path}:${i + 1}: ${line.length} columns`];
  });
}

/** @param {string} comment */
function isDrawn(comment) {
  return /\S {3}|->|^\{|@\w+ \{|https?:/.test(comment);
}

test('comments in src have lines of at most 100 columns', () => {
  const paths = readdirSync(src, { recursive: true }).map(String);
  const sources = paths.filter((path) => /\.(js|lua)$/.test(path));
  assert.ok(sources.length > 50);
  const faults = sources.flatMap((path) => tooLong(path, readFileSync(src + path, 'utf8')));
  assert.deepEqual(faults, []);
});

test('the check finds long prose, and accepts drawings, columns and types', () => {
  const words = 'word '.repeat(25);
  for (const prose of [`// ${words}`, ` * ${words}`, `-- - ${words}`]) {
    assert.equal(tooLong('x.js', prose).length, 1, prose);
  }
  const drawings = [
    `//   name      ${words}`,
    `// worker --> relay ${words}`,
    ` * @param {${words}} x`,
  ];
  for (const drawn of drawings) assert.deepEqual(tooLong('x.js', drawn), [], drawn);
});
