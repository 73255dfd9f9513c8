// promised.js: a promise that a callback settles.

/** @import { FanfareError } from './error.js' */

/**
 * @param {(settle: (error?: FanfareError|false, value?: any) => void) => void} begin
 * @returns {Promise<any>}
 */
export function promised(begin) {
  return new Promise((resolve, reject) => {
    begin((error, value) => (error ? reject(error) : resolve(value)));
  });
}
