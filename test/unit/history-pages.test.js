// history-pages.test.js: pages of a room's history: backwards, forwards and by time, from a worker's
// replay buffer and from the broker, and joins with the messages of the last seconds.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { Connection } from '../../src/hub/connection.js';
import { encodeClaim } from '../../src/protocol/claim.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, receive } from '../helpers/hub.js';
import { StreamBroker } from '../helpers/stream-broker.js';

const START_MS = 1_760_000_000_000;
const OTHER = 'ffffffffffffffff';

/** @typedef {{messages: {offset: number, timestamp: number}[], more: boolean, epoch: string, offset: number}} Page */

/** A worker in which the room h has history. */
function build({ size = 1000, env = {}, maxBufferBytes = 1e9 } = {}) {
  const broker = new StreamBroker({ size });
  const clock = { now: 1000 };
  /** @type {number[]} */
  const charged = [];
  const parts = buildHub({
    config: configOf(env),
    broker,
    historyOf: (room) => (room === 'h' ? { size, ttlMs: 60_000 } : null),
    clock: () => clock.now,
    maxBufferBytes,
    charge: (_, bytes) => void charged.push(bytes),
  });
  broker.onPublication = (...args) => parts.hub.broadcast(...args);
  const connect = () => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '127.0.0.1');
    parts.hub.addConnection(connection);
    const ask = async (/** @type {object} */ command) => {
      transport.writes.length = broker.readBytes = 0;
      receive(parts.commands, connection, command);
      for (let i = 0; i < 100 && transport.writes.length === 0; i++) await turn();
      return transport.messages()[0];
    };
    return {
      connection,
      transport,
      ask,
      /** @param {object} [command] @returns {Promise<Page>} */
      history: (command) => ask({ type: 'history', room: 'h', ...command }),
    };
  };
  return {
    ...parts,
    broker,
    clock,
    charged,
    connect,
    /** Publishes a message accepted at a time. @param {number} timestampMs @param {number} [bytes] */
    accept(timestampMs, bytes = 3) {
      const json = Buffer.from(JSON.stringify('x'.repeat(bytes - 2)));
      broker.accept(
        'h',
        encodePublication(KIND.MESSAGE, timestampMs, 0, 'me', json, 0, json.length),
      );
    },
  };
}

/** @typedef {ReturnType<typeof build>} Built */

/** A member whose worker has the room's latest messages. @param {Built} built */
async function member({ connect, broker }) {
  broker.announcements = [];
  const client = connect();
  await client.ask({ type: 'join', room: 'h', last: 10_000 });
  return client;
}

const offsetsOf = (/** @type {Page} */ { messages }) => messages.map(({ offset }) => offset);
const range = (/** @type {number} */ from, /** @type {number} */ to) =>
  Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => from + i);

for (const isMember of [true, false]) {
  const where = isMember ? 'a worker in the room' : 'another worker';

  test(`${where}: pages end before a position, and say whether there are more`, async () => {
    const built = build();
    for (let i = 1; i <= 20; i++) built.accept(START_MS + i);
    if (isMember) await member(built);
    const { epoch } = built.broker.stream('h');
    const { history } = built.connect();
    const about = { type: 'history', room: 'h', epoch, offset: 20 };
    for (const [command, expected, more] of /** @type {[object, number[], boolean][]} */ ([
      [{}, range(1, 20), false],
      [{ limit: 19 }, range(2, 20), true],
      [{ limit: 5, before: { epoch, offset: 16 } }, range(11, 15), true],
      [{ limit: 5, before: { epoch, offset: 6 } }, range(1, 5), false],
      [{ limit: 5, before: { epoch, offset: '5' } }, range(1, 4), false],
      [{ before: { epoch, offset: 1 } }, [], false],
      [{ before: { epoch, offset: 0 } }, [], false],
      [{ limit: 2, before: { epoch, offset: 1000 } }, [19, 20], true],
      [{ before: { epoch: OTHER, offset: 10 } }, [], false],
      [{ limit: 5, since: { epoch, offset: 3 } }, range(4, 8), true],
      [{ limit: 5, since: { epoch, offset: 15 } }, range(16, 20), false],
      [{ since: { epoch, offset: 20 } }, [], false],
      [{ limit: 5, sinceTime: 0 }, range(1, 5), true],
      [{ limit: 5, sinceTime: START_MS + 4 }, range(4, 8), true],
      [{ sinceTime: START_MS + 20 }, [20], false],
      [{ sinceTime: START_MS + 21 }, [], false],
      [{ sinceTime: Number.MAX_SAFE_INTEGER }, [], false],
    ])) {
      const { messages, ...rest } = await history(command);
      const text = JSON.stringify(command);
      assert.deepEqual(
        messages.map(({ offset }) => offset),
        expected,
        text,
      );
      assert.deepEqual(rest, { ...about, more }, text);
    }
  });

  test(`${where}: whatever the room keeps, pages are those of a model`, async () => {
    const gaps = fc.array(fc.constantFrom(0, 0, 0, 1, 1000, 60_000), { maxLength: 60 });
    const scenario = fc.record({
      gaps,
      size: fc.integer({ min: 1, max: 40 }),
      limit: fc.integer({ min: 1, max: 50 }),
      bytes: fc.constantFrom(10, 300, 3000),
      at: fc.nat(64),
      isEvicted: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(scenario, async ({ gaps, size, limit, bytes, at, isEvicted }) => {
        const built = build({
          size,
          env: { FANFARE_MAX_UNSENT_BYTES: '20000', FANFARE_MAX_MESSAGE_BYTES: '10000' },
        });
        let timeMs = START_MS;
        const times = gaps.map((gap) => (timeMs += gap));
        for (const time of times) built.accept(time, bytes);
        const top = times.length;
        if (isMember) await member(built);
        if (isEvicted) built.scheduler.syncs.get('h')?.replayBuffer.evict();
        const { epoch } = built.broker.stream('h');
        const { history } = built.connect();
        const oldest = Math.max(1, top - size + 1);

        const before = await history({ limit, before: { epoch, offset: at } });
        const last = Math.min(top, at - 1);
        const found = offsetsOf(before);
        // A page may be shorter than the limit, because it is bounded in bytes.
        assert.deepEqual(
          found,
          range(last - found.length + 1, last).filter((one) => one >= oldest),
        );
        assert.ok(found.length > 0 || last < oldest);
        assert.equal(before.more, found.length > 0 && found[0] > oldest);
        if (bytes === 10)
          assert.equal(found.length, Math.max(0, Math.min(limit, last - oldest + 1)));

        const sinceTime = START_MS + (at - 2) * 1000;
        const later = await history({ limit, sinceTime });
        const first = range(oldest, top).find((one) => times[one - 1] >= sinceTime) ?? top + 1;
        const seen = offsetsOf(later);
        assert.deepEqual(seen, range(first, first + seen.length - 1));
        assert.ok(seen.length > 0 || first > top);
        assert.equal(later.more, seen.length > 0 && seen[seen.length - 1] < top);
      }),
      { numRuns: 150 },
    );
  });

  test(`${where}: paging back while messages arrive shows each message once`, async () => {
    const built = build({ size: 5000 });
    for (let i = 1; i <= 1200; i++) built.accept(START_MS + i);
    if (isMember) await member(built);
    const { history } = built.connect();
    let page = await history({ limit: 70 });
    const seen = offsetsOf(page);
    while (page.more) {
      for (let i = 0; i < 20; i++) built.accept(START_MS + 2000);
      built.broker.deliver();
      const before = { epoch: page.epoch, offset: page.messages[0].offset };
      page = await history({ limit: 70, before });
      seen.unshift(...offsetsOf(page));
    }
    assert.deepEqual(seen, range(1, 1200));
  });
}

test('a page costs the broker what it returns, and nothing if the worker has it', async () => {
  const built = build({ size: 2000, env: { FANFARE_MAX_UNSENT_BYTES: '200000' } });
  for (let i = 1; i <= 1000; i++) built.accept(START_MS + i, 1000);
  const { epoch } = built.broker.stream('h');
  const { history } = built.connect();
  const { broker, charged } = built;
  const costOf = async (/** @type {object} */ command) => {
    const { length } = broker.allReads;
    const page = await history(command);
    const reads = broker.allReads.length - length;
    return { seen: offsetsOf(page).length, read: Math.round(broker.readBytes / 1000), reads };
  };
  const before = { epoch, offset: 500 };
  assert.deepEqual(await costOf({ limit: 10, before }), { seen: 10, read: 10, reads: 1 });
  assert.deepEqual(await costOf({ before: { ...before, epoch: OTHER } }), {
    seen: 0,
    read: 0,
    reads: 1,
  });
  // A time is found by halving: ten messages of a thousand, which are charged as well.
  const byTime = await costOf({ limit: 10, sinceTime: START_MS + 777 });
  assert.ok(byTime.seen === 10 && byTime.read >= 18 && byTime.read <= 21, JSON.stringify(byTime));
  assert.ok(Number(charged.at(-1)) > 18_000, `${charged.at(-1)} bytes charged`);
  const none = await costOf({ sinceTime: START_MS + 1001 });
  assert.ok(none.seen === 0 && none.read <= 11 && Number(charged.at(-1)) > 9_000);
  // The worker has the newest. Older ones are read, and only these.
  await member(built);
  const isHere = { epoch, offset: 990 };
  assert.deepEqual(await costOf({ limit: 10, before: isHere }), { seen: 10, read: 0, reads: 0 });
  assert.deepEqual(await costOf({ limit: 10, sinceTime: START_MS + 980 }), {
    seen: 10,
    read: 0,
    reads: 0,
  });
  assert.deepEqual(await costOf({ limit: 10, before }), { seen: 10, read: 10, reads: 1 });
});

test('a time in the future brings nothing, whatever arrives during the read', async () => {
  const built = build();
  for (let i = 1; i <= 5; i++) built.accept(START_MS + i);
  const { broker } = built;
  const { history } = built.connect();
  broker.isManual = true;
  const reading = history({ sinceTime: START_MS + 1000 });
  for (let i = 0; i < 20; i++) {
    built.accept(START_MS + 10);
    broker.answer();
    await turn();
  }
  const page = await reading;
  // It ends at its position, so `since` continues without a gap.
  assert.deepEqual(page, {
    type: 'history',
    room: 'h',
    messages: [],
    epoch: broker.stream('h').epoch,
    offset: 6,
    more: false,
  });
});

test('messages that the room no longer keeps end the pages', async () => {
  const built = build({ size: 10 });
  for (let i = 1; i <= 30; i++) built.accept(START_MS + i);
  const { history } = await member(built);
  const { epoch } = built.broker.stream('h');
  const page = await history({ limit: 5, before: { epoch, offset: 24 } });
  assert.deepEqual([offsetsOf(page), page.more], [[21, 22, 23], false]);
  assert.equal((await history({ limit: 10 })).more, false);
  // All of them have expired: a page is empty, and new messages begin the history.
  built.broker.stream('h').publications = [];
  built.clock.now += 60_001;
  assert.deepEqual((await history({ before: { epoch, offset: 24 } })).more, false);
  built.accept(START_MS + 31);
  built.broker.deliver();
  await turn();
  const { length } = built.broker.allReads;
  const fresh = await history({ limit: 5 });
  assert.deepEqual([offsetsOf(fresh), fresh.more], [[31], false]);
  assert.deepEqual(offsetsOf(await history({ sinceTime: START_MS })), [31]);
  assert.equal(built.broker.allReads.length, length, 'the worker knows that there are no others');
});

test('messages whose references make a page too large are on the next one', async () => {
  const built = build({
    env: { FANFARE_MAX_UNSENT_BYTES: '20000', FANFARE_MAX_MESSAGE_BYTES: '10000' },
  });
  const claim = { key: 'k', bytes: 1e6, sha256: '0'.repeat(64), contentType: 'image/png' };
  // The broker returns all of these claims at once.
  for (let i = 1; i <= 68; i++) built.broker.accept('h', encodeClaim(START_MS, 'me', claim));
  const { history } = built.connect();
  let page = await history();
  assert.equal(built.broker.allReads.length, 1);
  assert.deepEqual([page.more, page.messages.length < 68], [true, true]);
  const seen = offsetsOf(page);
  for (; page.more; seen.unshift(...offsetsOf(page)))
    page = await history({ before: { epoch: page.epoch, offset: page.messages[0].offset } });
  assert.deepEqual(seen, range(1, 68));
});

test('a read has one place, and its error names them', async () => {
  const built = build();
  built.accept(START_MS);
  const { history } = built.connect();
  const position = { epoch: built.broker.stream('h').epoch, offset: 1 };
  for (const command of [
    { since: position, before: position },
    { before: position, sinceTime: 0 },
    { since: {}, sinceTime: START_MS },
  ]) {
    const { error, message } = /** @type {any} */ (await history(command));
    assert.equal(error, 'INVALID_MESSAGE_FORMAT');
    assert.match(message, /since, before and sinceTime/);
  }
  const plain = await built.connect().ask({ type: 'history', room: 'plain', before: position });
  assert.deepEqual(plain, { type: 'history', room: 'plain', messages: [], more: false });
});

test('a join with lastSeconds reads nothing older if the worker has older messages', async () => {
  const built = build();
  for (let i = 1; i <= 5; i++) built.accept(START_MS);
  built.broker.announcements = [];
  await built.connect().ask({ type: 'join', room: 'h' });
  built.accept(Date.now() - 100_000);
  built.accept(Date.now());
  built.broker.deliver();
  await turn();
  const { length } = built.broker.allReads;
  const joined = await built.connect().ask({ type: 'join', room: 'h', lastSeconds: 60 });
  assert.deepEqual([joined.first, joined.replayed], [7, 1]);
  assert.equal(built.broker.allReads.length, length);
});

test('a join with lastSeconds begins with the messages of that time, but not more than last', async () => {
  for (const isKnown of [true, false]) {
    const built = build({ size: 50 });
    const nowMs = Date.now();
    for (let i = 1; i <= 30; i++) built.accept(nowMs - (31 - i) * 60_000 + 5000);
    if (isKnown) await member(built);
    built.broker.announcements = [];
    const { epoch } = built.broker.stream('h');
    for (const [join, first, recovered] of /** @type {[object, number, boolean][]} */ ([
      [{ lastSeconds: 60 }, 30, false],
      [{ lastSeconds: 600 }, 21, false],
      [{ lastSeconds: 600, last: 3 }, 28, false],
      [{ lastSeconds: 600, last: 20 }, 21, false],
      [{ lastSeconds: 604_800 }, 1, false],
      [{ lastSeconds: 1 }, 31, false],
      [{ lastSeconds: 600, since: { epoch, offset: 5 } }, 6, true],
      [{ lastSeconds: 600, since: { epoch: OTHER, offset: 5 } }, 21, false],
    ])) {
      const client = built.connect();
      client.transport.writes.length = 0;
      receive(built.commands, client.connection, { type: 'join', room: 'h', id: 1, ...join });
      for (let i = 0; i < 20; i++) await turn();
      built.scheduler.wheel.tick();
      for (let i = 0; i < 20; i++) await turn();
      const [joined, ...messages] = client.transport.messages();
      const text = `${isKnown} ${JSON.stringify(join)}`;
      assert.equal(joined.type, 'joined', text);
      assert.deepEqual(
        [joined.first, joined.replayed, joined.recovered],
        [first, 31 - first, recovered],
        text,
      );
      assert.deepEqual(
        messages.map(({ offset }) => offset),
        range(first, 30),
        text,
      );
    }
  }
});
