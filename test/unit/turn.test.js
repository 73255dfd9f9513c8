import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { TURN_SLOTS } from '../../src/observability/counters.js';
import { Fifo } from '../../src/transport/fair-queue.js';
import { createCloseAll } from '../../src/worker/close-all.js';
import { SHARES, TOTAL_MS, Turn } from '../../src/worker/turn.js';

/** A turn whose time passes only when `spend` is called. */
function build() {
  const clock = { now: 1000 };
  /** @type {Record<string, number[]>} what was observed, in ms */
  const observed = {};
  const seconds = Object.fromEntries(
    [...Object.keys(SHARES), 'loop', 'total'].map((label) => {
      const times = (observed[label] = /** @type {number[]} */ ([]));
      return [
        label,
        { observe: (/** @type {number} */ s) => void times.push(Math.round(s * 1000)) },
      ];
    }),
  );
  const turn = new Turn({ seconds, clock: () => clock.now });
  const spend = (/** @type {number} */ ms) => {
    clock.now += ms;
  };
  return { turn, spend, observed };
}

test('items are done in order, until the share of a turn is spent', async () => {
  const { turn, spend, observed } = build();
  const done = /** @type {number[]} */ ([]);
  const line = turn.line('handshakes', (/** @type {number} */ i) => {
    spend(2);
    done.push(i);
  });
  for (let i = 0; i < 5; i++) line.push(i);
  assert.deepEqual(done, []);
  for (const count of [2, 4, 5]) {
    await nextTurn();
    assert.equal(done.length, count);
  }
  assert.deepEqual(done, [0, 1, 2, 3, 4]);
  assert.deepEqual(observed.handshakes, [4, 4, 2]);
});

test('each turn does at least one item, and a turn without work does nothing', async () => {
  const { turn, spend, observed } = build();
  let done = 0;
  const line = turn.line('closes', () => {
    spend(100);
    done++;
  });
  for (let i = 0; i < 3; i++) line.push(i);
  for (const count of [1, 2, 3, 3, 3]) {
    await nextTurn();
    assert.equal(done, count);
  }
  assert.deepEqual(observed.total, [100, 100, 100]);
});

test('items added meanwhile are done too, and a line keeps no reference to finished ones', async () => {
  const { turn, spend } = build();
  let [added, done, longest] = [0, 0, 0];
  /** @type {Fifo<number>} */
  const queue = new Fifo();
  // One a turn, so that the line never ends.
  const act = (/** @type {number} */ i) => {
    assert.equal(i, done++);
    spend(4);
    if (added < 5000) line.push(added++);
    longest = Math.max(longest, queue.items.length);
  };
  const line = turn.line('handshakes', act, queue);
  while (added < 10) line.push(added++);
  for (let turns = 0; done < 5000 && turns < 5100; turns++) await nextTurn();
  assert.equal(done, 5000);
  assert.ok(longest < 1100, `${longest}`);
  await nextTurn();
  assert.equal(queue.items.length, 0);
});

test('a turn does at most its number of items, and an item added again waits for the next turn', async () => {
  const { turn } = build();
  const done = /** @type {number[]} */ ([]);
  const line = turn.line('long_reads', (/** @type {number} */ i) => {
    done.push(i);
    if (i === 0) line.push(99);
  });
  const { maxItems } = SHARES.long_reads;
  for (let i = 0; i <= maxItems; i++) line.push(i);
  await nextTurn();
  assert.deepEqual(done, [...Array(maxItems).keys()]);
  await nextTurn();
  assert.deepEqual(done.slice(maxItems), [maxItems, 99]);
});

test('slots run in the order of the table, whoever asks first', async () => {
  const { turn } = build();
  /** @type {string[]} */
  const done = [];
  const names = /** @type {import('../../src/worker/turn.js').SlotName[]} */ (Object.keys(SHARES));
  const lines = names.toReversed().map((name) => turn.line(name, () => void done.push(name)));
  for (const line of lines) line.push(undefined);
  await nextTurn();
  assert.deepEqual(done, names);
});

test('the publications of a turn are sent before its slots, if any has work', async () => {
  const { turn } = build();
  /** @type {string[]} */
  const steps = [];
  turn.sendFirst(() => void steps.push('sent'));
  const line = turn.line('hooks', (/** @type {string} */ step) => void steps.push(step));
  turn.slot('reads').isSpent();
  await nextTurn();
  assert.deepEqual(steps, [], 'the backend writes by itself');
  line.push('done');
  await nextTurn();
  assert.deepEqual(steps, ['sent', 'done']);
});

test('a slot has one owner', () => {
  const { turn } = build();
  turn.slot('reads');
  assert.throws(() => turn.slot('reads'), /reads has an owner/);
});

test('if all slots have much to do, a turn takes its total, and each slot gets its part', async (t) => {
  let hasMore = true;
  t.after(() => {
    hasMore = false;
  });
  const { turn, spend, observed } = build();
  const names = /** @type {import('../../src/worker/turn.js').SlotName[]} */ (Object.keys(SHARES));
  const sum = names.reduce((ms, name) => ms + SHARES[name].ms, 0);
  assert.ok(sum > 1.5 * TOTAL_MS, `${sum}`);
  for (const name of names) {
    const slot = turn.slot(name, () => {
      while (!slot.isSpent()) spend(0.125);
      return hasMore;
    });
    slot.wake();
  }
  for (let turns = 0; turns < 3; turns++) await nextTurn();
  for (const ms of observed.total) assert.ok(ms <= TOTAL_MS + names.length / 8, `${ms} ms`);
  for (const name of names) assert.ok(observed[name].length === 3 && observed[name][0] <= 8, name);
});

test('flushes get as long as the work between two of their turns took, within bounds', async (t) => {
  let hasMore = true;
  t.after(() => {
    hasMore = false;
  });
  const { turn, spend, observed } = build();
  const slot = turn.slot('flushes', () => {
    while (!slot.isSpent()) spend(1);
    return hasMore;
  });
  slot.wake();
  for (const betweenMs of [0, 1, 5, 100]) {
    await nextTurn();
    spend(betweenMs);
  }
  await nextTurn();
  const { ms, maxMs } = SHARES.flushes;
  assert.deepEqual(observed.flushes, [ms, ms, ms, 5, maxMs]);
  assert.deepEqual(observed.loop, [0, 1, 5, 100]);
});

test('the time between two turns counts only if the first leaves work', async () => {
  const { turn, spend, observed } = build();
  const reads = turn.slot('reads');
  let left = 2;
  const slot = turn.slot('closes', () => {
    reads.isSpent(); // a turn follows, which may have no work
    return --left > 0;
  });
  slot.wake();
  for (const betweenMs of [3, 5, 7]) {
    await nextTurn();
    spend(betweenMs);
  }
  slot.wake();
  await nextTurn();
  assert.deepEqual(observed.loop, [3]);
});

test('work done at once counts, until the turn of the slots; work left keeps the share spent', async () => {
  const { turn, spend } = build();
  const reads = turn.slot('reads');
  assert.equal(reads.isSpent(), false);
  spend(SHARES.reads.ms);
  assert.equal(reads.isOver, false);
  assert.equal(reads.isSpent(), true);
  assert.equal(reads.isOver, true);
  await nextTurn();
  assert.equal(reads.isOver, false);
  assert.equal(reads.isSpent(), false);

  // The same, if another slot has work in that turn.
  spend(SHARES.reads.ms);
  assert.equal(reads.isSpent(), true);
  turn.line('notices', () => {}).push(null);
  await nextTurn();
  assert.equal(reads.isSpent(), false);

  const joins = turn.line('joins', () => spend(SHARES.joins.ms));
  for (let i = 0; i < 2; i++) joins.push(i);
  await nextTurn();
  assert.equal(joins.isSpent(), true); // one waits
  await nextTurn();
  assert.equal(joins.isSpent(), false);
});

test('connections that are closed together are closed in order, at once while the share lasts', async () => {
  const { turn, spend } = build();
  const closeAll = createCloseAll(turn);
  const { ms } = SHARES.closes;
  /** @type {number[]} */
  const closed = [];
  const all = Array.from({ length: 2.5 * ms }, (_, i) => ({
    close() {
      spend(1);
      closed.push(i);
    },
  }));
  closeAll(/** @type {any[]} */ (all), { code: 4000, reason: '' });
  for (const turns of [1, 2, 2.5]) {
    assert.equal(closed.length, turns * ms);
    await nextTurn();
  }
  assert.deepEqual(closed, [...all.keys()]);
});

test('the table in the documentation equals the shares', () => {
  const url = new URL('../../docs/architecture/fan-out.md', import.meta.url);
  const text = readFileSync(url, 'utf8');
  const section = text.split('## A turn of the event loop')[1].split('\n## ')[0];
  const rows = [...section.matchAll(/^\| `(\w+)` \| ([^|]+) \|/gm)].map(([, name, share]) => [
    name,
    share,
  ]);
  /** @type {Readonly<Record<string, import('../../src/worker/turn.js').Share>>} */
  const shares = SHARES;
  const expected = Object.entries(shares).map(([name, { ms, maxMs, maxItems }]) => [
    name,
    `${ms}${maxMs ? ` to ${maxMs}` : ''} ms${maxItems ? `, ${maxItems} items` : ''}`,
  ]);
  assert.deepEqual(rows, expected);
  assert.match(section, new RegExp(`more\\s+than\\s+${TOTAL_MS}\\s+ms`));
});

test('each slot that a turn runs has a label in the metrics, in the same order', () => {
  assert.deepEqual(Object.keys(SHARES), ['reads', ...TURN_SLOTS]);
});
