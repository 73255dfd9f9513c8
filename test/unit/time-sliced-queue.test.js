import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { TimeSlicedQueue } from '../../src/transport/time-sliced-queue.js';

/** @param {number} ms */
function spend(ms) {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

test('items are handled in order, for some milliseconds per turn', async () => {
  const done = /** @type {number[]} */ ([]);
  const slices = new TimeSlicedQueue((/** @type {number} */ i) => {
    spend(2);
    done.push(i);
  }, 5);
  for (let i = 0; i < 10; i++) slices.push(i);
  assert.deepEqual(done, []);
  for (const count of [3, 6, 9, 10]) {
    await turn();
    assert.ok(done.length <= count, `${done.length} of ${count}`);
    assert.ok(done.length > 0);
  }
  while (done.length < 10) await turn();
  assert.deepEqual(done, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test('each turn handles at least one item', async () => {
  const done = /** @type {number[]} */ ([]);
  const slices = new TimeSlicedQueue((/** @type {number} */ i) => done.push(i), 0);
  for (let i = 0; i < 3; i++) slices.push(i);
  for (let i = 1; i <= 3; i++) {
    await turn();
    assert.ok(done.length >= i);
  }
});

test('items added meanwhile are handled too, and the queue keeps no reference to handled ones', async () => {
  let [added, done, longest] = [0, 0, 0];
  // One a turn, so that the line never ends.
  const slices = new TimeSlicedQueue((/** @type {number} */ i) => {
    assert.equal(i, done++);
    if (added < 5000) slices.push(added++);
    longest = Math.max(longest, slices.items.length);
  }, 0);
  while (added < 10) slices.push(added++);
  for (let turns = 0; done < 5000 && turns < 5100; turns++) await turn();
  assert.equal(done, 5000);
  assert.ok(longest < 1100, `${longest}`);
  await turn();
  assert.equal(slices.items.length, 0);
});

test('a turn handles at most its number of items, and an item added again waits for the next turn', async () => {
  const done = /** @type {number[]} */ ([]);
  const slices = new TimeSlicedQueue(
    (/** @type {number} */ i) => {
      done.push(i);
      if (i === 0) slices.push(9);
    },
    1000,
    2,
  );
  for (let i = 0; i < 3; i++) slices.push(i);
  await turn();
  assert.deepEqual(done, [0, 1]);
  await turn();
  assert.deepEqual(done, [0, 1, 2, 9]);
  slices.push(0);
  await turn();
  assert.deepEqual(done, [0, 1, 2, 9, 0]);
  await turn();
  assert.deepEqual(done, [0, 1, 2, 9, 0, 9]);
});
