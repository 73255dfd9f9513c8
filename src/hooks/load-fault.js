// load-fault.js: why the hooks file does not load, and in which line. Only a start that fails loads
// this file.
//
// An error that the file throws has its place in the stack. A syntax error of a module has none:
// Node shows the place only if nobody catches the error. So another process loads the file, without
// the environment of this one. It runs no line of it, because Node parses a module and all its
// imports before it runs any. A SyntaxError that running code throws is another thing: JSON that a
// file or an answer lacks may be there at the next start, and the file must not run again for it.

import { spawnSync } from 'node:child_process';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** Ends a file that never ends by itself. A syntax error shows long before. */
const TIMEOUT_MS = 5000;
/** The first line of a stack, or of what Node prints: `file:///srv/hooks.js:22`. */
const PLACE = /^(file:\/\/\S+|\/.+):(\d+)$/;
/** `    at file:///srv/hooks.js:22:7`, or with a function before it. */
const FRAME = /^ +at (?:async |.* \()?(file:\/\/\S+|\/.+?):(\d+):\d+\)?$/;

/**
 * @param {string} path of the hooks file, absolute @param {unknown} error that its import threw
 * @returns {{text: string, isInvalid: boolean}} for the operator. Invalid: it cannot load unless
 *   somebody changes the file. Other files may load at the next start.
 */
export function loadFault(path, error) {
  if (!(error instanceof Error))
    return { text: `${path} threw ${String(error)}`, isInvalid: false };
  const { name, message, stack = '' } = error;
  const [first, ...rest] = stack.split('\n');
  const parsed = placeIn(first, PLACE);
  if (parsed !== null) return { text: `${parsed}: ${name}: ${message}`, isInvalid: true };
  const thrown = rest.map((line) => placeIn(line, FRAME)).find((place) => place !== null);
  if (thrown) return { text: `${thrown}: ${name}: ${message}`, isInvalid: false };
  if (error instanceof SyntaxError && isOfParser(rest))
    return { text: `${placeOfSyntaxError(path, message)}: ${name}: ${message}`, isInvalid: true };
  const isInvalid = /** @type {NodeJS.ErrnoException} */ (error).code === 'ERR_MODULE_NOT_FOUND';
  return { text: `${path}: ${name}: ${message}`, isInvalid };
}

/** Has Node's loader thrown it? @param {readonly string[]} frames of the stack */
function isOfParser(frames) {
  const first = frames.find((frame) => !frame.endsWith('(<anonymous>)')); // JSON.parse has such a frame, for `import`
  return first?.includes('(node:internal/modules/') ?? false;
}

/** @param {string} line @param {RegExp} form @returns {string|null} null: there is no place in it */
function placeIn(line, form) {
  const [, file, number] = form.exec(line) ?? [];
  if (file === undefined) return null;
  return `${file.startsWith('file:') ? fileURLToPath(file) : file}:${number}`;
}

/** @param {string} path @param {string} message of the error @returns {string} at least the path */
function placeOfSyntaxError(path, message) {
  const args = [`--import=${pathToFileURL(path).href}`, '--eval=0'];
  const { stderr } = spawnSync(process.execPath, args, {
    ...{ env: {}, encoding: 'utf8', timeout: TIMEOUT_MS, stdio: ['ignore', 'ignore', 'pipe'] },
  });
  const lines = String(stderr).split('\n');
  if (!lines.includes(`SyntaxError: ${message}`)) return path;
  return lines.map((line) => placeIn(line, PLACE)).find((place) => place !== null) ?? path;
}
