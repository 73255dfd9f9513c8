// search.js: looks for the largest load that a server bears: by growth until it fails, then by bisection.

/**
 * @template S
 * @typedef {{ ok: boolean, score: number, step: S }} Attempt
 */

/**
 * The best attempt that passed, by its score, or null where none did.
 *
 * A failed attempt is repeated before it counts (`retries`): on a shared machine one bad moment must not decide. When the
 * very first fails, the load is halved until one passes.
 * @template S
 * @param {object} options
 * @param {number} options.start
 * @param {number} options.grow factor, above 1
 * @param {number} options.bisections
 * @param {number} options.retries
 * @param {number} [options.most] never more than this
 * @param {number} [options.grain] loads are multiples of it
 * @param {(load: number) => Promise<Attempt<S>>} options.attempt
 * @param {() => Promise<unknown>} options.recover brings the server to rest after a failed attempt
 * @returns {Promise<Attempt<S> | null>}
 */
export async function searchRate({
  start,
  grow,
  bisections,
  retries,
  most = Number.POSITIVE_INFINITY,
  grain = 0,
  attempt,
  recover,
}) {
  /** @type {Attempt<S> | null} */
  let best = null;
  let passed = 0;
  let failed = Number.POSITIVE_INFINITY;
  let load = start;
  let left = bisections;

  for (let attempts = 0; attempts < 40; attempts++) {
    let result = await attempt(load);
    for (let i = 0; i < retries && !result.ok; i++) {
      await recover();
      result = await attempt(load);
    }
    if (result.ok) {
      passed = load;
      if (!best || result.score > best.score) best = result;
      if (load >= most) break;
    } else {
      failed = load;
      await recover();
    }

    if (failed === Number.POSITIVE_INFINITY) {
      load = Math.min(most, load * grow);
    } else {
      if (passed === 0 && failed < start / 100) break;
      // Geometric: a step is a share of the load, not a number. Halving without a floor does not use up bisections.
      if (passed > 0 && left-- <= 0) break;
      load = passed > 0 ? Math.sqrt(passed * failed) : failed / 2;
      if (failed / passed < 1.04) break;
    }
    if (grain > 0) {
      load = Math.round(load / grain) * grain;
      if (load <= passed || load >= failed || load === 0) break;
    }
  }
  return best;
}
