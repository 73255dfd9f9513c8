// scripts.js: the Lua scripts, which make several commands one step in Redis.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** @param {string} name of a file in lua/, without its ending @returns {string} */
export function readScript(name) {
  return readFileSync(new URL(`lua/${name}.lua`, import.meta.url), 'latin1');
}

/** The framing functions of batch.js for scripts. A script's own text follows them. */
export const LUA_FRAMING = readScript('batch');

/** A bulk string of RESP. @param {string} text */
export function bulk(text) {
  return `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
}

/** A script as RESP: its text, or its hash. @typedef {{eval: string, evalsha: string}} ScriptCalls */

/** @param {string[]} names of files whose texts make one script @returns {ScriptCalls} */
export function scriptOf(...names) {
  return callsOf(names.map(readScript).join(''));
}

/** @param {string[]} names of files whose texts make one script that publishes */
export function publishScriptOf(...names) {
  const text = names.map(readScript).join('');
  return {
    plain: callsOf(text),
    sharded: callsOf(text.replace("'PUBLISH'", "'SPUBLISH'")),
  };
}

/** @param {string} text @returns {ScriptCalls} */
function callsOf(text) {
  const sha = createHash('sha1').update(text, 'latin1').digest('hex');
  return { eval: bulk('EVAL') + bulk(text), evalsha: bulk('EVALSHA') + bulk(sha) };
}

/** A script on one connection. Only its first call carries the text. */
export class LoadedScript {
  #isLoaded = false;

  /** @param {ScriptCalls} calls */
  constructor(calls) {
    this.calls = calls;
  }

  /** RESP of a call, up to its keys. @param {number} keys @param {number} args */
  head(keys, args) {
    const call = this.#next;
    this.#isLoaded = true;
    return `*${3 + keys + args}\r\n${call}${bulk(String(keys))}`;
  }

  /** Redis no longer has it, or the connection is a new one. */
  forget() {
    this.#isLoaded = false;
  }

  /** Bytes of the next call, without numbers, keys and arguments. */
  get callBytes() {
    return this.#next.length;
  }

  get #next() {
    return this.#isLoaded ? this.calls.evalsha : this.calls.eval;
  }
}
