// connection.js: one client's open transport, as the hub knows it.
//
// A server has a hundred thousand of these, most of them idle, so they are small: the id is built
// when it is first needed, the Map of rooms (170 bytes) when the second room is joined. Other files
// change fields through methods only.

import { randomBytes } from 'node:crypto';
import { audiencesOf, NO_AUDIENCES } from '../protocol/audiences.js';
import { CLOSES } from '../protocol/codes.js';
import { ANONYMOUS } from './anonymous.js';

/** @import { Session } from '../auth/session.js' */
/** @import { Audiences } from '../protocol/audiences.js' */
/** @import { DoorTexts } from '../protocol/door-texts.js' */

/**
 * The wire of a connection, as the hub uses it. When the kernel does not take bytes, the transport
 * asks SlowConsumers.queue whether they may wait. If not, it drops them: the connection is closed.
 * @typedef {object} Transport
 * @property {number} pendingBytes bytes handed over that the kernel has not taken yet
 * @property {number} format of the frames it takes, from protocol/format.js
 * @property {DoorTexts} door the client's
 * @property {(act: () => void) => void} whenDrained calls back when the kernel has taken all bytes
 *   waiting now; perhaps never if the connection ends first
 * @property {(frames: Buffer) => void} write whole frames; the buffer is shared and must not be
 *   modified
 * @property {(code: number, reason: string) => void} close
 * @property {() => void} terminate closes at once and sends nothing more
 * @property {(error: unknown) => void} failed counts and logs an error of Connection.fail
 * @property {() => void} ping asks the peer for a sign of life
 * @property {(text: string) => void} sendText sends one reply or push in this wire's format
 * @property {(message: Buffer) => void} [sendBytes] the same for a door that hands over bytes
 * @property {(reconnectAfterMs: number) => boolean} sendShutdown tells the client when to return; a
 *   close follows. False: its door has no such notice
 * @property {(before: Buffer, source: Buffer, start: number, end: number, after: string) => void}
 *   sendAround sends `before + source.toString('utf8', start, end) + after` as one text, without
 *   building the string; `source` is not used after the call
 * @property
 *   {(room: string, events: Buffer, epoch: string, offset: number) => Buffer} [withPosition]
 *   only for BARE_EVENTS: adds this stream's own id to events of a room that end at this position
 */

/**
 * A room as its connections know it. The hub finds the room itself by its name.
 * @typedef {{readonly name: string, readonly sync: object|null, readonly users: object|null,
 *   review?: (connection: Connection) => void}} JoinedRoom `sync` null: the room has no history;
 *   `users` null: it has no presence; `review`: the connection holds other audiences there
 */

/** Rooms without a membership for which it keeps what onJoin gave. */
const MAX_OTHERS = 64;
const PREFIX = randomBytes(6).toString('base64url');
let count = 0;

/** @param {string} id of any connection @returns {number} 0: it is of another process */
export function numberOf(id) {
  return id.startsWith(PREFIX) ? Number.parseInt(id.slice(PREFIX.length), 36) || 0 : 0;
}

export class Connection {
  /** @param {Transport} transport @param {string} address as admission resolved it */
  constructor(transport, address) {
    this.transport = transport;
    this.address = address;
    /** Counts up over the process, from 1. */
    this.number = ++count;
    /** The second of performance.now() at which it was opened. */
    this.openedS = Math.floor(performance.now() / 1000);
    this.isOpen = true;
    /** Has the peer sent anything since the last ping? */
    this.isAlive = true;
    /** Has the client sent `hello`? Then it knows the protocol, and may get pushes. */
    this.isGreeted = false;
    /** Position in the hub's list of all connections; -1: not in the list. */
    this.index = -1;
    /** One of its rooms. @type {JoinedRoom|null} */
    this.room = null;
    /** The connection's position in that room's members. */
    this.position = 0;
    /** The other rooms, with positions; null: none yet. @type {Map<JoinedRoom, number>|null} */
    this.otherRooms = null;
    /** The number of rooms in which it lags (recovery/lagging-members.js). */
    this.lags = 0;
    this._id = '';
    /** The user and the rights. @type {Session|typeof ANONYMOUS} */
    this.session = ANONYMOUS;
    /** Must it authenticate first? Until then it is not in the hub. */
    this.isHeld = false;
    /** The second of performance.now() at which it reaches its maximum age; 0: never. */
    this.endsS = 0;
    /** The rate limiter's token buckets of this connection. @type {any} */
    this.rate = null;
    /**
     * Rooms in which it has read for free when it joined (operations/join-reads.js).
     * @type {string|Set<string>|null}
     */
    this.freeReads = null;
    /** What onJoin or the HTTP API gave in addition to the token, by room. @type {Map<string, Audiences>|null} */
    this.given = null;
  }

  /** What it holds in a room now. Without a user it holds none. @param {string} room @returns {Audiences} */
  audiencesIn(room) {
    const { session, given } = this;
    if (session.isAnonymous) return NO_AUDIENCES;
    const own = session.audiencesIn(room);
    const more = given?.get(room);
    return more === undefined ? own : own.with(more);
  }

  /** @param {string} room @param {readonly string[]} names instead of those given before */
  giveAudiences(room, names) {
    if (names.length === 0 && !this.given?.has(room)) return;
    this.#change(() => {
      this.given ??= new Map();
      this.given.delete(room);
      if (names.length > 0) this.given.set(room, audiencesOf(names));
      // Early joins enter all their rooms at the end (operations/early-joins.js).
      const isBounded = this.index >= 0;
      if (isBounded && this.given.size > this.roomCount + MAX_OTHERS) this.#forgetGiven();
    });
  }

  /** The connection leaves the room. @param {string} room */
  withdrawAudiences(room) {
    this.given?.delete(room);
  }

  /** Forgets what it was given in rooms of which it has only read the history. */
  #forgetGiven() {
    const names = new Set(this.listRooms().map(({ name }) => name));
    let rest = MAX_OTHERS / 2;
    for (const room of this.given?.keys() ?? [])
      if (!names.has(room) && rest-- > 0) this.given?.delete(room);
  }

  /** Rooms with state show the connection what it may see now. @param {() => void} act */
  #change(act) {
    if (this.roomCount === 0) return act();
    const rooms = this.listRooms();
    const before = rooms.map(({ name }) => this.audiencesIn(name).text);
    act();
    for (const [index, room] of rooms.entries())
      if (this.audiencesIn(room.name).text !== before[index]) room.review?.(this);
  }

  /**
   * Marks a room as read for free, once, and in no more rooms than the connection is in.
   * @param {string} room @param {number} roomCount of the connection when it asked
   * @returns {boolean} false: the read is not free
   */
  readFree(room, roomCount) {
    const { freeReads } = this;
    if (freeReads === null) this.freeReads = room;
    else if (typeof freeReads === 'string') {
      if (freeReads === room || roomCount < 1) return false;
      this.freeReads = new Set([freeReads, room]);
    } else {
      if (freeReads.has(room) || roomCount < freeReads.size) return false;
      freeReads.add(room);
    }
    return true;
  }

  /** The next read of the room may be free again. @param {string} room */
  forgetFreeRead(room) {
    if (this.freeReads === room) this.freeReads = null;
    else if (typeof this.freeReads !== 'string') this.freeReads?.delete(room);
  }

  /** Unique across all servers: a random prefix of the process, then `number`. ASCII, JSON-safe. */
  get id() {
    if (this._id === '') this._id = PREFIX + this.number.toString(36);
    return this._id;
  }

  /** @param {JoinedRoom} room */
  isIn(room) {
    return this.room === room || (this.otherRooms?.has(room) ?? false);
  }

  /** @param {JoinedRoom} room one it is in @returns {number} in the room's list of members */
  positionIn(room) {
    if (this.room === room) return this.position;
    return /** @type {number} */ (this.otherRooms?.get(room));
  }

  /** Adds the room, or updates its position. @param {JoinedRoom} room @param {number} position */
  setPosition(room, position) {
    if (this.room === room || (this.room === null && !this.otherRooms?.has(room))) {
      this.room = room;
      this.position = position;
    } else {
      this.otherRooms ??= new Map();
      this.otherRooms.set(room, position);
    }
  }

  /** @param {JoinedRoom} room */
  removeRoom(room) {
    if (this.room === room) this.room = null;
    else this.otherRooms?.delete(room);
  }

  get roomCount() {
    return (this.room === null ? 0 : 1) + (this.otherRooms?.size ?? 0);
  }

  /** Returns a new array. @returns {JoinedRoom[]} */
  listRooms() {
    const first = this.room === null ? [] : [this.room];
    return this.otherRooms === null ? first : [...first, ...this.otherRooms.keys()];
  }

  beginLag() {
    this.lags++;
  }

  endLag() {
    this.lags--;
  }

  get hasHistory() {
    if (this.room !== null && this.room.sync !== null) return true;
    if (this.otherRooms === null) return false;
    for (const { sync } of this.otherRooms.keys()) if (sync !== null) return true;
    return false;
  }

  /** @param {number} index position in the hub's list; -1: the hub has removed the connection */
  setIndex(index) {
    this.index = index;
  }

  /** `from` of its publications: ASCII that can stand in JSON. */
  get sender() {
    return this.session.sender || this.id;
  }

  /** @param {Session} session the first, or a renewed one */
  beginSession(session) {
    this.#change(() => {
      this.session = session;
    });
  }

  endSession() {
    this.#change(() => {
      this.given = null;
      this.session = ANONYMOUS;
    });
  }

  hold() {
    this.isHeld = true;
  }

  letGo() {
    this.isHeld = false;
  }

  /** @param {number} endsS the second of performance.now() at which it reaches its maximum age */
  limitAge(endsS) {
    this.endsS = endsS;
  }

  greet() {
    this.isGreeted = true;
  }

  markAlive() {
    this.isAlive = true;
  }

  ping() {
    this.isAlive = false;
    try {
      this.transport.ping();
    } catch (error) {
      this.fail(error);
    }
  }

  /** The transport is closing: send nothing from now on. */
  markClosed() {
    this.isOpen = false;
  }

  /** @param {string|Buffer} message for this connection alone, unframed; ignored after the close */
  send(message) {
    if (!this.isOpen) return;
    try {
      if (typeof message === 'string') this.transport.sendText(message);
      else this.transport.sendBytes?.(message);
    } catch (error) {
      this.fail(error);
    }
  }

  /** @type {Transport['sendAround']} */
  sendAround(before, source, start, end, after) {
    if (!this.isOpen) return;
    try {
      this.transport.sendAround(before, source, start, end, after);
    } catch (error) {
      this.fail(error);
    }
  }

  /** @type {Transport['sendShutdown']} */
  announceShutdown(reconnectAfterMs) {
    if (!this.isOpen) return true;
    try {
      return this.transport.sendShutdown(reconnectAfterMs);
    } catch (error) {
      this.fail(error);
      return true;
    }
  }

  /** @param {{code: number, reason: string}} close a row of codes.js, which the door translates */
  close(close) {
    if (!this.isOpen) return;
    this.isOpen = false;
    const { transport } = this;
    try {
      const { code, reason, notice } = transport.door.closeOf(close);
      if (typeof notice === 'string') transport.sendText(notice);
      else if (notice !== undefined) transport.sendBytes?.(notice);
      transport.close(code, reason);
    } catch (error) {
      transport.failed(error);
      transport.terminate();
    }
  }

  /**
   * Closes the connection after an error while building or sending its bytes. Code that walks many
   * connections, or continues one later, catches errors and calls this, so that they do not end the
   * worker. Errors that concern more than one connection do.
   * @param {unknown} error
   */
  fail(error) {
    if (!this.isOpen) return; // the connection is lost already, perhaps for the same reason
    this.transport.failed(error);
    this.close(CLOSES.INTERNAL);
  }
}
