// load.js: loads the hooks file (FANFARE_HOOKS).
//
// If the file throws, exports no hook or mistypes the name of one, the worker does not start. So no
// server runs without its checks, and a reload keeps the old workers.

import { lstatSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { HOOK_NAMES as HOOKS } from '../observability/counters.js';

/** Looks like the name of a hook: `onMessage` and `onpublish` would never be called. */
const LIKE_A_HOOK = /^on(?:[A-Z_]|(?:connect|join|publish|disconnect)$)/;

/**
 * @param {string} path absolute
 * @returns {Promise<import('./types.js').Hooks>} @throws {Error} with a text for the operator
 */
export async function loadHooks(path) {
  let module;
  try {
    // Node's loader resolves symbolic links with `fs.realpathSync`. In Node 20.20 it stops at the
    // first known folder if the process last called `stat` on a pipe or a socket, such as stdout.
    // A linked package (pnpm) is then empty. Calling `lstat` on a file first avoids this.
    lstatSync(path);
    module = await import(pathToFileURL(path).href);
  } catch (error) {
    const { loadFault } = await import('./load-fault.js');
    const { text, isInvalid } = loadFault(path, error);
    throw isInvalid
      ? invalid(text)
      : new Error(`FANFARE_HOOKS: failed to load: ${text}`, { cause: error });
  }
  // A CommonJS file, or a file that exports one object.
  const exported =
    typeof module.default === 'object' && module.default !== null
      ? { ...module, ...module.default }
      : module;
  /** @type {Record<string, unknown>} */
  const hooks = {};
  for (const [name, value] of Object.entries(exported)) {
    const isHook = /** @type {readonly string[]} */ (HOOKS).includes(name);
    if (isHook && typeof value !== 'function') throw invalid(`${path}: ${name} is not a function`);
    if (!isHook && LIKE_A_HOOK.test(name) && typeof value === 'function')
      throw invalid(`${path}: ${name} is not one of ${HOOKS.join(', ')}`);
    if (isHook) hooks[name] = value;
  }
  if (Object.keys(hooks).length === 0) throw invalid(`${path} exports none of ${HOOKS.join(', ')}`);
  return hooks;
}

/** The server exits as for other settings that are not valid. @param {string} text */
function invalid(text) {
  return Object.assign(new Error(`FANFARE_HOOKS: ${text}`), { isInvalidSetting: true });
}
