// types.test.js: tsc finds no error in the JSDoc types.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = new URL('../../', import.meta.url);
const tsc = fileURLToPath(new URL('node_modules/typescript-7/bin/tsc', root));

for (const project of ['tsconfig.json', 'tsconfig.page.json']) {
  test(`tsc accepts the types of ${project}`, { timeout: 200_000 }, () => {
    // Other tests use the other processors, and several threads do some work twice.
    const args = [tsc, '-p', project, '--singleThreaded'];
    const { status, stdout } = spawnSync(process.execPath, args, {
      cwd: root,
      encoding: 'utf8',
    });
    assert.equal(status, 0, stdout);
  });
}
