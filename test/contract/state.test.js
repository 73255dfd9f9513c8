// state.test.js: the contract of rooms with state for every broker (src/backend/broker.js).

import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import {
  audienceTextOf,
  encodeKeyed,
  isPublication,
  payloadText,
  stateKeyOf,
} from '../../src/protocol/publication.js';
import { messageFor } from '../helpers/audiences.js';
import { BACKENDS, eventually, suite } from './suite.js';

const KEPT_MS = 600_000;
const ALL = Object.freeze({ after: 0, limit: 100_000, isForward: true });

/** By the first part of a room's name. @type {Record<string, import('../../src/config/room-patterns.js').StateRule>} */
const RULES = {
  state: { size: 1000, ttlMs: KEPT_MS, state: { everyMs: 0, maxBytes: 4_194_304 } },
  few: { size: 3, ttlMs: KEPT_MS, state: { everyMs: 0, maxBytes: 4_194_304 } },
  narrow: { size: 100, ttlMs: KEPT_MS, state: { everyMs: 0, maxBytes: 1000 } },
  brief: { size: 10, ttlMs: 1000, state: { everyMs: 0, maxBytes: 4_194_304 } },
};

/** @typedef {import('./suite.js').Worker} Worker */
/** @typedef {import('../../src/backend/broker.js').Position} Position */
/** @typedef {import('../../src/backend/broker.js').HistoryPage} HistoryPage */
/** @typedef {import('../../src/backend/broker.js').PublishOptions} PublishOptions */

suite(BACKENDS, behaviours, {
  history: Object.entries(RULES).map(([name, value]) => ({ pattern: `${name}*`, value })),
});

/** @param {string} key @param {unknown} payload null removes it */
function change(key, payload) {
  const json = Buffer.from(JSON.stringify(payload));
  return encodeKeyed(1_760_000_000_000, 'me', key, json, 0, json.length);
}

/**
 * @param {Worker} worker @param {string} room @param {string} key @param {unknown} payload
 * @param {PublishOptions} [options]
 */
async function set(worker, room, key, payload, options) {
  const position = await worker.broker.publish(room, change(key, payload), options);
  return /** @type {Position} */ (position);
}

/** @param {HistoryPage} page @returns {[string, unknown, number][]} */
function entriesOf({ publications, state }) {
  assert.ok(state, 'no state');
  return publications.map((publication, i) => [
    stateKeyOf(publication),
    JSON.parse(payloadText(publication)),
    state.offsets[i],
  ]);
}

/** @param {import('./suite.js').It} it */
function behaviours(it) {
  it('of each key the newest publication is kept, in the order of its offset', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('state');
    const { epoch } = await set(a, 'state', 'x', 1);
    assert.deepEqual(await set(b, 'state', 'y', { n: 2 }), { epoch, offset: 2 });
    await set(a, 'state', 'x', 3);
    await set(a, 'state', '__proto__', 'a "key" \\');
    await set(b, 'state', 'ключ', [5]);
    const page = await b.broker.history('state', ALL);
    assert.deepEqual([page.epoch, page.offset, page.state?.floor], [epoch, 5, 0]);
    assert.deepEqual(entriesOf(page), [
      ['y', { n: 2 }, 2],
      ['x', 3, 3],
      ['__proto__', 'a "key" \\', 4],
      ['ключ', [5], 5],
    ]);
    await b.received(5);
    assert.deepEqual(
      b.positions.map(({ offset }) => offset),
      [1, 2, 3, 4, 5],
    );
  });

  it('a removal leaves a tombstone, and a key comes back by a publication only', async (_t, attach) => {
    const a = await attach();
    await set(a, 'state', 'x', 1);
    await set(a, 'state', 'y', 2);
    await set(a, 'state', 'x', null);
    await set(a, 'state', 'never', null);
    assert.deepEqual(entriesOf(await a.broker.history('state', ALL)), [
      ['y', 2, 2],
      ['x', null, 3],
      ['never', null, 4],
    ]);
    await set(a, 'state', 'x', 5);
    assert.deepEqual(entriesOf(await a.broker.history('state', ALL)), [
      ['y', 2, 2],
      ['never', null, 4],
      ['x', 5, 5],
    ]);
  });

  it('a position brings the changes behind it, or the whole state', async (_t, attach) => {
    const a = await attach();
    const { epoch } = await set(a, 'state', 'x', 1);
    await set(a, 'state', 'y', 2);
    await set(a, 'state', 'x', 3);
    const read = (/** @type {Position} */ since) => a.broker.history('state', { ...ALL, since });
    const behind = await read({ epoch, offset: 2 });
    assert.deepEqual([behind.state?.isWhole, entriesOf(behind)], [false, [['x', 3, 3]]]);
    const nothing = await read({ epoch, offset: 3 });
    assert.deepEqual([nothing.state?.isWhole, entriesOf(nothing)], [false, []]);
    for (const since of [
      { epoch, offset: 4 },
      { epoch: '0123456789abcdef', offset: 2 },
    ]) {
      const whole = await read(since);
      assert.deepEqual([whole.state?.isWhole, entriesOf(whole).length], [true, 2]);
    }
  });

  it('tombstones are as many as keys; a position before a forgotten one proves nothing', async (_t, attach) => {
    const a = await attach();
    const { epoch } = await set(a, 'few', 'a', 1);
    for (const key of ['b', 'c']) await set(a, 'few', key, 1);
    for (const key of ['a', 'b', 'c', 'd']) await set(a, 'few', key, null);
    await set(a, 'few', 'e', 8);
    const page = await a.broker.history('few', ALL);
    assert.equal(page.state?.floor, 4);
    assert.deepEqual(entriesOf(page), [
      ['b', null, 5],
      ['c', null, 6],
      ['d', null, 7],
      ['e', 8, 8],
    ]);
    const before = await a.broker.history('few', { ...ALL, since: { epoch, offset: 3 } });
    assert.deepEqual([before.state?.isWhole, before.publications.length], [true, 4]);
    const at = await a.broker.history('few', { ...ALL, since: { epoch, offset: 4 } });
    assert.deepEqual([at.state?.isWhole, at.publications.length], [false, 4]);
  });

  it('a state has its bounds: further keys and bytes are refused, changes and removals are not', async (_t, attach) => {
    const a = await attach();
    const full = { name: 'BrokerError', code: 'STATE_FULL' };
    for (const key of ['a', 'b', 'c']) await set(a, 'few', key, 1);
    await assert.rejects(set(a, 'few', 'd', 1), full);
    assert.equal((await set(a, 'few', 'a', 2)).offset, 4);
    assert.equal((await set(a, 'few', 'b', null)).offset, 5);
    assert.equal((await set(a, 'few', 'd', 1)).offset, 6);
    await assert.rejects(set(a, 'narrow', 'big', 'x'.repeat(1000)), full);
    assert.equal((await set(a, 'narrow', 'one', 'x'.repeat(800))).offset, 1);
    await assert.rejects(set(a, 'narrow', 'two', 'x'.repeat(200)), full);
    // The former value makes room.
    assert.equal((await set(a, 'narrow', 'one', 'y'.repeat(900))).offset, 2);
    assert.equal((await set(a, 'narrow', 'one', null)).offset, 3);
    assert.equal((await set(a, 'narrow', 'two', 'x'.repeat(970))).offset, 4);
    // The tombstone went, because it had no room.
    const page = await a.broker.history('narrow', ALL);
    assert.deepEqual([page.state?.floor, page.publications.length], [3, 1]);
  });

  it('a key that is set again is no tombstone: it counts as a key, and is not forgotten', async (_t, attach) => {
    const a = await attach();
    for (const payload of [1, null, 2]) await set(a, 'few', 'a', payload);
    for (const key of ['b', 'c']) await set(a, 'few', key, 1);
    await assert.rejects(set(a, 'few', 'd', 1), { code: 'STATE_FULL' });
    for (const key of ['v', 'w', 'x', 'y']) await set(a, 'few', key, null);
    const kept = entriesOf(await a.broker.history('few', ALL)).filter(
      ([, value]) => value !== null,
    );
    assert.deepEqual(kept, [
      ['a', 2, 3],
      ['b', 1, 4],
      ['c', 1, 5],
    ]);
  });

  it('publications of one tick are accepted or refused each on its own', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    await b.broker.subscribe('few');
    const sent = ['a', 'b', 'a', 'c', 'd', 'a', 'e', 'b'].map((key, i) => set(a, 'few', key, i));
    const outcomes = await Promise.allSettled(sent);
    assert.deepEqual(
      outcomes.map((one) => (one.status === 'fulfilled' ? one.value.offset : one.reason.code)),
      [1, 2, 3, 4, 'STATE_FULL', 5, 'STATE_FULL', 6],
    );
    await b.received(6);
    assert.deepEqual(
      b.positions.map(({ offset }) => offset),
      [1, 2, 3, 4, 5, 6],
    );
  });

  it('a publication without a key is refused', async (_t, attach) => {
    const a = await attach();
    await assert.rejects(
      a.broker.publish('state', Buffer.from([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x31])),
      {
        code: 'INVALID_MESSAGE_FORMAT',
      },
    );
  });

  it('a repeated idempotency key changes nothing, and returns the first position', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const options = { idempotencyKey: 'once', fingerprint: 'f1' };
    const first = await set(a, 'state', 'x', 1, options);
    await set(a, 'state', 'x', 2);
    assert.deepEqual(await set(b, 'state', 'x', 1, options), first);
    await assert.rejects(set(b, 'state', 'x', 3, { ...options, fingerprint: 'f2' }), {
      code: 'IDEMPOTENCY_CONFLICT',
    });
    assert.deepEqual(entriesOf(await a.broker.history('state', ALL)), [['x', 2, 2]]);
    // A refusal does not use a key up.
    for (const key of ['a', 'b', 'c']) await set(a, 'few', key, 1);
    await assert.rejects(set(a, 'few', 'd', 1, options), { code: 'STATE_FULL' });
    await set(a, 'few', 'a', null);
    assert.equal((await set(a, 'few', 'd', 1, options)).offset, 5);
  });

  it('an expected position is that of the whole room', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const first = await set(a, 'state', 'x', 1, { expect: { epoch: '', offset: 0 } });
    const second = await set(b, 'state', 'y', 2, { expect: first });
    assert.deepEqual(second, { epoch: first.epoch, offset: 2 });
    for (const expect of [first, { epoch: '', offset: 0 }]) {
      await assert.rejects(set(a, 'state', 'x', 3, { expect }), {
        code: 'CONFLICT',
        position: second,
      });
    }
    assert.equal((await set(a, 'state', 'y', null, { expect: second })).offset, 3);
    assert.deepEqual(entriesOf(await b.broker.history('state', ALL)), [
      ['x', 1, 1],
      ['y', null, 3],
    ]);
  });

  it('a position of a room with state is compared after the key, and before the bounds', async (_t, attach) => {
    const a = await attach();
    const once = { idempotencyKey: 'once', fingerprint: 'f' };
    const expect = { epoch: '', offset: 0 };
    const first = await set(a, 'few', 'a', 1, { ...once, expect });
    assert.deepEqual(await set(a, 'few', 'a', 1, { ...once, expect }), first);
    for (const key of ['b', 'c']) await set(a, 'few', key, 1);
    await assert.rejects(set(a, 'few', 'd', 1, { expect }), {
      code: 'CONFLICT',
      position: { epoch: first.epoch, offset: 3 },
    });
    const full = { epoch: first.epoch, offset: 3 };
    await assert.rejects(set(a, 'few', 'd', 1, { expect: full }), { code: 'STATE_FULL' });
    // Neither refusal has moved the room.
    assert.equal((await set(a, 'few', 'a', 2, { expect: full })).offset, 4);
  });

  it('named keys are read, and pages go on behind an offset', async (_t, attach) => {
    const a = await attach();
    for (let i = 1; i <= 20; i++) await set(a, 'state', `k${i}`, i);
    const named = await a.broker.history('state', { ...ALL, keys: ['k7', 'none', 'k3'] });
    assert.deepEqual(
      entriesOf(named)
        .map(([key]) => key)
        .sort(),
      ['k3', 'k7'],
    );
    /** @type {string[]} */
    const seen = [];
    let after = 0;
    for (;;) {
      const page = await a.broker.history('state', { after, limit: 6, isForward: true });
      for (const [key, , offset] of entriesOf(page)) {
        seen.push(key);
        after = offset;
      }
      if (!page.state?.hasMore) break;
    }
    assert.deepEqual(
      seen,
      Array.from({ length: 20 }, (_, i) => `k${i + 1}`),
    );
    const bytes = await a.broker.history('state', { ...ALL, maxBytes: 1 });
    assert.deepEqual([bytes.publications.length, bytes.state?.hasMore], [1, true]);
    const position = await a.broker.history('state', { after: 0, limit: 0 });
    assert.deepEqual([position.offset, position.publications.length], [20, 0]);
  });

  it('a state expires as a whole, and a new epoch begins', async (_t, attach) => {
    const a = await attach();
    const first = await set(a, 'brief', 'x', 1);
    await set(a, 'brief', 'y', null);
    await eventually(
      async () => (await a.broker.history('brief', { after: 0, limit: 0 })).epoch !== first.epoch,
    );
    const empty = await a.broker.history('brief', ALL);
    assert.deepEqual([empty.offset, empty.publications.length], [0, 0]);
    const next = await set(a, 'brief', 'y', 2);
    assert.deepEqual([next.offset, next.epoch === first.epoch], [1, false]);
    assert.deepEqual(entriesOf(await a.broker.history('brief', ALL)), [['y', 2, 1]]);
  });

  it('an epoch that has to end takes the state with it', async (_t, attach) => {
    const a = await attach();
    const { epoch } = await set(a, 'state', 'x', 1);
    const page = await a.broker.history('state', { ...ALL, endedEpoch: epoch });
    assert.deepEqual([page.offset, page.publications.length], [0, 0]);
    assert.notEqual(page.epoch, epoch);
    assert.deepEqual((await set(a, 'state', 'y', 1)).offset, 1);
  });

  it('random changes of several workers leave what a Map has', async (_t, attach) => {
    const workers = [await attach(), await attach(), await attach()];
    /** @type {Map<string, {value: unknown, offset: number}>} */
    const model = new Map();
    /** @type {Promise<void>[]} */
    const sent = [];
    for (let i = 0; i < 400; i++) {
      const key = `k${randomInt(30)}`;
      const value = randomInt(4) === 0 ? null : i;
      sent.push(
        set(workers[i % 3], 'state-model', key, value).then(({ offset }) => {
          if ((model.get(key)?.offset ?? 0) < offset) model.set(key, { value, offset });
        }),
      );
      if (i % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(sent);
    const page = await workers[0].broker.history('state-model', ALL);
    assert.equal(page.offset, 400);
    assert.deepEqual(
      entriesOf(page),
      [...model]
        .map(([key, { value, offset }]) => /** @type {const} */ ([key, value, offset]))
        .sort((one, other) => one[2] - other[2]),
    );
  });

  it('a tombstone has the audience of what it removes, in the store and for the workers', async (_t, attach) => {
    const [a, b] = [await attach(), await attach()];
    const room = 'state-audiences';
    const publishTo = (
      /** @type {string} */ key,
      /** @type {string} */ audience,
      isRemoval = false,
    ) => a.broker.publish(room, messageFor(1, audience, { key, isRemoval }));
    await b.broker.subscribe(room);
    await publishTo('kept "ö"', 'staff');
    await publishTo('hidden', 'staff,vip');
    await publishTo('open', '');
    await publishTo('moved', 'a');
    await publishTo('moved', 'b');
    for (const key of ['hidden', 'moved']) await publishTo(key, '', true);
    await publishTo('open', 'staff', true);
    await publishTo('never', 'vip', true);
    const page = await b.broker.history(room, ALL);
    assert.ok(page.publications.every(isPublication));
    assert.deepEqual(
      page.publications.map((one) => [stateKeyOf(one), payloadText(one), audienceTextOf(one)]),
      [
        ['kept "ö"', '"m1."', 'staff'],
        ['hidden', 'null', 'staff,vip'],
        ['moved', 'null', 'b'],
        ['open', 'null', ''],
        ['never', 'null', 'vip'],
      ],
    );
    await b.received(9);
    assert.ok(b.publications.every(isPublication));
    // Comes back for others, and is removed again.
    await publishTo('hidden', 'c');
    await publishTo('hidden', '', true);
    const again = await b.broker.history(room, { ...ALL, keys: ['hidden'] });
    assert.deepEqual(again.publications.map(audienceTextOf), ['c']);
  });
}
