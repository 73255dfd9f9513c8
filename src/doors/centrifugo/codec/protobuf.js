// protobuf.js: Centrifugo's messages in Protocol Buffers, by the table of schema.js. A frame is one
// or more messages, each after its length as a varint:
//
//   length, then fields: tag (number << 3 | wire type), then the value
//
// A length must fit into what is left, a number into its type (and into 53 bits), text must be
// UTF-8, and a field must have the wire type of the table. Anything else is malformed and ends the
// connection. Nothing is allocated for a length before its bytes are there. Commands, entries of
// maps and fields count, and the bounds of bounds.js end a message, also one of empty commands.
//
// Messages are written from end to start, so that each length is known when it is written.

import { isUtf8 } from 'node:buffer';
import { MAX_COMMANDS, maxFieldsOf, TOO_MANY } from './bounds.js';
import { messageNamed, REQUESTS } from './schema.js';

/** Wire types. Groups (3 and 4) are obsolete, and malformed here. */
const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;
/** Fields that one message has more than once. Encoders write none; readers take the last. */
const MAX_REPEATS = 64;
/** Nearly all names of channels are shorter, and need no Buffer of their own to be read. */
const MAX_SHORT = 64;
/** The fields of a map's entry. */
const KEY = 1;
const VALUE = 2;
/** Tags of the fields around a publication: Reply.push, Push.pub, and those of Publication. */
const PUSH_TAG = (4 << 3) | BYTES;
const PUB_TAG = (4 << 3) | BYTES;
const DATA_TAG = (4 << 3) | BYTES;
const INFO_TAG = (5 << 3) | BYTES;
const OFFSET_TAG = (6 << 3) | VARINT;
const TIME_TAG = (9 << 3) | VARINT;
const CHANNEL_TAG = (2 << 3) | BYTES;
/** The tag of SubscribeResult's publications. */
const PUBLICATIONS_TAG = (7 << 3) | BYTES;
const TWO_32 = 2 ** 32;
const NOTHING = Buffer.alloc(0);

/** @import { Codec, Command, Method, Published, Reply } from './messages.js' */
/** @import { Message, Scalar } from './schema.js' */
/** @typedef {Record<string, any>} Values by the names of fields */

const COMMAND = messageNamed('Command');
const REPLY = messageNamed('Reply');
const EMULATION = messageNamed('EmulationRequest');
const CLIENT_INFO = messageNamed('ClientInfo');

/** The input is not what it should be. */
class Malformed extends Error {}
/** The input has more parts than it may have. */
class TooMany extends Error {}

/** Walks through bytes of a stranger. */
class Reader {
  /** @param {Buffer} bytes @param {number} [maxCommands] */
  constructor(bytes, maxCommands = 1) {
    this.bytes = bytes;
    this.at = 0;
    this.commandsLeft = maxCommands;
    this.fieldsLeft = maxFieldsOf(maxCommands);
    this.repeatsLeft = MAX_REPEATS;
    // Of the last varint: its lower and upper 32 bits, as signed numbers.
    this.low = 0;
    this.high = 0;
  }

  /** Reads a varint of up to 64 bits into `low` and `high`. @param {number} end */
  varint(end) {
    const { bytes } = this;
    this.low = 0;
    this.high = 0;
    for (let i = 0; i < 10; i++) {
      if (this.at >= end) throw new Malformed('a number is cut');
      const byte = bytes[this.at++];
      const bits = byte & 0x7f;
      if (i < 4) this.low |= bits << (7 * i);
      else if (i === 4) {
        this.low |= bits << 28;
        this.high = bits >> 4;
      } else if (i < 9) this.high |= bits << (7 * (i - 5) + 3);
      else if (byte > 1) throw new Malformed('a number has more than 64 bits');
      else this.high |= bits << 31;
      if (byte < 0x80) return;
    }
    throw new Malformed('a number has more than ten bytes');
  }

  /** @param {number} end @returns {number} */
  u32(end) {
    this.varint(end);
    if (this.high !== 0) throw new Malformed('a number has more than 32 bits');
    return this.low >>> 0;
  }

  /** Counts a command or an entry of a map. */
  countCommand() {
    if (--this.commandsLeft < 0) throw new TooMany('a message has too many commands or entries');
  }

  /** @param {boolean} isRepeated has the same message had this field before? */
  countField(isRepeated) {
    if (--this.fieldsLeft < 0) throw new TooMany('a message has too many fields');
    if (isRepeated && --this.repeatsLeft < 0) throw new TooMany('a message repeats its fields');
  }

  /** @param {number} end of what contains it @returns {number} where the bytes end that follow */
  length(end) {
    const length = this.u32(end);
    if (length > end - this.at) throw new Malformed('a length goes beyond the end');
    return this.at + length;
  }

  /** @param {Scalar} type @param {number} end */
  number(type, end) {
    this.varint(end);
    const { low, high } = this;
    if (type === 'bool') return (low | high) !== 0;
    if (type === 'u32') {
      if (high !== 0) throw new Malformed('a number has more than 32 bits');
      return low >>> 0;
    }
    if (type === 'i32') {
      if (high !== low >> 31) throw new Malformed('a number has more than 32 bits');
      return low;
    }
    const value = (type === 'u64' ? high >>> 0 : high) * TWO_32 + (low >>> 0);
    if (!Number.isSafeInteger(value)) throw new Malformed('a number has more than 53 bits');
    return value;
  }

  /** @param {'string'|'bytes'|'given'} type @param {number} end */
  text(type, end) {
    const last = this.length(end);
    const start = this.at;
    this.at = last;
    if (type === 'given') return true;
    const { bytes } = this;
    if (type === 'string' && last - start <= MAX_SHORT && isAscii(bytes, start, last))
      return bytes.toString('latin1', start, last);
    const part = bytes.subarray(start, last);
    if (type === 'bytes') return part;
    if (!isUtf8(part)) throw new Malformed('text is not UTF-8');
    return part.toString();
  }

  /** @param {number} wire @param {number} end */
  skip(wire, end) {
    if (wire === VARINT) this.varint(end);
    else if (wire === BYTES) this.at = this.length(end);
    else if (wire === FIXED32) this.at += 4;
    else if (wire === FIXED64) this.at += 8;
    else throw new Malformed('an unknown wire type');
    if (this.at > end) throw new Malformed('a field is cut');
  }
}

/** @param {Buffer} bytes @param {number} start @param {number} end */
function isAscii(bytes, start, end) {
  for (let i = start; i < end; i++) if (bytes[i] >= 0x80) return false;
  return true;
}

/** By scalar; all others and messages: BYTES. @type {ReadonlySet<unknown>} */
const NUMBERS = new Set(['u32', 'u64', 'i32', 'i64', 'bool']);

/** @param {Scalar|Message} type */
function wireOf(type) {
  return NUMBERS.has(type) ? VARINT : BYTES;
}

/**
 * @param {Reader} reader @param {Message} message without lists, as all that clients send
 * @param {number} end @param {Values} values of an earlier part of the same message
 * @returns {Values} a field that is absent is undefined
 */
function readMessage(reader, message, end, values = {}) {
  while (reader.at < end) {
    const tag = reader.u32(end);
    if (tag < 8) throw new Malformed('a field has no number');
    const field = message.byNumber[tag >>> 3];
    const wire = tag & 7;
    if (field === undefined) {
      reader.countField(false);
      reader.skip(wire, end);
      continue;
    }
    const { name, type, form } = field;
    reader.countField(form === 'one' && values[name] !== undefined);
    if (form === 'one') values[name] = readValue(reader, type, wire, end, values[name]);
    else readEntry(reader, type, wire, end, (values[name] ??= new Map()));
  }
  return values;
}

/**
 * @param {Reader} reader @param {Scalar|Message} type @param {number} wire @param {number} end
 * @param {any} [before] the value so far: a message that comes in parts is one message
 * @returns {unknown}
 */
function readValue(reader, type, wire, end, before) {
  if (wire !== wireOf(type)) throw new Malformed('a field has a wrong wire type');
  if (typeof type !== 'string') return readMessage(reader, type, reader.length(end), before);
  return type === 'string' || type === 'bytes' || type === 'given'
    ? reader.text(type, end)
    : reader.number(type, end);
}

/**
 * @param {Reader} reader @param {Scalar|Message} type of the value @param {number} wire
 * @param {number} end @param {Map<string, unknown>} entries
 */
function readEntry(reader, type, wire, end, entries) {
  if (wire !== BYTES) throw new Malformed('a field has a wrong wire type');
  reader.countCommand();
  const last = reader.length(end);
  let key = '';
  let fields = 0;
  /** @type {unknown} */
  let value;
  while (reader.at < last) {
    const tag = reader.u32(last);
    if (tag < 8) throw new Malformed('a field has no number');
    reader.countField(++fields > 2);
    if (tag >>> 3 === KEY) key = String(readValue(reader, 'string', tag & 7, last));
    else if (tag >>> 3 === VALUE) value = readValue(reader, type, tag & 7, last, value);
    else reader.skip(tag & 7, last);
  }
  entries.set(key, value ?? (type === 'string' ? '' : {}));
}

/** Writes a shared buffer from its end: nothing else runs until the bytes are copied out. */
class Writer {
  buffer = Buffer.allocUnsafeSlow(16_384);
  at = 0;

  begin() {
    this.at = this.buffer.length;
  }

  /** @returns {Buffer} a copy of what is written */
  finish() {
    const bytes = Buffer.from(this.buffer.subarray(this.at));
    if (this.buffer.length > MAX_KEPT_BYTES) this.buffer = Buffer.allocUnsafeSlow(16_384);
    return bytes;
  }

  /** Makes room. @param {number} bytes */
  #reserve(bytes) {
    if (this.at >= bytes) return;
    const written = this.buffer.length - this.at;
    const larger = Buffer.allocUnsafeSlow(2 * (written + bytes));
    this.buffer.copy(larger, larger.length - written, this.at);
    this.buffer = larger;
    this.at = larger.length - written;
  }

  /** @param {number} value a whole number; below 0 as 64 bits */
  varint(value) {
    this.#reserve(10);
    const size = varintBytes(value);
    this.at -= size;
    writeVarint(this.buffer, this.at, value);
  }

  /** @param {string} text */
  string(text) {
    const length = Buffer.byteLength(text);
    this.#reserve(length);
    this.at -= length;
    this.buffer.write(text, this.at);
    this.varint(length);
  }

  /** @param {Buffer} bytes after their length */
  bytes(bytes) {
    this.raw(bytes);
    this.varint(bytes.length);
  }

  /** @param {Buffer} bytes */
  raw(bytes) {
    this.#reserve(bytes.length);
    this.at -= bytes.length;
    bytes.copy(this.buffer, this.at);
  }
}

/** A larger buffer is given up after its message. */
const MAX_KEPT_BYTES = 1024 * 1024;
const writer = new Writer();

/** @param {number} value @returns {number} bytes of the varint */
function varintBytes(value) {
  if (value < 0) return 10;
  let size = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) size++;
  return size;
}

/** @param {Buffer} target @param {number} at @param {number} value @returns {number} its end */
function writeVarint(target, at, value) {
  if (value < 0) return writeNegative(target, at, value);
  let rest = value;
  while (rest >= 128) {
    target[at++] = (rest % 128) | 0x80;
    rest = Math.floor(rest / 128);
  }
  target[at++] = rest;
  return at;
}

/** @param {Buffer} target @param {number} at @param {number} value */
function writeNegative(target, at, value) {
  let rest = BigInt.asUintN(64, BigInt(value));
  for (let i = 0; i < 9; i++) {
    target[at++] = Number(rest & 0x7fn) | 0x80;
    rest >>= 7n;
  }
  target[at++] = Number(rest);
  return at;
}

/**
 * @param {Message} message
 * @param {Values} values those that are absent or zero are left out; a list may be a Buffer with its
 *   fields
 */
function writeMessage({ fields }, values) {
  for (let i = fields.length - 1; i >= 0; i--) {
    const { name, number, type, form } = fields[i];
    const value = values[name];
    if (value === undefined || value === null) continue;
    if (form === 'one') writeField(number, type, value, false);
    else if (Buffer.isBuffer(value)) writer.raw(value);
    else if (form === 'list')
      for (let item = value.length - 1; item >= 0; item--)
        writeField(number, type, value[item], true);
    else for (const [key, item] of [...value].reverse()) writeEntry(number, type, key, item);
  }
}

/**
 * @param {number} number @param {Scalar|Message} type @param {any} value
 * @param {boolean} isKept is it written even if it is a zero value?
 */
function writeField(number, type, value, isKept) {
  if (typeof type !== 'string') {
    const end = writer.buffer.length - writer.at;
    writeMessage(type, value);
    writer.varint(writer.buffer.length - writer.at - end);
  } else if (type === 'string' || type === 'bytes') {
    if (value.length === 0 && !isKept) return;
    if (typeof value === 'string') writer.string(value);
    else writer.bytes(value);
  } else {
    if (Number(value) === 0 && !isKept) return;
    writer.varint(Number(value));
  }
  writer.varint((number << 3) | wireOf(type));
}

/** @param {number} number @param {Scalar|Message} type @param {string} key @param {unknown} value */
function writeEntry(number, type, key, value) {
  const end = writer.buffer.length - writer.at;
  writeField(VALUE, type, value, true);
  writeField(KEY, 'string', key, true);
  writer.varint(writer.buffer.length - writer.at - end);
  writer.varint((number << 3) | BYTES);
}

/** @param {Message} message @param {Values} values */
function encodeMessage(message, values) {
  writer.begin();
  writeMessage(message, values);
  return writer.finish();
}

/**
 * @template T @param {() => T} read
 * @returns {T|typeof TOO_MANY|null} null: malformed
 */
function readWithin(read) {
  try {
    return read();
  } catch (error) {
    if (error instanceof Malformed) return null;
    if (error instanceof TooMany) return TOO_MANY;
    throw error;
  }
}

/** @param {Reader} reader @param {number} last the end of its bytes @returns {Command} */
function readCommand(reader, last) {
  reader.countCommand();
  const start = reader.at;
  const end = reader.length(last);
  const values = readMessage(reader, COMMAND, end);
  const { id = 0 } = values;
  const source = reader.bytes.subarray(start, end);
  for (const { name } of REQUESTS) {
    const request = values[name];
    if (request !== undefined) return { id, method: /** @type {Method} */ (name), request, source };
  }
  if (id !== 0) throw new Malformed('a command without a request');
  return { id, method: 'pong', request: {}, source };
}

/** @type {Codec['decode']} */
function decode(bytes, maxCommands = MAX_COMMANDS) {
  return readWithin(() => {
    const reader = new Reader(bytes, maxCommands);
    const commands = [];
    while (reader.at < bytes.length) commands.push(readCommand(reader, bytes.length));
    return commands.length === 0 ? null : commands;
  });
}

/**
 * @param {Buffer} bytes body of a request of the emulation
 * @returns {{session: string, node: string, data: Buffer}|null} null: malformed
 */
export function decodeEmulation(bytes) {
  const read = readWithin(() => {
    const fields = readMessage(new Reader(bytes), EMULATION, bytes.length);
    const { session = '', node = '', data = NOTHING } = fields;
    return { session, node, data };
  });
  return read === TOO_MANY ? null : read;
}

/** @param {Buffer} bytes @param {number} at start @returns {number} its end */
export function delimitedEnd(bytes, at) {
  const reader = new Reader(bytes);
  reader.at = at;
  return reader.length(bytes.length);
}

/** @param {readonly Buffer[]} messages @returns {number} bytes of all, each after its length */
export function delimitedBytes(messages) {
  let bytes = 0;
  for (const { length } of messages) bytes += varintBytes(length) + length;
  return bytes;
}

/** @param {Buffer} target @param {number} at @param {Buffer} message @returns {number} its end */
export function writeDelimited(target, at, message) {
  const start = writeVarint(target, at, message.length);
  return start + message.copy(target, start);
}

/** @param {string} channel */
function channelField(channel) {
  return lengthField(CHANNEL_TAG, Buffer.from(channel));
}

/** @param {import('./messages.js').ClientInfo} info */
function infoField(info) {
  return lengthField(INFO_TAG, encodeMessage(CLIENT_INFO, info));
}

/** @param {number} tag @param {Buffer} bytes */
function lengthField(tag, bytes) {
  const field = Buffer.allocUnsafe(1 + varintBytes(bytes.length) + bytes.length);
  field[0] = tag;
  writeDelimited(field, 1, bytes);
  return field;
}

/** @param {Published} published @returns {number} bytes of the message Publication */
function publicationBytes({ start, end, offset, timeMs, info }) {
  const data = end - start;
  return (
    (data === 0 ? 0 : 1 + varintBytes(data) + data) +
    (info === null ? 0 : info.length) +
    (offset === 0 ? 0 : 1 + varintBytes(offset)) +
    (timeMs === 0 ? 0 : 1 + varintBytes(timeMs))
  );
}

/**
 * As `encode`, without a pass through the table. Returns its end.
 * @param {Buffer} target @param {number} at @param {Published} published
 */
function writePublication(target, at, { source, start, end, offset, timeMs, info }) {
  if (end > start) {
    target[at++] = DATA_TAG;
    at = writeVarint(target, at, end - start);
    at += source.copy(target, at, start, end);
  }
  if (info !== null) at += info.copy(target, at);
  if (offset !== 0) {
    target[at++] = OFFSET_TAG;
    at = writeVarint(target, at, offset);
  }
  if (timeMs !== 0) {
    target[at++] = TIME_TAG;
    at = writeVarint(target, at, timeMs);
  }
  return at;
}

/** @type {Codec['publicationMessage']} */
function publicationMessage(field, published) {
  const pub = publicationBytes(published);
  const push = field.length + 1 + varintBytes(pub) + pub;
  const message = Buffer.allocUnsafe(1 + varintBytes(push) + push);
  message[0] = PUSH_TAG;
  let at = writeVarint(message, 1, push);
  at += field.copy(message, at);
  message[at++] = PUB_TAG;
  at = writeVarint(message, at, pub);
  writePublication(message, at, published);
  return message;
}

/** @type {Codec['publicationList']} */
function publicationList(list) {
  let bytes = 0;
  for (const published of list) {
    const pub = publicationBytes(published);
    bytes += 1 + varintBytes(pub) + pub;
  }
  const fields = Buffer.allocUnsafe(bytes);
  let at = 0;
  for (const published of list) {
    fields[at++] = PUBLICATIONS_TAG;
    at = writeVarint(fields, at, publicationBytes(published));
    at = writePublication(fields, at, published);
  }
  return fields;
}

/** @type {Readonly<Codec>} */
export const protobufCodec = Object.freeze({
  isBinary: true,
  decode,
  encode: (/** @type {Reply} */ reply) => encodeMessage(REPLY, reply),
  encodeDone: (/** @type {number} */ id, /** @type {Method} */ method) =>
    encodeMessage(REPLY, { id, [method]: {} }),
  ping: NOTHING,
  channelField,
  publicationMessage,
  publicationList,
  infoField,
});
