// rights.js: the rights of a token in rooms, as patterns of room names.
//
//   "rooms": { "join": ["chat.*"], "publish": ["chat.42"], "presence": [], "history": ["chat.*"] }
//   "audiences": ["staff"], "rooms": { "doc.*": { "audiences": ["reviewers"] } }
//
// A list that is absent permits nothing. The patterns are those of FANFARE_HISTORY. Users with the
// same rights share one copy: each would take 1.4 kB, half as much as a connection.

import { fits, isRoomPattern } from '../config/room-patterns.js';
import { audiencesOf, isHeldList, NO_AUDIENCES } from '../protocol/audiences.js';

/** Patterns in one list. A longer list makes the token invalid. */
export const MAX_PATTERNS = 100;

/** Different claims that are remembered. One more, and all of them are forgotten. */
const MAX_REMEMBERED = 1000;

/** @import { Audiences } from '../protocol/audiences.js' */

/** `audience`: to publish for an audience. @typedef {'join'|'publish'|'presence'|'history'|'audience'} RoomRight */

const NO_LISTS = Object.freeze({ join: [], publish: [], presence: [], history: [], audience: [] });
export const ROOM_RIGHTS = /** @type {readonly RoomRight[]} */ (Object.keys(NO_LISTS));

export class RoomList {
  /** Names without a star. @type {Set<string>} */
  #names = new Set();
  /** Patterns, split at their stars. @type {string[][]} */
  #patterns = [];
  #isAll = false;

  /** @param {readonly string[]} patterns valid ones */
  constructor(patterns) {
    for (const pattern of patterns) {
      if (pattern === '*') this.#isAll = true;
      else if (pattern.includes('*')) this.#patterns.push(pattern.split('*'));
      else this.#names.add(pattern);
    }
  }

  /** @param {string} room a valid name @returns {boolean} */
  has(room) {
    if (this.#isAll || this.#names.has(room)) return true;
    for (const parts of this.#patterns) if (fits(parts, room)) return true;
    return false;
  }
}

/** The rights of a token in rooms. Frozen and shared. */
export class Rights {
  /** @param {Readonly<Record<RoomRight, readonly string[]>>} rooms */
  constructor(rooms) {
    this.join = new RoomList(rooms.join);
    this.publish = new RoomList(rooms.publish);
    this.presence = new RoomList(rooms.presence);
    this.history = new RoomList(rooms.history);
    this.audience = new RoomList(rooms.audience);
    Object.freeze(this);
  }
}

/** The audiences that a token names: in all rooms, and in those of patterns. Frozen and shared. */
export class HeldAudiences {
  /**
   * @param {Audiences} everywhere
   * @param {readonly {rooms: RoomList, audiences: Audiences}[]} byPattern
   */
  constructor(everywhere, byPattern) {
    this.everywhere = everywhere;
    this.byPattern = byPattern;
    Object.freeze(this);
  }

  /** @param {string} room @returns {Audiences} */
  in(room) {
    const { everywhere, byPattern } = this;
    if (byPattern.length === 0) return everywhere;
    return byPattern.reduce(
      (all, { rooms, audiences }) => (rooms.has(room) ? all.with(audiences) : all),
      everywhere,
    );
  }

  /** @param {readonly string[]} names which onConnect adds, in all rooms */
  plus(names) {
    return new HeldAudiences(this.everywhere.with(audiencesOf(names)), this.byPattern);
  }
}

export const HOLDS_NONE = new HeldAudiences(NO_AUDIENCES, []);

/** The rights of a user whom a hook has named. */
export const ALL_ROOMS = new Rights({
  join: ['*'],
  publish: ['*'],
  presence: ['*'],
  history: ['*'],
  audience: [],
});

/** Rights by the claim as JSON. @type {Map<string, Rights>} */
const remembered = new Map();

/** @param {unknown} rooms the claim @returns {Rights|null} null: it has another shape */
export function readRights(rooms = {}) {
  if (typeof rooms !== 'object' || rooms === null || Array.isArray(rooms)) return null;
  const text = JSON.stringify(rooms);
  const known = remembered.get(text);
  if (known !== undefined) return known;
  /** @type {Record<RoomRight, readonly string[]>} */
  const lists = { ...NO_LISTS };
  for (const right of ROOM_RIGHTS) {
    const list = /** @type {Record<string, unknown>} */ (rooms)[right];
    if (list === undefined) continue;
    if (!Array.isArray(list) || list.length > MAX_PATTERNS || !list.every(isRoomPattern))
      return null;
    lists[right] = list;
  }
  const rights = new Rights(lists);
  if (remembered.size >= MAX_REMEMBERED) remembered.clear();
  remembered.set(text, rights);
  return rights;
}

/** Held audiences by the claims as JSON. @type {Map<string, HeldAudiences>} */
const held = new Map();

/**
 * @param {unknown} list the claim `audiences`
 * @param {unknown} rooms the claim `rooms`: its objects name audiences, by pattern
 * @returns {HeldAudiences|null} null: one of them has another shape
 */
export function readHeldAudiences(list = [], rooms = {}) {
  const patterns = Object.entries(/** @type {object} */ (rooms)).filter(
    ([, value]) => value !== null && typeof value === 'object' && !Array.isArray(value),
  );
  if (!isHeldList(list) || patterns.length > MAX_PATTERNS) return null;
  if (list.length === 0 && patterns.length === 0) return HOLDS_NONE;
  const text = JSON.stringify([list, patterns]);
  const known = held.get(text);
  if (known !== undefined) return known;
  const byPattern = [];
  for (const [pattern, { audiences: names = [] }] of patterns) {
    if (!isRoomPattern(pattern) || !isHeldList(names)) return null;
    byPattern.push({ rooms: new RoomList([pattern]), audiences: audiencesOf(names) });
  }
  const audiences = new HeldAudiences(audiencesOf(list), byPattern);
  if (held.size >= MAX_REMEMBERED) held.clear();
  held.set(text, audiences);
  return audiences;
}
