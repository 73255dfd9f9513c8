// options.js: options that are numbers, and options of which one is required.

import { EXIT, Failure } from './failure.js';

/** @import { Values } from './command.js' */

/**
 * @param {Values} values @param {string} name @param {number} min @param {number} max
 * @returns {number|undefined} undefined: the option is absent @throws {Failure}
 */
export function numberIn(values, name, min, max) {
  const text = values[name];
  if (text === undefined) return undefined;
  const number = /^\d{1,15}$/.test(String(text)) ? Number(text) : -1;
  if (number < min || number > max)
    throw new Failure(
      EXIT.usage,
      `--${name} is a whole number from ${min} to ${max.toLocaleString('en')}`,
    );
  return number;
}

/** @param {Values} values @param {string} name @returns {string|undefined} */
export function textOption(values, name) {
  return /** @type {string|undefined} */ (values[name]);
}

/**
 * @template {string} T @param {Values} values @param {readonly T[]} names
 * @returns {[name: T, value: string]} the one that is given @throws {Failure}
 */
export function exactlyOne(values, names) {
  const given = names.filter((name) => values[name] !== undefined);
  if (given.length !== 1)
    throw new Failure(
      EXIT.usage,
      `give exactly one of ${names.map((name) => `--${name}`).join(', ')}`,
    );
  return [given[0], String(values[given[0]])];
}
