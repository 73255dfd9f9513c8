// acl.js: users of Redis and their rights: commands, categories of commands, keys and channels.

import { COMMANDS, globOf } from './commands.js';
import { Failure } from './resp.js';

const CONNECTION = [
  'AUTH',
  'HELLO',
  'PING',
  'ECHO',
  'SELECT',
  'CLIENT',
  'QUIT',
  'RESET',
  'READONLY',
  'READWRITE',
];
const PUBSUB = [
  'SUBSCRIBE',
  'UNSUBSCRIBE',
  'SSUBSCRIBE',
  'SUNSUBSCRIBE',
  'PSUBSCRIBE',
  'PUNSUBSCRIBE',
  'PUBLISH',
  'SPUBLISH',
  'PUBSUB',
];
const DANGEROUS = [
  'KEYS',
  'FLUSHALL',
  'FLUSHDB',
  'INFO',
  'CONFIG',
  'ACL',
  'CLUSTER',
  'REPLICAOF',
  'SAVE',
  'SHUTDOWN',
  'DEBUG',
  'ROLE',
];

/** @type {Record<string, (name: string) => boolean>} */
const CATEGORIES = {
  all: () => true,
  connection: (name) => CONNECTION.includes(name),
  pubsub: (name) => PUBSUB.includes(name),
  dangerous: (name) => DANGEROUS.includes(name),
  // MEMORY USAGE reads a key; the model has no other MEMORY.
  read: (name) => (COMMANDS[name]?.isWrite === false && name !== 'TIME') || name === 'MEMORY',
  write: (name) => COMMANDS[name]?.isWrite === true || name === 'FLUSHALL' || name === 'FLUSHDB',
};

export class AclUser {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
    this.isOn = false;
    this.needsPassword = true;
    /** @type {Set<string>} */
    this.passwords = new Set();
    /** The latest rule for a command counts. @type {{isGranted: boolean, matches: (name: string, sub: string) => boolean}[]} */
    this.commands = [];
    /** @type {RegExp[]} */
    this.keys = [];
    /** @type {RegExp[]} */
    this.channels = [];
  }

  static default() {
    const user = new AclUser('default');
    for (const rule of ['on', 'nopass', '~*', '&*', '+@all']) user.apply(rule);
    return user;
  }

  /** @param {string} rule of ACL SETUSER */
  apply(rule) {
    const rest = rule.slice(1);
    if (rule === 'on' || rule === 'off') this.isOn = rule === 'on';
    else if (rule === 'nopass') this.needsPassword = false;
    else if (rule === 'resetpass') {
      this.passwords.clear();
      this.needsPassword = true;
    } else if (rule === 'resetkeys') this.keys = [];
    else if (rule === 'resetchannels') this.channels = [];
    else if (rule === 'allkeys') this.keys = [globOf('*')];
    else if (rule === 'allchannels') this.channels = [globOf('*')];
    else if (rule === 'allcommands') this.apply('+@all');
    else if (rule[0] === '>') {
      this.passwords.add(rest);
      this.needsPassword = true;
    } else if (rule[0] === '<') this.passwords.delete(rest);
    else if (rule[0] === '~') this.keys.push(globOf(rest));
    else if (rule[0] === '&') this.channels.push(globOf(rest));
    else if (rule[0] === '+' || rule[0] === '-') this.#grant(rest, rule[0] === '+');
    else throw new Failure(`ERR Error in ACL SETUSER modifier '${rule}': Syntax error`);
  }

  /** @param {string} what @param {boolean} isGranted */
  #grant(what, isGranted) {
    if (what[0] === '@') {
      const category = CATEGORIES[what.slice(1)];
      if (category === undefined) throw new Failure(`ERR Unknown command or category name in ACL`);
      this.commands.push({ isGranted, matches: category });
      return;
    }
    const [command, sub] = what.toUpperCase().split('|');
    this.commands.push({
      isGranted,
      matches: (name, first) => name === command && (sub === undefined || sub === first),
    });
  }

  /** @param {string} password @returns {boolean} */
  accepts(password) {
    return this.isOn && (!this.needsPassword || this.passwords.has(password));
  }

  /**
   * @param {string[]} words of a command @param {string[]} keys @param {string[]} channels
   * @throws {Failure} NOPERM
   */
  check(words, keys, channels) {
    const name = words[0].toUpperCase();
    const sub = words[1]?.toUpperCase() ?? '';
    const rule = this.commands.findLast(({ matches }) => matches(name, sub));
    if (!rule?.isGranted && name !== 'AUTH' && name !== 'HELLO') {
      throw new Failure(
        `NOPERM this user has no permissions to run the '${name.toLowerCase()}' command`,
      );
    }
    for (const key of keys) {
      if (!this.keys.some((glob) => glob.test(key)))
        throw new Failure(
          'NOPERM this user has no permissions to access one of the keys used as arguments',
        );
    }
    for (const channel of channels) {
      if (!this.channels.some((glob) => glob.test(channel)))
        throw new Failure(
          'NOPERM this user has no permissions to access one of the channels used as arguments',
        );
    }
  }
}
