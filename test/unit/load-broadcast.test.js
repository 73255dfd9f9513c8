// load-broadcast.test.js: the broadcasts of the load tools, to servers that refuse some of them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { broadcast } from '../../loadtest/bench/step.js';

/** @typedef {import('../../loadtest/bench/servers.js').Target} Target */
/** @typedef {import('../../loadtest/bench/swarm.js').RunResult} RunResult */
/** @typedef {import('../../loadtest/bench/swarm.js').Swarm} Swarm */

const MEMBERS = 10;
const target = /** @type {Target} */ (
  /** @type {unknown} */ ({ cpuSeconds: () => 0, redisCpuSeconds: () => 0 })
);

/**
 * Runs a broadcast of three messages by two processes.
 * @param {Partial<RunResult>[]} results of the runs that follow each other
 */
async function run(results) {
  const left = [...results];
  const all = { wrong: 0, lost: 0, errors: 0, refused: 0, cpuSeconds: 0, histogram: [] };
  const swarm = /** @type {Swarm} */ (
    /** @type {unknown} */ ({ size: 2, run: async () => ({ ...all, ...left.shift() }) })
  );
  const step = await broadcast(target, swarm, { perSecond: 1, seconds: 3 });
  return { step, runs: results.length - left.length };
}

/** @param {number} messages that every member got */
const received = (messages) => ({ expected: messages * MEMBERS, received: messages * MEMBERS });

test('messages that all members got are a clean broadcast', async () => {
  const { step, runs } = await run([received(3)]);
  assert.deepEqual([step.isClean, step.refused, runs], [true, 0, 1]);
});

test('a message that was refused with an error is counted, once for all processes', async () => {
  const { step, runs } = await run([{ ...received(2), refused: 2, errors: 1 }]);
  assert.deepEqual([step.isClean, step.refused, runs], [true, 1, 1]);
});

test('a message whose outcome is unknown may have arrived', async () => {
  const { step } = await run([{ ...received(2), refused: 2, errors: 3 }]);
  assert.deepEqual([step.isClean, step.refused], [true, 1]);
});

test('a message that no member got, without an error, is a loss', async () => {
  assert.equal((await run([{ ...received(2), refused: 2 }])).step.isClean, false);
});

test('a message that one process alone has missed is a loss, whatever was refused', async () => {
  const { step } = await run([{ ...received(2), refused: 1, errors: 1 }]);
  assert.equal(step.isClean, false);
});

test('a broadcast that was refused altogether is repeated', async () => {
  const { step, runs } = await run([{ ...received(0), refused: 6, errors: 3 }, received(3)]);
  assert.deepEqual([step.isClean, step.refused, runs], [true, 3, 2]);
});

test('a broadcast that is always refused is not clean', async () => {
  const refused = { ...received(0), refused: 6, errors: 3 };
  const { step, runs } = await run(Array(9).fill(refused));
  assert.deepEqual([step.isClean, runs], [false, 5]);
});
