// checks.js: a test of many figures, which prints the required value of each beside the observed.
//
// A fault test measures for half a minute. Its first wrong figure must not hide the others, so all
// of them are checked, and the test fails at its end.

import assert from 'node:assert/strict';
import { test } from 'node:test';

const TIMEOUT_MS = 100_000;

/**
 * @typedef {object} Checks
 * @property {(cleanup: () => unknown) => void} after runs at the end of the test, last one first
 * @property {(what: string, figure: unknown) => void} note a figure that nothing is required of
 * @property {(what: string, required: string|number, seen: unknown, met?: boolean) => void} check
 *   `met`: absent if the two must be equal
 */

/**
 * Declares a test that fails if one of its checks does.
 * @param {string} name
 * @param {(checks: Checks, t: import('node:test').TestContext) => Promise<void>} body
 * @param {number} [timeoutMs]
 */
export function checkedTest(name, body, timeoutMs = TIMEOUT_MS) {
  test(name, { timeout: timeoutMs }, async (t) => {
    /** @type {string[]} */
    const unmet = [];
    let count = 0;
    /** @type {(() => unknown)[]} */
    const cleanups = [];
    t.after(async () => {
      for (const cleanup of cleanups.reverse()) await cleanup();
    });
    await body(
      {
        after: (cleanup) => cleanups.push(cleanup),
        note: (what, figure) => t.diagnostic(`${what}: ${figure}`),
        check(what, required, seen, met = String(required) === String(seen)) {
          const line = `${what}: ${seen} (required: ${required})`;
          t.diagnostic(`${met ? 'ok  ' : 'FAIL'} ${line}`);
          count++;
          if (!met) unmet.push(line);
        },
      },
      t,
    );
    assert.ok(count > 0, 'nothing was checked');
    assert.deepEqual(unmet, []);
  });
}
