// session-rooms.js: the rooms that may have users of a session. They lead to its users when it has
// ended.
//   presence:{*}:rooms:<session>   no room is called *

/** Rooms in one SADD or SREM. */
const CHUNK_ROOMS = 1000;

/**
 * @typedef {object} Redis an ioredis client of one server or of a cluster
 * @property {(name: string, script: {numberOfKeys: number, lua: string}) => void} defineCommand
 * @property {(key: string, ...members: string[]) => Promise<number>} sadd
 * @property {(key: string, ...members: string[]) => Promise<number>} srem
 * @property {(key: string, count: number) => Promise<string[]>} srandmember
 */

/**
 * A second list of the sessions' rooms. A room is on it only while it is on its session's own list.
 * Both calls may be repeated.
 * @typedef {{add: (session: string, rooms: readonly string[]) => Promise<void>,
 *   remove: (session: string, rooms: readonly string[]) => Promise<void>}} SessionIndex
 */

export class SessionRooms {
  /**
   * @param {object} parts @param {Redis} parts.redis
   * @param {(key: string) => string} parts.keyOf @param {SessionIndex} [parts.index]
   */
  constructor({ redis, keyOf, index }) {
    this.redis = redis;
    this.keyOf = keyOf;
    this.index = index;
  }

  /** @param {string} session @param {string[]} rooms in which it will have users */
  async add(session, rooms) {
    await this.addToList(session, rooms);
    await this.index?.add(session, rooms);
  }

  /** @param {string} session @param {string[]} rooms in which it has no users left */
  async remove(session, rooms) {
    if (rooms.length > 0) await this.index?.remove(session, rooms);
    for (const chunk of chunksOf(rooms)) await this.redis.srem(this.#key(session), ...chunk);
  }

  /** Adds them to the session's own list only. @param {string} session @param {string[]} rooms */
  async addToList(session, rooms) {
    for (const chunk of chunksOf(rooms)) await this.redis.sadd(this.#key(session), ...chunk);
  }

  /** @param {string} session @param {number} count @returns {Promise<string[]>} some of its rooms */
  some(session, count) {
    return this.redis.srandmember(this.#key(session), count);
  }

  /** @param {string} session */
  #key(session) {
    return this.keyOf(`rooms:${session}`);
  }
}

/** @param {string[]} rooms */
function* chunksOf(rooms) {
  for (let i = 0; i < rooms.length; i += CHUNK_ROOMS) yield rooms.slice(i, i + CHUNK_ROOMS);
}
