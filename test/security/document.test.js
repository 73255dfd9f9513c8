// document.test.js: the tests and counters that docs/security.md names exist.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  COURIER_METRICS,
  METRICS,
  PRIMARY_METRICS,
  WORKER_METRICS,
} from '../../src/observability/metrics.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const document = readFileSync(`${root}docs/security.md`, 'utf8');
const inputs = document.slice(
  document.indexOf('## Inputs and queues'),
  document.indexOf('## How it is tested'),
);
/** The rows of the input tables, without their heads. */
const rows = inputs
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| input'))
  .map((line) => line.slice(2, -2).split(' | '));

test('each row of the input tables is complete and names an existing test', () => {
  assert.ok(rows.length > 40);
  for (const cells of rows) {
    const line = cells.join(' | ');
    assert.equal(cells.length, 6, line);
    for (const cell of cells) assert.notEqual(cell.trim(), '', line);
    const [, file, name] = /^`(test\/[\w./-]+\.js)`: (.+)$/.exec(cells[5]) ?? [];
    assert.ok(file !== undefined && existsSync(root + file), line);
    assert.ok(readFileSync(root + file, 'utf8').includes(name), `${file} has no test "${name}"`);
  }
});

test('each counter that docs/security.md names is a metric', () => {
  const names = new Set(
    [...METRICS, ...WORKER_METRICS, ...PRIMARY_METRICS, ...COURIER_METRICS].map(({ name }) => name),
  );
  const named = [...document.matchAll(/`((?:fanfare|websocket)_[a-z_]+)`/g)].map(
    ([, name]) => name,
  );
  assert.ok(named.length > 30);
  for (const name of named) assert.ok(names.has(name), name);
});

test('README.md links to docs/security.md, whose links all have targets', () => {
  assert.ok(readFileSync(`${root}README.md`, 'utf8').includes('](docs/security.md)'));
  for (const [, path] of document.matchAll(/\]\(((?!http)[\w./-]+)(?:#[\w-]+)?\)/g)) {
    assert.ok(existsSync(new URL(path, `file://${root}docs/`)), path);
  }
});
