// deferred.js: a promise together with its resolve and reject functions, and a wait with a bound.

/**
 * @template T
 * @typedef {{promise: Promise<T>, resolve: (value: T) => void,
 *   reject: (error: Error) => void}} Deferred
 */

/** @template T @returns {Deferred<T>} */
export function deferred() {
  /** @type {(value: T) => void} */
  let resolve = () => {};
  /** @type {(error: Error) => void} */
  let reject = () => {};
  /** @type {Promise<T>} */
  const promise = new Promise((fulfil, refuse) => {
    resolve = fulfil;
    reject = refuse;
  });
  return { promise, resolve, reject };
}

/** @param {Promise<unknown>} promise @param {number} ms @returns whether it resolved in time */
export async function within(promise, ms) {
  /** @type {ReturnType<typeof deferred<boolean>>} */
  const late = deferred();
  const timer = setTimeout(late.resolve, ms, false);
  try {
    return await Promise.race([promise.then(() => true), late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
