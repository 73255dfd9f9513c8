// members.js: the users in each room, with their owners: the core of the embedded presence.

import { MAX_LIST_BYTES } from '../presence.js';

/** @import { Announcements, EventCounts, PresenceSnapshot } from '../presence.js' */

/** @template O @typedef {{member: Buffer, owners: Set<O>}} Present */

/** @template O */
export class Members {
  /**
   * @param {object} parts @param {number} parts.maxMembers a room with more users is large
   * @param {Announcements} parts.announcements
   * @param {(room: string, head: Buffer, member: Buffer) => void} parts.publish an event in two
   *   parts
   * @param {(room: string, event: 'join'|'leave', user: string, member: Buffer, count: number) => void}
   *   [parts.onTransition] every first join and last leave, with the number of users after it
   */
  constructor({ maxMembers, announcements, publish, onTransition = () => {} }) {
    this.maxMembers = maxMembers;
    this.announcements = announcements;
    this.publish = publish;
    this.onTransition = onTransition;
    /** @type {EventCounts} */
    this.events = { join: 0, leave: 0, suppressed: 0 };
    /** Users by room. @type {Map<string, Map<string, Present<O>>>} */
    this.rooms = new Map();
    /** Which users each owner has, by room. @type {Map<O, Map<string, Set<string>>>} */
    this.owned = new Map();
  }

  /** @param {O} owner @param {string} room @param {string} user @param {Buffer} member kept */
  join(owner, room, user, member) {
    let rooms = this.owned.get(owner);
    if (rooms === undefined) this.owned.set(owner, (rooms = new Map()));
    const own = rooms.get(room);
    if (own === undefined) rooms.set(room, new Set([user]));
    else own.add(user);

    let users = this.rooms.get(room);
    if (users === undefined) this.rooms.set(room, (users = new Map()));
    const present = users.get(user);
    if (present !== undefined) {
      present.member = member;
      present.owners.add(owner);
      return;
    }
    users.set(user, { member, owners: new Set([owner]) });
    this.onTransition(room, 'join', user, member, users.size);
    this.#tell(room, 'join', member, users.size);
  }

  /** @param {O} owner @param {string} room @param {string} user */
  leave(owner, room, user) {
    const rooms = this.owned.get(owner);
    const own = rooms?.get(room);
    if (rooms === undefined || own === undefined || !own.delete(user)) return;
    if (own.size === 0) rooms.delete(room);
    if (rooms.size === 0) this.owned.delete(owner);
    this.#disown(owner, room, user);
  }

  /** Removes all users of an owner. @param {O} owner */
  remove(owner) {
    for (const _ of this.removal(owner));
  }

  /** Removes one user at each step. @param {O} owner @returns {Iterator<void> & Iterable<void>} */
  *removal(owner) {
    const rooms = this.owned.get(owner);
    if (rooms === undefined) return;
    this.owned.delete(owner);
    for (const [room, users] of rooms)
      for (const user of users) yield this.#disown(owner, room, user);
  }

  /** @param {string} room @param {boolean} [isCount] without a list @returns {PresenceSnapshot} */
  read(room, isCount = false) {
    const users = this.rooms.get(room);
    if (users === undefined) return { count: 0, members: [] };
    const { size: count } = users;
    if (isCount || count > this.maxMembers) return { count, members: null };
    const members = Array.from(users.values(), ({ member }) => member);
    const bytes = members.reduce((sum, { length }) => sum + length, 0);
    return { count, members: bytes > MAX_LIST_BYTES ? null : members };
  }

  /** @param {O} owner @param {string} room @param {string} user */
  #disown(owner, room, user) {
    const users = /** @type {Map<string, Present<O>>} */ (this.rooms.get(room));
    const present = /** @type {Present<O>} */ (users.get(user));
    present.owners.delete(owner);
    if (present.owners.size > 0) return;
    this.onTransition(room, 'leave', user, present.member, users.size - 1);
    this.#tell(room, 'leave', present.member, users.size);
    users.delete(user);
    if (users.size === 0) this.rooms.delete(room);
  }

  /**
   * @param {string} room @param {'join'|'leave'} event @param {Buffer} member
   * @param {number} size of the room, including this user
   */
  #tell(room, event, member, size) {
    if (size > this.maxMembers) {
      this.events.suppressed++;
      return;
    }
    this.events[event]++;
    this.publish(room, this.announcements[event], member);
  }
}
