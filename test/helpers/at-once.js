// at-once.js: claims about time that hold on a busy machine, because they compare.

import { setImmediate as turn } from 'node:timers/promises';

const TURNS = 3;
const RUNS = 5;

/**
 * Waits for a promise that needs no answer from elsewhere and no timer: it settles within a few
 * turns of the event loop, however long these take.
 * @template T @param {Promise<T>} promise @returns {Promise<T>} rejects if it takes longer
 */
export async function atOnce(promise) {
  const later = async () => {
    for (let i = 0; i < TURNS; i++) await turn();
    throw new Error(`not settled within ${TURNS} turns`);
  };
  return Promise.race([promise, later()]);
}

/** The shortest time of some runs, in ms. @param {() => void} run */
export function shortestMs(run) {
  let shortest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < RUNS; i++) {
    const beganMs = performance.now();
    run();
    shortest = Math.min(shortest, performance.now() - beganMs);
  }
  return shortest;
}
