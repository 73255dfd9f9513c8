// history-publishing.js: what a broker does with publications of rooms with history: positions, order,
// bounds of a stream, idempotency keys.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { messageFor } from '../helpers/audiences.js';
import { ALL, publish, same, texts } from './history-rooms.js';
import { eventually, LONG_ROOMS } from './suite.js';

/** @typedef {import('../../src/backend/broker.js').Position} Position */

const EPOCH = /^[0-9a-f]{16}$/;

/** @param {import('./suite.js').It} it */
export function publishing(it) {
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

  for (const room of ['plain', 'kept'])
    it(`messages for an audience arrive and are read unchanged, among others: ${room}`, async (_t, attach) => {
      const [a, b] = [await attach(), await attach()];
      await b.broker.subscribe(room);
      const sent = [
        ...['', 'staff', '', 'a,b', 'a,b'].map((audience, i) => messageFor(i, audience)),
        messageFor(5, 'staff', { size: 100_000 }),
        messageFor(6, '', { size: 100_000 }),
        messageFor(7, 'staff'),
      ];
      const copies = sent.map((publication) => Buffer.from(publication));
      await Promise.all(sent.map((one) => a.broker.publish(room, one)));
      const once = { idempotencyKey: 'k', fingerprint: 'f' };
      for (const [i, size] of [10, 100_000].entries()) {
        const publication = messageFor(8 + i, 'staff', { size });
        copies.push(Buffer.from(publication), Buffer.from(messageFor(20 + i, '')));
        await a.broker.publish(room, publication, { ...once, idempotencyKey: `k${i}` });
        await a.broker.publish(room, publication, { ...once, idempotencyKey: `k${i}` });
        await a.broker.publish(room, messageFor(20 + i, ''));
      }
      await b.received(copies.length);
      same(b.publications, copies);
      if (room === 'kept') same((await b.broker.history(room, ALL)).publications, copies);
    });
}
