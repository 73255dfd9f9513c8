// interleavings.js: for tests of what may happen in any order. fast-check's scheduler takes the steps
// of a run in an order that its seed draws. A failed run prints the seed, the path and the order.
//
//   TEST_FAST_CHECK='{"seed": 42, "path": "12:3"}' node --test test/unit/….test.js   the same again
//   TEST_FAST_CHECK='{"seed": 7, "numRuns": 10000}' node --test test/unit/….test.js  other orders
//
// Without, the orders are the same each time, so a test that has passed stays green.

import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';

/** @typedef {import('fast-check').Scheduler} Scheduler */

const SEED = 1;
const GIVEN = JSON.parse(process.env.TEST_FAST_CHECK ?? '{}');

/** Promises and callbacks of a step run before the next step. @param {number} [turns] */
export async function settle(turns = 2) {
  for (let i = 0; i < turns; i++) await turn();
}

const scheduler = () =>
  fc.scheduler({
    act: async (step) => {
      await step();
      await settle();
    },
  });

/**
 * Runs a scene in many orders of its steps.
 * @template {[unknown, ...unknown[]]} T
 * @param {{[K in keyof T]: import('fast-check').Arbitrary<T[K]>}} drawn
 * @param {(s: Scheduler, ...drawn: T) => Promise<void>} scene @param {number} runs
 */
export async function inAllOrders(drawn, scene, runs) {
  const property = fc.asyncProperty(scheduler(), ...drawn, /** @type {any} */ (scene));
  await fc.assert(property, { seed: SEED, numRuns: runs, includeErrorInReport: true, ...GIVEN });
}

/**
 * The steps that one party takes, in this order; steps of others come between them.
 * @param {Scheduler} s
 * @param {readonly (readonly [label: string, act: () => unknown])[]} steps
 */
export function inOrder(s, steps) {
  s.scheduleSequence(steps.map(([label, act]) => ({ label, builder: async () => void act() })));
}

/** What travels in order: each item arrives in a step of its own, after those before it. */
export class Pipe {
  /** @type {(() => void)[]} */
  #items = [];

  /** @param {Scheduler} s @param {string} label */
  constructor(s, label) {
    this.s = s;
    this.label = label;
  }

  /** @param {() => void} arrive */
  push(arrive) {
    this.#items.push(arrive);
    // The pipe may have been cut and used again since. Then another item arrives in this step.
    this.s.schedule(Promise.resolve(), this.label).then(() => this.#items.shift()?.());
  }

  /** Loses what is on its way. */
  cut() {
    this.#items = [];
  }
}
