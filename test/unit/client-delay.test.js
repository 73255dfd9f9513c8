// client-delay.test.js: when clients of `fanfare/client` come back: properties of the delay, and a
// simulation of 20,000 of them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { mayReconnect, reconnectDelay } from '../../src/client/delay.js';
import { CLOSES, WS_CLOSES } from '../../src/protocol/codes.js';

const CLIENTS = 20_000;
const WINDOW_MS = 20_000;
const MAX_DELAY_MS = 30_000;

const fraction = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

/** Numbers from 0 to 1, the same for the same seed (mulberry32). @param {number} seed */
function generator(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * @param {readonly number[]} timesMs
 * @param {number} fromMs
 * @param {number} untilMs
 * @returns {number[]} how many fall into each second
 */
function perSecond(timesMs, fromMs, untilMs) {
  const counts = new Array((untilMs - fromMs) / 1000).fill(0);
  for (const ms of timesMs)
    if (ms >= fromMs && ms < untilMs) counts[Math.floor((ms - fromMs) / 1000)]++;
  return counts;
}

/** @param {readonly number[]} counts */
function assertEven(counts) {
  const mean = counts.reduce((sum, count) => sum + count, 0) / counts.length;
  assert.ok(mean > 100, `${mean} a second`);
  const most = Math.max(...counts);
  assert.ok(most <= 2 * mean, `${most} in a second, ${mean} on average`);
}

/**
 * @param {() => number} random in place of Math.random
 * @param {number} code @param {number} attempt
 */
function delayBy(random, code, attempt) {
  const original = Math.random;
  Math.random = random;
  try {
    return reconnectDelay(attempt, {}, code);
  } finally {
    Math.random = original;
  }
}

for (const { code, client } of [...Object.values(CLOSES), ...Object.values(WS_CLOSES)]) {
  test(`after ${code} the client follows the table of close codes: ${client}`, () => {
    const stops = client.startsWith('stop');
    assert.ok(stops || /^(reconnect|back-off)/.test(client), client);
    assert.equal(mayReconnect(code), !stops);
  });
}

test('codes outside of the table follow its ranges', () => {
  for (const code of [1001, 1005, 1006, 1014, 3000, 4000, 4499])
    assert.ok(mayReconnect(code), `${code}`);
  for (const code of [1000, 4500, 4999]) assert.ok(!mayReconnect(code), `${code}`);
});

test('a delay that the server names is kept to the millisecond, whatever the code', () => {
  fc.assert(
    fc.property(
      fc.nat(3_600_000),
      fc.constantFrom(1006, 1011, 1012, 1013),
      fc.nat(2000),
      (retryAfterMs, code, attempt) =>
        reconnectDelay(attempt, {}, code, retryAfterMs) === retryAfterMs,
    ),
  );
});

test('a delay never exceeds the longest time of setTimeout', () => {
  assert.equal(reconnectDelay(0, {}, 1012, 1e15), 2 ** 31 - 1);
});

test('after a crash the delay is any part of 1 s doubled with each attempt, up to 30 s', () => {
  fc.assert(
    fc.property(fraction, fc.nat(2000), (share, attempt) => {
      const longest = Math.min(MAX_DELAY_MS, 1000 * 2 ** attempt);
      const delay = delayBy(() => share, 1006, attempt);
      assert.equal(delay, share * longest);
    }),
  );
});

test('after 1013 the delay is at least 10 s, after 1011 at least 1 s, and both differ', () => {
  fc.assert(
    fc.property(fraction, fraction, fc.nat(2000), (one, other, attempt) => {
      for (const [code, least] of [
        [1013, 10_000],
        [1011, 1000],
      ]) {
        const delays = [one, other].map((share) => delayBy(() => share, code, attempt));
        for (const delay of delays) assert.ok(delay >= least);
        if (one + 1e-9 < other) assert.ok(delays[0] < delays[1]);
      }
    }),
  );
});

test('after a drain 20,000 clients return evenly over the window', () => {
  const random = generator(1);
  // As src/worker/drain.js spreads them.
  const times = Array.from({ length: CLIENTS }, (_, i) =>
    reconnectDelay(0, {}, 1012, Math.floor(((i + random()) / CLIENTS) * WINDOW_MS)),
  );
  const counts = perSecond(times, 0, WINDOW_MS);
  assertEven(counts);
  for (const count of counts) assert.ok(Math.abs(count - 1000) <= 2, `${count} in a second`);
});

test('while a server is away, 20,000 clients never try more than twice the mean in a second', () => {
  const random = generator(2);
  const times = [];
  for (let client = 0; client < CLIENTS; client++) {
    let ms = 0;
    for (let attempt = 0; ms < 300_000; attempt++) {
      ms += delayBy(random, 1006, attempt);
      times.push(ms);
    }
  }
  // The first minute has the short delays: each client tries several times, and none together.
  assertEven(perSecond(times, 60_000, 300_000));
});

test('the first delay after a crash is uniform over its second', () => {
  const random = generator(3);
  const tenths = new Array(10).fill(0);
  for (let client = 0; client < CLIENTS; client++) {
    const delay = delayBy(random, 1006, 0);
    tenths[Math.floor(delay / 100)]++;
  }
  for (const count of tenths) assert.ok(Math.abs(count - 2000) < 200, `${count} in 0.1 s`);
});

test('after overload 20,000 clients return evenly between 10 and 20 s', () => {
  const random = generator(4);
  const times = Array.from({ length: CLIENTS }, () => delayBy(random, 1013, 0));
  assertEven(perSecond(times, 10_000, 20_000));
});
