// old-trees.js: former programs: of a commit, and the present one with a former fault.

import { execFileSync } from 'node:child_process';
import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const MAX_BYTES = 64 * 2 ** 20;

/** @param {readonly string[]} args @returns {Buffer} */
function git(args) {
  return execFileSync('git', ['-C', ROOT, ...args], { maxBuffer: MAX_BYTES });
}

/** @typedef {{tree: string, remove: () => void}} Tree a folder with a program */
/**
 * A change of one place of a file: `find` occurs once.
 * @typedef {{file: string, find: string, replace: string}} Replacement
 */

/** @param {string} fix a commit @returns {Tree} the program before it */
export function treeBefore(fix) {
  return treeOf(`${fix}^`);
}

/** @param {string} commit @returns {Tree} @throws {Error} if this repository does not have it */
export function treeOf(commit) {
  return createTree((tree) => {
    try {
      const input = git(['archive', commit, 'src', 'package.json']);
      execFileSync('tar', ['-x', '-C', tree], { input });
    } catch (cause) {
      throw new Error(`this repository has no program of ${commit}`, { cause });
    }
  });
}

/** @param {readonly Replacement[]} changes @returns {Tree} the present program with changes */
export function presentTreeWith(changes) {
  return createTree((tree) => {
    for (const name of ['src', 'package.json'])
      cpSync(join(ROOT, name), join(tree, name), { recursive: true });
    for (const { file, find, replace } of changes) {
      const path = join(tree, file);
      const [before, after, ...more] = readFileSync(path, 'utf8').split(find);
      if (after === undefined || more.length > 0) throw new Error(`${file} has not once: ${find}`);
      writeFileSync(path, `${before}${replace}${after}`);
    }
  });
}

/** @param {(tree: string) => void} fill @returns {Tree} */
function createTree(fill) {
  const tree = mkdtempSync(join(tmpdir(), 'fanfare-former-'));
  const remove = () => rmSync(tree, { recursive: true, force: true });
  try {
    fill(tree);
    symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
  } catch (error) {
    remove();
    throw error;
  }
  return { tree, remove };
}

/**
 * Leaves out the settings of Fanfare that an earlier program does not have: it would not start.
 * @template {Record<string, string>} Env
 * @param {string} tree @param {Env} env @returns {Env}
 */
export function settingsKnownTo(tree, env) {
  const text = readdirSync(join(tree, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.js'))
    .map((name) => readFileSync(join(tree, 'src', name), 'utf8'))
    .join('');
  const entries = Object.entries(env).filter(
    ([name]) => !name.startsWith('FANFARE_') || new RegExp(`\\b${name}\\b`).test(text),
  );
  return /** @type {Env} */ (Object.fromEntries(entries));
}
