// frame-reader.test.js: a property shows that the fast path and ws's own reader behave the same.
//
// Frames of all kinds, whole, broken and forbidden, are cut at random places and sent to two
// servers over real sockets, one with the reader and one without. The events of the
// server and every byte to the client must be equal.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { FrameServer, frameBytes, MAX_MESSAGE_BYTES } from '../helpers/frame-server.js';
import { handshake, RawClient } from '../helpers/raw-http.js';

/** @typedef {import('../helpers/frame-server.js').Frame} Frame */

const texts = fc.oneof(
  { weight: 6, arbitrary: fc.string({ unit: 'grapheme', maxLength: 200 }) },
  { weight: 2, arbitrary: fc.string({ maxLength: 200 }) },
  {
    weight: 1,
    arbitrary: fc.constantFrom('', 'é'.repeat(63), '€'.repeat(6000), 'x'.repeat(20_000)),
  },
  { weight: 1, arbitrary: fc.constantFrom('close', 'terminate', 'x'.repeat(MAX_MESSAGE_BYTES)) },
);
const mask = fc.oneof(fc.nat(0xffffffff), fc.constantFrom(0, 0x80000000));

/**
 * @param {number} weight
 * @param {fc.Arbitrary<number>} first
 * @param {fc.Arbitrary<Uint8Array|string>} body
 * @param {object} [more]
 */
const kind = (weight, first, body, more = {}) => ({
  weight,
  arbitrary: fc
    .record({ first, body: body.map((bytes) => Buffer.from(/** @type {any} */ (bytes))), mask })
    .map((frame) => ({ ...frame, ...more })),
});
const bytes = (/** @type {number} */ maxLength) => fc.uint8Array({ maxLength });

/** @param {number} at */
const oneBadByte = (at) => Buffer.alloc(300, 'x').fill(0xff, at, at + 1);

/** @type {fc.Arbitrary<Frame>} */
const frames = fc.oneof(
  kind(30, fc.constant(0x81), texts),
  kind(6, fc.constantFrom(0x89, 0x8a), bytes(125)),
  kind(1, fc.constant(0x82), bytes(60)), // binary
  kind(2, fc.constantFrom(0x01, 0x00, 0x80), texts), // fragments, and what pretends to be one
  kind(1, fc.constant(0x81), bytes(300)), // mostly not UTF-8
  kind(1, fc.constant(0x81), fc.nat(299).map(oneBadByte)),
  kind(
    1,
    fc.constant(0x81),
    fc.constantFrom('y'.repeat(MAX_MESSAGE_BYTES + 1), 'z'.repeat(70_000)),
  ),
  kind(1, fc.constantFrom(0x89, 0x8a, 0x88), fc.uint8Array({ minLength: 124, maxLength: 130 })), // a control frame at its limit or too long
  kind(
    1,
    fc.constant(0x88),
    fc.oneof(
      fc.constantFrom(Uint8Array.of(), Uint8Array.of(3, 232), Uint8Array.of(3, 232, 98, 121)),
      bytes(8),
    ),
  ),
  kind(1, fc.constantFrom(0xc1, 0xa1, 0x91, 0x83, 0x8b, 0x09, 0x08), bytes(20)), // reserved bits, opcodes; unfinished control
  kind(1, fc.constantFrom(0x81, 0x89), texts, { isMasked: false }),
);

/**
 * Cut into chunks at these shares of its length.
 * @param {Buffer} all @param {readonly number[]} cuts
 */
function cutUp(all, cuts) {
  const places = [
    0,
    ...cuts.map((cut) => Math.floor(cut * all.length)).sort((a, b) => a - b),
    all.length,
  ];
  return places
    .slice(1)
    .flatMap((end, i) => (end > places[i] ? [all.subarray(places[i], end)] : []));
}

/** @type {FrameServer} */
let short;
/** @type {FrameServer} */
let long;
/** With the reader, whose turns are over after two frames. @type {FrameServer} */
let sliced;
before(async () => {
  short = await new FrameServer(true).start();
  long = await new FrameServer(false).start();
  sliced = await new FrameServer(true).start();
  sliced.endTurnsEarly();
});
after(() => {
  short.server.close();
  long.server.close();
  sliced.server.close();
});

/**
 * Data that a terminated connection sent in the same read is read in the same turn only, and a turn
 * may be over at any frame, because the clock decides.
 * @param {{told: string[], bytes: string}} seen
 */
function upToTermination({ told, bytes }) {
  const end = told.indexOf('text terminate') + 1;
  return { told: end > 0 ? told.slice(0, end) : told, bytes };
}

/**
 * @param {readonly Buffer[]} chunks
 * @param {Buffer} [head] what both made of it
 */
async function both(chunks, head) {
  const expected = await long.converse(chunks, head);
  assert.deepEqual(upToTermination(await short.converse(chunks, head)), upToTermination(expected));
  assert.deepEqual(upToTermination(await sliced.converse(chunks, head)), upToTermination(expected));
  return expected;
}

test('property: ws with the reader and without it behaves the same, whatever bytes come in whatever pieces', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(frames, { minLength: 1, maxLength: 12 }),
      fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 }),
      fc.boolean(),
      async (list, cuts, hasHead) => {
        const chunks = cutUp(Buffer.concat(list.map(frameBytes)), cuts);
        await both(hasHead ? chunks.slice(1) : chunks, hasHead ? chunks[0] : undefined);
      },
    ),
    { numRuns: 300 },
  );
  assert.ok(short.direct > 100, 'and most of it has come by the short way');
  assert.equal(long.direct, 0);
  assert.ok(sliced.counters.readsDeferred > 100, 'and much of it has waited for its turn');
  assert.equal(sliced.websockets.reader.waitingBytes, 0);
});

test('one frame in pieces of one byte each is a message', async () => {
  const frame = frameBytes({ first: 0x81, body: Buffer.from('käse'.repeat(40)), mask: 0x01020304 });
  const before = short.direct;
  const { told } = await both(Array.from(frame, (byte) => Buffer.from([byte])));
  assert.deepEqual(told, [`text ${'käse'.repeat(40)}`, 'removed']);
  assert.equal(short.direct, before + 1);
});

test('text that is not UTF-8 ends the connection with 1007, in one piece or in two, and later bytes are not read', async () => {
  // With its mask off twice it would be fine: ws must get it as it came.
  const bad = frameBytes({ first: 0x81, body: Buffer.from([0x61, 0xff]), mask: 0x009e0000 });
  const good = frameBytes({ first: 0x81, body: Buffer.from('good'), mask: 7 });
  for (const chunks of [
    [Buffer.concat([good, bad, good])],
    [good, bad.subarray(0, 5), Buffer.concat([bad.subarray(5), good])],
  ]) {
    const { told, bytes } = await both(chunks);
    assert.deepEqual(told, ['text good', 'removed']);
    assert.ok(bytes.includes('\x88\x02\x03\xef')); // 1007
  }
});

test('after a close by the server, the reader reads the rest of the same read, the peer’s close included', async () => {
  const frame = (/** @type {string} */ text) =>
    frameBytes({ first: 0x81, body: Buffer.from(text), mask: 9 });
  const close = frameBytes({ first: 0x88, body: Buffer.from([3, 232]), mask: 9 });
  const { told, bytes } = await both([
    Buffer.concat([frame('one'), frame('close'), frame('two'), close]),
  ]);
  assert.deepEqual(told, ['text one', 'text close', 'removed']);
  assert.ok(bytes.endsWith('\x88\x07\x0f\xa0asked')); // 4000
});

test('the reader handles all frames: control frames and fragments, too', async () => {
  const text = frameBytes({ first: 0x81, body: Buffer.from('text'), mask: 3 });
  const ping = frameBytes({ first: 0x89, body: Buffer.from('p'), mask: 3 });
  const pong = frameBytes({ first: 0x8a, body: Buffer.alloc(0), mask: 3 });
  const fragments = [
    frameBytes({ first: 0x01, body: Buffer.from('k\xc3', 'latin1'), mask: 3 }),
    ping,
    frameBytes({ first: 0x00, body: Buffer.alloc(0), mask: 3 }),
    frameBytes({ first: 0x80, body: Buffer.from('\xa4se', 'latin1'), mask: 5 }),
  ];
  const before = short.direct;
  const { told } = await both([Buffer.concat([text, ping, pong, ...fragments, text])]);
  assert.deepEqual(told, ['text text', 'text käse', 'text text', 'removed']);
  assert.equal(short.direct, before + 3);
});

/** @type {fc.Arbitrary<Frame[]>} A message in fragments, with control frames between them. */
const fragmented = fc
  .record({
    body: fc.oneof(
      fc.string({ unit: 'grapheme', maxLength: 80 }).map((text) => Buffer.from(text)),
      fc.constantFrom(
        Buffer.from('€'.repeat(30)),
        Buffer.concat([Buffer.from('€'), Buffer.from([0xe2, 0x82]), Buffer.from('x')]),
        Buffer.alloc(MAX_MESSAGE_BYTES, 'x'),
        Buffer.alloc(MAX_MESSAGE_BYTES + 1, 'x'),
      ),
    ),
    cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 70 }),
    opcode: fc.constantFrom(1, 1, 1, 2),
    control: fc.constantFrom(0x89, 0x8a),
    mask,
  })
  .map(({ body, cuts, opcode, control, mask }) => {
    const places = cuts.map((cut) => Math.floor(cut * body.length)).sort((a, b) => a - b);
    const ends = [...places, body.length];
    return ends.flatMap((end, i) => {
      const isLast = i === ends.length - 1;
      const first = (isLast ? 0x80 : 0) | (i === 0 ? opcode : 0);
      const piece = { first, body: body.subarray(ends[i - 1] ?? 0, end), mask };
      return isLast || i % 3 > 0
        ? [piece]
        : [piece, { first: control, body: Buffer.from(`${i}`), mask }];
    });
  });

/** @type {fc.Arbitrary<Frame[]>} Codes and reasons, valid and invalid; something may follow. */
const closing = fc
  .record({
    code: fc.oneof(
      fc.integer({ min: 990, max: 1020 }),
      fc.constantFrom(0, 2999, 3000, 4999, 5000, 65_535),
    ),
    reason: fc.oneof(
      fc.string({ maxLength: 123 }).map((text) => Buffer.from(text).subarray(0, 123)),
      fc.uint8Array({ maxLength: 4 }).map((bytes) => Buffer.from(bytes)),
    ),
    mask,
    more: fc.boolean(),
  })
  .map(({ code, reason, mask, more }) => [
    { first: 0x88, body: Buffer.concat([Buffer.from([code >> 8, code & 0xff]), reason]), mask },
    ...(more ? [{ first: 0x81, body: Buffer.from('after'), mask }] : []),
  ]);

test('property: fragments, frames between them and closes have the results of ws', async () => {
  const text = frames.map((frame) => [frame]);
  let [whole, closes] = [0, 0];
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.oneof({ weight: 6, arbitrary: fragmented }, { weight: 1, arbitrary: text }), {
        minLength: 1,
        maxLength: 3,
      }),
      fc.oneof(closing, fc.constant(/** @type {Frame[]} */ ([]))),
      fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 }),
      async (lists, end, cuts) => {
        const bytes = Buffer.concat([...lists.flat(), ...end].map(frameBytes));
        const { told } = await both(cutUp(bytes, cuts));
        whole += told.length - 1;
        closes += end.length > 0 ? 1 : 0;
      },
    ),
    { numRuns: 150 },
  );
  assert.ok(whole > 50 && closes > 30, `${whole} messages, ${closes} closes`);
});

test('all sockets are read into one buffer, and a partial frame is copied out of it', async () => {
  // Held parts of two connections, whose reads take turns in that buffer.
  const shared = new FrameServer(true);
  await shared.start();
  /** @type {(() => unknown)[]} */
  const tasks = [];
  const t = /** @type {any} */ ({ after: (/** @type {() => unknown} */ task) => tasks.push(task) });
  try {
    const clients = await Promise.all(
      [1, 2].map(() => RawClient.connect(t, { port: shared.port })),
    );
    for (const client of clients) client.write(Buffer.from(handshake()));
    const bodies = ['a', 'b'].map((letter) => letter.repeat(300));
    const whole = bodies.map((body, i) =>
      frameBytes({ first: 0x81, body: Buffer.from(body), mask: 77 + i }),
    );
    for (let at = 0; at < whole[0].length; at += 50) {
      for (const [i, client] of clients.entries()) {
        while (client.bytes.indexOf('\r\n\r\n') < 0) await turn();
        client.write(whole[i].subarray(at, at + 50));
        for (let n = 0; n < 5; n++) await turn();
      }
    }
    while (shared.told.length < 2) await turn();
    assert.deepEqual(
      shared.told.sort(),
      bodies.map((body) => `text ${body}`),
    );
    // The socket has the shared buffer if the fast path says so.
    const fields = Object.getOwnPropertySymbols(shared.socket ?? {});
    const buffer = fields.find(({ description }) => description === 'kBuffer');
    const isShared = buffer && /** @type {any} */ (shared.socket)[buffer] instanceof Uint8Array;
    assert.equal(isShared, shared.counters.fastPaths.shared_reads === '');
  } finally {
    for (const task of tasks) task();
    shared.server.close();
  }
});
