// old-trees.js: the program as it was before a fix.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const MAX_BYTES = 64 * 2 ** 20;

/** @param {readonly string[]} args @returns {Buffer} */
function git(args) {
  return execFileSync('git', ['-C', ROOT, ...args], { maxBuffer: MAX_BYTES });
}

/**
 * @param {string} fix a commit
 * @returns {{tree: string, remove: () => void}} `tree`: a folder with the program before it
 * @throws {Error} if this repository does not have the commit
 */
export function treeBefore(fix) {
  const tree = mkdtempSync(join(tmpdir(), 'fanfare-before-'));
  const remove = () => rmSync(tree, { recursive: true, force: true });
  try {
    const archive = git(['archive', `${fix}^`, 'src', 'package.json']);
    execFileSync('tar', ['-x', '-C', tree], { input: archive });
    symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
  } catch (error) {
    remove();
    throw new Error(`this repository has no program from before ${fix}`, { cause: error });
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
