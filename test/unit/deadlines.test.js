// deadlines.test.js: sockets whose time runs, on a worker that is blocked (transport/deadlines.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Deadlines } from '../../src/transport/deadlines.js';

/** @param {number} ms */
function block(ms) {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

test('a worker that is blocked again and again ends its items', { timeout: 20_000 }, async (t) => {
  /** @type {string[]} */
  const ended = [];
  const deadlines = new Deadlines(300, (/** @type {{name: string}} */ item) => {
    ended.push(item.name);
    deadlines.delete(item);
    return true;
  });
  t.after(() => deadlines.cancelSweep());
  deadlines.add({ name: 'first' });
  block(1500);
  // It comes after the block, and before the sweep: its time begins now.
  deadlines.add({ name: 'second' });
  const beganMs = performance.now();
  while (ended.length < 2 && performance.now() - beganMs < 8000) {
    block(600);
    await delay(1);
  }
  assert.deepEqual(ended, ['first', 'second']);
});
