// frames.test.js: the result of each way to break RFC 6455, and of unusual but valid frames.
//
// Every row is sent four times: whole, byte by byte, and cut after its first and its seventh byte,
// because the server has two readers (frame-reader.js and ws's own), and a frame in pieces takes
// other branches. A close frame follows each row. If the row is valid, the server echoes it: 1000.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startServer } from '../harness/server.js';
import { frame, OPCODES } from '../helpers/raw-frames.js';
import { GOODBYE, text, Wire } from './wire.js';

const MAX_MESSAGE_BYTES = 4096;
const ENV = {
  WORKERS: '1',
  FANFARE_LIMITS: 'off',
  FANFARE_MAX_MESSAGE_BYTES: String(MAX_MESSAGE_BYTES),
  // The server's own pings would be among the frames that a test hears.
  FANFARE_PING_INTERVAL_MS: '600000',
};
/** @type {readonly ((bytes: Buffer) => Buffer[])[]} */
const CUTS = [
  (bytes) => [bytes],
  (bytes) => [bytes.subarray(0, 1), bytes.subarray(1)],
  (bytes) => [bytes.subarray(0, 7), bytes.subarray(7)],
  (bytes) => Array.from(bytes, (_, i) => bytes.subarray(i, i + 1)),
];

const { continuation, binary, ping, pong, close } = OPCODES;
const ECHO = '{"type":"echo","payload":"é"}';
const ECHO_BYTES = Buffer.from(ECHO);
/** Inside of the two bytes of the é. */
const MIDDLE = ECHO_BYTES.indexOf(0xc3) + 1;

/** @typedef {{close: number, texts?: string[], pongs?: string[]}} Expected */
/** @typedef {[string, Buffer|Buffer[], number|Expected]} Row */

/** A close frame. @param {number} code @param {string|Buffer} [reason] */
function closing(code, reason = '') {
  return frame(close, Buffer.concat([Buffer.from([code >> 8, code & 0xff]), Buffer.from(reason)]));
}

/** @param {...number} bytes a text's */
function invalid(...bytes) {
  return frame(OPCODES.text, Buffer.from([0x22, ...bytes, 0x22]));
}

/** @type {Row[]} */
const ROWS = [
  // Valid frames.
  ['a text', text(ECHO), { close: 1000, texts: [ECHO] }],
  [
    'a text in two fragments, cut within a character',
    fragments(MIDDLE),
    { close: 1000, texts: [ECHO] },
  ],
  [
    'a ping between two fragments',
    fragments(MIDDLE, frame(ping, 'a')),
    { close: 1000, texts: [ECHO], pongs: ['a'] },
  ],
  ['fragments without a byte', fragments(0), { close: 1000, texts: [ECHO] }],
  ['a ping of 125 bytes', frame(ping, 'p'.repeat(125)), { close: 1000, pongs: ['p'.repeat(125)] }],
  ['a ping without a byte', frame(ping, ''), { close: 1000, pongs: [''] }],
  ['a pong nobody asked for', frame(pong, 'x'), 1000],
  [
    'a mask of zeros',
    frame(OPCODES.text, ECHO, { mask: Buffer.alloc(4) }),
    { close: 1000, texts: [ECHO] },
  ],
  [
    'a message as large as one may be',
    echoOf(MAX_MESSAGE_BYTES),
    { close: 1000, texts: [textOf(MAX_MESSAGE_BYTES)] },
  ],
  ['what comes behind a close frame is not read', [GOODBYE, text(ECHO), frame(3, '')], 1000],

  // RFC 6455 5.1, 5.2, 5.4, 5.5
  ['a frame without a mask', frame(OPCODES.text, ECHO, { isMasked: false }), 1002],
  ['a ping without a mask', frame(ping, '', { isMasked: false }), 1002],
  ...[4, 2, 1].map((reserved) =>
    row(`reserved bit ${reserved}`, frame(OPCODES.text, ECHO, { reserved }), 1002),
  ),
  ...[4, 2, 1].map((reserved) =>
    row(`reserved bit ${reserved} of a ping`, frame(ping, '', { reserved }), 1002),
  ),
  ...[3, 4, 5, 6, 7, 11, 12, 13, 14, 15].map((opcode) =>
    row(`opcode ${opcode}`, frame(opcode, ''), 1002),
  ),
  ['a continuation of nothing', frame(continuation, 'x'), 1002],
  [
    'a text within a fragmented text',
    [frame(OPCODES.text, '"', { isFinal: false }), text('""')],
    1002,
  ],
  [
    'a binary within a fragmented text',
    [frame(OPCODES.text, '"', { isFinal: false }), frame(binary, 'x')],
    1002,
  ],
  ...[ping, pong, close].map((opcode) =>
    row(`opcode ${opcode} in fragments`, frame(opcode, '', { isFinal: false }), 1002),
  ),
  ...[ping, pong, close].map((opcode) =>
    row(
      `opcode ${opcode} with 126 bytes`,
      frame(opcode, Buffer.concat([Buffer.from([3, 232]), Buffer.alloc(124)])),
      1002,
    ),
  ),

  // Close frames: 5.5.1, 7.4
  ['a close without a code', frame(close, ''), 1005],
  ['a close of one byte', frame(close, 'x'), 1002],
  ...[1000, 1001, 1003, 1007, 1011, 3000, 3999, 4000, 4999].map((code) =>
    row(`close code ${code}`, closing(code, 'why'), code),
  ),
  ...[0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535].map((code) =>
    row(`close code ${code}`, closing(code), 1002),
  ),
  ['a reason that is not UTF-8', closing(1000, Buffer.from([0xff])), 1007],

  // UTF-8: 8.1, RFC 3629
  ['a byte that no text has', invalid(0xff), 1007],
  ['a lone continuation byte', invalid(0x80), 1007],
  ['an overlong slash', invalid(0xc0, 0xaf), 1007],
  ['a surrogate', invalid(0xed, 0xa0, 0x80), 1007],
  ['a code point behind the last', invalid(0xf4, 0x90, 0x80, 0x80), 1007],
  ['a character cut off', frame(OPCODES.text, Buffer.from([0x22, 0xe2, 0x82])), 1007],
  [
    'a character cut off at the end of the last fragment',
    [frame(OPCODES.text, '"', { isFinal: false }), frame(continuation, Buffer.from([0xc3]))],
    1007,
  ],
  [
    'bad bytes late in a long text',
    frame(OPCODES.text, Buffer.concat([Buffer.alloc(300, 'x'), Buffer.from([0xff])])),
    1007,
  ],
  [
    'good texts before a bad one',
    [text(ECHO), text(ECHO), invalid(0xff)],
    { close: 1007, texts: [ECHO, ECHO] },
  ],

  // Sizes
  ['a byte more than a message may have', echoOf(MAX_MESSAGE_BYTES + 1), 1009],
  [
    'a length beyond the limit, and not a byte of it',
    frame(OPCODES.text, '', { declared: MAX_MESSAGE_BYTES + 1 }),
    1009,
  ],
  ['a length of 2^40', frame(OPCODES.text, '', { declared: 2 ** 40 }), 1009],
  ['a length of 2^53', frame(OPCODES.text, '', { declared: 2 ** 53 }), 1009],
  [
    'a length of 2^63 and more',
    Buffer.from([0x81, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]),
    1009,
  ],
  [
    'a message beyond the limit by its fragments alone',
    [
      frame(OPCODES.text, 'x'.repeat(MAX_MESSAGE_BYTES / 2), { isFinal: false }),
      frame(continuation, 'x'.repeat(MAX_MESSAGE_BYTES / 2), { isFinal: false }),
      frame(continuation, 'x'),
    ],
    1009,
  ],

  // Features that this server does not support
  ['a binary message', frame(binary, ECHO), 1003],
  [
    'a binary message in fragments',
    [frame(binary, ECHO, { isFinal: false }), frame(continuation, '')],
    1003,
  ],
];

/** @param {string} name @param {Buffer} bytes @param {number} code @returns {Row} */
function row(name, bytes, code) {
  return [name, bytes, code];
}

/**
 * @param {number} size of the message
 * @returns {string}
 */
function textOf(size) {
  return `{"type":"echo","payload":"${'x'.repeat(size - 28)}"}`;
}

/** @param {number} size */
function echoOf(size) {
  assert.equal(textOf(size).length, size);
  return text(textOf(size));
}

/**
 * @param {number} at position of the cut
 * @param {Buffer} [between]
 */
function fragments(at, between = Buffer.alloc(0)) {
  return [
    frame(OPCODES.text, ECHO_BYTES.subarray(0, at), { isFinal: false }),
    between,
    frame(continuation, '', { isFinal: false }),
    frame(continuation, ECHO_BYTES.subarray(at)),
  ];
}

test('each framing violation gets its close code, however it is cut', {
  timeout: 60_000,
}, async (t) => {
  const server = await startServer(t, ENV);
  for (const [name, bytes, expected] of ROWS) {
    const {
      close: code,
      texts = [],
      pongs = [],
    } = typeof expected === 'number' ? { close: expected } : expected;
    await t.test(`${code}: ${name}`, async () => {
      const whole = Buffer.concat([...(Array.isArray(bytes) ? bytes : [bytes]), GOODBYE]);
      const all = await Promise.all(
        CUTS.map(async (cut) => {
          const wire = await new Wire(server.port).opened();
          try {
            await wire.send(...cut(whole));
            return await wire.ended();
          } finally {
            wire.destroy();
          }
        }),
      );
      for (const heard of all)
        assert.deepEqual(heard, { status: 101, close: code, texts, pongs, other: [] });
    });
  }
  await t.test('no input makes the worker log a warning or an error', async () => {
    const wire = await new Wire(server.port).opened();
    assert.deepEqual(await wire.ask(ECHO), JSON.parse(ECHO));
    wire.destroy();
    assert.deepEqual(
      server.lines.filter(({ level }) => level >= 40),
      [],
    );
  });
});
