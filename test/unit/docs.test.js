// docs.test.js: the documentation is true of the code: tables, codes, commands and paths.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { CLOSES, REFUSALS, WS_CLOSES } from '../../src/protocol/codes.js';
import { openingOf, pages, TABLE_NAMES, withTables } from '../docs-tables.js';
import { docPages } from '../helpers/doc-pages.js';
import { NAMES } from '../suites.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (/** @type {string} */ path) => readFileSync(root + path, 'utf8');
const manifest = JSON.parse(read('package.json'));

/** The source without codes.js, as one text. */
const source = readdirSync(`${root}src`, { recursive: true })
  .map(String)
  .filter((path) => path.endsWith('.js') && path !== 'protocol/codes.js')
  .map((path) => read(`src/${path}`))
  .join('\n');

test('each generated table stands in one page and equals the code; `npm run docs` writes it', () => {
  const found = pages();
  assert.deepEqual(found.flatMap(({ tables }) => tables).sort(), [...TABLE_NAMES].sort());
  for (const { path, text } of found) assert.equal(text, withTables(text), path);
});

test('a generated table that differs from the code is noticed', () => {
  const { text } = pages().find(({ tables }) => tables.includes('errors')) ?? { text: '' };
  const altered = text.replace('Unknown command type', 'Unknown something');
  assert.notEqual(altered, text);
  assert.notEqual(withTables(altered), altered);
});

test('src uses each refusal and each close code, so none is documented before it exists', () => {
  const codes = read('src/protocol/codes.js');
  // The `error` of another refusal, or src uses it by itself.
  for (const code of Object.keys(REFUSALS))
    assert.ok(source.includes(`'${code}'`) || codes.includes(`error: '${code}'`), code);
  // A close is the column of a refusal, or src uses it by itself.
  const closes = source + codes;
  for (const name of Object.keys(CLOSES)) assert.ok(closes.includes(`CLOSES.${name}`), name);
  // ws sends these: its sources have the numbers.
  const receiver = read('node_modules/ws/lib/receiver.js');
  for (const { code } of Object.values(WS_CLOSES)) assert.ok(receiver.includes(`${code},`));
});

test('each file of src begins with `name.js: what it is`, its entry in docs/architecture/files.md', () => {
  for (const path of readdirSync(`${root}src`, { recursive: true }).map(String)) {
    if (!/\.(?:js|lua)$/.test(path)) continue;
    const text = read(`src/${path}`);
    assert.match(text, new RegExp(`^(?:#!.*\\n)?(?://|--) ${basename(path)}: `), path);
    const opening = openingOf(text);
    assert.ok(opening.length > 0 && opening.length <= 200, `${path}: ${opening}`);
  }
});

test('src/README.md is short, and names files that exist', () => {
  const text = read('src/README.md');
  assert.ok(Buffer.byteLength(text) <= 9 * 1024, `${Buffer.byteLength(text)} bytes`);
  for (const line of text.split('\n')) assert.ok(line.length <= 200, line);
  const names = readdirSync(`${root}src`, { recursive: true }).map((path) =>
    basename(String(path)),
  );
  for (const [, name] of text.matchAll(/`([\w-]+\.js)`/g)) assert.ok(names.includes(name), name);
});

test('the pictures of the console show its navigation; `node test/console-pictures.js` makes them', () => {
  const { navigation, pictures } = JSON.parse(read('docs/images/console.json'));
  const places = read('src/console/page/places.js').split('const PLACES = [')[1].split('\n];')[0];
  assert.deepEqual(
    navigation,
    [...places.matchAll(/\btitle: '(\w+)'/g)].map(([, title]) => title),
  );
  const taken = readdirSync(`${root}docs/images`).filter((name) => /^console-.*png$/.test(name));
  assert.deepEqual(taken.sort(), pictures);
  const shown = [...read('README.md').matchAll(/images\/(console-[\w-]+\.png)/g)];
  assert.deepEqual(
    shown.filter(([, name]) => !pictures.includes(name)),
    [],
  );
});

test('npm lists at most 21 scripts', () => {
  assert.ok(Object.keys(manifest.scripts).length <= 21);
});

test('each npm script, suite and file that the documentation tells people to run exists', () => {
  for (const name of ['README.md', 'CONTRIBUTING.md', 'loadtest/README.md', ...docPages()]) {
    const text = read(name);
    for (const [, script] of text.matchAll(/npm run ([\w:-]+)/g))
      assert.ok(script in manifest.scripts, `${name}: npm run ${script}`);
    for (const [, suite] of text.matchAll(/\bnode test\/run\.js\s+([a-z][\w-]+)/g))
      assert.ok(isSuite(suite), `${name}: node test/run.js ${suite}`);
    for (const [, path] of text.matchAll(/\bnode ([\w./-]+\.js)/g))
      assert.ok(
        existsSync(root + path) || text.includes(`Save as \`${path}\``),
        `${name}: ${path}`,
      );
  }
});

/** @param {string} name that test/run.js knows */
function isSuite(name) {
  return NAMES.some(([known]) => known === name);
}

test('each feature and each guarantee has a command that shows it', () => {
  for (const [page, section] of [
    ['README.md', 'Features'],
    ['README.md', 'Guarantees'],
    ['docs/README.md', 'More features'],
  ]) {
    const [, table] = read(page).split(`\n## ${section}\n`);
    const rows = table.split('\n## ')[0].match(/^\| (?!feature|guarantee|---).*\|$/gm) ?? [];
    assert.ok(rows.length >= 5, section);
    for (const row of rows) {
      const proof = row.split(' | ').at(-1) ?? '';
      const [, script] = /`npm run ([\w:-]+)[^`]*`/.exec(proof) ?? [];
      const [, suite] = /`node test\/run\.js ([\w-]+)[^`]*`/.exec(proof) ?? [];
      const [, file] = /`node (?:--test )?([\w./-]+\.js)[^`]*`/.exec(proof) ?? [];
      if (script !== undefined) assert.ok(script in manifest.scripts, row);
      else if (suite !== undefined) assert.ok(isSuite(suite), row);
      else assert.ok(file !== undefined && existsSync(root + file), row);
    }
  }
});

test('docs/compatibility.md names tests that exist', () => {
  const cells = read('docs/compatibility.md').matchAll(/\| ((?:`\w+\/[\w-]+`: [^|]+)) \|$/gm);
  /** @type {string[]} */
  const missing = [];
  let count = 0;
  for (const [, cell] of cells)
    for (const part of cell.split(/\. (?=`)/)) {
      const [, file, names] = /** @type {RegExpExecArray} */ (/^`(.+?)`: (.+)$/.exec(part));
      const text = read(`test/${file}.test.js`);
      // A name may have a semicolon, too.
      const all = text.includes(names) ? [names] : names.split('; ');
      count += all.length;
      missing.push(...all.filter((name) => !text.includes(name)).map((name) => `${file}: ${name}`));
    }
  assert.deepEqual(missing, []);
  assert.ok(count >= 40, `${count}`);
});

test('docs/architecture/tasks.md names files that exist', () => {
  const text = read('docs/architecture/tasks.md');
  const paths = [...text.matchAll(/`((?:src|test|docs|ops)\/[\w./-]+)`/g)].map(([, path]) => path);
  assert.ok(paths.length > 40, `${paths.length} paths`);
  for (const path of paths) assert.ok(existsSync(root + path), path);
  assert.equal(text.match(/^### /gm)?.length, 12);
});

test('docs/architecture/tasks.md answers ten questions, each by one file', () => {
  const [, section] = read('docs/architecture/tasks.md').split('\n## Ten questions\n');
  const rows = section.split('\n## ')[0].match(/^\| .*\? \| .*$/gm) ?? [];
  assert.equal(rows.length, 10);
  const files = rows.map((row) => /\? \| `([\w./-]+)` \| /.exec(row)?.[1] ?? '');
  assert.equal(new Set(files).size, 10, files.join(', '));
  for (const [i, file] of files.entries()) assert.ok(existsSync(root + file), rows[i]);
});

test('docs/protocol.md has a section for each command', () => {
  const commands = [
    ...read('src/doors/native/index.js').matchAll(/^ +\['(\w+)', \w+\.\w+\.bind/gm),
  ];
  assert.ok(commands.length >= 9, `${commands.length} commands`);
  for (const [, name] of commands)
    assert.ok(read('docs/protocol.md').includes(`\n### ${name}\n`), name);
});

test('README.md has at most 150 lines, without the marks of its code', () => {
  const lines = read('README.md').trimEnd().split('\n');
  assert.ok(lines.filter((line) => !/^<!-- .* -->$/.test(line)).length <= 150);
});

test('each example of JSON in the documentation is valid JSON', () => {
  let found = 0;
  for (const path of docPages()) {
    for (const [, block] of read(path).matchAll(/```json\n([\s\S]*?)```/g)) {
      found++;
      assert.doesNotThrow(() => JSON.parse(block), `${path}: ${block}`);
    }
  }
  assert.ok(found > 0);
});
