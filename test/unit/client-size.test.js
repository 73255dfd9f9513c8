// client-size.test.js: the size of `fanfare/client`, minified as in the package and gzipped.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const root = fileURLToPath(new URL('../../', import.meta.url));
const { scripts } = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));
const MAX_BYTES = 5 * 1024;

test(`dist/fanfare.min.js has at most ${MAX_BYTES} bytes, gzipped, and imports nothing`, (t) => {
  const [command, ...options] = scripts['build:client'].split(' ');
  const toStdout = options.filter((/** @type {string} */ option) => !/^--outfile/.test(option));
  const { status, stdout, stderr } = spawnSync(`${root}node_modules/.bin/${command}`, toStdout, {
    cwd: root,
    encoding: 'utf8',
  });
  assert.equal(status, 0, stderr);
  const bytes = gzipSync(stdout, { level: 9 }).length;
  t.diagnostic(`${bytes} bytes`);
  assert.ok(bytes > 1000 && bytes <= MAX_BYTES, `${bytes} bytes`);
  assert.doesNotMatch(stdout, /\bimport\b|\brequire\b/);
});
