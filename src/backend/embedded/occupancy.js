// occupancy.js: the rooms and users that have connections on each worker, and how many.

import { setImmediate as turn } from 'node:timers/promises';
import { COUNTED } from '../../config/webhooks.js';

/** Rooms that a list visits in one turn. */
const MAX_VISITS = 2000;
/** Waiting lists. */
const MAX_LISTS = 1000;

/** @import { OccupiedRoom, RoomPage } from '../occupancy.js' */

/**
 * @typedef {object} Counted
 * @property {Map<object, number>} counts by owner
 * @property {boolean} isTold @property {number} told the last sum that the room was told
 * @property {number} atMs when
 * @property {NodeJS.Timeout|undefined} timer until it may be told again
 */

/** @template {object} O */
export class Occupancy {
  /** By tag. @type {Map<string, Counted>} */
  #counted = new Map();
  /** The end of the last list. @type {Promise<unknown>} */
  #lastList = Promise.resolve();
  #lists = 0;

  /**
   * @param {object} parts
   * @param {(event: 'join'|'leave', tag: string) => void} parts.onTransition the first worker has
   *   entered, or the last one has left
   * @param {(tag: string, connections: number) => void} parts.onCount tell the room
   */
  constructor({ onTransition, onCount }) {
    this.onTransition = onTransition;
    this.onCount = onCount;
  }

  /**
   * @param {O} owner @param {string} tag @param {number} connections
   * @param {boolean} isTold The room is told the sum when it changes (webhook-reporter.js).
   */
  join(owner, tag, connections, isTold) {
    let one = this.#counted.get(tag);
    if (one === undefined) {
      const atMs = Number.NEGATIVE_INFINITY;
      one = { counts: new Map(), isTold: false, told: 0, atMs, timer: undefined };
      this.#counted.set(tag, one);
      this.onTransition('join', tag);
    }
    one.counts.set(owner, connections);
    if (isTold) one.isTold = true;
    this.#tell(tag, one);
  }

  /** @param {O} owner @param {string} tag */
  leave(owner, tag) {
    const one = this.#counted.get(tag);
    if (!one?.counts.delete(owner)) return;
    if (one.counts.size > 0) return this.#tell(tag, one);
    clearTimeout(one.timer);
    this.#counted.delete(tag);
    this.onTransition('leave', tag);
  }

  /** @param {O} owner */
  remove(owner) {
    for (const tag of this.#counted.keys()) this.leave(owner, tag);
  }

  /** Of all owners. @param {string} room */
  connectionsIn(room) {
    const one = this.#counted.get(room);
    return one === undefined ? 0 : sumOf(one);
  }

  /**
   * Occupied rooms. There may be 100,000, so a list takes many turns, and one runs at a time.
   * @param {RoomPage} page @returns {Promise<OccupiedRoom[]|null>} null: too many lists wait
   */
  list(page) {
    if (this.#lists >= MAX_LISTS) return Promise.resolve(null);
    this.#lists++;
    const list = this.#lastList.then(() => this.#list(page));
    this.#lastList = list.finally(() => {
      this.#lists--;
    });
    return list;
  }

  /** @param {RoomPage} page */
  async #list({ prefix, after, limit }) {
    /** @type {string[]} */
    let names = [];
    let visits = 0;
    for (const tag of this.#counted.keys()) {
      if (++visits % MAX_VISITS === 0) await turn();
      // The tag of a user has a quote.
      if (tag <= after || !tag.startsWith(prefix) || tag.includes('"')) continue;
      names.push(tag);
      if (names.length >= 2 * limit) names = firstOf(names, limit);
    }
    return firstOf(names, limit).map((room) => ({ room, connections: this.connectionsIn(room) }));
  }

  /** @param {string} tag @param {Counted} one */
  #tell(tag, one) {
    if (!one.isTold) return;
    const sum = sumOf(one);
    if (sum === one.told) return;
    const nowMs = performance.now();
    const waitMs = one.atMs + COUNTED.pauseMs - nowMs;
    if (Math.max(sum, one.told) > COUNTED.large && waitMs > 0) {
      one.timer ??= setTimeout(() => {
        one.timer = undefined;
        this.#tell(tag, one);
      }, Math.ceil(waitMs)).unref();
      return;
    }
    one.told = sum;
    one.atMs = nowMs;
    this.onCount(tag, sum);
  }
}

/** @param {Counted} one */
function sumOf({ counts }) {
  let sum = 0;
  for (const count of counts.values()) sum += count;
  return sum;
}

/** @param {string[]} names @param {number} limit */
function firstOf(names, limit) {
  return names.sort((one, other) => (one < other ? -1 : 1)).slice(0, limit);
}
