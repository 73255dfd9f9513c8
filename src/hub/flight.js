// flight.js: one flush of a room that is under way.
//
// Usually all members of one format share one buffer. Exceptions: a resync has a delay for each
// member; a stream of events from several rooms with history has its own ids; a connection that
// does not get a message gets a copy without it.

import { deflateFrames } from '../protocol/deflate.js';
import { encodePublications, encodeWithout, FORMAT, resyncIn } from '../protocol/format.js';
import { publicationFrames } from '../protocol/frame.js';
import { epochOf, exceptOf, hasExcept, KIND, kindOf, offsetOf } from '../protocol/publication.js';
import { numberOf } from './connection.js';

/** After a resync one member reloads per this time, within the window for reconnects. */
const RELOAD_SPACING_MS = 10;

/** @import { Connection, Transport } from './connection.js' */

/**
 * Publications that some connections do not get: by connection number, their places, ascending.
 * @typedef {Map<number, number[]>} Omissions
 */

export class Flight {
  /**
   * @param {object} parts @param {{readonly name: string, readonly prefix: Buffer}} parts.room
   * @param {readonly Buffer[]} parts.publications the publications that the frames were built from
   * @param {number} parts.bytes of these publications
   * @param {readonly Connection[]} parts.members the room's own list
   * @param {((position: number, transport: Transport) => Buffer)|null} parts.frameOf builds each
   *   member's own frame, in place of the shared frames
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
    /** The time that its pieces took. */
    this.spentMs = 0;
    this.isCopy = false;
    /** Who left since the flush began; some may be back. @type {Set<Connection>|null} */
    this.left = null;
    this.frameOf = frameOf;
    this.omissions = omissions;
    /**
     * Of the last publication before this flight; undefined: not determined yet.
     * @type {import('../protocol/position.js').Position|null|undefined}
     */
    this.before = undefined;
    /** Without a position, too? Undefined: not determined yet. @type {boolean|undefined} */
    this.mayHaveOthers = undefined;
  }

  /** WebSocket frames of the native door, built for the first member that takes them. */
  get frames() {
    this.native ??= publicationFrames(this.room.prefix, this.publications);
    return this.native;
  }

  /** A member gets nothing: its stream's id stays back. @param {Transport} transport */
  rewind(transport) {
    const { start, room } = this;
    if (start !== null) withOwnId(transport, room.name, NOTHING, start.epoch, start.offset);
  }

  get isMark() {
    return this.frameOf !== null;
  }

  /**
   * The position of a member that gets nothing of this flight; null: no publication has a position.
   */
  get start() {
    if (this.before !== undefined) return this.before;
    const first = this.publications.find(isPositioned);
    this.before =
      first === undefined ? null : { epoch: epochOf(first), offset: offsetOf(first) - 1 };
    return this.before;
  }

  /**
   * For a member that does not take plain WebSocket frames.
   * @param {Transport} transport @returns {Buffer} empty if there is nothing in its format
   */
  framesFor(transport) {
    return this.#withPosition(transport, this.#framesIn(transport.format));
  }

  /**
   * @param {Transport} transport @param {readonly number[]} omitted places in the flight, ascending
   * @returns {Buffer|null} null if none is left
   */
  framesWithout(transport, omitted) {
    if (omitted.length === this.publications.length) return null;
    const rest = this.#without(transport.format, omitted);
    return rest === null ? null : this.#withPosition(transport, rest);
  }

  /**
   * The frames for a lagging member: publications without a position, such as presence events.
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

  /**
   * Adds the stream's position if the transport writes its own ids.
   * @param {Transport} transport @param {Buffer} frames
   */
  #withPosition(transport, frames) {
    if (transport.format !== FORMAT.BARE_EVENTS) return frames;
    const last = this.publications.findLast(isPositioned);
    return last === undefined
      ? frames
      : withOwnId(transport, this.room.name, frames, epochOf(last), offsetOf(last));
  }

  /**
   * @param {number} format @param {readonly number[]} omitted
   * @returns {Buffer|null} null if there is nothing in this format
   */
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

  /** It has left: nothing more of this flight. @param {Connection} connection */
  exclude(connection) {
    this.left ??= new Set();
    this.left.add(connection);
  }

  /**
   * A connection, which has not been in the room since this flush began, continues for a member.
   * @param {Connection} member @param {Connection} connection
   * @param {number} place of the member in the room's list. Members move down only, so in the copy
   *   it stands there or above; if it has joined since, at the end
   */
  replace(member, connection, place) {
    if (!this.isCopy) return; // the room's own list has changed
    const copy = /** @type {Connection[]} */ (this.members);
    const position = copy.indexOf(member, Math.max(this.next, place));
    if (position >= 0) copy[position] = connection; // else it is written, or has joined since
  }

  /** A piece of it took that long. @param {number} ms */
  spend(ms) {
    this.spentMs += ms;
  }

  /** The flush yields. @param {number} next the member to write to next */
  pause(next) {
    this.next = next;
    if (this.isCopy) return;
    this.members = this.members.slice();
    this.isCopy = true;
  }
}

/**
 * @param {{readonly name: string, readonly prefix: Buffer}} room
 * @param {readonly Buffer[]} publications @param {number} bytes
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
 * @param {{readonly name: string, readonly prefix: Buffer}} room
 * @param {Buffer} mark of kind RESYNC
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
 * @param {import('../protocol/position.js').Position} position that the member continues from
 * @param {number} afterMs @returns {Buffer} empty if its format has none
 */
export function resyncFrame(room, transport, position, afterMs) {
  const frames = resyncIn(transport.format, room, position, afterMs);
  return withOwnId(transport, room, frames, position.epoch, position.offset);
}

/**
 * Adds the id of a stream that has several rooms with history to shared events.
 * @param {Transport} transport @param {string} room @param {Buffer} frames that end at the position
 * @param {string} epoch @param {number} offset
 * @returns {Buffer} the same frames if the transport takes another format
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
