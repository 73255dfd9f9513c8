// presence-session.js: the name under which a worker writes its users to Redis.
//   presence:{*}:workers   session -> last heartbeat, by the clock of Redis
//   presence:{*}:mark      names the data set
// session-rooms.js has the lists of rooms, dead-sessions.js removes the users of sessions that have
// ended, session-beat.js says when a heartbeat is due.
//
// - Writes may be lost after an outage, if Redis lost its data, or if another worker considered
//   this one dead. Then the worker starts a new session, rewrites all its users, and only then
//   clears the old session, so no user disappears in between. If the address leads to another
//   Redis, the old session stays in the first one, and is cleared when the worker returns there.
// - A session without a heartbeat for `ttlMs` is dead, and the worker that finds it clears it.
// - A session judges others only after half of `ttlMs`, because after an outage all were silent.
// - The worker writes nothing under a session with a late heartbeat: others may consider it dead.

import { randomBytes } from 'node:crypto';
import { DeadSessions } from './dead-sessions.js';
import { readScript } from './scripts.js';
import { SessionBeat } from './session-beat.js';
import { SessionRooms } from './session-rooms.js';

const HEARTBEAT_INTERVAL_MS = 10_000;
const TTL_MS = 30_000;
/** After this time another worker clears a dead session, too. */
const CLEARING_MS = 15_000;
/** Old sessions that a worker clears itself. Others are cleared when their heartbeat is late. */
const MAX_PAST = 16;

/** @import { Redis } from './session-rooms.js' */

/**
 * @typedef {{isWritable: boolean, redis: Redis, describe: (error: unknown) => string}} Connection
 */

/**
 * @typedef {object} Scripts
 * @property
 *   {(...args: (string|number)[]) => Promise<[storeId: string, isNew: number, taken: string[]]>}
 *   presenceHeartbeat
 */

/** An old session, and its rooms. @typedef {{name: string, rooms: string[]}} Past */

export class PresenceSession {
  /**
   * @param {object} parts @param {Connection} parts.connection @param {string} parts.prefix of keys
   * @param {string} parts.workerId
   * @param {(session: string) => void} [parts.onName] the session to report when this worker dies;
   *   empty if it has ended
   * @param {() => void} parts.onDue a heartbeat is due, or a dead session was reported
   * @param {import('./dead-sessions.js').ClearRoom} parts.clearRoom
   * @param {import('./session-rooms.js').SessionIndex} [parts.index]
   * @param {{presenceReaped: number}} parts.counters
   * @param {{info(fields: object, text: string): void}} parts.log
   * @param {number} [parts.heartbeatMs] @param {number} [parts.ttlMs]
   */
  constructor({ connection, prefix, workerId, onName = () => {}, ...parts }) {
    const { redis } = connection;
    const keyOf = (/** @type {string} */ key) => `${prefix}presence:{*}:${key}`;
    this.keys = [keyOf('workers'), keyOf('dead'), keyOf('mark')];
    this.onName = onName;
    this.ttlMs = parts.ttlMs ?? TTL_MS;
    /** Prefix of its sessions. Random, because worker ids are not unique. */
    this.base = `${workerId.replace(/[^\x21-\x7e]/g, '_')}:${randomBytes(6).toString('hex')}`;
    this.generation = 0;
    /** The current session; empty before the first. */
    this.name = '';
    this.isUsed = false;
    /** Redis may know it: a heartbeat has been sent. */
    this.isSent = false;
    this.beganMs = 0;
    /** Reasons to doubt that Redis has all writes, and those that new sessions have settled. */
    this.doubts = 1;
    this.settled = 0;
    /** Names the data set of Redis. If it changes, Redis has lost everything. */
    this.storeId = '';
    /** @type {Past[]} */
    this.past = [];
    /** Old sessions in data sets that may return. @type {{name: string, storeId: string}[]} */
    this.elsewhere = [];
    this.beat = new SessionBeat(parts.heartbeatMs ?? HEARTBEAT_INTERVAL_MS, parts.onDue);
    this.rooms = new SessionRooms({ redis, keyOf, index: parts.index });
    this.dead = new DeadSessions({
      redis,
      keyOf,
      rooms: this.rooms,
      clearRoom: parts.clearRoom,
      isOwn: (name) => name.startsWith(this.base),
      counters: parts.counters,
      log: parts.log,
    });
    redis.defineCommand('presenceHeartbeat', { numberOfKeys: 3, lua: readScript('sessions') });
    this.scripts = /** @type {Scripts} */ (/** @type {unknown} */ (redis));
  }

  /** Redis may no longer have all confirmed writes, so a new session is needed. */
  doubt() {
    this.doubts++;
  }

  get isSure() {
    return this.settled === this.doubts;
  }

  get isHeartbeatDue() {
    return this.dead.hasReported || this.beat.isDue(this.ttlMs / 2);
  }

  get hasWork() {
    return this.past.length > 0 || this.dead.hasWork || this.isHeartbeatDue || !this.isSure;
  }

  /** @param {string} name of a dead worker's session */
  reportDead(name) {
    if (name !== this.name && this.dead.reportSession(name)) this.beat.onDue();
  }

  /**
   * Starts a new session if anything was written under the current one, or if other workers may
   * have considered it dead: whoever clears it would remove users that are written under it later.
   * @param {() => string[]} roomsOf lists the rooms with users or changes
   * @returns {Promise<{hasLostAll: boolean, doubts: number}>} `hasLostAll`: Redis has lost its data
   *   since the last session began; `doubts` is for `settleDoubts`
   *   when all users have been queued again
   */
  async begin(roomsOf) {
    const { doubts } = this;
    const isOld = this.name !== '' && performance.now() - this.beganMs > this.ttlMs / 2;
    if (this.isUsed || isOld) {
      this.past.push({ name: this.name, rooms: this.isUsed ? roomsOf() : [] });
      if (this.past.length > MAX_PAST) this.past.shift();
      this.isUsed = false;
    }
    if (this.name === '' || this.past.at(-1)?.name === this.name) {
      this.name = `${this.base}:${++this.generation}`;
      this.isSent = false;
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
  settleDoubts(doubts) {
    this.settled = doubts;
  }

  /** Sends a heartbeat. */
  async pulse() {
    const { storeId } = await this.#heartbeat();
    if (storeId !== this.storeId) this.doubt();
  }

  /**
   * Notices if other workers considered this one dead, also if its first heartbeat was long under
   * way: one of them clears this session, so nothing must be written under it.
   * @returns {Promise<{storeId: string}>}
   */
  async #heartbeat() {
    const sentMs = performance.now();
    const dead = this.dead.reported();
    const { isSent } = this;
    this.isSent = true;
    const [storeId, isNew, taken] = await this.scripts.presenceHeartbeat(
      ...this.keys,
      this.name,
      this.ttlMs,
      CLEARING_MS,
      randomBytes(8).toString('hex'),
      sentMs - this.beganMs > this.ttlMs / 2 ? 1 : 0,
      ...dead,
    );
    this.beat.answered(sentMs);
    this.dead.declared(dead, taken);
    if (isNew === 1 && isSent) {
      this.beganMs = Number.NEGATIVE_INFINITY;
      this.doubt();
    }
    return { storeId };
  }

  /** @param {string[]} rooms in which this session will have users */
  async register(rooms) {
    this.isUsed = true;
    await this.rooms.add(this.name, rooms);
  }

  /**
   * Adds rooms to the lists of their sessions, and has those sessions cleared that have ended.
   * @param {Map<string, string[]>} rooms by session
   */
  async find(rooms) {
    for (const [session, those] of rooms) await this.rooms.addToList(session, those);
    // The rooms come first: if a session ends meanwhile, clearing it finds them.
    if (await this.dead.haveEnded([...rooms.keys()])) this.beat.hurry();
  }

  /** Queues the oldest own session to be cleared, once its users are written again. */
  async clearPast() {
    const { name, rooms } = this.past[0];
    // Redis may lack the list of the session's rooms.
    await this.rooms.addToList(name, rooms);
    this.dead.end(name);
    this.past.shift();
  }

  /** Ends and clears this worker's sessions. If Redis is unavailable, others find them later. */
  async retire() {
    try {
      const sessions = [this.name, ...this.past.map(({ name }) => name)];
      this.dead.reportOnly(sessions);
      await this.#heartbeat();
      await this.dead.clearOnly(sessions);
      this.onName('');
    } catch {
      // Other workers find these sessions later.
    }
  }
}
