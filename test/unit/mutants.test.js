// mutants.test.js: the planted bugs of test/simulation/mutants/ fit the code of now.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { AREAS } from '../simulation/mutants/areas.js';
import { MUTANTS } from '../simulation/mutants/list.js';

const root = new URL('../../', import.meta.url);

test('each planted bug changes one place of its file, and has a name of its own', () => {
  assert.equal(new Set(MUTANTS.map(({ name }) => name)).size, MUTANTS.length);
  for (const { name, file, find, replace } of MUTANTS) {
    const parts = readFileSync(new URL(file, root), 'utf8').split(find);
    assert.equal(parts.length, 2, `${name}: ${file} has ${parts.length - 1} times: ${find}`);
    assert.notEqual(find, replace, name);
  }
});

test('each area names files of tests', () => {
  for (const [area, { unit, contract }] of Object.entries(AREAS))
    for (const [suite, files] of Object.entries({ unit, contract }))
      for (const file of files)
        assert.ok(existsSync(new URL(`test/${suite}/${file}.test.js`, root)), `${area}: ${file}`);
});
