// json.js: the JSON form of the messages.
//
// A client's message is one or more lines, each with a command. One scan checks a line and finds
// its fields. A raw value, such as `data`, travels as the client's bytes, within the limits of
// depth and keys that native payloads have; framing.js removes the line breaks between its tokens.

import { skipPayload, skipSpace, skipString } from '../../../protocol/json-scan.js';

/** @import { ClientInfo, Codec, Command, Method, Published, Reply, Request } from '../messages.js' */

const LF = 0x0a;
const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const LOWER_F = 0x66;
const LOWER_N = 0x6e;
const LOWER_T = 0x74;
/** Fields of one object. Unknown ones count. */
const MAX_FIELDS = 64;
/** Entries of `subs` or `headers`, far above any limit of rooms that a client could use at once. */
const MAX_ENTRIES = 10_000;

/** The first of them that a command has is served. */
const METHODS = /** @type {readonly Method[]} */ (
  Object.freeze([
    ...['connect', 'subscribe', 'unsubscribe', 'publish', 'presence', 'presence_stats'],
    ...['history', 'ping', 'send', 'rpc', 'refresh', 'sub_refresh'],
  ])
);

/** @typedef {'string'|'boolean'|'number'|'raw'|'subs'|'headers'|'since'|'given'} Type */

/** The fields of all requests. @type {ReadonlyMap<string, Type>} */
const FIELDS = new Map(
  Object.entries(
    /** @type {Record<string, Type>} */ ({
      token: 'string',
      channel: 'string',
      name: 'string',
      version: 'string',
      method: 'string',
      epoch: 'string',
      key: 'string',
      data: 'raw',
      subs: 'subs',
      headers: 'headers',
      recover: 'boolean',
      positioned: 'boolean',
      recoverable: 'boolean',
      join_leave: 'boolean',
      removed: 'boolean',
      reverse: 'boolean',
      offset: 'number',
      flag: 'number',
      limit: 'number',
      type: 'number',
      since: 'since',
      tf: 'given',
    }),
  ),
);

/** A line does not have the form of a command. */
const MALFORMED = -1;

/** @param {Buffer} bytes @returns {Command[]|null} */
function decode(bytes) {
  /** @type {Command[]} */
  const commands = [];
  let at = skipSpace(bytes, 0);
  while (at < bytes.length) {
    const end = lineEnd(bytes, at);
    const command = readCommand(bytes.subarray(at, end));
    if (command === null) return null;
    commands.push(command);
    at = skipSpace(bytes, end);
  }
  return commands.length === 0 ? null : commands;
}

/** @param {Buffer} bytes @param {number} at */
function lineEnd(bytes, at) {
  const end = bytes.indexOf(LF, at);
  return end < 0 ? bytes.length : end;
}

/** @param {Buffer} line @returns {Command|null} */
function readCommand(line) {
  let id = 0;
  let isEmpty = true;
  let chosen = METHODS.length;
  /** @type {Request} */
  let request = {};
  const end = eachMember(line, 0, MAX_FIELDS, (name, at) => {
    isEmpty = false;
    if (name === 'id') {
      const read = readNumber(line, at);
      id = read.value;
      return id >= 0 && id < 2 ** 32 ? read.end : MALFORMED;
    }
    const method = METHODS.indexOf(/** @type {Method} */ (name));
    if (method < 0) return skipPayload(line, at);
    /** @type {Request} */
    const own = {};
    const after = readRequest(line, at, own);
    if (method < chosen && line[at] === OPEN_BRACE) {
      chosen = method;
      request = own;
    }
    return after;
  });
  if (end < 0 || skipSpace(line, end) !== line.length) return null;
  if (isEmpty) return { id: 0, method: 'pong', request, source: line };
  if (chosen === METHODS.length) return null;
  return { id, method: METHODS[chosen], request, source: line };
}

/**
 * @param {Buffer} b @param {number} at @param {Request} request gets the fields
 * @returns {number} the index after the object; MALFORMED: a field is of another type
 */
function readRequest(b, at, request) {
  if (b[at] === LOWER_N) return skipPayload(b, at); // null
  const fields = /** @type {Record<string, unknown>} */ (request);
  return eachMember(b, at, MAX_FIELDS, (name, start) => {
    const type = FIELDS.get(name);
    if (type === undefined || (b[start] === LOWER_N && type !== 'raw'))
      return skipPayload(b, start);
    const { value, end } = READERS[type](b, start);
    fields[name] = value;
    return end;
  });
}

/** @typedef {(b: Buffer, at: number) => {value: any, end: number}} Reader */

/** @type {Record<Type, Reader>} */
const READERS = {
  string: readString,
  number: readNumber,
  boolean(b, at) {
    const end = skipPayload(b, at);
    const isBoolean = b[at] === LOWER_T || b[at] === LOWER_F;
    return { value: b[at] === LOWER_T, end: isBoolean ? end : MALFORMED };
  },
  raw(b, at) {
    const end = skipPayload(b, at);
    return { value: end < 0 ? undefined : b.subarray(at, end), end };
  },
  subs: (b, at) =>
    readMap(b, at, (start) => {
      /** @type {Request} */
      const value = {};
      return { value, end: readRequest(b, start, value) };
    }),
  headers: (b, at) => readMap(b, at, (start) => readString(b, start)),
  since(b, at) {
    /** @type {Request} */
    const value = {};
    return { value, end: readRequest(b, at, value) };
  },
  given: (b, at) => ({ value: true, end: skipPayload(b, at) }),
};

/** @param {Buffer} b @param {number} at @returns {{value: string, end: number}} */
function readString(b, at) {
  const end = b[at] === QUOTE ? skipString(b, at + 1) : MALFORMED;
  if (end < 0) return { value: '', end };
  for (let i = at + 1; i < end; i++)
    if (b[i] === BACKSLASH) return { value: JSON.parse(b.toString('utf8', at, end)), end };
  return { value: b.toString('utf8', at + 1, end - 1), end };
}

/** @param {Buffer} b @param {number} at @returns {{value: number, end: number}} whole and safe */
function readNumber(b, at) {
  const end = skipPayload(b, at);
  const value = end < 0 ? Number.NaN : Number(b.toString('latin1', at, end));
  return { value, end: Number.isSafeInteger(value) && b[at] !== QUOTE ? end : MALFORMED };
}

/**
 * @template T
 * @param {Buffer} b @param {number} at @param {(start: number) => {value: T, end: number}} read
 * @returns {{value: Map<string, T>, end: number}}
 */
function readMap(b, at, read) {
  /** @type {Map<string, T>} */
  const value = new Map();
  const end = eachMember(b, at, MAX_ENTRIES, (name, start) => {
    const entry = read(start);
    value.set(name, entry.value);
    return entry.end;
  });
  return { value, end };
}

/**
 * Walks the members of an object. Any name is allowed: none becomes a property.
 * @param {Buffer} b valid UTF-8 @param {number} at of the object @param {number} max members
 * @param {(name: string, start: number) => number} readMember returns the index after the value
 * @returns {number} the index after the object; MALFORMED
 */
function eachMember(b, at, max, readMember) {
  if (b[at] !== OPEN_BRACE) return MALFORMED;
  let i = skipSpace(b, at + 1);
  if (b[i] === CLOSE_BRACE) return i + 1;
  for (let members = 0; members < max; members++) {
    const name = readString(b, i);
    i = name.end < 0 ? MALFORMED : skipSpace(b, name.end);
    if (i < 0 || b[i] !== COLON) return MALFORMED;
    i = readMember(name.value, skipSpace(b, i + 1));
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

/** @param {Reply} reply @returns {Buffer} */
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

/** @param {string} channel */
function channelField(channel) {
  return Buffer.from(`{"push":{"channel":${JSON.stringify(channel)},"pub":{"data":`);
}

/** @param {Published} published @param {string} end @returns {string} ASCII, after the data */
function tailOf({ offset, timeMs, info }, end) {
  const about = info === null ? '' : `,"info":${info.toString('latin1')}`;
  return `${offset > 0 ? `,"offset":${offset}` : ''}${about},"time":${timeMs}${end}`;
}

/** @param {Buffer} head @param {Published} published @param {string} tail latin1 */
function around(head, { source, start, end }, tail) {
  const message = Buffer.allocUnsafe(head.length + end - start + tail.length);
  const from = head.copy(message);
  const to = from + source.copy(message, from, start, end);
  message.write(tail, to, 'latin1');
  return message;
}

/** @type {Codec['publicationMessage']} */
function publicationMessage(field, published) {
  return around(field, published, tailOf(published, '}}}'));
}

const LISTED = Buffer.from('{"data":');
const NEXT_LISTED = Buffer.from(',{"data":');

/** @type {Codec['publicationList']} */
function publicationList(list) {
  return Buffer.concat(
    list.map((one, i) => around(i === 0 ? LISTED : NEXT_LISTED, one, tailOf(one, '}'))),
  );
}

/** @param {ClientInfo} info */
function infoField(info) {
  return encode(/** @type {Reply} */ (info));
}

/** @type {Readonly<Codec>} */
export const jsonCodec = Object.freeze({
  name: 'json',
  isBinary: false,
  decode,
  encode,
  ping: Buffer.from('{}'),
  channelField,
  publicationMessage,
  publicationList,
  infoField,
});
