// publication.js: a publication, as brokers carry it: a small binary header, then the payload as
// JSON text.
//
//   byte 0       kind: MESSAGE, BROADCAST, PRESENCE, REVOCATION, SURVEY or ANSWER; a MESSAGE may have
//                the flags EXCEPT, CLAIM and TRANSIENT, or the flag KEY alone. 7 in its place: a
//                MESSAGE with an audience
//   bytes 1-6    time of acceptance, ms since 1970, big-endian
//   bytes 7-10   tag: a number by which the publisher's worker recognises it; 0 if unused. With the
//                flag EXCEPT: the length of that connection's id; with the flag KEY: of the key. Of
//                a MESSAGE with an audience, the first two bytes are the length of the audience
//   byte 11      length of the sender
//   then         the sender (ASCII, escaped as in JSON); the audience, if there is one (names with
//                commas between them, audiences.js); with the flag EXCEPT the id of a connection
//                that does not get the message; with the flag KEY the key (UTF-8, escaped as
//                JSON.stringify does it); then the payload (UTF-8 JSON, exactly as the client wrote
//                it)
//
// The payload stays text all the way to the clients. The payload of a CLAIM names an object in a
// bucket; each worker replaces it by a reference with a signed URL (claim.js).
//
// Other programs may publish on the same Redis, so workers check each publication with
// `isPublication`: the header, the sender's characters, and that the payload is UTF-8 and begins
// and ends like JSON. So none can break a frame, a connection or a worker. Checking the grammar in
// between would cost each worker 190 us for a string of 100 KB, and a program that may publish on
// Redis can forge any sender anyway.
//
// In a room with history, a worker keeps a copy with the position after the payload
// (`withPosition`), so that live frames and replays come from the same bytes.
//
//   last 24 bytes    the position (position.js)

import { isUtf8 } from 'node:buffer';
import { OFFSET_BYTES, POSITION_BYTES, readEpoch, readOffset, writePosition } from './position.js';

const HEADER_BYTES = 12;
// Flags of the kind. Versions that do not know a flag see an unknown kind, and drop the message.
const EXCEPT = 0x20;
const CLAIM = 0x10;
/** The room's history does not keep it (PublishOptions.isTransient). */
const TRANSIENT = 0x08;
/** The message of a key, in a room with state. */
const KEY = 0x80;
const FLAGS = EXCEPT | CLAIM | TRANSIENT | KEY;
/** Each of these flags adds a text after the sender, and the tag is its length. */
const TEXTS = EXCEPT | KEY;
/**
 * The low bits of a MESSAGE with an audience, positioned or not. Versions that know no audiences
 * see an unknown kind, and drop the message.
 */
const RESTRICTED = 0x07;
const TEXT_BYTES_MASK = 0xffff;
const MAX_EXCEPT_LENGTH = 64;
/** The longest key, in UTF-16 units. */
const MAX_KEY_LENGTH = 200;
/** A unit takes at most three bytes, and an escape is shorter. */
const MAX_KEY_BYTES = 3 * MAX_KEY_LENGTH;
const NOT_IN_KEYS = /[\p{Cc}\p{Cs}]/u;
/** The payload that removes a key. */
const NULL = Buffer.from('null');
/** The largest time that the header's six bytes hold: the year 10889. */
const MAX_TIMESTAMP_MS = 2 ** 48 - 1;

export const KIND = Object.freeze({
  MESSAGE: 1,
  BROADCAST: 2,
  PRESENCE: 3,
  /** a revocation, to workers in the room of all connections */
  REVOCATION: 4,
  /** a request of one worker to all, in the room of all connections */
  SURVEY: 5,
  /** an answer to the worker that sent a SURVEY, in a room of its own */
  ANSWER: 6,
  // Brokers never carry these two kinds.
  /** a MESSAGE with its position */ POSITIONED: 0x41,
  /** a position alone: the messages before it may not be complete */ RESYNC: 0x42,
});

/**
 * Heads of PRESENCE publications: a join, a leave, the number of connections. The tag tells them
 * apart; the member follows as JSON, or the number.
 */
export const ANNOUNCEMENTS = Object.freeze({
  join: announcement(1),
  leave: announcement(2),
  count: announcement(3),
});

/** @param {number} tag */
function announcement(tag) {
  return encodePublication(KIND.PRESENCE, 0, tag, '', Buffer.alloc(0), 0, 0);
}

/** Flag of the tag of a PRESENCE publication. Brokers never carry it. */
const ROSTER_CHANGE = 4;

/** @param {Buffer} publication of kind PRESENCE @returns {'join'|'leave'|'count'} */
export function eventOf(publication) {
  const event = tagOf(publication) & ~ROSTER_CHANGE;
  return event === 1 ? 'join' : event === 2 ? 'leave' : 'count';
}

/**
 * The event changes the room's roster (hub/roster.js), so clients that follow the roster get it.
 * @param {Buffer} publication of kind PRESENCE @returns {Buffer} a copy
 */
export function asRosterChange(publication) {
  const copy = Buffer.from(publication);
  copy.writeUInt32BE(tagOf(publication) | ROSTER_CHANGE, 7);
  return copy;
}

/** @param {Buffer} publication of any kind */
export function isRosterChange(publication) {
  return kindOf(publication) === KIND.PRESENCE && (tagOf(publication) & ROSTER_CHANGE) !== 0;
}

/**
 * @param {number} kind of KIND
 * @param {number} timestampMs clamped to the header's range: a clock may be before 1970
 * @param {number} tag 0 to 2³²-1
 * @param {string} from the sender: at most 255 ASCII characters, escaped as in JSON
 * @param {Buffer} source contains the payload, as JSON @param {number} start @param {number} end
 * @param {string} [except] the id of a connection that does not get a MESSAGE; the tag is 0 then
 */
export function encodePublication(kind, timestampMs, tag, from, source, start, end, except = '') {
  const at = HEADER_BYTES + from.length + except.length;
  const publication = Buffer.allocUnsafe(at + end - start);
  publication[0] = kind;
  publication.writeUIntBE(Math.min(Math.max(0, timestampMs), MAX_TIMESTAMP_MS), 1, 6);
  publication.writeUInt32BE(tag, 7);
  publication[11] = from.length;
  publication.write(from, HEADER_BYTES, 'latin1');
  if (except !== '') {
    publication[0] = kind | EXCEPT;
    publication.writeUInt32BE(except.length, 7);
    publication.write(except, HEADER_BYTES + from.length, 'latin1');
  }
  source.copy(publication, at, start, end);
  return publication;
}

/**
 * The message of a key, for a room with state. The payload `null` removes the key.
 * @param {number} timestampMs @param {string} from as in encodePublication
 * @param {string} key isStateKey @param {Buffer} source @param {number} start @param {number} end
 */
export function encodeKeyed(timestampMs, from, key, source, start, end) {
  const text = keyTextIn(key);
  const bytes = Buffer.byteLength(text);
  const at = HEADER_BYTES + from.length + bytes;
  const publication = Buffer.allocUnsafe(at + end - start);
  publication[0] = KIND.MESSAGE | KEY;
  publication.writeUIntBE(Math.min(Math.max(0, timestampMs), MAX_TIMESTAMP_MS), 1, 6);
  publication.writeUInt32BE(bytes, 7);
  publication[11] = from.length;
  publication.write(from, HEADER_BYTES, 'latin1');
  publication.write(text, HEADER_BYTES + from.length);
  source.copy(publication, at, start, end);
  return publication;
}

/**
 * @param {unknown} key
 * @returns {key is string} 1 to 200 UTF-16 units, without control characters and lone surrogates
 */
export function isStateKey(key) {
  return (
    typeof key === 'string' && key !== '' && key.length <= MAX_KEY_LENGTH && !NOT_IN_KEYS.test(key)
  );
}

/** A key as in JSON, without quotes. @param {string} key */
export function keyTextIn(key) {
  return JSON.stringify(key).slice(1, -1);
}

/** Is it the message of a key? @param {Buffer} publication */
export function hasKey(publication) {
  return (publication[0] & KEY) !== 0;
}

/** @param {Buffer} publication with a key @returns {number} bytes of `writeKey` */
export function keyBytes(publication) {
  return tagOf(publication) & TEXT_BYTES_MASK;
}

/**
 * Copies the key as in JSON, without quotes. Returns the number of bytes.
 * @param {Buffer} publication with a key @param {Buffer} target @param {number} at
 */
export function writeKey(publication, target, at) {
  const start = textStart(publication);
  return publication.copy(target, at, start, start + keyBytes(publication));
}

/** The key as JSON has it, without quotes. @param {Buffer} publication with a key */
export function keyTextOf(publication) {
  const start = textStart(publication);
  return publication.toString('utf8', start, start + keyBytes(publication));
}

/** @param {Buffer} publication with a key @returns {string} */
export function stateKeyOf(publication) {
  const text = keyTextOf(publication);
  return text.includes('\\') ? JSON.parse(`"${text}"`) : text;
}

/** Does it remove its key? @param {Buffer} publication with a key */
export function isRemoval(publication) {
  const start = payloadStart(publication);
  return (
    payloadEnd(publication) - start === NULL.length &&
    publication.compare(NULL, 0, NULL.length, start, start + NULL.length) === 0
  );
}

/** @param {Buffer} publication @returns {Buffer} its payload, JSON, in the same memory */
export function payloadOf(publication) {
  return publication.subarray(payloadStart(publication), payloadEnd(publication));
}

/** @param {Buffer} publication @returns {string} its payload: JSON */
export function payloadText(publication) {
  return publication.toString('utf8', payloadStart(publication), payloadEnd(publication));
}

/**
 * A notice between workers, which has no sender and no time.
 * @param {number} kind for workers: REVOCATION, SURVEY or ANSWER @param {string} text JSON
 */
export function encodeNotice(kind, text) {
  const payload = Buffer.from(text);
  return encodePublication(kind, 0, 0, '', payload, 0, payload.length);
}

/** @param {Buffer} publication perhaps malformed @returns {string} its text or '' */
export function readNotice(publication) {
  if (publication.length <= HEADER_BYTES) return '';
  return publication.toString('utf8', payloadStart(publication));
}

/** @param {unknown} id @returns {id is string} */
export function isConnectionId(id) {
  return typeof id === 'string' && CONNECTION_ID.test(id);
}

const CONNECTION_ID = new RegExp(`^[A-Za-z0-9_-]{1,${MAX_EXCEPT_LENGTH}}$`);

/** @param {Buffer} publication */
export function kindOf(publication) {
  const kind = publication[0] & ~FLAGS;
  return (kind & RESTRICTED) === RESTRICTED ? (kind & ~RESTRICTED) | KIND.MESSAGE : kind;
}

/** Is it for some members only? @param {Buffer} publication */
export function isRestricted(publication) {
  return (publication[0] & RESTRICTED) === RESTRICTED;
}

/** @param {Buffer} publication @returns {string} '': for everybody */
export function audienceTextOf(publication) {
  if (!isRestricted(publication)) return '';
  return publication.toString('latin1', senderEnd(publication), textStart(publication));
}

/**
 * The same message for another audience.
 * @param {Buffer} publication a MESSAGE, perhaps with its position
 * @param {string} text of an audience; '': everybody @returns {Buffer} a copy, unless it has it already
 */
export function withAudience(publication, text) {
  if (audienceTextOf(publication) === text) return publication;
  const start = senderEnd(publication);
  const audience = Buffer.from(text, 'latin1');
  const rest = publication.subarray(textStart(publication));
  const copy = Buffer.concat([publication.subarray(0, start), audience, rest]);
  const bits = text === '' ? KIND.MESSAGE : RESTRICTED;
  copy[0] = (publication[0] & ~RESTRICTED) | bits;
  copy.writeUInt16BE(audience.length, 7);
  return copy;
}

/** @param {Buffer} publication changed in place */
export function asClaim(publication) {
  publication[0] |= CLAIM;
  return publication;
}

/** Does the payload name an object in the bucket? @param {Buffer} publication */
export function isClaim(publication) {
  return (publication[0] & CLAIM) !== 0;
}

/** @param {Buffer} publication changed in place */
export function asTransient(publication) {
  publication[0] |= TRANSIENT;
  return publication;
}

/** @param {Buffer} publication */
export function isTransient(publication) {
  return (publication[0] & TRANSIENT) !== 0;
}

/**
 * The same publication with another payload. The header and the position stay.
 * @param {Buffer} publication a MESSAGE, perhaps a claim, or BROADCAST or POSITIONED
 * @param {Buffer} payload JSON @returns {Buffer} a copy that is no claim
 */
export function withPayload(publication, payload) {
  const copy = Buffer.concat([
    publication.subarray(0, payloadStart(publication)),
    payload,
    publication.subarray(payloadEnd(publication)),
  ]);
  copy[0] &= ~CLAIM;
  return copy;
}

/** Is a connection excluded? @param {Buffer} publication */
export function hasExcept(publication) {
  return (publication[0] & EXCEPT) !== 0;
}

/** @param {Buffer} publication @returns {string} the excluded connection's id, or '' */
export function exceptOf(publication) {
  if (!hasExcept(publication)) return '';
  return publication.toString('latin1', textStart(publication), payloadStart(publication));
}

/** @param {Buffer} publication @returns {number} ms since 1970 */
export function timestampOf(publication) {
  return publication.readUIntBE(1, 6);
}

/** @param {Buffer} publication */
export function tagOf(publication) {
  return publication.readUInt32BE(7);
}

/** @param {Buffer} publication @returns {string} */
export function senderOf(publication) {
  return publication.toString('latin1', HEADER_BYTES, senderEnd(publication));
}

/** @param {Buffer} publication */
function senderEnd(publication) {
  return HEADER_BYTES + publication[11];
}

/** @param {Buffer} publication @returns {number} where its key or excluded connection begins */
function textStart(publication) {
  const end = senderEnd(publication);
  return isRestricted(publication) ? end + publication.readUInt16BE(7) : end;
}

/** @param {Buffer} publication @returns {number} the start of its payload */
export function payloadStart(publication) {
  const start = textStart(publication);
  return (publication[0] & TEXTS) !== 0 ? start + (tagOf(publication) & TEXT_BYTES_MASK) : start;
}

/** @param {Buffer} publication @returns {number} the end of its payload */
export function payloadEnd(publication) {
  return kindOf(publication) === KIND.POSITIONED
    ? publication.length - POSITION_BYTES
    : publication.length;
}

/**
 * Copies a publication and adds its position. The original may be a slice of a large buffer.
 * @param {Buffer} publication a MESSAGE @param {number} offset @param {string} epoch 16 characters
 */
export function withPosition(publication, offset, epoch) {
  const end = publication.length;
  const kept = Buffer.allocUnsafeSlow(end + POSITION_BYTES);
  publication.copy(kept, 0);
  kept[0] |= KIND.POSITIONED;
  writePosition(kept, end, epoch, offset);
  return kept;
}

/** @param {number} offset @param {string} epoch 16 characters @returns {Buffer} of kind RESYNC */
export function encodeResyncMark(offset, epoch) {
  const mark = Buffer.alloc(HEADER_BYTES + POSITION_BYTES);
  mark[0] = KIND.RESYNC;
  writePosition(mark, HEADER_BYTES, epoch, offset);
  return mark;
}

/** @param {Buffer} publication of kind POSITIONED or RESYNC */
export function offsetOf(publication) {
  return readOffset(publication, publication.length - OFFSET_BYTES);
}

/** @param {Buffer} publication of kind POSITIONED or RESYNC */
export function epochOf(publication) {
  return readEpoch(publication, publication.length - POSITION_BYTES);
}

/** Could encodePublication have written it? @param {Buffer} publication */
export function isPublication(publication) {
  const { length } = publication;
  if (length <= HEADER_BYTES) return false;
  const start = payloadStart(publication);
  if (length <= start) return false;
  const kind = kindOf(publication);
  if ((publication[0] & (CLAIM | TRANSIENT)) !== 0 && kind !== KIND.MESSAGE) return false;
  if (isRestricted(publication) && !hasAudience(publication)) return false;
  if (hasKey(publication)) {
    if (kind !== KIND.MESSAGE || (publication[0] & FLAGS) !== KEY || !isKeyText(publication))
      return false;
  } else if (hasExcept(publication)) {
    const exceptLength = tagOf(publication) & TEXT_BYTES_MASK;
    if (kind !== KIND.MESSAGE || exceptLength === 0 || exceptLength > MAX_EXCEPT_LENGTH)
      return false;
  } else if (kind === KIND.PRESENCE) {
    const tag = tagOf(publication);
    if (tag < 1 || tag > 3) return false;
  } else if (kind !== KIND.MESSAGE && kind !== KIND.BROADCAST) return false;
  const end = senderEnd(publication);
  for (let i = HEADER_BYTES; i < end; i++) {
    if (SENDER[publication[i]] === 1) continue;
    if (!isJsonText(publication, HEADER_BYTES, end)) return false;
    break;
  }
  return isEnclosed(publication, start, length - 1) && isText(publication, start, length);
}

/** Is its audience as withAudience writes it? @param {Buffer} publication of a restricted kind */
function hasAudience(publication) {
  if (kindOf(publication) !== KIND.MESSAGE) return false;
  const text = audienceTextOf(publication);
  return text.length === publication.readUInt16BE(7) && AUDIENCE.test(text);
}

/** One to four names of 1 to 64 characters; audiences.js has their form. */
const AUDIENCE = /^[A-Za-z0-9_.:@-]{1,64}(?:,[A-Za-z0-9_.:@-]{1,64}){0,3}$/;

/** Is its key as encodeKeyed writes it? @param {Buffer} publication with the flag KEY */
function isKeyText(publication) {
  const start = textStart(publication);
  const end = start + keyBytes(publication);
  if (end === start || end - start > MAX_KEY_BYTES || end > publication.length) return false;
  if (!isUtf8(publication.subarray(start, end))) return false;
  const text = publication.toString('utf8', start, end);
  try {
    const key = JSON.parse(`"${text}"`);
    return isStateKey(key) && keyTextIn(key) === text;
  } catch {
    return false; // a quote, or an invalid escape
  }
}

/**
 * Is it ASCII that can stand in JSON between quotes? Names of users may have escapes.
 * @param {Buffer} b @param {number} start @param {number} end
 */
function isJsonText(b, start, end) {
  for (let i = start; i < end; i++) if (b[i] < 0x20 || b[i] > 0x7e) return false;
  const text = b.toString('latin1', start, end);
  try {
    return typeof JSON.parse(`"${text}"`) === 'string';
  } catch {
    return false; // a quote, or an invalid escape
  }
}

/** 1 for characters that need no escape in JSON. Ids of connections have no others. */
const SENDER = new Uint8Array(128);
for (const byte of Buffer.from(
  'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:@|+/= ',
))
  SENDER[byte] = 1;

/** Does it begin and end like JSON? @param {Buffer} b @param {number} first @param {number} last */
function isEnclosed(b, first, last) {
  const end = b[last];
  switch (b[first]) {
    case 0x22: // "
      return end === 0x22 && last > first;
    case 0x7b: // {
      return end === 0x7d;
    case 0x5b: // [
      return end === 0x5d;
    case 0x74: // t
    case 0x66: // f
      return end === 0x65 && last - first >= 3;
    case 0x6e: // n
      return end === 0x6c && last - first === 3;
    case 0x2d: // -
      return isDigit(end);
    default:
      return isDigit(b[first]) && isDigit(end);
  }
}

/** @param {number} byte */
function isDigit(byte) {
  return byte >= 0x30 && byte <= 0x39;
}

/** Up to this size a loop is cheaper than the call. */
const SHORT_BYTES = 192;

/**
 * Is it UTF-8? RFC 6455 8.1: a client must fail its connection otherwise.
 * @param {Buffer} b @param {number} start @param {number} end
 */
function isText(b, start, end) {
  if (end - start <= SHORT_BYTES) {
    let bits = 0;
    for (let i = start; i < end; i++) bits |= b[i];
    if (bits < 0x80) return true;
  }
  return isUtf8(b.subarray(start, end));
}
