// without.js: runs tests of a file again, in a process of its own, with one private field hidden.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const PRELOAD = '--import ./test/helpers/hidden/preload.js';

/**
 * Fails if one of the tests fails or does not exist.
 * @param {string} field
 * @param {string} file from the root
 * @param {string[]} names of the tests, in full
 */
export async function passWithout(field, file, names) {
  const patterns = names.map((name) => `^${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`);
  const child = spawn(
    process.execPath,
    ['--test-reporter=tap', ...patterns.map((pattern) => `--test-name-pattern=${pattern}`), file],
    {
      cwd: ROOT,
      env: {
        ...process.env,
        NODE_OPTIONS: PRELOAD,
        NODE_TEST_CONTEXT: undefined,
        TEST_HIDDEN_FIELD: field,
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  let output = '';
  child.stdout.on('data', (bytes) => {
    output += bytes;
  });
  const [code] = await once(child, 'exit');
  assert.equal(code, 0, output);
  const passed = /^# pass (\d+)$/m.exec(output)?.[1];
  assert.equal(Number(passed), names.length, `${file} does not have these tests: ${names}`);
}
