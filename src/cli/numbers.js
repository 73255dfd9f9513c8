// numbers.js: options that are numbers.

import { EXIT, Failure } from './failure.js';

/**
 * @param {Readonly<Record<string, string|boolean|undefined>>} values @param {string} name
 * @param {number} min @param {number} max
 * @returns {number|undefined} undefined: the option is absent @throws {Failure}
 */
export function numberIn(values, name, min, max) {
  const text = values[name];
  if (text === undefined) return undefined;
  const number = /^\d{1,9}$/.test(String(text)) ? Number(text) : -1;
  if (number < min || number > max)
    throw new Failure(
      EXIT.usage,
      `--${name} is a whole number from ${min} to ${max.toLocaleString('en')}`,
    );
  return number;
}
