// json-list.js: reads a file with a JSON array that lists apps or endpoints, and parts of entries.

import { didYouMean } from './nearest.js';

const MAX_FILE_BYTES = 1_048_576;

/** Is told a fault of the entry. @typedef {(fault: string) => void} Refuse */

/**
 * @param {string} path @param {string} what the array has, for the fault
 * @param {number} max entries @param {import('./texts.js').ReadText} read
 * @returns {unknown[]|string} a fault, without any text of the file
 */
export function readJsonList(path, what, max, read) {
  let text;
  try {
    text = read(path);
  } catch (error) {
    return `cannot be read: ${/** @type {NodeJS.ErrnoException} */ (error).code}`;
  }
  if (text.length > MAX_FILE_BYTES) return `larger than ${MAX_FILE_BYTES} bytes`;
  let list;
  try {
    list = JSON.parse(text);
  } catch (error) {
    return `not JSON${lineOf(text, /** @type {Error} */ (error).message)}`;
  }
  if (!Array.isArray(list))
    return `${isRecord(list) ? 'an object' : 'a value'}, not a JSON array of ${what}`;
  if (list.length === 0) return `has no ${what}`;
  if (list.length > max) return `${list.length} ${what}, at most ${max}`;
  return list;
}

/**
 * Where the fault is. The parser's message quotes the text, which has secrets.
 * @param {string} text @param {string} message of JSON.parse
 */
function lineOf(text, message) {
  const at = / at position (\d+)/.exec(message);
  if (at === null) return /end of JSON input/.test(message) ? ': it ends too early' : '';
  return `: line ${text.slice(0, Number(at[1])).split('\n').length}`;
}

/** Is it a JSON object, and neither a list nor null? @param {unknown} value @returns {value is Record<string, unknown>} */
export function isRecord(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * @param {unknown} entry @param {readonly string[]} known the fields that it may have
 * @param {Refuse} refuse @returns {Record<string, unknown>} its fields
 */
export function fieldsOf(entry, known, refuse) {
  if (!isRecord(entry)) refuse('not an object');
  const given = isRecord(entry) ? entry : {};
  for (const field of Object.keys(given))
    if (!known.includes(field))
      refuse(
        `unknown field ${JSON.stringify(field)}${didYouMean(field, known) || `; there are ${known.join(', ')}`}`,
      );
  return given;
}

/**
 * @template T @param {unknown} value @param {string} rule the fault, which names the field
 * @param {readonly [min: number, max: number]} bounds of its length
 * @param {(item: unknown) => item is T} isItem @param {Refuse} refuse
 * @returns {T[]} empty if it is at fault
 */
export function readList(value, rule, [min, max], isItem, refuse) {
  if (Array.isArray(value) && value.length >= min && value.length <= max && value.every(isItem))
    return value;
  refuse(rule);
  return [];
}

/** The field `url`. @param {unknown} value @param {Refuse} refuse @returns {URL|null} a fault */
export function readUrl(value, refuse) {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : null;
  if (typeof value !== 'string') refuse('"url": missing');
  else if (url === null) refuse('"url": not a URL');
  else if (!/^https?:$/.test(url.protocol)) refuse('"url": neither https: nor http:');
  else if (url.username !== '' || url.password !== '')
    refuse('"url": has a user name or a password');
  if (url !== null) url.hash = '';
  return url;
}
