// imports.js: who imports whom in src/, held against the table of src/README.md.
//
// Reads import statements, `export … from` and import() of a literal. Types in JSDoc are comments and bind nothing at run time: they
// do not count. A small scanner is enough, since src/ is formatted by Biome and parsed by tsc: comments are taken out first
// (strings are stepped over), then what is left is matched.

import { posix } from 'node:path';

/** Stands for the files beside main.js. */
const HELPERS = 'helpers';

/**
 * What a room may import besides itself: rooms, `helper.js` by name, packages and node: modules by name; `*`: all such.
 * @typedef {object} Rule
 * @property {readonly string[]} rooms folders, or files of one as folder/file.js
 * @property {readonly string[]} helpers
 * @property {readonly string[]} packages
 * @property {readonly string[]} node
 * @property {readonly string[]} [globals] that may not be named
 */

const TIMERS = ['setTimeout', 'setInterval', 'setImmediate', 'queueMicrotask'];
const CLOCKS = ['Date.now', 'performance.now'];

/** The table. @type {Readonly<Record<string, Rule>>} */
export const RULES = Object.freeze({
  [HELPERS]: { rooms: [], helpers: ['*'], packages: ['*'], node: ['*'] },
  protocol: {
    rooms: [],
    helpers: ['codes.js'],
    packages: [],
    node: ['node:zlib', 'node:buffer'],
    globals: [...TIMERS, ...CLOCKS],
  },
  admission: {
    rooms: [],
    helpers: ['codes.js', 'trust-proxy.js', 'stats.js'],
    packages: ['proxy-addr'],
    node: ['node:net'],
  },
  broker: { rooms: [], helpers: ['*'], packages: ['ioredis'], node: ['*'] },
  hub: { rooms: ['protocol'], helpers: ['codes.js', 'stats.js'], packages: [], node: ['node:crypto'] },
  transport: {
    rooms: ['hub', 'protocol'],
    helpers: ['codes.js', 'stats.js'],
    packages: ['ws', 'express'],
    node: ['*'],
  },
  worker: {
    rooms: ['admission', 'broker', 'hub', 'protocol', 'transport'],
    helpers: ['*'],
    packages: [],
    node: ['*'],
  },
  primary: {
    rooms: ['broker/memory.js', 'broker/rooms.js'],
    helpers: ['*'],
    packages: ['express'],
    node: ['*'],
  },
});

/** main.js is the one file that may enter any room, and the only one that reads the environment. */
const ENTRY = 'main.js';

/**
 * What a file of src/ does that the table does not allow.
 * @param {string} path below src/, with slashes
 * @param {string} source
 * @returns {string[]} a sentence each
 */
export function violations(path, source) {
  /** @type {string[]} */
  const faults = [];
  const code = withoutComments(source);
  const bare = withoutStrings(code);
  if (path !== ENTRY && /\bprocess\s*(\?\.|\.)\s*env\b/.test(bare))
    faults.push(`${path} reads process.env; only ${ENTRY} may`);
  if (path !== ENTRY && /\{[^}]*\benv\b[^}]*\}\s*=\s*process\b/.test(bare))
    faults.push(`${path} reads process.env; only ${ENTRY} may`);
  const room = roomOf(path);
  const rule = RULES[room];
  if (!rule) return [...faults, `${path} is in a folder that the table does not know`];
  for (const name of rule.globals ?? []) {
    if (new RegExp(`\\b${name.replace('.', '\\.')}\\b`).test(bare))
      faults.push(`${path} uses ${name}: ${room} has no timers and no clock`);
  }
  for (const target of importsOf(code)) {
    const fault = faultOf(path, room, rule, target);
    if (fault) faults.push(`${path} imports ${target}: ${fault}`);
  }
  return faults;
}

/** @param {string} path @param {string} room @param {Rule} rule @param {string} target @returns {string} nothing where allowed */
function faultOf(path, room, rule, target) {
  if (target.startsWith('node:')) return allows(rule.node, target) ? '' : `${room} may not use this module`;
  if (!target.startsWith('.')) {
    const name = target
      .split('/')
      .slice(0, target.startsWith('@') ? 2 : 1)
      .join('/');
    return allows(rule.packages, name) ? '' : `${room} may not use this package`;
  }
  if (path === ENTRY) return '';
  const file = posix.normalize(posix.join(posix.dirname(path), target));
  if (file.startsWith('..')) return 'it is not in src/';
  const other = roomOf(file);
  if (other === room && room !== HELPERS) return '';
  if (file === ENTRY) return 'it is the entry point';
  if (other === HELPERS) return allows(rule.helpers, file) ? '' : `${room} may not use this helper`;
  return rule.rooms.includes(other) || rule.rooms.includes(file) ? '' : `${room} may not import ${other}`;
}

/** @param {readonly string[]} list @param {string} name */
function allows(list, name) {
  return list.includes('*') || list.includes(name);
}

/** @param {string} path */
function roomOf(path) {
  return path.includes('/') ? path.slice(0, path.indexOf('/')) : HELPERS;
}

/** @param {string} code without comments @returns {string[]} specifiers */
export function importsOf(code) {
  const found = [];
  for (const [, target] of code.matchAll(
    /(?:^|[;\n])\s*(?:import|export)\b(?:[^'"();]*?\bfrom)?\s*['"]([^'"\n]+)['"]/g,
  ))
    found.push(target);
  for (const [, target] of code.matchAll(/\bimport\s*\(\s*['"`]([^'"`\n]+)['"`]/g)) found.push(target);
  for (const [, target] of code.matchAll(/\brequire\s*\(\s*['"`]([^'"`\n]+)['"`]/g)) found.push(target);
  for (const [, target] of code.matchAll(/\bcreateRequire\s*\([^()]*\)\s*\(\s*['"`]([^'"`\n]+)['"`]/g))
    found.push(target);
  return found;
}

/** Strings and templates are stepped over, so that `'//'` in one is no comment. @param {string} source */
export function withoutComments(source) {
  return source.replace(
    /'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g,
    (part) => (part.startsWith('/') ? ' ' : part),
  );
}

/** @param {string} code */
function withoutStrings(code) {
  return code.replace(/'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/g, "''");
}
