// scripts.js: the Lua scripts, which make several commands one step in Redis.

import { readFileSync } from 'node:fs';

/** @param {string} name of a file in lua/, without its ending @returns {string} */
export function readScript(name) {
  return readFileSync(new URL(`lua/${name}.lua`, import.meta.url), 'latin1');
}

/** The framing functions of batch.js for scripts. A script's own text follows them. */
export const LUA_FRAMING = readScript('batch');
