// history-reading.js: how a broker reads rooms with history.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { ALL, numbers, publish, same, texts, upTo } from './history-rooms.js';
import { eventually } from './suite.js';

/** @param {import('./suite.js').It} it */
export function reading(it) {
  it('a read returns the newest publications above a position, and the position of the room', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const positions = await Promise.all(
      Array.from({ length: 50 }, (_, i) => publish(a, 'kept', `${i + 1}`)),
    );
    const { epoch } = positions[0];
    for (const { after, limit, first } of [
      { after: 0, limit: 100, first: 1 },
      { after: 0, limit: 50, first: 1 },
      { after: 0, limit: 7, first: 44 },
      { after: 20, limit: 100, first: 21 },
      { after: 20, limit: 30, first: 21 },
      { after: 20, limit: 29, first: 22 },
      { after: 49, limit: 100, first: 50 },
      { after: 50, limit: 100, first: 51 },
      { after: 51, limit: 100, first: 51 },
      { after: Number.MAX_SAFE_INTEGER, limit: 100, first: 51 },
      { after: 0, limit: 0, first: 51 },
      { after: 60, limit: 0, first: 51 },
    ]) {
      for (const worker of [a, b]) {
        assert.deepEqual(
          texts(await worker.broker.history('kept', { after, limit })),
          {
            epoch,
            offset: 50,
            texts: Array.from({ length: 51 - first }, (_, i) => `${first + i}`),
          },
          `after ${after}, limit ${limit}`,
        );
      }
    }
  });

  it('a forward read returns the oldest publications above a position, and its first offset', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    // Some in one tick, some alone, some large: they lie in the store in pieces of different kinds.
    await Promise.all(Array.from({ length: 30 }, (_, i) => publish(a, 'kept', `${i + 1}`)));
    for (let i = 31; i <= 40; i++) await publish(a, 'kept', `${i}`);
    await publish(a, 'kept', `41:${'x'.repeat(100_000)}`);
    await Promise.all(Array.from({ length: 9 }, (_, i) => publish(a, 'kept', `${i + 42}`)));
    for (const [after, limit] of [
      [0, 100],
      [0, 1],
      [4, 3],
      [29, 5],
      [38, 10],
      [40, 1],
      [49, 5],
      [50, 5],
      [90, 5],
      [3, 0],
    ]) {
      for (const { broker } of [a, b]) {
        const page = await broker.history('kept', { after, limit, isForward: true });
        const numbers = page.publications.map((publication) =>
          Number.parseInt(String(publication.subarray(0, 5)), 10),
        );
        const count = Math.max(0, Math.min(50 - after, limit));
        const expected = Array.from({ length: count }, (_, i) => after + 1 + i);
        assert.deepEqual([page.offset, numbers], [50, expected], `after ${after}, limit ${limit}`);
        if (count > 0) assert.equal(page.first, after + 1);
      }
    }
    // In rooms that keep few messages it begins with the oldest one left. Redis keeps some more
    // than the rule requires.
    await Promise.all(Array.from({ length: 3 }, (_, i) => publish(a, 'short', `${i + 1}`)));
    for (let i = 4; i <= 24; i++) await publish(a, 'short', `${i}`);
    const { first, publications } = await b.broker.history('short', {
      after: 0,
      limit: 2,
      isForward: true,
    });
    assert.ok(first >= 1 && first <= 20, `from ${first}`);
    assert.deepEqual(publications.map(String), [`${first}`, `${first + 1}`]);
  });

  it('a read below a position returns the newest publications there, and whether older ones are kept', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    // Pieces of different kinds: a tick of many, single ones, a large one, and a tick again.
    await Promise.all(Array.from({ length: 30 }, (_, i) => publish(a, 'kept', `${i + 1}`)));
    for (let i = 31; i <= 40; i++) await publish(a, 'kept', `${i}`);
    const { epoch } = await publish(a, 'kept', `41:${'x'.repeat(100_000)}`);
    await Promise.all(Array.from({ length: 19 }, (_, i) => publish(a, 'kept', `${i + 42}`)));
    for (const { broker } of [a, b]) {
      for (let offset = 0; offset <= 63; offset++) {
        const reads = [
          [1, 0],
          [7, 0],
          [7, 20],
          [100, 0],
        ].map(async ([limit, after]) => {
          const page = await broker.history('kept', { after, limit, before: { epoch, offset } });
          const last = Math.min(60, offset - 1);
          const count = Math.max(0, Math.min(limit, last - after));
          assert.deepEqual(
            [page.epoch, page.offset, numbers(page), page.hasOlder],
            [epoch, 60, upTo(last, count), count > 0 && last - count > after],
            `below ${offset}, limit ${limit}, after ${after}`,
          );
          if (count > 0) assert.equal(page.first, last - count + 1);
        });
        await Promise.all(reads);
      }
    }
    // Without a position the same holds for the newest.
    for (const limit of [1, 59, 60, 61]) {
      const { hasOlder, first } = await b.broker.history('kept', { after: 0, limit });
      assert.deepEqual([hasOlder, first], [limit < 60, Math.max(1, 61 - limit)]);
    }
  });

  it('a read below a position of another epoch, or in an empty room, returns nothing', async (_t, attach) => {
    const a = await attach();
    const { epoch } = await publish(a, 'kept', '1');
    await publish(a, 'kept', '2');
    const other = { epoch: '0123456789abcdef', offset: 2 };
    for (const [room, before] of /** @type {const} */ ([
      ['kept', other],
      ['kept-new', other],
      ['kept', { epoch, offset: 0 }],
    ])) {
      const page = await a.broker.history(room, { after: 0, limit: 10, before });
      assert.deepEqual([page.publications, page.hasOlder], [[], false]);
      assert.equal(page.offset, room === 'kept' ? 2 : 0);
    }
    // A history that was deleted is gone, and its position belongs to no other.
    const before = { epoch, offset: 2 };
    await a.broker.history('kept', { after: 0, limit: 0, endedEpoch: epoch });
    await publish(a, 'kept', 'new');
    const { publications } = await a.broker.history('kept', { after: 0, limit: 10, before });
    assert.deepEqual(publications, []);
  });

  it('pages below each other have each kept publication once, while new ones arrive', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    let published = 0;
    /** @param {number} count */
    const burst = (count) =>
      Promise.all(Array.from({ length: count }, () => publish(a, 'kept', `${++published}`)));
    while (published < 1200) await burst(1 + (published % 37));
    const { epoch, offset } = await b.broker.history('kept', { after: 0, limit: 0 });
    /** @type {number[]} */
    const seen = [];
    let before = { epoch, offset: offset + 1 };
    for (let hasOlder = true; hasOlder; ) {
      const [page] = await Promise.all([
        b.broker.history('kept', { after: 0, limit: 64, maxBytes: 400, before }),
        burst(3),
      ]);
      hasOlder = page.hasOlder;
      before = { epoch, offset: page.first };
      seen.unshift(...numbers(page));
    }
    assert.deepEqual(seen, upTo(offset, offset));
  });

  it('pages end where the rule does, also if the store still has older publications', async (_t, attach) => {
    const a = await attach();
    for (let i = 1; i <= 24; i++) await publish(a, 'short', `${i}`);
    const { epoch } = await a.broker.history('short', { after: 0, limit: 0 });
    /** @param {number} offset */
    const below = async (offset) => {
      const page = await a.broker.history('short', {
        after: 0,
        limit: 2,
        before: { epoch, offset },
      });
      return [numbers(page), page.hasOlder];
    };
    assert.deepEqual(await below(25), [[23, 24], true]);
    assert.deepEqual(await below(23), [[21, 22], true]);
    assert.deepEqual(await below(21), [[20], false]);
    assert.deepEqual(await below(20), [[], false]);
    assert.deepEqual(await below(10), [[], false]);
  });

  it('a read below a position costs the store what it returns', async (_t, attach) => {
    const a = await attach();
    for (let i = 1; i <= 40; i++) await publish(a, 'kept', `${i}:${'x'.repeat(9_990)}`);
    const { epoch } = await a.broker.history('kept', { after: 0, limit: 0 });
    const before = { epoch, offset: 31 };
    const page = await a.broker.history('kept', { after: 0, limit: 100, maxBytes: 50_000, before });
    const { length } = page.publications;
    assert.ok(length >= 4 && length <= 6, `${length} publications`);
    assert.deepEqual([page.first, page.hasOlder], [31 - length, true]);
    const one = await a.broker.history('kept', { after: 0, limit: 9, maxBytes: 1, before });
    assert.deepEqual([numbers(one), one.hasOlder], [[30], true]);
  });

  it('a read is bounded in bytes, and starts at the requested end', async (_t, attach) => {
    const a = await attach();
    for (let i = 1; i <= 20; i++) await publish(a, 'kept', `${i}:${'x'.repeat(9_990)}`);
    for (const isForward of [false, true]) {
      const read = await a.broker.history('kept', {
        after: 0,
        limit: 100,
        maxBytes: 50_000,
        isForward,
      });
      const { length } = read.publications;
      assert.ok(length >= 4 && length <= 6, `${length} publications`);
      assert.equal(read.first, isForward ? 1 : 21 - length);
      assert.ok(String(read.publications[0]).startsWith(`${read.first}:`));
      const one = await a.broker.history('kept', { after: 7, limit: 100, maxBytes: 1, isForward });
      assert.deepEqual([one.publications.length, one.first], [1, isForward ? 8 : 20]);
    }
  });

  it('a read returns at most about 8 MB: the newest', async (_t, attach) => {
    const a = await attach();
    const publications = Array.from({ length: 12 }, () => randomBytes(1024 * 1024));
    for (const publication of publications)
      await a.broker.publish('kept', Buffer.from(publication));
    const { publications: read, offset } = await a.broker.history('kept', ALL);
    assert.equal(offset, 12);
    assert.ok(read.length >= 7 && read.length <= 9, `${read.length} publications`);
    same(read, publications.slice(-read.length));
  });

  it('a subscription followed by a read leaves no gap, whatever is published meanwhile', async (t, attach) => {
    const b = await attach();
    let done = false;
    t.after(() => {
      done = true;
    });
    let published = 0;
    const publishing = (async () => {
      while (!done) {
        const burst = 1 + Math.floor(Math.random() * 8);
        await Promise.all(
          Array.from({ length: burst }, () => publish(b, 'kept', `${++published}`)),
        );
        await new Promise((resolve) => setImmediate(resolve));
      }
    })();
    for (let round = 0; round < 8; round++) {
      const a = await attach();
      const from = await b.broker.history('kept', { after: 0, limit: 0 });
      await a.broker.subscribe('kept');
      const page = await a.broker.history('kept', { after: from.offset, limit: 2000 });
      const end = page.offset + 20;
      await eventually(() => a.positions.some(({ offset }) => offset >= end));
      const first = page.offset - page.publications.length + 1;
      assert.equal(first, from.offset + 1);
      /** @type {Map<number, string>} */
      const merged = new Map(
        page.publications.map((publication, i) => [first + i, String(publication)]),
      );
      for (const [i, { offset, epoch }] of a.positions.entries()) {
        assert.equal(epoch, page.epoch);
        const text = String(a.publications[i]);
        if (merged.has(offset)) assert.equal(merged.get(offset), text);
        merged.set(offset, text);
      }
      for (let offset = first; offset <= end; offset++) {
        assert.equal(
          merged.get(offset),
          `${offset}`,
          `round ${round}: offset ${offset} of ${first} to ${end}`,
        );
      }
      await a.broker.close();
    }
    done = true;
    await publishing;
  });

  it('many rooms are read at once', async (_t, attach) => {
    const a = await attach();
    const rooms = Array.from({ length: 1000 }, (_, i) => `kept-${i}`);
    await Promise.all(rooms.map((room) => a.broker.publish(room, Buffer.from(room.repeat(200)))));
    const read = await Promise.all(rooms.map((room) => a.broker.history(room, ALL)));
    for (const [i, { offset, publications }] of read.entries()) {
      assert.equal(offset, 1);
      assert.deepEqual(publications.map(String), [rooms[i].repeat(200)]);
    }
  });

  it('publications that were read may be kept, and do not change when the stream moves on', async (_t, attach) => {
    const a = await attach();
    await Promise.all(Array.from({ length: 5 }, (_, i) => publish(a, 'short', `old ${i}`)));
    const { publications } = await a.broker.history('short', ALL);
    for (let i = 0; i < 300; i++) await publish(a, 'short', `new ${i}`);
    assert.deepEqual(
      publications.map(String),
      [0, 1, 2, 3, 4].map((i) => `old ${i}`),
    );
  });

  it('a room can be read without a subscription, and its history outlives its publisher', async (_t, attach) => {
    const a = await attach();
    const b = await attach();
    await publish(a, 'kept', '1');
    await a.broker.close();
    assert.deepEqual(texts(await b.broker.history('kept', ALL)).texts, ['1']);
  });
}
