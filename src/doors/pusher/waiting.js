// waiting.js: subscriptions that the server asks for again, because what refused them passes: a
// hook has failed, too many reads wait, the address is over its rate, or a presence channel is
// full.
//
// Pusher clients send a subscription once in a connection. After `pusher:subscription_error` the
// channel stays dead until the next one, but they wait for `pusher_internal:subscription_succeeded`
// without a time limit. So the server does not answer yet, and tries again after a random time,
// which grows with each attempt. The client keeps its connection and its other channels.

/** Longest wait of the first attempt. It doubles with each later one. */
const FIRST_MS = 4000;
const LONGEST_MS = 30_000;
/** The bound of the worker. What is more is refused, and its connection closed later. */
const MAX_WAITING = 20_000;
/** The bound of one connection. */
const MAX_OF_CONNECTION = 128;
/** Attempts in one sweep. */
const MAX_PER_SWEEP = 500;

/** @import { Connection } from '../../hub/connection.js' */
/** @typedef {{dueMs: number, again: () => void}} Waiting */

export class WaitingSubscriptions {
  /** Subscriptions by connection and channel. @type {Map<Connection, Map<string, Waiting>>} */
  #waiting = new Map();
  #size = 0;

  /** @param {() => number} [random] */
  constructor(random = Math.random) {
    this.random = random;
  }

  get size() {
    return this.#size;
  }

  /**
   * Replaces one of the same channel: two attempts may have been under way together.
   * @param {Connection} connection @param {string} channel
   * @param {number} attempt from 0 @param {() => void} again asks for the subscription again
   * @returns {boolean} false: too many wait
   */
  add(connection, channel, attempt, again) {
    this.delete(connection, channel);
    const longestMs = Math.min(LONGEST_MS, FIRST_MS * 2 ** attempt);
    const dueMs = performance.now() + (0.5 + this.random() / 2) * longestMs;
    const channels = this.#waiting.get(connection) ?? new Map();
    if (this.#size >= MAX_WAITING || channels.size >= MAX_OF_CONNECTION) return false;
    this.#waiting.set(connection, channels);
    channels.set(channel, { dueMs, again });
    this.#size++;
    return true;
  }

  /** The client has left the channel, or subscribes again. @param {Connection} connection @param {string} channel */
  delete(connection, channel) {
    const channels = this.#waiting.get(connection);
    if (!channels?.delete(channel)) return;
    this.#size--;
    if (channels.size === 0) this.#waiting.delete(connection);
  }

  /** The connection is closed. @param {Connection} connection */
  forget(connection) {
    this.#size -= this.#waiting.get(connection)?.size ?? 0;
    this.#waiting.delete(connection);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    /** @type {{connection: Connection, channel: string, again: () => void}[]} */
    const due = [];
    for (const [connection, channels] of this.#waiting)
      for (const [channel, { dueMs, again }] of channels)
        if (dueMs <= nowMs && due.length < MAX_PER_SWEEP) due.push({ connection, channel, again });
    for (const { connection, channel, again } of due) {
      this.delete(connection, channel);
      if (!connection.isOpen) continue; // an attempt before it has closed the connection
      try {
        again();
      } catch (error) {
        connection.fail(error);
      }
    }
  }
}
