// json.js: the JSON form of the messages.
//
// A client's message is one or more lines, each with a command, which one scan checks and reads. A
// raw value, such as `data`, travels as the client's bytes, within the depth of native payloads;
// framing.js removes the line breaks between its tokens.
//
// The scan stops at its bounds (bounds.js), so what a message costs does not grow with its bytes
// faster than a native one's (test/unit/reader-costs.test.js).

import { readValue } from '../../../protocol/decode.js';
import { fail, skipPayload, skipSpace, skipString } from '../../../protocol/json-scan.js';
import { MAX_COMMANDS, maxFieldsOf, TOO_MANY } from './bounds.js';
import { REQUESTS } from './schema.js';

/** @import { Field, Message } from './schema.js' */
/** @import { ClientInfo, Codec, Command, Method, Published, Reply, Request } from './messages.js' */

const LF = 0x0a;
const QUOTE = 0x22;
const COMMA = 0x2c;
const ZERO = 0x30;
const COLON = 0x3a;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const LOWER_F = 0x66;
const LOWER_N = 0x6e;
const LOWER_T = 0x74;
/** Fields of one object. Unknown ones count. */
const MAX_FIELDS = 64;

/** @type {ReadonlyMap<string, number>} */
const RANKS = new Map(REQUESTS.map(({ name }, rank) => [name, rank]));
/** Numbers with more digits are left to JavaScript's parser. */
const MAX_DIGITS = 15;

/** A line does not have the form of a command. */
const MALFORMED = -1;

/**
 * What the message that `decode` reads may still have: commands and entries of maps, and fields.
 * They stand here for the same reason as `after`.
 */
let commandsLeft = 0;
let fieldsLeft = 0;

/** @type {Codec['decode']} */
function decode(bytes, maxCommands = MAX_COMMANDS) {
  /** @type {Command[]} */
  const commands = [];
  fail(0); // not a fault of an earlier message
  commandsLeft = maxCommands;
  fieldsLeft = maxFieldsOf(maxCommands);
  let at = skipSpace(bytes, 0);
  while (at < bytes.length) {
    if (--commandsLeft < 0) return TOO_MANY;
    const end = lineEnd(bytes, at);
    const command = readCommand(bytes.subarray(at, end));
    if (command === null) return commandsLeft < 0 || fieldsLeft < 0 ? TOO_MANY : null;
    commands.push(command);
    at = skipSpace(bytes, end);
  }
  return commands.length === 0 ? null : commands;
}

/**
 * @param {Buffer} bytes valid UTF-8, body of a request of the emulation
 * @returns {{session: string, node: string, data: Buffer}|null} null: malformed
 */
export function decodeEmulation(bytes) {
  fieldsLeft = MAX_FIELDS;
  /** @type {Map<string, string>} */
  const fields = new Map();
  const end = eachMember(bytes, skipSpace(bytes, 0), MAX_FIELDS, readEmulated, fields);
  if (end < 0 || skipSpace(bytes, end) !== bytes.length) return null;
  const [session, node, data] = EMULATED.map((name) => fields.get(name));
  if (session === undefined || node === undefined || data === undefined) return null;
  return { session, node, data: Buffer.from(data) };
}

const EMULATED = ['session', 'node', 'data'];

/** @type {ReadMember<Map<string, string>>} */
function readEmulated(name, b, at, fields) {
  if (!EMULATED.includes(name)) return skipPayload(b, at);
  fields.set(name, readString(b, at));
  return after;
}

/** @param {Buffer} bytes @param {number} at */
function lineEnd(bytes, at) {
  const end = bytes.indexOf(LF, at);
  return end < 0 ? bytes.length : end;
}

/**
 * A command while its line is read.
 * @typedef {{isEmpty: boolean, id: number, rank: number, request: Request}} Draft
 */

/** @param {Buffer} line @returns {Command|null} */
function readCommand(line) {
  /** @type {Draft} */
  const draft = { isEmpty: true, id: 0, rank: REQUESTS.length, request: {} };
  const end = eachMember(line, 0, MAX_FIELDS, readCommandField, draft);
  if (end < 0 || skipSpace(line, end) !== line.length) return null;
  const { isEmpty, id, rank, request } = draft;
  if (isEmpty) return { id: 0, method: 'pong', request, source: line };
  if (rank === REQUESTS.length) return null;
  return { id, method: /** @type {Method} */ (REQUESTS[rank].name), request, source: line };
}

/** @type {ReadMember<Draft>} */
function readCommandField(name, line, at, draft) {
  draft.isEmpty = false;
  if (name === 'id') {
    draft.id = readNumber(line, at);
    return draft.id >= 0 && draft.id < 2 ** 32 ? after : MALFORMED;
  }
  const rank = RANKS.get(name);
  if (rank === undefined) return skipPayload(line, at);
  /** @type {Request} */
  const request = {};
  const end = readRequest(line, at, request);
  if (rank < draft.rank && line[at] === OPEN_BRACE) {
    draft.rank = rank;
    draft.request = request;
  }
  return end;
}

/**
 * @param {Buffer} b @param {number} at @param {Request} request gets the fields
 * @returns {number} the index after the object; MALFORMED: a field is of another type
 */
function readRequest(b, at, request) {
  if (b[at] === LOWER_N) return skipPayload(b, at); // null
  return eachMember(b, at, MAX_FIELDS, readRequestField, request);
}

/** @type {ReadMember<Request>} */
function readRequestField(name, b, at, request) {
  const read = FIELDS.get(name);
  if (read === undefined || (b[at] === LOWER_N && read !== READERS.bytes))
    return skipPayload(b, at);
  /** @type {Record<string, unknown>} */ (request)[name] = read(b, at);
  return after;
}

/**
 * The index after the value that a reader has read last; MALFORMED: it is of another type. It
 * stands here, so that a value needs no object around it.
 */
let after = 0;

/** Reads a value, and sets `after`. @typedef {(b: Buffer, at: number) => any} Reader */

/** By the type in the schema. @type {Readonly<Record<string, Reader>>} */
const READERS = {
  string: readString,
  i32: readNumber,
  i64: readNumber,
  u64(b, at) {
    const value = readNumber(b, at);
    if (value < 0) after = MALFORMED;
    return value;
  },
  bool(b, at) {
    const isBoolean = b[at] === LOWER_T || b[at] === LOWER_F;
    after = isBoolean ? skipPayload(b, at) : MALFORMED;
    return b[at] === LOWER_T;
  },
  bytes(b, at) {
    after = skipPayload(b, at);
    return after < 0 ? undefined : b.subarray(at, after);
  },
  given(b, at) {
    after = skipPayload(b, at);
    return true;
  },
};

/** The fields of all requests. @type {ReadonlyMap<string, Reader>} */
const FIELDS = new Map(
  REQUESTS.flatMap(({ type }) => /** @type {Message} */ (type).fields).map(readerOf),
);

/** @param {Field} field @returns {[name: string, read: Reader]} */
function readerOf({ name, type, form }) {
  if (form === 'one') return [name, typeof type === 'string' ? READERS[type] : readObject];
  if (type === 'string') return [name, (b, at) => readMap(b, at, readHeader)];
  return [name, (b, at) => readMap(b, at, readSub)];
}

/** @type {Reader} */
function readObject(b, at) {
  /** @type {Request} */
  const request = {};
  after = readRequest(b, at, request);
  return request;
}

/** @param {Buffer} b @param {number} at */
function readString(b, at) {
  after = b[at] === QUOTE ? skipString(b, at + 1) : MALFORMED;
  return after < 0 ? '' : /** @type {string} */ (readValue(b, at, after));
}

/** @param {Buffer} b @param {number} at @returns {number} whole and safe */
function readNumber(b, at) {
  after = skipPayload(b, at);
  let value = 0;
  for (let i = at; i < after; i++) {
    const digit = b[i] - ZERO;
    if (digit < 0 || digit > 9 || i - at === MAX_DIGITS) {
      value = b[at] === QUOTE ? Number.NaN : Number(b.toString('latin1', at, after));
      break;
    }
    value = value * 10 + digit;
  }
  if (!Number.isSafeInteger(value)) after = MALFORMED;
  return value;
}

/**
 * @template T @param {Buffer} b @param {number} at @param {ReadMember<Map<string, T>>} readEntry
 * @returns {Map<string, T>}
 */
function readMap(b, at, readEntry) {
  /** @type {Map<string, T>} */
  const entries = new Map();
  after = eachMember(b, at, Number.POSITIVE_INFINITY, readEntry, entries);
  return entries;
}

/** @type {ReadMember<Map<string, Request>>} */
function readSub(channel, b, at, subs) {
  if (--commandsLeft < 0) return MALFORMED;
  subs.set(channel, readObject(b, at));
  return after;
}

/** @type {ReadMember<Map<string, string>>} */
function readHeader(name, b, at, headers) {
  if (--commandsLeft < 0) return MALFORMED;
  headers.set(name, readString(b, at));
  return after;
}

/**
 * Reads a member's value, which begins at `start`, into a target. Returns the index after it.
 * @template T
 * @typedef {(name: string, b: Buffer, start: number, target: T) => number} ReadMember
 */

/**
 * Any name is allowed: none becomes a property.
 * @template T @param {Buffer} b valid UTF-8 @param {number} at of the object
 * @param {number} max members @param {ReadMember<T>} readMember @param {T} target
 * @returns {number} the index after the object; MALFORMED
 */
function eachMember(b, at, max, readMember, target) {
  if (b[at] !== OPEN_BRACE) return MALFORMED;
  let i = skipSpace(b, at + 1);
  if (b[i] === CLOSE_BRACE) return i + 1;
  for (let members = 0; members < max; members++) {
    if (--fieldsLeft < 0) return MALFORMED;
    const name = readString(b, i);
    i = after < 0 ? MALFORMED : skipSpace(b, after);
    if (i < 0 || b[i] !== COLON) return MALFORMED;
    i = readMember(name, b, skipSpace(b, i + 1), target);
    if (i < 0) return MALFORMED;
    i = skipSpace(b, i);
    if (b[i] === CLOSE_BRACE) return i + 1;
    if (b[i] !== COMMA) return MALFORMED;
    i = skipSpace(b, i + 1);
  }
  return MALFORMED;
}

/** Numbers that appear although they are zero: clients compute with them. */
const ALWAYS = new Set(['num_clients', 'num_users']);
const NOTHING = Object.freeze({});

/** @param {Reply} reply */
function encode(reply) {
  /** @type {(string|Buffer)[]} */
  const parts = [];
  writeObject(parts, Object.entries(reply));
  const [text] = parts;
  if (parts.length === 1) return Buffer.from(/** @type {string} */ (text));
  return Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : part)));
}

/**
 * @param {(string|Buffer)[]} parts @param {Iterable<[string, unknown]>} entries
 * @param {boolean} [isMap] all entries appear
 */
function writeObject(parts, entries, isMap = false) {
  let separator = '{';
  for (const [name, value] of entries) {
    if (!isMap && isZero(value) && !ALWAYS.has(name)) continue;
    add(parts, `${separator}${JSON.stringify(name)}:`);
    if (name === 'publications' && Buffer.isBuffer(value)) parts.push('[', value, ']');
    else writeValue(parts, value);
    separator = ',';
  }
  add(parts, separator === '{' ? '{}' : '}');
}

/** @param {(string|Buffer)[]} parts @param {unknown} value */
function writeValue(parts, value) {
  if (Buffer.isBuffer(value)) parts.push(value);
  else if (value instanceof Map) writeObject(parts, value, true);
  else if (Array.isArray(value)) {
    let separator = '[';
    for (const item of value) {
      add(parts, separator);
      writeValue(parts, item);
      separator = ',';
    }
    add(parts, separator === '[' ? '[]' : ']');
  } else if (typeof value === 'object') writeObject(parts, Object.entries(value ?? NOTHING));
  else add(parts, JSON.stringify(value));
}

/** @param {(string|Buffer)[]} parts @param {string} text */
function add(parts, text) {
  const last = parts.length - 1;
  if (typeof parts[last] === 'string') parts[last] += text;
  else parts.push(text);
}

/** @param {unknown} value */
function isZero(value) {
  return value === undefined || value === null || value === 0 || value === '' || value === false;
}

/** @type {Codec['encodeDone']} */
function encodeDone(id, method) {
  return Buffer.from(`{"id":${id},"${method}":{}}`, 'latin1');
}

/** @param {string} channel */
function channelField(channel) {
  return Buffer.from(`{"push":{"channel":${JSON.stringify(channel)},"pub":{"data":`);
}

/**
 * @param {Buffer} head @param {Published} published @param {string} end ASCII
 * @returns {Buffer} the publication's fields between them
 */
function around(head, { source, start, end: dataEnd, offset, timeMs, info }, end) {
  const position = offset > 0 ? `,"offset":${offset}` : '';
  const rest = `,"time":${timeMs}${end}`;
  const bytes = head.length + dataEnd - start + position.length + rest.length;
  const message = Buffer.allocUnsafe(bytes + (info === null ? 0 : info.length));
  let at = head.copy(message);
  at += source.copy(message, at, start, dataEnd);
  if (position !== '') at += message.write(position, at, 'latin1');
  if (info !== null) at += info.copy(message, at);
  message.write(rest, at, 'latin1');
  return message;
}

/** @type {Codec['publicationMessage']} */
function publicationMessage(field, published) {
  return around(field, published, '}}}');
}

const LISTED = Buffer.from('{"data":');
const NEXT_LISTED = Buffer.from(',{"data":');

/** @type {Codec['publicationList']} */
function publicationList(list) {
  return Buffer.concat(list.map((one, i) => around(i === 0 ? LISTED : NEXT_LISTED, one, '}')));
}

const INFO = Buffer.from(',"info":');

/** @param {ClientInfo} info */
function infoField(info) {
  return Buffer.concat([INFO, encode(/** @type {Reply} */ (info))]);
}

/** @type {Readonly<Codec>} */
export const jsonCodec = Object.freeze({
  isBinary: false,
  decode,
  encode,
  encodeDone,
  ping: Buffer.from('{}'),
  channelField,
  publicationMessage,
  publicationList,
  infoField,
});
