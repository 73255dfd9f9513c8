// flight.js: one flush of a room that is under way.
//
// A flight carries the frames that each member gets. Usually all members share one buffer. A resync
// is the exception: each member gets a frame of its own, with its own delay for reloading.

import { deflateFrames } from '../protocol/deflate.js';
import { encodeResync } from '../protocol/encode.js';
import { publicationFrames, textFrame } from '../protocol/frame.js';
import { epochOf, offsetOf } from '../protocol/publication.js';

/**
 * After a resync, members reload their state at one per so many ms on average, until the spread
 * reaches the window for reconnects.
 */
const RELOAD_SPACING_MS = 10;

/** @typedef {import('./connection.js').Connection} Connection */

export class Flight {
  /**
   * @param {object} parts
   * @param {Buffer} parts.frames for all members
   * @param {readonly Buffer[]} parts.publications the publications that the frames were built from
   * @param {number} parts.bytes of these publications
   * @param {readonly Connection[]} parts.members the room's own list
   * @param {((position: number) => Buffer)|null} parts.frameOf builds each member's own frame, in
   *   place of the shared frames
   */
  constructor({ frames, publications, bytes, members, frameOf }) {
    this.frames = frames;
    /**
     * The same frames for members that negotiated compression; made for the first of them.
     * @type {Buffer|null}
     */
    this.deflated = null;
    this.publications = publications;
    this.bytes = bytes;
    /** The room's own list until the flush yields, then a copy. */
    this.members = members;
    /** The member to write to next. */
    this.next = 0;
    this.isCopy = false;
    /**
     * Connections that have left since the flush began; some may be back.
     * @type {Set<Connection>|null}
     */
    this.left = null;
    this.frameOf = frameOf;
  }

  /** @returns {Buffer} the frames for members that negotiated compression */
  deflate() {
    this.deflated ??= deflateFrames(this.frames);
    return this.deflated;
  }

  /**
   * A connection leaves the room: it gets nothing more of this flight.
   * @param {Connection} connection
   */
  exclude(connection) {
    this.left ??= new Set();
    this.left.add(connection);
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
 * @param {Buffer} prefix of the room's frames
 * @param {readonly Buffer[]} publications
 * @param {number} bytes
 * @param {readonly Connection[]} members
 */
export function publicationFlight(prefix, publications, bytes, members) {
  const frames = publicationFrames(prefix, publications);
  return new Flight({ frames, publications, bytes, members, frameOf: null });
}

/**
 * @param {string} room
 * @param {Buffer} mark of kind RESYNC
 * @param {readonly Connection[]} members
 * @param {number} reloadWindowMs
 */
export function resyncFlight(room, mark, members, reloadWindowMs) {
  const offset = offsetOf(mark);
  const epoch = epochOf(mark);
  const spacingMs = Math.min(RELOAD_SPACING_MS, reloadWindowMs / members.length);
  /** @param {number} position */
  const frameOf = (position) =>
    textFrame(
      encodeResync(room, epoch, offset, Math.floor((position + Math.random()) * spacingMs)),
    );
  return new Flight({
    frames: NOTHING,
    publications: [mark],
    bytes: mark.length,
    members,
    frameOf,
  });
}

const NOTHING = Buffer.alloc(0);
