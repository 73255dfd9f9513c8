// fields.js: reads the fields of a body.
//
// A shape names the fields of a route, each with the function that reads its value. The scanner of
// the socket protocol checks the body, with its limits of depth and keys, and payloads stay bytes.
// Unknown and repeated names are faults, so a misspelt option is never taken for an absent one.
// Another door's API may pass unknown names over, if its protocol says so.

import { isUtf8 } from 'node:buffer';
import { isHeldList, readAudience } from '../../protocol/audiences.js';
import { ERRORS } from '../../protocol/codes.js';
import { isRoom, isUser, readExpect } from '../../protocol/decode.js';
import { jsonFault, unexpected } from '../../protocol/decode-fault.js';
import { fail, scanMembers, skipPayload, skipSpace, skipValue } from '../../protocol/json-scan.js';
import { isConnectionId, isStateKey } from '../../protocol/publication.js';
import { ApiFault, badValue, ruleText, unknownText } from './fault.js';
import { isMediaType } from './raw-body.js';

/** @import { ExpectedPosition } from '../../protocol/position.js' */

const MAX_LISTED = 1000;
/** The most entries of an answer. */
export const MAX_LIMIT = 1000;
const NUMBER = /^\d{1,16}$/;
const MAX_FIELD_NAME = 64;
/** Tokens have the same bound. */
const MAX_TOKEN_ID_LENGTH = 256;
const MAX_POSITION_BYTES = 256;
/** The longest list of audiences that a user holds has 6.2 kB without spaces, if all is escaped. */
const MAX_HELD_BYTES = 8192;
/** The last second of the year 9999. */
const MAX_SECONDS = 253_402_300_799;
const SHA256 = /^[0-9a-f]{64}$/;
/** The name of an object that POST /api/uploads has announced. */
const UPLOAD = /^[\w/-]{1,200}$/;
const KEY = /^[\x21-\x7e]{1,128}$/;
const QUOTE = 0x22;
const MINUS = 0x2d;
const ZERO = 0x30;
const NINE = 0x39;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const COMMA = 0x2c;

/** A slice of the body. @typedef {{start: number, end: number}} Slice */

/**
 * Reads one value, which is valid JSON; undefined if it is not valid for the field.
 * @typedef {(body: Buffer, start: number, end: number) => unknown} Read
 */

/**
 * `rule`: what the value must be, for the client. `isBytes`: the value stays bytes, so it may have
 * any keys.
 * @typedef {{rule: string, read: Read, isBytes?: boolean}} Reader
 */
/** A list of objects. @typedef {{readonly items: Shape, readonly mayBeEmpty?: boolean}} Items */
/** @typedef {Readonly<Record<string, Reader|Items>>} Shape */
/** @typedef {Record<string, any>} Fields */

const A_USER = 'a user is 1 to 128 characters without control characters';
export const A_ROOM =
  ERRORS.INVALID_ROOM.message[0].toLowerCase() + ERRORS.INVALID_ROOM.message.slice(1);
export const A_CONNECTION = 'the connectionId of a welcome';
export const OBJECTS = 'a list of 1 to 1,000 objects';
export const A_KEY = '1 to 128 visible ASCII characters';
export const A_POSITION = '{epoch, offset}; for a room without messages {offset: 0}';
export const A_AUDIENCE = 'a list of 1 to 4 different names of 1 to 64 characters';
export const A_STATE_KEY = '1 to 200 characters without control characters';

/** A value that its route parses. @type {Reader} */
export const json = { rule: 'JSON', read: (_body, start, end) => ({ start, end }) };
/** @type {Reader} */
export const payload = { ...json, isBytes: true };
export const room = textReader(A_ROOM, isRoom);
export const rooms = listReader(`a list of 1 to 1,000 different rooms; ${A_ROOM}`, isRoom);
export const user = textReader(A_USER, isUser);
export const users = listReader(`a list of 1 to 1,000 different users; ${A_USER}`, isUser);
export const connectionId = textReader(A_CONNECTION, isConnectionId);
export const idempotencyKey = textReader(A_KEY, isIdempotencyKey);
/** A position that a message is meant for. @type {Reader} */
export const expected = { rule: A_POSITION, read: positionAt };
/** Whom a message is for: the text of readAudience. @type {Reader} */
export const audience = {
  rule: A_AUDIENCE,
  read: (body, start) => readAudience(listOf(isText, body, start)),
};
/** What a user holds. @type {Reader} */
export const audiences = {
  rule: 'a list of up to 16 names of 1 to 64 characters',
  read(body, start, end) {
    if (end - start > MAX_HELD_BYTES) return undefined;
    const list = JSON.parse(body.toString('utf8', start, end));
    return isHeldList(list) ? list : undefined;
  },
};
/** The key of a message in a room with state. */
export const stateKey = textReader(A_STATE_KEY, isStateKey);
/** The `jti` of a token. */
export const tokenId = textReader(
  '1 to 256 characters',
  (text) => text !== '' && text.length <= MAX_TOKEN_ID_LENGTH,
);
/** A NumericDate of RFC 7519, in whole seconds. */
export const seconds = numberReader(
  'whole seconds since 1970',
  (number) => Number.isInteger(number) && number >= 0 && number <= MAX_SECONDS,
);
/** A close code of the application (RFC 6455 7.4.2). */
export const closeCode = numberReader(
  'a whole number from 4000 to 4999',
  (code) => Number.isInteger(code) && code >= 4000 && code < 5000,
);
/** The size of a payload. */
export const byteCount = numberReader(
  'a whole number above 0',
  (bytes) => Number.isSafeInteger(bytes) && bytes > 0,
);
export const sha256 = textReader('64 hexadecimal digits in lower case', (text) =>
  SHA256.test(text),
);
export const mediaType = textReader('a media type, as in Content-Type', isMediaType);
export const upload = textReader('the upload of an answer of POST /api/uploads', (text) =>
  UPLOAD.test(text),
);

/** @param {string} rule @param {(text: string) => boolean} fits @returns {Reader} */
function textReader(rule, fits) {
  return { rule, read: (body, start, end) => only(fits, textAt(body, start, end)) };
}

/** @param {string} rule @param {(number: number) => boolean} fits @returns {Reader} */
function numberReader(rule, fits) {
  return { rule, read: (body, start, end) => only(fits, numberAt(body, start, end)) };
}

/** @param {string} rule @param {(text: unknown) => boolean} fits @returns {Reader} */
function listReader(rule, fits) {
  return { rule, read: (body, start) => listOf(fits, body, start) };
}

/**
 * A field that may be null, for doors whose SDKs write null for what is absent.
 * @param {string} rule @param {(value: unknown) => boolean} fits @returns {Reader}
 */
export function nullable(rule, fits) {
  return {
    rule,
    read(body, start, end) {
      const value = JSON.parse(body.toString('utf8', start, end));
      return value === null || fits(value) ? value : undefined;
    },
  };
}

/** @param {Fields} fields of such a body @returns {Fields} without those that are null */
export function present(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

/** @param {unknown} value @returns {value is string} */
export function isText(value) {
  return typeof value === 'string';
}

/** @param {string} text */
export function isIdempotencyKey(text) {
  return KEY.test(text);
}

/**
 * Reads a body by its shape. It holds the fields that are present.
 * @param {Buffer} body @param {Shape} shape
 * @param {{ignoresUnknown?: boolean}} [options] @returns {Fields}
 * @throws {ApiFault} INVALID_JSON or INVALID_FIELD
 */
export function readFields(body, shape, { ignoresUnknown = false } = {}) {
  const reading = new Reading(body, ignoresUnknown);
  const at = skipSpace(body, 0);
  if (!isUtf8(body)) throw notJson('not UTF-8');
  const end = reading.members(at, shape, '');
  if (end < 0) throw notJson(jsonFault(body));
  const rest = skipSpace(body, end);
  if (rest !== body.length) throw notJson(unexpected(body, rest));
  if (reading.fault !== null) throw fieldFaultOf(reading.fault, reading.unknown);
  return reading.fields;
}

/**
 * @param {string|undefined} text the parameter `limit`
 * @returns {number|undefined} undefined: it is absent @throws {ApiFault} INVALID_REQUEST
 */
export function readLimit(text) {
  if (text === undefined) return undefined;
  const limit = NUMBER.test(text) ? Number(text) : 0;
  if (limit < 1 || limit > MAX_LIMIT)
    throw badValue('limit', `a whole number from 1 to ${MAX_LIMIT.toLocaleString('en')}`);
  return limit;
}

/** @param {string} why @returns {ApiFault} */
function notJson(why) {
  return new ApiFault('INVALID_JSON', { message: `The body is not a JSON object: ${why}.` });
}

/** @param {string} field missing or not allowed @param {string} rule @returns {ApiFault} */
export function invalid(field, rule) {
  return new ApiFault('INVALID_FIELD', { field, message: ruleText(field, rule) });
}

/** @param {Fields} fields @param {string} one @param {string} other @throws {ApiFault} */
export function requireOne(fields, one, other) {
  if ((fields[one] === undefined) === (fields[other] === undefined))
    throw invalid(one, `exactly one of ${one} and ${other} is required`);
}

/** One walk over a body. It goes on after a faulty field, because the grammar counts first. */
class Reading {
  /** @param {Buffer} body @param {boolean} ignoresUnknown */
  constructor(body, ignoresUnknown) {
    this.body = body;
    this.ignoresUnknown = ignoresUnknown;
    /** The fields of the object that was read last. @type {Fields} */
    this.fields = {};
    /** First fault, and what must be; '': unknown. @type {{field: string, rule: string}|null} */
    this.fault = null;
    /** The object of the first faulty field, if that is unknown. @type {{path: string, shape: Shape}|null} */
    this.unknown = null;
  }

  /**
   * @param {number} at the start of an object
   * @param {Shape} shape @param {string} path of the object, for faults
   * @returns {number} the index after it; -1 if it is malformed
   */
  members(at, shape, path) {
    /** @type {Fields} */
    const fields = {};
    const end = scanMembers(this.body, at, (name, start) => {
      const known = Object.hasOwn(shape, name) ? shape[name] : null;
      if (known === null && this.ignoresUnknown) return skipPayload(this.body, start);
      if (known === null) {
        this.unknown ??= this.fault === null ? { path, shape } : null;
        return this.#skip(start, path + name.slice(0, MAX_FIELD_NAME), '');
      }
      const field = path + name;
      if (Object.hasOwn(fields, name)) return this.#skip(start, field, 'it occurs twice');
      if ('items' in known) return this.#items(start, known, name, fields);
      const valueEnd = (known.isBytes ? skipPayload : skipValue)(this.body, start);
      if (valueEnd < 0) return -1;
      fields[name] = known.read(this.body, start, valueEnd);
      if (fields[name] === undefined) this.fault ??= { field, rule: known.rule };
      return valueEnd;
    });
    this.fields = fields;
    return end;
  }

  /**
   * @param {number} at @param {Items} items @param {string} name of the list
   * @param {Fields} fields gets the list
   */
  #items(at, { items: shape, mayBeEmpty = false }, name, fields) {
    const { body } = this;
    if (body[at] !== OPEN_BRACKET) return this.#skip(at, name, OBJECTS);
    /** @type {Fields[]} */
    const items = [];
    fields[name] = items;
    let i = skipSpace(body, at + 1);
    if (body[i] === CLOSE_BRACKET) {
      if (!mayBeEmpty) this.fault ??= { field: name, rule: OBJECTS };
    } else {
      for (;;) {
        const path = `${name}[${items.length}]`;
        if (body[i] !== OPEN_BRACE) i = this.#skip(i, path, 'an object');
        else if (items.length < MAX_LISTED) i = this.members(i, shape, `${path}.`);
        else i = scanMembers(body, i, (_name, start) => skipPayload(body, start));
        if (i < 0) return -1;
        if (items.length < MAX_LISTED) items.push(this.fields);
        else this.fault ??= { field: name, rule: OBJECTS };
        i = skipSpace(body, i);
        if (body[i] === CLOSE_BRACKET) break;
        if (body[i] !== COMMA) return fail(i);
        i = skipSpace(body, i + 1);
      }
    }
    return i + 1;
  }

  /** Passes a faulty value. @param {number} at @param {string} field @param {string} rule */
  #skip(at, field, rule) {
    this.fault ??= { field, rule };
    return skipPayload(this.body, at);
  }
}

/** @param {NonNullable<Reading['fault']>} fault @param {Reading['unknown']} unknown */
function fieldFaultOf({ field, rule }, unknown) {
  if (rule !== '' || unknown === null) return invalid(field, rule);
  const names = Object.keys(unknown.shape).map((name) => unknown.path + name);
  return new ApiFault('INVALID_FIELD', { field, message: unknownText('field', field, names) });
}

/** @template T @param {(value: T) => boolean} fits @param {T|undefined} value */
function only(fits, value) {
  return value !== undefined && fits(value) ? value : undefined;
}

/** @param {Buffer} body @param {number} start @param {number} end @returns {string|undefined} */
export function textAt(body, start, end) {
  return body[start] === QUOTE ? JSON.parse(body.toString('utf8', start, end)) : undefined;
}

/** @param {Buffer} body @param {number} start @param {number} end @returns {number|undefined} */
function numberAt(body, start, end) {
  const isNumber = body[start] === MINUS || (body[start] >= ZERO && body[start] <= NINE);
  return isNumber ? JSON.parse(body.toString('utf8', start, end)) : undefined;
}

/**
 * Reads a position without other fields.
 * @param {Buffer} body @param {number} start @param {number} end
 * @returns {ExpectedPosition|undefined}
 */
function positionAt(body, start, end) {
  if (body[start] !== OPEN_BRACE || end - start > MAX_POSITION_BYTES) return undefined;
  const value = JSON.parse(body.toString('utf8', start, end));
  const names = Object.keys(value);
  if (names.some((name) => name !== 'epoch' && name !== 'offset')) return undefined;
  return readExpect(value) ?? undefined;
}

/**
 * Reads a list of 1 to MAX_LISTED different strings. It stops at the first fault, because
 * JSON.parse takes 50 ms for 1 MB of `[],`.
 * @param {(text: unknown) => boolean} fits @param {Buffer} body @param {number} start
 */
function listOf(fits, body, start) {
  if (body[start] !== OPEN_BRACKET) return undefined;
  /** @type {Set<string>} */
  const list = new Set();
  for (let i = skipSpace(body, start + 1); body[i] !== CLOSE_BRACKET; ) {
    const end = skipValue(body, i);
    const text = textAt(body, i, end);
    const isValid = text !== undefined && fits(text) && !list.has(text) && list.size < MAX_LISTED;
    if (!isValid) return undefined;
    list.add(text);
    i = skipSpace(body, end);
    if (body[i] === COMMA) i = skipSpace(body, i + 1);
  }
  return list.size > 0 ? [...list] : undefined;
}
