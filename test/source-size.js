// source-size.js: how much code src/ has, and what a door costs.
//
//   node test/source-size.js              code lines of src/, and of each folder
//   node test/source-size.js DIRECTORY    the same for another copy of src/
//
// A code line is a line of JavaScript, Lua or CSS that is neither blank nor only a comment. The cost
// of a door is the code that a new one needs beside its codec and its HTTP API, which the protocol
// alone decides (docs/architecture/overview.md, "What a door costs").

import { readdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

const SRC = fileURLToPath(new URL('../src', import.meta.url));
const SOURCE = /\.(?:js|lua|css)$/;
const BLOCK = /^\s*\/\*(?:(?!\*\/)[\s\S])*\*\/[ \t]*$/gm;
const LINE = { js: /^\s*\/\/.*$/gm, css: /^$/gm, lua: /^\s*--.*$/gm };

/** @param {string} path @param {string} source */
export function codeLinesOf(path, source) {
  const kind = /** @type {keyof typeof LINE} */ (path.slice(path.lastIndexOf('.') + 1));
  const code = (kind === 'lua' ? source : source.replace(BLOCK, '')).replace(LINE[kind], '');
  return code.split('\n').filter((line) => line.trim() !== '').length;
}

/** @param {string} [src] @returns {Map<string, number>} code lines by folder; `''`: src itself */
export function sizesOf(src = SRC) {
  /** @type {Map<string, number>} */
  const sizes = new Map();
  for (const path of readdirSync(src, { recursive: true }).map(String)) {
    if (!SOURCE.test(path)) continue;
    const folder = dirname(path) === '.' ? '' : dirname(path);
    const lines = codeLinesOf(path, readFileSync(`${src}/${path}`, 'utf8'));
    sizes.set(folder, (sizes.get(folder) ?? 0) + lines);
  }
  return sizes;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const sizes = [...sizesOf(process.argv[2])].sort(([one], [other]) => (one < other ? -1 : 1));
  for (const [folder, lines] of sizes) console.log(`${lines} ${folder}`);
  console.log(`${sizes.reduce((sum, [, lines]) => sum + lines, 0)} in all`);
}
