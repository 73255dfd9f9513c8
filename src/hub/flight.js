// flight.js: a flush under way in one room.
//
// Usually all members with the same format share one buffer. Exceptions: a resync has a delay for
// each member; an event stream of several rooms with history has its own ids; a connection excluded
// from a message gets a copy without it. Members share frames if the same messages are hidden from
// them.

import { deflateFrames } from '../protocol/deflate.js';
import { encodePublications, FORMAT, positionIn, resyncIn } from '../protocol/format.js';
import { publicationFrames } from '../protocol/frame.js';
import {
  epochOf,
  exceptOf,
  hasExcept,
  isRestricted,
  KIND,
  kindOf,
  offsetOf,
} from '../protocol/publication.js';
import { numberOf } from './connection.js';

/** After a resync one member reloads per this time, within the window for reconnects. */
const RELOAD_SPACING_MS = 10;

/** @import { Audiences } from '../protocol/audiences.js' */
/** @import { Position } from '../protocol/position.js' */
/** @import { Connection, Transport } from './connection.js' */

/** @typedef {{readonly name: string, readonly prefix: Buffer, readonly isState?: boolean}} NamedRoom */

/** @type {readonly number[]} */
const NONE = Object.freeze([]);

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
   * @param {Omissions|null} [parts.omissions] null: no member is excluded
   * @param {readonly number[]} [parts.restricted] indexes of publications with an audience
   */
  constructor({
    room,
    publications,
    bytes,
    members,
    frameOf,
    omissions = null,
    restricted = NONE,
  }) {
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
    this.restricted = restricted;
    /** Do some members get less than others? */
    this.omits = omissions !== null || restricted.length > 0;
    /** What is hidden from a set of audiences. @type {Map<Audiences, readonly number[]>|null} */
    this.hidden = null;
    /** The same lists, by their text. @type {Map<string, readonly number[]>|null} */
    this.lists = null;
    /** Frames of each format without a list. @type {Map<readonly number[], Buffer[]>|null} */
    this.rests = null;
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
   * @param {Connection} member
   * @returns {readonly number[]} indexes of the publications that it does not get, ascending
   */
  omittedFor(member) {
    const own = this.omissions?.get(member.number) ?? NONE;
    if (this.restricted.length === 0) return own;
    const hidden = this.#hiddenFrom(member.audiencesIn(this.room.name));
    if (own.length === 0) return hidden;
    return [...new Set([...own, ...hidden])].sort((a, b) => a - b);
  }

  /** @param {Audiences} audiences @returns {readonly number[]} one object for equal lists */
  #hiddenFrom(audiences) {
    this.hidden ??= new Map();
    this.lists ??= new Map();
    const known = this.hidden.get(audiences);
    if (known !== undefined) return known;
    const found = this.restricted.filter((i) => !audiences.maySee(this.publications[i]));
    const text = found.join();
    const list = found.length === 0 ? NONE : (this.lists.get(text) ?? found);
    this.lists.set(text, list);
    this.hidden.set(audiences, list);
    return list;
  }

  /**
   * @param {Transport} transport @param {readonly number[]} omitted indexes, as `omittedFor` returns
   * @returns {Buffer} empty if nothing is left
   */
  framesWithout(transport, omitted) {
    const { format } = transport;
    this.rests ??= new Map();
    let rests = this.rests.get(omitted);
    if (rests === undefined) {
      rests = [];
      this.rests.set(omitted, rests);
    }
    rests[format] ??= this.#without(format, omitted);
    return this.#withPosition(transport, rests[format]);
  }

  /**
   * Publications without a position, such as presence events, for a lagging member.
   * @param {Connection} member @returns {{frames: Buffer, count: number}|null} null: none
   */
  framesWithoutPosition(member) {
    const { publications } = this;
    this.mayHaveOthers ??= publications.some((publication) => !isPositioned(publication));
    if (!this.mayHaveOthers) return null;
    const own = this.omittedFor(member);
    const rest = publications.filter((one, i) => !isPositioned(one) && !own.includes(i));
    if (rest.length === 0) return null;
    const frames = encodePublications(member.transport.format, this.room.prefix, rest);
    return frames.length === 0 ? null : { frames, count: rest.length };
  }

  /** Adds the stream's id if it has its own. @param {Transport} transport @param {Buffer} frames */
  #withPosition(transport, frames) {
    if (transport.format !== FORMAT.BARE_EVENTS) return frames;
    const last = this.publications.findLast(isPositioned);
    return last === undefined
      ? frames
      : withOwnId(transport, this.room.name, frames, epochOf(last), offsetOf(last));
  }

  /** @param {number} format @param {readonly number[]} omitted */
  #without(format, omitted) {
    const { publications, room } = this;
    // These bytes never held what is hidden: they are not cut out of frames for others.
    const rest = publications.filter((_, i) => !omitted.includes(i));
    const frames = rest.length === 0 ? NOTHING : encodePublications(format, room.prefix, rest);
    const last = publications.findLastIndex(isPositioned);
    // Own messages have an `ack`; in a room with state, no position proves anything.
    const isBehind =
      last >= 0 && omitted.includes(last) && isRestricted(publications[last]) && !room.isState;
    if (!isBehind) return frames;
    const position = { epoch: epochOf(publications[last]), offset: offsetOf(publications[last]) };
    const notice = positionIn(format, room.name, position);
    // Events without ids get this position with the last one.
    if (format === FORMAT.BARE_EVENTS && frames.length > 0) return frames;
    return Buffer.concat([frames, notice]);
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
  const restricted = restrictedOf(publications);
  return new Flight({ room, publications, bytes, members, frameOf: null, omissions, restricted });
}

/** @param {readonly Buffer[]} publications @returns {readonly number[]} */
function restrictedOf(publications) {
  /** @type {number[]|null} */
  let found = null;
  for (let i = 0; i < publications.length; i++) {
    if (!isRestricted(publications[i])) continue;
    found ??= [];
    found.push(i);
  }
  return found ?? NONE;
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
