// codec.js: the native protocol's text <-> commands and replies. Pure: no I/O, no clock.
//
// A payload is not parsed into a value and written again: it travels as the text the client sent, so that 1e400,
// 9007199254740993 and a lone \ud800 arrive as they were. `scan` finds that text, and on its one walk also holds the
// limits of depth and keys, before JSON.parse sees the message (a text of 1 MB of `[` blocks JSON.parse for 200 ms).

import { ERRORS } from '../codes.js';

export const MAX_JSON_DEPTH = 32;
export const MAX_JSON_KEYS = 256;
const MAX_ID_LENGTH = 64;
const ROOM = /^[A-Za-z0-9_.:@/-]{1,200}$/;
// Keys that turn into something else where a receiver copies the object carelessly.
const FORBIDDEN_KEYS = new Set(['__proto__', 'constructor', 'prototype']);

/**
 * A decoded command.
 * @typedef {object} Command
 * @property {string} type
 * @property {string|number|undefined} id
 * @property {unknown} room as sent, not checked
 * @property {string|undefined} payload JSON text of the field `payload`
 * @property {string|undefined} text JSON text of the field `text`, where that is a string
 * @property {boolean} malformedText the field `text` is there and no string
 */

/** @param {unknown} room @returns {room is string} 1 to 200 characters of the allowed set, so ASCII and safe in JSON */
export function isRoom(room) {
  return typeof room === 'string' && ROOM.test(room);
}

/**
 * @param {string} text
 * @returns {Command|null} null where it is not a valid command (INVALID_MESSAGE_FORMAT)
 */
export function decode(text) {
  if (!scan(text)) return null;
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    return null;
  }
  const { type, id } = body;
  if (typeof type !== 'string' || !isId(id)) return null;
  return {
    type,
    id,
    room: body.room,
    payload: rawField(text, found.payloadStart, found.payloadEnd, body.payload),
    text: typeof body.text === 'string' ? rawField(text, found.textStart, found.textEnd, body.text) : undefined,
    malformedText: body.text !== undefined && typeof body.text !== 'string',
  };
}

/**
 * The id of a message that is refused unread for its rate, so that its error can carry it.
 * @param {string} text
 * @returns {string|number|undefined}
 */
export function idOf(text) {
  return decode(text)?.id;
}

/** @param {unknown} id @returns {id is string|number|undefined} */
function isId(id) {
  if (id === undefined) return true;
  return typeof id === 'string' ? id.length <= MAX_ID_LENGTH : Number.isSafeInteger(id);
}

/** @param {string} text @param {number} start @param {number} end @param {unknown} value what JSON.parse made of it */
function rawField(text, start, end, value) {
  if (value === undefined) return undefined;
  // A field whose name was written with escapes, which the scan doesn't decode at the top level, is written anew.
  if (start < 0 || found.escapedKey) return JSON.stringify(value);
  return text.slice(start, end).trim();
}

// What the last scan found. One record for all calls: decode reads it before anything else can scan.
const found = { payloadStart: -1, payloadEnd: -1, textStart: -1, textEnd: -1, escapedKey: false };

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const NO_FIELD = 0;
const PAYLOAD = 1;
const TEXT = 2;

/**
 * One walk over a text that may be anything. It need not notice every fault of grammar, since JSON.parse follows; it
 * must be right about what passes both.
 *
 * @param {string} text
 * @returns {boolean} false where it can't be a command: no object, too deep, too many keys, a forbidden key
 */
function scan(text) {
  found.payloadStart = found.payloadEnd = found.textStart = found.textEnd = -1;
  found.escapedKey = false;
  const length = text.length;
  let depth = 0;
  let objects = 0; // one bit a level, the lowest the innermost: is it an object?
  let keys = 0;
  let expectKey = false;
  let field = NO_FIELD; // the top-level field whose value is being walked
  let i = 0;
  while (i < length) {
    const c = text.charCodeAt(i);
    switch (c) {
      case QUOTE: {
        const end = stringEnd(text, i + 1);
        if (end < 0) return false;
        if (expectKey) {
          if (++keys > MAX_JSON_KEYS) return false;
          expectKey = false;
          let key = text.slice(i + 1, end);
          if (key.includes('\\')) {
            if (depth === 1) found.escapedKey = true;
            key = unescapeKey(text.slice(i, end + 1));
          }
          if (FORBIDDEN_KEYS.has(key)) return false;
          if (depth === 1) field = key === 'payload' ? PAYLOAD : key === 'text' ? TEXT : NO_FIELD;
        }
        i = end + 1;
        continue;
      }
      case COLON:
        if (depth === 1) {
          if (field === PAYLOAD) found.payloadStart = i + 1;
          else if (field === TEXT) found.textStart = i + 1;
        }
        break;
      case OPEN_BRACE:
      case OPEN_BRACKET:
        if (++depth > MAX_JSON_DEPTH) return false;
        if (depth === 1 && c !== OPEN_BRACE) return false;
        objects = (objects << 1) | (c === OPEN_BRACE ? 1 : 0);
        expectKey = c === OPEN_BRACE;
        break;
      case COMMA:
      case CLOSE_BRACE:
      case CLOSE_BRACKET:
        if (depth === 1 && field !== NO_FIELD) {
          if (field === PAYLOAD) found.payloadEnd = i;
          else found.textEnd = i;
          field = NO_FIELD;
        }
        if (c === COMMA) {
          expectKey = (objects & 1) === 1;
        } else {
          depth--;
          if (depth < 0) return false;
          objects >>>= 1;
          expectKey = false;
        }
        break;
      default:
        if (depth === 0 && c > 0x20) return false; // a number, true, null: not an object
    }
    i++;
  }
  return true;
}

/** @param {string} text @param {number} from behind the opening quote @returns {number} the closing quote's place, or -1 */
function stringEnd(text, from) {
  let end = text.indexOf('"', from);
  while (end >= 0) {
    let slashes = 0;
    while (text.charCodeAt(end - 1 - slashes) === BACKSLASH) slashes++;
    if ((slashes & 1) === 0) return end;
    end = text.indexOf('"', end + 1);
  }
  return -1;
}

/** @param {string} quoted @returns {string} the key, or '' where it isn't valid JSON: then JSON.parse refuses the message */
function unescapeKey(quoted) {
  try {
    return JSON.parse(quoted);
  } catch {
    return '';
  }
}

/** The `id` member of a reply: `,"id":…`, or nothing. @param {string|number|undefined} id */
function idMember(id) {
  return id === undefined ? '' : `,"id":${typeof id === 'number' ? id : JSON.stringify(id)}`;
}

// Replies are put together as text: rooms need no escape, payloads are JSON text already.

/** @param {string} payload JSON text @param {string|number|undefined} id */
export function encodeEcho(payload, id) {
  return `{"type":"echo","payload":${payload}${idMember(id)}}`;
}

/** @param {string} type joined or left @param {string} room @param {string|number|undefined} id */
export function encodeRoomReply(type, room, id) {
  return `{"type":"${type}","room":"${room}"${idMember(id)}}`;
}

/** @param {string|number} id */
export function encodeAck(id) {
  return `{"type":"ack"${idMember(id)}}`;
}

/** @param {string|number|undefined} id */
export function encodePong(id) {
  return `{"type":"pong"${idMember(id)}}`;
}

/** @param {string} payload JSON text @param {number} listenerCount @param {string|number|undefined} id */
export function encodeBroadcastResult(payload, listenerCount, id) {
  return `{"type":"broadcastResult","payload":${payload},"listenerCount":${listenerCount}${idMember(id)}}`;
}

/** @param {{connectionId: string, serverId: string, heartbeatMs: number, limits: object}} welcome @param {string|number|undefined} id */
export function encodeWelcome(welcome, id) {
  return JSON.stringify({ type: 'welcome', ...welcome, id });
}

/** @param {number} reconnectAfterMs */
export function encodeShutdown(reconnectAfterMs) {
  return `{"type":"SERVER_SHUTDOWN","message":"The server is restarting.","reconnectAfterMs":${reconnectAfterMs}}`;
}

/**
 * @param {import('../codes.js').ErrorCode} error
 * @param {number} timestampMs
 * @param {string|number|undefined} id
 * @param {number} [retryAfter] whole seconds
 */
export function encodeError(error, timestampMs, id, retryAfter) {
  const { message } = ERRORS[error];
  return JSON.stringify({ type: 'error', error, message, retryAfter, id, timestamp: timestampMs });
}
