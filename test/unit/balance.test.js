import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Balancer, ordersFor, skewOf } from '../../src/primary/balance.js';

const RULES = { skewPercent: 120, ratePercent: 1, settleMs: 20_000 };

/** A balancer that is called once a second, and its log. */
function build() {
  /** @type {string[]} */
  const lines = [];
  const log = (/** @type {object} */ _, /** @type {string} */ text) => lines.push(text);
  const balancer = new Balancer(/** @type {any} */ ({ info: log, warn: log }));
  let now = 0;
  /**
   * @param {readonly number[]|null} counts
   * @param {object} [options]
   * @param {Partial<typeof RULES>} [options.rules]
   * @param {number} [options.unsteady] number of a worker
   */
  const second = (counts, { rules = {}, unsteady = -1 } = {}) => {
    now += 1000;
    const loads = counts?.map((connections, i) => ({ connections, isSteady: i !== unsteady }));
    return balancer.step(now, loads ?? null, { ...RULES, ...rules });
  };
  /** @param {number} seconds @param {readonly number[]} counts */
  const wait = (seconds, counts) => {
    for (let i = 0; i < seconds; i++) assert.deepEqual(second(counts), []);
  };
  return { balancer, lines, second, wait };
}

const SKEWED = [1600, 800, 800, 800];

test('the skew is the fullest worker divided by the mean', () => {
  assert.equal(skewOf([1000, 1000, 1000, 1000]), 1);
  assert.equal(skewOf(SKEWED), 1.6);
  assert.equal(skewOf([0, 0]), 1);
  assert.equal(skewOf([]), 1);
});

test('only workers above the aim close connections, at most the rate and the excess', () => {
  // The mean is 1000, and the aim for a threshold of 120 % is 1100.
  assert.deepEqual(ordersFor([1600, 1109, 1100, 191], RULES), [16, 9, 0, 0]);
  assert.deepEqual(
    ordersFor([1600, 1109, 1100, 191], { ...RULES, ratePercent: 10 }),
    [160, 9, 0, 0],
  );
});

test('a rebalance begins when the skew has lasted, and ends at the aim', () => {
  const { balancer, lines, second, wait } = build();
  wait(20, SKEWED);
  assert.deepEqual(second(SKEWED), [16, 0, 0, 0]);
  assert.deepEqual(second([1150, 950, 950, 950]), [11, 0, 0, 0], 'below the threshold it goes on');
  assert.deepEqual(second([1100, 967, 967, 966]), []);
  assert.deepEqual(lines, ['rebalance started', 'rebalance done']);
  assert.deepEqual(balancer.results, { done: 1, interrupted: 0, abandoned: 0 });
});

test('a skew that passes by itself starts nothing', () => {
  const { lines, wait } = build();
  wait(19, SKEWED);
  wait(1, [1200, 1000, 900, 900]);
  wait(19, SKEWED);
  assert.deepEqual(lines, []);
});

test('few connections are never moved', () => {
  const { wait } = build();
  wait(100, [390, 3, 3, 3]);
});

test('without a threshold no connection moves', () => {
  const { second } = build();
  for (let i = 0; i < 100; i++) assert.deepEqual(second(SKEWED, { rules: { skewPercent: 0 } }), []);
});

test('while a worker is missing nothing moves, and the wait starts over', () => {
  const { balancer, second, wait } = build();
  wait(20, SKEWED);
  assert.deepEqual(second(SKEWED), [16, 0, 0, 0]);
  assert.deepEqual(second(null), []);
  assert.equal(balancer.results.interrupted, 1);
  wait(20, SKEWED);
  assert.deepEqual(second(SKEWED), [16, 0, 0, 0]);
});

test('while any worker is overloaded the rebalance holds', () => {
  const { second, wait, balancer } = build();
  wait(20, SKEWED);
  assert.deepEqual(second(SKEWED), [16, 0, 0, 0]);
  assert.deepEqual(second(SKEWED, { unsteady: 3 }), []);
  assert.deepEqual(second(SKEWED), [16, 0, 0, 0]);
  assert.equal(balancer.results.interrupted, 0);
});

test('a rebalance without effect is abandoned, and the next one waits ten minutes', () => {
  const { balancer, lines, second } = build();
  let moved = 0;
  while (balancer.results.abandoned === 0) moved += second(SKEWED)[0] ?? 0;
  assert.deepEqual(lines, ['rebalance started', 'rebalance abandoned']);
  assert.equal(moved, 60 * 16);
  for (let i = 0; i < 599; i++) assert.deepEqual(second(SKEWED), [], `second ${i}`);
  assert.deepEqual(second(SKEWED), [16, 0, 0, 0]);
});

test('if the system gives clients to any worker, the largest skew that can occur ends in time', () => {
  const { balancer, second } = build();
  for (const workers of [2, 4, 8, 64]) {
    const counts = Array.from({ length: workers }, (_, i) => (i === 0 ? 0 : 1000));
    if (workers > 4) for (let i = 1; i <= workers / 4; i++) counts[i] = 0;
    const before = balancer.results.done;
    let seconds = 0;
    for (let turn = 0; balancer.results.done === before; seconds++) {
      assert.ok(seconds < 320, `${workers} workers: ${counts}`);
      for (const [i, order] of second(counts).entries()) {
        counts[i] -= order;
        for (let client = 0; client < order; client++) counts[turn++ % workers]++;
      }
    }
    assert.ok(skewOf(counts) < 1.2);
  }
  assert.equal(balancer.results.abandoned, 0);
});
