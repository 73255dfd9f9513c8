// replies.js: error replies, and closes after too many errors.

import { ERRORS } from '../protocol/codes.js';
import { errorOf, refusal, toClose } from '../protocol/refusal.js';
import { refusalOfBroker } from './broker-refusal.js';
import { FaultCounts } from './fault-counts.js';

const NO_ROOM = `room is missing. ${ERRORS.INVALID_ROOM.message}`;
/** A connection is closed with 4501 after this many malformed messages. */
const MAX_MALFORMED = 3;

/** @import { Connection } from '../hub/connection.js' */
/** @import { ErrorCode, RefusalCode } from '../protocol/codes.js' */
/** The `id` of a command, which its reply repeats. @typedef {string|number|undefined} Id */

export class Replies {
  /**
   * @param {object} parts
   * @param {() => string|undefined} [parts.overRateText] why the last message was refused
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {{error(fields: object, text: string): void}} parts.log
   */
  constructor({ counters, log, overRateText = () => undefined }) {
    this.overRateText = overRateText;
    this.counters = counters;
    this.log = log;
    this.malformedFaults = new FaultCounts(MAX_MALFORMED - 1);
  }

  /**
   * Answers a connection that will be closed next, or a command that may be repeated later.
   * @param {Connection} connection @param {import('../protocol/refusal.js').Refusal} refused
   * @param {Id} [id]
   */
  refuse(connection, refused, id) {
    this.count(refused);
    const text = connection.transport.door.encodeError(refused, id, Date.now());
    if (text !== null) connection.send(text);
  }

  /**
   * Counts a refusal that the door answers by itself.
   * @param {import('../protocol/refusal.js').Refusal} refused
   */
  count(refused) {
    this.counters.errors[/** @type {ErrorCode} */ (errorOf(refused))]++;
  }

  /**
   * Answers a command, without a time to try again.
   * @param {Connection} connection @param {RefusalCode} code @param {Id} id
   * @param {string} [message] instead of the usual one
   */
  error(connection, code, id, message) {
    this.refuse(connection, refusal(code, message, 0), id);
  }

  /**
   * Answers a command with a field that is missing, not valid or above a limit. The connection
   * stays open: one that is closed for it would be lost for messages that others of its page send.
   * @param {Connection} connection @param {Id} id @param {string} message as for `error`
   */
  invalid(connection, id, message) {
    this.error(connection, 'INVALID_MESSAGE_FORMAT', id, message);
  }

  /**
   * Answers a message that is no command at all. A client that sends several does not speak the
   * protocol, and is closed.
   * @param {Connection} connection @param {Id} [id] @param {string} [message] as for `error`
   */
  malformed(connection, id, message) {
    this.error(connection, 'INVALID_MESSAGE_FORMAT', id, message);
    if (this.malformedFaults.isTooMany(connection))
      connection.close(toClose({ code: 'INVALID_MESSAGE_FORMAT' }));
  }

  /**
   * Answers a command for a room that the token does not name.
   * @param {Connection} connection @param {Id} id
   * @param {'join'|'publish'|'presence'|'history'} right
   */
  forbidden(connection, id, right) {
    const message = `The token's rooms.${right} does not name this room.`;
    this.error(connection, 'PERMISSION_DENIED', id, message);
  }

  /** @param {Connection} connection @param {Id} id @param {unknown} room as the command has it */
  invalidRoom(connection, id, room) {
    const text = room === undefined ? NO_ROOM : undefined;
    this.error(connection, 'INVALID_ROOM', id, text);
  }

  /**
   * @param {Connection} connection @param {Id} id @param {number} waitSeconds -1: closes
   * @param {string} [message] instead of the text about the limit that refused last
   */
  overRate(connection, id, waitSeconds, message) {
    const refused = this.overRateRefusal(connection, waitSeconds, message);
    if (refused !== null) this.refuse(connection, refused, id);
  }

  /**
   * @param {Connection} connection @param {number} waitSeconds -1: closes
   * @param {string} [message] instead of the text about the limit that refused last
   * @returns {import('../protocol/refusal.js').Refusal|null} null: the connection is closed
   */
  overRateRefusal(connection, waitSeconds, message = this.overRateText()) {
    const refused = refusal('RATE_LIMIT_EXCEEDED', message, waitSeconds);
    if (waitSeconds > 0) return refused;
    this.counters.rateLimitCloses++;
    connection.close(toClose(refused));
    return null;
  }

  /** @param {unknown} error of the broker */
  refusalOf(error) {
    return refusalOfBroker(error, this.log);
  }
}
