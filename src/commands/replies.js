// replies.js: error replies, and the closes that too many of them lead to.
//
// A peer's fault is an answer: a row of codes.js, counted, never thrown.

import { CLOSES } from '../protocol/codes.js';
import { encodeError } from '../protocol/encode.js';

/** The faults of a connection count over this time. */
const FAULT_PERIOD_MS = 10_000;
/** At this number of malformed messages: close 4501. */
const MAX_MALFORMED = 3;

/** @typedef {import('../hub/connection.js').Connection} Connection */
/** @typedef {import('../protocol/codes.js').ErrorCode} ErrorCode */
/** @typedef {import('./handler.js').Id} Id */

export class Replies {
  /**
   * @param {object} parts
   * @param {number} parts.maxRoomsPerConnection
   * @param {import('../observability/counters.js').Counters} parts.counters
   * @param {{error(fields: object, text: string): void}} parts.log
   */
  constructor({ maxRoomsPerConnection, counters, log }) {
    this.counters = counters;
    this.log = log;
    this.malformedFaults = new FaultCounts(MAX_MALFORMED - 1);
    this.refusedJoinFaults = new FaultCounts(maxRoomsPerConnection);
  }

  /**
   * Sends an error reply.
   * @param {Connection} connection
   * @param {ErrorCode} code
   * @param {Id} id
   * @param {number} [retryAfter] seconds
   */
  error(connection, code, id, retryAfter) {
    this.counters.errors[code]++;
    connection.send(encodeError(code, Date.now(), id, retryAfter));
  }

  /**
   * The message is no command, or lacks a field that its type needs.
   * @param {Connection} connection
   * @param {Id} [id]
   */
  malformed(connection, id) {
    this.error(connection, 'INVALID_MESSAGE_FORMAT', id);
    if (this.malformedFaults.isTooMany(connection)) connection.close(CLOSES.BAD_REQUESTS);
  }

  /**
   * The connection is in as many rooms as it may be.
   * @param {Connection} connection
   * @param {Id} id
   */
  roomLimit(connection, id) {
    this.error(connection, 'ROOM_LIMIT', id);
    if (this.refusedJoinFaults.isTooMany(connection)) connection.close(CLOSES.ROOM_LIMIT);
  }

  /**
   * The message is over its rate.
   * @param {Connection} connection
   * @param {Id} id
   * @param {number} waitSeconds below 0: the connection was refused too often
   */
  overRate(connection, id, waitSeconds) {
    if (waitSeconds > 0) {
      this.error(connection, 'RATE_LIMIT_EXCEEDED', id, waitSeconds);
      return;
    }
    this.counters.rateLimitCloses++;
    connection.close(CLOSES.RATE_LIMITED);
  }

  /**
   * The broker, or a read of it, has rejected.
   * @param {Connection} connection
   * @param {unknown} error
   * @param {Id} id
   */
  brokerError(connection, error, id) {
    const { code } = /** @type {{code?: string}} */ (error);
    if (code === 'UNAVAILABLE' || code === 'OUTCOME_UNKNOWN') {
      this.error(connection, code, id);
      return;
    }
    this.log.error({ err: error }, 'broker failed with an unexpected error');
    this.error(connection, 'INTERNAL_ERROR', id);
  }
}

/** Faults of one kind, by connection. Connections without faults cost nothing. */
class FaultCounts {
  /** @param {number} max faults of a connection within FAULT_PERIOD_MS */
  constructor(max) {
    this.max = max;
    /** @type {WeakMap<Connection, {count: number, sinceMs: number}>} */
    this.counts = new WeakMap();
  }

  /**
   * Counts a fault. Has the connection had too many?
   * @param {Connection} connection
   */
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
