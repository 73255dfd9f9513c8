// history-expecting.js: what a broker does with publications that depend on the room's position.

import assert from 'node:assert/strict';
import { ALL, publish, texts } from './history-rooms.js';

const EMPTY = Object.freeze({ epoch: '', offset: 0 });
/** Producers of the race. */
const PRODUCERS = 1000;
const OTHER_EPOCH = 'f'.repeat(16);

/** @typedef {import('../../src/backend/broker.js').Position} Position */
/** @typedef {import('./suite.js').Worker} Worker */

/**
 * @param {Worker} worker @param {string} room @param {string} text @param {Position} expect
 * @param {string} [idempotencyKey]
 * @returns {Promise<Position>}
 */
async function publishAt({ broker }, room, text, expect, idempotencyKey) {
  const position = await broker.publish(room, Buffer.from(text), { idempotencyKey, expect });
  assert.ok(position, `${room} has history`);
  return position;
}

/** @param {Position} position the room's @returns {object} for assert.rejects */
function conflictAt({ epoch, offset }) {
  return { name: 'BrokerError', code: 'CONFLICT', position: { epoch, offset } };
}

/** @param {import('./suite.js').It} it */
export function expecting(it) {
  it('a publication with an expected position is accepted there, and nowhere else', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('kept');
    const first = await publish(a, 'kept', '1');
    const second = await publishAt(b, 'kept', '2', first);
    assert.deepEqual(second, { epoch: first.epoch, offset: 2 });
    const { epoch } = first;
    const wrong = [first, { epoch, offset: 3 }, { epoch, offset: 0 }, EMPTY];
    for (const expect of [...wrong, { epoch: OTHER_EPOCH, offset: 2 }])
      await assert.rejects(publishAt(a, 'kept', 'x', expect), conflictAt(second));
    assert.equal((await publish(b, 'kept', '3')).offset, 3);
    await b.received(3);
    assert.deepEqual(
      b.positions.map(({ offset }) => offset),
      [1, 2, 3],
    );
    assert.deepEqual(texts(await a.broker.history('kept', ALL)).texts, ['1', '2', '3']);
  });

  it('a room without publications is at offset 0, and its epoch may be left out', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const read = await a.broker.history('kept-read', { after: 0, limit: 0 });
    const named = await publishAt(b, 'kept-read', '1', { epoch: read.epoch, offset: 0 });
    assert.deepEqual(named, { epoch: read.epoch, offset: 1 });
    assert.equal((await publishAt(b, 'kept-unread', '1', EMPTY)).offset, 1);
    // The room has the position that a refusal names.
    const wrong = { epoch: OTHER_EPOCH, offset: 7 };
    const refused = await publishAt(a, 'kept-new', 'x', wrong).catch((error) => error);
    assert.equal(refused.code, 'CONFLICT');
    assert.equal(refused.position.offset, 0);
    assert.deepEqual(await publishAt(b, 'kept-new', '1', refused.position), {
      epoch: refused.position.epoch,
      offset: 1,
    });
  });

  it('a repeated key answers as the first publication did, wherever the room is', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const first = await publishAt(a, 'kept', '1', EMPTY, 'key');
    const second = await publish(a, 'kept', '2');
    for (const expect of [EMPTY, second])
      assert.deepEqual(await publishAt(b, 'kept', '1', expect, 'key'), first);
    // A refusal does not use a key up.
    await assert.rejects(publishAt(a, 'kept', '3', first, 'other'), conflictAt(second));
    assert.equal((await publishAt(b, 'kept', '3', second, 'other')).offset, 3);
    assert.deepEqual(texts(await a.broker.history('kept', ALL)).texts, ['1', '2', '3']);
  });

  it('publications of a tick are compared one after the other', async (_t, attach) => {
    const a = await attach();
    const { epoch } = await publish(a, 'kept', '1');
    const settled = await Promise.allSettled([
      publishAt(a, 'kept', '2', { epoch, offset: 1 }),
      publish(a, 'kept', '3'),
      publishAt(a, 'kept', 'x', { epoch, offset: 2 }),
      publish(a, 'kept', '4'),
      publishAt(a, 'kept', '5', { epoch, offset: 4 }),
      publishAt(a, 'kept', '6', { epoch, offset: 5 }),
    ]);
    assert.deepEqual(
      settled.map((one) => (one.status === 'fulfilled' ? one.value.offset : one.reason.code)),
      [2, 3, 'CONFLICT', 4, 5, 6],
    );
    const page = texts(await a.broker.history('kept', ALL));
    assert.deepEqual(page, { epoch, offset: 6, texts: ['1', '2', '3', '4', '5', '6'] });
  });

  it('a large publication may depend on the position', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('kept');
    const large = 'x'.repeat(300_000);
    const first = await publishAt(a, 'kept', large, EMPTY);
    await assert.rejects(publishAt(b, 'kept', large, EMPTY), conflictAt(first));
    await publishAt(b, 'kept', 'small', first, 'key');
    await b.received(2);
    assert.equal(b.publications[0].length, large.length);
    assert.equal(String(b.publications[1]), 'small');
  });

  it('the position stays when the publications have expired', async (_t, attach) => {
    const a = await attach();
    for (let i = 1; i <= 7; i++) await publish(a, 'short', `${i}`);
    const { epoch, offset } = await a.broker.history('short', { after: 0, limit: 0 });
    assert.equal(offset, 7);
    await assert.rejects(publishAt(a, 'short', 'x', EMPTY), conflictAt({ epoch, offset }));
    assert.equal((await publishAt(a, 'short', '8', { epoch, offset })).offset, 8);
  });

  it('an ended epoch is no position of the room', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const ended = await publish(a, 'kept', '1');
    const page = await a.broker.history('kept', { ...ALL, endedEpoch: ended.epoch });
    assert.notEqual(page.epoch, ended.epoch);
    await assert.rejects(publishAt(b, 'kept', 'x', ended), conflictAt({ ...page, offset: 0 }));
    assert.deepEqual(await publishAt(b, 'kept', '1', EMPTY), { epoch: page.epoch, offset: 1 });
  });

  it('of 1,000 producers that race for each offset, one wins it', async (_t, attach) => {
    const workers = [await attach(), await attach(), await attach()];
    const ROUNDS = 3;
    /** @type {Position} */
    let position = EMPTY;
    for (let round = 1; round <= ROUNDS; round++) {
      const expect = position;
      const race = Array.from({ length: PRODUCERS }, (_, i) =>
        publishAt(workers[i % workers.length], 'kept-race', `${round} ${i}`, expect),
      );
      const settled = await Promise.allSettled(race);
      const won = settled.flatMap((one, i) =>
        one.status === 'fulfilled' ? [{ producer: i, ...one.value }] : [],
      );
      assert.equal(won.length, 1);
      const [{ producer, ...at }] = won;
      assert.equal(at.offset, round);
      position = at;
      for (const one of settled)
        if (one.status === 'rejected') assert.deepEqual(one.reason.position, position);
      const { publications } = await workers[0].broker.history('kept-race', ALL);
      assert.equal(String(publications.at(-1)), `${round} ${producer}`);
    }
    assert.equal((await workers[1].broker.history('kept-race', ALL)).publications.length, ROUNDS);
  });
}
