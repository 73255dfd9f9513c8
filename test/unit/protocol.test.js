// protocol.test.js: reads commands: the check of a message, and its fields (decode.js, json-scan.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  decode as decodeBytes,
  isPayload,
  isRoom,
  readBefore,
  readId,
  readLatest,
  readSince,
  readSinceTime,
} from '../../src/protocol/decode.js';
import { commandFault } from '../../src/protocol/decode-fault.js';
import { MAX_JSON_DEPTH, MAX_JSON_KEYS } from '../../src/protocol/json-scan.js';

/** A command with its payload as text. @param {string} text */
function decode(text) {
  const command = decodeBytes(Buffer.from(text));
  if (command === null) return null;
  const { payloadStart, payloadEnd } = command;
  return {
    ...command,
    payload:
      payloadStart < 0 ? undefined : command.source.toString('utf8', payloadStart, payloadEnd),
  };
}

test('since and limit are read as sent, and a malformed since is not a position', () => {
  const command = decode(
    '{"since":{"epoch":"00000000000000ff","offset":"17"},"type":"join","limit":5,"sinc":1,"limits":2}',
  );
  assert.deepEqual(command?.since, { epoch: '00000000000000ff', offset: '17' });
  assert.equal(command?.limit, 5);
  const position = { epoch: '00000000000000ff', offset: 17 };
  assert.deepEqual(readSince(command?.since), { ...position, connectionId: '' });
  assert.deepEqual(readSince({ ...position, connectionId: 'Zm9v-_A1' }), {
    ...position,
    connectionId: 'Zm9v-_A1',
  });
  for (const connectionId of [7, 'a b', '', 'x'.repeat(65), null])
    assert.deepEqual(readSince({ ...position, connectionId }), { ...position, connectionId: '' });
  assert.equal(decode('{"type":"join","s\\u0069nce":7}')?.since, 7);
  assert.equal(decode('{"type":"join","since":null}')?.since, undefined);
  assert.equal(readSince(undefined), null);
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const since = readSince(value ?? undefined);
      assert.ok(since === null || (Number.isSafeInteger(since.offset) && since.offset >= 0));
    }),
  );
});

test('echo is read as sent, and names like it are not', () => {
  assert.equal(decode('{"type":"message","echo":false,"ech":1,"echos":2}')?.echo, false);
  assert.equal(decode('{"type":"message","\\u0065cho":true}')?.echo, true);
  assert.equal(decode('{"type":"message","echo":null}')?.echo, undefined);
  assert.equal(decode('{"type":"message","payload":{"echo":false},"else":1}')?.echo, undefined);
});

test('last is a whole number from 1 to 10,000, and names like it are not last', () => {
  assert.equal(decode('{"type":"join","last":50,"lasts":1,"las":2,"lost":3}')?.last, 50);
  assert.equal(decode('{"type":"join","l\\u0061st":7}')?.last, 7);
  assert.equal(decode('{"type":"join","last":null}')?.last, undefined);
  assert.deepEqual(readLatest(undefined, undefined), { last: 0, lastSeconds: 0 });
  for (const last of [1, 10_000])
    assert.deepEqual(readLatest(last, undefined), { last, lastSeconds: 0 });
  for (const last of [0, -1, 1.5, 10_001, Number.POSITIVE_INFINITY, '5', [5], true]) {
    assert.equal(readLatest(last, undefined), null);
    assert.equal(readLatest(last, 60), null);
  }
});

test('lastSeconds is a whole number up to 7 days, and asks for all messages unless last is there', () => {
  const command = decode(
    '{"type":"join","lastSeconds":60,"lastSecond":1,"lastSecondss":2,"last":3}',
  );
  assert.deepEqual([command?.lastSeconds, command?.last], [60, 3]);
  assert.equal(decode('{"type":"join","lastSec\\u006fnds":7}')?.lastSeconds, 7);
  assert.equal(decode('{"type":"join","lastSeconds":null}')?.lastSeconds, undefined);
  for (const lastSeconds of [1, 604_800]) {
    assert.deepEqual(readLatest(undefined, lastSeconds), { last: 10_000, lastSeconds });
    assert.deepEqual(readLatest(5, lastSeconds), { last: 5, lastSeconds });
  }
  for (const lastSeconds of [0, -1, 1.5, 604_801, Number.NaN, '5', [5], true])
    assert.equal(readLatest(5, lastSeconds), null);
});

test('before is a position, sinceTime a time, and names like them are not', () => {
  const epoch = '00000000000000ff';
  const command = decode(
    `{"type":"history","before":{"epoch":"${epoch}","offset":"17"},"sinceTime":5,"befor":1,"befores":2,"since":3,"sinceTim":4,"sinceTimes":5}`,
  );
  assert.deepEqual(
    [command?.before, command?.sinceTime, command?.since],
    [{ epoch, offset: '17' }, 5, 3],
  );
  assert.equal(decode('{"type":"history","bef\\u006fre":7}')?.before, 7);
  assert.equal(decode('{"type":"history","since\\u0054ime":7}')?.sinceTime, 7);
  const none = decode('{"type":"history","before":null,"sinceTime":null,"payload":{"before":1}}');
  assert.deepEqual([none?.before, none?.sinceTime], [undefined, undefined]);

  assert.deepEqual(readBefore({ epoch, offset: 17, payload: 'x' }), {
    epoch,
    offset: 17,
    connectionId: '',
  });
  assert.equal(readBefore(undefined), null);
  for (const bad of [7, 'x', {}, [], { epoch }, { epoch, offset: -1 }, { epoch, offset: 1.5 }])
    assert.equal(readBefore(bad), undefined);
  assert.equal(readSinceTime(undefined), null);
  for (const timeMs of [0, 1_760_000_000_000, Number.MAX_SAFE_INTEGER])
    assert.equal(readSinceTime(timeMs), timeMs);
  for (const bad of [-1, 1.5, 2 ** 53, Number.NaN, '5', [5], true, {}])
    assert.equal(readSinceTime(bad), undefined);
});

test('a payload is passed on unchanged, numbers and escapes included', () => {
  for (const payload of [
    '1e400',
    '9007199254740993',
    '"\\ud800"',
    '{"a":1,"a":2}',
    '[1, 2 ,{"b":"}\\""}]',
    'null',
    '"ü€😀"',
  ]) {
    assert.equal(decode(`{"type":"echo","payload": ${payload} ,"x":1}`)?.payload, payload);
    assert.equal(decode(`{"payload":${payload},"type":"echo"}`)?.payload, payload);
  }
});

test('the name cache returns the right name among many of one length, also the second time', () => {
  for (let i = 0; i < 20_000; i++) {
    const room = `room-${10_000 + (i % 10_000)}`;
    assert.equal(decode(`{"type":"join","room":"${room}"}`)?.room, room);
  }
});

test('a field named payload inside another value is not the payload', () => {
  const command = decode(
    '{"type":"x","a":{"payload":1},"payload":[{"payload":2}],"b":[{"payload":3}]}',
  );
  assert.equal(command?.payload, '[{"payload":2}]');
  assert.equal(decode('{"type":"x","a":{"payload":1}}')?.payload, undefined);
});

test('a key that spells payload with escapes is treated as JSON.parse treats it', () => {
  assert.equal(decode('{"type":"x","payload":1,"payl\\u006fad":[2]}')?.payload, '[2]');
  assert.equal(decode('{"type":"x","payl\\u006fad":1,"payload":2}')?.payload, '2');
});

test('property: the payload found is the one that JSON.parse returns', () => {
  fc.assert(
    fc.property(
      fc.jsonValue({ maxDepth: 4 }),
      fc.jsonValue({ maxDepth: 2 }),
      fc.boolean(),
      (payload, other, first) => {
        const fields = first ? { payload, type: 't', other } : { other, type: 't', payload };
        const text = JSON.stringify(fields, null, first ? 1 : 0);
        const command = decode(text);
        if (command === null) return /__proto__|constructor|prototype/.test(text);
        assert.deepEqual(
          JSON.parse(/** @type {string} */ (command.payload)),
          JSON.parse(text).payload,
        );
        return true;
      },
    ),
    { numRuns: 2000 },
  );
});

test('the check accepts exactly the texts that JSON.parse accepts, within the limits', () => {
  const bits = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    '"',
    '\\',
    ',',
    ':',
    '"a"',
    '"payload":',
    '1',
    '-',
    '0',
    '.5',
    'e+1',
    'E',
    'null',
    'true',
    'fals',
    'e',
    ' ',
    '\n',
    '\t',
    '\u0001',
    '\\u00',
    '\\u00e9',
    '\\n',
    'ü',
    '\u007f',
    '1e400',
    '""',
    '{}',
    '[]',
    '"k":',
  );
  /** @param {string} text */
  const parses = (text) => {
    try {
      const value = JSON.parse(text);
      return typeof value === 'object' && value !== null && !Array.isArray(value);
    } catch {
      return false;
    }
  };
  for (const text of ['{"\\', '{"type":"\\', '{"type":"\\u', '{"type":"\\u12'])
    assert.equal(decode(text), null, text);
  let taken = 0;
  const agree = (/** @type {string} */ text) => {
    const isTaken = decode(text) !== null;
    if (isTaken) taken++;
    assert.equal(isTaken, parses(text), text);
  };
  fc.assert(
    fc.property(fc.array(bits, { maxLength: 12 }), (parts) => {
      agree(`{"type":"x","payload":${parts.join('')}}`);
      agree(`{"type":"x",${parts.join('')}}`);
      agree(`{"type":"x"${parts.join('')}`);
    }),
    { numRuns: 5000 },
  );
  assert.ok(taken > 100, `only ${taken} of the texts were valid: the test shows too little`);
});

test('a valid message with one byte changed is accepted if and only if JSON.parse accepts it', () => {
  fc.assert(
    fc.property(
      fc.jsonValue({ maxDepth: 4 }),
      fc.nat(),
      fc.integer({ min: 0x20, max: 0x7e }),
      (payload, at, byte) => {
        const bytes = Buffer.from(JSON.stringify({ type: 't', id: 1, payload }));
        bytes[17 + (at % (bytes.length - 17))] = byte;
        const text = bytes.toString();
        if (
          /__proto__|constructor|prototype|\\u|"(type|id)":/.test(text.slice(17)) ||
          Buffer.from(text).length !== bytes.length
        )
          return;
        let parses = true;
        try {
          JSON.parse(text);
        } catch {
          parses = false;
        }
        assert.equal(decodeBytes(bytes) !== null, parses, text);
      },
    ),
    { numRuns: 5000 },
  );
});

test('a text that is not a command is refused', () => {
  const texts = [
    '',
    '1',
    'null',
    '"x"',
    '[]',
    '[{"type":"x"}]',
    '{',
    '{}',
    '{"type":1}',
    '{"type":"x"}}',
    '{"type":"x"} 1',
  ];
  for (const text of texts) assert.equal(decode(text), null, text);
  for (const id of ['{}', 'null', '1.5', '9007199254740993', `"${'x'.repeat(65)}"`]) {
    assert.equal(decode(`{"type":"x","id":${id}}`), null, id);
  }
  for (const id of ['1', '-1', '"x"', `"${'x'.repeat(64)}"`])
    assert.notEqual(decode(`{"type":"x","id":${id}}`), null, id);
});

test('depth is limited before JSON.parse sees the text', () => {
  const nested = (/** @type {number} */ n) =>
    `{"type":"x","payload":${'['.repeat(n)}${']'.repeat(n)}}`;
  assert.notEqual(decode(nested(MAX_JSON_DEPTH - 1)), null);
  assert.equal(decode(nested(MAX_JSON_DEPTH)), null);
  assert.equal(decode(`{"type":"x","payload":${'['.repeat(100_000)}`), null);
});

test('payloads and unknown fields may have any keys, what the server parses may not', () => {
  const keyed = (/** @type {number} */ n) =>
    `{${Array.from({ length: n }, (_, i) => `"k${i}":1`)}}`;
  const forbidden = ['__proto__', 'constructor', 'prototype', '__pr\\u006fto__'];
  const values = [keyed(MAX_JSON_KEYS), ...forbidden.map((key) => `{"a":[{"${key}":1}]}`)];
  for (const field of ['payload', 'pay\\u006coad', 'data'])
    for (const value of values)
      assert.notEqual(decode(`{"type":"x","${field}":${value}}`), null, field + value);
  for (const field of ['since', 'before', 'presence', 'room', 'key', 'idempotencyKey', 'expect'])
    for (const value of values)
      assert.equal(decode(`{"type":"x","${field}":${value}}`), null, field + value);
  for (const key of forbidden) assert.equal(decode(`{"type":"x","${key}":1}`), null, key);
  assert.notEqual(decode(keyed(MAX_JSON_KEYS - 1).replace('{', '{"type":"x",')), null);
  assert.equal(decode(keyed(MAX_JSON_KEYS).replace('{', '{"type":"x",')), null);
  // A payload does not count for the fields after it.
  const mixed = `{"type":"x","payload":${values[0]},"presence":${keyed(MAX_JSON_KEYS - 3)}}`;
  assert.notEqual(decode(mixed), null);
});

test('room names are 1 to 200 characters of the allowed set', () => {
  for (const room of ['a', 'A-Z_0:9.@/x', 'x'.repeat(200)]) assert.ok(isRoom(room), room);
  for (const room of [
    '',
    'x'.repeat(201),
    'a b',
    '*',
    'a\n',
    'ü',
    '{x}',
    'a\u0000',
    '\u202e',
    7,
    null,
    undefined,
    ['a'],
  ]) {
    assert.ok(!isRoom(room), String(room));
  }
});

test('a refused message has an id if that comes before the fault, or before a cut', () => {
  const idOf = (/** @type {string} */ text) => readId(Buffer.from(text));
  const deep = '['.repeat(MAX_JSON_DEPTH);
  assert.equal(idOf(`{"id":7,"type":"message","payload":${deep}`), 7);
  assert.equal(idOf('{"type":"x","id":"a\\n","payload":{"__proto__":1}}'), 'a\n');
  assert.equal(idOf(`{"type":"message","payload":${deep},"id":7}`), undefined);
  assert.equal(idOf('{"id":1,"payload":"cut he'), 1);
  // It may have been 12.
  assert.equal(idOf('{"id":1'), undefined);
  for (const text of ['', 'id', '{"id":{},}', '{"id":1.5}', '{"id":"x'])
    assert.equal(idOf(text), undefined, text);
});

/** What the sender of a refused message is told. @type {[text: string, message: string][]} */
const FAULTS = [
  ['', 'The message is not a JSON object: it is empty.'],
  ['hello', 'The message is not a JSON object: unexpected "h" at byte 0.'],
  ['[1]', 'The message is not a JSON object: unexpected "[" at byte 0.'],
  ['{"type":"x"', 'The message is not a JSON object: it ends too early, at byte 11.'],
  ['{"type":"x",}', 'The message is not a JSON object: unexpected "}" at byte 12.'],
  ['{"type":"x"} {', 'The message is not a JSON object: unexpected "{" at byte 13.'],
  ['{"type":"x","a" 1}', 'The message is not a JSON object: unexpected "1" at byte 16.'],
  ['{"type":"x","payload":[1 2]}', 'The message is not a JSON object: unexpected "2" at byte 25.'],
  ['{"payload":truly}', 'The message is not a JSON object: unexpected "l" at byte 14.'],
  ['{"payload":01}', 'The message is not a JSON object: unexpected "0" at byte 11.'],
  ['{"payload":1.}', 'The message is not a JSON object: unexpected "}" at byte 13.'],
  ['{"payload":"\n"}', 'The message is not a JSON object: unexpected 0x0a at byte 12.'],
  ['{"payload":"\\x"}', 'The message is not a JSON object: unexpected "x" at byte 13.'],
  ['{"payload":"\\u00g0"}', 'The message is not a JSON object: unexpected "g" at byte 16.'],
  [`{"payload":${'['.repeat(32)}`, 'The message is not a JSON object: over 32 levels at byte 42.'],
  [
    `{"since":{${'"":1,'.repeat(256)}"":1}}`,
    'The message is not a JSON object: over 256 keys outside the payload at byte 1285.',
  ],
  [
    '{"since":{"__proto__":1}}',
    'The message is not a JSON object: the key "__proto__" at byte 10, which only payloads may have.',
  ],
  ['{}', 'A command needs a "type", such as {"type":"join","room":"lobby"}.'],
  ['{"type":5}', 'type: a string, such as "join".'],
  ['{"type":"message","text":5}', 'text: a string.'],
  ['{"type":"x","id":{}}', 'id: a string of at most 64 characters, or a whole number up to 2^53.'],
];

test('a payload of another door is one JSON value in UTF-8, and cannot add a field', () => {
  for (const text of ['1', ' {"a":[1]} ', '"ü"', `${'['.repeat(31)}${']'.repeat(31)}`])
    assert.ok(isPayload(Buffer.from(text)), text);
  const nested = `${'['.repeat(32)}${']'.repeat(32)}`;
  for (const text of ['', ' ', '1,"from":"admin"', '1}', '{}{}', '1 2', '{"a":1', nested])
    assert.ok(!isPayload(Buffer.from(text)), text);
  assert.ok(!isPayload(Buffer.from('"\xff"', 'latin1')), 'not UTF-8');
});

test('a refused message is answered with its fault, and where it is', () => {
  for (const [text, message] of FAULTS) {
    assert.equal(decode(text), null, text);
    assert.equal(commandFault(Buffer.from(text)), message, text);
  }
});
