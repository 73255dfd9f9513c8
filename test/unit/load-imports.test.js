// load-imports.test.js: tests and load tools share test/harness/ only.
//
// The harness starts servers and Redis, and has a light WebSocket client. The tests of the load
// tools, and no others, import loadtest/; without that folder all other tests still run.

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
 * @returns {string[]} the files that it imports, types in comments included
 */
function importsOf(path, source) {
  return [...source.matchAll(SPECIFIER)].map(([, specifier]) =>
    posix.join(posix.dirname(path), specifier),
  );
}

/** @param {string} folder @returns {string[]} `importing file -> imported file`, all of a folder */
function importsUnder(folder) {
  return readdirSync(`${root}${folder}`, { recursive: true })
    .map((path) => `${folder}/${path}`)
    .filter((path) => /\.[cm]?js$/.test(path) && !path.includes('node_modules'))
    .flatMap((path) =>
      importsOf(path, readFileSync(`${root}${path}`, 'utf8')).map(
        (target) => `${path} -> ${target}`,
      ),
    );
}

/** Tests of the load tools by the row of the map, and what only these share. */
const OF_LOAD_TOOLS =
  /^test\/(helpers\/swarm-run|unit\/(swarm|ledger|load-.*|capacity.*)\.test|e2e\/(swarm.*|artillery|capacity.*|bench|load.*)\.test)\.js /;

test('load tools import the harness and no other file of the tests', () => {
  const imports = importsUnder('loadtest').filter((line) => line.includes('-> test/'));
  assert.ok(imports.includes('loadtest/verify.js -> test/harness/ws-client.js'));
  assert.deepEqual(
    imports.filter((line) => !line.includes('-> test/harness/')),
    [],
  );
});

test('the harness imports the server and nothing else', () => {
  const imports = importsUnder('test/harness');
  assert.ok(imports.length > 0);
  assert.deepEqual(
    imports.filter((line) => !/-> (test\/harness|src)\//.test(line)),
    [],
  );
});

test('only the tests of the load tools import them', () => {
  const imports = importsUnder('test').filter((line) => line.includes('-> loadtest/'));
  assert.ok(imports.length > 20, `${imports.length} imports`);
  assert.deepEqual(
    imports.filter((line) => !OF_LOAD_TOOLS.test(line)),
    [],
  );
});

test('an import is found in each syntax', () => {
  for (const source of [
    "import { a } from '../../test/helpers/clients.js';",
    "import '../../test/helpers/clients.js';",
    "await import('../../test/helpers/clients.js');",
    "/** @typedef {import('../../test/helpers/clients.js').Client} Client */",
    "const { a } = require('../../test/helpers/clients.js');",
  ])
    assert.deepEqual(importsOf('loadtest/lib/a.js', source), ['test/helpers/clients.js'], source);
});
