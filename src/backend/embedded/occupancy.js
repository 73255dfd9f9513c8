// occupancy.js: which rooms and users each worker has connections of, and in rooms that are
// counted, how many: the members of one room of edges.js, each with a number.

import { COUNTED } from '../../config/webhooks.js';
import { Members } from './members.js';

/**
 * @typedef {object} Counted
 * @property {Map<object, number>} counts by owner
 * @property {number} told the last sum that the room was told
 * @property {number} atMs when
 * @property {NodeJS.Timeout|undefined} timer until it may be told again
 */

/** @template {object} O @extends {Members<O>} */
export class Occupancy extends Members {
  /** By tag. @type {Map<string, Counted>} */
  #counted = new Map();

  /**
   * @param {object} parts
   * @param {(event: 'join'|'leave', tag: string) => void} parts.onEdge the first worker that enters,
   *   and the last that leaves
   * @param {(tag: string, connections: number) => void} parts.onCount the room is to be told
   * @param {() => number} [parts.nowMs] of a clock that never goes back
   */
  constructor({ onEdge, onCount, nowMs = () => performance.now() }) {
    const none = Buffer.alloc(0);
    super({
      maxMembers: 0,
      announcements: { join: none, leave: none, count: none },
      publish() {},
      onEdge: (_room, event, tag) => onEdge(event, tag),
    });
    this.onCount = onCount;
    this.nowMs = nowMs;
  }

  /**
   * @override
   * @param {O} owner @param {string} room @param {string} tag
   * @param {Buffer} number of its connections; empty if they are not counted
   */
  join(owner, room, tag, number) {
    super.join(owner, room, tag, number);
    if (number.length === 0) return;
    let one = this.#counted.get(tag);
    if (one === undefined) {
      one = { counts: new Map(), told: 0, atMs: Number.NEGATIVE_INFINITY, timer: undefined };
      this.#counted.set(tag, one);
    }
    one.counts.set(owner, Number(number));
    this.#tell(tag, one);
  }

  /** @override @param {O} owner @param {string} room @param {string} tag */
  leave(owner, room, tag) {
    super.leave(owner, room, tag);
    this.#forget(owner, tag);
  }

  /** @override @param {O} owner */
  remove(owner) {
    const rooms = [...(this.owned.get(owner)?.values() ?? [])];
    super.remove(owner);
    for (const tags of rooms) for (const tag of tags) this.#forget(owner, tag);
  }

  /** @param {O} owner @param {string} tag */
  #forget(owner, tag) {
    const one = this.#counted.get(tag);
    if (!one?.counts.delete(owner)) return;
    if (one.counts.size > 0) return this.#tell(tag, one);
    clearTimeout(one.timer);
    this.#counted.delete(tag);
  }

  /** @param {string} tag @param {Counted} one */
  #tell(tag, one) {
    let sum = 0;
    for (const count of one.counts.values()) sum += count;
    if (sum === one.told) return;
    const nowMs = this.nowMs();
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
