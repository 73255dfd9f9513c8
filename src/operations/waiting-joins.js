// waiting-joins.js: joins that the server asks for again, because what refused them passes: a hook
// has failed, too many reads wait, the address is over its rate, or the room is full.
//
// Clients of some doors (DoorTexts.waitsToJoin) send a join once in a connection. A refusal is for
// good, but they wait for the answer without a time limit. So the server does not answer yet, and
// tries again after a random time, which grows with each attempt. The client keeps its connection
// and its other rooms.

import { refusal } from '../protocol/refusal.js';

/** Longest wait of the first attempt. It doubles with each later one. */
const FIRST_MS = 4000;
const LONGEST_MS = 30_000;
/** The bound of the worker. What is more is refused. */
const MAX_WAITING = 20_000;
/** The bound of one connection. */
const MAX_OF_CONNECTION = 128;
/** Attempts in one sweep. */
const MAX_PER_SWEEP = 500;
const PASSING = new Set(['RATE_LIMIT_EXCEEDED', 'HOOK_FAILED', 'READS_WAIT', 'ROOM_FULL']);

/** @import { Connection } from '../hub/connection.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @typedef {(refused: Refusal) => void} OnRefused */

/**
 * @typedef {object} Waiting
 * @property {number} dueMs @property {number} attempt from 0
 * @property {(onRefused: OnRefused) => void} join @property {OnRefused} onRefused
 * @property {boolean} isTold does the client know that the room is full?
 */

export class WaitingJoins {
  /** Those that wait, by connection and room. @type {Map<Connection, Map<string, Waiting>>} */
  #waiting = new Map();
  #size = 0;

  /**
   * @param {Pick<import('./replies.js').Replies, 'count'>} replies @param {() => number} [random]
   */
  constructor(replies, random = Math.random) {
    this.replies = replies;
    this.random = random;
  }

  get size() {
    return this.#size;
  }

  /**
   * Joins, and again while what refuses it passes.
   * @param {Connection} connection @param {string} room
   * @param {Waiting['join']} join @param {OnRefused} onRefused for good; that the room is full is
   *   told once, while the join waits
   */
  tryToJoin(connection, room, join, onRefused) {
    this.cancelJoin(connection, room);
    this.#try(connection, room, { dueMs: 0, attempt: 0, join, onRefused, isTold: false });
  }

  /** @param {Connection} connection @param {string} room @param {Waiting} waiting */
  #try(connection, room, waiting) {
    const { join, onRefused } = waiting;
    join((refused) => {
      const { code } = refused;
      if (!PASSING.has(code)) return onRefused(refused);
      if (code === 'RATE_LIMIT_EXCEEDED') this.replies.count(refused);
      if (code === 'ROOM_FULL' && !waiting.isTold) onRefused(refused);
      waiting.isTold ||= code === 'ROOM_FULL';
      if (connection.isOpen && !this.#postpone(connection, room, waiting))
        onRefused(refusal('UNAVAILABLE'));
    });
  }

  /**
   * Replaces one of the same room: two attempts may have been under way together.
   * @param {Connection} connection @param {string} room @param {Waiting} waiting
   * @returns {boolean} false: too many wait
   */
  #postpone(connection, room, waiting) {
    this.cancelJoin(connection, room);
    const longestMs = Math.min(LONGEST_MS, FIRST_MS * 2 ** waiting.attempt++);
    waiting.dueMs = performance.now() + (0.5 + this.random() / 2) * longestMs;
    const rooms = this.#waiting.get(connection) ?? new Map();
    if (this.#size >= MAX_WAITING || rooms.size >= MAX_OF_CONNECTION) return false;
    this.#waiting.set(connection, rooms);
    rooms.set(room, waiting);
    this.#size++;
    return true;
  }

  /** The client has left the room, or joins again. @param {Connection} connection @param {string} room */
  cancelJoin(connection, room) {
    const rooms = this.#waiting.get(connection);
    if (!rooms?.delete(room)) return;
    this.#size--;
    if (rooms.size === 0) this.#waiting.delete(connection);
  }

  /** The connection is closed. @param {Connection} connection */
  forgetConnection(connection) {
    this.#size -= this.#waiting.get(connection)?.size ?? 0;
    this.#waiting.delete(connection);
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    /** @type {{connection: Connection, room: string, waiting: Waiting}[]} */
    const due = [];
    for (const [connection, rooms] of this.#waiting)
      for (const [room, waiting] of rooms)
        if (waiting.dueMs <= nowMs && due.length < MAX_PER_SWEEP)
          due.push({ connection, room, waiting });
    for (const { connection, room, waiting } of due) {
      this.cancelJoin(connection, room);
      if (!connection.isOpen) continue; // an attempt before it has closed the connection
      try {
        this.#try(connection, room, waiting);
      } catch (error) {
        connection.fail(error);
      }
    }
  }
}
