// room-users.js: which of this worker's connections are which users, in rooms with presence.
//
// A user may have several connections here and counts once: presence hears of the first and the
// last. Nothing is kept of connections in rooms without presence; a room that has none has null
// where others have a Roll.

import { encodeMember } from '../protocol/encode.js';

/** @typedef {import('./connection.js').Connection} Connection */
/** @typedef {import('./hub.js').Room} Room */

/**
 * What is asked of presence.
 * @typedef
 *   {{join(room: string, user: string, member: Buffer): void, leave(room: string, user: string): void, read(room: string): Promise<{count: number, members: Buffer[]|null}>}}
 *   Presence
 */

export class Attendance {
  /**
   * @param {object} parts
   * @param {Presence} parts.presence
   * @param {(room: string) => boolean} parts.covers does the room have presence?
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ presence, covers, counters }) {
    this.presence = presence;
    this.covers = covers;
    this.counters = counters;
  }

  /**
   * @param {Connection} connection a member of the room
   * @param {Room} room
   * @param {string} user
   * @param {Buffer|null} info JSON, copied
   */
  join(connection, room, user, info) {
    room.roll ??= new Roll(this, room.name);
    room.roll.join(connection, user, encodeMember(user, info));
  }
}

/** The users of one room. */
export class Roll {
  /**
   * @param {Attendance} attendance
   * @param {string} room
   */
  constructor(attendance, room) {
    this.attendance = attendance;
    this.room = room;
    /** @type {Map<Connection, string>} */
    this.users = new Map();
    /** How many connections each has. @type {Map<string, number>} */
    this.connections = new Map();
  }

  /**
   * @param {Connection} connection
   * @param {string} user
   * @param {Buffer} member
   */
  join(connection, user, member) {
    const { presence, counters } = this.attendance;
    // As JSON: two users that differ only in halves of surrogate pairs are the same in UTF-8.
    const key = JSON.stringify(user);
    const before = this.connections.get(key) ?? 0;
    if (before === 0) counters.presenceMembers++;
    this.users.set(connection, key);
    this.connections.set(key, before + 1);
    presence.join(this.room, key, member);
  }

  /**
   * @param {Connection} connection one that leaves the room, whether it is a user there or only
   *   watches
   */
  leave(connection) {
    const key = this.users.get(connection);
    if (key === undefined) return;
    this.users.delete(connection);
    const left = /** @type {number} */ (this.connections.get(key)) - 1;
    if (left > 0) {
      this.connections.set(key, left);
      return;
    }
    this.connections.delete(key);
    this.attendance.counters.presenceMembers--;
    this.attendance.presence.leave(this.room, key);
  }
}
