// State that the couriers of all servers share: departures are kept back, and no edge cancels its
// opposite while an endpoint reads the state again.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Holds } from '../../src/webhooks/holds.js';
import { MemoryQueue } from '../helpers/memory-queue.js';

/** @param {import('node:test').TestContext} t */
function couriers(t) {
  t.mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: 1_700_000_000_000 });
  const queue = new MemoryQueue();
  const holds = [0, 1].map(() => {
    const one = { doubts: 0 };
    const parts = {
      queue: queue.connect(),
      now: () => Date.now(),
      onDoubt: () => {
        one.doubts++;
      },
    };
    return Object.assign(one, { holds: new Holds(parts) });
  });
  const advance = async (/** @type {number} */ ms) => {
    for (let passed = 0; passed < ms; passed += 100) {
      t.mock.timers.tick(100);
      for (let i = 0; i < 20; i++) await Promise.resolve();
    }
  };
  return { queue, one: holds[0], other: holds[1], advance };
}

test('when a doubt may be relied on, every courier is in doubt; later each is sure again', async (t) => {
  const { one, other, advance } = couriers(t);
  for (const { holds } of [one, other]) {
    assert.equal(holds.isSure, false, 'it has not heard of any');
    await holds.ask();
    holds.start();
    assert.equal(holds.isSure, true);
  }
  let isKnown = false;
  one.holds.doubt().then(() => {
    isKnown = true;
  });
  await advance(2400);
  assert.equal(isKnown, false);
  await advance(200);
  assert.equal(isKnown, true);
  assert.deepEqual([one.holds.isSure, other.holds.isSure], [false, false]);
  assert.deepEqual([one.doubts, other.doubts], [1, 1]);
  // The next gap need not wait: all are in doubt.
  await one.holds.doubt();
  await advance(43_000);
  assert.deepEqual([one.holds.isSure, other.holds.isSure], [true, true]);
  assert.deepEqual([one.doubts, other.doubts], [1, 1]);
});

test('a courier that has not heard for 2.5 s is in doubt', async (t) => {
  const { queue, one, advance } = couriers(t);
  await one.holds.ask();
  one.holds.start();
  queue.isDown = true;
  await advance(2000);
  assert.equal(one.holds.isSure, true);
  await advance(1000);
  assert.equal(one.holds.isSure, false);
  await assert.rejects(one.holds.doubt());
  queue.isDown = false;
  await advance(1000);
  assert.equal(one.holds.isSure, true);
});
