// connection.js: one client's open transport, as the hub knows it.
//
// A server holds a hundred thousand of these, most of them idle: fields are few, and what only a
// speaking connection needs (its id, its rooms, its faults) comes into being when it speaks.

import { randomBytes } from 'node:crypto';

/**
 * What the hub asks of a wire. It never knows which one it is. Before bytes wait because the kernel
 * does not take them, a transport asks SlowConsumers.queue; if they may not wait, it leaves them
 * out, and the connection is closed already.
 * @typedef {object} Transport
 * @property {number} pendingBytes bytes handed over and not yet taken by the kernel
 * @property {boolean} isDeflated does it take frames compressed by protocol/deflate.js?
 * @property {(frames: Buffer) => void} write whole frames; the buffer is shared and must not be
 *   modified
 * @property {(code: number, reason: string) => void} close
 * @property {() => void} terminate at once, nothing more is sent
 * @property {() => void} ping ask for a sign of life
 * @property {(text: string) => void} sendText one reply or push in this wire's format
 * @property {(before: Buffer, source: Buffer, start: number, end: number, after: string) => void}
 *   sendAround the same around bytes that are JSON already; all of it is used up when it returns
 */

// Ids are unique over a fleet without a random number per connection: a prefix of the process, then
// a count.
const PREFIX = randomBytes(6).toString('base64url');
let count = 0;

export class Connection {
  /**
   * @param {Transport} transport
   * @param {string} address the client's, as admission resolved it: what limits count by
   */
  constructor(transport, address) {
    this.transport = transport;
    this.address = address;
    this.isOpen = true;
    /** Has anything come from the peer since the last ping? The heartbeat reads and resets it. */
    this.isAlive = true;
    /** Has it said hello? Then it speaks our protocol, and may be told things unasked. */
    this.isGreeted = false;
    /** Place in the hub's list of all connections; -1 outside it. */
    this.index = -1;
    /** Place in its slot of the heartbeat. */
    this.beatSlot = -1;
    this.beatIndex = -1;
    /**
     * Rooms it is in, and its place in each one's list of members.
     * @type {Map<import('./hub.js').Room, number>|null}
     */
    this.rooms = null;
    /** @type {string} */
    this._id = '';
    /**
     * Malformed messages and refused joins of late.
     * @type
     *   {{malformed: number, malformedSinceMs: number, refusedJoins: number, refusedJoinsSinceMs: number}|null}
     */
    this.faults = null;
    /** The rate limiter's. @type {any} */
    this.rate = null;
    /** The slow-consumer check's, while it lags. @type {import('./slow-consumers.js').Lag|null} */
    this.lag = null;
  }

  /**
   * Unique over all servers; 8 characters of the process, then a count. ASCII, no escape needed in
   * JSON.
   */
  get id() {
    if (this._id === '') this._id = PREFIX + (++count).toString(36);
    return this._id;
  }

  /** @param {string} text a reply or push to this connection alone; ignored once it closes */
  send(text) {
    if (this.isOpen) this.transport.sendText(text);
  }

  /**
   * The same as `send(before + source.toString('utf8', start, end) + after)`, without the strings.
   * @param {Buffer} before
   * @param {Buffer} source
   * @param {number} start
   * @param {number} end
   * @param {string} after
   */
  sendAround(before, source, start, end, after) {
    if (this.isOpen) this.transport.sendAround(before, source, start, end, after);
  }

  /** @param {{code: number, reason: string}} close a row of codes.js */
  close(close) {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.transport.close(close.code, close.reason);
  }
}
