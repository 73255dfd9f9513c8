// frames.test.js: publications, and the bytes that members get: frames, formats, compression.

import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { test } from 'node:test';
import { constants, inflateRawSync } from 'node:zlib';
import fc from 'fast-check';
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
import {
  encodePublication as encodeBytes,
  encodeKeyed,
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

test('the fingerprints of a value for two keys of a state differ', () => {
  const value = Buffer.from('1');
  const [one, same, other] = ['a', 'a', 'b'].map((key, i) =>
    fingerprintOf(encodeKeyed(i, 'ann', key, value, 0, value.length)),
  );
  assert.equal(one, same);
  assert.notEqual(one, other);
});
