// history-reader.test.js: answers to `history` (recovery/history-reader.js), and states that are read
// without a join (recovery/state-reader.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCounters } from '../../src/observability/counters.js';
import { ReadQueue } from '../../src/recovery/read-queue.js';
import { StateReader } from '../../src/recovery/state-reader.js';
import { build, memberWith, publication, range, settle } from '../helpers/recovery.js';
import { change } from '../helpers/state-broker.js';

const NO_BROKER = { history: async () => assert.fail("reads are the tests' own") };

test('history is answered from the replay buffer, or by one read if the room is not followed', async () => {
  const built = build();
  const { broker, connect } = built;
  const member = await memberWith(built, 5);
  const { epoch } = broker.stream('h');
  const { length } = broker.allReads;
  const outsider = connect();
  const ask = async (/** @type {object} */ command, client = outsider) => {
    client.transport.writes.length = 0;
    client.say({ type: 'history', room: 'h', ...command });
    await settle();
    return client.transport.messages()[0];
  };
  const entry = (/** @type {number} */ n) => ({
    payload: n,
    from: 'me',
    timestamp: 1_760_000_000_000,
    offset: n,
  });
  assert.deepEqual(await ask({ limit: 2, id: 1 }), {
    type: 'history',
    room: 'h',
    messages: [entry(4), entry(5)],
    epoch,
    offset: 5,
    more: true,
    id: 1,
  });
  const seen = async (/** @type {object} */ command) =>
    (await ask(command)).messages.map((/** @type {{offset: number}} */ { offset }) => offset);
  assert.deepEqual(await seen({}), range(1, 5));
  assert.deepEqual(await seen({ since: { epoch, offset: 1 }, limit: 2 }), [2, 3]);
  assert.deepEqual(await seen({ since: { epoch, offset: 9 } }), []);
  assert.deepEqual(await seen({ since: { epoch: 'ffffffffffffffff', offset: 1 }, limit: 1 }), [5]);
  assert.equal(broker.allReads.length, length);
  member.say({ type: 'leave', room: 'h' });
  assert.deepEqual(await seen({ limit: 2 }), [4, 5]);
  assert.deepEqual(await seen({ since: { epoch, offset: 1 }, limit: 2 }), [2, 3]);
  // Only `since` needs the stream's position.
  assert.equal(broker.allReads.length, length + 3);
  assert.deepEqual(await ask({ room: 'plain' }), {
    type: 'history',
    room: 'plain',
    messages: [],
    more: false,
  });
  assert.equal((await ask({ limit: 0 })).error, 'INVALID_MESSAGE_FORMAT');
  assert.equal((await ask({ room: 'no way' })).error, 'INVALID_ROOM');
  broker.isAway = true;
  assert.equal((await ask({})).error, 'UNAVAILABLE');
});

test('a history reply is bounded in bytes, and keeps the end that was asked for', async () => {
  const { broker, connect } = build({
    env: { FANFARE_MAX_UNSENT_BYTES: '20000', FANFARE_MAX_MESSAGE_BYTES: '10000' },
  });
  for (let i = 0; i < 20; i++) broker.accept('h', publication('x'.repeat(900)));
  const { epoch } = broker.stream('h');
  const client = connect();
  client.say({ type: 'history', room: 'h' });
  client.say({ type: 'history', room: 'h', since: { epoch, offset: 3 } });
  await settle();
  const [newest, oldest] = client
    .of('history')
    .map(({ messages }) => messages.map((/** @type {any} */ m) => m.offset));
  assert.ok(newest.length >= 8 && newest.length < 12);
  assert.equal(newest.at(-1), 20);
  assert.equal(oldest[0], 4);
  assert.ok(oldest.length >= 8 && oldest.length < 12);
});

test('a history command reads no more than it answers, for every position', async () => {
  const { broker, connect } = build({ size: 1000 });
  for (let i = 1; i <= 1000; i++) broker.accept('h', publication(String(i).padEnd(1000)));
  const { epoch } = broker.stream('h');
  const client = connect();
  const ask = async (/** @type {object} */ command) => {
    client.transport.writes.length = broker.readBytes = 0;
    client.say({ type: 'history', room: 'h', ...command });
    await settle();
    const [{ messages }] = client.transport.messages();
    return {
      seen: messages.map((/** @type {{offset: number}} */ { offset }) => offset),
      read: Math.round(broker.readBytes / 1000),
    };
  };
  for (const since of [
    {},
    { epoch: 'x', offset: 0 },
    { epoch: 'ffffffffffffffff', offset: 0 },
    undefined,
  ]) {
    assert.deepEqual(
      await ask({ limit: 1, since }),
      { seen: [1000], read: 1 },
      JSON.stringify(since),
    );
  }
  assert.deepEqual(await ask({ limit: 3, since: { epoch, offset: 0 } }), {
    seen: [1, 2, 3],
    read: 3,
  });
  assert.deepEqual(await ask({ limit: 3, since: { epoch, offset: 998 } }), {
    seen: [999, 1000],
    read: 2,
  });
  assert.deepEqual(await ask({ limit: 1000, since: { epoch, offset: 1000 } }), {
    seen: [],
    read: 0,
  });
  assert.deepEqual(await ask({ limit: 1000, since: { epoch, offset: 10_000 } }), {
    seen: [],
    read: 0,
  });
  const { seen, read } = await ask({ limit: 1000 });
  assert.ok(seen.length > 450 && seen.at(-1) === 1000);
  assert.ok(Math.abs(read - seen.length) < 20, `${read} KB read for ${seen.length}`);
  // If the replay buffer is smaller than the store, the worker reads the older publications.
  const member = connect();
  member.say({ type: 'join', room: 'h' });
  await settle();
  assert.deepEqual((await ask({ limit: 2, since: { epoch, offset: 5 } })).seen, [6, 7]);
  assert.deepEqual(await ask({ limit: 2, since: { epoch, offset: 5 } }), { seen: [6, 7], read: 2 });
  assert.deepEqual(await ask({ limit: 2, since: { epoch, offset: 900 } }), {
    seen: [901, 902],
    read: 0,
  });
});

test('the pages of a state are of one epoch, or the state is read again', async () => {
  const counters = createCounters();
  /** The epochs of the next pages, and whether more follow. @type {[string, boolean][]} */
  let pages = [];
  const read = async () => {
    const [epoch, hasMore] = pages.shift() ?? assert.fail('a read too many');
    const state = { offsets: [1], floor: 0, isWhole: false, hasMore };
    return { epoch, offset: 1, first: 2, hasOlder: false, publications: [change(epoch, 1)], state };
  };
  const scheduler = /** @type {any} */ ({
    hasState: () => true,
    reads: Object.assign(new ReadQueue({ broker: NO_BROKER, counters }), { read }),
  });
  const reader = new StateReader(scheduler);
  const answer = () => reader.read('s', { keys: null, after: 0, limit: 10 });
  pages = [
    ['a', true],
    ['b', false],
    ['b', false],
  ];
  const { epoch, entries } = (await answer()) ?? assert.fail('no state');
  const keys = JSON.parse(`[${entries}]`).map((/** @type {{key: string}} */ { key }) => key);
  assert.deepEqual([epoch, keys, pages], ['b', ['b'], []]);
  pages = ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => [name, true]);
  await assert.rejects(answer(), { code: 'UNAVAILABLE' });
  assert.deepEqual([counters.readsRefused, pages], [1, []]);
});

test('a page of a state replaces and removes what earlier pages of the answer have', async () => {
  const counters = createCounters();
  /** Offsets, keys and payloads of the next pages, and the floor. @type {{floor: number, rows: [number, string, unknown][]}[]} */
  let pages = [];
  const read = async () => {
    const { floor, rows } = pages.shift() ?? assert.fail('a read too many');
    const offset = rows.at(-1)?.[0] ?? 0;
    const offsets = rows.map(([at]) => at);
    const state = { offsets, floor, isWhole: false, hasMore: pages.length > 0 };
    const publications = rows.map(([, key, payload]) => change(key, payload));
    return { epoch: 'e', offset, first: offset + 1, hasOlder: false, publications, state };
  };
  const scheduler = /** @type {any} */ ({
    hasState: () => true,
    reads: Object.assign(new ReadQueue({ broker: NO_BROKER, counters }), { read }),
  });
  const reader = new StateReader(scheduler);
  const answer = async () => {
    const { offset, entries } =
      (await reader.read('s', { keys: null, after: 0, limit: 10 })) ?? assert.fail('no state');
    /** @type {{key: string, payload: unknown}[]} */
    const rows = JSON.parse(`[${entries}]`);
    return [offset, ...rows.map(({ key, payload }) => `${key}=${payload}`)];
  };
  const former = { floor: 0, rows: /** @type {any} */ ([1, 2, 3].map((n) => [n, `k${n}`, 'old'])) };
  // Between the pages k1 is removed and k2 changes.
  pages = [
    former,
    {
      floor: 0,
      rows: [
        [4, 'k4', 'old'],
        [5, 'k1', null],
        [6, 'k2', 'new'],
      ],
    },
  ];
  assert.deepEqual(await answer(), [6, 'k3=old', 'k4=old', 'k2=new']);
  // The store has forgotten the tombstone of k1: nothing says that k1 is gone, so all is read again.
  pages = [former, { floor: 5, rows: [[6, 'k2', 'new']] }];
  await assert.rejects(answer(), /a read too many/);
});
