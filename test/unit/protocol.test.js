import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { test } from 'node:test';
import { constants, inflateRawSync } from 'node:zlib';
import fc from 'fast-check';
import {
  decode as decodeBytes,
  isRoom,
  readBefore,
  readLatest,
  readSince,
  readSinceTime,
} from '../../src/protocol/decode.js';
import { deflateFrames } from '../../src/protocol/deflate.js';
import { fingerprintOf } from '../../src/protocol/fingerprint.js';
import { encodePublications, FORMAT, leaveOut } from '../../src/protocol/format.js';
import {
  frameAround,
  framesBytes,
  publicationFrames,
  readHeader,
  roomPrefix,
  textFrame,
} from '../../src/protocol/frame.js';
import { MAX_JSON_DEPTH, MAX_JSON_KEYS } from '../../src/protocol/json-scan.js';
import {
  encodePublication as encodeBytes,
  epochOf,
  exceptOf,
  isConnectionId,
  isPublication,
  KIND,
  offsetOf,
  payloadEnd,
  payloadStart,
  senderOf,
  tagOf,
  timestampOf,
  withPosition,
} from '../../src/protocol/publication.js';
import { messagesOf } from '../helpers/fake-transport.js';

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

/**
 * @param {number} kind
 * @param {number} timestampMs
 * @param {number} tag
 * @param {string} from
 * @param {string} payload
 * @param {string} [except]
 */
function encodePublication(kind, timestampMs, tag, from, payload, except) {
  const source = Buffer.from(`x${payload}x`);
  return encodeBytes(kind, timestampMs, tag, from, source, 1, source.length - 1, except);
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

test('a message that one connection does not get names it, with its position too, and its frame is as without', () => {
  const plain = encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'ann', '"x"');
  const id = 'x'.repeat(64);
  const longest = encodePublication(KIND.MESSAGE, 0, 0, 'y'.repeat(255), '1', id);
  assert.ok(isPublication(longest));
  assert.deepEqual([exceptOf(longest), senderOf(longest)], [id, 'y'.repeat(255)]);
  const except = encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'ann', '"x"', 'Zm9vYmFyMA1');
  const kept = withPosition(except, 7, '0123456789abcdef');
  for (const publication of [except, kept]) {
    assert.equal(exceptOf(publication), 'Zm9vYmFyMA1');
    assert.equal(senderOf(publication), 'ann');
    assert.equal(
      publication.toString('utf8', payloadStart(publication), payloadEnd(publication)),
      '"x"',
    );
  }
  assert.equal(exceptOf(plain), '');
  assert.ok(isPublication(except));
  const prefix = roomPrefix('r');
  assert.deepEqual(publicationFrames(prefix, [except]), publicationFrames(prefix, [plain]));
  assert.deepEqual(
    publicationFrames(prefix, [kept]),
    publicationFrames(prefix, [withPosition(plain, 7, '0123456789abcdef')]),
  );
  const broadcast = encodePublication(KIND.BROADCAST, 0, 0, 'me', '1', 'Zm9vYmFyMA1');
  assert.ok(!isPublication(broadcast), 'only a message has the flag');
  for (const length of [0, 65, 2 ** 32 - 1]) {
    const forged = Buffer.concat([except, Buffer.alloc(80, '1')]);
    forged.writeUInt32BE(length, 7);
    assert.ok(!isPublication(forged), `an id of ${length} characters`);
  }
  for (const good of ['a', id]) assert.ok(isConnectionId(good));
  for (const bad of ['', `${id}x`, 'a b', 'ü', 7, null, undefined]) assert.ok(!isConnectionId(bad));
});

test('encoded publications without some of them are the other publications, in each format', () => {
  const prefix = roomPrefix('r');
  const payload = fc.constantFrom(
    '1',
    JSON.stringify('a'.repeat(200)),
    JSON.stringify('a'.repeat(70_000)),
    '{\n\n"a":\r\n\n1}',
  );
  fc.assert(
    fc.property(
      fc.constantFrom(FORMAT.FRAMES, FORMAT.DEFLATED, FORMAT.EVENTS, FORMAT.BARE_EVENTS),
      fc.array(fc.tuple(payload, fc.boolean(), fc.boolean()), { minLength: 1, maxLength: 12 }),
      (format, all) => {
        const publications = all.map(([text, , hasPosition], i) => {
          const plain = encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'me', text);
          return hasPosition ? withPosition(plain, i + 1, '0123456789abcdef') : plain;
        });
        const encode = (/** @type {Buffer[]} */ some) => encodePublications(format, prefix, some);
        const omitted = all.flatMap(([, isOmitted], place) => (isOmitted ? [place] : []));
        assert.deepEqual(
          leaveOut(format, encode(publications), omitted),
          encode(publications.filter((_, place) => !all[place][1])),
        );
      },
    ),
    { numRuns: 300 },
  );
});

test('a stored publication keeps its bytes, has its position, and is in memory of its own', () => {
  const prefix = roomPrefix('r');
  fc.assert(
    fc.property(
      fc.jsonValue(),
      fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
      (payload, offset) => {
        const plain = encodePublication(
          KIND.MESSAGE,
          1_760_000_000_000,
          9,
          'me',
          JSON.stringify(payload),
        );
        const kept = withPosition(plain, offset, '0123456789abcdef');
        assert.notEqual(kept.buffer, plain.buffer);
        assert.deepEqual([offsetOf(kept), epochOf(kept)], [offset, '0123456789abcdef']);
        assert.equal(
          kept.toString('utf8', payloadStart(kept), payloadEnd(kept)),
          JSON.stringify(payload),
        );
        assert.equal(isPublication(kept), false, 'a broker has none');
        const frames = publicationFrames(prefix, [plain, kept, plain]);
        assert.equal(frames.length, framesBytes(prefix, [plain, kept, plain]));
        const [first, second, third] = messagesOf(frames);
        assert.deepEqual(second, { ...first, offset, epoch: '0123456789abcdef' });
        assert.deepEqual(third, first);
      },
    ),
  );
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
    { numRuns: 20_000 },
  );
  assert.ok(taken > 500, `only ${taken} of the texts were valid: the test shows too little`);
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

test('depth and keys are limited before JSON.parse sees the text', () => {
  const nested = (/** @type {number} */ n) =>
    `{"type":"x","payload":${'['.repeat(n)}${']'.repeat(n)}}`;
  assert.notEqual(decode(nested(MAX_JSON_DEPTH - 1)), null);
  assert.equal(decode(nested(MAX_JSON_DEPTH)), null);
  assert.equal(decode(`{"type":"x","payload":${'['.repeat(100_000)}`), null);
  const keyed = (/** @type {number} */ n) =>
    `{"type":"x","payload":{${Array.from({ length: n }, (_, i) => `"k${i}":1`)}}}`;
  assert.notEqual(decode(keyed(MAX_JSON_KEYS - 2)), null);
  assert.equal(decode(keyed(MAX_JSON_KEYS - 1)), null);
});

test('keys that could pollute a prototype are refused, in each spelling', () => {
  for (const key of ['__proto__', 'constructor', 'prototype', '__pr\\u006fto__']) {
    assert.equal(decode(`{"type":"x","payload":{"a":[{"${key}":1}]}}`), null, key);
  }
  assert.notEqual(decode('{"type":"x","payload":"__proto__"}'), null);
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

test('a publication keeps its header and its bytes', () => {
  const publication = encodePublication(
    KIND.MESSAGE,
    1_760_000_000_123,
    4_000_000_000,
    'sender-1',
    '{"ü":"😀"}',
  );
  assert.ok(isPublication(publication));
  assert.equal(timestampOf(publication), 1_760_000_000_123);
  assert.equal(tagOf(publication), 4_000_000_000);
  assert.equal(senderOf(publication), 'sender-1');
  assert.equal(publication.toString('utf8', payloadStart(publication)), '{"ü":"😀"}');
  for (const bytes of [Buffer.alloc(0), Buffer.alloc(20), publication.subarray(0, 12)])
    assert.ok(!isPublication(bytes));
});

test('frames of several publications follow one another, whatever their length', () => {
  const payloads = [
    '1',
    `"${'x'.repeat(60)}"`,
    `"${'y'.repeat(300)}"`,
    `"${'ü'.repeat(40_000)}"`,
    'null',
  ];
  const publications = payloads.map((payload) =>
    encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'me', payload),
  );
  publications.push(encodePublication(KIND.BROADCAST, 1_760_000_000_000, 7, 'me', '{"a":1}'));
  const messages = messagesOf(publicationFrames(roomPrefix('r'), publications));
  const expected = payloads.map((payload) => {
    return {
      type: 'message',
      room: 'r',
      payload: JSON.parse(payload),
      from: 'me',
      timestamp: 1_760_000_000_000,
    };
  });
  assert.deepEqual(messages, [...expected, { type: 'broadcast', payload: { a: 1 } }]);
});

test('frames are valid for any timestamp of the publisher', () => {
  const prefix = roomPrefix('r');
  const times = [
    0,
    9,
    10,
    60_000,
    999_999_999_999,
    1e12,
    9_999_999_999_999,
    1e13,
    0x00e8_ffff_ffff,
    0x00e9_0000_0000,
    0x0917_ffff_ffff,
    0x0918_0000_0000,
    95_617_584_000_000,
    2 ** 48 - 1,
  ];
  for (const kind of [KIND.MESSAGE, KIND.BROADCAST]) {
    for (const time of times) {
      const plain = encodePublication(kind, time, 0, 'me', '"x"');
      assert.ok(isPublication(plain));
      const all =
        kind === KIND.MESSAGE
          ? [plain, withPosition(plain, 7, '0123456789abcdef'), plain]
          : [plain, plain];
      const frames = publicationFrames(prefix, all);
      assert.equal(frames.length, framesBytes(prefix, all));
      for (const { timestamp } of messagesOf(frames)) {
        assert.equal(timestamp, kind === KIND.MESSAGE ? time : undefined);
      }
    }
  }
  for (const [time, said] of [
    [-1, 0],
    [-62_135_596_800_000, 0],
    [2 ** 48, 2 ** 48 - 1],
    [8.64e15, 2 ** 48 - 1],
  ]) {
    assert.equal(timestampOf(encodePublication(KIND.MESSAGE, time, 0, 'me', '1')), said);
  }
});

test('an accepted publication makes whole frames of valid text, and one that could break a frame is refused', () => {
  const prefix = roomPrefix('r');
  const base = fc.tuple(
    fc.constantFrom(
      KIND.MESSAGE,
      KIND.BROADCAST,
      KIND.PRESENCE,
      KIND.POSITIONED,
      KIND.RESYNC,
      KIND.MESSAGE | 0x20,
      KIND.PRESENCE | 0x20,
      0,
      255,
    ),
    fc.nat(2 ** 48 - 1),
    fc.constantFrom(0, 1, 2, 3, 2 ** 32 - 1),
    fc.constantFrom('', 'me', 'a","payload":"forged', 'é', 'x'.repeat(255)),
    fc.oneof(
      fc.json(),
      fc.constantFrom('NOT JSON"', '"', '', '{', 'nil', 'tre', '{"user":"ann"}', 'x'.repeat(300)),
    ),
  );
  const changes = fc.array(fc.tuple(fc.nat(40), fc.nat(255)), { maxLength: 3 });
  let accepted = 0;
  fc.assert(
    fc.property(base, changes, fc.nat(60), ([kind, time, tag, from, payload], bytes, cut) => {
      let publication = encodePublication(kind, time, tag, from, payload);
      for (const [at, byte] of bytes) if (at < publication.length) publication[at] = byte;
      if (cut < 20) publication = publication.subarray(0, publication.length - cut);
      if (!isPublication(publication)) return;
      accepted++;
      const frames = publicationFrames(prefix, [publication, publication]);
      assert.equal(frames.length, framesBytes(prefix, [publication, publication]));
      const { start, length } = readHeader(frames, 0);
      assert.equal(frames.length, 2 * (start + length), 'two frames of one length');
      assert.equal(frames[start + length], 0x81);
      assert.ok(isUtf8(frames.subarray(start, start + length)));
      // The grammar inside of the payload is not checked; nothing outside of it can be forged.
      const text = frames.toString('utf8', start, start + length);
      assert.match(text, /^\{"type":"(message|broadcast|presence)",.*\}$/s);
    }),
    { numRuns: 4000 },
  );
  assert.ok(accepted > 100, `${accepted} accepted`);
  const good = encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'me', '"é"');
  assert.ok(isPublication(good));
  for (const payload of [
    'null',
    'true',
    'false',
    '0',
    '-1',
    '1e400',
    '[]',
    '{}',
    '""',
    '"é€😀"',
    `"${'é'.repeat(999)}"`,
  ])
    assert.ok(isPublication(encodePublication(KIND.MESSAGE, 0, 0, 'A-Za_z.0:9', payload)), payload);
  for (const payload of ['"', '{]', 'NOT JSON', 'nul', 't', '-', '+1', ' 1', '[1', "'a'"])
    assert.ok(!isPublication(encodePublication(KIND.MESSAGE, 0, 0, 'me', payload)), payload);
  for (const length of [3, 300]) {
    const bad = encodePublication(KIND.MESSAGE, 0, 0, 'me', `"${'x'.repeat(length)}"`);
    bad[20] = 0xff;
    bad[16] = 0xff;
    assert.ok(!isPublication(bad), 'not UTF-8');
  }
  assert.ok(!isPublication(encodePublication(KIND.MESSAGE, 0, 0, 'a"b', '1')));
  assert.ok(!isPublication(encodePublication(KIND.PRESENCE, 0, 4, '', '{}')));
});

test('a frame around bytes equals the frame of their text', () => {
  const source = Buffer.from('..{"a":"ü"}..');
  const text = '{"type":"echo","payload":{"a":"ü"},"id":"ö"}';
  assert.deepEqual(
    frameAround(
      Buffer.from('{"type":"echo","payload":'),
      source,
      2,
      source.length - 2,
      ',"id":"ö"}',
    ),
    textFrame(text),
  );
  assert.deepEqual(
    frameAround(Buffer.from('{"payload":'), source, 2, source.length - 2, '}'),
    textFrame('{"payload":{"a":"ü"}}'),
  );
});

test('a text frame has the shortest header its length allows', () => {
  for (const [length, header] of [
    [125, 2],
    [126, 4],
    [65_535, 4],
    [65_536, 10],
  ]) {
    assert.equal(textFrame('x'.repeat(length)).length, length + header);
  }
  assert.deepEqual(messagesOf(textFrame('{"a":"ü"}')), [{ a: 'ü' }]);
});

test('deflated frames inflate to the same messages, and small ones are not deflated', () => {
  const payloads = [
    '1',
    JSON.stringify('abc '.repeat(1000)),
    '{"small":true}',
    JSON.stringify('ü'.repeat(40_000)),
  ];
  const publications = payloads.map((payload) =>
    encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'me', payload),
  );
  const frames = publicationFrames(roomPrefix('r'), publications);
  const before = Buffer.from(frames);
  const deflated = deflateFrames(frames);
  assert.deepEqual(frames, before, 'what others share is not touched');
  assert.ok(deflated.length < frames.length / 20);
  const inflated = [];
  for (let at = 0; at < deflated.length; ) {
    const { start, length } = readHeader(deflated, at);
    const body = deflated.subarray(start, start + length);
    const isCompressed = (deflated[at] & 0x40) !== 0;
    // RFC 7692 7.2.1: the empty block at the end is left out; two of them would inflate as well.
    if (isCompressed) assert.notDeepEqual(body.subarray(-4), Buffer.from([0, 0, 0xff, 0xff]));
    inflated.push({ isCompressed, text: isCompressed ? inflate(body) : body.toString() });
    at = start + length;
  }
  assert.deepEqual(
    inflated.map(({ isCompressed }) => isCompressed),
    [false, true, false, true],
  );
  assert.deepEqual(
    inflated.map(({ text }) => JSON.parse(text)),
    messagesOf(frames),
  );
  const small = publicationFrames(roomPrefix('r'), publications.slice(0, 1));
  assert.equal(deflateFrames(small), small);
});

/** RFC 7692 7.2.2. @param {Buffer} body */
function inflate(body) {
  const tail = Buffer.from([0, 0, 0xff, 0xff]);
  return inflateRawSync(Buffer.concat([body, tail]), {
    finishFlush: constants.Z_SYNC_FLUSH,
  }).toString();
}

test('the fingerprint is that of the payload, whatever its header and position are', () => {
  const payload = Buffer.from('{"a":1}');
  /** @param {number} timeMs @param {string} from @param {Buffer} source */
  const encode = (timeMs, from, source) =>
    encodeBytes(KIND.MESSAGE, timeMs, 0, from, source, 0, source.length);
  const one = encode(1, 'alice', payload);
  const print = fingerprintOf(one);
  assert.match(print, /^[\w-]{22}$/);
  assert.equal(fingerprintOf(encode(2, 'bob', payload)), print);
  assert.equal(fingerprintOf(withPosition(one, 7, '0123456789abcdef')), print);
  assert.notEqual(fingerprintOf(encode(1, 'alice', Buffer.from('{"a":2}'))), print);
});
