// tutorial.test.js: docs/tutorial.md builds the chat of examples/chat. e2e/tutorial follows its steps.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { root } from '../helpers/packed.js';
import { changed, sectionsOf } from '../helpers/tutorial.js';

test('the change of a file replaces lines that occur once', () => {
  const diff = ' a\n-b\n+c\n\n d\n';
  assert.equal(changed('x\na\nb\n\nd\n', diff), 'x\na\nc\n\nd\n');
  assert.throws(() => changed('a\nb\n\nd\na\nb\n\nd\n', diff), /once/);
  assert.throws(() => changed('a\nd\n', diff), /once/);
});

test('the code of the tutorial is that of examples/chat', () => {
  /** @type {Map<string, string>} */
  const files = new Map();
  const page = readFileSync(`${root}docs/tutorial.md`, 'utf8');
  for (const { kind, path, code } of sectionsOf(page).flat())
    if (kind === 'save') files.set(path, code);
    else if (kind === 'change') files.set(path, changed(files.get(path) ?? '', code));
  for (const name of ['server.js', 'public/chat.js'])
    assert.equal(files.get(name), readFileSync(`${root}examples/chat/${name}`, 'utf8'), name);
});
