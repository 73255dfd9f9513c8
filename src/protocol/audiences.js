// audiences.js: who may see a message. A message may name audiences, and a reader may hold some. A
// reader sees the messages without an audience, and those of which it holds one.
//
// `maySee` is the only place that decides this (docs/architecture/audiences.md). Equal sets of
// audiences are one object, so they can be compared and be keys of a Map.

import { audienceTextOf, isRestricted } from './publication.js';

/** Audiences that one list of a token, a hook or the API gives a user. */
export const MAX_HELD = 16;
/** Audiences of a message. */
const MAX_NAMED = 4;
/** Holds every audience. */
const ALL = '*';
const NAME = /^[A-Za-z0-9_.:@-]{1,64}$/;
/** Different sets that are remembered. One more, and all of them are forgotten. */
const MAX_REMEMBERED = 10_000;

/** The audiences that a reader holds. Shared: use `audiencesOf`. */
export class Audiences {
  /** @type {WeakMap<Audiences, Audiences>} */
  #unions = new WeakMap();
  #names;

  /** @param {readonly string[]} names */
  constructor(names) {
    this.#names = new Set(names);
    /** The same for equal sets, which are two objects if one of them was forgotten. */
    this.text = names.join();
    this.isAll = this.#names.has(ALL);
  }

  /** @param {Buffer} publication of any kind */
  maySee(publication) {
    return !isRestricted(publication) || this.holdsOneOf(audienceTextOf(publication));
  }

  /** @param {string} text of an audience; '': everybody */
  holdsOneOf(text) {
    if (this.isAll || text === '') return true;
    const names = this.#names;
    return names.size > 0 && text.split(',').some((name) => names.has(name));
  }

  /** @param {Audiences} other @returns {Audiences} those of both */
  with(other) {
    if (other === NO_AUDIENCES || other === this) return this;
    if (this === NO_AUDIENCES) return other;
    let union = this.#unions.get(other);
    if (union === undefined) {
      union = audiencesOf([...this.#names, ...other.#names]);
      this.#unions.set(other, union);
    }
    return union;
  }
}

/** Those of a reader without a user, and of most others. */
export const NO_AUDIENCES = new Audiences([]);
/** Those of operators and backends. */
export const EVERY_AUDIENCE = new Audiences([ALL]);

/** Sets by their names, sorted. @type {Map<string, Audiences>} */
const remembered = new Map();

/** @param {readonly string[]} names @returns {Audiences} the same object for the same names */
export function audiencesOf(names) {
  if (names.length === 0) return NO_AUDIENCES;
  if (names.includes(ALL)) return EVERY_AUDIENCE;
  const sorted = [...new Set(names)].sort();
  const text = sorted.join(',');
  let audiences = remembered.get(text);
  if (audiences === undefined) {
    if (remembered.size >= MAX_REMEMBERED) remembered.clear();
    audiences = new Audiences(sorted);
    remembered.set(text, audiences);
  }
  return audiences;
}

/** @param {unknown} list @returns {list is string[]} what a token, a hook or the API gives a user */
export function isHeldList(list) {
  return (
    Array.isArray(list) &&
    list.length <= MAX_HELD &&
    list.every((name) => name === ALL || (typeof name === 'string' && NAME.test(name)))
  );
}

/**
 * The audience of a message, as its publication has it.
 * @param {unknown} list 1 to 4 different names
 * @returns {string|undefined} undefined: malformed. An empty list is no audience, and must not
 *   become a message to everybody
 */
export function readAudience(list) {
  if (!Array.isArray(list) || list.length === 0 || list.length > MAX_NAMED) return undefined;
  if (!list.every((name) => typeof name === 'string' && NAME.test(name))) return undefined;
  const names = new Set(list);
  return names.size === list.length ? [...names].sort().join(',') : undefined;
}

/** The field `,"audience":[…]` of a message, for backends and operators. @param {string} text '': none */
export function audienceMember(text) {
  return text === '' ? '' : `,"audience":["${text.replaceAll(',', '","')}"]`;
}
