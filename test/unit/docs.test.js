import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { SETTINGS } from '../../src/config/config.js';
import { METRICS } from '../../src/observability/metrics.js';
import { ERRORS } from '../../src/protocol/codes.js';
import { readme, TABLE_NAMES, withTables } from '../docs-tables.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const source = readFileSync(`${root}src/README.md`, 'utf8');
const manifest = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));

test('the tables of README.md are the ones in the code; `npm run docs` writes them', () => {
  assert.equal(readme(), withTables(readme()));
  for (const name of TABLE_NAMES) assert.ok(readme().includes(`<!-- table: ${name} -->`), name);
  for (const { env } of SETTINGS) assert.ok(readme().includes(`\`${env}\``), env);
  for (const code of Object.keys(ERRORS)) assert.ok(readme().includes(`\`${code}\``), code);
  for (const { name } of METRICS) assert.ok(readme().includes(`\`${name}`), name);
});

test('a table that differs from the code is noticed', () => {
  const altered = readme().replace('Public port', 'Some port');
  assert.notEqual(altered, readme());
  assert.notEqual(withTables(altered), altered);
});

test('src/README.md names every file and folder there is, and no other', () => {
  const paths = readdirSync(`${root}src`, { recursive: true, withFileTypes: true });
  const files = new Set(paths.filter((entry) => entry.isFile()).map(({ name }) => name));
  files.delete('README.md');
  const map = source.slice(source.indexOf('## Map'), source.indexOf('## Who may import whom'));
  for (const file of files) assert.ok(map.includes(`\`${file}\``), `${file} is missing`);
  for (const entry of paths) {
    if (entry.isDirectory()) assert.ok(map.includes(`${entry.name}/**`), entry.name);
  }
  for (const [, name] of map.matchAll(/`([\w-]+\.js)`/g)) {
    assert.ok(files.has(name), `there is no ${name}`);
  }
});

test('what the documents tell people to run is there', () => {
  for (const name of ['README.md', 'CONTRIBUTING.md', 'loadtest/README.md']) {
    const text = readFileSync(`${root}${name}`, 'utf8');
    for (const [, script] of text.matchAll(/npm run ([\w:-]+)/g))
      assert.ok(script in manifest.scripts, `${name}: npm run ${script}`);
    for (const [, path] of text.matchAll(/\bnode ([\w./-]+\.js)/g))
      assert.ok(existsSync(`${root}${path}`), `${name}: ${path}`);
    for (const [, path] of text.matchAll(/\]\(((?!http)[\w./-]+)\)/g)) {
      assert.ok(existsSync(new URL(path, new URL(name, `file://${root}`))), `${name}: ${path}`);
    }
  }
});
