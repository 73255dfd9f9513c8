// fuzz.test.js: sends nearly valid bytes to every input of the server, for a moment;
// `node test/run.js fuzz` does it for longer.
//
// Each target gets its corpus as it is, then mutations that fast-check chooses. If one fails,
// it is minimized and its seed is printed. The properties of the targets are in fuzz/targets.js.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { withoutPushReader } from '../helpers/hidden/fields.js';
import { STEP_KINDS } from './fuzz/mutate.js';
import { answerSeeds, controlBytes, controlSeeds, requestSeeds } from './fuzz/relay-seeds.js';
import { TARGETS } from './fuzz/targets.js';

const RUNS = 60;
const BATCH = 8;

const number = fc.nat(0xffffffff);
const plan = fc.record({
  entry: fc.nat(1000),
  steps: fc.array(fc.tuple(fc.nat(STEP_KINDS - 1), number, number), { minLength: 1, maxLength: 5 }),
});

for (const { name, corpus, start } of TARGETS) {
  test(`${name}: no exception escapes, no state remains, and answers are well-formed`, {
    timeout: 60_000,
    skip: name === 'Redis pushes' && withoutPushReader,
  }, async (t) => {
    const running = await start();
    t.after(() => running.close());
    /** @type {Set<string>} */
    const kinds = new Set();
    /** @param {readonly Buffer[]} inputs @param {readonly number[]} numbers */
    const run = async (inputs, numbers) => {
      for (const kind of await running.run(inputs, numbers)) kinds.add(kind);
    };
    for (const [i, entry] of corpus.entries.entries()) {
      try {
        await run([Buffer.from(entry)], [0]);
      } catch (error) {
        throw new Error(`corpus entry: ${corpus.names[i]}`, { cause: error });
      }
    }
    const property = fc.asyncProperty(
      fc.array(plan, { minLength: BATCH, maxLength: BATCH }),
      fc.array(number, { minLength: BATCH, maxLength: BATCH }),
      (plans, numbers) =>
        run(
          plans.map((one) => corpus.mutated(one)),
          numbers,
        ),
    );
    await fc.assert(property, { numRuns: RUNS });
    // With a single kind of outcome, the bytes do not reach the code under test.
    assert.ok(kinds.size > 1, [...kinds].join());
    t.diagnostic(`${kinds.size} kinds of outcome`);
  });
}

test('the relay and the workers take each seed that they have written', async (t) => {
  for (const [target, seeds] of /** @type {const} */ ([
    ['relay requests', requestSeeds],
    ['relay answers', answerSeeds],
  ])) {
    const running = await TARGETS.find(({ name }) => name === target)?.start();
    t.after(() => running?.close());
    for (const [name, bytes] of seeds) {
      const [outcome] = (await running?.run([Buffer.from(bytes)], [0])) ?? [];
      assert.doesNotMatch(String(outcome), /dropped|malformed|no stream/, `${target}: ${name}`);
    }
  }
});

test('a control message with any value in a field ends at most its link', {
  timeout: 60_000,
}, async (t) => {
  const running = await TARGETS.find(({ name }) => name === 'relay requests')?.start();
  t.after(() => running?.close());
  const values = fc.oneof(
    fc.constantFrom(-1, 0.5, 2 ** 53, 1e308, null, true, '', [], {}, [[]], [null], [['a']]),
    fc.jsonValue({ maxDepth: 3 }),
  );
  const kept = ['append', 'state'].map((name) => requestSeeds.get(name) ?? Buffer.alloc(0));
  const outcomes = new Set();
  for (const message of controlSeeds)
    for (const field of Object.keys(message).filter((name) => name !== 'type'))
      await fc.assert(
        fc.asyncProperty(values, async (value) => {
          // It may be about rooms that have history or state.
          const bytes = [...kept, controlBytes({ ...message, [field]: value })];
          const [outcome] = (await running?.run([Buffer.concat(bytes)], [0])) ?? [];
          outcomes.add(String(outcome).split(' ')[0]);
        }),
        { numRuns: RUNS / 2 },
      );
  assert.deepEqual([...outcomes].sort(), ['dropped', 'kept']);
});
