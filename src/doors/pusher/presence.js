// presence.js: the subscribers of presence channels on this worker.
//
// A Pusher client gets the list of members when it subscribes, then each change, and never asks
// again. The list is the roster of the channel's room (hub/roster.js):
//
//   subscribe -> announced -> [roster is read] -> user joins presence -> event reaches the roster
//             -> subscription_succeeded with the roster, and member of the room
//
// If the user is already in the roster through another worker, the user still joins presence here
// before the success. Otherwise the other worker could announce a leave while the user is here.
//
// Each list is as long as the room, so sending the lists has a share of each turn. Later commands
// of their clients wait.
//
// The channel is itself a member of the room, without a client, which keeps the room open.

import { Clientless } from '../../hub/clientless.js';
import { Connection } from '../../hub/connection.js';
import { Roster } from '../../hub/roster.js';
import { FORMAT } from '../../protocol/format.js';
import { appIdOf, channelOf } from '../../protocol/pusher-channels.js';
import { memberEventText, membersData, readMember } from './codec/frames.js';

/** If a user's own join event takes longer, the roster is read again. */
const MAX_WAIT_MS = 5000;
/** Rosters read again in one second. */
const MAX_READS_PER_SWEEP = 100;

/** @import { Joined } from '../../recovery/room-joins.js' */
/** @import { ShownMember } from './codec/frames.js' */

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

/**
 * Null: the broker is unavailable, and no further call comes.
 * @typedef {(isOccupied: boolean|null) => void} RoomListener
 */

/**
 * @typedef {{hub: import('../../hub/hub.js').Hub,
 *   tracker: import('../../hub/room-users.js').Tracker,
 *   broker: import('../contract.js').DoorServices['broker'],
 *   presenceLine: import('../../worker/turn.js').Line<() => void>}} PresenceParts
 */

export class PusherPresence {
  /** Channels by room. @type {Map<string, PresenceChannel>} */
  #channels = new Map();

  /** @param {PresenceParts} parts */
  constructor(parts) {
    this.parts = parts;
  }

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
    this.#channels.get(room)?.left(connection);
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
    this.#channels.get(room)?.unwatch(listener);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    let reads = this.parts.broker.state === 'up' ? MAX_READS_PER_SWEEP : 0;
    for (const channel of this.#channels.values()) if (channel.sweep(nowMs, reads > 0)) reads--;
  }

  /** @param {string} room @returns {PresenceChannel} */
  #open(room) {
    const open = this.#channels.get(room);
    if (open !== undefined) return open;
    const channel = new PresenceChannel(this.parts, room, () => {
      if (this.#channels.get(room) === channel) this.#channels.delete(room);
    });
    this.#channels.set(room, channel);
    channel.open();
    return channel;
  }
}

class PresenceChannel extends Clientless {
  #isClosed = false;
  /** Subscribers that have the list. @type {Set<Connection>} */
  #told = new Set();
  /** @type {Map<Connection, Pending>} */
  #pending = new Map();
  /**
   * Subscribers whose user is not in the roster yet, or not recorded for this worker, by user.
   * @type {Map<string, Set<Pending>>}
   */
  #arriving = new Map();
  #arrivingSinceMs = 0;
  /** @type {Set<RoomListener>} */
  #listeners = new Set();
  #room;
  #roster;

  /** @param {PresenceParts} parts @param {string} name of the room @param {() => void} onClosed */
  constructor(parts, name, onClosed) {
    super(FORMAT.PUSHER);
    this.parts = parts;
    this.name = name;
    this.onClosed = onClosed;
    this.connection = new Connection(this, '');
    const { hub } = parts;
    this.#room = hub.openRoom(name);
    this.#roster = new Roster({
      hub,
      room: this.#room,
      decode: readMember,
      onChange: (event, member) => this.#changed(event, member),
      onCorrected: (event, member) => this.#correct(event, member),
    });
  }

  open() {
    this.parts.hub.watch(this.connection, this.#room, {
      onJoined: () => this.#readMembers(),
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
    if (this.#roster.isRead) this.#admit(pending);
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
    if (this.#roster.isRead) listener(this.#roster.size > 0);
  }

  /** @param {RoomListener} listener */
  unwatch(listener) {
    this.#listeners.delete(listener);
    this.#closeIfUnused();
  }

  /** @param {number} nowMs @param {boolean} mayRead @returns {boolean} true: it is read again */
  sweep(nowMs, mayRead) {
    // The application may have removed a subscriber from a room that native clients share.
    const room = this.#room;
    if (appIdOf(this.name) === null)
      for (const connection of this.#told) if (!room.has(connection)) this.left(connection);
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
    if (result === 'large') this.#refuseAll('full');
    else if (!isFirst) return;
    else if (result === 'unavailable') this.#fail();
    else {
      this.#report();
      for (const pending of this.#pending.values()) this.#admit(pending);
    }
  }

  /** @param {'join'|'leave'} event @param {ShownMember} member */
  #changed(event, { user }) {
    this.#report();
    if (event === 'join' && this.#arriving.has(user)) this.#arrive(user);
  }

  #report() {
    const isOccupied = this.#roster.size > 0;
    for (const listener of this.#listeners) listener(isOccupied);
  }

  /** Sends subscribers what the events missed. @param {'join'|'leave'} event @param {ShownMember} member */
  #correct(event, member) {
    const channel = channelOf(this.name);
    if (channel === null) return;
    const text = memberEventText(channel, event, member);
    for (const connection of this.#told) connection.send(text);
  }

  /** @param {Pending} pending */
  #admit(pending) {
    const { connection, user, info, member, max } = pending.subscription;
    const isShown = this.#roster.has(user);
    const others = this.#arriving.get(user);
    if (!isShown && others === undefined && this.#isFull(max)) return this.#refuse(pending, 'full');
    const wasHere = this.#roster.isHere(user);
    this.#room.users?.join(connection, user, info, member);
    if (others !== undefined) others.add(pending);
    else if (isShown && wasHere) this.#complete(pending);
    else {
      this.#arriving.set(user, new Set([pending]));
      if (isShown) this.#arriveRecorded(user);
    }
  }

  /** @param {number} max members of the channel */
  #isFull(max) {
    let free = max - this.#roster.size;
    if (this.#arriving.size < free) return false;
    for (const user of this.#arriving.keys()) if (!this.#roster.has(user)) free--;
    return free <= 0;
  }

  /** @param {string} user in the roster through another worker */
  async #arriveRecorded(user) {
    await this.parts.tracker.recorded(this.name);
    // If the user left the roster meanwhile, the user's own join event follows.
    if (this.#roster.has(user)) this.#arrive(user);
  }

  /** @param {string} user in the roster, and recorded for this worker */
  #arrive(user) {
    const arriving = this.#arriving.get(user) ?? [];
    // A join may wait for a read. Subscribers that arrive meanwhile are completed separately.
    this.#arriving.delete(user);
    for (const pending of arriving) this.#complete(pending);
  }

  /**
   * Enters in a later turn, because the event of its user is not in the outbox yet.
   * @param {Pending} pending whose user is in the roster
   */
  #complete(pending) {
    const { address } = pending.subscription.connection;
    this.parts.presenceLine.push(() => this.#enter(pending), address);
  }

  /** @param {Pending} pending */
  #enter(pending) {
    const { connection, user, last, onJoined } = pending.subscription;
    if (this.#isClosed || !connection.isOpen) return;
    if (this.#pending.get(connection) !== pending) return; // the client has left
    // The list must have the client's own user, and the event of that user must not follow.
    if (this.#roster.isWaiting(user)) return this.#complete(pending);
    this.parts.hub.join(connection, this.name, {
      since: null,
      last,
      hasOwn: true,
      onJoined: (joined) => {
        this.#settle(pending);
        this.#told.add(connection);
        onJoined(membersData(this.#roster.forNewMember()), joined);
      },
      onRefused: () => this.#refuse(pending, 'unavailable'),
    });
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
    this.#roster.close();
    this.parts.hub.unwatch(this.connection, this.#room);
    this.onClosed();
  }

  /** @param {unknown} error */
  failed(error) {
    this.parts.hub.onFailed(this.connection, error);
  }
}
