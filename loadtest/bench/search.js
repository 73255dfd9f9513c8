// search.js: looks for the largest load that a server bears: by growth until it fails, then by
// bisection.

/** With a load that an earlier search found: where to begin, and how to grow from there. */
const KNOWN_START = 0.7;
const KNOWN_GROW = 1.4;
const KNOWN_BISECTIONS = 3;
/** A failure further above the known load is expected. */
const KNOWN_NEAR = 1.2;
/** Searches that go on after a load that had failed passes at the end. */
const LAST_CHANCES = 2;

/**
 * @template S
 * @typedef {{ ok: boolean, score: number, step: S }} Attempt
 */

/**
 * The best attempt that passed, by its score, or null if none did.
 *
 * A failed attempt is repeated before it counts (`retries`): on a shared machine one bad moment must
 * not decide. That holds for the bisection as well. If its first step fails, all loads above it are
 * never tried. Only an attempt far above a known load is not repeated, because its failure is
 * expected. When the very first fails, the load is halved until one passes.
 *
 * A bad moment may last longer than that, and a server whose latency hardly grows with the load may
 * fail at any of them. So with retries the lowest load that failed has one more attempt at the end,
 * and if it passes, the search goes on above it.
 * @template S
 * @param {object} options
 * @param {number} options.start
 * @param {number} options.grow factor, above 1
 * @param {number} options.bisections
 * @param {number} options.retries
 * @param {number} [options.known] the load an earlier search found: this one looks around it, and
 *   further only where it must
 * @param {(load: number) => Promise<Attempt<S>>} options.attempt
 * @param {(failed: S) => Promise<unknown>} options.recover brings the server to rest after a failed
 *   attempt
 * @returns {Promise<(Attempt<S> & { load: number }) | null>}
 */
export async function searchRate({ start, grow, bisections, retries, known, attempt, recover }) {
  /** @type {(Attempt<S> & { load: number }) | null} */
  let best = null;
  let passed = 0;
  let failed = Number.POSITIVE_INFINITY;
  let load = start;
  let left = bisections;
  if (known !== undefined) {
    load = known * KNOWN_START;
    grow = KNOWN_GROW;
    left = KNOWN_BISECTIONS;
  }
  const first = load;
  let lastChances = retries > 0 ? LAST_CHANCES : 0;
  let isLastChance = false;

  for (let attempts = 0; attempts < 40; attempts++) {
    let result = await attempt(load);
    const decides = known === undefined || load <= known * KNOWN_NEAR;
    for (let i = 0; i < retries && !result.ok && decides && !isLastChance; i++) {
      await recover(result.step);
      result = await attempt(load);
    }
    if (result.ok) {
      passed = load;
      if (!best || result.score > best.score) best = { ...result, load };
      if (isLastChance) {
        failed = Number.POSITIVE_INFINITY;
        left = bisections;
      }
    } else {
      if (passed === 0) left = bisections; // far from what was known
      failed = load;
      await recover(result.step);
      if (isLastChance) break;
    }
    isLastChance = false;

    if (failed === Number.POSITIVE_INFINITY) {
      load *= grow;
      continue;
    }
    if (passed === 0 && failed < first / 100) break;
    // Geometric: a step is a share of the load, not a number. Halving without a floor does not use
    // up bisections.
    load = passed > 0 ? Math.sqrt(passed * failed) : failed / 2;
    const isOver = passed > 0 && (left-- <= 0 || failed / load < 1.02);
    if (!isOver) continue;
    if (lastChances-- <= 0) break;
    isLastChance = true;
    load = failed;
  }
  return best;
}
