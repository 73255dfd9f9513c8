// imports.test.js: files of src import only what test/source-map.js allows to their folder.
//
// Sources are read, not run. Types in JSDoc are comments and cost nothing at run time, so the table
// does not cover them. The check for cycles covers both: a file may not import itself through
// others, by `import`, by a type in JSDoc, or by a mixture of the two.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { posix } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { FOLDERS, IMPORTS } from '../source-map.js';

/** It imports a file of the operator, whose path only the configuration has. */
const COMPUTED = 'hooks/load.js';

const src = fileURLToPath(new URL('../../src/', import.meta.url));
/** The sources, Lua included, from src. */
const FILES = readdirSync(src, { recursive: true })
  .map(String)
  .filter((path) => /\.(?:js|lua)$/.test(path));
const manifestOf = (/** @type {string} */ path) =>
  JSON.parse(readFileSync(new URL(path, import.meta.url), 'utf8'));
const { dependencies } = manifestOf('../../package.json');
/** Their users install these beside fanfare-client. */
const { peerDependencies } = manifestOf('../../src/client/package.json');

test('each folder of src is described, and has a row of imports or is inside of one that has', () => {
  const folders = [...new Set(FILES.map((path) => posix.dirname(path)))].filter(
    (one) => one !== '.',
  );
  const described = Object.values(FOLDERS).flatMap((group) => Object.keys(group));
  assert.deepEqual(described.sort(), [...folders, 'main.js'].sort());
  for (const folder of folders) assert.notEqual(unitOf(`${folder}/`), '', folder);
  for (const key of Object.keys(IMPORTS))
    assert.ok(
      FILES.some((path) => path.startsWith(key)),
      key,
    );
});

test('every import of src is allowed, and only main.js reads the environment', () => {
  const files = readdirSync(src, { recursive: true })
    .map(String)
    .filter((path) => path.endsWith('.js'));
  assert.ok(files.includes('main.js'));
  let found = 0;
  const faults = files.flatMap((path) => {
    const source = readFileSync(`${src}${path}`, 'utf8');
    found += importsOf(withoutComments(source)).length;
    return check(path, source);
  });
  // A reader of imports that finds none would find no fault either.
  assert.ok(found > files.length, `${found} imports in ${files.length} files`);
  assert.deepEqual(faults, []);
});

test('every import is a file or a package that a production install has', () => {
  for (const path of readdirSync(src, { recursive: true }).map(String)) {
    if (!path.endsWith('.js')) continue;
    for (const { specifier } of importsOf(withoutComments(readFileSync(`${src}${path}`, 'utf8')))) {
      const wanted = `${path} imports ${specifier}`;
      if (specifier.startsWith('node:'))
        assert.ok(builtinModules.includes(specifier.slice(5)), wanted);
      else if (specifier === '') assert.equal(path, COMPUTED);
      else if (!specifier.startsWith('.')) {
        const known = /^client\/\w+\//.test(path) ? peerDependencies : dependencies;
        assert.ok(specifier.split('/')[0] in known, wanted);
      } else assert.ok(existsSync(`${src}${posix.join(posix.dirname(path), specifier)}`), wanted);
    }
  }
});

test('folders of src import each other in one direction', () => {
  assert.deepEqual(cyclesOf(folderImports(sourcesOfSrc())), []);
  const sources = sourcesOfSrc();
  sources.set('backend/x.js', "import { Hub } from '../hub/hub.js';");
  sources.set('hub/x.js', "import { createBackend } from '../backend/index.js';");
  const [cycle] = cyclesOf(folderImports(sources));
  assert.ok(cycle.includes('hub') && cycle.includes('backend'));
});

test('worker.js names no backend', () => {
  const source = readFileSync(`${src}worker/worker.js`, 'utf8');
  assert.deepEqual(source.match(/[Rr]edis|[Ee]mbedded|Local|Memory/g) ?? [], []);
});

test('src has no import cycles, types in JSDoc included', () => {
  assert.deepEqual(cyclesOf(namesOf(sourcesOfSrc())), []);
});

/** Each is found in the real sources with one line more. */
const CYCLES = /** @type {const} */ ([
  ['an import', 'hub/connection.js', "import { Room } from './room.js';"],
  ['an import of a file by itself', 'hub/room.js', "import { Room as Other } from './room.js';"],
  ['an import through another folder', 'protocol/frame.js', "import '../hub/room.js';"],
  ['an export', 'hub/flight.js', "export { Room } from './room.js';"],
  ['an import at run time', 'hub/flight.js', "const later = () => import('./room.js');"],
  ['a type', 'hub/connection.js', "/** @typedef {import('./room.js').Room} Room */"],
  ['a type of a parameter', 'hub/flight.js', "/** @param {import('./hub.js').Hub} hub */"],
  ['a type after a line break', 'hub/flight.js', "/** @type {import(\n * './hub.js').Hub} */"],
  ['an @import tag', 'hub/connection.js', "/** @import { Room } from './room.js' */"],
]);

for (const [name, path, line] of CYCLES) {
  test(`the check for cycles finds ${name}`, () => {
    const sources = sourcesOfSrc();
    sources.set(path, `${sources.get(path)}\n${line}\n`);
    const cycles = cyclesOf(namesOf(sources));
    assert.equal(cycles.length, 1);
    assert.ok(cycles[0].includes(path));
  });
}

test('the check for cycles ignores prose and strings', () => {
  const sources = sourcesOfSrc();
  const lines = "// Unlike './room.js', from which this imports nothing.\nconst a = './room.js';\n";
  sources.set('hub/connection.js', sources.get('hub/connection.js') + lines);
  assert.deepEqual(cyclesOf(namesOf(sources)), []);
});

const FAULTS = /** @type {const} */ ([
  [
    'a folder that is not in the row',
    'hub/x.js',
    "import { RedisBroker } from '../backend/redis/broker.js';",
  ],
  [
    'a file that is not in the row',
    'protocol/x.js',
    "import { createLog } from '../observability/log.js';",
  ],
  ['a folder imported by a setting', 'config/x.js', "import { Hub } from '../hub/hub.js';"],
  ['an import of main.js', 'config/x.js', "import '../main.js';"],
  ['a part of main.js beyond its two doors', 'main.js', "import { Hub } from './hub/hub.js';"],
  [
    'the primary importing the worker',
    'primary/x.js',
    "const { runWorker } = await import('../worker/worker.js');",
  ],
  ['the primary importing the hub', 'primary/x.js', "import { Hub } from '../hub/hub.js';"],
  [
    'the primary importing a transport',
    'primary/x.js',
    "import {\n  WebSockets,\n} from '../transport/websocket.js';",
  ],
  [
    'the primary importing Redis',
    'primary/x.js',
    "import { RedisBroker } from '../backend/redis/broker.js';",
  ],
  [
    'the worker importing a backend',
    'worker/x.js',
    "import { createBackend } from '../backend/redis/index.js';",
  ],
  [
    'one backend importing the other',
    'backend/redis/x.js',
    "import { Histories } from '../embedded/histories.js';",
  ],
  [
    'the other importing the one',
    'backend/embedded/x.js',
    "import { Keys } from '../redis/keys.js';",
  ],
  [
    'a part that both backends use importing one of them',
    'backend/x.js',
    "import { Keys } from './redis/keys.js';",
  ],
  ['the worker importing the primary', 'worker/x.js', "export * from '../primary/supervisor.js';"],
  [
    'a transport importing the broker',
    'transport/x.js',
    "export { RedisBroker } from '../backend/redis/broker.js';",
  ],
  ['admission importing the hub', 'admission/x.js', "import * as hub from '../hub/hub.js';"],
  [
    'a backend importing the decoder',
    'backend/x.js',
    'import { decode } from "../protocol/decode.js";',
  ],
  ['an import for its side effects', 'hub/x.js', "import '../worker/worker.js';"],
  ['an import without spaces', 'hub/x.js', "import{Hub}from'../worker/worker.js'"],
  ['a default import with others', 'hub/x.js', "import a, { b as c } from '../worker/worker.js';"],
  ['an import behind a comment', 'hub/x.js', "/* '*/ import '../worker/worker.js';"],
  [
    'an import behind a pattern',
    'hub/x.js',
    "const quote = /['\"/*]/; import '../worker/worker.js'; /* */",
  ],
  [
    'an import behind an address',
    'hub/x.js',
    "const url = 'http://x/*'; import('../worker/worker.js'); /* */",
  ],
  ['an import that can not be read', 'worker/x.js', "await import('../' + 'primary/primary.js');"],
  ['a require', 'hub/x.js', "createRequire(import.meta.url)('ws'); require('ws');"],
  [
    'what lies outside of src',
    'worker/x.js',
    "import { startServer } from '../../test/helpers/server.js';",
  ],
  ['a package where none belongs', 'hub/x.js', "import { Redis } from 'ioredis';"],
  ['a package of another folder', 'backend/x.js', "import express from 'express';"],
  ['a part of such a package', 'backend/x.js', "import express from 'express/lib/router.js';"],
  ['sockets in the protocol', 'protocol/x.js', "import { connect } from 'node:net';"],
  ['files in the protocol', 'protocol/x.js', "import { readFileSync } from 'node:fs';"],
  [
    'timers in the protocol',
    'protocol/x.js',
    "import { setTimeout as delay } from 'node:timers/promises';",
  ],
  ['global timers in the protocol', 'protocol/x.js', 'setTimeout(flush, 10);'],
  ['the clock in the protocol', 'protocol/x.js', 'const now = Date.now();'],
  ['sockets in admission', 'admission/x.js', "import { connect, isIP } from 'node:net';"],
  ['all of node:net in admission', 'admission/x.js', "import * as net from 'node:net';"],
  ['a module of Node without its prefix', 'worker/x.js', "import net from 'net';"],
  ['the environment', 'worker/x.js', 'const { PORT } = process.env;'],
  ['the environment, in brackets', 'worker/x.js', "const port = process['env'].PORT;"],
  ['the environment, taken apart', 'config/x.js', 'const { env } = process;'],
  ['the environment, imported', 'worker/x.js', "import { env } from 'node:process';"],
  ['a folder that is not in the table', 'misc/x.js', 'export const x = 1;'],
  ['a loose file beside main.js', 'x.js', 'export const x = 1;'],
]);

for (const [name, path, source] of FAULTS) {
  test(`the check finds ${name}`, () => assert.notDeepEqual(check(path, source), []));
}

const FAIR = /** @type {const} */ ([
  [
    'a type',
    'hub/x.js',
    "/** @param {import('../backend/broker.js').Broker} broker */\nexport function x(broker) {}",
  ],
  [
    'a type in the middle of a line',
    'hub/x.js',
    "const x = /** @type {import('ws').WebSocket|null} */ (null);",
  ],
  [
    'prose',
    'hub/x.js',
    "// An import of '../backend/redis/broker.js' here: import('ioredis'), process.env.\nexport const x = 1;",
  ],
  ['a file of its own folder', 'hub/x.js', "import { Hub } from './hub.js';"],
  ['one export of a module', 'admission/x.js', "import { isIP } from 'node:net';"],
  ['computation', 'protocol/x.js', "import { deflateRawSync } from 'node:zlib';"],
  [
    'the doors of main.js',
    'main.js',
    "await import('./primary/primary.js'); const { env } = process;",
  ],
  [
    'the relay in the primary',
    'primary/x.js',
    "import { RelayServer } from '../backend/embedded/relay-server.js';",
  ],
  ['an environment that was handed over', 'primary/x.js', 'cluster.fork(settings.env);'],
]);

for (const [name, path, source] of FAIR) {
  test(`the check accepts ${name}`, () => assert.deepEqual(check(path, source), []));
}

/**
 * @param {string} path from src
 * @param {string} source
 * @returns {string[]} a line for each fault
 */
function check(path, source) {
  const code = withoutComments(source);
  const unit = unitOf(path);
  const row = IMPORTS[unit];
  if (row === undefined) return [`${path}: its folder is not in the table`];
  const faults = importsOf(code)
    .filter((one) => !isAllowed(one, path, unit, row))
    .map(
      ({ names, specifier }) =>
        `${path} may not import ${specifier || 'what is not written out'} (${names})`,
    );
  if (path !== 'main.js' && readsEnvironment(code)) faults.push(`${path} reads the environment`);
  const global = row.never?.exec(code);
  if (global) faults.push(`${path} uses ${global[0]}`);
  return faults;
}

/** @param {Import} one @param {string} path @param {string} unit @param {import('../source-map.js').Row} row */
function isAllowed({ names, specifier }, path, unit, row) {
  if (specifier.startsWith('node:')) {
    if (specifier === 'node:process') return path === 'main.js';
    if (row.node === 'any' || row.node.includes(specifier)) return true;
    return (
      names.length > 0 &&
      names.every((name) => /** @type {string[]} */ (row.node).includes(`${specifier} ${name}`))
    );
  }
  if (specifier === '') return path === COMPUTED;
  if (!specifier.startsWith('.')) return row.packages.includes(specifier);
  const target = posix.join(posix.dirname(path), specifier);
  if (target.startsWith('../')) return false;
  if (unitOf(target) === unit) return true;
  return row.may.some((may) => may === target || (may.endsWith('/') && target.startsWith(may)));
}

/**
 * @param {string} path
 * @returns {string} the key of its row: the longest that is the path or a folder around it; '' if
 *   there is none
 */
function unitOf(path) {
  const keys = Object.keys(IMPORTS).filter((key) => path === key || path.startsWith(`${key}/`));
  return keys.reduce((longest, key) => (key.length > longest.length ? key : longest), '');
}

/** @returns {Map<string, string>} the sources of src by path */
function sourcesOfSrc() {
  const paths = readdirSync(src, { recursive: true }).map(String);
  const files = paths.filter((path) => path.endsWith('.js'));
  return new Map(files.map((path) => [path, readFileSync(`${src}${path}`, 'utf8')]));
}

/**
 * The files that a source names in imports and in types of JSDoc.
 * @param {string} path from src
 * @param {string} source
 */
function namedBy(path, source) {
  const specifiers = importsOf(withoutComments(source)).map(({ specifier }) => specifier);
  for (const [comment] of source.matchAll(/\/\*\*[\s\S]*?\*\//g)) {
    for (const [, , specifier] of comment.matchAll(
      /(\bimport\s*\([\s*]*|@import\b[^@]*?\bfrom\s*)['"]([^'"]+)['"]/g,
    ))
      specifiers.push(specifier);
  }
  return specifiers
    .filter((specifier) => specifier.startsWith('.'))
    .map((specifier) => posix.join(posix.dirname(path), specifier));
}

/** What each file names. @param {ReadonlyMap<string, string>} sources by path */
function namesOf(sources) {
  return new Map([...sources].map(([path, source]) => [path, namedBy(path, source)]));
}

/**
 * The files that a source imports.
 * @param {string} path from src
 * @param {string} source
 */
function importedBy(path, source) {
  return importsOf(withoutComments(source))
    .filter(({ specifier }) => specifier.startsWith('.'))
    .map(({ specifier }) => posix.join(posix.dirname(path), specifier));
}

/** Which folders of src import which others. @param {ReadonlyMap<string, string>} sources by path */
function folderImports(sources) {
  /** @type {Map<string, string[]>} */
  const graph = new Map();
  for (const [path, source] of sources) {
    const [folder] = path.split('/');
    const others = importedBy(path, source).map((target) => target.split('/')[0]);
    graph.set(folder, [
      ...(graph.get(folder) ?? []),
      ...others.filter((other) => other !== folder),
    ]);
  }
  return graph;
}

/**
 * Groups of files or folders that name each other in a circle (Tarjan's strongly connected
 * components).
 * @param {ReadonlyMap<string, readonly string[]>} named what each of them names
 * @returns {string[][]}
 */
function cyclesOf(named) {
  /** @type {string[][]} */
  const cycles = [];
  /** @type {string[]} */
  const stack = [];
  /** In the order of the visits; Infinity: its group is complete. @type {Map<string, number>} */
  const numbers = new Map();
  /**
   * @param {string} path
   * @returns {number} the lowest number that it leads to
   */
  const visit = (path) => {
    const known = numbers.get(path);
    if (known !== undefined) return known;
    const number = numbers.size;
    numbers.set(path, number);
    stack.push(path);
    let lowest = number;
    const targets = (named.get(path) ?? []).filter((target) => named.has(target));
    for (const target of targets) lowest = Math.min(lowest, visit(target));
    if (lowest < number) return lowest;
    const group = stack.splice(stack.indexOf(path));
    for (const member of group) numbers.set(member, Number.POSITIVE_INFINITY);
    if (group.length > 1 || targets.includes(path)) cycles.push(group);
    return Number.POSITIVE_INFINITY;
  };
  for (const path of named.keys()) visit(path);
  return cycles;
}

/**
 * @typedef {{names: string[], specifier: string}} Import `names` as they are exported; '*' for all;
 *   '' a specifier that is computed
 */

/**
 * @param {string} code without comments
 * @returns {Import[]}
 */
function importsOf(code) {
  /** @type {Import[]} */
  const found = [];
  for (const [, clause, specifier] of code.matchAll(
    /\b(?:import|export)\b([\w\s{},*$]*?)\bfrom\s*['"]([^'"]+)['"]/g,
  )) {
    const [, first, braced] = /^\s*([\w$*][\w\s$*]*)?,?\s*(?:\{([^}]*)\})?/.exec(clause) ?? [];
    const names = (braced ?? '')
      .split(',')
      .map((name) => name.trim().split(/\s+as\s+/, 1)[0])
      .filter((name) => name !== '');
    if (first) names.push(first.startsWith('*') ? '*' : 'default');
    found.push({ names, specifier });
  }
  for (const [, specifier] of code.matchAll(/\bimport\s*['"]([^'"]+)['"]/g))
    found.push({ names: [], specifier });
  for (const [, specifier] of code.matchAll(
    /\b(?:import|require(?:\.resolve)?)\s*\(\s*(?:['"]([^'"]+)['"]\s*[,)])?/g,
  )) {
    found.push({ names: ['*'], specifier: specifier ?? '' });
  }
  return found;
}

/** @param {string} code without comments */
function readsEnvironment(code) {
  return /\bprocess\s*(?:\?\.|\.)\s*env\b|\bprocess\s*(?:\?\.)?\[|\benv\b[^;{}]*\}\s*=\s*process\b/.test(
    code,
  );
}

/**
 * Leaves strings and patterns as they are: a comment may begin inside one only in appearance.
 * @param {string} source
 */
function withoutComments(source) {
  const token =
    /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\[\s\S]|[^`\\])*`|(?<=(?:[(,=:[!&|?{};+>]|^|\breturn)\s*)\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\//gm;
  return source.replace(token, (text) =>
    text.startsWith('/*') || text.startsWith('//') ? ' ' : text,
  );
}
