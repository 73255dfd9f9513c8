// presence.js: the members of presence channels, as clients of this worker know them.
//
// A Pusher client gets the list of members when it subscribes, then each change, and never asks
// again. So each room has one view on this worker, which all events pass on their way to the
// sockets. A view drops events that clients know already. A subscriber gets the view as its list,
// between two flushes. So list and events match, without a record per client:
//
//   subscribe -> announced -> [view is read] -> user joins presence -> event reaches the view
//             -> subscription_succeeded with the view's members, and member of the room
//
// If the user is already in the view through another worker, the user still joins presence here
// before the success. Otherwise the other worker could announce a leave while the user is here.
//
// Each list is as long as the room, so sending the lists has a share of each turn. Later commands
// of their clients wait.
//
// The view is itself a member of the room, without a client: it keeps the room open, and each flush
// is encoded for it. It is read from the store when it opens, and again when events may have been
// lost. Clients then get the difference.

import { Clientless } from '../../hub/clientless.js';
import { Connection } from '../../hub/connection.js';
import { FORMAT } from '../../protocol/format.js';
import { appIdOf, channelOf } from './channels.js';
import { memberEventText, membersData, readMember } from './frames.js';

/** If a user's own join event takes longer, the view is read again. */
const MAX_WAIT_MS = 5000;
/** Views read again in one second. */
const MAX_READS_PER_SWEEP = 100;

/** @import { Room } from '../../hub/room.js' */
/** @import { Joined } from '../../recovery/room-joins.js' */
/** @import { ShownMember } from './frames.js' */

/**
 * A subscription to a presence channel.
 * @typedef {object} Subscription
 * @property {Connection} connection not in the room
 * @property {string} room @property {string} user @property {Buffer|null} info JSON
 * @property {Buffer} member JSON of presence
 * @property {number} max members of the channel
 * @property {number} last number of latest publications to replay
 * @property {(data: string, joined: Joined|null) => void} onJoined writes the reply, because the
 *   connection is a member now. `data`: the members, JSON; `joined` null: no history
 * @property {(reason: 'full'|'unavailable') => void} onRefused
 */

/** @typedef {{subscription: Subscription, settle: () => void}} Pending */

/** @typedef {{event: 'join'|'leave', member: ShownMember}} Change */

/**
 * Null: the broker is unavailable, and no further call comes.
 * @typedef {(isOccupied: boolean|null) => void} RoomListener
 */

/**
 * @typedef {{hub: import('../../hub/hub.js').Hub,
 *   tracker: import('../../hub/room-users.js').Tracker,
 *   broker: import('../contract.js').DoorServices['broker'],
 *   counters: import('../../observability/counters.js').Counters,
 *   presenceLine: import('../../worker/turn.js').Line<() => void>}} ViewParts
 */

export class Presence {
  /** By room. @type {Map<string, RoomView>} */
  #views = new Map();
  /** The outbox's count of dropped publications at the last sweep. */
  #overflowed = 0;
  #wasUp = true;

  /** @param {ViewParts} parts */
  constructor(parts) {
    this.parts = parts;
  }

  /** @type {import('./frames.js').OnMember} */
  onMember = (room, event, text) => this.#views.get(room)?.onEvent(event, text) ?? null;

  /**
   * @param {Subscription} subscription
   * @returns {Promise<void>|null} resolves when it is answered or its connection has left; null: it
   *   was answered at once
   */
  subscribe(subscription) {
    return this.#open(subscription.room).subscribe(subscription);
  }

  /** A connection leaves a room, or has left it. @param {string} room @param {Connection} connection */
  left(room, connection) {
    this.#views.get(room)?.left(connection);
  }

  /**
   * Calls the listener as soon as it is known whether a room has members, and at each change.
   * @param {string} room @param {RoomListener} listener
   */
  watch(room, listener) {
    this.#open(room).watch(listener);
  }

  /** @param {string} room @param {RoomListener} listener */
  unwatch(room, listener) {
    this.#views.get(room)?.unwatch(listener);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    const { broker, counters } = this.parts;
    const isUp = broker.state === 'up';
    // Events are lost while the broker is unavailable, and when the outbox overflows.
    const mayHaveLost = (isUp && !this.#wasUp) || counters.overflowed !== this.#overflowed;
    this.#wasUp = isUp;
    this.#overflowed = counters.overflowed;
    let reads = MAX_READS_PER_SWEEP;
    for (const view of this.#views.values()) {
      if (mayHaveLost) view.doubt();
      if (view.sweep(nowMs, isUp && reads > 0)) reads--;
    }
  }

  /** @param {string} room @returns {RoomView} */
  #open(room) {
    const open = this.#views.get(room);
    if (open !== undefined) return open;
    const view = new RoomView(this.parts, room, () => {
      if (this.#views.get(room) === view) this.#views.delete(room);
    });
    this.#views.set(room, view);
    view.open();
    return view;
  }
}

class RoomView extends Clientless {
  /** What clients know, by user. @type {Map<string, ShownMember>} */
  #members = new Map();
  /** Events since a read began; null: no read. @type {Change[]|null} */
  #changes = null;
  #isRead = false;
  #isDoubtful = false;
  #isClosed = false;
  /** Subscribers that have the list. @type {Set<Connection>} */
  #told = new Set();
  /** @type {Map<Connection, Pending>} */
  #pending = new Map();
  /**
   * By user: subscribers whose user is not in the view yet, or not recorded for this worker.
   * @type {Map<string, Set<Pending>>}
   */
  #arriving = new Map();
  #arrivingSinceMs = 0;
  /** @type {Set<RoomListener>} */
  #listeners = new Set();
  /** @type {Room|null} */
  #room = null;

  /** @param {ViewParts} parts @param {string} name of the room @param {() => void} onClosed */
  constructor(parts, name, onClosed) {
    super(FORMAT.PUSHER);
    this.parts = parts;
    this.name = name;
    this.onClosed = onClosed;
    this.connection = new Connection(this, '');
  }

  open() {
    const { hub } = this.parts;
    this.#room = hub.openRoom(this.name);
    this.#room.watch(1);
    hub.join(this.connection, this.name, {
      since: null,
      onJoined: () => this.#read(),
      onRefused: () => this.#fail(),
    });
  }

  /** @param {Subscription} subscription @returns {Promise<void>|null} */
  subscribe(subscription) {
    const { connection } = subscription;
    this.parts.hub.announce(connection, this.name);
    /** @type {() => void} */
    let settle = () => {};
    const answered = new Promise((resolve) => {
      settle = () => resolve(undefined);
    });
    const pending = { subscription, settle };
    this.#pending.set(connection, pending);
    if (this.#isRead) this.#admit(pending);
    return this.#pending.has(connection) ? answered : null;
  }

  /** @param {Connection} connection */
  left(connection) {
    this.#told.delete(connection);
    const pending = this.#pending.get(connection);
    if (pending !== undefined) this.#settle(pending);
    this.#closeIfUnused();
  }

  /** @param {RoomListener} listener */
  watch(listener) {
    this.#listeners.add(listener);
    if (this.#isRead) listener(this.#members.size > 0);
  }

  /** @param {RoomListener} listener */
  unwatch(listener) {
    this.#listeners.delete(listener);
    this.#closeIfUnused();
  }

  /** Reads the view again, because events may be missing. */
  doubt() {
    this.#isDoubtful = true;
  }

  /** @param {number} nowMs @param {boolean} mayRead @returns {boolean} true: it is read again */
  sweep(nowMs, mayRead) {
    // The application may have removed a subscriber from a room that native clients share.
    const room = /** @type {Room} */ (this.#room);
    if (appIdOf(this.name) === null)
      for (const connection of this.#told) if (!room.has(connection)) this.left(connection);
    if (this.#arriving.size === 0) this.#arrivingSinceMs = nowMs;
    else if (nowMs - this.#arrivingSinceMs > MAX_WAIT_MS) this.doubt();
    if (!mayRead || !this.#isDoubtful || !this.#isRead || this.#changes !== null) return false;
    this.#isDoubtful = false;
    this.#arrivingSinceMs = nowMs;
    this.#read();
    return true;
  }

  /**
   * @param {'join'|'leave'} event about to be encoded @param {string} text JSON of the member
   * @returns {ShownMember|null} null: subscribers know already
   */
  onEvent(event, text) {
    const member = readMember(text);
    if (member === null) return null;
    this.#changes?.push({ event, member });
    return this.#isRead ? this.#apply(event, member) : null;
  }

  /** @param {'join'|'leave'} event @param {ShownMember} member @returns {ShownMember|null} */
  #apply(event, member) {
    const { user } = member;
    const known = this.#members.get(user);
    if (event === 'leave') {
      // The user is on this worker, so the event is old.
      if (known === undefined || this.#isHere(user)) return null;
      this.#members.delete(user);
      this.#report();
      return known;
    }
    if (known !== undefined) return null;
    this.#members.set(user, member);
    this.#report();
    // Later, because the current flush would write to the new member, too.
    if (this.#arriving.has(user)) queueMicrotask(() => this.#arrive(user));
    return member;
  }

  /** @param {string} user */
  #isHere(user) {
    return this.#room?.users?.isHere(user) ?? false;
  }

  #report() {
    const isOccupied = this.#members.size > 0;
    for (const listener of this.#listeners) listener(isOccupied);
  }

  async #read() {
    if (this.#isClosed) return;
    /** @type {Change[]} */
    const changes = [];
    this.#changes = changes;
    /** @type {Buffer[]|null} */
    let read;
    try {
      ({ members: read } = await this.parts.tracker.read(this.name));
    } catch {
      this.#changes = null;
      if (this.#isRead) this.doubt();
      else this.#fail();
      return;
    }
    this.#changes = null;
    if (this.#isClosed) return;
    if (read === null) return this.#refuseAll('full');
    /** @type {Map<string, ShownMember>} */
    const found = new Map();
    for (const text of read) {
      const member = readMember(text.toString());
      if (member !== null) found.set(member.user, member);
    }
    for (const { event, member } of changes) {
      if (event === 'join') found.set(member.user, member);
      else found.delete(member.user);
    }
    if (this.#isRead) this.#correct(found);
    else this.#begin(found);
  }

  /** @param {Map<string, ShownMember>} found */
  #begin(found) {
    this.#members = found;
    this.#isRead = true;
    this.#report();
    for (const pending of this.#pending.values()) this.#admit(pending);
  }

  /** Sends subscribers what the events missed. @param {Map<string, ShownMember>} found */
  #correct(found) {
    // In the middle of a flush, only some subscribers have its events.
    if (this.#room?.flight != null) return this.doubt();
    for (const [user, member] of this.#members)
      if (!found.has(user)) this.#tell('leave', this.#apply('leave', member));
    for (const member of found.values()) this.#tell('join', this.#apply('join', member));
  }

  /** @param {'join'|'leave'} event @param {ShownMember|null} member null: known already */
  #tell(event, member) {
    const channel = channelOf(this.name);
    if (member === null || channel === null) return;
    const text = memberEventText(channel, event, member);
    for (const connection of this.#told) connection.send(text);
  }

  /** @param {Pending} pending */
  #admit(pending) {
    const { connection, user, info, member, max } = pending.subscription;
    const isShown = this.#members.has(user);
    const others = this.#arriving.get(user);
    if (!isShown && others === undefined && this.#isFull(max)) return this.#refuse(pending, 'full');
    const wasHere = this.#isHere(user);
    this.#room?.users?.join(connection, user, info, member);
    if (others !== undefined) others.add(pending);
    else if (isShown && wasHere) this.#complete(pending);
    else {
      this.#arriving.set(user, new Set([pending]));
      if (isShown) this.#arriveRecorded(user);
    }
  }

  /** @param {number} max members of the channel */
  #isFull(max) {
    let free = max - this.#members.size;
    if (this.#arriving.size < free) return false;
    for (const user of this.#arriving.keys()) if (!this.#members.has(user)) free--;
    return free <= 0;
  }

  /** @param {string} user in the view through another worker */
  async #arriveRecorded(user) {
    await this.parts.tracker.recorded(this.name);
    // If the user left the view meanwhile, the user's own join event follows.
    if (this.#members.has(user)) this.#arrive(user);
  }

  /** @param {string} user in the view, and recorded for this worker */
  #arrive(user) {
    const arriving = this.#arriving.get(user) ?? [];
    // A join may wait for a read. Subscribers that arrive meanwhile are completed separately.
    this.#arriving.delete(user);
    for (const pending of arriving) this.#complete(pending);
  }

  /** @param {Pending} pending whose user is in the view */
  #complete(pending) {
    const { address } = pending.subscription.connection;
    this.parts.presenceLine.push(() => this.#enter(pending), address);
  }

  /** @param {Pending} pending */
  #enter(pending) {
    const { connection, last, onJoined } = pending.subscription;
    if (this.#isClosed || !connection.isOpen) return;
    if (this.#pending.get(connection) !== pending) return; // it has left meanwhile
    this.#encodeFlight();
    this.parts.hub.join(connection, this.name, {
      since: null,
      last,
      hasOwn: true,
      onJoined: (joined) => {
        this.#encodeFlight();
        this.#settle(pending);
        this.#told.add(connection);
        onJoined(membersData(this.#members.values()), joined);
      },
      onRefused: () => this.#refuse(pending, 'unavailable'),
    });
  }

  /** A flush that has yielded skips new members, so their list must include its events. */
  #encodeFlight() {
    this.#room?.flight?.framesFor(this);
  }

  /** @param {Pending} pending @param {'full'|'unavailable'} reason */
  #refuse(pending, reason) {
    const { connection, onRefused } = pending.subscription;
    const { hub } = this.parts;
    this.#settle(pending);
    const room = hub.rooms.get(this.name);
    if (room?.has(connection)) hub.leave(connection, room);
    if (connection.isOpen) onRefused(reason);
    this.#closeIfUnused();
  }

  /** @param {'full'|'unavailable'} reason */
  #refuseAll(reason) {
    for (const pending of [...this.#pending.values()]) this.#refuse(pending, reason);
  }

  /** @param {Pending} pending */
  #settle(pending) {
    const { connection, user } = pending.subscription;
    this.#pending.delete(connection);
    const arriving = this.#arriving.get(user);
    if (arriving?.delete(pending) && arriving.size === 0) this.#arriving.delete(user);
    pending.settle();
  }

  /** Refuses all, because the broker or the store is unavailable. */
  #fail() {
    for (const listener of this.#listeners) listener(null);
    this.#listeners.clear();
    this.#refuseAll('unavailable');
    this.#close();
  }

  #closeIfUnused() {
    if (this.#told.size + this.#pending.size + this.#listeners.size === 0) this.#close();
  }

  #close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.connection.markClosed();
    const room = /** @type {Room} */ (this.#room);
    room.watch(-1);
    if (room.has(this.connection)) this.parts.hub.leave(this.connection, room);
    this.onClosed();
  }

  /** @param {unknown} error */
  failed(error) {
    this.parts.hub.onFailed(this.connection, error);
  }
}
