// scripts.js: runs scripts as Redis does, and converts their values.

import { compileScript } from './lua.js';
import { general, LIBRARY, LuaError, tableOf } from './lua-library.js';
import { LuaTable } from './lua-table.js';
import { Double, Failure, Pairs, Scored, Status } from './resp.js';
import { sha1 } from './server.js';

/** @import { AclUser } from './acl.js' */
/** @import { Reply } from './resp.js' */
/** @import { RedisServer } from './server.js' */

export class ScriptRunner {
  /** @param {RedisServer} server */
  constructor(server) {
    this.server = server;
    /** By SHA-1. @type {Map<string, {text: string, run: (() => any[])|null}>} */
    this.scripts = new Map();
    this.globals = new Globals(server);
  }

  /** @param {string} text @returns {string} its SHA-1 */
  load(text) {
    const sha = sha1(text);
    if (!this.scripts.has(sha)) {
      try {
        this.scripts.set(sha, { text, run: compileScript(text, this.globals) });
      } catch (error) {
        throw new Failure(
          `ERR Error compiling script (new function): ${/** @type {Error} */ (error).message}`,
        );
      }
    }
    return sha;
  }

  flush() {
    this.scripts.clear();
  }

  /**
   * @param {string} sha @param {string[]} keys @param {string[]} args @param {AclUser} user
   * @returns {Reply}
   */
  run(sha, keys, args, user) {
    const script = this.scripts.get(sha.toLowerCase());
    const run = script?.run ?? null;
    if (run === null) throw new Failure('NOSCRIPT No matching script. Please use EVAL.');
    const { globals } = this;
    globals.begin(keys, args, user);
    try {
      return replyOf(this.server.runScript(run)[0]);
    } catch (error) {
      throw failureOf(error, sha, globals.line);
    }
  }
}

/** What a script finds by name. */
class Globals {
  /** @param {RedisServer} server */
  constructor(server) {
    /** Of the latest redis.call. */
    this.line = 0;
    /** @type {AclUser|null} */
    this.user = null;
    const call = (/** @type {any[]} */ ...words) => {
      if (words.length === 0)
        throw new LuaError(
          tableOf({ err: 'ERR Please specify at least one argument for this redis.call() call' }),
        );
      try {
        return [luaOf(server.run(words.map(wordOf), /** @type {AclUser} */ (this.user)))];
      } catch (error) {
        if (error instanceof Failure)
          throw new LuaError(tableOf({ err: scriptError(error.message) }));
        throw error;
      }
    };
    /** @type {Record<string, unknown>} */
    this.values = {
      ...LIBRARY,
      redis: tableOf({
        call,
        pcall: (/** @type {any[]} */ ...words) => {
          try {
            return call(...words);
          } catch (error) {
            if (error instanceof LuaError) return [error.value];
            throw error;
          }
        },
        error_reply: (/** @type {string} */ text) => [tableOf({ err: text })],
        status_reply: (/** @type {string} */ text) => [tableOf({ ok: text })],
        sha1hex: (/** @type {string} */ text) => [sha1(text)],
      }),
    };
  }

  /** @param {string[]} keys @param {string[]} args @param {AclUser} user */
  begin(keys, args, user) {
    this.line = 0;
    this.user = user;
    this.values.KEYS = new LuaTable(keys);
    this.values.ARGV = new LuaTable(args);
  }

  /** @param {string} name @returns {unknown} */
  get(name) {
    if (name in this.values) return this.values[name];
    throw new LuaError(`Script attempted to access nonexistent global variable '${name}'`);
  }
}

/** Errors of redis.call for a command that is unknown or has too few words. @param {string} text */
function scriptError(text) {
  if (text.startsWith('ERR unknown command')) return 'ERR Unknown Redis command called from script';
  if (text.startsWith('ERR wrong number of arguments'))
    return 'ERR Wrong number of args calling Redis command from script';
  if (text.startsWith('NOPERM this user has no permissions to run'))
    return `ERR The user executing the script can't run this command or subcommand`;
  return text;
}

/** @param {any} value @returns {string} an argument of redis.call */
function wordOf(value) {
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return general(value, 17);
  throw new LuaError(
    tableOf({ err: 'ERR Lua redis lib command arguments must be strings or integers' }),
  );
}

/** @param {Reply} reply @returns {any} a value of Lua, as in version 2 of the protocol */
function luaOf(reply) {
  if (reply === null) return false;
  if (typeof reply === 'string' || typeof reply === 'number') return reply;
  if (reply instanceof Status) return tableOf({ ok: reply.text });
  if (reply instanceof Double) return reply.text;
  if (reply instanceof Pairs) return new LuaTable(reply.items.map(luaOf));
  if (reply instanceof Scored)
    return new LuaTable(
      reply.members.flatMap(([member, score]) => [member, new Double(score).text]),
    );
  return new LuaTable(/** @type {Reply[]} */ (reply).map(luaOf));
}

/** @param {any} value of Lua @returns {Reply} */
function replyOf(value) {
  if (value === undefined || value === false) return null;
  if (value === true) return 1;
  if (typeof value === 'string') return value;
  // What no integer of 64 bits holds becomes the least of them, on the processors that matter.
  if (typeof value === 'number') return Math.abs(value) < 2 ** 63 ? Math.trunc(value) : -(2 ** 63);
  if (!(value instanceof LuaTable)) return null;
  const err = value.get('err');
  if (typeof err === 'string') return new Failure(/^[A-Z]+ /.test(err) ? err : `ERR ${err}`);
  const ok = value.get('ok');
  if (typeof ok === 'string') return new Status(ok);
  return value.items.map(replyOf);
}

/** @param {unknown} error @param {string} sha @param {number} line @returns {Failure} */
function failureOf(error, sha, line) {
  if (error instanceof Failure) return error;
  const text = /** @type {Error} */ (error).message;
  const isCoded = error instanceof LuaError && error.value instanceof LuaTable;
  if (!isCoded && !(error instanceof LuaError) && !(error instanceof TypeError)) throw error;
  const message = isCoded ? text : `ERR user_script:${line}: ${text}`;
  return new Failure(`${message} script: ${sha}, on @user_script:${line}.`);
}
