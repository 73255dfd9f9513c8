// format.js: the formats in which a connection takes publications.
//
// A flush and a replay build each format at most once, when the first connection needs it. A door
// beside the native one registers its format when it is loaded.

import { audienceMember } from './audiences.js';
import { deflateFrames } from './deflate.js';
import { encodePosition, encodeResync } from './encode.js';
import {
  COMMENT,
  eventEnd,
  eventId,
  idAlone,
  publicationEvents,
  textEvent,
} from './event-stream.js';
import { frameAround, frameEnd, publicationFrames, readHeader, textFrame } from './frame.js';
import { audienceTextOf, isRestricted } from './publication.js';

export const FORMAT = Object.freeze({
  /** WebSocket frames */ FRAMES: 0,
  /** WebSocket frames, compressed by deflate.js */ DEFLATED: 1,
  /** server-sent events; an event's id is its position */ EVENTS: 2,
  /** server-sent events without ids, because each stream adds its own */ BARE_EVENTS: 3,
  /** WebSocket frames of doors/pusher/ */ PUSHER: 4,
  /** WebSocket frames of doors/centrifugo/: JSON */ CENTRIFUGO_JSON: 5,
  /** the same: protobuf */ CENTRIFUGO_PROTOBUF: 6,
  /** streams of Centrifugo clients: lines of JSON */ CENTRIFUGO_LINES: 7,
  /** streams of Centrifugo clients: server-sent events */ CENTRIFUGO_EVENTS: 8,
  /** streams of Centrifugo clients: protobuf */ CENTRIFUGO_DELIMITED: 9,
  /** publications inside one of its replies: JSON */ CENTRIFUGO_JSON_LIST: 10,
  /** the same: protobuf */ CENTRIFUGO_PROTOBUF_LIST: 11,
  /** WebSocket frames for operators, which say whom a message is for */ OPERATOR: 12,
});

/** @import { Position } from './position.js' */

/**
 * Encoders get the prefix of a room (`roomOf` in frame.js reads its name). A room keeps the same
 * buffer while it is open, so encoders may keep what they derive from it in a WeakMap.
 * @typedef {object} Format
 * @property {(prefix: Buffer, publications: readonly Buffer[]) => Buffer} encode publications in
 *   order, of all kinds that the hub delivers; they are parts of shared buffers and must not be
 *   changed. Empty: members with this format get nothing
 * @property {((frames: Buffer, at: number) => number)|null} endOf the end of the publication that
 *   begins at `at`; null: `encode` may leave publications out
 * @property {(room: string, position: Position, afterMs: number) => Buffer} encodeResync empty: none
 * @property {(text: string, position: Position) => Buffer} [encodeNotice] a push of encode.js that
 *   brings a member of a room with state to a position. Absent: such rooms have no such members
 * @property {(room: string, position: Position) => Buffer} [encodePosition] a member comes to a
 *   position whose message it does not get. Absent: its clients cannot be told
 * @property {boolean} [leavesAtResync] a resync ends the membership: the client joins again, from
 *   its position
 * @property {number} [replyFormat] the format of a replay inside the reply to a join. Absent: a
 *   replay follows the reply
 */

const NOTHING = Buffer.alloc(0);

/** @param {Buffer} prefix @param {readonly Buffer[]} publications */
function operatorFrames(prefix, publications) {
  return Buffer.concat(
    publications.map((publication) => {
      const frame = publicationFrames(prefix, [publication]);
      if (!isRestricted(publication)) return frame;
      const after = `${audienceMember(audienceTextOf(publication))}}`;
      return frameAround(NOTHING, frame, readHeader(frame, 0).start, frame.length - 1, after);
    }),
  );
}

/** @param {boolean} hasIds @returns {Format} */
function events(hasIds) {
  /** @type {NonNullable<Format['encodeNotice']>} */
  const encodeNotice = (text, { epoch, offset }) =>
    Buffer.from(textEvent(text, hasIds ? eventId(epoch, offset) : ''), 'latin1');
  return {
    encode: (prefix, publications) => publicationEvents(prefix, publications, hasIds),
    endOf: eventEnd,
    encodeResync: (room, position, afterMs) =>
      encodeNotice(encodeResync(room, position.epoch, position.offset, afterMs), position),
    encodeNotice,
    // Of a stream with its own ids: something to which its id can be added.
    encodePosition: (_room, { epoch, offset }) =>
      hasIds ? idAlone(eventId(epoch, offset)) : COMMENT,
  };
}

/** @type {Format} */
const FRAMES = Object.freeze({
  encode: publicationFrames,
  endOf: frameEnd,
  encodeResync: (
    /** @type {string} */ room,
    /** @type {Position} */ { epoch, offset },
    /** @type {number} */ afterMs,
  ) => textFrame(encodeResync(room, epoch, offset, afterMs)),
  encodeNotice: textFrame,
  encodePosition: (/** @type {string} */ room, /** @type {Position} */ { epoch, offset }) =>
    textFrame(encodePosition(room, epoch, offset)),
});

/** Formats by the numbers of FORMAT. @type {Format[]} */
const ROWS = [];
ROWS[FORMAT.FRAMES] = FRAMES;
ROWS[FORMAT.DEFLATED] = {
  ...FRAMES,
  encode: (prefix, publications) => deflateFrames(publicationFrames(prefix, publications)),
};
ROWS[FORMAT.OPERATOR] = { ...FRAMES, encode: operatorFrames };
ROWS[FORMAT.EVENTS] = events(true);
ROWS[FORMAT.BARE_EVENTS] = events(false);

/** @param {number} format of FORMAT @param {Format} row */
export function registerFormat(format, row) {
  ROWS[format] = row;
}

/**
 * @param {number} format of FORMAT @param {Buffer} prefix roomPrefix(room)
 * @param {readonly Buffer[]} publications in order @returns {Buffer}
 */
export function encodePublications(format, prefix, publications) {
  return ROWS[format].encode(prefix, publications);
}

/**
 * A member continues from a position, and should reload its state after `afterMs`.
 * @param {number} format @param {string} room @param {Position} position @param {number} afterMs
 */
export function resyncIn(format, room, position, afterMs) {
  return ROWS[format].encodeResync(room, position, afterMs);
}

/**
 * @param {number} format @param {string} text of a push, with ASCII only
 * @param {Position} position @returns {Buffer} empty: this format has none
 */
export function encodeNotice(format, text, position) {
  return ROWS[format].encodeNotice?.(text, position) ?? NOTHING;
}

/**
 * A member comes to a position whose message it does not get.
 * @param {number} format @param {string} room @param {Position} position
 * @returns {Buffer} empty: this format has none
 */
export function positionIn(format, room, position) {
  return ROWS[format].encodePosition?.(room, position) ?? NOTHING;
}

/** Does a resync end the membership of its receiver? @param {number} format of FORMAT */
export function leavesAtResync(format) {
  return ROWS[format].leavesAtResync === true;
}

/** @param {number} format @returns {number|undefined} see Format.replyFormat */
export function replyFormatOf(format) {
  return ROWS[format].replyFormat;
}

/** Can single publications be found in the frames? @param {number} format of FORMAT */
export function hasEnds(format) {
  return ROWS[format].endOf !== null;
}

/**
 * Leaves out some publications: copies parts of the frames if the format has ends; else encodes.
 * @param {number} format of FORMAT
 * @param {{prefix: Buffer, publications: readonly Buffer[], frames: Buffer}} encoded `publications`
 *   are read only if the format has no ends
 * @param {readonly number[]} omitted their places, from 0, ascending @returns {Buffer}
 */
export function encodeWithout(format, { prefix, publications, frames }, omitted) {
  if (frames.length === 0) return frames;
  if (hasEnds(format)) return leaveOut(format, frames, omitted);
  let next = 0;
  const rest = publications.filter((_, place) => {
    if (place !== omitted[next]) return true;
    next++;
    return false;
  });
  return encodePublications(format, prefix, rest);
}

/**
 * @param {number} format with an end of each publication
 * @param {Buffer} frames of `encodePublications`
 * @param {readonly number[]} omitted places of those to leave out, from 0, ascending
 */
export function leaveOut(format, frames, omitted) {
  const endOf = /** @type {NonNullable<Format['endOf']>} */ (ROWS[format].endOf);
  const parts = [];
  let at = 0;
  let place = 0;
  for (const one of omitted) {
    const start = at;
    for (; place < one; place++) at = endOf(frames, at);
    parts.push(frames.subarray(start, at));
    at = endOf(frames, at);
    place++;
  }
  parts.push(frames.subarray(at));
  return Buffer.concat(parts);
}
