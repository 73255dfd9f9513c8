// dead-sessions.js: removes the users of sessions that have ended.
//   presence:{*}:dead      sessions that workers are clearing
//   presence:{*}:cleared   those that they have cleared
//
// The relay reports dead workers of its machine at once, and a heartbeat finds those whose own is
// late. It also takes over sessions whose clearing takes too long. In a cluster, a primary may lose
// its last writes alone. shard-visits.js then finds the rooms of ended sessions.

import { readScript } from './scripts.js';

const CLEARED_ROOMS = 64;
const MAX_CALLS = 16;
const MAX_REPORTED = 256;

/**
 * @typedef {object} Scripts
 * @property {(...args: string[]) => Promise<number>} presenceCleared
 * @property {(...args: string[]) => Promise<number>} presenceFound
 */

/**
 * Removes the users of a session from a room.
 * @typedef {(room: string, session: string) => Promise<void>} ClearRoom
 */

export class DeadSessions {
  /** Sessions for the next heartbeat, which declares them dead. @type {string[]} */
  #reported = [];
  /** This worker clears them. @type {string[]} */
  #clearing = [];

  /**
   * @param {object} parts @param {import('./session-rooms.js').Redis} parts.redis
   * @param {(key: string) => string} parts.keyOf
   * @param {import('./session-rooms.js').SessionRooms} parts.rooms of all sessions
   * @param {ClearRoom} parts.clearRoom
   * @param {(session: string) => boolean} parts.isOwn an earlier session of this worker
   * @param {{presenceReaped: number}} parts.counters
   * @param {{info(fields: object, text: string): void}} parts.log
   */
  constructor({ redis, keyOf, rooms, clearRoom, isOwn, counters, log }) {
    this.keyOf = keyOf;
    this.rooms = rooms;
    this.clearRoom = clearRoom;
    this.isOwn = isOwn;
    this.counters = counters;
    this.log = log;
    redis.defineCommand('presenceCleared', { numberOfKeys: 2, lua: readScript('cleared') });
    redis.defineCommand('presenceFound', { numberOfKeys: 2, lua: readScript('found') });
    this.scripts = /** @type {Scripts} */ (/** @type {unknown} */ (redis));
  }

  get hasWork() {
    return this.hasReported || this.isClearing;
  }

  get hasReported() {
    return this.#reported.length > 0;
  }

  get isClearing() {
    return this.#clearing.length > 0;
  }

  /** The sessions that this worker clears. @returns {readonly string[]} */
  get clearing() {
    return this.#clearing;
  }

  /** @param {string} session of a dead worker @returns {boolean} false: too many are reported */
  reportSession(session) {
    if (this.#reported.length >= MAX_REPORTED) return false;
    this.#reported.push(session);
    return true;
  }

  /** An own session is over: this worker clears it. @param {string} session */
  end(session) {
    this.#reported.push(session);
    this.#clear(session);
  }

  /** The next heartbeat declares only these. @param {string[]} sessions of this worker */
  reportOnly(sessions) {
    this.#reported = sessions.slice();
  }

  reported() {
    return this.#reported.slice();
  }

  /** @param {string[]} reported by the heartbeat @param {string[]} taken to be cleared here */
  declared(reported, taken) {
    this.#reported.splice(0, reported.length);
    for (const session of taken) this.#clear(session);
  }

  /** @param {string} session */
  #clear(session) {
    if (!this.#clearing.includes(session)) this.#clearing.push(session);
  }

  /** @param {string[]} sessions @returns {Promise<boolean>} has one of them ended? */
  async haveEnded(sessions) {
    const [workers, dead] = [this.keyOf('workers'), this.keyOf('dead')];
    return (await this.scripts.presenceFound(workers, dead, ...sessions)) !== 0;
  }

  /** Removes the users of the next session from some rooms. */
  async clearNext() {
    const session = this.#clearing[0];
    const rooms = await this.rooms.some(session, CLEARED_ROOMS);
    if (rooms.length > 0) {
      for (let i = 0; i < rooms.length; i += MAX_CALLS) {
        const chunk = rooms.slice(i, i + MAX_CALLS);
        await Promise.all(chunk.map((room) => this.clearRoom(room, session)));
      }
      await this.rooms.remove(session, rooms);
      return;
    }
    await this.scripts.presenceCleared(this.keyOf('dead'), this.keyOf('cleared'), session);
    this.#clearing.shift();
    // This was an earlier session of a live worker: do not count it as reaped.
    if (this.isOwn(session)) return;
    this.counters.presenceReaped++;
    this.log.info({ name: session }, 'removed the users of a dead worker from presence');
  }

  /**
   * Clears these now. The worker ends, and leaves to others what its last heartbeat took over.
   * @param {string[]} sessions of this worker
   */
  async clearOnly(sessions) {
    this.#clearing = sessions;
    while (this.isClearing) await this.clearNext();
  }
}
