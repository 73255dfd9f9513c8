// pending-reads.js: waiting `presence` and `history` commands, bounded over the whole worker.
//
// One read of a room's users may answer many commands, and each answer walks over all users. So
// these answers have a share of each turn. An answer with history is sent at once, because its
// bytes would wait in memory.

const MAX_WAITING_READS = 10_000;

/** @import { Connection } from '../hub/connection.js' */
/** @import { Id } from './replies.js' */

/**
 * What a read may resolve with (UserList). `isStale`: the answer is refused. `release` is called
 * when the answer is written, refused or dropped.
 * @typedef {{isStale?: boolean, release?(): void}} Owed
 */

export class PendingReads {
  #waiting = 0;

  /**
   * @param {object} parts @param {import('./replies.js').Replies} parts.replies
   * @param {(connection: Connection, bytes: number) => void} parts.charge
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {import('../worker/turn.js').Line<() => void>} parts.presenceLine
   */
  constructor({ replies, charge, counters, presenceLine }) {
    this.replies = replies;
    this.charge = charge;
    this.counters = counters;
    this.presenceLine = presenceLine;
  }

  /**
   * @template T @param {Connection} connection @param {Id} id @param {() => Promise<T>} read
   * @param {(read: T) => {before: Buffer, text: Buffer, after: string, readBytes?: number}} reply
   *   `readBytes`: to charge beyond the text
   * @param {boolean} [isOfUsers]
   */
  answer(connection, id, read, reply, isOfUsers) {
    /** @param {T} result */
    const send = (result) => {
      const { before, text, after, readBytes = 0 } = reply(result);
      this.charge(connection, text.length + readBytes);
      connection.sendAround(before, text, 0, text.length, after);
    };
    this.wait(connection, id, read, send, isOfUsers);
  }

  /**
   * @template T @param {Connection} connection @param {Id} id @param {() => Promise<T>} read
   * @param {(read: T) => void} send called if the connection is still open
   * @param {boolean} [isOfUsers] is it an answer about a room's users?
   * @param {(error: unknown) => void} [refuse] called if the read fails
   */
  wait(connection, id, read, send, isOfUsers = false, refuse = undefined) {
    if (this.#waiting >= MAX_WAITING_READS) return this.#refuse(connection, id);
    this.#waiting++;
    const end = (/** @type {() => void} */ act) => {
      this.#waiting--;
      try {
        act();
      } catch (error) {
        connection.fail(error);
      }
    };
    read().then(
      (result) => {
        const owed = /** @type {Owed} */ (result);
        const answer = () => {
          end(() => {
            if (!connection.isOpen) return;
            if (owed.isStale) this.#refuse(connection, id);
            else send(result);
          });
          owed.release?.();
        };
        if (isOfUsers) this.presenceLine.push(answer, connection.address);
        else answer();
      },
      (error) =>
        end(() =>
          refuse === undefined ? this.replies.brokerError(connection, error, id) : refuse(error),
        ),
    );
  }

  /** @param {Connection} connection @param {Id} id */
  #refuse(connection, id) {
    this.counters.readsRefused++;
    this.replies.error(connection, 'UNAVAILABLE', id);
  }
}

/** @param {unknown} limit @returns {limit is number|undefined} */
export function isLimit(limit) {
  return limit === undefined || (Number.isSafeInteger(limit) && /** @type {number} */ (limit) > 0);
}
