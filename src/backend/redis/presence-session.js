// presence-session.js: the name under which a worker writes its users to Redis, and the removal of
// the users of sessions that have ended.
//   presence:{*}:workers           session -> last heartbeat, by the clock of Redis
//   presence:{*}:dead, :cleared    sessions that have ended; presence:{*}:mark names the data set
//   presence:{*}:rooms:<session>   rooms that may have users of that session; no room is called *
//
// - Writes may be lost after an outage, if Redis lost its data, or if another worker considered
//   this one dead. Then the worker starts a new session, rewrites all its users, and only then
//   clears the old session, so no user disappears in between. If the address leads to another
//   Redis, the old session stays in the first one, and is cleared when the worker returns there.
// - A session without a heartbeat for `ttlMs` is dead, and the worker that finds it clears it. The
//   relay reports dead workers of its machine at once.
// - A session judges others only after half of `ttlMs`, because after an outage all were silent.
// - The worker writes nothing under a session with a late heartbeat: others may consider it dead.
// - In a cluster, a primary may lose its last writes alone. shard-visits.js then finds the rooms of
//   ended sessions.

import { randomBytes } from 'node:crypto';
import { readScript } from './scripts.js';

const HEARTBEAT_INTERVAL_MS = 10_000;
const TTL_MS = 30_000;
/** After this time another worker clears a dead session, too. */
const CLEARING_MS = 15_000;
const CLEARED_ROOMS = 64;
/** Rooms in one SADD or SREM. */
const CHUNK_ROOMS = 1000;
const MAX_CALLS = 16;
/** Old sessions that a worker clears itself. Others are cleared when their heartbeat is late. */
const MAX_PAST = 16;
const MAX_DEAD = 256;

/**
 * @typedef {{isWritable: boolean, redis: Redis, describe: (error: unknown) => string}} Connection
 */

/**
 * @typedef {object} Redis an ioredis client of one server or of a cluster
 * @property {(name: string, script: {numberOfKeys: number, lua: string}) => void} defineCommand
 * @property {(key: string, ...members: string[]) => Promise<number>} sadd
 * @property {(key: string, ...members: string[]) => Promise<number>} srem
 * @property {(key: string, count: number) => Promise<string[]>} srandmember
 */

/**
 * @typedef {object} Scripts
 * @property
 *   {(...args: (string|number)[]) => Promise<[storeId: string, isNew: number, taken: string[]]>}
 *   presenceHeartbeat
 * @property {(...args: string[]) => Promise<number>} presenceCleared
 * @property {(...args: string[]) => Promise<number>} presenceFound
 */

/** An old session, and its rooms. @typedef {{name: string, rooms: string[]}} Past */

/**
 * A second list of the sessions' rooms. A room is on it only while it is on its session's own list.
 * Both calls may be repeated.
 * @typedef {{add: (session: string, rooms: readonly string[]) => Promise<void>,
 *   remove: (session: string, rooms: readonly string[]) => Promise<void>}} SessionIndex
 */

export class PresenceSession {
  /**
   * @param {object} parts @param {Connection} parts.connection @param {string} parts.prefix of keys
   * @param {string} parts.workerId
   * @param {(session: string) => void} [parts.onName] the session to report when this worker dies;
   *   empty if it has ended
   * @param {() => void} parts.onDue a heartbeat is due, or a dead session was reported
   * @param {(room: string, session: string) => Promise<void>} parts.clearRoom removes the users of
   *   a session from a room
   * @param {SessionIndex} [parts.index] @param {{presenceReaped: number}} parts.counters
   * @param {{info(fields: object, text: string): void}} parts.log
   * @param {number} [parts.heartbeatMs] @param {number} [parts.ttlMs]
   */
  constructor(parts) {
    const { connection, workerId } = parts;
    this.connection = connection;
    this.prefix = parts.prefix;
    this.onName = parts.onName ?? (() => {});
    this.onDue = parts.onDue;
    this.clearRoom = parts.clearRoom;
    this.index = parts.index;
    this.counters = parts.counters;
    this.log = parts.log;
    this.heartbeatMs = parts.heartbeatMs ?? HEARTBEAT_INTERVAL_MS;
    this.ttlMs = parts.ttlMs ?? TTL_MS;
    /** Prefix of its sessions. Random, because worker ids are not unique. */
    this.base = `${workerId.replace(/[^\x21-\x7e]/g, '_')}:${randomBytes(6).toString('hex')}`;
    this.generation = 0;
    /** The current session; empty before the first. */
    this.name = '';
    this.isUsed = false;
    this.beganMs = 0;
    /** Reasons to doubt that Redis has all writes, and those that new sessions have settled. */
    this.doubts = 1;
    this.settled = 0;
    /** Names the data set of Redis. If it changes, Redis has lost everything. */
    this.storeId = '';
    /** When the last answered heartbeat was sent. */
    this.heartbeatSentMs = Number.NEGATIVE_INFINITY;
    this.isTimerDue = false;
    /** @type {NodeJS.Timeout|undefined} */
    this.timer = undefined;
    /** @type {Past[]} */
    this.past = [];
    /** Old sessions in data sets that may return. @type {{name: string, storeId: string}[]} */
    this.elsewhere = [];
    /** Reported as dead. @type {string[]} */
    this.dead = [];
    /** @type {string[]} */
    this.clearing = [];
    connection.redis.defineCommand('presenceHeartbeat', {
      numberOfKeys: 3,
      lua: readScript('sessions'),
    });
    connection.redis.defineCommand('presenceCleared', {
      numberOfKeys: 2,
      lua: readScript('cleared'),
    });
    connection.redis.defineCommand('presenceFound', { numberOfKeys: 2, lua: readScript('found') });
    this.scripts = /** @type {Scripts} */ (/** @type {unknown} */ (connection.redis));
  }

  start() {
    // Random, so that a fleet that starts together does not send its heartbeats together.
    const wait = this.heartbeatMs * (0.9 + 0.2 * Math.random());
    this.timer = setTimeout(() => {
      this.isTimerDue = true;
      this.onDue();
      this.start();
    }, wait).unref();
  }

  stop() {
    clearTimeout(this.timer);
  }

  /** Redis may no longer have all confirmed writes, so a new session is needed. */
  doubt() {
    this.doubts++;
  }

  get isSure() {
    return this.settled === this.doubts;
  }

  get isHeartbeatDue() {
    // After a stall of this process, others may consider the session dead.
    const isLate = performance.now() - this.heartbeatSentMs > this.ttlMs / 2;
    return this.isTimerDue || this.dead.length > 0 || isLate;
  }

  get hasWork() {
    const isIdle = this.dead.length + this.past.length + this.clearing.length === 0;
    return !isIdle || this.isHeartbeatDue || !this.isSure;
  }

  /** @param {string} name of a dead worker's session */
  reportDead(name) {
    if (name === this.name || this.dead.length >= MAX_DEAD) return;
    this.dead.push(name);
    this.onDue();
  }

  /**
   * Starts a new session if anything was written under the current one.
   * @param {() => string[]} roomsOf lists the rooms with users or changes
   * @returns {Promise<{hasLostAll: boolean, doubts: number}>} `hasLostAll`: Redis has lost its data
   *   since the last session began; `doubts` is for `settle`, when all users have been queued again
   */
  async begin(roomsOf) {
    const { doubts } = this;
    if (this.isUsed) {
      this.past.push({ name: this.name, rooms: roomsOf() });
      if (this.past.length > MAX_PAST) this.past.shift();
      this.isUsed = false;
    }
    if (this.name === '' || this.past.at(-1)?.name === this.name) {
      this.name = `${this.base}:${++this.generation}`;
      this.beganMs = performance.now();
      this.onName(this.name);
    }
    const { storeId } = await this.#heartbeat();
    const hasLostAll = this.storeId !== '' && this.storeId !== storeId;
    if (hasLostAll) this.#move(this.storeId, storeId);
    this.storeId = storeId;
    return { hasLostAll, doubts };
  }

  /**
   * The data set has changed. Old sessions are cleared in the new one, too, because the worker may
   * have written there before it noticed.
   * @param {string} before its id @param {string} now
   */
  #move(before, now) {
    const left = this.past.map(({ name }) => ({ name, storeId: before }));
    const all = [...this.elsewhere, ...left];
    const back = all.filter(({ storeId }) => storeId === now);
    // Their lists of rooms are still there.
    this.past.unshift(...back.map(({ name }) => ({ name, rooms: [] })));
    this.elsewhere = all.filter(({ storeId }) => storeId !== now).slice(-MAX_PAST);
  }

  /** @param {number} doubts returned by `begin` */
  settle(doubts) {
    this.settled = doubts;
  }

  /** Sends a heartbeat, and notices if other workers considered this one dead. */
  async pulse() {
    const { storeId, isNew } = await this.#heartbeat();
    if (isNew || storeId !== this.storeId) this.doubt();
  }

  /** @returns {Promise<{storeId: string, isNew: boolean}>} `isNew`: unknown to Redis */
  async #heartbeat() {
    const sentMs = performance.now();
    const dead = this.dead.slice();
    const [storeId, isNew, taken] = await this.scripts.presenceHeartbeat(
      this.#key('workers'),
      this.#key('dead'),
      this.#key('mark'),
      this.name,
      this.ttlMs,
      CLEARING_MS,
      randomBytes(8).toString('hex'),
      sentMs - this.beganMs > this.ttlMs / 2 ? 1 : 0,
      ...dead,
    );
    this.isTimerDue = false;
    this.heartbeatSentMs = sentMs;
    this.dead.splice(0, dead.length);
    for (const name of taken) this.#clearLater(name);
    return { storeId, isNew: isNew === 1 };
  }

  /** @param {string} name */
  #clearLater(name) {
    if (!this.clearing.includes(name)) this.clearing.push(name);
  }

  /** @param {string[]} rooms in which this session will have users */
  async register(rooms) {
    this.isUsed = true;
    await this.#addRooms(this.name, rooms);
    await this.index?.add(this.name, rooms);
  }

  /** @param {string[]} rooms in which this session has no users left */
  async unregister(rooms) {
    if (rooms.length > 0) await this.index?.remove(this.name, rooms);
    for (let i = 0; i < rooms.length; i += CHUNK_ROOMS) {
      const chunk = rooms.slice(i, i + CHUNK_ROOMS);
      await this.connection.redis.srem(this.#key(`rooms:${this.name}`), ...chunk);
    }
  }

  /** @param {string} session @param {string[]} rooms */
  async #addRooms(session, rooms) {
    for (let i = 0; i < rooms.length; i += CHUNK_ROOMS) {
      const chunk = rooms.slice(i, i + CHUNK_ROOMS);
      await this.connection.redis.sadd(this.#key(`rooms:${session}`), ...chunk);
    }
  }

  /**
   * Adds rooms to the lists of their sessions, and has those sessions cleared that have ended.
   * @param {Map<string, string[]>} rooms by session
   */
  async find(rooms) {
    for (const [session, those] of rooms) await this.#addRooms(session, those);
    // The rooms come first: if a session ends meanwhile, clearing it finds them.
    const sessions = [...rooms.keys()];
    const ended = await this.scripts.presenceFound(
      this.#key('workers'),
      this.#key('dead'),
      ...sessions,
    );
    if (ended === 0) return;
    this.isTimerDue = true;
    this.onDue();
  }

  /** Queues the oldest own session to be cleared, once its users are written again. */
  async clearPast() {
    const { name, rooms } = this.past[0];
    // Redis may lack the list of the session's rooms.
    await this.#addRooms(name, rooms);
    this.dead.push(name);
    this.#clearLater(name);
    this.past.shift();
  }

  /** Removes the users of the next dead session from some rooms. */
  async clearNext() {
    const name = this.clearing[0];
    const key = this.#key(`rooms:${name}`);
    const rooms = await this.connection.redis.srandmember(key, CLEARED_ROOMS);
    if (rooms.length > 0) {
      for (let i = 0; i < rooms.length; i += MAX_CALLS) {
        const chunk = rooms.slice(i, i + MAX_CALLS);
        await Promise.all(chunk.map((room) => this.clearRoom(room, name)));
      }
      await this.index?.remove(name, rooms);
      await this.connection.redis.srem(key, ...rooms);
      return;
    }
    await this.scripts.presenceCleared(this.#key('dead'), this.#key('cleared'), name);
    this.clearing.shift();
    // An old session of this worker is not a dead worker.
    if (name.startsWith(this.base)) return;
    this.counters.presenceReaped++;
    this.log.info({ name }, 'removed the users of a dead worker from presence');
  }

  /** Ends and clears this worker's sessions. If Redis is unavailable, others find them later. */
  async retire() {
    try {
      const names = [this.name, ...this.past.map(({ name }) => name)];
      this.dead = names.slice();
      await this.#heartbeat();
      this.clearing = names;
      while (this.clearing.length > 0) await this.clearNext();
      this.onName('');
    } catch {
      // Other workers find these sessions later.
    }
  }

  /** @param {string} key */
  #key(key) {
    return `${this.prefix}presence:{*}:${key}`;
  }
}
