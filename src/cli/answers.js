// answers.js: is an answer one that this command can read?
//
// The other end may be another program, a proxy, or a server of another version. A command checks
// the fields that it uses, and ends with one text and exit code if they are not there.

import { EXIT, Failure } from './failure.js';

/**
 * The types of fields: a name of `typeof`, `any`, or a list of objects that have a shape of their
 * own. A field whose name ends in `?` may be absent.
 * @typedef {{readonly [field: string]: 'string'|'number'|'boolean'|'any'|readonly [Shape]}} Shape
 */

/** @param {unknown} value @returns {value is Record<string, any>} */
export function isRecord(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * @param {string} url @param {unknown} answer @param {Shape} shape
 * @returns {Record<string, any>} the answer @throws {Failure}
 */
export function checked(url, answer, shape) {
  const fault = faultIn(answer, shape);
  if (fault !== '') throw unexpected(url, fault);
  return /** @type {Record<string, any>} */ (answer);
}

/** @param {string} url @param {string} what is wrong with the answer */
export function unexpected(url, what) {
  return new Failure(
    EXIT.protocol,
    `unexpected answer from ${url} (${what}): is it a Fanfare server, of this version?`,
  );
}

/** @param {unknown} value @param {Shape} shape @returns {string} '' if there is none */
function faultIn(value, shape) {
  if (!isRecord(value)) return 'no JSON object';
  for (const [field, type] of Object.entries(shape)) {
    const name = field.replace('?', '');
    const found = value[name];
    if (found === undefined && name !== field) continue;
    const isRight =
      typeof type === 'string'
        ? typeof found === type || (type === 'any' && found !== undefined)
        : Array.isArray(found) && found.every((one) => faultIn(one, type[0]) === '');
    if (!isRight) return `the field ${name} is missing, or not as expected`;
  }
  return '';
}
