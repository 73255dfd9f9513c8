// history.test.js: the contract of rooms with history for every broker (src/backend/broker.js).

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { eventually, LONG_ROOMS, suite } from './suite.js';

const ALL = Object.freeze({ after: 0, limit: 100_000 });
const EPOCH = /^[0-9a-f]{16}$/;

/**
 * By the first part of a room's name.
 * @type {Readonly<Record<string, import('../../src/config/room-patterns.js').HistoryRule>>}
 */
const RULES = Object.freeze({
  kept: { size: 2000, ttlMs: 600_000 },
  short: { size: 5, ttlMs: 600_000 },
  brief: { size: 100, ttlMs: 1000 },
});

/** @typedef {import('../../src/backend/broker.js').Position} Position */
/** @typedef {import('../../src/backend/broker.js').HistoryPage} HistoryPage */
/** @typedef {import('./suite.js').Worker} Worker */

suite(behaviours, {
  history: Object.entries({ ...RULES, '~1': RULES.kept }).map(([name, value]) => ({
    pattern: `${name}*`,
    value,
  })),
});

/** @param {import('./suite.js').It} it */
function behaviours(it) {
  it('offsets begin at 1, have no gap, and are the same for the publisher and for all workers', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await Promise.all([a.broker.subscribe('kept'), b.broker.subscribe('kept')]);
    const got = [];
    for (let i = 1; i <= 20; i++) got.push(await publish(i % 2 ? a : b, 'kept', `${i}`));
    await Promise.all([a.received(20), b.received(20)]);
    const { epoch } = got[0];
    assert.match(epoch, EPOCH);
    assert.deepEqual(
      got,
      Array.from({ length: 20 }, (_, i) => ({ epoch, offset: i + 1 })),
    );
    const announced = got.map((position) => ({ room: 'kept', ...position }));
    assert.deepEqual(a.positions, announced);
    assert.deepEqual(b.positions, announced);
  });

  it('a position in one room proves nothing in another: no two rooms share an epoch', async (_t, attach) => {
    const worker = await attach();
    const published = await Promise.all(
      ['kept-a', 'kept-b', 'kept-c'].map((room) => publish(worker, room, 'x')),
    );
    const unpublished = await worker.broker.history('kept-d', ALL);
    const epochs = [...published, unpublished].map(({ epoch }) => epoch);
    assert.equal(new Set(epochs).size, 4, `${epochs}`);
  });

  it('each publish of a tick gets its own position, in every room', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const rooms = ['kept-1', 'kept-2', 'kept-3'];
    await Promise.all(rooms.map((room) => b.broker.subscribe(room)));
    const got = await Promise.all(
      Array.from({ length: 300 }, async (_, i) => {
        const room = rooms[i % 3];
        return { room, ...(await publish(a, room, `${i}`)) };
      }),
    );
    await b.received(300);
    for (const room of rooms) {
      const mine = got.filter((one) => one.room === room);
      assert.deepEqual(
        mine.map(({ offset }) => offset),
        Array.from({ length: 100 }, (_, i) => i + 1),
      );
      assert.deepEqual(
        b.positions.filter((one) => one.room === room),
        mine,
      );
    }
  });

  it('concurrent publishes of several workers have one order and one numbering', async (_t, attach) => {
    const workers = [await attach(), await attach(), await attach()];
    await Promise.all(workers.map(({ broker }) => broker.subscribe('kept')));
    /** @type {Promise<{text: string, position: Position}>[]} */
    const published = [];
    for (let i = 0; i < 200; i++) {
      for (const [w, worker] of workers.entries()) {
        const text = `${w}:${i}`;
        published.push(publish(worker, 'kept', text).then((position) => ({ text, position })));
      }
      if (i % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const got = await Promise.all(published);
    await Promise.all(workers.map((worker) => worker.received(600)));
    const byOffset = got.sort((x, y) => x.position.offset - y.position.offset);
    for (const { positions, texts } of workers) {
      assert.deepEqual(
        positions,
        byOffset.map(({ position }) => ({ room: 'kept', ...position })),
      );
      assert.deepEqual(
        texts,
        byOffset.map(({ text }) => `kept ${text}`),
      );
    }
    assert.deepEqual(
      byOffset.map(({ position }) => position.offset),
      Array.from({ length: 600 }, (_, i) => i + 1),
    );
    // Each worker's own come in the order in which it published them.
    for (const w of workers.keys()) {
      const own = byOffset
        .filter(({ text }) => text.startsWith(`${w}:`))
        .map(({ text }) => Number(text.slice(2)));
      assert.deepEqual(
        own,
        Array.from({ length: 200 }, (_, i) => i),
      );
    }
    const { publications } = await workers[0].broker.history('kept', ALL);
    assert.deepEqual(
      publications.map(String),
      byOffset.map(({ text }) => text),
    );
  });

  it('a plain room has neither positions nor offsets, also beside one with history', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await Promise.all([b.broker.subscribe('plain'), b.broker.subscribe('kept')]);
    const results = [];
    for (let i = 0; i < 10; i++) {
      results.push(
        a.broker.publish('plain', Buffer.from(`${i}`)),
        a.broker.publish('kept', Buffer.from(`${i}`)),
      );
    }
    const settled = await Promise.all(results);
    await b.received(20);
    for (let i = 0; i < 20; i += 2) assert.equal(settled[i], undefined);
    assert.deepEqual(
      b.positions.filter(({ room }) => room === 'plain'),
      Array(10).fill({ room: 'plain', epoch: '', offset: 0 }),
    );
    assert.equal(
      b.positions.filter(({ room, offset }) => room === 'kept' && offset > 0).length,
      10,
    );
  });

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
        for (const [limit, after] of [
          [1, 0],
          [7, 0],
          [7, 20],
          [100, 0],
        ]) {
          const page = await broker.history('kept', { after, limit, before: { epoch, offset } });
          const last = Math.min(60, offset - 1);
          const count = Math.max(0, Math.min(limit, last - after));
          assert.deepEqual(
            [page.epoch, page.offset, numbers(page), page.hasOlder],
            [epoch, 60, upTo(last, count), count > 0 && last - count > after],
            `below ${offset}, limit ${limit}, after ${after}`,
          );
          if (count > 0) assert.equal(page.first, last - count + 1);
        }
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

  it('a room without publications has a position, and keeps its epoch at the first publish', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const before = await a.broker.history('kept-new', ALL);
    assert.match(before.epoch, EPOCH);
    assert.deepEqual(
      { offset: before.offset, publications: before.publications },
      { offset: 0, publications: [] },
    );
    assert.deepEqual(await b.broker.history('kept-new', { after: 7, limit: 0 }), before);
    assert.deepEqual(await publish(b, 'kept-new', 'first'), { epoch: before.epoch, offset: 1 });
    assert.deepEqual(texts(await a.broker.history('kept-new', ALL)), {
      epoch: before.epoch,
      offset: 1,
      texts: ['first'],
    });
  });

  it('rooms do not mix', async (_t, attach) => {
    const a = await attach();
    await Promise.all(Array.from({ length: 200 }, (_, i) => publish(a, `kept-${i % 40}`, `${i}`)));
    const read = await Promise.all(
      Array.from({ length: 40 }, (_, i) => a.broker.history(`kept-${i}`, ALL)),
    );
    for (const [i, page] of read.entries()) {
      assert.deepEqual(texts(page).texts, [i, i + 40, i + 80, i + 120, i + 160].map(String));
      assert.equal(page.offset, 5);
    }
  });

  it('a stream keeps its newest publications, up to its size', async (_t, attach) => {
    const a = await attach();
    await Promise.all(Array.from({ length: 23 }, (_, i) => publish(a, 'short', `${i + 1}`)));
    const { epoch } = await publish(a, 'short', '24');
    const newest = { epoch, offset: 24, texts: ['20', '21', '22', '23', '24'] };
    assert.deepEqual(texts(await a.broker.history('short', ALL)), newest);
    assert.deepEqual(texts(await a.broker.history('short', { after: 3, limit: 10 })), newest);
    assert.deepEqual(texts(await a.broker.history('short', { after: 22, limit: 10 })).texts, [
      '23',
      '24',
    ]);
  });

  it('a stream expires after its latest publication, and its position stays', async (_t, attach) => {
    const a = await attach();
    const { epoch } = await publish(a, 'brief', '1');
    const started = performance.now();
    let last = started;
    // A room that gets publications stays, however old its oldest publication is.
    for (let i = 2; performance.now() - started < 1300; i++) {
      last = performance.now();
      const { offset } = await publish(a, 'brief', `${i}`);
      assert.equal(offset, i);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    const full = await a.broker.history('brief', { after: 0, limit: 1000 });
    // A machine that stood still for as long has shown nothing.
    if (performance.now() - last < 900) assert.equal(full.publications.length, full.offset);
    await eventually(async () => (await a.broker.history('brief', ALL)).publications.length === 0);
    assert.ok(performance.now() - last > 990, 'gone too early');
    assert.deepEqual(texts(await a.broker.history('brief', ALL)), {
      epoch,
      offset: full.offset,
      texts: [],
    });
    assert.deepEqual(await publish(a, 'brief', 'x'), { epoch, offset: full.offset + 1 });
    assert.deepEqual(texts(await a.broker.history('brief', ALL)).texts, ['x']);
  });

  it('large publications keep their order, and are read unchanged', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('kept');
    const sizes = [
      5,
      100 * 1024,
      1,
      0,
      64 * 1024,
      65_533,
      1024 * 1024,
      3,
      100 * 1024,
      100 * 1024,
      7,
    ];
    const publications = sizes.map((size) => randomBytes(size));
    const copies = publications.map((publication) => Buffer.from(publication));
    const positions = await Promise.all(
      publications.map((publication) => a.broker.publish('kept', publication)),
    );
    assert.deepEqual(
      positions.map((position) => /** @type {Position} */ (position).offset),
      sizes.map((_, i) => i + 1),
    );
    await b.received(sizes.length);
    same(b.publications, copies);
    same((await b.broker.history('kept', ALL)).publications, copies);
    same((await a.broker.history('kept', { after: 5, limit: 100 })).publications, copies.slice(5));
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

  it('a repeated idempotency key publishes nothing, and returns the first position', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await a.broker.subscribe('kept');
    const first = await publish(a, 'kept', '1', 'key');
    const other = await publish(b, 'kept', '2', 'other');
    assert.equal(other.offset, 2);
    assert.deepEqual(await publish(a, 'kept', 'again', 'key'), first);
    assert.deepEqual(await publish(b, 'kept', 'again', 'key'), first);
    // The same key in another room is another key.
    assert.equal((await publish(a, 'kept-2', '1', 'key')).offset, 1);
    assert.equal((await publish(a, 'kept', '3')).offset, 3);
    await a.received(3);
    assert.deepEqual(texts(await b.broker.history('kept', ALL)).texts, ['1', '2', '3']);
  });

  it('names of rooms with history have up to 512 characters', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const rooms = LONG_ROOMS.filter(({ length }) => length > 1);
    await Promise.all(rooms.map((room) => b.broker.subscribe(room)));
    for (const room of rooms) {
      const one = publish(a, room, '1');
      const positions = [...(await Promise.all([one, publish(a, room, '2')]))];
      positions.push(await publish(a, room, '3', 'key'), await publish(b, room, 'x', 'key'));
      assert.deepEqual(
        positions.map(({ offset }) => offset),
        [1, 2, 3, 3],
      );
      assert.deepEqual(texts(await b.broker.history(room, ALL)), {
        ...positions[3],
        texts: ['1', '2', '3'],
      });
    }
    await b.received(3 * rooms.length);
    assert.deepEqual(
      b.positions.map(({ room, offset }) => [room, offset]),
      rooms.flatMap((room) => [1, 2, 3].map((offset) => [room, offset])),
    );
  });

  it('a transient publication has no position: history and offsets are as without it', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await Promise.all([a.broker.subscribe('kept'), b.broker.subscribe('kept')]);
    const large = 'x'.repeat(100_000);
    const sent = Array.from({ length: 40 }, (_, i) => `t${i} ${i % 10 === 9 ? large : ''}`);
    /** @type {Promise<unknown>[]} */
    const answers = [];
    for (const [i, text] of sent.entries()) {
      answers.push(a.broker.publish('kept', Buffer.from(text), { isTransient: true }));
      if (i % 2 === 0) answers.push(a.broker.publish('kept', Buffer.from(`k${i / 2}`)));
      if (i % 5 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const positions = (await Promise.all(answers)).filter((position) => position !== undefined);
    await Promise.all([a.received(60), b.received(60)]);
    const kept = Array.from({ length: 20 }, (_, i) => `k${i}`);
    const offsets = Array.from({ length: 20 }, (_, i) => i + 1);
    assert.deepEqual(
      positions.map((position) => /** @type {Position} */ (position).offset),
      offsets,
    );
    for (const worker of [a, b]) {
      const got = worker.publications.map((publication, i) => ({
        text: String(publication),
        ...worker.positions[i],
      }));
      const transient = got.filter(({ text }) => text.startsWith('t'));
      assert.deepEqual(
        transient.map(({ text }) => text),
        sent,
      );
      assert.ok(transient.every(({ offset, epoch }) => offset === 0 && epoch === ''));
      assert.deepEqual(
        got.filter(({ text }) => text.startsWith('k')).map(({ text, offset }) => [text, offset]),
        kept.map((text, i) => [text, i + 1]),
      );
    }
    const page = await b.broker.history('kept', ALL);
    assert.deepEqual([page.offset, texts(page).texts], [20, kept]);
  });

  it('a transient publication in a room that has none begins no history', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('kept-new');
    const before = await b.broker.history('kept-new', ALL);
    await a.broker.publish('kept-new', Buffer.from('t'), { isTransient: true });
    await b.received(1);
    const { epoch, offset, publications } = await b.broker.history('kept-new', ALL);
    assert.deepEqual([epoch, offset, publications], [before.epoch, 0, []]);
  });

  it('a transient publication with a key is accepted once', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('kept');
    const options = { idempotencyKey: 'key', fingerprint: 'one', isTransient: true };
    for (const { broker } of [a, b, a]) await broker.publish('kept', Buffer.from('t'), options);
    const other = { ...options, fingerprint: 'other' };
    await assert.rejects(a.broker.publish('kept', Buffer.from('t'), other), {
      code: 'IDEMPOTENCY_CONFLICT',
    });
    await publish(a, 'kept', 'last');
    await b.received(2);
    assert.deepEqual(b.texts, ['kept t', 'kept last']);
  });

  it('a key whose first publication had another fingerprint is a conflict', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const options = { idempotencyKey: 'key', fingerprint: 'one' };
    const first = await a.broker.publish('kept', Buffer.from('1'), options);
    assert.deepEqual(await b.broker.publish('kept', Buffer.from('again'), options), first);
    const other = { ...options, fingerprint: 'other' };
    for (const { broker } of [a, b]) {
      await assert.rejects(broker.publish('kept', Buffer.from('2'), other), {
        code: 'IDEMPOTENCY_CONFLICT',
      });
    }
    assert.deepEqual(await publish(a, 'kept', 'again', 'key'), first);
    // Others of the same tick are not touched.
    const [plain, refused, next] = await Promise.allSettled([
      a.broker.publish('kept', Buffer.from('2')),
      a.broker.publish('kept', Buffer.from('x'), other),
      a.broker.publish('kept', Buffer.from('3')),
    ]);
    assert.deepEqual(
      [plain.status, refused.status, next.status],
      ['fulfilled', 'rejected', 'fulfilled'],
    );
    assert.deepEqual(texts(await b.broker.history('kept', ALL)).texts, ['1', '2', '3']);
  });

  it('an idempotency key is known for longer than its publication', async (_t, attach) => {
    const a = await attach();
    const first = await publish(a, 'short', '1', 'key');
    await Promise.all(Array.from({ length: 10 }, (_, i) => publish(a, 'short', `${i}`)));
    assert.deepEqual(await publish(a, 'short', 'again', 'key'), first);
  });

  it('one key that several workers publish at once and in one tick is accepted once', async (_t, attach) => {
    const [a, b, c] = [await attach(), await attach(), await attach()];
    await c.broker.subscribe('kept');
    const keys = Array.from({ length: 100 }, (_, i) => `key-${i % 10}`);
    const positions = await Promise.all(
      keys.map(async (key, i) => ({
        key,
        position: await publish(i % 3 ? a : b, 'kept', `${i}`, key),
      })),
    );
    for (const { key, position } of positions) {
      assert.deepEqual(position, positions.find((one) => one.key === key)?.position);
    }
    assert.equal((await publish(a, 'kept', 'end')).offset, 11);
    await c.received(11);
    const { publications } = await a.broker.history('kept', ALL);
    assert.equal(publications.length, 11);
    assert.deepEqual(
      c.positions.map(({ offset }) => offset),
      Array.from({ length: 11 }, (_, i) => i + 1),
    );
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
    for (let round = 0; round < 20; round++) {
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

  it('close waits for publishes in flight; after it no publish or read is accepted', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    let isSettled = false;
    const kept = a.broker.publish('kept', Buffer.from('1')).finally(() => {
      isSettled = true;
    });
    await a.broker.close();
    assert.ok(isSettled);
    assert.equal((await kept)?.offset, 1);
    await assert.rejects(publish(a, 'kept', '2'), { name: 'BrokerError', code: 'UNAVAILABLE' });
    await assert.rejects(a.broker.history('kept', ALL), {
      name: 'BrokerError',
      code: 'UNAVAILABLE',
    });
    assert.deepEqual(texts(await b.broker.history('kept', ALL)).texts, ['1']);
  });
}

/**
 * @param {Worker} worker
 * @param {string} room
 * @param {string} text
 * @param {string} [idempotencyKey]
 * @returns {Promise<Position>}
 */
async function publish({ broker }, room, text, idempotencyKey) {
  const position = await broker.publish(room, Buffer.from(text), { idempotencyKey });
  assert.ok(position, `${room} has history`);
  return position;
}

/** @param {HistoryPage} page */
function texts({ epoch, offset, publications }) {
  return { epoch, offset, texts: publications.map(String) };
}

/** The numbers with which publications begin. @param {HistoryPage} page */
function numbers({ publications }) {
  return publications.map((one) => Number.parseInt(one.toString('latin1', 0, 8), 10));
}

/** The `count` numbers up to `last`. @param {number} last @param {number} count */
function upTo(last, count) {
  return Array.from({ length: count }, (_, i) => last - count + 1 + i);
}

/** @param {Buffer[]} actual @param {Buffer[]} expected */
function same(actual, expected) {
  assert.deepEqual(
    actual.map(({ length }) => length),
    expected.map(({ length }) => length),
  );
  assert.ok(actual.every((publication, i) => publication.equals(expected[i])));
}
