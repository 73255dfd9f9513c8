// deferred.js: a promise together with its resolve and reject functions.

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
