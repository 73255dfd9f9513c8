// replies.js: error replies, and closes after too many errors.

import { didYouMean } from '../../config/nearest.js';
import { ERRORS } from '../../protocol/codes.js';
import { errorOf, numberText, quoted, refusal, sizeText, toClose } from '../../protocol/refusal.js';

const NO_ROOM = `room is missing. ${ERRORS.INVALID_ROOM.message}`;
/** A connection's faults are counted over this time. */
const FAULT_PERIOD_MS = 10_000;
/** With this many malformed messages, a connection is closed with 4501. */
const MAX_MALFORMED = 3;

/** @import { Connection } from '../../hub/connection.js' */
/** @import { ErrorCode, RefusalCode } from '../../protocol/codes.js' */
/** @typedef {import('./handler.js').Id} Id */

export class Replies {
  /**
   * @param {object} parts @param {number} parts.maxRoomsPerConnection
   * @param {() => string|undefined} [parts.overRateText] why the last message was refused
   * @param {import('../../observability/counters.js').Counters} parts.counters
   * @param {{error(fields: object, text: string): void}} parts.log
   */
  constructor({ maxRoomsPerConnection, counters, log, overRateText = () => undefined }) {
    this.overRateText = overRateText;
    this.counters = counters;
    this.log = log;
    const most = numberText(maxRoomsPerConnection);
    this.roomLimitText = `Room limit reached: ${most} for a connection (FANFARE_MAX_ROOMS_PER_CONNECTION).`;
    this.malformedFaults = new FaultCounts(MAX_MALFORMED - 1);
    this.refusedJoinFaults = new FaultCounts(maxRoomsPerConnection);
  }

  /**
   * Answers a connection that will be closed next, or a command that may be repeated later.
   * @param {Connection} connection @param {import('../../protocol/refusal.js').Refusal} refused
   * @param {Id} [id]
   */
  refuse(connection, refused, id) {
    this.counters.errors[/** @type {ErrorCode} */ (errorOf(refused))]++;
    const text = connection.transport.door.encodeError(refused, id, Date.now());
    if (text !== null) connection.send(text);
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

  /**
   * @param {Connection} connection @param {Id} id @param {string} type
   * @param {Iterable<string>} known types
   */
  unknownType(connection, id, type, known) {
    const types = [...known];
    const hint = didYouMean(type, types) || `. The types are ${types.join(', ')}.`;
    this.error(connection, 'UNKNOWN_TYPE', id, `Unknown type ${quoted(type)}${hint}`);
  }

  /** @param {Connection} connection @param {Id} id @param {unknown} room as the command has it */
  invalidRoom(connection, id, room) {
    const text = room === undefined ? NO_ROOM : undefined;
    this.error(connection, 'INVALID_ROOM', id, text);
  }

  /**
   * @param {Connection} connection @param {Id} id @param {string} what @param {number} bytes
   * @param {number} max @param {string} setting
   */
  tooLarge(connection, id, what, bytes, max, setting) {
    this.error(connection, 'MESSAGE_TOO_LARGE', id, sizeText(what, bytes, max, setting));
  }

  /** @param {Connection} connection @param {Id} id */
  roomLimit(connection, id) {
    this.error(connection, 'ROOM_LIMIT', id, this.roomLimitText);
    if (this.refusedJoinFaults.isTooMany(connection))
      connection.close(toClose({ code: 'ROOM_LIMIT' }));
  }

  /**
   * @param {Connection} connection @param {Id} id @param {number} waitSeconds -1: closes
   * @param {string} [message] instead of the text about the limit that refused last
   */
  overRate(connection, id, waitSeconds, message = this.overRateText()) {
    const refused = refusal('RATE_LIMIT_EXCEEDED', message, waitSeconds);
    if (waitSeconds > 0) return this.refuse(connection, refused, id);
    this.counters.rateLimitCloses++;
    connection.close(toClose(refused));
  }

  /** @param {Connection} connection @param {unknown} error of the broker @param {Id} id */
  brokerError(connection, error, id) {
    const { code } = /** @type {{code?: string}} */ (error);
    switch (code) {
      case 'UNAVAILABLE':
      case 'OUTCOME_UNKNOWN':
      case 'IDEMPOTENCY_CONFLICT':
      case 'STATE_FULL':
        this.error(connection, code, id);
        return;
      case 'INVALID_MESSAGE_FORMAT':
        this.error(connection, code, id, /** @type {Error} */ (error).message);
        return;
    }
    this.log.error({ err: error }, 'broker failed with an unexpected error');
    this.error(connection, 'INTERNAL_ERROR', id);
  }
}

/** Counts faults of one kind. Connections without faults cost nothing. */
class FaultCounts {
  /** @param {number} max per connection in FAULT_PERIOD_MS */
  constructor(max) {
    this.max = max;
    /** @type {WeakMap<Connection, {count: number, sinceMs: number}>} */
    this.counts = new WeakMap();
  }

  /** @param {Connection} connection */
  isTooMany(connection) {
    const now = performance.now();
    let faults = this.counts.get(connection);
    if (faults === undefined || now - faults.sinceMs > FAULT_PERIOD_MS) {
      faults = { count: 0, sinceMs: now };
      this.counts.set(connection, faults);
    }
    return ++faults.count > this.max;
  }
}
