// keyspace.js: the keys of one server, their expiry, and a journal of what changed.

import { Failure } from './resp.js';
import { SortedSet, Stream } from './values.js';

/**
 * @typedef {{
 *   string: string,
 *   hash: Map<string, string>,
 *   set: Set<string>,
 *   list: string[],
 *   zset: SortedSet,
 *   stream: Stream,
 * }} Types
 */
/** @typedef {keyof Types} Type */
/** @typedef {{type: Type, value: any, expiresMs: number}} Key `expiresMs` is 0 if it does not expire */
/** @typedef {ReadonlyMap<string, Key>} Snapshot */

/** @type {{[T in Type]: () => Types[T]}} */
const MAKE = {
  string: () => '',
  hash: () => new Map(),
  set: () => new Set(),
  list: () => [],
  zset: () => new SortedSet(),
  stream: () => new Stream(),
};

export class Keyspace {
  /** @param {() => number} now of the server, in milliseconds */
  constructor(now) {
    this.now = now;
    /** @type {Map<string, Key>} */
    this.keys = new Map();
    /** Keys that the present command has changed. @type {Set<string>} */
    this.changed = new Set();
    /** Those of the latest snapshot that have not changed since. @type {Map<string, Key>} */
    this.copies = new Map();
  }

  /** A key is about to change, or has changed. @param {string} name */
  touch(name) {
    this.changed.add(name);
    this.copies.delete(name);
  }

  /** @param {string} name @returns {Key|undefined} */
  find(name) {
    const key = this.keys.get(name);
    if (key === undefined || key.expiresMs === 0 || key.expiresMs > this.now()) return key;
    this.keys.delete(name);
    this.touch(name);
    return undefined;
  }

  /**
   * @template {Type} T
   * @param {string} name @param {T} type
   * @returns {Types[T]|undefined}
   */
  read(name, type) {
    const key = this.find(name);
    if (key === undefined) return undefined;
    if (key.type !== type) {
      throw new Failure('WRONGTYPE Operation against a key holding the wrong kind of value');
    }
    return key.value;
  }

  /**
   * A value that is about to be changed; a new one if there is none.
   * @template {Type} T
   * @param {string} name @param {T} type
   * @returns {Types[T]}
   */
  write(name, type) {
    const value = this.read(name, type);
    this.touch(name);
    if (value !== undefined) return value;
    const made = MAKE[type]();
    this.keys.set(name, { type, value: made, expiresMs: 0 });
    return made;
  }

  /** @param {string} name @param {string} value @param {number} expiresMs */
  setString(name, value, expiresMs) {
    this.touch(name);
    this.keys.set(name, { type: 'string', value, expiresMs });
  }

  /** @param {string} name @returns {boolean} was it there? */
  remove(name) {
    if (this.find(name) === undefined) return false;
    this.touch(name);
    return this.keys.delete(name);
  }

  /** A collection without items is no key. @param {string} name */
  removeIfEmpty(name) {
    const key = this.keys.get(name);
    if (key === undefined || key.type === 'string' || key.type === 'stream') return;
    const size = key.type === 'list' ? key.value.length : key.value.size;
    if (size === 0) this.keys.delete(name);
  }

  /** @param {string} name @param {number} expiresMs @returns {boolean} is the key there? */
  expireAt(name, expiresMs) {
    const key = this.find(name);
    if (key === undefined) return false;
    this.touch(name);
    if (expiresMs <= this.now()) this.keys.delete(name);
    else key.expiresMs = expiresMs;
    return true;
  }

  /** Roughly, in bytes. @param {string} name @returns {number|null} */
  sizeOf(name) {
    const key = this.find(name);
    if (key === undefined) return null;
    const texts =
      typeof key.value === 'string' ? [key.value] : [...(key.value.scores ?? key.value.entries())];
    return texts.reduce((sum, text) => sum + 16 + JSON.stringify(text).length, 48 + name.length);
  }

  /** @returns {string[]} */
  names() {
    return [...this.keys.keys()].filter((name) => this.find(name) !== undefined);
  }

  clear() {
    this.keys.clear();
    this.copies.clear();
  }

  /** @returns {Snapshot} nobody may change its keys, which the next one may share */
  snapshot() {
    const { keys, copies } = this;
    /** @type {Map<string, Key>} */
    const snapshot = new Map();
    for (const name of this.names()) {
      let copy = copies.get(name);
      if (copy === undefined)
        copies.set(name, (copy = cloneKey(/** @type {Key} */ (keys.get(name)))));
      snapshot.set(name, copy);
    }
    return snapshot;
  }

  /** @param {Snapshot} snapshot */
  restore(snapshot) {
    this.exchange(new Map([...snapshot].map(([name, key]) => [name, cloneKey(key)])));
    this.changed.clear();
  }

  /** @param {Map<string, Key>} keys all that there are from now on @returns {Map<string, Key>} those before */
  exchange(keys) {
    const before = this.keys;
    this.keys = keys;
    this.copies.clear();
    return before;
  }

  /** @param {string} name @param {Key|null} key as another server has it; null: it has none */
  replace(name, key) {
    this.copies.delete(name);
    if (key === null) this.keys.delete(name);
    else this.keys.set(name, cloneKey(key));
  }
}

/** @param {Key} key @returns {Key} */
export function cloneKey({ type, value, expiresMs }) {
  return { type, value: cloneValue(value), expiresMs };
}

/** @param {any} value @returns {any} */
function cloneValue(value) {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return [...value];
  if (value instanceof Map) return new Map(value);
  if (value instanceof Set) return new Set(value);
  return value.clone();
}
