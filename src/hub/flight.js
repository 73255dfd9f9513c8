// flight.js: a flush under way in one room.
//
// Usually all members with the same format share one buffer. Exceptions: a resync has a delay for
// each member; an event stream of several rooms with history has its own ids; a connection excluded
// from a message gets a copy without it.

import { deflateFrames } from '../protocol/deflate.js';
import { encodePublications, encodeWithout, FORMAT, resyncIn } from '../protocol/format.js';
import { publicationFrames } from '../protocol/frame.js';
import { epochOf, exceptOf, hasExcept, KIND, kindOf, offsetOf } from '../protocol/publication.js';
import { numberOf } from './connection.js';

/** After a resync one member reloads per this time, within the window for reconnects. */
const RELOAD_SPACING_MS = 10;

/** @import { Position } from '../protocol/position.js' */
/** @import { Connection, Transport } from './connection.js' */

/** @typedef {{readonly name: string, readonly prefix: Buffer}} NamedRoom */

/**
 * The indexes of publications that a connection does not get, ascending, by connection number.
 * @typedef {Map<number, number[]>} Omissions
 */

export class Flight {
  /**
   * @param {object} parts @param {NamedRoom} parts.room
   * @param {readonly Buffer[]} parts.publications @param {number} parts.bytes of all publications
   * @param {readonly Connection[]} parts.members the room's own list
   * @param {((position: number, transport: Transport) => Buffer)|null} parts.frameOf builds a frame
   *   for each member; null: members share frames
   * @param {Omissions|null} [parts.omissions] null: all members get all publications
   */
  constructor({ room, publications, bytes, members, frameOf, omissions = null }) {
    this.room = room;
    /** WebSocket frames of the native door. @type {Buffer|null} */
    this.native = null;
    /** The same of other formats. @type {Buffer[]|null} */
    this.others = null;
    this.publications = publications;
    this.bytes = bytes;
    /** The room's own list until the flush yields, then a copy. */
    this.members = members;
    this.next = 0;
    this.spentMs = 0;
    this.isCopy = false;
    /** Members that left since the flush began; some may be back. @type {Set<Connection>|null} */
    this.left = null;
    this.frameOf = frameOf;
    this.omissions = omissions;
    /** `start`, once it was asked for. @type {Position|null|undefined} */
    this.before = undefined;
    /** Has it publications without a position? Set when needed. @type {boolean|undefined} */
    this.mayHaveOthers = undefined;
  }

  /** WebSocket frames of the native door, built for the first member that takes them. */
  get frames() {
    this.native ??= publicationFrames(this.room.prefix, this.publications);
    return this.native;
  }

  /** The member skips this flight, so its id must not advance. @param {Transport} transport */
  rewind(transport) {
    const { start, room } = this;
    if (start !== null) withOwnId(transport, room.name, NOTHING, start.epoch, start.offset);
  }

  get isMark() {
    return this.frameOf !== null;
  }

  /** The position before this flight; null: no publication has a position. */
  get start() {
    if (this.before !== undefined) return this.before;
    const first = this.publications.find(isPositioned);
    this.before =
      first === undefined ? null : { epoch: epochOf(first), offset: offsetOf(first) - 1 };
    return this.before;
  }

  /** Empty if there is nothing in the transport's format. @param {Transport} transport */
  framesFor(transport) {
    return this.#withPosition(transport, this.#framesIn(transport.format));
  }

  /**
   * @param {Transport} transport @param {readonly number[]} omitted indexes, ascending
   * @returns {Buffer|null} null if none is left
   */
  framesWithout(transport, omitted) {
    if (omitted.length === this.publications.length) return null;
    const rest = this.#without(transport.format, omitted);
    return rest === null ? null : this.#withPosition(transport, rest);
  }

  /**
   * Publications without a position, such as presence events, for a lagging member.
   * @param {Connection} member @returns {{frames: Buffer, count: number}|null} null: none
   */
  framesWithoutPosition({ number, transport }) {
    const { publications } = this;
    this.mayHaveOthers ??= publications.some((publication) => !isPositioned(publication));
    if (!this.mayHaveOthers) return null;
    const own = this.omissions?.get(number) ?? [];
    const omitted = publications
      .map((_, i) => i)
      .filter((i) => isPositioned(publications[i]) || own.includes(i));
    const count = publications.length - omitted.length;
    if (count === 0) return null;
    const frames = this.#without(transport.format, omitted);
    return frames === null ? null : { frames, count };
  }

  /** Adds the stream's id if it has its own. @param {Transport} transport @param {Buffer} frames */
  #withPosition(transport, frames) {
    if (transport.format !== FORMAT.BARE_EVENTS) return frames;
    const last = this.publications.findLast(isPositioned);
    return last === undefined
      ? frames
      : withOwnId(transport, this.room.name, frames, epochOf(last), offsetOf(last));
  }

  /** Null if nothing is left. @param {number} format @param {readonly number[]} omitted */
  #without(format, omitted) {
    const { publications } = this;
    const { prefix } = this.room;
    const encoded = { prefix, publications, frames: this.#framesIn(format) };
    const rest = encodeWithout(format, encoded, omitted);
    return rest.length === 0 ? null : rest;
  }

  /** @param {number} format */
  #framesIn(format) {
    if (format === FORMAT.FRAMES) return this.frames;
    this.others ??= [];
    this.others[format] ??= this.#encode(format);
    return this.others[format];
  }

  /** @param {number} format */
  #encode(format) {
    if (format === FORMAT.DEFLATED) return deflateFrames(this.frames);
    return encodePublications(format, this.room.prefix, this.publications);
  }

  /** The member has left and gets no more of this flight. @param {Connection} connection */
  exclude(connection) {
    this.left ??= new Set();
    this.left.add(connection);
  }

  /**
   * The connection continues for a stand-in (HubRoom.replace).
   * @param {Connection} standIn @param {Connection} connection
   * @param {number} place in the room's list. Members only move down there, so in the copy the
   *   stand-in is at this index or above
   */
  replace(standIn, connection, place) {
    if (!this.isCopy) return; // the room's own list has the connection already
    const copy = /** @type {Connection[]} */ (this.members);
    const position = copy.indexOf(standIn, Math.max(this.next, place));
    if (position >= 0) copy[position] = connection; // else it is written, or joined after the copy
  }

  /** @param {number} ms that a piece took */
  spend(ms) {
    this.spentMs += ms;
  }

  /** The flush yields. @param {number} next the member to write to next */
  suspend(next) {
    this.next = next;
    if (this.isCopy) return;
    this.members = this.members.slice();
    this.isCopy = true;
  }
}

/**
 * @param {NamedRoom} room @param {readonly Buffer[]} publications @param {number} bytes
 * @param {readonly Connection[]} members
 */
export function publicationFlight(room, publications, bytes, members) {
  const omissions = omissionsOf(publications);
  return new Flight({ room, publications, bytes, members, frameOf: null, omissions });
}

/** @param {readonly Buffer[]} publications @returns {Omissions|null} */
function omissionsOf(publications) {
  /** @type {Omissions|null} */
  let omissions = null;
  for (let i = 0; i < publications.length; i++) {
    if (!hasExcept(publications[i])) continue;
    const number = numberOf(exceptOf(publications[i]));
    if (number === 0) continue; // a connection of another worker
    omissions ??= new Map();
    const omitted = omissions.get(number);
    if (omitted === undefined) omissions.set(number, [i]);
    else omitted.push(i);
  }
  return omissions;
}

/**
 * @param {NamedRoom} room @param {Buffer} mark of kind RESYNC
 * @param {readonly Connection[]} members @param {number} reloadWindowMs
 */
export function resyncFlight(room, mark, members, reloadWindowMs) {
  const reached = { epoch: epochOf(mark), offset: offsetOf(mark) };
  const spacingMs = reloadSpreadMs(members.length, reloadWindowMs) / members.length;
  /** @type {(position: number, transport: Transport) => Buffer} */
  const frameOf = (position, transport) => {
    const afterMs = Math.floor((position + Math.random()) * spacingMs);
    return resyncFrame(room.name, transport, reached, afterMs);
  };
  return new Flight({
    room,
    publications: [mark],
    bytes: mark.length,
    members,
    frameOf,
  });
}

/** @param {number} members to reload @param {number} reloadWindowMs @returns {number} for all */
export function reloadSpreadMs(members, reloadWindowMs) {
  return Math.min(RELOAD_SPACING_MS * members, reloadWindowMs);
}

/**
 * @param {string} room @param {Transport} transport
 * @param {Position} position from which the member continues
 * @param {number} afterMs @returns {Buffer} empty if its format has none
 */
export function resyncFrame(room, transport, position, afterMs) {
  const frames = resyncIn(transport.format, room, position, afterMs);
  return withOwnId(transport, room, frames, position.epoch, position.offset);
}

/**
 * Adds the stream's own id to shared events (Transport.withPosition), if it has one.
 * @param {Transport} transport @param {string} room @param {Buffer} frames that end at the position
 * @param {string} epoch @param {number} offset
 */
export function withOwnId(transport, room, frames, epoch, offset) {
  return transport.format === FORMAT.BARE_EVENTS && transport.withPosition !== undefined
    ? transport.withPosition(room, frames, epoch, offset)
    : frames;
}

/** @param {Buffer} publication */
function isPositioned(publication) {
  return kindOf(publication) === KIND.POSITIONED;
}

const NOTHING = Buffer.alloc(0);
