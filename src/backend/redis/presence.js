// presence.js: presence over Redis. Workers write their users, and clean up after dead workers.
//
// A store writes a room's changes in one step: member-store.js, or occupancy-store.js, whose rooms
// have only one user. presence-session.js has the keys of the sessions.
//
// A worker's memory has the truth about its users. Changes wait there, one for each user and room,
// until Redis has confirmed them; repeating one is harmless. They leave in rounds, with many
// changes in a call: if 5,000 clients join at once, that takes some twenty calls.

import { deferred, within } from '../deferred.js';
import { BrokerError } from '../errors.js';
import { PresenceSession } from './presence-session.js';
import { ShardVisits } from './shard-visits.js';

const RETRY_MS = 1000;
/** After a loss of data, leaves wait for other workers to write their users again. */
const SETTLE_MS = 5000;
const CLOSE_TIMEOUT_MS = 2000;
/** The most changes in one call: some 2 ms of Redis' time. */
const MAX_CHANGES = 256;
/** Under way at once. */
const MAX_CALLS = 16;

/**
 * A change that Redis has not confirmed. lua/members.lua explains the kinds. A join is new if Redis
 * neither has the user nor a change under way. If the user leaves before it is sent, it is dropped.
 * `isRefused`: Redis refused to publish the join of the user who leaves. `session`: that which the
 * user leaves; absent: the present one.
 * @typedef
 *   {{what: 'join'|'restore'|'announceJoin'|'leave'|'leaveLost'|'announceLeave', member: Buffer, isNew?: boolean, isSent?: boolean, isRefused?: boolean, session?: string}}
 *   Change
 */

/**
 * Events that Redis refused to publish, each as 1 (join) or 2 (leave), user and member.
 * @typedef {(number|Buffer)[]} Refused
 */

/**
 * Where the changes of rooms are written. All calls may be repeated.
 * @typedef {object} Store
 * @property
 *   {(room: string, session: string, take: number, changes: (string|Buffer)[]) => Promise<{left: number, refused: Refused}>}
 *   change `take`: how many users to remove from the session; `changes`: kind, user and member of
 *   each; `left`: users that the session still has in the room
 * @property {(room: string, isCount: boolean) => Promise<import('../presence.js').PresenceSnapshot>}
 *   read
 * @property {readonly import('./shard-visits.js').Held[]} held keys that name the sessions of rooms
 */

/**
 * @typedef {object} User
 * @property {Buffer} member
 * @property {boolean} isWritten Redis has had the user, so others may know it
 * @property {boolean} isRefused Redis refused to publish the user's join
 * @property {string|undefined} session the last one under which the user was sent to Redis
 */

/** A room in which this worker has users or changes. */
class PresenceRoom {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
    /** The users of this worker. @type {Map<string, User>} */
    this.users = new Map();
    /** @type {Map<string, Change>} */
    this.changes = new Map();
    this.isRegistered = false;
    this.isInRound = false;
  }
}

/** `isCount`: no caller needs the members. */
/** @typedef {{snapshot: Deferred<PresenceSnapshot>, isCount: boolean}} Read */

/** @implements {Presence} */
export class RedisPresence {
  /**
   * @param {Omit<ConstructorParameters<typeof PresenceSession>[0], 'onDue'|'clearRoom'> & {store: Store, log: {warn(fields: object, text: string): void}, settleMs?: number, onLost?: () => Promise<void>}}
   *   parts `onLost`: in a cluster, a primary may have lost writes
   */
  constructor(parts) {
    this.connection = parts.connection;
    this.store = parts.store;
    this.log = parts.log;
    this.settleMs = parts.settleMs ?? SETTLE_MS;
    this.session = new PresenceSession({
      ...parts,
      onDue: () => this.#work(),
      clearRoom: (room, session) => this.#clearRoom(room, session),
    });
    this.visits = this.#makeVisits(parts);
    this.isUp = false;
    this.isClosed = false;
    /** @type {Map<string, PresenceRoom>} */
    this.rooms = new Map();
    /** Rooms with changes. @type {Set<PresenceRoom>} */
    this.changed = new Set();
    /** Reads since the last round began. @type {Map<string, Read>} */
    this.reads = new Map();
    /** @type {Promise<void>|null} */
    this.working = null;
    this.isScheduled = false;
    this.hasFailed = false;
    this.hasRefused = false;
    /** @type {Set<NodeJS.Timeout>} */
    this.timers = new Set();
  }

  /** @param {ConstructorParameters<typeof RedisPresence>[0]} parts @returns null without a cluster */
  #makeVisits({ connection, prefix, store, onLost, log }) {
    if (!('primaries' in connection)) return null;
    const { session } = this;
    return new ShardVisits({
      connection: /** @type {import('./cluster-client.js').RedisClusterClient} */ (
        /** @type {unknown} */ (connection)
      ),
      prefix,
      visitor: session.base,
      held: store.held,
      onFound: (rooms) => session.find(rooms),
      onLost,
      log,
    });
  }

  async start() {
    this.session.beat.start();
  }

  /** Called whenever Redis becomes available or unavailable. @param {boolean} isUp */
  setUp(isUp) {
    if (isUp === this.isUp || this.isClosed) return;
    this.isUp = isUp;
    // Redis may have lost confirmed writes.
    this.session.doubt();
    if (isUp) this.#work();
    else this.#refuseReads(new BrokerError('UNAVAILABLE', 'Redis is unavailable'));
  }

  async close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.visits?.close();
    this.session.beat.stop();
    for (const timer of this.timers) clearTimeout(timer);
    this.#refuseReads(new BrokerError('UNAVAILABLE', 'presence is closed'));
    if (this.session.name === '') return;
    await within(this.#retire(), CLOSE_TIMEOUT_MS);
  }

  /** @param {string} session of a dead worker of this machine */
  died(session) {
    this.session.reportDead(session);
  }

  /** @param {string} room @param {string} user @param {Buffer} member */
  join(room, user, member) {
    if (this.isClosed) return;
    const one = this.#room(room);
    const entry = one.users.get(user);
    const before = one.changes.get(user);
    const { isWritten = false } = entry ?? {};
    // A user who leaves and is back before the leave is sent has not been announced either.
    const { isRefused = false, session } = entry ?? before ?? {};
    const isNew =
      before === undefined ? entry === undefined : before.isNew === true && !before.isSent;
    one.users.set(user, { member, isWritten, isRefused, session });
    this.#change(one, user, { what: isRefused ? 'announceJoin' : 'join', member, isNew });
  }

  /** @param {string} room @param {string} user */
  leave(room, user) {
    const one = this.rooms.get(room);
    const entry = one?.users.get(user);
    if (one === undefined || entry === undefined || this.isClosed) return;
    one.users.delete(user);
    const change = one.changes.get(user);
    const isUnsent = change?.isNew === true && !change.isSent;
    // Outages may be long, so a user that joins and leaves during one leaves no change behind.
    const isUnknown = entry.session === undefined && !this.isUp && this.working === null;
    if (isUnsent || isUnknown) {
      one.changes.delete(user);
      if (one.changes.size > 0) return;
      if (one.users.size > 0) return void this.changed.delete(one);
      // The round under way, or the next one, removes the empty room.
      if (one.isInRound || one.isRegistered) return;
      this.changed.delete(one);
      this.rooms.delete(room);
    } else {
      const { member, isRefused, session } = entry;
      // If another worker has the user too, nobody else would announce the join.
      const what = isRefused ? 'announceLeave' : 'leave';
      this.#change(one, user, { what, member, isRefused, session });
    }
  }

  /** @param {string} room @param {boolean} [isCount] @returns {Promise<PresenceSnapshot>} */
  read(room, isCount = false) {
    if (!this.isUp || this.isClosed || this.hasFailed) {
      return Promise.reject(new BrokerError('UNAVAILABLE', 'Redis is unavailable'));
    }
    let read = this.reads.get(room);
    if (read === undefined) {
      read = { snapshot: deferred(), isCount };
      this.reads.set(room, read);
      this.#schedule();
    }
    read.isCount &&= isCount;
    return read.snapshot.promise;
  }

  /** @param {string} room */
  async recorded(room) {
    await this.read(room, true);
  }

  /** @param {string} name @returns {PresenceRoom} */
  #room(name) {
    let room = this.rooms.get(name);
    if (room === undefined) this.rooms.set(name, (room = new PresenceRoom(name)));
    return room;
  }

  /** @param {PresenceRoom} room @param {string} user @param {Change} change */
  #change(room, user, change) {
    room.changes.set(user, change);
    this.changed.add(room);
    this.#schedule();
  }

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
      if (this.hasFailed) this.#later(RETRY_MS, () => this.#work());
      // More work may have been queued since the loop ended.
      else if (this.#hasWork) this.#schedule();
    });
  }

  get #hasWork() {
    return this.changed.size + this.reads.size > 0 || this.session.hasWork;
  }

  /** Does the most urgent work first, until all is done. Never rejects. */
  async #workOff() {
    const { session } = this;
    try {
      this.hasRefused = false;
      while (this.#hasWork && this.isUp && !this.isClosed) {
        if (!this.connection.isWritable)
          throw new BrokerError('UNAVAILABLE', 'Redis is unavailable');
        if (!session.isSure) await this.#beginSession();
        else if (session.isHeartbeatDue) await session.pulse();
        else {
          if (this.changed.size > 0 || this.reads.size > 0) await this.#round();
          // All users are written under the current session, so the old ones may go.
          if (this.changed.size === 0 && session.past.length > 0) await session.clearPast();
          else if (session.dead.isClearing) await session.dead.clearNext();
        }
        if (this.hasRefused)
          throw new BrokerError('UNAVAILABLE', 'Redis refused to publish presence events');
        this.hasFailed = false;
      }
      // A read that failed is answered: nothing is left to try again, and only a new one can tell.
      if (!this.#hasWork) this.hasFailed = false;
    } catch (error) {
      this.#onFailure(error);
    }
  }

  /** @param {unknown} error */
  #onFailure(error) {
    const reason = this.connection.describe(error);
    // The broker logs that Redis is unavailable.
    if (!this.hasFailed && this.isUp) this.log.warn({ reason }, 'cannot write presence');
    this.hasFailed = true;
    this.#refuseReads(new BrokerError('UNAVAILABLE', 'cannot read presence', { cause: error }));
  }

  /** @param {number} ms @param {() => void} act */
  #later(ms, act) {
    if (this.isClosed) return;
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      act();
    }, ms).unref();
    this.timers.add(timer);
  }

  /** Starts a session and queues all users to be written under it. */
  async #beginSession() {
    const { session } = this;
    const { hasLostAll, doubts } = await session.begin(() => [...this.rooms.keys()]);
    for (const room of this.rooms.values()) this.#rewrite(room, hasLostAll);
    session.settleDoubts(doubts);
    this.visits?.check();
  }

  /** @param {PresenceRoom} room @param {boolean} hasLostAll */
  #rewrite(room, hasLostAll) {
    room.isRegistered = false;
    if (hasLostAll) this.#leaveLater(room);
    for (const [user, { member, isWritten, isRefused }] of room.users) {
      // A user that Redis still has causes no event. If Redis has lost it, a client may have read
      // the list meanwhile, and only a join event brings the user back into it.
      const what = isRefused ? 'announceJoin' : isWritten ? 'restore' : 'join';
      room.changes.set(user, { what, member });
    }
    if (room.changes.size > 0) this.changed.add(room);
    else this.changed.delete(room);
    if (room.users.size === 0 && room.changes.size === 0) this.rooms.delete(room.name);
  }

  /** Other workers write their users again before these leaves go. @param {PresenceRoom} room */
  #leaveLater({ name, changes }) {
    const left = [...changes].filter(([, change]) => isLeave(change));
    for (const [user] of left) changes.delete(user);
    if (left.length === 0) return;
    this.#later(this.settleMs, () => {
      const room = this.#room(name);
      for (const [user, { what, member }] of left) {
        if (room.users.has(user)) continue;
        this.#change(room, user, { what: what === 'leave' ? 'leaveLost' : what, member });
      }
    });
  }

  /** Sends the queued changes, then answers the reads that were queued before. */
  async #round() {
    const { reads } = this;
    this.reads = new Map();
    const rooms = [...this.changed];
    try {
      for (const room of rooms) room.isInRound = true;
      const fresh = rooms.filter((room) => !room.isRegistered && room.users.size > 0);
      // Rooms before users, so that every user can be found if the worker dies in between.
      if (fresh.length > 0) await this.session.register(fresh.map(({ name }) => name));
      for (const room of fresh) room.isRegistered = true;
      const calls = rooms
        .filter(({ isRegistered, users }) => isRegistered || users.size === 0)
        .flatMap((room) => callsOf(room, this.session.name));
      for (let i = 0; i < calls.length; i += MAX_CALLS) {
        await Promise.all(calls.slice(i, i + MAX_CALLS).map((call) => this.#send(call)));
      }
      await this.#forget(rooms);
      await this.#answer([...reads]);
    } catch (error) {
      for (const [room, read] of reads) {
        read.snapshot.reject(
          new BrokerError('UNAVAILABLE', `cannot read presence of ${room}`, { cause: error }),
        );
      }
      throw error;
    } finally {
      for (const room of rooms) room.isInRound = false;
    }
  }

  /** @param {Call} call */
  async #send({ room, session, changes: all }) {
    const isPast = session !== this.session.name;
    // The call may have waited for others. A newer change names the session that has the user, and
    // it is sent in the next round.
    const changes = all.filter(([user, change]) => room.changes.get(user) === change);
    if (changes.length === 0) return;
    const args = changes.flatMap(([user, change]) => {
      const { what, member } = change;
      const entry = room.users.get(user);
      if (entry !== undefined) entry.session = session;
      change.isSent = true;
      // Clearing a past session announces the leave only if Redis still has the join, and an older
      // copy of its data may not.
      return [isPast && what === 'leave' ? 'leaveLost' : what, user, member];
    });
    const { refused } = await this.store.change(room.name, session, 0, args);
    for (const [user, change] of changes) {
      // A newer change of the user may have been queued.
      if (room.changes.get(user) === change) room.changes.delete(user);
      const entry = room.users.get(user);
      if (entry === undefined || isLeave(change)) continue;
      entry.isWritten = true;
      if (change.what === 'announceJoin') entry.isRefused = false;
    }
    if (room.changes.size === 0) this.changed.delete(room);
    this.#announceLater(room, refused);
  }

  /**
   * Redis has made changes but refused to publish their events: a retry announces them.
   * @param {PresenceRoom} room @param {Refused} refused
   */
  #announceLater(room, refused) {
    for (let i = 0; i < refused.length; i += 3) {
      const user = String(refused[i + 1]);
      const entry = room.users.get(user);
      if (entry === undefined) {
        const member = /** @type {Buffer} */ (refused[i + 2]);
        this.#change(room, user, { what: 'announceLeave', member, isRefused: true });
      } else if (refused[i] === 1) {
        entry.isRefused = true;
        this.#change(room, user, { what: 'announceJoin', member: entry.member });
      }
    }
    if (refused.length > 0) this.hasRefused = true;
  }

  /** @param {PresenceRoom[]} rooms to remove if they have no users and no changes */
  async #forget(rooms) {
    const empty = rooms.filter(({ users, changes }) => users.size === 0 && changes.size === 0);
    for (const room of empty) {
      if (this.rooms.get(room.name) === room) this.rooms.delete(room.name);
      this.changed.delete(room);
    }
    const names = empty.filter(({ isRegistered }) => isRegistered).map(({ name }) => name);
    await this.session.rooms.remove(this.session.name, names);
  }

  /** @param {[room: string, read: Read][]} reads */
  async #answer(reads) {
    for (let i = 0; i < reads.length; i += MAX_CALLS) {
      await Promise.all(
        reads
          .slice(i, i + MAX_CALLS)
          .map(async ([room, { snapshot, isCount }]) =>
            snapshot.resolve(await this.store.read(room, isCount)),
          ),
      );
    }
  }

  /** Removes the users of a session from a room. @param {string} room @param {string} session */
  async #clearRoom(room, session) {
    for (;;) {
      const { left, refused } = await this.store.change(room, session, MAX_CHANGES, []);
      if (refused.length > 0) this.#announceLater(this.#room(room), refused);
      if (left === 0) return;
    }
  }

  async #retire() {
    await this.working;
    await this.session.retire();
  }

  /** @param {BrokerError} error */
  #refuseReads(error) {
    const { reads } = this;
    this.reads = new Map();
    for (const { snapshot } of reads.values()) snapshot.reject(error);
  }
}

/** @param {Change} change */
function isLeave({ what }) {
  return what === 'leave' || what === 'leaveLost' || what === 'announceLeave';
}

/**
 * Changes under one session.
 * @typedef {{room: PresenceRoom, session: string, changes: [string, Change][]}} Call
 */

/** @param {PresenceRoom} room @param {string} present session @returns {Call[]} */
function callsOf(room, present) {
  /** @type {Call[]} */
  const calls = [];
  for (const [user, change] of room.changes) {
    const { session = present } = change;
    let call = calls.findLast((one) => one.session === session);
    if (call === undefined || call.changes.length === MAX_CHANGES)
      calls.push((call = { room, session, changes: [] }));
    call.changes.push([user, change]);
  }
  return calls;
}

/** @import { Deferred } from '../deferred.js' */
/** @import { Presence, PresenceSnapshot } from '../presence.js' */
