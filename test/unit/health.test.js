// The event-loop lag of a worker is measured by its beat at rest, and four times a second when it has
// sockets.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { test } from 'node:test';
import { createCounters } from '../../src/observability/counters.js';
import { Health } from '../../src/worker/health.js';

/** @param {import('node:test').TestContext} t */
function build(t) {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const clock = { nowMs: 0 };
  t.mock.method(performance, 'now', () => clock.nowMs);
  const counters = createCounters();
  /** @type {number[]} */
  const samples = [];
  const loopLag = { observe: (/** @type {number} */ ms) => samples.push(ms) };
  const health = new Health({ counters, loopLag, memoryBytes: 2 ** 40 });
  health.start(1000);
  t.after(() => health.close());
  /** @param {number} ms */
  const pass = (ms) => {
    for (let i = 0; i < ms; i += 50) {
      clock.nowMs += 50;
      t.mock.timers.tick(50);
    }
  };
  return { health, counters, samples, clock, pass };
}

test('at rest each beat is a sample, and a late one is the lag of the second', (t) => {
  const { health, samples, clock, pass } = build(t);
  pass(1000);
  health.beat(1000);
  clock.nowMs += 1700;
  health.beat(1000);
  assert.deepEqual(samples, [0, 700]);
  assert.equal(health.lagMs(), 700);
  pass(1000);
  health.beat(1000);
  assert.equal(health.lagMs(), 0);
});

test('memory is read at each beat with sockets or if it is high, and at each tenth at rest', (t) => {
  const { health, counters } = build(t);
  const memory = { kB: 1024 };
  const read = t.mock.method(fs, 'readFileSync', () => `RssAnon:\t ${memory.kB} kB`);
  syncBuiltinESMExports();
  t.after(() => {
    read.mock.restore();
    syncBuiltinESMExports();
  });
  const readings = () => {
    const before = read.mock.callCount();
    for (let i = 0; i < 20; i++) health.beat(1000);
    return read.mock.callCount() - before;
  };
  assert.equal(readings(), 2);
  counters.sockets = 1;
  assert.equal(readings(), 20);
  memory.kB = 2 ** 30;
  readings();
  counters.sockets = 0;
  assert.equal(readings(), 20);
  memory.kB = 1024;
  health.beat(1000);
  assert.ok(health.heapPercent() < 50, 'it admits clients at once');
  assert.equal(readings(), 2);
});

test('from a socket until the last has closed it samples four times a second', (t) => {
  const { health, counters, samples, clock, pass } = build(t);
  counters.sockets = 1;
  pass(1000);
  health.beat(1000);
  pass(1000);
  health.beat(1000);
  assert.equal(samples.length, 5);
  clock.nowMs += 300;
  pass(250);
  assert.equal(health.lagMs(), 300);
  counters.sockets = 0;
  health.beat(1000);
  pass(1000);
  assert.equal(samples.length, 6);
});
