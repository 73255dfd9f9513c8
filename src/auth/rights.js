// rights.js: what a token permits, as patterns of room names.
//
//   "rooms": { "join": ["chat.*"], "publish": ["chat.42"], "presence": [], "history": ["chat.*"] }
//   "broadcast": true
//
// A list that is absent permits nothing. The patterns are those of FANFARE_HISTORY. Many tokens
// carry the same rights, so equal rights are one object: a hundred thousand connections then hold
// one copy.

import { fits, isRoomPattern } from '../config/room-patterns.js';

/** Patterns in one list. A longer list makes the token invalid. */
export const MAX_PATTERNS = 100;
/** Different rights that are remembered. One more, and all of them are forgotten. */
const MAX_REMEMBERED = 1000;

/** @typedef {'join'|'publish'|'presence'|'history'} RoomRight */
const ROOM_RIGHTS = /** @type {const} */ (['join', 'publish', 'presence', 'history']);

/** A list of room patterns. */
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

  /**
   * @param {string} room a valid name
   * @returns {boolean}
   */
  has(room) {
    if (this.#isAll || this.#names.has(room)) return true;
    for (const parts of this.#patterns) if (fits(parts, room)) return true;
    return false;
  }
}

/** What a token permits. Frozen and shared. */
export class Rights {
  /**
   * @param {Readonly<Record<RoomRight, readonly string[]>>} rooms
   * @param {boolean} broadcast
   */
  constructor(rooms, broadcast) {
    this.join = new RoomList(rooms.join);
    this.publish = new RoomList(rooms.publish);
    this.presence = new RoomList(rooms.presence);
    this.history = new RoomList(rooms.history);
    this.broadcast = broadcast;
    Object.freeze(this);
  }
}

/** Everything but broadcasts: the rights of a user whom a hook has named. */
export const ALL_ROOMS = new Rights(
  { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] },
  false,
);

/** @type {Map<string, Rights>} */
const remembered = new Map();

/**
 * @param {unknown} rooms the claim
 * @param {unknown} broadcast the claim
 * @returns {Rights|null} null: a claim has another shape
 */
export function readRights(rooms = {}, broadcast = false) {
  if (typeof rooms !== 'object' || rooms === null || Array.isArray(rooms)) return null;
  if (typeof broadcast !== 'boolean') return null;
  /** @type {Record<RoomRight, readonly string[]>} */
  const lists = { join: [], publish: [], presence: [], history: [] };
  for (const right of ROOM_RIGHTS) {
    const list = /** @type {Record<string, unknown>} */ (rooms)[right];
    if (list === undefined) continue;
    if (!Array.isArray(list) || list.length > MAX_PATTERNS || !list.every(isRoomPattern))
      return null;
    lists[right] = list;
  }
  // Patterns have neither commas nor bars.
  const key = `${lists.join}|${lists.publish}|${lists.presence}|${lists.history}|${broadcast}`;
  let rights = remembered.get(key);
  if (rights === undefined) {
    rights = new Rights(lists, broadcast);
    if (remembered.size >= MAX_REMEMBERED) remembered.clear();
    remembered.set(key, rights);
  }
  return rights;
}
