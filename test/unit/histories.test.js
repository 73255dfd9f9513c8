// histories.test.js: the core of the embedded broker's histories: a model beside it, and each of
// its bounds.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { IDEMPOTENCY_MS, MAX_PAGE_BYTES } from '../../src/backend/broker.js';
import { Histories, publicationsIn } from '../../src/backend/embedded/histories.js';
import { IdempotencyKeys, isConflict } from '../../src/backend/embedded/idempotency-keys.js';
import { change } from '../helpers/state-broker.js';

const RULE = Object.freeze({ size: 100, ttlMs: 60_000 });
const ALL = Object.freeze({ after: 0, limit: 1e9 });

/**
 * @param {Histories} streams
 * @param {string} room
 * @param {{after: number, limit: number}} [from]
 * @param {number} [nowMs]
 */
function read(streams, room, from = ALL, nowMs = 0) {
  const { epoch, offset, runs } = streams.page(room, from, nowMs);
  return { epoch, offset, publications: runs.flatMap(publicationsIn) };
}

/**
 * @param {Histories} streams
 * @param {string} room
 * @param {{size: number, ttlMs: number}} rule
 * @param {Buffer|Buffer[]} publications
 * @param {number} nowMs
 */
function append(streams, room, rule, publications, nowMs) {
  const list = [publications].flat();
  const run = list.map((publication) => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(publication.length);
    return Buffer.concat([length, publication]);
  });
  return streams.append(room, rule, Buffer.concat(run), list.length, nowMs);
}

/**
 * @param {number} seed
 * @returns {(below: number) => number} mulberry32
 */
function chance(seed) {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

for (const seed of [1, 2, 3, 4, 5, 6]) {
  test(`it agrees with a plain list after random operations (seed ${seed})`, () => {
    const random = chance(seed);
    const streams = new Histories();
    const rules = [
      { size: 1, ttlMs: 1000 },
      { size: 7, ttlMs: 3000 },
      { size: 300, ttlMs: 1000 },
      { size: 40, ttlMs: 20_000 },
    ];
    /** @type {Map<number, {epoch: string, offset: number, list: Buffer[], untilMs: number}>} */
    const model = new Map();
    const sizes = [0, 1, 20, 200, 3000, 70_000];
    let nowMs = 0;
    for (let step = 0; step < 6000; step++) {
      if (random(200) === 0) nowMs += random(2500);
      if (random(50) === 0) streams.sweep(nowMs);
      const r = random(8);
      const rule = rules[r % 4];
      const epoch = model.get(r)?.epoch ?? read(streams, `room-${r}`, ALL, nowMs).epoch;
      const room = model.get(r) ?? { epoch, offset: 0, list: [], untilMs: 0 };
      if (room.untilMs <= nowMs) room.list = [];
      if (random(3) > 0) {
        const run = Array.from({ length: random(3) === 0 ? 1 + random(9) : 1 }, () =>
          Buffer.alloc(random(sizes[random(sizes.length)] + 1), step),
        );
        room.list = [...room.list, ...run].slice(-rule.size);
        room.offset += run.length;
        room.untilMs = nowMs + rule.ttlMs;
        model.set(r, room);
        const position = append(streams, `room-${r}`, rule, run, nowMs);
        assert.deepEqual(position, { epoch, offset: room.offset });
        continue;
      }
      const after =
        random(3) === 0 ? random(room.offset + 5) : Math.max(0, room.offset - random(20));
      const limit = random(2) === 0 ? random(10) : 1000;
      const count = Math.max(0, Math.min(room.offset - after, limit, room.list.length));
      const got = read(streams, `room-${r}`, { after, limit }, nowMs);
      assert.deepEqual({ epoch: got.epoch, offset: got.offset }, { epoch, offset: room.offset });
      const expected = room.list.slice(room.list.length - count);
      assert.equal(got.publications.length, expected.length, `after ${after}, limit ${limit}`);
      assert.ok(got.publications.every((publication, i) => publication.equals(expected[i])));
    }
    streams.sweep(nowMs);
    const left = [...model.values()].filter(({ untilMs }) => untilMs > nowMs);
    assert.equal(
      streams.publications,
      left.reduce((sum, { list }) => sum + list.length, 0),
    );
    streams.sweep(nowMs + 20_000);
    assert.deepEqual([streams.bytes, streams.publications], [0, 0]);
    assert.deepEqual([streams.lostPublications, streams.lostPositions], [0, 0]);
  });
}

test('the memory of a stream stays near the size of its publications', () => {
  const streams = new Histories();
  for (let i = 0; i < 100_000; i++) append(streams, 'room', RULE, Buffer.alloc(100), 0);
  assert.equal(streams.publications, 100);
  assert.ok(streams.bytes < 4 * 100 * 104, `${streams.bytes} bytes for 10,400`);
  for (let i = 0; i < 1000; i++) append(streams, `small-${i}`, RULE, Buffer.alloc(50), 0);
  assert.ok(streams.bytes < 1100 * 600, `${streams.bytes} bytes`);
});

test('what a state keeps is a copy without the rest of a pool', () => {
  const histories = new Histories();
  const rule = { size: 10, ttlMs: 1000, state: { everyMs: 0, maxBytes: 1e6 } };
  const publication = change('key', 'value');
  histories.set('state', rule, publication, 0);
  const { log } = /** @type {any} */ (histories.streams.get('state'));
  const [kept] = log.read(0).entries.map((/** @type {any} */ entry) => entry.publication);
  assert.deepEqual(kept, publication);
  assert.equal(kept.buffer.byteLength, kept.length);
});

test('a sweep frees each stream at its own time', () => {
  const streams = new Histories();
  const brief = { size: 10, ttlMs: 1000 };
  append(streams, 'long', RULE, Buffer.from('x'), 0);
  append(streams, 'a', brief, Buffer.from('x'), 0);
  append(streams, 'b', brief, Buffer.from('x'), 500);
  append(streams, 'a', brief, Buffer.from('x'), 600);
  const held = [999, 1499, 1500, 1599, 1600, 59_999, 60_000].map((nowMs) => {
    streams.sweep(nowMs);
    return streams.publications;
  });
  assert.deepEqual(held, [4, 4, 3, 3, 1, 1, 0]);
  assert.equal(read(streams, 'a', ALL, 60_000).offset, 2);
});

test('a sweep is short, however many streams are due', () => {
  const streams = new Histories();
  for (let i = 0; i < 25_000; i++) append(streams, `room-${i}`, RULE, Buffer.from('x'), 0);
  const held = [1, 2, 3].map(() => {
    streams.sweep(RULE.ttlMs);
    return streams.publications;
  });
  assert.deepEqual(held, [15_000, 5000, 0]);
});

test('expired publications are not read, swept or not', () => {
  const streams = new Histories();
  const { epoch } = append(streams, 'room', RULE, Buffer.from('x'), 0);
  assert.equal(read(streams, 'room', ALL, RULE.ttlMs - 1).publications.length, 1);
  assert.deepEqual(read(streams, 'room', ALL, RULE.ttlMs), { epoch, offset: 1, publications: [] });
  assert.deepEqual(append(streams, 'room', RULE, Buffer.from('y'), RULE.ttlMs), {
    epoch,
    offset: 2,
  });
  assert.deepEqual(read(streams, 'room', ALL, RULE.ttlMs).publications.map(String), ['y']);
});

test('above the byte limit, the least recently published rooms lose their publications, never their positions', () => {
  const streams = new Histories({ maxBytes: 100_000 });
  const epochs = new Map();
  for (let i = 0; i < 100; i++) {
    // Each with another time to live, so that no list alone knows the oldest.
    const rule = { size: 100, ttlMs: 60_000 + (i % 3) };
    for (let n = 0; n < 4; n++)
      epochs.set(i, append(streams, `room-${i}`, rule, Buffer.alloc(1000), i).epoch);
    append(streams, 'busy', RULE, Buffer.alloc(10), i);
    assert.ok(streams.bytes <= 100_000);
  }
  const has = Array.from({ length: 100 }, (_, i) => read(streams, `room-${i}`).publications.length);
  const firstLeft = has.indexOf(4);
  assert.ok(firstLeft > 60 && firstLeft < 90, `the first left is ${firstLeft}`);
  assert.ok(has.every((count, i) => count === (i < firstLeft ? 0 : 4)));
  assert.equal(read(streams, 'busy').publications.length, 100);
  for (let i = 0; i < 100; i++) {
    const { epoch, offset } = read(streams, `room-${i}`);
    assert.deepEqual({ epoch, offset }, { epoch: epochs.get(i), offset: 4 });
  }
  assert.equal(streams.lostPublications, 4 * firstLeft);
  assert.equal(streams.publications, 4 * (100 - firstLeft) + 100);
});

test('one room uses at most a quarter of the bytes, and keeps its newest publications', () => {
  const streams = new Histories({ maxBytes: 1_000_000 });
  append(streams, 'quiet', RULE, Buffer.from('x'), 0);
  for (let i = 0; i < 100; i++) append(streams, 'large', RULE, Buffer.alloc(20_000, i), 1);
  assert.equal(read(streams, 'quiet').publications.length, 1);
  const { offset, publications } = read(streams, 'large');
  assert.equal(offset, 100);
  assert.ok(publications.length >= 10 && publications.length <= 12, `${publications.length}`);
  assert.deepEqual(
    publications.map((publication) => publication[0]),
    publications.map((_, i) => 100 - publications.length + i),
  );
  assert.equal(streams.lostPublications, 100 - publications.length);
});

test('a publication larger than the limit is kept until the next one', () => {
  const streams = new Histories({ maxBytes: 1000 });
  append(streams, 'a', RULE, Buffer.alloc(100), 0);
  append(streams, 'b', RULE, Buffer.alloc(5000), 1);
  assert.deepEqual(
    [read(streams, 'a').publications.length, read(streams, 'b').publications.length],
    [0, 1],
  );
  append(streams, 'a', RULE, Buffer.alloc(100), 2);
  assert.deepEqual(
    [read(streams, 'a').publications.length, read(streams, 'b').publications.length],
    [1, 0],
  );
});

test('above the limit of positions, those of empty rooms are forgotten first and begin a new epoch', () => {
  const streams = new Histories({ maxStreams: 10 });
  const brief = { size: 10, ttlMs: 1000 };
  const before = append(streams, 'gone', brief, Buffer.from('x'), 0);
  append(streams, 'gone-2', brief, Buffer.from('x'), 0);
  for (let i = 0; i < 8; i++) append(streams, `room-${i}`, RULE, Buffer.from('x'), 1 + i);
  streams.sweep(5000);
  assert.equal(streams.lostPositions, 0);
  append(streams, 'room-8', RULE, Buffer.from('x'), 5000);
  assert.equal(streams.lostPositions, 1);
  assert.equal(read(streams, 'gone-2').offset, 1);
  const after = read(streams, 'gone');
  assert.equal(after.offset, 0);
  assert.notEqual(after.epoch, before.epoch);
  // A read in between got the epoch that comes next.
  assert.deepEqual(append(streams, 'gone', brief, Buffer.from('y'), 5000), {
    epoch: after.epoch,
    offset: 1,
  });
  // gone-2 went for it; now the one least recently published to goes, with what it has.
  append(streams, 'room-9', RULE, Buffer.from('x'), 5000);
  assert.equal(read(streams, 'room-0').offset, 0);
  assert.equal(read(streams, 'room-1').offset, 1);
  assert.deepEqual(
    [streams.lostPositions, streams.lostPublications, streams.streams.size],
    [3, 1, 10],
  );
});

test('no position of an epoch is assigned twice, however often rooms are forgotten', () => {
  const streams = new Histories({ maxStreams: 5 });
  const random = chance(7);
  const seen = new Set();
  for (let i = 0; i < 5000; i++) {
    const room = `room-${random(20)}`;
    const { epoch, offset } = append(streams, room, RULE, Buffer.from('x'), i);
    const place = `${room} ${epoch} ${offset}`;
    assert.ok(!seen.has(place), place);
    seen.add(place);
  }
  assert.ok(streams.lostPositions > 1000);
});

test('no two rooms have the same epoch, with and without publications', () => {
  const streams = new Histories({ maxStreams: 50 });
  for (let i = 0; i < 60; i++) append(streams, `room-${i}`, RULE, Buffer.from('x'), i);
  const epochs = Array.from({ length: 1000 }, (_, i) => read(streams, `room-${i}`).epoch);
  assert.ok(epochs.every((epoch) => /^[0-9a-f]{16}$/.test(epoch)));
  assert.equal(new Set(epochs).size, 1000);
  assert.notEqual(read(new Histories(), 'room-1').epoch, epochs[1]);
});

test('a read of an unknown room allocates nothing, and its epoch stays the same', () => {
  const streams = new Histories({ maxStreams: 100 });
  const epochs = Array.from({ length: 2000 }, (_, i) => read(streams, `never-${i}`).epoch);
  assert.equal(streams.streams.size, 0);
  for (let i = 0; i < 200; i++) append(streams, `room-${i}`, RULE, Buffer.from('x'), i);
  const changed = epochs.filter((epoch, i) => read(streams, `never-${i}`).epoch !== epoch);
  // 100 rooms were forgotten: 2,000 x 100 / 65,536 neighbours are expected.
  assert.ok(changed.length < 30, `${changed.length}`);
});

test('a read ends at its byte limit, and returns at least one publication, however large', () => {
  const streams = new Histories();
  const half = Buffer.alloc(MAX_PAGE_BYTES / 2 - 1000);
  for (let i = 0; i < 5; i++) append(streams, 'halves', RULE, half, 0);
  assert.equal(read(streams, 'halves').publications.length, 2);
  assert.equal(read(streams, 'halves', { after: 4, limit: 10 }).publications.length, 1);
  append(streams, 'whole', RULE, Buffer.from('x'), 0);
  append(streams, 'whole', RULE, Buffer.alloc(MAX_PAGE_BYTES + 1), 0);
  const { publications } = read(streams, 'whole');
  assert.deepEqual(
    publications.map(({ length }) => length),
    [MAX_PAGE_BYTES + 1],
  );
});

test('an idempotency key is known for exactly its lifetime, in its own room', () => {
  const keys = new IdempotencyKeys();
  for (const nowMs of [0, 299_000, 400_000]) {
    const key = `key ${nowMs}`;
    keys.set('room', key, firstAt(nowMs + 1), nowMs);
    assert.equal(keys.find('room', key, nowMs)?.position?.offset, nowMs + 1);
    assert.equal(keys.find('other', key, nowMs), null);
    keys.sweep(nowMs + IDEMPOTENCY_MS - 1);
    assert.equal(keys.find('room', key, nowMs + IDEMPOTENCY_MS - 1)?.position?.offset, nowMs + 1);
    assert.equal(keys.find('room', key, nowMs + IDEMPOTENCY_MS), null);
  }
  assert.equal(keys.lost, 0);
});

test('above the limit of idempotency keys, the oldest are forgotten and counted', () => {
  const keys = new IdempotencyKeys(100);
  for (let i = 0; i < 1000; i++) keys.set('room', `${i}`, firstAt(i + 1), i);
  const known = Array.from({ length: 1000 }, (_, i) => keys.find('room', `${i}`, 1000)).filter(
    (first) => first !== null,
  );
  assert.ok(known.length <= 100, `${known.length} keys`);
  assert.ok(keys.find('room', '999', 1000));
  assert.ok(keys.find('room', '950', 1000));
  assert.equal(keys.find('room', '100', 1000), null);
  assert.equal(keys.lost, 900);
});

test('fingerprints conflict only if both are known and differ', () => {
  const first = firstAt(1);
  assert.equal(isConflict(first, 'print'), false);
  assert.equal(isConflict(first, ''), false);
  assert.equal(isConflict({ ...first, fingerprint: '' }, 'other'), false);
  assert.equal(isConflict(first, 'other'), true);
});

/** @param {number} offset */
function firstAt(offset) {
  return { position: { epoch: '0123456789abcdef', offset }, fingerprint: 'print' };
}
