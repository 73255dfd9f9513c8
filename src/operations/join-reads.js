// join-reads.js: which messages a join may read, and which of them are free, for every door.
//
// After a drain all clients of an address return at once, and each reads what it missed in all its
// rooms. That must not use up the rate of their address. So a connection reads once for free in
// each room, and never more often than it is in rooms. A client that joins and leaves in turns, or
// joins invented rooms, pays from the second read on: a message before it, its bytes afterwards.
// All free reads of an address have one allowance, because a connection is soon opened anew.

/**
 * The resume window: any client gets messages after its position up to this age free of charge, and
 * a client without the right to read history gets no older ones. The drain's window is added.
 * Tunnels and network changes take less.
 */
const RESUME_WINDOW_MS = 120_000;

/** @import { Connection } from '../hub/connection.js' */
/** @import { Joined } from '../recovery/room-joins.js' */

/**
 * A read as it was admitted.
 * @typedef {object} AdmittedRead
 * @property {boolean|null} isFree null: decided when its size is known
 * @property {number} wait 0: it is admitted; otherwise as `admitMessage`
 * @property {number} cost bytes that have counted before it
 * @property {number} roomCount of the connection when it asked
 */

export class JoinReads {
  /**
   * @param {object} parts @param {{reconnectWindowMs: number}} parts.config
   * @param {(connection: Connection, nowMs: number, bytes: number) => number} parts.admitMessage 0 if
   *   the message passes; above 0: seconds to wait; −1: close with 4005
   * @param {(connection: Connection, bytes: number) => boolean} parts.takeFreeRead takes bytes from
   *   the address's allowance; false: it is used up
   * @param {(connection: Connection, bytes: number) => void} parts.charge
   */
  constructor({ config, admitMessage, takeFreeRead, charge }) {
    this.resumeWindowMs = RESUME_WINDOW_MS + config.reconnectWindowMs;
    this.admitMessage = admitMessage;
    this.takeFreeRead = takeFreeRead;
    this.charge = charge;
  }

  /**
   * The oldest message that a position may bring to a client without the right to read history. A
   * client can claim any position, and the right to join must not open the whole history.
   * @returns {number} ms since 1970, by the clock of the worker that accepted the message
   */
  get resumeFromMs() {
    return Date.now() - this.resumeWindowMs;
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
   * May the connection join the room and read?
   * @param {Connection} connection @param {string} room
   * @param {number|null} cost bytes of the message as which the read counts unless it is free; null:
   *   the join has counted as a message already
   * @returns {AdmittedRead}
   */
  admit(connection, room, cost) {
    const { roomCount } = connection;
    if (cost === null) return { isFree: null, wait: 0, cost: 0, roomCount };
    const isFree = this.take(connection, room) && this.takeFreeRead(connection, cost);
    const wait = isFree ? 0 : this.admitMessage(connection, performance.now(), cost);
    return { isFree, wait, cost, roomCount };
  }

  /**
   * Counts the messages that a join has brought against the rate, unless they are free.
   * @param {Connection} connection @param {string} room @param {Joined|null} joined
   * @param {AdmittedRead} read @returns {number} bytes that were counted
   */
  pay(connection, room, joined, read) {
    if (joined === null || joined.bytes === 0) return 0;
    if (this.#isFree(connection, room, joined, read)) return 0;
    this.charge(connection, joined.bytes);
    return joined.bytes;
  }

  /** Is a replay within the resume window? @param {Pick<Joined, 'recovered'|'acceptedMs'>} joined */
  isResumed({ recovered, acceptedMs }) {
    return recovered && acceptedMs >= this.resumeFromMs;
  }

  /**
   * @param {Connection} connection @param {string} room @param {Joined} joined
   * @param {AdmittedRead} read
   */
  #isFree(connection, room, { bytes, recovered, acceptedMs }, { isFree, cost, roomCount }) {
    if (cost > 0) return isFree === true; // the allowance had its bytes beforehand
    if (!this.isResumed({ recovered, acceptedMs })) return false;
    return (
      (isFree ?? this.take(connection, room, roomCount)) && this.takeFreeRead(connection, bytes)
    );
  }
}
