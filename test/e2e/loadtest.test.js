// The load tests hold the whole server to its promises, on real processes; here each runs in a
// small form.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
const LIMIT_MS = 100_000;

/** Promises, and the script that shows each of them. @type {[string, string, ...string[]][]} */
const CASES = [
  [
    'two servers on one Redis: every member gets every message once, in order',
    'verify.js',
    '--redis',
    '--clients',
    '200',
    '--messages',
    '1000',
  ],
  [
    'one server of four workers: the same',
    'verify.js',
    '--servers',
    '1',
    '--workers',
    '4',
    '--clients',
    '200',
    '--messages',
    '1000',
  ],
];

for (const [name, script, ...args] of CASES) {
  test(name, { timeout: LIMIT_MS }, async (t) => {
    const child = spawn(process.execPath, [`${root}loadtest/${script}`, ...args], { cwd: root });
    t.after(() => child.kill('SIGTERM'));
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += data));
    const [code] = await once(child, 'exit');
    assert.equal(code, 0, said);
  });
}
