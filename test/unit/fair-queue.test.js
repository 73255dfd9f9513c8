import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FairQueue } from '../../src/transport/fair-queue.js';

test('an address with many items delays another one by one item', () => {
  /** @type {FairQueue<{name: string}>} */
  const queue = new FairQueue();
  for (let i = 0; i < 1000; i++) queue.push({ name: `many ${i}` }, 'many');
  queue.push({ name: 'other 0' }, 'other');
  queue.push({ name: 'alone' }, null);
  queue.push({ name: 'other 1' }, 'other');
  const order = Array.from({ length: 6 }, () => queue.shift()?.name);
  assert.deepEqual(order, ['many 0', 'other 0', 'alone', 'many 1', 'other 1', 'many 2']);
});

test('every item leaves once, and items of one address keep their order', () => {
  const step = fc.option(fc.constantFrom('a', 'b', 'c', ''), { nil: null });
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), step), { maxLength: 200 }), (steps) => {
      /** @type {FairQueue<{n: number, address: string|null}>} */
      const queue = new FairQueue();
      const last = new Map();
      let [came, left] = [0, 0];
      const leave = () => {
        const item = queue.shift();
        if (item === undefined) {
          assert.equal(came, left);
          return false;
        }
        left++;
        assert.ok(item.n > (last.get(item.address) ?? -1));
        last.set(item.address, item.n);
        return true;
      };
      for (const [isPush, address] of steps) {
        if (isPush) queue.push({ n: came++, address }, address);
        else leave();
      }
      while (leave());
      assert.equal(left, came);
    }),
  );
});

test('the queue keeps no reference to an item that has left', () => {
  /** @type {FairQueue<object>} */
  const queue = new FairQueue();
  for (let i = 0; i < 10_000; i++) {
    queue.push({ i }, i % 2 ? 'a' : null);
    queue.push({ i }, 'b');
    queue.shift();
  }
  let count = 0;
  while (queue.shift()) count++;
  assert.equal(count, 10_000);
});
