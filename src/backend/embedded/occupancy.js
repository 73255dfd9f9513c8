// occupancy.js: the rooms and users that have connections on each worker, and how many.

import { setImmediate as turn } from 'node:timers/promises';
import { COUNTED } from '../../config/webhooks.js';
import { Holdings } from './holdings.js';

/** Rooms that a list visits in one turn. */
const MAX_VISITS = 2000;
/** Waiting lists. */
const MAX_LISTS = 1000;

/** @import { OccupiedRoom, RoomPage } from '../occupancy.js' */

/**
 * @typedef {object} Told a room that is told its number of connections
 * @property {number} sum the last one that it was told @property {number} atMs when
 * @property {NodeJS.Timeout|undefined} timer until it may be told again
 */

/** @template {object} O */
export class RoomOccupancy {
  /** Numbers of connections, by owner and tag. @type {Holdings<O, number>} */
  #counts = new Holdings();
  /** @type {Map<string, Told>} */
  #told = new Map();
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
    if (this.#counts.hold(owner, tag, connections)) this.onTransition('join', tag);
    if (isTold && !this.#told.has(tag))
      this.#told.set(tag, { sum: 0, atMs: Number.NEGATIVE_INFINITY, timer: undefined });
    this.#tell(tag);
  }

  /** @param {O} owner @param {string} tag */
  leave(owner, tag) {
    if (!this.#counts.drop(owner, tag)) return this.#tell(tag);
    clearTimeout(this.#told.get(tag)?.timer);
    this.#told.delete(tag);
    this.onTransition('leave', tag);
  }

  /** @param {O} owner */
  remove(owner) {
    for (const tag of this.#counts.namesOf(owner)) this.leave(owner, tag);
  }

  /** Of all owners. @param {string} room */
  connectionsIn(room) {
    let sum = 0;
    for (const connections of this.#counts.holdersOf(room)?.values() ?? []) sum += connections;
    return sum;
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
    for (const tag of this.#counts.names()) {
      if (++visits % MAX_VISITS === 0) await turn();
      // The tag of a user has a quote.
      if (tag <= after || !tag.startsWith(prefix) || tag.includes('"')) continue;
      names.push(tag);
      if (names.length >= 2 * limit) names = firstOf(names, limit);
    }
    return firstOf(names, limit).map((room) => ({ room, connections: this.connectionsIn(room) }));
  }

  /** @param {string} tag */
  #tell(tag) {
    const told = this.#told.get(tag);
    const sum = told === undefined ? 0 : this.connectionsIn(tag);
    if (told === undefined || sum === told.sum) return;
    const nowMs = performance.now();
    const waitMs = told.atMs + COUNTED.pauseMs - nowMs;
    if (Math.max(sum, told.sum) > COUNTED.large && waitMs > 0) {
      told.timer ??= setTimeout(() => {
        told.timer = undefined;
        this.#tell(tag);
      }, Math.ceil(waitMs)).unref();
      return;
    }
    told.sum = sum;
    told.atMs = nowMs;
    this.onCount(tag, sum);
  }
}

/** @param {string[]} names @param {number} limit */
function firstOf(names, limit) {
  return names.sort((one, other) => (one < other ? -1 : 1)).slice(0, limit);
}
