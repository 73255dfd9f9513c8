// frame.js: WebSocket frames of the native protocol, built once, shared and never modified.
//
// A server's frames are unmasked (RFC 6455 5.1), and never fragmented: a header of 2, 4 or 10
// bytes, then the text. Frames of one flush share a buffer: each receiver gets them in one write.

import { wireName } from './app-names.js';
import {
  epochOf,
  eventOf,
  hasKey,
  KIND,
  keyBytes,
  kindOf,
  offsetOf,
  payloadEnd,
  payloadStart,
  senderOf,
  timestampOf,
  writeKey,
} from './publication.js';

export const FIN_TEXT = 0x81; // RFC 6455 5.2: FIN, opcode 1
const FIN_CLOSE = 0x88;
const FIN_PONG = 0x8a;
const MAX_HEADER_BYTES = 10;
/** The bytes of a room's prefix before and after the name. */
const ROOM_START = '{"type":"message","room":"'.length;
const ROOM_END = '","payload":'.length;
const BROADCAST_PREFIX = Buffer.from('{"type":"broadcast","payload":');

/** A ping without a body (RFC 6455 5.5.2). */
export const PING_FRAME = Buffer.from([0x89, 0]);

/** Rooms of apps: their prefix has a bare name. @type {WeakMap<Buffer, string>} */
const roomsOfApps = new WeakMap();

/** `{"type":"message","room":"…","payload":`, for all frames. @param {string} room */
export function roomPrefix(room) {
  const name = wireName(room);
  const prefix = Buffer.from(`{"type":"message","room":"${name}","payload":`, 'latin1');
  if (name !== room) roomsOfApps.set(prefix, room);
  return prefix;
}

/** @param {Buffer} prefix the same object as from roomPrefix @returns {string} the room */
export function roomOfPrefix(prefix) {
  return roomsOfApps.get(prefix) ?? prefix.toString('latin1', ROOM_START, prefix.length - ROOM_END);
}

/** @param {string} text @returns {Buffer} one text frame */
export function textFrame(text) {
  const length = Buffer.byteLength(text);
  const frame = Buffer.allocUnsafe(headerBytes(length) + length);
  const at = writeHeader(frame, 0, length);
  // If the UTF-8 is as long as the string, it is ASCII, and latin1 is cheaper.
  if (length === text.length) frame.write(text, at, 'latin1');
  else frame.write(text, at);
  return frame;
}

/**
 * One text frame around bytes that are already JSON. @param {Buffer} before @param {Buffer} source
 * @param {number} start @param {number} end @param {string} after @returns {Buffer}
 */
export function frameAround(before, source, start, end, after) {
  const frame = Buffer.allocUnsafe(
    MAX_HEADER_BYTES + before.length + (end - start) + 3 * after.length,
  );
  return frame.subarray(0, writeFrameAround(frame, before, source, start, end, after));
}

/**
 * @param {Buffer} target @param {Buffer} before @param {Buffer} source @param {number} start
 * @param {number} end @param {string} after
 * @returns {number} the size of the frame; 0 if it might not fit
 */
export function writeFrameAround(target, before, source, start, end, after) {
  const afterBytes = after.length === 1 ? 1 : Buffer.byteLength(after);
  const length = before.length + (end - start) + afterBytes;
  if (length + MAX_HEADER_BYTES > target.length) return 0;
  let at = copyShort(before, 0, before.length, target, writeHeader(target, 0, length));
  if (end - start <= SHORT_BYTES) at = copyShort(source, start, end, target, at);
  else at += source.copy(target, at, start, end);
  if (after.length === 1) target[at] = after.charCodeAt(0);
  else target.write(after, at);
  return at + afterBytes;
}

/** Up to about this size a loop is cheaper than a call to copy. */
const SHORT_BYTES = 192;

/**
 * @param {Buffer} source @param {number} start @param {number} end @param {Buffer} target
 * @param {number} at @returns {number}
 */
function copyShort(source, start, end, target, at) {
  for (let i = start; i < end; i++) target[at++] = source[i];
  return at;
}

/** @param {Buffer} body at most 125 bytes (RFC 6455 5.5) */
export function pongFrame(body) {
  return controlFrame(FIN_PONG, body);
}

/** @param {number} first @param {Buffer} body */
function controlFrame(first, body) {
  const frame = Buffer.allocUnsafe(2 + body.length);
  frame[0] = first;
  frame[1] = body.length;
  frame.set(body, 2);
  return frame;
}

/** @param {number} [code] none: the frame has no body @param {string|Buffer} [reason] */
export function closeFrame(code, reason = '') {
  if (code === undefined) return closeFrameOf(Buffer.alloc(0));
  const text = Buffer.from(reason);
  const body = Buffer.alloc(2 + text.length);
  body.writeUInt16BE(code);
  body.set(text, 2);
  return closeFrameOf(body);
}

/** @param {Buffer} body at most 125 bytes (RFC 6455 5.5) */
export function closeFrameOf(body) {
  return controlFrame(FIN_CLOSE, body);
}

/**
 * The frames of publications to one room, in one buffer.
 * @param {Buffer} prefix roomPrefix(room) @param {readonly Buffer[]} publications in order
 */
export function publicationFrames(prefix, publications) {
  const frames = Buffer.allocUnsafe(framesBytes(prefix, publications));
  let at = 0;
  for (let i = 0; i < publications.length; i++) {
    at = writeHeader(frames, at, textBytes(prefix, publications[i]));
    at = writePublicationText(frames, at, prefix, publications[i]);
  }
  return frames;
}

// A presence event shares the middle of a room's prefix, `,"room":"…"`.
const PRESENCE_PREFIX = Buffer.from('{"type":"presence"');
const MESSAGE_PREFIX_BYTES = '{"type":"message"'.length;
const PAYLOAD_NAME_BYTES = ',"payload":'.length;
const EVENT_PREFIX = Object.freeze({
  join: Buffer.from(',"event":"join","member":'),
  leave: Buffer.from(',"event":"leave","member":'),
  count: Buffer.from(',"event":"count","count":'),
});

/** @param {Buffer} prefix @param {Buffer} publication @param {number} payload its size */
function presenceBytes(prefix, publication, payload) {
  const room = prefix.length - MESSAGE_PREFIX_BYTES - PAYLOAD_NAME_BYTES;
  return PRESENCE_PREFIX.length + room + EVENT_PREFIX[eventOf(publication)].length + payload + 1;
}

/**
 * @param {Buffer} frames @param {number} start @param {Buffer} prefix @param {Buffer} publication
 */
function writePresence(frames, start, prefix, publication) {
  let at = start + PRESENCE_PREFIX.copy(frames, start);
  at += prefix.copy(frames, at, MESSAGE_PREFIX_BYTES, prefix.length - PAYLOAD_NAME_BYTES);
  at += EVENT_PREFIX[eventOf(publication)].copy(frames, at);
  at += publication.copy(frames, at, payloadStart(publication));
  frames[at] = 0x7d; // }
  return at + 1;
}

/** @param {Buffer} prefix @param {readonly Buffer[]} publications */
export function framesBytes(prefix, publications) {
  let total = 0;
  for (let i = 0; i < publications.length; i++) {
    const length = textBytes(prefix, publications[i]);
    total += headerBytes(length) + length;
  }
  return total;
}

// `,"from":"` + sender + `","timestamp":` + digits + `}`
const SUFFIX_BYTES = 9 + 14 + 1;
// `,"offset":` + digits + `,"epoch":"` + 16 characters + `"`
const POSITION_TEXT_BYTES = 10 + 10 + 16 + 1;
// `,"key":"` + key + `"`
const KEY_HEAD = Buffer.from(',"key":"');
const KEY_TEXT_BYTES = KEY_HEAD.length + 1;

/** @param {Buffer} prefix roomPrefix(room) @param {Buffer} publication */
export function textBytes(prefix, publication) {
  const kind = kindOf(publication);
  const payload = payloadEnd(publication) - payloadStart(publication);
  if (kind === KIND.PRESENCE) return presenceBytes(prefix, publication, payload);
  if (kind === KIND.BROADCAST) return BROADCAST_PREFIX.length + payload + 1;
  const bytes =
    prefix.length + payload + SUFFIX_BYTES + publication[11] + timestampDigits(publication);
  if (kind !== KIND.POSITIONED) return bytes;
  const key = hasKey(publication) ? KEY_TEXT_BYTES + keyBytes(publication) : 0;
  return bytes + POSITION_TEXT_BYTES + digits(offsetOf(publication)) + key;
}

/** @param {Buffer} publication @returns {number} digits of its time */
function timestampDigits(publication) {
  // Times of 2001 to 2286 have 13 digits, as the first two bytes show: 10^12 is 0x00e8d4a51000,
  // 10^13 is 0x09184e72a000. But a clock may be wrong.
  const first = (publication[1] << 8) | publication[2];
  return first > 0xe8 && first < 0x918 ? 13 : digits(timestampOf(publication));
}

/** @param {number} n a whole number from 0 @returns {number} digits of the number */
export function digits(n) {
  let count = 1;
  for (let power = 10; n >= power; power *= 10) count++;
  return count;
}

/**
 * @param {Buffer} frames has room for textBytes()
 * @param {number} at @param {Buffer} prefix roomPrefix(room)
 * @param {Buffer} publication @returns {number} the end of the text
 */
export function writePublicationText(frames, at, prefix, publication) {
  const kind = kindOf(publication);
  if (kind === KIND.PRESENCE) return writePresence(frames, at, prefix, publication);
  const start = payloadStart(publication);
  if (kind === KIND.BROADCAST) {
    frames.set(BROADCAST_PREFIX, at);
    at += BROADCAST_PREFIX.length;
    at += publication.copy(frames, at, start);
    frames[at] = 0x7d; // }
    return at + 1;
  }
  frames.set(prefix, at);
  at += prefix.length;
  // Sender and time follow the payload, so that the prefix is the same for all frames of a room.
  if (kind === KIND.POSITIONED) {
    at += publication.copy(frames, at, start, payloadEnd(publication));
    if (hasKey(publication)) {
      at += KEY_HEAD.copy(frames, at);
      at += writeKey(publication, frames, at);
      frames[at++] = 0x22; // "
    }
    return at + frames.write(keptSuffix(publication), at, 'latin1');
  }
  at += publication.copy(frames, at, start);
  return (
    at +
    frames.write(
      `,"from":"${senderOf(publication)}","timestamp":${timestampOf(publication)}}`,
      at,
      'latin1',
    )
  );
}

/** @param {Buffer} publication of kind POSITIONED */
function keptSuffix(publication) {
  return `,"from":"${senderOf(publication)}","timestamp":${timestampOf(publication)},"offset":${offsetOf(publication)},"epoch":"${epochOf(publication)}"}`;
}

/** @param {Buffer} frames unmasked @param {number} at start of a frame @returns {number} its end */
export function frameEnd(frames, at) {
  const { start, length } = readHeader(frames, at);
  return start + length;
}

/** @param {number} length of the body */
export function headerBytes(length) {
  return length < 126 ? 2 : length < 65_536 ? 4 : 10;
}

/**
 * @param {Buffer} frame @param {number} at @param {number} length of the body
 * @param {number} [first] its first byte: flags and opcode @returns {number} the start of the body
 */
export function writeHeader(frame, at, length, first = FIN_TEXT) {
  frame[at] = first;
  if (length < 126) {
    frame[at + 1] = length;
    return at + 2;
  }
  if (length < 65_536) {
    frame[at + 1] = 126;
    frame[at + 2] = length >>> 8;
    frame[at + 3] = length;
    return at + 4;
  }
  frame[at + 1] = 127;
  frame.writeUInt32BE(0, at + 2); // RFC 6455 5.2: 64 bits; ours need 32
  frame.writeUInt32BE(length, at + 6);
  return at + 10;
}

/**
 * @param {Buffer} frames unmasked @param {number} at start of a frame
 * @returns {{start: number, length: number}} of its body
 */
export function readHeader(frames, at) {
  const length = frames[at + 1];
  if (length < 126) return { start: at + 2, length };
  if (length === 126) return { start: at + 4, length: frames.readUInt16BE(at + 2) };
  return { start: at + 10, length: Number(frames.readBigUInt64BE(at + 2)) };
}
