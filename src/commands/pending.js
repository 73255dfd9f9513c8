// pending.js: commands that wait for a read, or for their connection's join. Both kinds are bounded
// over the whole worker.

/** `presence` and `history` commands that wait for their answer. */
const MAX_WAITING_READS = 10_000;
/** Memory of commands that wait for their connection's join. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024;
/** Memory of one waiting command, without its publication. */
const COMMAND_BYTES = 512;

/** @typedef {import('../hub/connection.js').Connection} Connection */
/** @typedef {import('./handler.js').Id} Id */

/** Answers commands that read. */
export class PendingReads {
  /**
   * @param {object} parts
   * @param {import('./replies.js').Replies} parts.replies
   * @param {(connection: Connection, bytes: number) => void} parts.charge counts the bytes of an
   *   answer against the connection's rate
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ replies, charge, counters }) {
    this.replies = replies;
    this.charge = charge;
    this.counters = counters;
    this.waiting = 0;
  }

  /**
   * @template T
   * @param {Connection} connection
   * @param {Id} id
   * @param {() => Promise<T>} read
   * @param {(read: T) => {before: Buffer, text: Buffer, after: string}} reply
   */
  answer(connection, id, read, reply) {
    if (this.waiting >= MAX_WAITING_READS) {
      this.counters.readsRefused++;
      return this.replies.error(connection, 'UNAVAILABLE', id);
    }
    this.waiting++;
    read()
      .then(
        (result) => {
          this.waiting--;
          if (!connection.isOpen) return;
          const { before, text, after } = reply(result);
          this.charge(connection, text.length);
          connection.sendAround(before, text, 0, text.length, after);
        },
        (error) => {
          this.waiting--;
          this.replies.brokerError(connection, error, id);
        },
      )
      .catch((error) => connection.fail(error));
  }
}

/** Commands on a room that their connection is still joining. They take effect in order. */
export class PendingJoins {
  /**
   * @param {object} parts
   * @param {import('./replies.js').Replies} parts.replies
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ replies, counters }) {
    this.replies = replies;
    this.counters = counters;
    this.bytes = 0;
  }

  /**
   * Runs the command at once, or when the connection's join of the room has been answered. If the
   * bound is reached, the command is answered UNAVAILABLE.
   * @param {import('../hub/room.js').Room} room
   * @param {Connection} connection
   * @param {Id} id
   * @param {number} bytes that the command holds
   * @param {() => void} act
   */
  afterJoin(room, connection, id, bytes, act) {
    if (!room.isJoining(connection)) return act();
    const held = bytes + COMMAND_BYTES;
    if (this.bytes + held > MAX_WAITING_BYTES) {
      this.counters.readsRefused++;
      return this.replies.error(connection, 'UNAVAILABLE', id);
    }
    this.bytes += held;
    room.afterJoin(connection, () => {
      this.bytes -= held;
      act();
    });
  }
}

/**
 * Checks the `limit` of a command that reads.
 * @param {unknown} limit
 * @returns {limit is number|undefined}
 */
export function isLimit(limit) {
  return limit === undefined || (Number.isSafeInteger(limit) && /** @type {number} */ (limit) > 0);
}
