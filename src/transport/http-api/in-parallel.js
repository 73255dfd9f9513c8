// in-parallel.js: does something for each item of a list, a few at a time.

/** Under way for one request. */
const MAX_PARALLEL = 8;

/**
 * @template T, R @param {readonly T[]} list @param {(one: T) => Promise<R>} act
 * @param {number} [most] at once @returns {Promise<R[]>} in the order of `list`
 */
export async function inParallel(list, act, most = MAX_PARALLEL) {
  /** @type {R[]} */
  const results = new Array(list.length);
  let next = 0;
  const work = async () => {
    while (next < list.length) {
      const index = next++;
      results[index] = await act(list[index]);
    }
  };
  await Promise.all(Array.from({ length: most }, work));
  return results;
}
