import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DueRooms } from '../../src/hub/due-rooms.js';

test('rooms with an interval come in the order in which they are due', () => {
  const due = new DueRooms();
  /** @type {number[]} */
  const waiting = [];
  for (let i = 0; i < 2000; i++) {
    if (i % 3 < 2) {
      const dueMs = (i * 7919) % 1009;
      waiting.push(dueMs);
      waiting.sort((a, b) => a - b);
      due.addDue(/** @type {any} */ ({ dueMs }), dueMs);
    } else {
      const room = /** @type {any} */ (due.takeFirst());
      assert.equal(room.dueMs, waiting.shift());
    }
    assert.deepEqual([due.size, due.nextMs], [waiting.length, waiting[0]]);
  }
  while (due.size > 0) assert.equal(/** @type {any} */ (due.takeFirst()).dueMs, waiting.shift());
  assert.equal(due.nextMs, Number.POSITIVE_INFINITY);
  assert.equal(due.takeFirst(), undefined);
});
