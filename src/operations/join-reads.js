// join-reads.js: which reads of messages at a join are free, for every door.
//
// After a drain all clients of an address return at once, and each reads what it missed in all its
// rooms. That must not use up the rate of their address. So a connection reads once for free in
// each room, and never more often than it is in rooms. A client that joins and leaves in turns, or
// joins invented rooms, pays from the second read on: a message before it, its bytes afterwards.
// All free reads of an address have one allowance, because a connection is soon opened anew.

/** @import { Connection } from '../hub/connection.js' */

export class JoinReads {
  /**
   * @param {object} parts
   * @param {(connection: Connection, nowMs: number, bytes: number) => number} parts.admitMessage 0 if
   *   the message passes; above 0: seconds to wait; −1: close with 4005
   * @param {(connection: Connection, bytes: number) => boolean} parts.takeFreeRead takes bytes from
   *   the address's allowance; false: it is used up
   */
  constructor({ admitMessage, takeFreeRead }) {
    this.admitMessage = admitMessage;
    this.takeFreeRead = takeFreeRead;
  }

  /**
   * Takes the free read of a room.
   * @param {Connection} connection @param {string} room
   * @param {number} [roomCount] of the connection when it asked
   * @returns {boolean} false: it has been taken, or the connection has left rooms in which it read
   */
  take(connection, room, roomCount = connection.roomCount) {
    return connection.readFree(room, roomCount);
  }

  /**
   * The server has ended the membership, so the client's next read is free again.
   * @param {Connection} connection @param {string} room
   */
  giveBack(connection, room) {
    connection.forgetFreeRead(room);
  }

  /**
   * For doors whose joins do not count as messages: may the connection join the room and read?
   * @param {Connection} connection @param {string} room
   * @param {number} [bytes] of the message as which it counts, if it is not free
   * @returns {{isFree: boolean, wait: number}} `wait`: 0 if it may; otherwise as `admitMessage`
   */
  admit(connection, room, bytes = 0) {
    if (this.take(connection, room) && this.takeFreeRead(connection, bytes)) return FREE;
    return { isFree: false, wait: this.admitMessage(connection, performance.now(), bytes) };
  }
}

const FREE = Object.freeze({ isFree: true, wait: 0 });
