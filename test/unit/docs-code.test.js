// docs-code.test.js: each block of code in README.md and docs/ is run by a test, or says why not
// (helpers/doc-code.js).

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { blocksOf, parse } from '../helpers/doc-code.js';
import { docPages } from '../helpers/doc-pages.js';

const root = new URL('../../', import.meta.url);
const pages = ['README.md', ...docPages()];
const blocks = pages.flatMap((path) => blocksOf(path).map((block) => ({ path, ...block })));

/** @param {string} name of a test file @returns {string} its path below the root */
const pathOf = (name) => `test/${name}.test.js`;

test('each block of code is run by a test, or says why not', () => {
  assert.ok(blocks.length > 100, `${blocks.length} blocks`);
  const silent = blocks.filter(({ test: name, reason }) => name === '' && reason === '');
  assert.deepEqual(
    silent.map(({ path, line }) => `${path}:${line}`),
    [],
    'put `<!-- run by e2e/… -->` or `<!-- not run: the reason -->` before the block',
  );
});

test('the test that a block names exists and reads the page', () => {
  const wrong = blocks.filter(({ path, test: name }) => {
    if (name === '') return false;
    const file = new URL(pathOf(name), root);
    return !existsSync(file) || !readFileSync(file, 'utf8').includes(path);
  });
  assert.deepEqual(
    wrong.map(({ path, line, test: name }) => `${path}:${line}: ${name}`),
    [],
  );
});

test('tests that a reason names exist', () => {
  const names = blocks.flatMap(({ path, line, reason }) =>
    [...reason.matchAll(/\b(?:unit|contract|e2e)\/[\w-]+/g)].map(([name]) => [path, line, name]),
  );
  assert.deepEqual(
    names.filter(([, , name]) => !existsSync(new URL(pathOf(String(name)), root))),
    [],
  );
});

test('a block has the mark before it, else that of its page', () => {
  const page = `# Title

<!-- code here is run by e2e/all -->

~
one
~

<!-- not run: an example -->
~js
<!-- run by e2e/inside -->
~

<!-- run by e2e/far -->
Text between.

~
three
~

1. <!-- nothing -->
   <!-- run by e2e/listed -->
   ~sh
   four
   ~
`.replaceAll('~', '```');
  assert.deepEqual(
    parse(page).map(({ language, test: name, reason }) => [language, name, reason]),
    [
      ['', 'e2e/all', ''],
      ['js', '', 'an example'],
      ['', 'e2e/all', ''],
      ['sh', 'e2e/listed', ''],
    ],
  );
  assert.deepEqual(
    parse('```\na\n```\n').map(({ test: name, reason }) => name + reason),
    [''],
  );
});
