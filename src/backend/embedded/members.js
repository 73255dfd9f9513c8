// members.js: the users in each room, with their owners: the core of the embedded presence.

import { MAX_LIST_BYTES } from '../presence.js';
import { Holdings } from './holdings.js';

/** @import { Announcements, EventCounts, PresenceSnapshot } from '../presence.js' */

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
    /** Members by room and user. @type {Map<string, Map<string, Buffer>>} */
    this.rooms = new Map();
    /** Which users each owner has. @type {Holdings<O, true>} */
    this.owned = new Holdings();
  }

  /** @param {O} owner @param {string} room @param {string} user @param {Buffer} member kept */
  join(owner, room, user, member) {
    const isFirst = this.owned.hold(owner, nameOfMember(room, user), true);
    let users = this.rooms.get(room);
    if (users === undefined) this.rooms.set(room, (users = new Map()));
    users.set(user, member);
    if (!isFirst) return;
    this.onTransition(room, 'join', user, member, users.size);
    this.#tell(room, 'join', member, users.size);
  }

  /** @param {O} owner @param {string} room @param {string} user */
  leave(owner, room, user) {
    if (this.owned.drop(owner, nameOfMember(room, user))) this.#remove(room, user);
  }

  /** Removes all users of an owner. @param {O} owner */
  remove(owner) {
    for (const _ of this.removal(owner));
  }

  /** Removes one user at each step. @param {O} owner @returns {Iterator<void> & Iterable<void>} */
  *removal(owner) {
    for (const name of this.owned.namesOf(owner)) {
      const roomAt = name.indexOf(' ') + 1;
      const userAt = roomAt + Number(name.slice(0, roomAt));
      yield this.leave(owner, name.slice(roomAt, userAt), name.slice(userAt));
    }
  }

  /** @param {string} room @param {boolean} [isCount] without a list @returns {PresenceSnapshot} */
  read(room, isCount = false) {
    const users = this.rooms.get(room);
    if (users === undefined) return { count: 0, members: [] };
    const { size: count } = users;
    if (isCount || count > this.maxMembers) return { count, members: null };
    const members = [...users.values()];
    const bytes = members.reduce((sum, { length }) => sum + length, 0);
    return { count, members: bytes > MAX_LIST_BYTES ? null : members };
  }

  /** No owner has the user any more. @param {string} room @param {string} user */
  #remove(room, user) {
    const users = /** @type {Map<string, Buffer>} */ (this.rooms.get(room));
    const member = /** @type {Buffer} */ (users.get(user));
    this.onTransition(room, 'leave', user, member, users.size - 1);
    this.#tell(room, 'leave', member, users.size);
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

/** The length tells where the user begins, whatever the room. @param {string} room @param {string} user */
function nameOfMember(room, user) {
  return `${room.length} ${room}${user}`;
}
