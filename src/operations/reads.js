// reads.js: clients read a room: its history, its users.
//
//   room, right -> hook onJoin -> too many waiting? -> read -> charged -> answered
//
// The waiting reads are bounded over the whole worker. One read of a room's users may answer many
// commands, and each answer walks over all users. So these answers have a share of each turn. An
// answer with history is sent at once, because its bytes would wait in memory.
//
// HTTP APIs read without this: keys have rights and rates, and places bound their requests.

const MAX_WAITING_READS = 10_000;

/** @import { Connection } from '../hub/connection.js' */
/** @import { Id } from './replies.js' */

/**
 * What a read may resolve with (UserList). `isStale`: the answer is refused. `release` is called
 * when the answer is written, refused or dropped.
 * @typedef {{isStale?: boolean, release?(): void}} Owed
 */

/**
 * @template T
 * @typedef {object} ReadRequest
 * @property {'history'|'presence'} right @property {boolean} mayRead does the client have it?
 * @property {() => Promise<T>} read
 * @property {(result: T) => number} send writes the answer, while the connection is open; returns the
 *   bytes that it is charged for
 * @property {boolean} [isOfUsers] is it an answer about a room's users?
 * @property {(error: unknown) => boolean} [refuse] the read has failed. True: the door has answered
 */

export class Reads {
  #waiting = 0;

  /**
   * @param {object} parts @param {import('./replies.js').Replies} parts.replies
   * @param {Pick<import('./joins.js').Joins, 'askFor'>} parts.joins
   * @param {(connection: Connection, bytes: number) => void} parts.charge
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {import('../worker/turn.js').Line<() => void>} parts.presenceLine
   */
  constructor({ replies, joins, charge, counters, presenceLine }) {
    this.replies = replies;
    this.joins = joins;
    this.charge = charge;
    this.counters = counters;
    this.presenceLine = presenceLine;
  }

  get isFull() {
    return this.#waiting >= MAX_WAITING_READS;
  }

  /**
   * @template T @param {Connection} connection @param {Id} id @param {string} room
   * @param {ReadRequest<T>} request
   */
  read(connection, id, room, request) {
    if (!request.mayRead) return this.replies.forbidden(connection, id, request.right);
    this.joins.askFor(connection, room, id, () => this.#wait(connection, id, request));
  }

  /**
   * @template T @param {Connection} connection @param {Id} id @param {ReadRequest<T>} request
   */
  #wait(connection, id, { read, send, isOfUsers = false, refuse }) {
    if (this.isFull) return this.#refuseRead(connection, id);
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
        const owed = /** @type {Owed|null} */ (result);
        const answer = () => {
          end(() => {
            if (!connection.isOpen) return;
            if (owed?.isStale) this.#refuseRead(connection, id);
            else this.charge(connection, send(result));
          });
          owed?.release?.();
        };
        if (isOfUsers) this.presenceLine.push(answer, connection.address);
        else answer();
      },
      (error) =>
        end(() => {
          if (!refuse?.(error)) this.replies.refuse(connection, this.replies.refusalOf(error), id);
        }),
    );
  }

  /** @param {Connection} connection @param {Id} id */
  #refuseRead(connection, id) {
    this.counters.readsRefused++;
    this.replies.error(connection, 'UNAVAILABLE', id);
  }
}
