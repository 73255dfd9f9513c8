// roster-joins.js: joins of clients that get the list of a room's users with the answer, then each
// change, and never ask again. How their door writes it is in its RosterTexts.
//
// The list is the room's roster (hub/roster.js):
//
//   subscribe -> announced -> [roster is read] -> user joins presence -> event reaches the roster
//             -> answered with the roster, and member of the room
//
// If the user is already in the roster through another worker, the user still joins presence here
// before the answer. Otherwise the other worker could announce a leave while the user is here.
//
// Each list is as long as the room, so sending the lists has a share of each turn. Later commands
// of their clients wait.
//
// The list is itself a member of the room, without a client, which keeps the room open.

import { Clientless } from '../hub/clientless.js';
import { Connection } from '../hub/connection.js';
import { Roster } from '../hub/roster.js';

/** If a user's own join event takes longer, the roster is read again. */
const MAX_WAIT_MS = 5000;
/** Rosters read again in one second. */
const MAX_READS_PER_SWEEP = 100;

/** @import { RoomRequest } from '../hub/hub.js' */
/** @import { RosterMember, RosterTexts } from '../protocol/door-texts.js' */
/** @import { Joined } from '../recovery/room-joins.js' */

/**
 * How a client appears in the list.
 * @typedef {object} Listed
 * @property {string} user @property {Buffer|null} info JSON
 * @property {Buffer} member JSON of presence
 * @property {number} max users of the room
 */

/**
 * A join that is not answered yet. `connection` is not in the room.
 * @typedef {{connection: Connection, listed: Listed, request: RosterRequest, settle: () => void}} Pending
 */

/**
 * `users`: the list, for the answer.
 * @typedef {Omit<RoomRequest, 'onJoined'> & {onJoined: (joined: Joined|null, users?: Iterable<RosterMember>) => void}}
 *   RosterRequest
 */

/**
 * Null: the broker is unavailable, and no further call comes.
 * @typedef {(isOccupied: boolean|null) => void} RoomListener
 */

/**
 * @typedef {{hub: import('../hub/hub.js').Hub, broker: {readonly state: string},
 *   presenceLine: import('../worker/turn.js').Line<() => void>}} RosterParts
 */

/** Why a join gets no list. @typedef {'ROOM_FULL'|'UNAVAILABLE'} Reason */

export class RosterJoins {
  /** Lists by room. @type {Map<string, RoomList>} */
  #lists = new Map();

  /** @param {RosterParts} parts */
  constructor(parts) {
    this.parts = parts;
  }

  /**
   * @param {Connection} connection @param {string} room @param {Listed} listed
   * @param {RosterRequest} request
   * @returns {Promise<void>|null} resolves when it is answered or the connection has left; null: it
   *   was answered at once
   */
  joinWithList(connection, room, listed, request) {
    return this.#open(room, connection).addMember(connection, listed, request);
  }

  /**
   * Calls the listener as soon as it is known whether a room has users, and at each change.
   * @param {string} room @param {RoomListener} listener
   * @param {Connection} connection for which it listens
   */
  watch(room, listener, connection) {
    this.#open(room, connection).watch(listener);
  }

  /** @param {string} room @param {RoomListener} listener */
  unwatch(room, listener) {
    this.#lists.get(room)?.unwatch(listener);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    let reads = this.parts.broker.state === 'up' ? MAX_READS_PER_SWEEP : 0;
    for (const list of this.#lists.values()) if (list.sweepList(nowMs, reads > 0)) reads--;
  }

  /** @param {string} room @param {Connection} connection whose door has RosterTexts */
  #open(room, { transport }) {
    const open = this.#lists.get(room);
    if (open !== undefined) return open;
    const texts = /** @type {RosterTexts} */ (transport.door.roster);
    const list = new RoomList(this.parts, room, texts, () => {
      if (this.#lists.get(room) === list) this.#lists.delete(room);
    });
    this.#lists.set(room, list);
    list.openList();
    return list;
  }
}

/** The list of one room, and who follows it. */
class RoomList extends Clientless {
  #isClosed = false;
  /** Joins that arrive are admitted at once; those before have been. */
  #isOpen = false;
  /** Members that have the list. @type {Set<Connection>} */
  #told = new Set();
  /** @type {Map<Connection, Pending>} */
  #pending = new Map();
  /**
   * Members whose user is not in the roster yet, or not recorded for this worker, by user.
   * @type {Map<string, Set<Pending>>}
   */
  #arriving = new Map();
  #arrivingSinceMs = 0;
  /** @type {Set<RoomListener>} */
  #listeners = new Set();
  #room;
  #roster;

  /**
   * @param {RosterParts} parts @param {string} name of the room @param {RosterTexts} texts
   * @param {() => void} onClosed
   */
  constructor(parts, name, texts, onClosed) {
    super(texts.format);
    this.parts = parts;
    this.name = name;
    this.texts = texts;
    this.onClosed = onClosed;
    this.connection = new Connection(this, '');
    const { hub } = parts;
    this.#room = hub.openRoom(name);
    this.#roster = new Roster({
      hub,
      room: this.#room,
      decode: texts.readMember,
      onChange: (event, member) => this.#changed(event, member),
      onCorrected: (event, member) => this.#correct(event, member),
      onLeft: (connection) => this.#left(connection),
    });
  }

  openList() {
    this.parts.hub.watch(this.connection, this.#room, {
      onJoined: () => this.#readMembers(),
      onRefused: () => this.#fail(),
    });
  }

  /**
   * @param {Connection} connection @param {Listed} listed @param {RosterRequest} request
   * @returns {Promise<void>|null}
   */
  addMember(connection, listed, request) {
    /** @type {() => void} */
    let settle = () => {};
    /** @type {Promise<void>} */
    const answered = new Promise((resolve) => {
      settle = resolve;
    });
    this.parts.hub.announce(connection, this.name, answered);
    const pending = { connection, listed, request, settle };
    this.#pending.set(connection, pending);
    if (this.#isOpen) this.#admit(pending);
    return this.#pending.has(connection) ? answered : null;
  }

  /** @param {Connection} connection */
  #left(connection) {
    this.#told.delete(connection);
    const pending = this.#pending.get(connection);
    if (pending !== undefined) this.#settle(pending);
    this.#closeIfUnused();
  }

  /** @param {RoomListener} listener */
  watch(listener) {
    this.#listeners.add(listener);
    if (this.#isOpen) listener(this.#roster.size > 0);
  }

  /** @param {RoomListener} listener */
  unwatch(listener) {
    this.#listeners.delete(listener);
    this.#closeIfUnused();
  }

  /** @param {number} nowMs @param {boolean} mayRead @returns {boolean} true: it is read again */
  sweepList(nowMs, mayRead) {
    if (this.#arriving.size === 0) this.#arrivingSinceMs = nowMs;
    else if (nowMs - this.#arrivingSinceMs > MAX_WAIT_MS) this.#roster.doubt();
    const { isDoubtful, isRead, isReading } = this.#roster;
    if (!mayRead || !isDoubtful || !isRead || isReading) return false;
    this.#arrivingSinceMs = nowMs;
    this.#readMembers();
    return true;
  }

  async #readMembers() {
    if (this.#isClosed) return;
    const isFirst = !this.#roster.isRead;
    const result = await this.#roster.read();
    if (this.#isClosed) return;
    if (result === 'large') this.#refuseAll('ROOM_FULL');
    else if (!isFirst) return;
    else if (result === 'unavailable') this.#fail();
    else {
      // The roster was read some microtasks ago.
      this.#isOpen = true;
      this.#report();
      for (const pending of this.#pending.values()) this.#admit(pending);
    }
  }

  /** @param {'join'|'leave'} event @param {RosterMember} member */
  #changed(event, { user }) {
    this.#report();
    if (event === 'join' && this.#arriving.has(user)) this.#arrive(user);
  }

  #report() {
    const isOccupied = this.#roster.size > 0;
    for (const listener of this.#listeners) listener(isOccupied);
  }

  /** Sends members what the events missed. @param {'join'|'leave'} event @param {RosterMember} member */
  #correct(event, member) {
    const text = this.texts.changeText(this.name, event, member);
    if (text !== null) for (const connection of this.#told) connection.send(text);
  }

  /** @param {Pending} pending */
  #admit(pending) {
    const { connection, listed } = pending;
    if (!connection.isOpen) return; // it is closing, and will leave
    const { user, info, member, max } = listed;
    const isShown = this.#roster.has(user);
    const others = this.#arriving.get(user);
    if (!isShown && others === undefined && this.#isFull(max))
      return this.#refuse(pending, 'ROOM_FULL');
    const wasHere = this.#roster.isHere(user);
    this.#room.users?.join(connection, user, info, member);
    if (others !== undefined) others.add(pending);
    else if (isShown && wasHere) this.#complete(pending);
    else {
      this.#arriving.set(user, new Set([pending]));
      if (isShown) this.#arriveRecorded(user);
    }
  }

  /** @param {number} max users of the room */
  #isFull(max) {
    let free = max - this.#roster.size;
    if (this.#arriving.size < free) return false;
    for (const user of this.#arriving.keys()) if (!this.#roster.has(user)) free--;
    return free <= 0;
  }

  /** @param {string} user in the roster through another worker */
  async #arriveRecorded(user) {
    await this.parts.hub.tracker.recorded(this.name);
    // If the user left the roster meanwhile, the user's own join event follows.
    if (this.#roster.has(user)) this.#arrive(user);
  }

  /** @param {string} user in the roster, and recorded for this worker */
  #arrive(user) {
    const arriving = this.#arriving.get(user) ?? [];
    // A join may wait for a read. Joins that arrive meanwhile are completed separately.
    this.#arriving.delete(user);
    for (const pending of arriving) this.#complete(pending);
  }

  /**
   * Enters in a later turn, because the event of its user is not in the outbox yet.
   * @param {Pending} pending whose user is in the roster
   */
  #complete(pending) {
    const { address } = pending.connection;
    this.parts.presenceLine.push(() => this.#enter(pending), address);
  }

  /** @param {Pending} pending */
  #enter(pending) {
    const { connection, listed, request } = pending;
    if (this.#isClosed || !connection.isOpen) return;
    if (this.#pending.get(connection) !== pending) return; // the client has left
    // The list must have the client's own user, and the event of that user must not follow.
    if (this.#roster.isWaiting(listed.user)) return this.#complete(pending);
    this.parts.hub.join(connection, this.name, {
      ...request,
      onJoined: (joined) => {
        this.#settle(pending);
        this.#told.add(connection);
        request.onJoined(joined, this.#roster.forNewMember());
      },
      onRefused: () => this.#refuse(pending, 'UNAVAILABLE'),
    });
  }

  /** @param {Pending} pending @param {Reason} code */
  #refuse(pending, code) {
    const { connection, request } = pending;
    const { hub } = this.parts;
    this.#settle(pending);
    const room = hub.rooms.get(this.name);
    if (room?.has(connection)) hub.leave(connection, room);
    if (connection.isOpen) request.onRefused(Object.assign(new Error(code), { code }));
    this.#closeIfUnused();
  }

  /** @param {Reason} code */
  #refuseAll(code) {
    for (const pending of [...this.#pending.values()]) this.#refuse(pending, code);
  }

  /** @param {Pending} pending */
  #settle(pending) {
    this.#pending.delete(pending.connection);
    const { user } = pending.listed;
    const arriving = this.#arriving.get(user);
    if (arriving?.delete(pending) && arriving.size === 0) this.#arriving.delete(user);
    pending.settle();
  }

  /** Refuses all, because the broker or the store is unavailable. */
  #fail() {
    for (const listener of this.#listeners) listener(null);
    this.#listeners.clear();
    this.#refuseAll('UNAVAILABLE');
    this.#close();
  }

  #closeIfUnused() {
    if (this.#told.size + this.#pending.size + this.#listeners.size === 0) this.#close();
  }

  #close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#roster.close();
    this.parts.hub.unwatch(this.connection, this.#room);
    this.onClosed();
  }

  /** @param {unknown} error */
  failed(error) {
    this.parts.hub.onFailed(this.connection, error);
  }
}
