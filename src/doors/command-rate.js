// command-rate.js: rate of subscriptions and related commands, which a client sends all at once
// after a reconnect. All doors share it.

import { Rate } from '../admission/rate.js';

/** A longer message counts against the message limit before it is read. */
export const MAX_UNCOUNTED_BYTES = 4096;
/** Rooms that a connection subscribes to at once if the limit of rooms is not enforced. */
const UNLIMITED_ROOMS = 2500;

/** @import { Connection } from '../hub/connection.js' */
/** @import { DoorServices } from './contract.js' */

export class CommandRate {
  /** @param {Pick<DoorServices, 'config'|'counters'|'operations'>} services */
  constructor(services) {
    this.services = services;
    const { maxRoomsPerConnection: max, maxRoomsPerConnectionMode: mode } = services.config;
    const rooms = mode === 'enforce' ? max : Math.max(max, UNLIMITED_ROOMS);
    this.rate = new Rate(2 * rooms, 2 * rooms);
    const bound =
      rooms === max
        ? 'twice FANFARE_MAX_ROOMS_PER_CONNECTION'
        : 'a fixed bound where FANFARE_LIMITS does not enforce rooms';
    this.overText = `Too many subscriptions from this connection: ${this.rate.text}, ${bound}.`;
  }

  /**
   * @param {Connection} connection @param {{fullAt: number}} bucket of the connection
   * @param {number|undefined} id of the command @returns {boolean} false: it is refused
   */
  admit(connection, bucket, id) {
    const { config, counters, operations } = this.services;
    const mode = config.messagesPerMinuteMode;
    if (mode === 'off') return true;
    const now = performance.now();
    if (this.rate.has(bucket, now)) {
      this.rate.take(bucket, now);
      return true;
    }
    if (mode === 'observe') {
      counters.observed.messages++;
      return true;
    }
    // Also counts as a message, so a client that goes on is refused there, and closed.
    const over = operations.admitMessage(connection, now, 0);
    if (over !== 0) operations.replies.overRate(connection, id, over);
    else
      operations.replies.overRate(connection, id, this.rate.retryAfter(bucket, now), this.overText);
    return false;
  }

  /**
   * Counts a message of any other kind.
   * @param {Connection} connection @param {number} bytes
   * @param {number} [id] of its command @returns {boolean} false: it is refused
   */
  admitMessage(connection, bytes, id) {
    const { admitMessage, replies } = this.services.operations;
    const wait = admitMessage(connection, performance.now(), bytes);
    if (wait !== 0) replies.overRate(connection, id, wait);
    return wait === 0;
  }

  /** Charges the bytes like a message's. @param {{fullAt: number}} bucket @param {number} bytes */
  charge(bucket, bytes) {
    if (this.services.config.messagesPerMinuteMode !== 'enforce') return;
    this.rate.owe(bucket, performance.now(), this.rate.costOf(bytes));
  }
}
