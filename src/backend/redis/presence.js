// presence.js: the presence of many machines. What each worker says is kept in Redis, and each
// worker looks after the others.
//
//   presence:{<room>}:members        user -> member              one script changes these three and publishes the events on
//   presence:{<room>}:owners         user -> how many have it    the room's channel (lua/members.lua)
//   presence:{<room>}:users:<name>   the users that a worker has
//   presence:{*}:workers             name -> last heartbeat, by Redis' clock; dead, cleared, mark: lua/sessions.lua
//   presence:{*}:rooms:<name>        where to look when that worker is dead; no room is called *
//
// - The truth about a worker's users is in its own memory. What Redis does not have yet waits as changes, one a user and
//   room, and goes there in rounds: all that has come meanwhile, many changes a call, so that 5,000 clients joining at once
//   are some twenty calls. A change is forgotten when Redis has confirmed it, and may be made again.
// - A worker has a name for each time it begins. When it can't be sure that Redis still has all it said (Redis was away, or
//   has lost its data, or somebody took the worker for dead) it takes a new name, says everything again, and then clears up
//   after its old name: nobody is gone in between, and what an old name left behind is found.
// - A heartbeat each `beatMs`; a name without one for `ttlMs` is dead, and whoever finds it clears up. The relay tells at once
//   when a worker of its machine dies. Who has just begun judges nobody: after an outage all have been silent.
// - Nothing is written under a name whose heartbeat is too old: it may have been declared dead.

import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { deferred } from '../deferred.js';
import { BrokerError } from '../errors.js';
import { LUA_FRAMING } from './batch.js';

const BEAT_INTERVAL_MS = 10_000;
const TTL_MS = 30_000;
/** After this time another worker clears up too. */
const CLEARING_MS = 15_000;
const RETRY_MS = 1000;
/**
 * After Redis has lost its data: the time others have to say again who is there, before leaves of
 * the outage are told.
 */
const SETTLE_MS = 5000;
const CLOSE_TIMEOUT_MS = 2000;
/** Of one call: some 2 ms of Redis' time. */
const MAX_CHANGES = 256;
/** Calls under way at once. */
const MAX_CALLS = 16;
/** Rooms cleared in one step. */
const CLEARED_ROOMS = 64;
/** Rooms in one SADD or SREM. */
const CHUNK_ROOMS = 1000;
/**
 * Old names kept to be cleared by their own worker; of more, the heartbeat's time-out takes care.
 */
const MAX_PAST = 16;

const SCRIPTS = {
  presenceMembers: { numberOfKeys: 3, lua: LUA_FRAMING + lua('members') },
  presenceWorkers: { numberOfKeys: 4, lua: lua('sessions') },
  presenceCleared: { numberOfKeys: 2, lua: lua('cleared') },
  presenceRead: { numberOfKeys: 1, lua: lua('read-members') },
};

/** @param {string} name */
function lua(name) {
  return readFileSync(new URL(`lua/${name}.lua`, import.meta.url), 'utf8');
}

/**
 * What is asked of a connection to Redis: the broker's own for commands.
 * @typedef {object} Connection
 * @property {boolean} isWritable
 * @property {Redis} redis
 * @property {(error: unknown) => string} describe
 */

/**
 * @typedef {object} Redis an ioredis client, of one server or of a cluster
 * @property {(name: string, script: {numberOfKeys: number, lua: string}) => void} defineCommand
 * @property {(key: string, ...members: string[]) => Promise<number>} sadd
 * @property {(key: string, ...members: string[]) => Promise<number>} srem
 * @property {(key: string, count: number) => Promise<string[]>} srandmember
 */

/**
 * The scripts, as ioredis makes them methods.
 * @typedef {object} Scripts
 * @property
 *   {(...args: (string|number|Buffer)[]) => Promise<[joins: number, leaves: number, suppressed: number, left: number, refused: Refused]>}
 *   presenceMembersBuffer
 * @property
 *   {(...args: (string|number)[]) => Promise<[mark: string, isNew: number, taken: string[], declared: string[]]>}
 *   presenceWorkers
 * @property {(...args: string[]) => Promise<number>} presenceCleared
 * @property {(...args: (string|number)[]) => Promise<[count: number, members?: Buffer[]]>}
 *   presenceReadBuffer
 */

/**
 * What Redis has not confirmed; see lua/members.lua. A join that is new, because nothing of that
 * user in that room is in Redis or on its way there, and that has not been sent, is forgotten when
 * the user leaves: so churn leaves nothing behind.
 * @typedef
 *   {{what: 'join'|'put'|'hush'|'tell'|'leave'|'gone', member: Buffer, isNew?: boolean, isSent?: boolean}}
 *   Change
 */

/**
 * Events that Redis refused to publish: 1 (join) or 2 (leave), user and member of each, one after
 * another.
 * @typedef {(number|Buffer)[]} Refused
 */

/**
 * @typedef {object} User
 * @property {Buffer} member
 * @property {boolean} isTold Redis has had it, so that others may know
 * @property {boolean} isRefused Redis has refused to publish the event of the join
 */

/** A room this worker has users in, or has changes for. */
class Room {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
    /** The truth. @type {Map<string, User>} */
    this.users = new Map();
    /** @type {Map<string, Change>} */
    this.changes = new Map();
    /** Is it among the rooms where to look when this worker is dead? */
    this.isRegistered = false;
    /** Is it one of those that the round under way is about? */
    this.isInRound = false;
  }
}

/** @implements {Presence} */
export class RedisPresence {
  /**
   * @param {object} parts
   * @param {Connection} parts.connection
   * @param {string} parts.prefix of keys
   * @param {(room: string) => string} parts.channelOf a room's
   * @param {'PUBLISH'|'SPUBLISH'} [parts.publishCommand]
   * @param {number} parts.maxMembers
   * @param {import('../presence.js').Announcements} parts.announcements
   * @param {string} parts.workerId
   * @param {(name: string) => void} [parts.onName] what to call this worker when it has died;
   *   empty: nothing is left of it
   * @param {{presenceEvents: import('../presence.js').EventCounts, presenceReaped: number}}
   *   parts.counters
   * @param {{info(fields: object, text: string): void, warn(fields: object, text: string): void}}
   *   parts.log
   * @param {number} [parts.beatMs]
   * @param {number} [parts.ttlMs]
   * @param {number} [parts.settleMs]
   */
  constructor(parts) {
    const {
      connection,
      prefix,
      channelOf,
      publishCommand = 'PUBLISH',
      maxMembers,
      announcements,
      workerId,
    } = parts;
    this.connection = connection;
    this.prefix = prefix;
    this.channelOf = channelOf;
    /** What every call of lua/members.lua has in common. */
    this.common = [publishCommand, announcements.join, announcements.leave, maxMembers];
    this.maxMembers = maxMembers;
    /**
     * What all names of this worker begin with. A worker's id may come again: after a restart, and
     * in every container.
     */
    this.base = `${workerId.replace(/[^\x21-\x7e]/g, '_')}:${randomBytes(6).toString('hex')}`;
    this.onName = parts.onName ?? (() => {});
    this.counters = parts.counters;
    this.log = parts.log;
    this.beatIntervalMs = parts.beatMs ?? BEAT_INTERVAL_MS;
    this.ttlMs = parts.ttlMs ?? TTL_MS;
    this.settleMs = parts.settleMs ?? SETTLE_MS;

    this.generation = 0;
    /** Of this generation; empty before the first. */
    this.name = '';
    /** Has anything been said under it? */
    this.isUsed = false;
    /**
     * Times there was reason to doubt that Redis has all it has confirmed, and how many of them are
     * settled.
     */
    this.doubts = 1;
    this.settled = 0;
    this.isUp = false;
    this.isClosed = false;
    this.mark = '';
    /** When the last heartbeat that was answered had been sent. */
    this.beatenMs = Number.NEGATIVE_INFINITY;
    this.isBeatDue = false;
    /** When the name was taken. */
    this.namedMs = 0;
    /** @type {Map<string, Room>} */
    this.rooms = new Map();
    /** Those with changes. @type {Set<Room>} */
    this.changed = new Set();
    /**
     * Asked for since the last round began.
     * @type
     *   {Map<string, import('../deferred.js').Deferred<import('../presence.js').PresenceSnapshot>>}
     */
    this.reads = new Map();
    /** Own names of before, and where they had users. @type {{name: string, rooms: string[]}[]} */
    this.past = [];
    /** Names that the relay says are dead. @type {string[]} */
    this.dead = [];
    /** Names to be cleared up after. @type {string[]} */
    this.clearing = [];
    /** The work under way; null: none is. @type {Promise<void>|null} */
    this.working = null;
    this.isScheduled = false;
    this.hasFailed = false;
    /** Redis has refused to publish events since the work began. */
    this.hasRefused = false;
    /** @type {NodeJS.Timeout|undefined} */
    this.beatTimer = undefined;
    /** @type {Set<NodeJS.Timeout>} */
    this.timers = new Set();
    for (const [name, script] of Object.entries(SCRIPTS))
      connection.redis.defineCommand(name, script);
    this.scripts = /** @type {Scripts} */ (/** @type {unknown} */ (connection.redis));
  }

  async start() {
    this.#beatLater();
  }

  /** Redis is there, or is not; to be told whenever that changes. @param {boolean} isUp */
  setUp(isUp) {
    if (isUp === this.isUp || this.isClosed) return;
    this.isUp = isUp;
    // What it has now may be older than what it said.
    this.doubts++;
    if (isUp) this.#work();
    else this.#refuseReads(new BrokerError('UNAVAILABLE', 'Redis is unavailable'));
  }

  async close() {
    if (this.isClosed) return;
    this.isClosed = true;
    clearTimeout(this.beatTimer);
    for (const timer of this.timers) clearTimeout(timer);
    this.#refuseReads(new BrokerError('UNAVAILABLE', 'presence is closed'));
    if (this.name === '') return;
    /** @type {NodeJS.Timeout|undefined} */
    let timer;
    const late = new Promise((resolve) => {
      timer = setTimeout(resolve, CLOSE_TIMEOUT_MS);
    });
    await Promise.race([this.#retire(), late]);
    clearTimeout(timer);
  }

  /** @param {string} name of another worker of this machine that has died */
  died(name) {
    if (name === this.name || this.dead.length >= MAX_CHANGES) return;
    this.dead.push(name);
    this.#work();
  }

  /**
   * @param {string} room
   * @param {string} user
   * @param {Buffer} member
   */
  join(room, user, member) {
    if (this.isClosed) return;
    const one = this.#room(room);
    const entry = one.users.get(user);
    const { isTold = false, isRefused = false } = entry ?? {};
    const before = one.changes.get(user);
    const isNew =
      before === undefined ? entry === undefined : before.isNew === true && !before.isSent;
    one.users.set(user, { member, isTold, isRefused });
    this.#change(one, user, { what: isRefused ? 'tell' : 'join', member, isNew });
  }

  /**
   * @param {string} room
   * @param {string} user
   */
  leave(room, user) {
    const one = this.rooms.get(room);
    const entry = one?.users.get(user);
    if (one === undefined || entry === undefined || this.isClosed) return;
    one.users.delete(user);
    const change = one.changes.get(user);
    const isUnsent = change?.isNew === true && !change.isSent;
    // Who came and goes while Redis is away is nobody's business, and an outage may be long.
    if (isUnsent || (!entry.isTold && !this.isUp && this.working === null)) {
      one.changes.delete(user);
      // The round under way, or the next one, looks whether anything is left of the room.
      if (one.changes.size > 0 || one.isInRound) return;
      if (one.isRegistered && one.users.size === 0) return;
      this.changed.delete(one);
      if (one.users.size === 0) this.rooms.delete(room);
    } else {
      this.#change(one, user, { what: 'leave', member: entry.member });
    }
  }

  /**
   * @param {string} room
   * @returns {Promise<import('../presence.js').PresenceSnapshot>}
   */
  read(room) {
    if (!this.isUp || this.isClosed || this.hasFailed) {
      return Promise.reject(new BrokerError('UNAVAILABLE', 'Redis is unavailable'));
    }
    let read = this.reads.get(room);
    if (read === undefined) {
      read = deferred();
      this.reads.set(room, read);
      this.#schedule();
    }
    return read.promise;
  }

  /**
   * @param {string} name
   * @returns {Room}
   */
  #room(name) {
    let room = this.rooms.get(name);
    if (room === undefined) this.rooms.set(name, (room = new Room(name)));
    return room;
  }

  /**
   * @param {Room} room
   * @param {string} user
   * @param {Change} change
   */
  #change(room, user, change) {
    room.changes.set(user, change);
    this.changed.add(room);
    this.#schedule();
  }

  /** All of a tick goes together. */
  #schedule() {
    if (this.isScheduled || this.working !== null || this.hasFailed || !this.isUp) return;
    this.isScheduled = true;
    setImmediate(() => {
      this.isScheduled = false;
      this.#work();
    });
  }

  #work() {
    if (this.working !== null || !this.isUp || this.isClosed) return;
    this.working = this.#workOff().finally(() => {
      this.working = null;
      // It does no harm to make a change again.
      if (this.hasFailed) this.#later(RETRY_MS, () => this.#work());
      // Something may have come between the last look and now.
      else if (this.#hasWork) this.#schedule();
    });
  }

  get #isSure() {
    return this.settled === this.doubts;
  }

  get #isBeatDue() {
    // Late: this process stood still, and may have been declared dead.
    return (
      this.isBeatDue || this.dead.length > 0 || performance.now() - this.beatenMs > this.ttlMs / 2
    );
  }

  get #hasWork() {
    const { changed, reads, dead, past, clearing } = this;
    const isIdle = changed.size + reads.size + dead.length + past.length + clearing.length === 0;
    return !isIdle || this.isBeatDue || !this.#isSure;
  }

  /** One thing after another, the most urgent first, until nothing is left. Never rejects. */
  async #workOff() {
    try {
      this.hasRefused = false;
      while (this.#hasWork && this.isUp && !this.isClosed) {
        if (!this.connection.isWritable)
          throw new BrokerError('UNAVAILABLE', 'Redis is unavailable');
        if (!this.#isSure) await this.#begin();
        else if (this.#isBeatDue) await this.#pulse();
        else {
          if (this.changed.size > 0 || this.reads.size > 0) await this.#round();
          // All is said under the new name: what was said under an old one may go.
          if (this.changed.size === 0 && this.past.length > 0) await this.#clearPast();
          else if (this.clearing.length > 0) await this.#clear(this.clearing[0]);
        }
        if (this.hasRefused)
          throw new BrokerError('UNAVAILABLE', 'Redis refused to publish presence events');
        this.hasFailed = false;
      }
    } catch (error) {
      this.#onFailure(error);
    }
  }

  /** @param {unknown} error */
  #onFailure(error) {
    const reason = this.connection.describe(error);
    // The broker has told of a connection that is away.
    if (!this.hasFailed && this.isUp) this.log.warn({ reason }, 'cannot write presence');
    this.hasFailed = true;
    this.#refuseReads(new BrokerError('UNAVAILABLE', 'cannot read presence', { cause: error }));
  }

  /**
   * @param {number} ms
   * @param {() => void} act
   */
  #later(ms, act) {
    if (this.isClosed) return;
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      act();
    }, ms).unref();
    this.timers.add(timer);
  }

  #beatLater() {
    // Spread, so that a fleet started together does not beat together.
    const wait = this.beatIntervalMs * (0.9 + 0.2 * Math.random());
    this.beatTimer = setTimeout(() => {
      this.isBeatDue = true;
      this.#work();
      this.#beatLater();
    }, wait).unref();
  }

  /**
   * Takes a new name, where something was said under the old one, and marks everything to be said
   * under it.
   */
  async #begin() {
    const { doubts } = this;
    if (this.isUsed) {
      this.past.push({ name: this.name, rooms: [...this.rooms.keys()] });
      if (this.past.length > MAX_PAST) this.past.shift();
      this.isUsed = false;
    }
    if (this.name === '' || this.past.at(-1)?.name === this.name) {
      this.name = `${this.base}:${++this.generation}`;
      this.namedMs = performance.now();
      this.onName(this.name);
    }
    const { mark, declared } = await this.#beat(this.past.slice(-1).map(({ name }) => name));
    const hasLostAll = this.mark !== '' && this.mark !== mark;
    this.mark = mark;
    for (const room of this.rooms.values()) this.#sayAgain(room, declared.length > 0, hasLostAll);
    this.settled = doubts;
  }

  /**
   * @param {Room} room
   * @param {boolean} isDeclaredDead
   * @param {boolean} hasLostAll
   */
  #sayAgain(room, isDeclaredDead, hasLostAll) {
    /** Who has left meanwhile. @type {[user: string, member: Buffer][]} */
    const left = [];
    room.isRegistered = false;
    for (const [user, { what, member }] of room.changes) {
      if (what !== 'leave' && what !== 'gone') continue;
      // The old name does not have that user: clearing up after it would not tell.
      if (what === 'gone' && !hasLostAll) continue;
      // Clearing up after the old name tells it; where Redis knows nothing of that name any more,
      // nothing would.
      room.changes.delete(user);
      if (hasLostAll) left.push([user, member]);
    }
    if (left.length > 0) this.#later(this.settleMs, () => this.#tellGone(room.name, left));
    for (const [user, { member, isTold, isRefused }] of room.users) {
      const told = isDeclaredDead ? 'put' : 'hush';
      room.changes.set(user, { what: isRefused ? 'tell' : isTold ? told : 'join', member });
    }
    if (room.changes.size > 0) this.changed.add(room);
    else this.changed.delete(room);
    if (room.users.size === 0 && room.changes.size === 0) this.rooms.delete(room.name);
  }

  /**
   * @param {string} name
   * @param {[user: string, member: Buffer][]} left
   */
  #tellGone(name, left) {
    const room = this.#room(name);
    for (const [user, member] of left) {
      if (!room.users.has(user)) this.#change(room, user, { what: 'gone', member });
    }
    if (room.users.size === 0 && room.changes.size === 0) this.rooms.delete(name);
  }

  /** Shows that this worker lives, and finds out whether the others thought otherwise. */
  async #pulse() {
    const { mark, isNew } = await this.#beat([]);
    if (isNew || mark !== this.mark) this.doubts++;
  }

  /**
   * @param {string[]} asked names
   * @returns {Promise<{mark: string, isNew: boolean, declared: string[]}>} the store's mark,
   *   whether it had not known this worker's name, and those of the asked that had been declared
   *   dead
   */
  async #beat(asked) {
    const sentMs = performance.now();
    const dead = this.dead.slice();
    const [mark, isNew, taken, declared] = await this.scripts.presenceWorkers(
      this.#key('workers'),
      this.#key('dead'),
      this.#key('cleared'),
      this.#key('mark'),
      this.name,
      this.ttlMs,
      CLEARING_MS,
      randomBytes(8).toString('hex'),
      sentMs - this.namedMs > this.ttlMs / 2 ? 1 : 0,
      dead.length,
      ...dead,
      ...asked,
    );
    this.isBeatDue = false;
    this.beatenMs = sentMs;
    this.dead.splice(0, dead.length);
    for (const name of taken) if (!this.clearing.includes(name)) this.clearing.push(name);
    return { mark, isNew: isNew === 1, declared };
  }

  /** Sends all that waits, then answers the reads that were asked for before. */
  async #round() {
    const { reads } = this;
    this.reads = new Map();
    const rooms = [...this.changed];
    try {
      for (const room of rooms) room.isInRound = true;
      const fresh = rooms.filter((room) => !room.isRegistered && room.users.size > 0);
      // First where to look, then what is there: who dies in between leaves nothing that is not
      // found.
      for (let i = 0; i < fresh.length; i += CHUNK_ROOMS) {
        const chunk = fresh.slice(i, i + CHUNK_ROOMS);
        this.isUsed = true;
        await this.connection.redis.sadd(
          this.#key(`rooms:${this.name}`),
          ...chunk.map(({ name }) => name),
        );
        for (const room of chunk) room.isRegistered = true;
      }
      const calls = rooms
        .filter(({ isRegistered, users }) => isRegistered || users.size === 0)
        .flatMap(callsOf);
      for (let i = 0; i < calls.length; i += MAX_CALLS) {
        await Promise.all(
          calls.slice(i, i + MAX_CALLS).map(({ room, changes }) => this.#send(room, changes)),
        );
      }
      await this.#forget(rooms);
      await this.#answer([...reads]);
    } catch (error) {
      for (const [room, read] of reads) {
        // Those that were answered stay so.
        read.reject(
          new BrokerError('UNAVAILABLE', `cannot read presence of ${room}`, { cause: error }),
        );
      }
      throw error;
    } finally {
      for (const room of rooms) room.isInRound = false;
    }
  }

  /**
   * @param {Room} room
   * @param {[user: string, change: Change][]} changes
   */
  async #send(room, changes) {
    const args = changes.flatMap(([user, { what, member }]) => [what, user, member]);
    const { refused } = await this.#call(room.name, this.name, 0, args);
    for (const [user, change] of changes) {
      // Another change of that user may have come since.
      if (room.changes.get(user) === change) room.changes.delete(user);
      const entry = room.users.get(user);
      if (entry === undefined || change.what === 'leave' || change.what === 'gone') continue;
      entry.isTold = true;
      if (change.what === 'tell') entry.isRefused = false;
    }
    if (room.changes.size === 0) this.changed.delete(room);
    this.#announceLater(room, refused);
  }

  /**
   * Redis has made changes and has refused to publish their events: they are announced when the
   * work is tried again.
   * @param {Room} room
   * @param {Refused} refused
   */
  #announceLater(room, refused) {
    for (let i = 0; i < refused.length; i += 3) {
      const user = String(refused[i + 1]);
      const entry = room.users.get(user);
      if (refused[i] === 1) {
        // A user that has left meanwhile needs no event.
        if (entry === undefined) continue;
        entry.isRefused = true;
        this.#change(room, user, { what: 'tell', member: entry.member });
      } else if (entry === undefined && !room.changes.has(user)) {
        this.#change(room, user, { what: 'gone', member: /** @type {Buffer} */ (refused[i + 2]) });
      }
    }
    if (refused.length > 0) this.hasRefused = true;
  }

  /**
   * @param {string} room
   * @param {string} name of the worker whose users change
   * @param {number} take users to be taken from it
   * @param {(string|Buffer)[]} changes
   * @returns {Promise<{left: number, refused: Refused}>} left: users it still has in that room
   */
  async #call(room, name, take, changes) {
    const head = this.#roomKey(room, '');
    const [joins, leaves, suppressed, left, refused] = await this.scripts.presenceMembersBuffer(
      `${head}members`,
      `${head}owners`,
      `${head}users:${name}`,
      this.channelOf(room),
      ...this.common,
      take,
      ...changes,
    );
    const { presenceEvents } = this.counters;
    presenceEvents.join += joins;
    presenceEvents.leave += leaves;
    presenceEvents.suppressed += suppressed;
    return { left, refused };
  }

  /** @param {Room[]} rooms those without users are no longer looked after */
  async #forget(rooms) {
    const empty = rooms.filter(({ users, changes }) => users.size === 0 && changes.size === 0);
    for (const room of empty) {
      if (this.rooms.get(room.name) === room) this.rooms.delete(room.name);
      this.changed.delete(room);
    }
    const names = empty.filter(({ isRegistered }) => isRegistered).map(({ name }) => name);
    for (let i = 0; i < names.length; i += CHUNK_ROOMS) {
      await this.connection.redis.srem(
        this.#key(`rooms:${this.name}`),
        ...names.slice(i, i + CHUNK_ROOMS),
      );
    }
  }

  /**
   * @param
   *   {[room: string, read: import('../deferred.js').Deferred<import('../presence.js').PresenceSnapshot>][]}
   *   reads
   */
  async #answer(reads) {
    for (let i = 0; i < reads.length; i += MAX_CALLS) {
      await Promise.all(
        reads.slice(i, i + MAX_CALLS).map(async ([room, read]) => {
          const key = this.#roomKey(room, 'members');
          const [count, members = null] = await this.scripts.presenceReadBuffer(
            key,
            this.maxMembers,
          );
          read.resolve({ count, members });
        }),
      );
    }
  }

  /** Takes an old name of this worker among those to be cleared up after. */
  async #clearPast() {
    const { name, rooms } = this.past[0];
    const key = this.#key(`rooms:${name}`);
    // Redis may have forgotten them, or never have got them.
    for (let i = 0; i < rooms.length; i += CHUNK_ROOMS) {
      await this.connection.redis.sadd(key, ...rooms.slice(i, i + CHUNK_ROOMS));
    }
    this.dead.push(name);
    if (!this.clearing.includes(name)) this.clearing.push(name);
    this.past.shift();
  }

  /** Takes away some of what a dead worker has left. @param {string} name */
  async #clear(name) {
    const key = this.#key(`rooms:${name}`);
    const rooms = await this.connection.redis.srandmember(key, CLEARED_ROOMS);
    if (rooms.length > 0) {
      for (let i = 0; i < rooms.length; i += MAX_CALLS) {
        await Promise.all(rooms.slice(i, i + MAX_CALLS).map((room) => this.#clearRoom(room, name)));
      }
      await this.connection.redis.srem(key, ...rooms);
      return;
    }
    await this.scripts.presenceCleared(this.#key('dead'), this.#key('cleared'), name);
    this.clearing.shift();
    // One's own old name is no death.
    if (name.startsWith(this.base)) return;
    this.counters.presenceReaped++;
    this.log.info({ name }, 'removed the users of a dead worker from presence');
  }

  /**
   * @param {string} room
   * @param {string} name
   */
  async #clearRoom(room, name) {
    for (;;) {
      const { left, refused } = await this.#call(room, name, MAX_CHANGES, []);
      if (refused.length > 0) this.#announceLater(this.#room(room), refused);
      if (left === 0) return;
    }
  }

  /** Says goodbye: as if dead, and cleared up by itself. */
  async #retire() {
    await this.working;
    try {
      const names = [this.name, ...this.past.map(({ name }) => name)];
      this.dead = names.slice();
      await this.#beat([]);
      this.clearing = names;
      while (this.clearing.length > 0) await this.#clear(this.clearing[0]);
      this.onName('');
    } catch {
      // Redis is away: others find the name, which the relay tells or which has no heartbeat any
      // more.
    }
  }

  /** @param {string} key */
  #key(key) {
    return `${this.prefix}presence:{*}:${key}`;
  }

  /**
   * @param {string} room
   * @param {string} key
   */
  #roomKey(room, key) {
    return `${this.prefix}presence:{${room}}:${key}`;
  }

  /** @param {BrokerError} error */
  #refuseReads(error) {
    const { reads } = this;
    this.reads = new Map();
    for (const read of reads.values()) read.reject(error);
  }
}

/**
 * A room's changes, some to each call.
 * @param {Room} room
 * @returns {{room: Room, changes: [user: string, change: Change][]}[]}
 */
function callsOf(room) {
  const all = [...room.changes];
  for (const [, change] of all) change.isSent = true;
  const calls = [];
  for (let i = 0; i < all.length; i += MAX_CHANGES)
    calls.push({ room, changes: all.slice(i, i + MAX_CHANGES) });
  return calls;
}

/** @typedef {import('../presence.js').Presence} Presence */
