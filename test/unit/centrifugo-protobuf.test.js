// centrifugo-protobuf.test.js: the protobuf codec of Centrifugo's door against protobufjs, and
// against input that no client would send.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FRAMINGS } from '../../src/doors/centrifugo/codec/framing.js';
import { decodeEmulation, protobufCodec } from '../../src/doors/centrifugo/codec/protobuf.js';
import { root } from '../helpers/centrifugo-schema.js';

/** @import protobuf from 'protobufjs' */
/** @typedef {Record<string, any>} Values */
/** @typedef {fc.Arbitrary<any>} Any */

const { encode } = protobufCodec;

/** @param {Buffer} bytes */
function decode(bytes, maxCommands = 1000) {
  const commands = protobufCodec.decode(bytes, maxCommands);
  assert.notEqual(commands, 'too_many');
  return /** @type {import('../../src/doors/centrifugo/codec/messages.js').Command[]|null} */ (
    commands
  );
}
const SKIPPED = new Set(['id', 'dict', 'profile', 'phase', 'cursor', 'limit', 'asc', 'delta']);

/** @param {string} name */
const typeOf = (name) => root.lookupType(name);
/** @param {string} name @param {Values} values */
const theirBytes = (name, values) => Buffer.from(typeOf(name).encode(values).finish());
/** @param {Buffer} message */
const delimited = (message) => FRAMINGS.delimited.frame([message]);

/** @type {Readonly<Record<string, () => Any>>} */
const SCALARS = {
  uint32: () => fc.nat(2 ** 32 - 1),
  int32: () => fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
  uint64: () => fc.oneof(fc.nat(300), fc.maxSafeNat()),
  int64: () => fc.oneof(fc.integer({ min: -300, max: 300 }), fc.maxSafeInteger()),
  bool: () => fc.boolean(),
  string: () => fc.string({ unit: 'grapheme', maxLength: 20 }),
  bytes: () => fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
};

/**
 * Values of a message; maps are objects without a prototype, as protobufjs takes them.
 * @param {string} name @param {readonly string[]} left fields to leave out
 * @returns {Any}
 */
function valuesOf(name, left = []) {
  /** @type {Record<string, Any>} */
  const fields = {};
  for (const field of typeOf(name).fieldsArray) {
    if (left.includes(field.name) || field.type === 'FilterNode') continue;
    const one = field.resolvedType ? valuesOf(field.resolvedType.name) : SCALARS[field.type]();
    fields[field.name] = field.map
      ? fc.dictionary(fc.string({ maxLength: 9 }), one, { maxKeys: 4, noNullPrototype: false })
      : field.repeated
        ? fc.array(one, { maxLength: 3 })
        : one;
  }
  return fc.record(fields, { requiredKeys: [] });
}

/**
 * What our decoder gives for values of protobufjs, and our encoder takes: maps are Maps, absent or
 * empty is left out.
 * @param {string} name @param {Values} values @returns {Values}
 */
function ours(name, values) {
  /** @type {Values} */
  const result = {};
  for (const field of typeOf(name).fieldsArray) {
    const value = values[field.name];
    const inner = (/** @type {any} */ one) =>
      field.resolvedType ? ours(field.resolvedType.name, one) : one;
    if (value === undefined) continue;
    if (field.map) {
      const entries = Object.keys(value).map((key) => [key, inner(value[key])]);
      if (entries.length > 0)
        result[field.name] = new Map(/** @type {[string, any][]} */ (entries));
    } else if (field.repeated) {
      if (value.length > 0) result[field.name] = value.map(inner);
    } else result[field.name] = inner(value);
  }
  return result;
}

/** Their form of what they read; a field that is absent has its zero value. @param {string} name @param {Buffer} bytes */
function theirs(name, bytes) {
  const type = typeOf(name);
  return type.toObject(type.decode(bytes), { longs: Number, bytes: Buffer, defaults: true });
}

test('commands of protobufjs are read as it wrote them', () => {
  const { fieldsArray } = typeOf('Command');
  for (const { name: method, resolvedType } of fieldsArray.slice(1)) {
    const requests = valuesOf(/** @type {protobuf.Type} */ (resolvedType).name);
    fc.assert(
      fc.property(fc.nat(2 ** 32 - 1), requests, (id, request) => {
        const message = theirBytes('Command', { id, [method]: request });
        const [command, ...others] = decode(delimited(message)) ?? [];
        assert.equal(others.length, 0);
        assert.deepEqual([command.id, command.method], [id, method]);
        // protobufjs writes zero values that are set; the fields that nobody serves are left out.
        const expected = known(
          ours(/** @type {protobuf.Type} */ (resolvedType).name, request),
          method,
        );
        assert.deepEqual(known(command.request, method), expected);
        assert.deepEqual(decode(command.source), [command]);
      }),
      { numRuns: 100 },
    );
  }
});

/** @param {Values} request @param {string} method @returns {Values} */
function known(request, method) {
  const isSkipped = (/** @type {string} */ name) =>
    SKIPPED.has(name) && !(name === 'limit' && method === 'history');
  return Object.fromEntries(
    Object.entries(request)
      .filter(([name]) => !isSkipped(name))
      .map(([name, value]) => [
        name,
        name === 'subs'
          ? new Map([...value].map(([key, sub]) => [key, known(sub, 'subscribe')]))
          : value,
      ]),
  );
}

test('protobufjs reads replies as they were meant', () => {
  const left = ['delta', 'channel', 'id'];
  const { fieldsArray } = typeOf('Reply');
  for (const { name, resolvedType } of fieldsArray.slice(1)) {
    const results = valuesOf(/** @type {protobuf.Type} */ (resolvedType).name, ['id']);
    fc.assert(
      fc.property(fc.nat(2 ** 32 - 1), results, (id, result) => {
        const reply = {
          id,
          [name]: ours(/** @type {protobuf.Type} */ (resolvedType).name, result),
        };
        const theirOwn = theirBytes('Reply', { id, [name]: without(result, left) });
        assert.deepEqual(theirs('Reply', encode(without(reply, left))), theirs('Reply', theirOwn));
      }),
      { numRuns: 100 },
    );
  }
  assert.deepEqual([...encode({ id: 3, publish: {} })], [8, 3, 66, 0]);
  assert.deepEqual([...protobufCodec.encodeDone(3, 'publish')], [8, 3, 66, 0]);
  assert.equal(encode({}).length, 0);
  assert.deepEqual([...delimited(protobufCodec.ping)], [0]);
});

/**
 * Publications have fields here that the server does not write.
 * @param {any} value @param {readonly string[]} names @returns {any}
 */
function without(value, names, isPublication = false) {
  if (value instanceof Map)
    return new Map([...value].map(([key, one]) => [key, without(one, names)]));
  if (Array.isArray(value)) return value.map((one) => without(one, names, true));
  if (typeof value !== 'object' || value === null || Buffer.isBuffer(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name]) => !(isPublication && names.includes(name)))
      .map(([name, one]) => [name, without(one, names, name === 'pub')]),
  );
}

const published = fc.record({
  data: SCALARS.bytes(),
  offset: SCALARS.uint64(),
  time: fc.maxSafeNat(),
  info: fc.option(fc.record({ user: SCALARS.string(), client: SCALARS.string() })),
});

/** @param {any} one @returns {import('../../src/doors/centrifugo/codec/messages.js').Published} */
function hubForm({ data, offset, time, info }) {
  const source = Buffer.concat([Buffer.from('head'), data, Buffer.from('tail')]);
  return {
    ...{ source, start: 4, end: 4 + data.length, offset, timeMs: time },
    info: info === null ? null : protobufCodec.infoField(info),
  };
}

test('a publication has the same bytes as the table gives it, in a push and in a list', () => {
  fc.assert(
    fc.property(fc.string(), fc.array(published, { maxLength: 4 }), (channel, list) => {
      const field = protobufCodec.channelField(channel);
      const shown = list.map(({ info, ...rest }) => ({ ...rest, info: info ?? undefined }));
      for (const [i, pub] of shown.entries())
        assert.deepEqual(
          theirs('Reply', protobufCodec.publicationMessage(field, hubForm(list[i]))),
          theirs('Reply', encode({ push: { channel, pub } })),
        );
      const publications = protobufCodec.publicationList(list.map(hubForm));
      assert.deepEqual(
        encode({ id: 1, subscribe: { epoch: 'e', publications } }),
        encode({ id: 1, subscribe: { epoch: 'e', publications: /** @type {any} */ (shown) } }),
      );
    }),
  );
});

test('several commands of a frame are read in order, a pong is an empty one', () => {
  const messages = [
    theirBytes('Command', { id: 1, connect: {} }),
    Buffer.alloc(0),
    theirBytes('Command', { id: 2, subscribe: { channel: '__proto__' } }),
    theirBytes('Command', { send: { data: Buffer.from('1') } }),
  ];
  const commands = decode(FRAMINGS.delimited.frame(messages)) ?? [];
  assert.deepEqual(
    commands.map(({ id, method }) => [id, method]),
    [
      [1, 'connect'],
      [0, 'pong'],
      [2, 'subscribe'],
      [0, 'send'],
    ],
  );
  assert.deepEqual(commands[2].request, { channel: '__proto__' });
});

test('names such as __proto__ are keys of maps', () => {
  const subs = Object.fromEntries([['__proto__', { epoch: 'x' }]]);
  Object.defineProperty(subs, '__proto__', { value: { epoch: 'x' }, enumerable: true });
  const message = theirBytes('Command', { id: 1, connect: { subs } });
  const [{ request }] = decode(delimited(message)) ?? [];
  assert.deepEqual(request.subs, new Map([['__proto__', { epoch: 'x' }]]));
});

test('the first request of a command counts, and a message in parts is one', () => {
  const both = Buffer.concat([
    theirBytes('Command', { id: 1, subscribe: { channel: 'a' } }),
    theirBytes('Command', { publish: { channel: 'b' } }),
    theirBytes('Command', { subscribe: { token: 't' } }),
  ]);
  const [command] = decode(delimited(both)) ?? [];
  assert.deepEqual([command.method, command.request], ['subscribe', { channel: 'a', token: 't' }]);
});

test('4,999 subscriptions in one connect are read at once', () => {
  const subs = Object.fromEntries(Array.from({ length: 4999 }, (_, i) => [`c${i}`, {}]));
  const bytes = delimited(theirBytes('Command', { id: 1, connect: { subs } }));
  const [{ request }] = decode(bytes, 5000) ?? [];
  assert.equal(request.subs?.size, 4999);
});

const ID = 0x08;
const SUBSCRIBE = (5 << 3) | 2;
const OFFSET = 7 << 3;
const tens = (/** @type {number} */ count) => Array(count).fill(0xff);
/** @param {number[]} fields of a subscribe request */
const subscribe = (fields) => [SUBSCRIBE, fields.length, ...fields];

test('malformed input is refused, and nothing is allocated for lengths', () => {
  /** @type {Record<string, number[]>} */
  const frames = {
    'nothing at all': [],
    'a length that goes beyond the frame': [5, ID, 1],
    'a length of 4 GB': [...tens(4), 0x0f, ID, 1],
    'a length of more than 32 bits': [...tens(5), 0x01, ID, 1],
    'a length that is cut': [0x80],
    'an id of 33 bits': [7, ID, ...tens(4), 0x1f, 0x00],
    'an id that is cut': [2, ID, 0x80],
    'a number of eleven bytes': [12, ID, ...tens(10), 0x01],
    'a tag of more than 32 bits': [7, ...tens(5), 0x01, 0x00],
    'a field without a number': [2, 0x00, 0x01],
    'a group': [2, 0x0b, 0x0c],
    'an unknown wire type': [2, 0x0e, 0x01],
    'an id with the wire type of text': [3, 0x0a, 1, 0x31],
    'a command with an id and no request': [2, ID, 1],
    'an offset of 54 bits': [0, ...subscribe([OFFSET, ...tens(7), 0x1f])],
    'an offset of more than 64 bits': [0, ...subscribe([OFFSET, ...tens(9), 0x02])],
    'an offset with a 66th bit': [0, ...subscribe([OFFSET, ...Array(9).fill(0x80), 0x02])],
    'a channel that is not UTF-8': [0, ...subscribe([0x0a, 2, 0xc3, 0x28])],
    'a channel that is longer than its request': [0, ...subscribe([0x0a, 9, 0x61])],
    'an unknown field that is cut': [3, (30 << 3) & 0x7f, 0x01, 0x80],
    'an unknown fixed number that is cut': [0, ...subscribe([0x9d, 0x06, 0x00])],
  };
  for (const [name, bytes] of Object.entries(frames)) {
    if (bytes[0] === 0) bytes[0] = bytes.length - 1;
    assert.equal(decode(Buffer.from(bytes)), null, name);
  }
});

test('what is unusual but well-formed is read', () => {
  const long = [ID, 0x81, 0x80, 0x00]; // 1 in three bytes
  const unknown = [0x9d, 0x06, 1, 2, 3, 4, 0x99, 0x06, 1, 2, 3, 4, 5, 6, 7, 8];
  const negative = [14 << 3, ...tens(9), 0x01]; // flag: -1
  const filter = [(13 << 3) | 2, 2, 0x0a, 0x00];
  const bytes = [...long, ...unknown, ...subscribe([...negative, ...filter])];
  const [command] = decode(Buffer.from([bytes.length, ...bytes])) ?? [];
  assert.deepEqual([command.id, command.request], [1, { flag: -1, tf: true }]);
});

test('no bytes make the reader throw, and what it reads again is the same', () => {
  const messages = fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc.tuple(valuesOf('Command'), fc.nat(60), fc.nat(255)).map(([values, place, byte]) => {
      const bytes = delimited(theirBytes('Command', values));
      bytes[place % bytes.length] = byte;
      return bytes;
    }),
  );
  fc.assert(
    fc.property(messages, (bytes) => {
      const commands = decode(Buffer.from(bytes));
      for (const command of commands ?? []) assert.deepEqual(decode(command.source), [command]);
      decodeEmulation(Buffer.from(bytes));
    }),
    { numRuns: 2000 },
  );
});

test('requests of the emulation', () => {
  fc.assert(
    fc.property(valuesOf('EmulationRequest'), (values) => {
      const { session = '', node = '', data = Buffer.alloc(0) } = values;
      assert.deepEqual(decodeEmulation(theirBytes('EmulationRequest', values)), {
        ...{ session, node, data },
      });
    }),
  );
  assert.equal(decodeEmulation(Buffer.from([0x0a, 9])), null);
});

test('each framing says where a message ends, and lines have no line breaks', () => {
  const json = fc.array(
    fc
      .tuple(fc.json(), fc.constantFrom('', '\n', '\r', '\r\n'))
      .map(([text, end]) => Buffer.from(`{${end}"a":${end}${text}}`)),
    { minLength: 1, maxLength: 4 },
  );
  fc.assert(
    fc.property(json, (messages) => {
      for (const [name, { frame, endOf }] of Object.entries(FRAMINGS)) {
        const all = frame(messages);
        let at = 0;
        for (const message of messages) {
          const one = frame([message]);
          const end = endOf(all, at);
          assert.deepEqual(all.subarray(at, end), one, name);
          at = end;
        }
        assert.equal(at, all.length, name);
      }
      const text = String(FRAMINGS.lines.frame(messages));
      assert.equal(text.split('\n').length, messages.length + 1);
      for (const [i, line] of text.trim().split('\n').entries())
        assert.deepEqual(JSON.parse(line), JSON.parse(String(messages[i])));
    }),
    { numRuns: 200 },
  );
});

test('commands and entries of maps count together, and one more ends the message', () => {
  const read = (/** @type {Buffer} */ bytes) => protobufCodec.decode(bytes, 10);
  const connect = (/** @type {number[]} */ fields) =>
    Buffer.from([4 + fields.length, 0x08, 1, 0x22, fields.length, ...fields]);
  const times = (/** @type {number} */ n, /** @type {number[]} */ bytes) =>
    Array(n).fill(bytes).flat();
  assert.equal(decode(Buffer.alloc(10), 10)?.length, 10);
  assert.equal(read(Buffer.alloc(11)), 'too_many');
  assert.equal(decode(connect(times(9, [0x1a, 0])), 10)?.[0].request.subs?.size, 1);
  assert.equal(read(connect(times(10, [0x1a, 0]))), 'too_many');
  assert.equal(read(connect(times(10, [0x32, 0]))), 'too_many');
});

test('a message with very many fields is not read to its end', () => {
  const command = (/** @type {number[]} */ fields) =>
    Buffer.from([0x80 | (fields.length & 127), fields.length >> 7, ...fields]);
  const times = (/** @type {number} */ n, /** @type {number[]} */ bytes) =>
    Array(n).fill(bytes).flat();
  const unknown = (/** @type {number} */ n) => command([0x08, 1, 0x5a, 0, ...times(n, [0x12, 0])]);
  assert.equal(decode(unknown(158), 10)?.length, 1);
  assert.equal(protobufCodec.decode(unknown(159), 10), 'too_many');
  const again = (/** @type {number} */ n) => command([0x5a, 0, ...times(n, [0x08, 1])]);
  assert.equal(decode(again(65))?.length, 1);
  assert.equal(protobufCodec.decode(again(66), 1000), 'too_many');
});
