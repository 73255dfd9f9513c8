// compile.js: builds the benchmark's C programs: the client and the limit.

import { execFileSync } from 'node:child_process';
import { accessSync, constants, mkdirSync, renameSync, statSync } from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const CACHE = new URL('./node_modules/.cache/', import.meta.url);

/** Can this machine build C programs? */
export const hasCompiler = () => pathOf('cc') !== '';

/**
 * Builds a program of one source file with the machine's C compiler, unless it is built already.
 * @param {string} source relative to this folder: `client/client.c`
 * @returns {string} the path of the program
 * @throws {Error} without a compiler named `cc`
 */
export function compile(source) {
  const from = fileURLToPath(new URL(source, import.meta.url));
  const to = fileURLToPath(new URL(`fanfare-bench-${basename(source, '.c')}`, CACHE));
  mkdirSync(CACHE, { recursive: true });
  const built = statSync(to, { throwIfNoEntry: false });
  if (!built || built.mtimeMs < statSync(from).mtimeMs) {
    // Another process may build or run the same program.
    const own = `${to}.${process.pid}`;
    execFileSync('cc', ['-O2', '-o', own, from], { stdio: 'pipe' });
    renameSync(own, to);
  }
  return to;
}

/** The path of a program; '' if it is not in PATH. @param {string} program */
export function pathOf(program) {
  for (const directory of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(directory, program);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // not in this directory
    }
  }
  return '';
}
