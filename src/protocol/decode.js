// decode.js: turns a client's message into a command. Only fields that the server needs become
// values. The payload stays a slice of the message.

import { isUtf8 } from 'node:buffer';
import {
  foundBeforeFault,
  MAX_JSON_DEPTH,
  scan,
  scanMembers,
  skipPayload,
  skipSpace,
  skipString,
  skipValue,
} from './json-scan.js';
import { isEpoch } from './position.js';
import { isConnectionId } from './publication.js';

/** @import { ExpectedPosition } from './position.js' */

/** Limit of a user's `info`, as JSON text. */
export const MAX_INFO_BYTES = 1024;
/** The message around it is a level, too. */
export const MAX_PAYLOAD_DEPTH = MAX_JSON_DEPTH - 1;
/** A join asks for at most as many messages as a room can keep. */
export const MAX_LAST = 10_000;
/** The longest time that a room keeps messages: 7 days. */
export const MAX_LAST_SECONDS = 604_800;
// Numbers of FIELDS, written out: V8 makes constants of them.
const TYPE = 0;
const ID = 1;
const ROOM = 2;
const PAYLOAD = 3;
const TEXT = 4;
const PRESENCE = 5;
const SINCE = 6;
const LIMIT = 7;
const AFTER = 8;
const ECHO = 9;
const LAST = 10;
const BEFORE = 11;
const SINCE_TIME = 12;
const LAST_SECONDS = 13;
const IDEMPOTENCY_KEY = 14;
const KEY = 15;
const EXPECT = 16;
const AUDIENCE = 17;
const MAX_ID_LENGTH = 64;
const MAX_KEY_LENGTH = 128;
const MAX_USER_LENGTH = 128;
const ROOM_NAME = /^[A-Za-z0-9_.:@/-]{1,200}$/;
const OFFSET = /^\d{1,16}$/;
const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const LOWER_F = 0x66;
const LOWER_N = 0x6e;

/**
 * A decoded command. Fields of unknown type are not checked, and undefined if absent or null. Parts
 * of the message have a start and an end; the start of an absent part is -1.
 * @typedef {object} Command
 * @property {string} type @property {string|number|undefined} id @property {unknown} room
 * @property {unknown} since @property {unknown} limit @property {unknown} after
 * @property {unknown} echo @property {unknown} last @property {unknown} lastSeconds
 * @property {unknown} before @property {unknown} sinceTime
 * @property {unknown} idempotencyKey @property {unknown} key
 * @property {unknown} expect null is kept: it is no position
 * @property {unknown} audience null is kept: it is not everybody @property {Buffer} source the message
 * @property {number} payloadStart the field `payload`, JSON
 * @property {number} payloadEnd @property {number} textStart the field `text`, a JSON string
 * @property {number} textEnd @property {number} presenceStart the field `presence`, JSON
 * @property {number} presenceEnd
 */

/**
 * The user of a join to a room with presence.
 * @typedef {object} JoiningUser
 * @property {string|undefined} user undefined if absent: the connection's id counts
 * @property {Buffer|null} info JSON; null if absent
 */

/**
 * A position in a room's history, as a client sends it.
 * @typedef {object} Since
 * @property {string} epoch '' if the client sent no valid position @property {number} offset
 * @property {string} connectionId which received the messages up to there; '': not named
 * @property {boolean} [isAnyEpoch] for doors whose clients may send an offset alone: it counts in
 *   the room's current stream
 */

/** @param {NonNullable<ReturnType<typeof scan>>} fields @param {number} field of FIELDS */
function has({ present }, field) {
  return (present & (1 << field)) !== 0;
}

/** @param {Buffer} message valid UTF-8 @returns {Command|null} null: INVALID_MESSAGE_FORMAT */
export function decode(message) {
  const f = scan(message);
  if (f === null) return null;
  if (!has(f, TYPE) || message[f.starts[TYPE]] !== QUOTE) return null;
  if (has(f, TEXT) && message[f.starts[TEXT]] !== QUOTE) return null;
  const id = has(f, ID) ? readValue(message, f.starts[ID], f.ends[ID]) : undefined;
  if (!isId(id)) return null;
  return {
    type: /** @type {string} */ (readValue(message, f.starts[TYPE], f.ends[TYPE])),
    id,
    room: has(f, ROOM)
      ? (readValue(message, f.starts[ROOM], f.ends[ROOM]) ?? undefined)
      : undefined,
    since: has(f, SINCE)
      ? (readValue(message, f.starts[SINCE], f.ends[SINCE]) ?? undefined)
      : undefined,
    limit: has(f, LIMIT)
      ? (readValue(message, f.starts[LIMIT], f.ends[LIMIT]) ?? undefined)
      : undefined,
    after: has(f, AFTER)
      ? (readValue(message, f.starts[AFTER], f.ends[AFTER]) ?? undefined)
      : undefined,
    echo: has(f, ECHO)
      ? (readValue(message, f.starts[ECHO], f.ends[ECHO]) ?? undefined)
      : undefined,
    last: has(f, LAST)
      ? (readValue(message, f.starts[LAST], f.ends[LAST]) ?? undefined)
      : undefined,
    lastSeconds: has(f, LAST_SECONDS)
      ? (readValue(message, f.starts[LAST_SECONDS], f.ends[LAST_SECONDS]) ?? undefined)
      : undefined,
    before: has(f, BEFORE)
      ? (readValue(message, f.starts[BEFORE], f.ends[BEFORE]) ?? undefined)
      : undefined,
    sinceTime: has(f, SINCE_TIME)
      ? (readValue(message, f.starts[SINCE_TIME], f.ends[SINCE_TIME]) ?? undefined)
      : undefined,
    idempotencyKey: has(f, IDEMPOTENCY_KEY)
      ? (readValue(message, f.starts[IDEMPOTENCY_KEY], f.ends[IDEMPOTENCY_KEY]) ?? undefined)
      : undefined,
    key: has(f, KEY) ? (readValue(message, f.starts[KEY], f.ends[KEY]) ?? undefined) : undefined,
    expect: has(f, EXPECT) ? readValue(message, f.starts[EXPECT], f.ends[EXPECT]) : undefined,
    audience: has(f, AUDIENCE)
      ? readValue(message, f.starts[AUDIENCE], f.ends[AUDIENCE])
      : undefined,
    source: message,
    payloadStart: has(f, PAYLOAD) ? f.starts[PAYLOAD] : -1,
    payloadEnd: f.ends[PAYLOAD],
    textStart: has(f, TEXT) ? f.starts[TEXT] : -1,
    textEnd: f.ends[TEXT],
    presenceStart: has(f, PRESENCE) ? f.starts[PRESENCE] : -1,
    presenceEnd: f.ends[PRESENCE],
  };
}

/**
 * @param {Buffer} message that is refused, or its beginning
 * @param {ReturnType<typeof scan>} [scanned] if it was scanned just before
 * @returns {Command['id']} undefined if there is none before the fault
 */
export function readId(message, scanned = scan(message)) {
  const f = scanned ?? foundBeforeFault();
  // A number at the end of the bytes may be cut.
  const isWhole = has(f, ID) && f.ends[ID] < message.length;
  const id = isWhole ? readValue(message, f.starts[ID], f.ends[ID]) : undefined;
  return isId(id) ? id : undefined;
}

/**
 * The offset is a safe integer, or the same in decimal digits.
 * @param {unknown} value of a command's `since` @returns {Since|null} null if the field is absent
 */
export function readSince(value) {
  if (value === undefined) return null;
  const { epoch, offset, connectionId } =
    /** @type {{epoch?: unknown, offset?: unknown, connectionId?: unknown}} */ (value);
  const number = typeof offset === 'string' && OFFSET.test(offset) ? Number(offset) : offset;
  if (typeof epoch !== 'string' || !isEpoch(epoch) || !isOffset(number)) return NO_POSITION;
  return {
    epoch,
    offset: number,
    connectionId: isConnectionId(connectionId) ? connectionId : '',
  };
}

/**
 * Unlike `since`, it must be a position. @param {unknown} value
 * @returns {Since|null|undefined} null if the field is absent; undefined if it is malformed
 */
export function readBefore(value) {
  const position = readSince(value);
  return position === NO_POSITION ? undefined : position;
}

/**
 * The position that a publisher expects. With the offset 0, the epoch may be left out.
 * @param {unknown} value
 * @returns {ExpectedPosition|null|undefined} null if the field is absent; undefined if it is
 *   malformed
 */
export function readExpect(value) {
  if (value === undefined) return null;
  const { epoch, offset } = /** @type {{epoch?: unknown, offset?: unknown}} */ (value ?? {});
  if (offset === 0 && epoch === undefined) return NOTHING_YET;
  const isPosition = typeof epoch === 'string' && isEpoch(epoch) && isOffset(offset);
  return isPosition ? { epoch, offset } : undefined;
}

/** @type {ExpectedPosition} */
const NOTHING_YET = Object.freeze({ epoch: '', offset: 0 });

/** @param {unknown} offset @returns {offset is number} */
function isOffset(offset) {
  return Number.isSafeInteger(offset) && /** @type {number} */ (offset) >= 0;
}

/**
 * @param {unknown} value
 * @returns {number|null|undefined} ms since 1970; null if the field is absent; undefined if it is
 *   not a whole number from 0
 */
export function readSinceTime(value) {
  if (value === undefined) return null;
  const timeMs = /** @type {number} */ (value);
  return Number.isSafeInteger(value) && timeMs >= 0 ? timeMs : undefined;
}

/**
 * @param {unknown} last @param {unknown} lastSeconds of a join
 * @returns {{last: number, lastSeconds: number}|null} `last` 0: none; `lastSeconds` 0: of any age;
 *   null: one of them is not a whole number from 1 to its maximum
 */
export function readLatest(last, lastSeconds) {
  const count = readWhole(last, MAX_LAST);
  const seconds = readWhole(lastSeconds, MAX_LAST_SECONDS);
  if (count === null || seconds === null) return null;
  return { last: count === 0 && seconds > 0 ? MAX_LAST : count, lastSeconds: seconds };
}

/**
 * @param {unknown} value @param {number} max
 * @returns {number|null} 0 if the field is absent; null if it is not a whole number from 1 to `max`
 */
function readWhole(value, max) {
  if (value === undefined) return 0;
  const number = /** @type {number} */ (value);
  return Number.isSafeInteger(value) && number > 0 && number <= max ? number : null;
}

/** @param {unknown} value @returns {value is string} 1 to 128 characters */
export function isIdempotencyKey(value) {
  return typeof value === 'string' && value !== '' && value.length <= MAX_KEY_LENGTH;
}

/**
 * Is it one JSON value in UTF-8, within the limit of depth? It will stand in a message as it is, so
 * it must neither end that message's field early nor break its text frame.
 * @param {Buffer} payload
 */
export function isPayload(payload) {
  if (!isUtf8(payload)) return false;
  const end = skipPayload(payload, skipSpace(payload, 0));
  return end >= 0 && skipSpace(payload, end) === payload.length;
}

/** @type {Since} */
const NO_POSITION = Object.freeze({ epoch: '', offset: 0, connectionId: '' });

/** @param {unknown} room @returns {room is string} ASCII that is safe in JSON */
export function isRoom(room) {
  return typeof room === 'string' && ROOM_NAME.test(room);
}

/**
 * Reads the field `presence` of a join that has been checked. Values stay unchanged.
 * @param {Command} command
 * @returns {JoiningUser|null|undefined} null if the connection only watches presence; undefined if
 *   the field is malformed (INVALID_MESSAGE_FORMAT)
 */
export function readPresence({ source: b, presenceStart: start }) {
  /** @type {JoiningUser} */
  const joining = { user: undefined, info: null };
  if (start < 0 || b[start] === LOWER_N) return joining;
  if (b[start] === LOWER_F) return null;
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
      joining.user = user;
    } else if (key === 'info') {
      // A copy, because the join may have to wait and the message is a slice of a shared buffer.
      joining.info = Buffer.from(b.subarray(valueStart, valueEnd));
    }
    i = skipSpace(b, valueEnd);
    if (b[i] === COMMA) i = skipSpace(b, i + 1);
  }
  return joining;
}

/**
 * `decode` does not look for the field, because every message would pay for it.
 * @param {Command} command
 * @returns {string|null|undefined} null if the field is not a string; undefined if it is absent
 */
export function readToken({ source }) {
  /** @type {string|null|undefined} */
  let token;
  // Nothing else is parsed: a command may be as large as a message.
  scanMembers(source, skipSpace(source, 0), (name, start) => {
    const end = skipPayload(source, start);
    if (name === 'token' && source[start] === LOWER_N) token = undefined;
    else if (name === 'token')
      token = source[start] === QUOTE ? readValue(source, start, end) : null;
    return end;
  });
  return token;
}

/** @param {unknown} user @returns {user is string} */
export function isUser(user) {
  return typeof user === 'string' && user !== '' && user.length <= MAX_USER_LENGTH;
}

/** @param {unknown} id @returns {id is string|number|undefined} */
function isId(id) {
  if (id === undefined) return true;
  return typeof id === 'string' ? id.length <= MAX_ID_LENGTH : Number.isSafeInteger(id);
}

/** @param {Buffer} message @param {number} start of a valid value @param {number} end */
export function readValue(message, start, end) {
  if (message[start] === QUOTE) {
    let i = start + 1;
    let hash = 0;
    while (i < end && message[i] < 0x80 && message[i] !== BACKSLASH)
      hash = (hash * 31 + message[i++]) | 0;
    // Nearly every string is plain ASCII and needs no parser.
    if (i === end) return intern(message, start + 1, end - 1, hash);
  }
  return JSON.parse(message.toString('utf8', start, end));
}

/**
 * Returns the string of an earlier message if the table still has it. Types and rooms repeat, and a
 * new string costs 0.2 of 0.75 us a message: a call into C++, and its hash at the first look-up.
 * @param {Buffer} message ASCII between start and end
 * @param {number} start @param {number} end @param {number} hash
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
