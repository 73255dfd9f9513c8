// load-imports.test.js: tests may import the load tools, and the load tools import no test.
//
// Both need a server, a Redis and a WebSocket client. These live in loadtest/lib/.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
const SPECIFIER = /(?:\bfrom|\bimport|\bimport\(|\brequire\()\s*'(\.{1,2}\/[^']*)'/g;

/**
 * @param {string} path from the root
 * @param {string} source
 * @returns {string[]} the imports that lead into test/, types in comments included
 */
function importsOfTests(path, source) {
  return [...source.matchAll(SPECIFIER)]
    .map(([, specifier]) => posix.join(posix.dirname(path), specifier))
    .filter((target) => target.startsWith('test/'))
    .map((target) => `${path} -> ${target}`);
}

test('no file of loadtest imports a file of test', () => {
  const files = readdirSync(`${root}loadtest`, { recursive: true })
    .map((path) => `loadtest/${path}`)
    .filter((path) => /\.[cm]?js$/.test(path) && !path.includes('node_modules'));
  assert.ok(files.includes('loadtest/lib/ws-client.js'));
  const faults = files.flatMap((path) =>
    importsOfTests(path, readFileSync(`${root}${path}`, 'utf8')),
  );
  assert.deepEqual(faults, []);
});

test('an import of a test file is found in each syntax', () => {
  for (const source of [
    "import { a } from '../../test/helpers/clients.js';",
    "import '../../test/helpers/clients.js';",
    "await import('../../test/helpers/clients.js');",
    "/** @typedef {import('../../test/helpers/clients.js').Client} Client */",
    "const { a } = require('../../test/helpers/clients.js');",
  ])
    assert.equal(importsOfTests('loadtest/lib/a.js', source).length, 1, source);
  assert.deepEqual(importsOfTests('loadtest/a.js', "import './lib/a.js';"), []);
});
