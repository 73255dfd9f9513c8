// doc-code.js: the blocks of code of README.md and docs/, for the tests that run them.
//
// A comment before a block names its test: `<!-- run by e2e/readme -->`, or why none runs it:
// `<!-- not run: the values are examples -->`. A comment at the top of a page that begins with
// `<!-- code here is ` says so for all blocks without a comment of their own.
// unit/docs-code holds that each block has one, and that the test reads the page.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { transformSync } from 'esbuild';

const root = new URL('../../', import.meta.url);
const MARK = /^<!-- (code here is )?(?:run by ([\w-]+\/[\w-]+)|not run: (.+)) -->$/;

/**
 * @typedef {object} Block
 * @property {string} heading above the block
 * @property {number} line of its first fence, from 1
 * @property {string} language '': none
 * @property {string} code
 * @property {string} test that runs it: `e2e/readme`; '': none
 * @property {string} reason why no test runs it; '': none given
 */

/**
 * @param {string} path of a page: `docs/client.md`
 * @returns {Block[]}
 */
export function blocksOf(path) {
  return parse(readFileSync(new URL(path, root), 'utf8'));
}

/**
 * @param {string} text of a page
 * @returns {Block[]}
 */
export function parse(text) {
  /** @type {Block[]} */
  const blocks = [];
  let heading = '';
  let [pageTest, pageReason] = ['', ''];
  /** @type {RegExpExecArray|null} */
  let mark = null;
  /** @type {Block|null} */
  let block = null;
  for (const [index, line] of text.split('\n').entries()) {
    const fence = /^( *)```(\w*)/.exec(line);
    if (block !== null) {
      if (fence === null) block.code += `${line}\n`;
      else block = null;
    } else if (fence !== null) {
      const [, , test = '', reason = ''] = mark ?? ['', '', pageTest, pageReason];
      block = { heading, line: index + 1, language: fence[2], code: '', test, reason };
      blocks.push(block);
      mark = null;
    } else if (/^#+ /.test(line)) heading = line.replace(/^#+ /, '');
    else {
      const found = MARK.exec(line.trim());
      if (found?.[1]) [, , pageTest = '', pageReason = ''] = found;
      else if (found !== null) mark = found;
      else if (line !== '') mark = null;
    }
  }
  return blocks;
}

/**
 * The code of the only block of a page that has a text.
 * @param {string} path @param {string} text
 */
export function codeWith(path, text) {
  const found = blocksOf(path).filter(({ code }) => code.includes(text));
  assert.equal(found.length, 1, `${path} has ${found.length} blocks with ${text}`);
  return found[0].code;
}

/**
 * The blocks of a page that name their file in the first line: `// app.tsx` or `<!-- Page.vue -->`.
 * @param {string} path @returns {Record<string, string>} by name
 */
export function filesOf(path) {
  return Object.fromEntries(
    blocksOf(path).flatMap(({ code }) => {
      const [, name] = /^(?:\/\/|<!--) ([\w.]+)(?: -->)?\n/.exec(code) ?? [];
      return name ? [[name, code]] : [];
    }),
  );
}

/**
 * The same as JavaScript: a block of TypeScript loses its types.
 * @param {string} path @param {string} text
 */
export function scriptWith(path, text) {
  const code = codeWith(path, text);
  const { language } = /** @type {Block} */ (blocksOf(path).find((one) => one.code === code));
  if (!language.startsWith('ts')) return code;
  const tsconfigRaw = { compilerOptions: { verbatimModuleSyntax: true } };
  return transformSync(code, { loader: 'ts', tsconfigRaw, target: 'es2022' }).code;
}

/**
 * Runs a block as the body of a function.
 * @param {string} code its imports and the names that it takes for granted are in `names`
 * @param {Record<string, unknown>} names
 * @param {string[]} [results] names of the block
 * @returns {Promise<Record<string, any>>} their values
 */
export async function runCode(code, names, results = []) {
  const body = code.replace(/^import [^;]*;\n/gm, '').replace(/^export /gm, '');
  const AsyncFunction = /** @type {any} */ (async () => {}).constructor;
  const run = new AsyncFunction(...Object.keys(names), `${body}\nreturn { ${results} };`);
  return run(...Object.values(names));
}
