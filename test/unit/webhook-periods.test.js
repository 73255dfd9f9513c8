// State that the couriers of all servers share: leaves wait, and no transition cancels its
// opposite while an endpoint reads the state again.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SharedPeriods } from '../../src/webhooks/shared-periods.js';
import { courier } from '../helpers/courier.js';
import { MemoryQueue } from '../helpers/memory-queue.js';

/** @param {import('node:test').TestContext} t */
function build(t) {
  t.mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: 1_700_000_000_000 });
  const queue = new MemoryQueue();
  const couriers = [0, 1].map(() => {
    const one = { times: 0 };
    const parts = {
      queue: queue.connect(),
      now: () => Date.now(),
      onUncertain: () => {
        one.times++;
      },
    };
    return Object.assign(one, { periods: new SharedPeriods(parts) });
  });
  const advance = async (/** @type {number} */ ms) => {
    for (let passed = 0; passed < ms; passed += 100) {
      t.mock.timers.tick(100);
      for (let i = 0; i < 20; i++) await Promise.resolve();
    }
  };
  return { queue, one: couriers[0], other: couriers[1], advance };
}

test('when a period may be relied on, every courier is uncertain; later each is certain again', async (t) => {
  const { one, other, advance } = build(t);
  for (const { periods } of [one, other]) {
    assert.equal(periods.isCertain, false, 'it has not heard of any');
    await periods.ask();
    periods.start();
    assert.equal(periods.isCertain, true);
  }
  let isKnown = false;
  one.periods.makeUncertain().then(() => {
    isKnown = true;
  });
  await advance(2400);
  assert.equal(isKnown, false);
  await advance(200);
  assert.equal(isKnown, true);
  assert.deepEqual([one.periods.isCertain, other.periods.isCertain], [false, false]);
  assert.deepEqual([one.times, other.times], [1, 1]);
  // The next gap need not wait: all are uncertain.
  await one.periods.makeUncertain();
  await advance(43_000);
  assert.deepEqual([one.periods.isCertain, other.periods.isCertain], [true, true]);
  assert.deepEqual([one.times, other.times], [1, 1]);
});

test('a courier that has not heard for 2.5 s is uncertain', async (t) => {
  const { queue, one, advance } = build(t);
  await one.periods.ask();
  one.periods.start();
  queue.isDown = true;
  await advance(2000);
  assert.equal(one.periods.isCertain, true);
  await advance(1000);
  assert.equal(one.periods.isCertain, false);
  await assert.rejects(one.periods.makeUncertain());
  queue.isDown = false;
  await advance(1000);
  assert.equal(one.periods.isCertain, true);
});

test('a courier takes no partition before it knows of drains', async (t) => {
  const queue = new MemoryQueue();
  const connect = queue.connect.bind(queue);
  /** @type {((periods: {leavesMs: number, uncertainMs: number}) => void)[]} */
  const asked = [];
  queue.connect = () => ({
    ...connect(),
    periods: () => new Promise((resolve) => void asked.push(resolve)),
  });
  const { advance } = courier(t, { queue });
  await advance(5000);
  assert.ok(queue.partitions.every(({ fence }) => fence === 0));
  for (const answer of asked) answer({ leavesMs: 0, uncertainMs: 0 });
  await advance(1000);
  assert.ok(queue.partitions.every(({ fence }) => fence > 0));
});
