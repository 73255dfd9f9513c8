// pending-reads.js: `presence` and `history` commands that wait, bounded over the whole worker.

const MAX_WAITING_READS = 10_000;

/** @import { Connection } from '../hub/connection.js' */
/** @import { Id } from './handler.js' */

export class PendingReads {
  /**
   * @param {object} parts @param {import('./replies.js').Replies} parts.replies
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
   * @template T @param {Connection} connection @param {Id} id @param {() => Promise<T>} read
   * @param {(read: T) => {before: Buffer, text: Buffer, after: string, readBytes?: number}} reply
   *   `readBytes`: read beside the text
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
          const { before, text, after, readBytes = 0 } = reply(result);
          this.charge(connection, text.length + readBytes);
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

/** @param {unknown} limit @returns {limit is number|undefined} */
export function isLimit(limit) {
  return limit === undefined || (Number.isSafeInteger(limit) && /** @type {number} */ (limit) > 0);
}
