// backoff.js: the pause before another attempt at Redis. It grows with each failure.

const STEP_MS = 50;
const MAX_MS = 2000;
/** The random share of a pause, so that a fleet does not return in step. */
const JITTER = 0.3;

/** @param {number} attempts failed so far, at least 1 @returns {number} ms */
export function backoffMs(attempts) {
  return Math.min(STEP_MS * attempts, MAX_MS) * (1 - Math.random() * JITTER);
}
