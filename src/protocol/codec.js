// codec.js: the native protocol's text <-> commands and replies. Pure: no I/O, no clock.
//
// A payload is never made into a value: it travels as the bytes the client sent, so that 1e400,
// 9007199254740993 and a lone \ud800 arrive as they were. So a message is not parsed but checked:
// one walk over its bytes holds it to the grammar of RFC 8259 and to the limits of depth and keys,
// and notes where the fields lie that we know. That is also half the price of JSON.parse with a
// walk for the limits (140 bytes: 1.0 against 2.1 us), and it has no bad case: a text of 1 MB of
// `[` blocks JSON.parse for 200 ms.

import { ERRORS } from './codes.js';
import { isEpoch, payloadEnd, payloadStart, senderOf, timestampOf } from './publication.js';

export const MAX_JSON_DEPTH = 32;
export const MAX_JSON_KEYS = 256;
/** Of what a member says about itself, as JSON text. */
export const MAX_INFO_BYTES = 1024;
const MAX_ID_LENGTH = 64;
const MAX_USER_LENGTH = 128;
const ROOM = /^[A-Za-z0-9_.:@/-]{1,200}$/;
const OFFSET = /^\d{1,16}$/;
// Keys that turn into something else where a receiver copies the object carelessly.
const FORBIDDEN_KEYS = new Set(['__proto__', 'constructor', 'prototype']);

/**
 * A decoded command. Its payload is a part of the message it came in, as JSON.
 * @typedef {object} Command
 * @property {string} type
 * @property {string|number|undefined} id
 * @property {unknown} room as sent, not checked; undefined where absent or null
 * @property {unknown} since the same
 * @property {unknown} limit the same
 * @property {unknown} after the same
 * @property {Buffer} source the message
 * @property {number} payloadStart of the field `payload` in it; -1 where there is none
 * @property {number} payloadEnd
 * @property {number} textStart the same of the field `text`, which is a JSON string; -1 where there
 *   is none
 * @property {number} textEnd
 * @property {number} presenceStart the same of the field `presence`
 * @property {number} presenceEnd
 */

/**
 * Who joins a room with presence.
 * @typedef {object} Who
 * @property {string|undefined} user undefined: the connection's id
 * @property {Buffer|null} info JSON, a slice of the message; null: none
 */

/**
 * A place in a room's stream, as a client gives it.
 * @typedef {object} Since
 * @property {string} epoch '' where what was given is none: such a place is nowhere
 * @property {number} offset
 */

/**
 * @param {unknown} value a command's `since`
 * @returns {Since|null} null where it is absent. Offsets are safe integers, or the same in decimal
 *   digits.
 */
export function readSince(value) {
  if (value === undefined) return null;
  const { epoch, offset } = /** @type {{epoch?: unknown, offset?: unknown}} */ (value);
  const number = typeof offset === 'string' && OFFSET.test(offset) ? Number(offset) : offset;
  const isPlace =
    typeof epoch === 'string' &&
    isEpoch(epoch) &&
    Number.isSafeInteger(number) &&
    /** @type {number} */ (number) >= 0;
  return isPlace ? { epoch, offset: /** @type {number} */ (number) } : { epoch: '', offset: 0 };
}

/**
 * @param {unknown} room
 * @returns {room is string} 1 to 200 characters of the allowed set, so ASCII and safe in JSON
 */
export function isRoom(room) {
  return typeof room === 'string' && ROOM.test(room);
}

/**
 * @param {Buffer} message valid UTF-8
 * @returns {Command|null} null where it is not a valid command (INVALID_MESSAGE_FORMAT)
 */
export function decode(message) {
  if (!check(message)) return null;
  const {
    typeStart,
    typeEnd,
    idStart,
    idEnd,
    roomStart,
    roomEnd,
    textStart,
    sinceStart,
    limitStart,
    afterStart,
  } = found;
  if (typeStart < 0 || message[typeStart] !== QUOTE) return null;
  if (textStart >= 0 && message[textStart] !== QUOTE) return null;
  const id = idStart < 0 ? undefined : readValue(message, idStart, idEnd);
  if (!isId(id)) return null;
  return {
    type: /** @type {string} */ (readValue(message, typeStart, typeEnd)),
    id,
    room: roomStart < 0 ? undefined : (readValue(message, roomStart, roomEnd) ?? undefined),
    since:
      sinceStart < 0 ? undefined : (readValue(message, sinceStart, found.sinceEnd) ?? undefined),
    limit:
      limitStart < 0 ? undefined : (readValue(message, limitStart, found.limitEnd) ?? undefined),
    after:
      afterStart < 0 ? undefined : (readValue(message, afterStart, found.afterEnd) ?? undefined),
    source: message,
    payloadStart: found.payloadStart,
    payloadEnd: found.payloadEnd,
    textStart,
    textEnd: found.textEnd,
    presenceStart: found.presenceStart,
    presenceEnd: found.presenceEnd,
  };
}

/**
 * What a join says of presence. The message has been checked, so its parts are JSON; the values are
 * passed on as they are.
 * @param {Command} command
 * @returns {Who|null|undefined} null: it only watches; undefined: INVALID_MESSAGE_FORMAT
 */
export function readPresence({ source: b, presenceStart: start }) {
  /** @type {Who} */
  const who = { user: undefined, info: null };
  if (start < 0 || b[start] === NULL[0]) return who;
  if (b[start] === FALSE[0]) return null;
  if (b[start] !== OPEN_BRACE) return undefined;
  let i = skipSpace(b, start + 1);
  while (b[i] !== CLOSE_BRACE) {
    const keyEnd = skipString(b, i + 1);
    const key = JSON.parse(b.toString('utf8', i, keyEnd));
    const valueStart = skipSpace(b, skipSpace(b, keyEnd) + 1);
    const valueEnd = skipValue(b, valueStart);
    if (key === 'user') {
      const user = b[valueStart] === QUOTE ? readValue(b, valueStart, valueEnd) : '';
      if (!isUser(user)) return undefined;
      who.user = user;
    } else if (key === 'info') {
      // It may have to wait for the room, and what it is a part of does not.
      who.info = Buffer.from(b.subarray(valueStart, valueEnd));
    }
    i = skipSpace(b, valueEnd);
    if (b[i] === COMMA) i = skipSpace(b, i + 1);
  }
  return who;
}

/**
 * @param {unknown} user
 * @returns {user is string}
 */
export function isUser(user) {
  return typeof user === 'string' && user !== '' && user.length <= MAX_USER_LENGTH;
}

/**
 * A member as everybody sees it.
 * @param {string} user
 * @param {Buffer|null} info JSON
 * @returns {Buffer} JSON
 */
export function encodeMember(user, info) {
  const head = memberHead(user);
  return info === null
    ? Buffer.from(`${head}}`)
    : Buffer.concat([Buffer.from(`${head},"info":`), info, END]);
}

const END = Buffer.from('}');

/** What a member begins with. @param {string} user */
function memberHead(user) {
  return `{"user":${JSON.stringify(user)}`;
}

/**
 * @param {unknown} id
 * @returns {id is string|number|undefined}
 */
function isId(id) {
  if (id === undefined) return true;
  return typeof id === 'string' ? id.length <= MAX_ID_LENGTH : Number.isSafeInteger(id);
}

/**
 * @param {Buffer} message
 * @param {number} start
 * @param {number} end
 * @returns {unknown} the value of a checked part
 */
function readValue(message, start, end) {
  if (message[start] === QUOTE) {
    let i = start + 1;
    let hash = 0;
    while (i < end && message[i] < 0x80 && message[i] !== BACKSLASH)
      hash = (hash * 31 + message[i++]) | 0;
    // Plain ASCII, as nearly always, needs no parser.
    if (i === end) return intern(message, start + 1, end - 1, hash);
  }
  return JSON.parse(message.toString('utf8', start, end));
}

/**
 * A string that was read before, where it still stands in its place of the table: types and rooms
 * come again and again, and a string made anew costs a call into C++ and its hash on the first
 * look-up (0.2 us of a message's 0.75).
 * @param {Buffer} message @param {number} start @param {number} end ASCII @param {number} hash
 * @returns {string}
 */
function intern(message, start, end, hash) {
  const length = end - start;
  if (length > MAX_INTERNED_LENGTH) return message.toString('latin1', start, end);
  const place = (hash ^ (hash >>> 15)) & (INTERNED - 1);
  const known = interned[place];
  if (known.length === length) {
    let i = 0;
    while (i < length && known.charCodeAt(i) === message[start + i]) i++;
    if (i === length) return known;
  }
  return (interned[place] = message.toString('latin1', start, end));
}

const INTERNED = 1024;
const MAX_INTERNED_LENGTH = 64;
const interned = new Array(INTERNED).fill('');

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

// Where the last check found the top-level fields we know; of a name that comes twice, the last, as
// JSON.parse has it. One record for all calls: decode reads it before anything else can check.
const found = {
  typeStart: -1,
  typeEnd: -1,
  idStart: -1,
  idEnd: -1,
  roomStart: -1,
  roomEnd: -1,
  payloadStart: -1,
  payloadEnd: -1,
  textStart: -1,
  textEnd: -1,
  presenceStart: -1,
  presenceEnd: -1,
  sinceStart: -1,
  sinceEnd: -1,
  limitStart: -1,
  limitEnd: -1,
  afterStart: -1,
  afterEnd: -1,
};
let keys = 0;

/**
 * Is it one JSON object within the limits? Every reader below returns the place behind what it
 * read, or -1.
 * @param {Buffer} b
 * @returns {boolean}
 */
function check(b) {
  found.typeStart = found.idStart = found.roomStart = found.payloadStart = found.textStart = -1;
  found.sinceStart = found.limitStart = found.presenceStart = found.afterStart = -1;
  keys = 0;
  let i = skipSpace(b, 0);
  if (b[i] !== OPEN_BRACE) return false;
  i = skipSpace(b, i + 1);
  if (b[i] === CLOSE_BRACE) return skipSpace(b, i + 1) === b.length;
  for (;;) {
    const keyStart = i;
    i = skipKey(b, i);
    if (i < 0) return false;
    const start = i;
    i = skipValue(b, i);
    if (i < 0) return false;
    note(b, keyStart, start, i);
    i = skipSpace(b, i);
    const c = b[i];
    i = skipSpace(b, i + 1);
    if (c === CLOSE_BRACE) return i === b.length;
    if (c !== COMMA) return false;
  }
}

/**
 * Notes a top-level field, if it is one of ours.
 * @param {Buffer} b
 * @param {number} keyStart
 * @param {number} start
 * @param {number} end
 */
function note(b, keyStart, start, end) {
  switch (keyName(b, keyStart)) {
    case 'type':
      found.typeStart = start;
      found.typeEnd = end;
      break;
    case 'id':
      found.idStart = start;
      found.idEnd = end;
      break;
    case 'room':
      found.roomStart = start;
      found.roomEnd = end;
      break;
    case 'payload':
      found.payloadStart = start;
      found.payloadEnd = end;
      break;
    case 'text':
      found.textStart = start;
      found.textEnd = end;
      break;
    case 'presence':
      found.presenceStart = start;
      found.presenceEnd = end;
      break;
    case 'since':
      found.sinceStart = start;
      found.sinceEnd = end;
      break;
    case 'limit':
      found.limitStart = start;
      found.limitEnd = end;
      break;
    case 'after':
      found.afterStart = start;
      found.afterEnd = end;
      break;
  }
}

/**
 * @param {Buffer} b
 * @param {number} at its opening quote; the key is checked already
 * @returns {string}
 */
function keyName(b, at) {
  // Told by its first two letters and its length, since a string made for each key costs more than
  // the whole walk.
  switch (b[at + 1]) {
    case 0x74: // t
      if (b[at + 5] === QUOTE && b[at + 3] !== BACKSLASH) {
        if (b[at + 2] === 0x79 && b[at + 3] === 0x70 && b[at + 4] === 0x65) return 'type';
        if (b[at + 2] === 0x65 && b[at + 3] === 0x78 && b[at + 4] === 0x74) return 'text';
      }
      break;
    case 0x72: // r
      if (b[at + 5] === QUOTE && b[at + 2] === 0x6f && b[at + 3] === 0x6f && b[at + 4] === 0x6d)
        return 'room';
      break;
    case 0x69: // i
      if (b[at + 2] === 0x64 && b[at + 3] === QUOTE) return 'id';
      break;
    case 0x70: // p
      if (
        b[at + 8] === QUOTE &&
        b[at + 2] === 0x61 &&
        b[at + 3] === 0x79 &&
        b[at + 4] === 0x6c &&
        b[at + 5] === 0x6f &&
        b[at + 6] === 0x61 &&
        b[at + 7] === 0x64
      ) {
        return 'payload';
      }
      if (
        b[at + 9] === QUOTE &&
        b[at + 2] === 0x72 &&
        b.toString('latin1', at + 1, at + 9) === 'presence'
      )
        return 'presence';
      break;
    case 0x73: // s
      if (
        b[at + 6] === QUOTE &&
        b[at + 2] === 0x69 &&
        b[at + 3] === 0x6e &&
        b[at + 4] === 0x63 &&
        b[at + 5] === 0x65
      ) {
        return 'since';
      }
      break;
    case 0x61: // a
      if (
        b[at + 6] === QUOTE &&
        b[at + 2] === 0x66 &&
        b[at + 3] === 0x74 &&
        b[at + 4] === 0x65 &&
        b[at + 5] === 0x72
      ) {
        return 'after';
      }
      break;
    case 0x6c: // l
      if (
        b[at + 6] === QUOTE &&
        b[at + 2] === 0x69 &&
        b[at + 3] === 0x6d &&
        b[at + 4] === 0x69 &&
        b[at + 5] === 0x74
      ) {
        return 'limit';
      }
      break;
  }
  // Not written plainly; or escaped, which is rare enough for the slow way.
  const end = skipString(b, at + 1);
  for (let i = at + 1; i < end; i++)
    if (b[i] === BACKSLASH) return JSON.parse(b.toString('utf8', at, end));
  return '';
}

/**
 * A key and its colon, up to the value.
 * @param {Buffer} b
 * @param {number} at
 * @returns {number}
 */
function skipKey(b, at) {
  if (b[at] !== QUOTE || ++keys > MAX_JSON_KEYS) return -1;
  const end = skipString(b, at + 1);
  if (end < 0 || isForbidden(b, at, end)) return -1;
  const colon = skipSpace(b, end);
  return b[colon] === COLON ? skipSpace(b, colon + 1) : -1;
}

/**
 * @param {Buffer} b
 * @param {number} start its opening quote
 * @param {number} end
 */
function isForbidden(b, start, end) {
  if (end - start < 11) return false; // the shortest of them and its quotes
  let isEscaped = false;
  for (let i = start + 1; i < end; i++) if (b[i] === BACKSLASH) isEscaped = true;
  if (isEscaped) return FORBIDDEN_KEYS.has(JSON.parse(b.toString('utf8', start, end)));
  return end - start <= 13 && FORBIDDEN_KEYS.has(b.toString('latin1', start + 1, end - 1));
}

/**
 * One value inside the message's object.
 * @param {Buffer} b
 * @param {number} at
 * @returns {number}
 */
function skipValue(b, at) {
  let i = at;
  let depth = 0; // of containers inside the message's object
  let objects = 0; // one bit a level, the lowest the innermost: is it an object?
  for (;;) {
    const c = b[i];
    if (c === QUOTE) {
      i = skipString(b, i + 1);
    } else if (c === OPEN_BRACE || c === OPEN_BRACKET) {
      if (++depth >= MAX_JSON_DEPTH) return -1; // the message's object is a level too
      const isObject = c === OPEN_BRACE;
      i = skipSpace(b, i + 1);
      if (b[i] === (isObject ? CLOSE_BRACE : CLOSE_BRACKET)) {
        depth--;
        i++;
      } else {
        objects = (objects << 1) | (isObject ? 1 : 0);
        if (isObject) i = skipKey(b, i);
        if (i < 0) return -1;
        continue;
      }
    } else {
      i = c === MINUS || (c >= ZERO && c <= NINE) ? skipNumber(b, i) : skipLiteral(b, i, c);
    }
    if (i < 0) return -1;
    // Behind a value: the ends of what it closes, or a comma and the next.
    for (;;) {
      if (depth === 0) return i;
      i = skipSpace(b, i);
      const isObject = (objects & 1) === 1;
      const d = b[i];
      if (d === COMMA) {
        i = skipSpace(b, i + 1);
        if (isObject) i = skipKey(b, i);
        if (i < 0) return -1;
        break;
      }
      if (d !== (isObject ? CLOSE_BRACE : CLOSE_BRACKET)) return -1;
      depth--;
      objects >>>= 1;
      i++;
    }
  }
}

/**
 * @param {Buffer} b
 * @param {number} i
 * @returns {number}
 */
function skipSpace(b, i) {
  while (i < b.length) {
    const c = b[i];
    if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09) break;
    i++;
  }
  return i;
}

/**
 * @param {Buffer} b
 * @param {number} i behind the opening quote
 * @returns {number} behind the closing one
 */
function skipString(b, i) {
  const { length } = b;
  while (i < length) {
    // Most of a message is this, so four at a time: a message with a string of 100 takes 0.45
    // instead of 0.67 us.
    while (
      i + 4 <= length &&
      (PLAIN[b[i]] & PLAIN[b[i + 1]] & PLAIN[b[i + 2]] & PLAIN[b[i + 3]]) === 1
    )
      i += 4;
    while (i < length && PLAIN[b[i]] === 1) i++;
    const c = b[i];
    if (c === QUOTE) return i + 1;
    if (c !== BACKSLASH) return -1;
    const e = b[++i];
    if (e === 0x75) {
      // \u and four hexadecimal digits
      if (!(isHex(b[i + 1]) && isHex(b[i + 2]) && isHex(b[i + 3]) && isHex(b[i + 4]))) return -1;
      i += 4;
    } else if (ESCAPES[e] !== 1) return -1; // e is undefined where the text ends here
    i++;
  }
  return -1;
}

/** By byte: 1 for what stands in a string for itself. */
const PLAIN = new Uint8Array(256).fill(1, 0x20);
PLAIN[QUOTE] = PLAIN[BACKSLASH] = 0;

/** By byte: 1 for what may follow a backslash, but for u. */
const ESCAPES = new Uint8Array(256);
for (const byte of Buffer.from('"\\/bfnrt')) ESCAPES[byte] = 1;

/** @param {number} c */
function isHex(c) {
  return (c >= ZERO && c <= NINE) || (c >= 0x41 && c <= 0x46) || (c >= 0x61 && c <= 0x66);
}

/**
 * @param {Buffer} b
 * @param {number} i
 * @returns {number}
 */
function skipNumber(b, i) {
  if (b[i] === MINUS) i++;
  const whole = skipDigits(b, i);
  if (whole === i || (b[i] === ZERO && whole > i + 1)) return -1; // none, or a leading zero
  i = whole;
  if (b[i] === DOT) {
    const part = skipDigits(b, i + 1);
    if (part === i + 1) return -1;
    i = part;
  }
  if (b[i] === 0x65 || b[i] === 0x45) {
    i++;
    if (b[i] === 0x2b || b[i] === MINUS) i++;
    const power = skipDigits(b, i);
    if (power === i) return -1;
    i = power;
  }
  return i;
}

/**
 * @param {Buffer} b
 * @param {number} i
 * @returns {number} the first place that is no digit
 */
function skipDigits(b, i) {
  while (i < b.length && b[i] >= ZERO && b[i] <= NINE) i++;
  return i;
}

/**
 * @param {Buffer} b
 * @param {number} i
 * @param {number} c its first byte
 * @returns {number}
 */
function skipLiteral(b, i, c) {
  const literal = c === 0x74 ? TRUE : c === 0x66 ? FALSE : c === 0x6e ? NULL : null;
  if (literal === null) return -1;
  for (let k = 1; k < literal.length; k++) if (b[i + k] !== literal[k]) return -1;
  return i + literal.length;
}

const TRUE = Buffer.from('true');
const FALSE = Buffer.from('false');
const NULL = Buffer.from('null');

/** The `id` member of a reply: `,"id":…`, or nothing. @param {string|number|undefined} id */
function idMember(id) {
  return id === undefined ? '' : `,"id":${typeof id === 'number' ? id : JSON.stringify(id)}`;
}

// Replies are put together as text: rooms need no escape, payloads are JSON text already.

/** An echo is the bytes of its payload between these two. */
export const ECHO_PREFIX = Buffer.from('{"type":"echo","payload":');

/** @param {string|number|undefined} id */
export function echoSuffix(id) {
  return id === undefined ? '}' : `${idMember(id)}}`;
}

/**
 * @param {string} type joined or left
 * @param {string} room
 * @param {string|number|undefined} id
 */
export function encodeRoomReply(type, room, id) {
  return `{"type":"${type}","room":"${room}"${idMember(id)}}`;
}

/**
 * The reply to a join with `since` of a room without history.
 * @param {string} room
 * @param {string|number|undefined} id
 */
export function encodeNotRecovered(room, id) {
  return `{"type":"joined","room":"${room}","recovered":false${idMember(id)}}`;
}

/**
 * The reply to a join of a room with history.
 * @param {string} room
 * @param {{epoch: string, offset: number, recovered: boolean}} joined
 * @param {string|number|undefined} id
 */
export function encodeJoined(room, { epoch, offset, recovered }, id) {
  return `{"type":"joined","room":"${room}"${positionMembers(epoch, offset)},"recovered":${recovered}${idMember(id)}}`;
}

/**
 * @param {string} epoch
 * @param {number} offset
 */
function positionMembers(epoch, offset) {
  return `,"epoch":"${epoch}","offset":${offset}`;
}

/**
 * @param {string} room
 * @param {string} epoch
 * @param {number} offset
 * @param {number} reloadAfterMs
 */
export function encodeResync(room, epoch, offset, reloadAfterMs) {
  return `{"type":"resync","room":"${room}"${positionMembers(epoch, offset)},"reloadAfterMs":${reloadAfterMs}}`;
}

/** @param {boolean} degraded */
export function encodeDegraded(degraded) {
  return `{"type":"degraded","degraded":${degraded}}`;
}

/** A `history` reply is this, its messages and its end. @param {string} room */
export function historyPrefix(room) {
  return Buffer.from(`{"type":"history","room":"${room}","messages":[`, 'latin1');
}

/**
 * @param {{epoch: string, offset: number}|null} position null: the room has no history
 * @param {string|number|undefined} id
 */
export function historySuffix(position, id) {
  return `]${position === null ? '' : positionMembers(position.epoch, position.offset)}${idMember(id)}}`;
}

/**
 * The messages of a `history` reply, without their brackets.
 * @param {readonly Buffer[]} publications consecutive
 * @param {number} first offset of the first of them
 * @returns {Buffer}
 */
export function encodeHistoryMessages(publications, first) {
  return Buffer.concat(
    publications.flatMap((publication, i) => [
      i === 0 ? HISTORY_OPEN : HISTORY_NEXT,
      publication.subarray(payloadStart(publication), payloadEnd(publication)),
      Buffer.from(
        `,"from":"${senderOf(publication)}","timestamp":${timestampOf(publication)},"offset":${first + i}}`,
        'latin1',
      ),
    ]),
  );
}

const HISTORY_OPEN = Buffer.from('{"payload":');
const HISTORY_NEXT = Buffer.from(',{"payload":');

/**
 * @param {string|number} id
 * @param {{epoch: string, offset: number}|void} position in a room with history
 */
export function encodeAck(id, position) {
  return `{"type":"ack"${position ? positionMembers(position.epoch, position.offset) : ''}${idMember(id)}}`;
}

/** @param {string|number|undefined} id */
export function encodePong(id) {
  return `{"type":"pong"${idMember(id)}}`;
}

/**
 * A part of a list of members, as it stands in a `presence` reply.
 * @typedef {object} MemberPage
 * @property {Buffer} text JSON text without brackets
 * @property {boolean} hasMore are there members behind it?
 */

/**
 * @typedef {{members: readonly Buffer[], after: string|undefined, limit: number, maxBytes: number}}
 *   PageRequest
 */

/**
 * The latest page: after a restart many ask at once and get the same.
 * @type {(PageRequest & {page: MemberPage})|null}
 */
let latestPage = null;

/**
 * The first members behind a user, as many as fit. They are in the order of their bytes, which
 * begin with the user, unless one page holds them all.
 * @param {PageRequest} request members: JSON each, in any order; after: the last user of the page
 *   before; maxBytes: at least one member is listed
 * @returns {MemberPage}
 */
export function encodeMembers(request) {
  const { members, after, limit, maxBytes } = request;
  const is = latestPage;
  if (
    is !== null &&
    is.members === members &&
    is.after === after &&
    is.limit === limit &&
    is.maxBytes === maxBytes
  ) {
    return is.page;
  }
  // Whoever may write to Redis may have written a member.
  let rest = members.filter(
    (member) => member[0] === OPEN_BRACE && member[member.length - 1] === CLOSE_BRACE,
  );
  if (after !== undefined) {
    // The head ends with the user's closing quote, so that of all members only the user's own
    // begins with it.
    const head = Buffer.from(memberHead(after));
    rest = rest.filter(
      (member) => member.compare(head) > 0 && !member.subarray(0, head.length).equals(head),
    );
  }
  let bytes = 0;
  let count = 0;
  for (const member of rest) bytes += member.length + 1;
  if (rest.length <= limit && bytes <= maxBytes) count = rest.length;
  else {
    rest.sort(Buffer.compare);
    bytes = 0;
    while (count < Math.min(limit, rest.length)) {
      bytes += rest[count].length + 1;
      if (bytes > maxBytes && count > 0) break;
      count++;
    }
  }
  const text = Buffer.concat(
    rest.slice(0, count).flatMap((member, i) => (i === 0 ? [member] : [COMMA_TEXT, member])),
  );
  const page = { text, hasMore: count < rest.length };
  latestPage = { ...request, page };
  return page;
}

const COMMA_TEXT = Buffer.from(',');

/**
 * A `presence` reply is this, the members and its end.
 * @param {string} room
 * @param {boolean} isListed
 */
export function presencePrefix(room, isListed) {
  return Buffer.from(
    `{"type":"presence","room":"${room}",${isListed ? '"members":[' : ''}`,
    'latin1',
  );
}

/**
 * @param {number} count
 * @param {MemberPage|null} page null: too many to list
 * @param {string|number|undefined} id
 */
export function presenceSuffix(count, page, id) {
  return `${page === null ? '' : '],'}"count":${count}${page?.hasMore ? ',"more":true' : ''}${idMember(id)}}`;
}

/**
 * @param {string} payload JSON text
 * @param {number} listenerCount
 * @param {string|number|undefined} id
 */
export function encodeBroadcastResult(payload, listenerCount, id) {
  return `{"type":"broadcastResult","payload":${payload},"listenerCount":${listenerCount}${idMember(id)}}`;
}

/**
 * @param
 *   {{connectionId: string, serverId: string, heartbeatMs: number, limits: object, degraded: boolean}}
 *   welcome
 * @param {string|number|undefined} id
 */
export function encodeWelcome(welcome, id) {
  return JSON.stringify({ type: 'welcome', ...welcome, id });
}

/** @param {number} reconnectAfterMs */
export function encodeShutdown(reconnectAfterMs) {
  return `{"type":"SERVER_SHUTDOWN","message":"The server is restarting.","reconnectAfterMs":${reconnectAfterMs}}`;
}

/**
 * @param {import('./codes.js').ErrorCode} error
 * @param {number} timestampMs
 * @param {string|number|undefined} id
 * @param {number} [retryAfter] whole seconds
 */
export function encodeError(error, timestampMs, id, retryAfter) {
  const { message } = ERRORS[error];
  return JSON.stringify({ type: 'error', error, message, retryAfter, id, timestamp: timestampMs });
}
