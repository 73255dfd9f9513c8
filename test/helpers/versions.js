// versions.js: copies of Fanfare in other versions, so that a test can run them side by side: the
// release before the working tree, and a synthetic version after it.
//
// A copy has its own src/, and the node_modules of the working tree.

import { execFileSync } from 'node:child_process';
import { cpSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from './temporary-folder.js';

/**
 * The base if there is no tag yet: the first commit whose readers recognise data of a newer version.
 */
const FIRST_BASE = '59bbd390807f3a52612adcd40d4c4db7e86259d5';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LOCK = 'package-lock.json';

/** @typedef {import('../harness/server.js').Owner} Owner */

/**
 * Finds the release before the working tree: FANFARE_BASE, the newest tag v*, or FIRST_BASE.
 * @returns {{ref: string, obstacle: string}} `obstacle`: the reason why there is none here; or ''
 */
export function findBase() {
  let ref = process.env.FANFARE_BASE ?? '';
  const refuse = (/** @type {string} */ obstacle) => ({ ref, obstacle });
  try {
    if (git('rev-parse', '--show-toplevel').trim() !== ROOT.replace(/\/$/, ''))
      return refuse('this folder is not a clone of the repository');
    ref ||= git('tag', '--list', 'v*', '--sort=-v:refname').split('\n')[0] || FIRST_BASE;
  } catch {
    return refuse('there is no git, or no repository');
  }
  try {
    git('cat-file', '-e', `${ref}^{commit}`);
  } catch {
    return refuse(`this clone has no commit ${ref}: fetch the whole history`);
  }
  return { ref, obstacle: '' };
}

/**
 * Checks out a version.
 * @param {Owner} t
 * @param {string} ref of git
 * @returns {string} a folder, which ends with the test
 */
export function checkOut(t, ref) {
  const folder = emptyFolder(t);
  const files = ['src', 'package.json', LOCK];
  const archive = execFileSync('git', ['archive', ref, ...files], {
    cwd: ROOT,
    maxBuffer: 2 ** 28,
  });
  execFileSync('tar', ['-x', '-C', folder], { input: archive });
  if (hasOurPackages(folder)) linkPackages(folder);
  else
    execFileSync('npm', ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund'], {
      cwd: folder,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
  return folder;
}

/**
 * Copies the working tree.
 * @param {Owner} t
 * @returns {string} a folder, which ends with the test
 */
export function copyTree(t) {
  const folder = emptyFolder(t);
  replaceFiles(folder, ROOT);
  linkPackages(folder);
  return folder;
}

/**
 * Replaces the files of one version by those of another.
 * @param {string} folder @param {string} other
 */
export function replaceFiles(folder, other) {
  rmSync(join(folder, 'src'), { recursive: true, force: true });
  cpSync(join(other, 'src'), join(folder, 'src'), { recursive: true });
  cpSync(join(other, 'package.json'), join(folder, 'package.json'));
}

/**
 * Makes the next version of the working tree: it reads another form of room messages and idempotency
 * keys, and has another version of the relay.
 * @param {Owner} t
 * @param {object} options
 * @param {boolean} options.writes whether it also writes that form: the second of two steps
 * @returns {string} a folder, which ends with the test
 */
export function makeNext(t, { writes }) {
  const folder = copyTree(t);
  for (const [file, edits] of Object.entries(READ_NEXT)) edit(folder, file, edits);
  if (writes) for (const [file, edits] of Object.entries(WRITE_NEXT)) edit(folder, file, edits);
  return folder;
}

/**
 * The messages between primary and workers, and their version.
 * @param {string} folder of a version
 */
export function relayOf(folder) {
  const read = (/** @type {string} */ file) => readFileSync(join(folder, 'src', file), 'utf8');
  const wire = read('backend/embedded/relay-wire.js');
  const control = read('worker/control-messages.js');
  return {
    version: Number(/RELAY_VERSION = ([\d.]+)/.exec(wire)?.[1]),
    messages: [
      /OP = Object\.freeze\(\{[^}]+\}/.exec(wire)?.[0],
      /\{type:'start'.* ToWorker\n/s.exec(control)?.[0],
      /\{type:'loaded'\} \|.* ToPrimary\n/s.exec(control)?.[0],
    ].join('\n'),
  };
}

/**
 * Neighbouring versions may differ in the messages of the relay only if RELAY_VERSION rises.
 * @param {string} before folder of a version
 * @param {string} after folder of the next one
 * @returns {string} what is wrong; or ''
 */
export function relayFault(before, after) {
  const [from, to] = [relayOf(before), relayOf(after)];
  if (!(to.version >= from.version))
    return `RELAY_VERSION ${to.version} is lower than ${from.version}`;
  if (to.version > from.version || to.messages === from.messages) return '';
  return `the messages of the relay differ, and RELAY_VERSION is ${to.version} in both`;
}

/** @param {string} folder of a version @returns {string} its entry point */
export function mainOf(folder) {
  return join(folder, 'src/main.js');
}

/** @typedef {readonly (readonly [from: string, to: string])[]} Edits each replaces all places */

/**
 * The form of the next version: message version 3, in which all bits of a publication are inverted.
 * So a reader that takes one for the other delivers no valid JSON. Values of idempotency keys begin
 * with `@2 `.
 * @type {Readonly<Record<string, Edits>>}
 */
const READ_NEXT = {
  'backend/batch.js': [
    [
      'export const HEAD_BYTES = 4;',
      'export const HEAD_BYTES = 4;\nexport const inverted = (bytes) => Buffer.from(bytes.map((byte) => byte ^ 255));',
    ],
    [
      'if (head > VERSION && head <= VERSION + MAX_VERSION) {',
      'if (head === VERSION + 3) { this.isNext = true; this.at = start; continue; }\n      if (head > VERSION && head <= VERSION + MAX_VERSION) {',
    ],
    [
      'this.publication = message.subarray(start, end);',
      'const bytes = message.subarray(start, end);\n        this.publication = this.isNext ? inverted(bytes) : bytes;',
    ],
  ],
  'backend/redis/lua/publishing.lua': [
    [
      "local was = call('GET', key)",
      "local was = call('GET', key)\n  if was then was = string.gsub(was, '^@2 ', '') end",
    ],
  ],
  'backend/redis/lua/once.lua': [
    [
      "local was = redis.call('GET', KEYS[1])",
      "local was = redis.call('GET', KEYS[1])\nif was then was = string.gsub(was, '^@2 ', '') end",
    ],
  ],
  'backend/embedded/relay-wire.js': [
    ['export const RELAY_VERSION = ', 'export const RELAY_VERSION = 1 + '],
  ],
};

/** @type {typeof READ_NEXT} */
const WRITE_NEXT = {
  'backend/batch.js': [
    [
      'publication.copy(buffer, at + HEAD_BYTES)',
      'inverted(publication).copy(buffer, at + HEAD_BYTES)',
    ],
  ],
  'backend/redis/publisher.js': [
    [
      'this.bodyBytes = body === null ? 0 : body.length;',
      'this.bodyBytes = body === null ? 4 : body.length;',
    ],
    ['message.bodyBytes = size;', 'message.bodyBytes += size;'],
    [
      'this.bodyBytes = versionedBytes(publication);',
      'this.bodyBytes += versionedBytes(publication);',
    ],
    [
      'let at = start;\n    for (const publication of this.publications)',
      'let at = buffer.writeUInt32BE(0xc0000003, start);\n    for (const publication of this.publications)',
    ],
  ],
  'backend/redis/lua/publishing.lua': [
    ["string.format('%s:%.0f:%s'", "string.format('@2 %s:%.0f:%s'"],
  ],
  'backend/redis/lua/once.lua': [
    ["redis.call('SET', KEYS[1], ARGV[3],", "redis.call('SET', KEYS[1], '@2 ' .. ARGV[3],"],
  ],
};

/**
 * @param {string} folder
 * @param {string} file in src/
 * @param {Edits} edits
 * @throws if there is nothing to replace
 */
export function edit(folder, file, edits) {
  const path = join(folder, 'src', file);
  let text = readFileSync(path, 'utf8');
  for (const [from, to] of edits) {
    if (!text.includes(from))
      throw new Error(`src/${file} has no more ${from}: the test of versions has to follow`);
    text = text.replaceAll(from, to);
  }
  writeFileSync(path, text);
}

/** @param {Owner} t */
function emptyFolder(t) {
  return temporaryFolder(t);
}

/** @param {string} folder */
function linkPackages(folder) {
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
}

/** Are the packages that a version needs among those of the working tree? @param {string} folder */
function hasOurPackages(folder) {
  const [theirs, ours] = [folder, ROOT].map(
    (root) =>
      /** @type {Record<string, {version: string, dev?: boolean, optional?: boolean}>} */ (
        JSON.parse(readFileSync(join(root, LOCK), 'utf8')).packages
      ),
  );
  return Object.entries(theirs).every(
    ([path, { version, dev }]) => path === '' || dev || ours[path]?.version === version,
  );
}

/** @param {...string} args */
function git(...args) {
  return execFileSync('git', args, {
    cwd: ROOT,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}
