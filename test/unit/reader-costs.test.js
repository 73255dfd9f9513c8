// reader-costs.test.js: what the worst message costs each reader of a client's bytes, before a token
// or a rate has refused it. The measure is the worst message of the native protocol with as many
// bytes, in the same run: a flat array, which one scan checks.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  decodeEmulation as decodeEmulationJson,
  jsonCodec,
} from '../../src/doors/centrifugo/codec/json.js';
import {
  decodeEmulation as decodeEmulationProtobuf,
  protobufCodec,
} from '../../src/doors/centrifugo/codec/protobuf.js';
import { fieldsOf, readMessage } from '../../src/doors/pusher/codec/messages.js';
import { decode, readId, readPresence } from '../../src/protocol/decode.js';
import { commandFault, isCommand } from '../../src/protocol/decode-fault.js';
import { scan } from '../../src/protocol/json-scan.js';

/** The default of FANFARE_MAX_MESSAGE_BYTES, and one that operators choose. */
const SIZES = [102_400, 1_048_576];
/** Of a server that allows 128 rooms a connection, and of one that allows any number. */
const MAX_COMMANDS = [384, 5000];
/** Times the native reader: 8 ms for 100 KB on a slow machine, which takes 1.3 ms for that scan. */
const MAX_RATIO = 6;

/** @param {string} unit @param {number} bytes */
const repeated = (unit, bytes) => unit.repeat(Math.floor(bytes / unit.length));
/** @param {number} bytes @param {(i: number) => string} part @param {string} [joint] */
function joined(bytes, part, joint = ',') {
  const parts = [];
  for (let i = 0, size = 0; size < bytes; i++) {
    parts.push(part(i));
    size += parts[i].length + joint.length;
  }
  return parts.slice(0, -1).join(joint);
}

/** @param {number} value */
function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}
/** @param {number} number @param {Buffer} bytes */
const field = (number, bytes) =>
  Buffer.concat([varint((number << 3) | 2), varint(bytes.length), bytes]);
/** @param {Buffer} command */
const delimited = (command) => Buffer.concat([varint(command.length), command]);
/** @param {string} unit of fields of a connect @param {number} bytes */
const connectOf = (unit, bytes) =>
  delimited(field(4, Buffer.from(repeated(unit, bytes - 16), 'latin1')));

/**
 * The worst messages of a size, by name.
 * @type {Record<string, (bytes: number) => Buffer>}
 */
const PROTOBUF = {
  'empty commands': (bytes) => Buffer.alloc(bytes),
  'commands that are malformed': (bytes) => Buffer.from(repeated('\x02\x08\x01', bytes)),
  pings: (bytes) => Buffer.from(repeated('\x04\x08\x01\x5a\x00', bytes)),
  'subscriptions of a byte': (bytes) =>
    Buffer.from(repeated('\x07\x08\x01\x2a\x03\x0a\x01a', bytes)),
  'nameless entries of subs': (bytes) => connectOf('\x1a\x00', bytes),
  'named entries of subs': (bytes) => connectOf('\x1a\x05\x0a\x03abc', bytes),
  'different entries of subs': (bytes) => {
    const entries = [];
    for (let i = 0, size = 0; size < bytes - 100; i++) {
      entries.push(field(3, field(1, Buffer.from(i.toString(36)))));
      size += entries[i].length;
    }
    return delimited(field(4, Buffer.concat(entries)));
  },
  'entries of headers': (bytes) => connectOf('\x32\x06\x0a\x01a\x12\x01b', bytes),
  'an entry whose key comes again': (bytes) =>
    delimited(field(4, field(3, Buffer.from(repeated('\x0a\x01a', bytes - 32))))),
  'a token that comes again': (bytes) => connectOf('\x0a\x01a', bytes),
  'a connect in parts': (bytes) => delimited(Buffer.from(repeated('\x22\x00', bytes - 8))),
  'unknown fields': (bytes) => delimited(Buffer.from(repeated('\x12\x00', bytes - 8))),
  'unknown fields of two bytes of number': (bytes) =>
    delimited(Buffer.from(repeated('\xf8\x7f\x01', bytes - 8), 'latin1')),
  'a long token': (bytes) =>
    connectOf(`\x0a${varint(bytes - 64).toString('latin1')}${'a'.repeat(bytes - 64)}`, bytes),
};

/** @type {Record<string, (bytes: number) => string>} */
const JSON_MESSAGES = {
  'empty commands': (bytes) => repeated('{}\n', bytes),
  pings: (bytes) => repeated('{"id":1,"ping":{}}\n', bytes),
  'commands with an unknown name': (bytes) => repeated('{"a":1}\n', bytes),
  subs: (bytes) =>
    `{"id":1,"connect":{"subs":{${joined(bytes - 64, (i) => `"${i.toString(36)}":{}`)}}}}`,
  'subs of one name': (bytes) =>
    `{"id":1,"connect":{"subs":{${joined(bytes - 64, () => '"a":{}')}}}}`,
  'subs with escaped names': (bytes) =>
    `{"id":1,"connect":{"subs":{${joined(bytes - 64, (i) => `"\\u0061${i}":{}`)}}}}`,
  'subs that come again': (bytes) =>
    `{"id":1,${joined(bytes - 64, () => '"connect":{"subs":{"a":{}}}')}}`,
  headers: (bytes) =>
    `{"id":1,"connect":{"headers":{${joined(bytes - 64, (i) => `"${i.toString(36)}":""`)}}}}`,
  'an escaped token': (bytes) =>
    `{"id":1,"connect":{"token":"${repeated('\\u0061', bytes - 64)}"}}`,
  'unknown fields': (bytes) => `{"id":1,"ping":{${joined(bytes - 64, (i) => `"${i}":1`)}}}`,
  'unknown fields with escaped names': (bytes) =>
    `{"id":1,"ping":{${joined(bytes - 64, (i) => `"\\u0061${i}":1`)}}}`,
  'a flat array': (bytes) => `{"id":1,"rpc":{"data":[${repeated('0,', bytes - 64)}0]}}`,
  'deep arrays': (bytes) => `{"id":1,"rpc":{"data":${'['.repeat(bytes - 64)}`,
  'data with many keys': (bytes) =>
    `{"id":1,"rpc":{"data":{${joined(bytes - 64, (i) => `"k${i}":1`)}}}}`,
  'data with escaped keys': (bytes) =>
    `{"id":1,"rpc":{"data":{${joined(bytes - 64, (i) => `"\\u0061${i}-------":1`)}}}}`,
  'line breaks': (bytes) => `{"id":1,"rpc":{"data":[${'\n'.repeat(bytes - 64)}]}}`,
};

/** @type {Record<string, (bytes: number) => string>} */
const NATIVE = {
  'many members': (bytes) => `{"type":"a",${joined(bytes - 64, (i) => `"${i}":1`)}}`,
  'many escaped members': (bytes) =>
    `{"type":"a",${joined(bytes - 64, (i) => `"\\u0061${i}-------":1`)}}`,
  'payload with many keys': (bytes) =>
    `{"type":"message","room":"a","payload":{${joined(bytes - 64, (i) => `"k${i}":1`)}}}`,
  'payload with escaped keys': (bytes) =>
    `{"type":"message","room":"a","payload":{${joined(bytes - 64, (i) => `"\\u0061${i}-------":1`)}}}`,
  'a position with many keys': (bytes) =>
    `{"type":"join","room":"a","since":{${joined(bytes - 64, (i) => `"k${i}":1`)}}}`,
  'presence with escaped keys': (bytes) =>
    `{"type":"join","room":"a","presence":{${joined(bytes - 64, (i) => `"\\u0061${i}":1`)}}}`,
  'a flat array that is cut': (bytes) =>
    `{"type":"message","room":"a","payload":[${repeated('0,', bytes - 64)}`,
  'a token beside deep arrays': (bytes) =>
    `{"type":"hello","token":"a","x":${'['.repeat(bytes - 64)}`,
};

/** @type {Record<string, (bytes: number) => string>} */
const PUSHER = {
  quotes: (bytes) => `{"event":"x","data":"${repeated('\\"', bytes - 64)}"}`,
  'many members': (bytes) => `{"event":"x",${joined(bytes - 64, (i) => `"${i}":1`)}}`,
  'many escaped members': (bytes) =>
    `{"data":1,"event":"x",${joined(bytes - 64, (i) => `"\\u0061${i}":1`)}}`,
  'a flat array': (bytes) => `{"event":"x","data":[${repeated('0,', bytes - 64)}0]}`,
  'integer keys': (bytes) =>
    `{"event":"x","data":{${joined(bytes - 64, (i) => `"${i * 99_991}":1`)}}}`,
  objects: (bytes) => `{"event":"x","data":[${repeated('{"a":1},', bytes - 64)}0]}`,
  'deep arrays': (bytes) => `{"event":"x","data":${'['.repeat(bytes - 64)}`,
  'data with many members in a string': (bytes) =>
    `{"event":"x","data":${JSON.stringify(`{${joined(bytes * 0.7, (i) => `"${i}":1`)}}`)}}`,
  'data with escaped members in a string': (bytes) =>
    `{"event":"x","data":${JSON.stringify(`{${joined(bytes * 0.75, (i) => `"\\u0061${i}":1`)}}`)}}`,
};

/** @type {Record<string, (bytes: number) => Buffer>} */
const EMULATION_PROTOBUF = {
  'a session that comes again': (bytes) => Buffer.from(repeated('\x12\x00', bytes)),
  'unknown fields': (bytes) => Buffer.from(repeated('\x7a\x00', bytes)),
};

/** @type {Record<string, (bytes: number) => string>} */
const EMULATION_JSON = {
  'deep arrays': (bytes) => '['.repeat(bytes),
  'data of deep arrays': (bytes) => `{"data":${'['.repeat(bytes - 64)}`,
  'many members': (bytes) => `{${joined(bytes - 64, (i) => `"${i}":1`)}}`,
  'many escaped members': (bytes) => `{${joined(bytes - 64, (i) => `"\\u0061${i}":1`)}}`,
  'escaped data': (bytes) =>
    `{"session":"a","node":"b","data":"${repeated('\\u0061', bytes - 64)}"}`,
};

/**
 * A reader, as its callers use it, for messages of one kind.
 * @typedef {{name: string, messages: Record<string, (bytes: number) => string|Buffer>,
 *   read: (message: Buffer) => unknown, maxBytes?: number}} Reader
 */

/** @type {Reader[]} */
const READERS = [
  {
    name: 'native',
    messages: NATIVE,
    read(message) {
      const command = decode(message);
      if (command !== null) return readPresence(command);
      // As the dispatcher refuses it.
      const fields = scan(message);
      return [readId(message, fields), commandFault(message, fields), isCommand(message, fields)];
    },
  },
  { name: 'Pusher', messages: PUSHER, read: readPusher },
  // Bodies are bounded, whatever the settings permit.
  {
    name: 'emulation, JSON',
    messages: EMULATION_JSON,
    read: decodeEmulationJson,
    maxBytes: 65_536,
  },
  {
    name: 'emulation, protobuf',
    messages: EMULATION_PROTOBUF,
    read: decodeEmulationProtobuf,
    maxBytes: 65_536,
  },
  ...MAX_COMMANDS.flatMap((max) => [
    {
      name: `Centrifugo's JSON, at most ${max} commands`,
      messages: JSON_MESSAGES,
      read: (/** @type {Buffer} */ message) => jsonCodec.decode(message, max),
    },
    {
      name: `Centrifugo's protobuf, at most ${max} commands`,
      messages: PROTOBUF,
      read: (/** @type {Buffer} */ message) => protobufCodec.decode(message, max),
    },
  ]),
];

/** @param {Buffer} bytes */
function readPusher(bytes) {
  const message = readMessage(bytes.toString());
  return message !== null && fieldsOf(message);
}

/** @param {() => unknown} act @returns {number} ms of CPU */
function costOf(act) {
  const before = process.cpuUsage();
  act();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/** The least of up to twelve runs; stops below `maxMs`. @param {() => unknown} act @param {number} maxMs */
function leastCostOf(act, maxMs) {
  let least = costOf(act);
  for (let run = 1; run < 12 && least > maxMs; run++) least = Math.min(least, costOf(act));
  return least;
}

/** By size: what the native protocol's worst message costs, the median of several. */
const NATIVE_MS = new Map(
  [65_536, ...SIZES].map((bytes) => {
    const message = Buffer.from(
      `{"type":"message","room":"a","payload":[${repeated('0,', bytes - 64)}0]}`,
    );
    const costs = Array.from({ length: 25 }, () => costOf(() => decode(message)));
    return [bytes, costs.sort((a, b) => a - b)[12]];
  }),
);

for (const { name, messages, read, maxBytes = Number.POSITIVE_INFINITY } of READERS) {
  test(`${name}: no message costs more than six times the native protocol's worst`, () => {
    /** @type {string[]} */
    const excessive = [];
    for (const size of SIZES) {
      const bytes = Math.min(size, maxBytes);
      const maxMs = MAX_RATIO * /** @type {number} */ (NATIVE_MS.get(bytes));
      for (const [kind, create] of Object.entries(messages)) {
        const message = Buffer.from(create(bytes));
        assert.ok(message.length <= bytes && message.length > 0.7 * bytes, `${kind}: size`);
        const ms = leastCostOf(() => read(message), maxMs);
        if (ms > maxMs) excessive.push(`${kind}: ${ms.toFixed(1)} ms, ${maxMs.toFixed(1)} allowed`);
      }
    }
    assert.deepEqual(excessive, []);
  });
}
