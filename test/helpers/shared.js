// shared.js: something that takes long to start, once for all tests of a file.

import { after } from 'node:test';

/**
 * Call it beside the tests, not in one of them.
 * @template T
 * @param {(owner: import('../harness/server.js').Owner) => Promise<T>} start its cleanups run
 *   when all tests of the file, or of the surrounding `describe`, have ended
 * @returns {() => Promise<T>} starts it at the first call
 */
export function shared(start) {
  /** @type {(() => unknown)[]} */
  const cleanups = [];
  /** @type {Promise<T>|null} */
  let started = null;
  after(async () => {
    for (const cleanup of cleanups.reverse()) await cleanup();
  });
  return () => {
    started ??= start({ after: (cleanup) => void cleanups.push(cleanup) });
    return started;
  };
}
