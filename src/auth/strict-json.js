// strict-json.js: a JSON object in which no name comes twice. RFC 7519 4 and RFC 7515 4 let parsers
// choose which of two equal names counts, so two programs could see two users in one token.

import { skipPayload, skipSpace, skipString } from '../protocol/json-scan.js';

/** Claims nest two levels deep; `info` may add some. */
const MAX_DEPTH = 16;

/**
 * @param {string} text
 * @returns {Record<string, unknown>|null} null: not a JSON object, a name comes twice, the name
 *   `__proto__` occurs, or the nesting is deeper than 16
 */
export function parseObject(text) {
  /** @type {unknown} */
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return null; // the parser's message quotes the text
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
  return countNames(value, 1) === countWritten(text)
    ? /** @type {Record<string, unknown>} */ (value)
    : null;
}

/**
 * The source of each value of an object. JSON.parse rounds ids of 64 bits, makes 1.1 of 1.10 and
 * Infinity of 1e400, so values that go to clients are cut from their source.
 * @param {Buffer} json that parseObject accepts @returns {Map<string, Buffer>} by name
 */
export function sourcesOf(json) {
  /** @type {Map<string, Buffer>} */
  const sources = new Map();
  let i = skipSpace(json, skipSpace(json, 0) + 1);
  while (json[i] === QUOTE) {
    const nameEnd = skipString(json, i + 1);
    const start = skipSpace(json, skipSpace(json, nameEnd) + 1);
    const end = skipPayload(json, start);
    const name = json.toString('utf8', i + 1, nameEnd - 1);
    const isEscaped = name.includes('\\');
    sources.set(isEscaped ? JSON.parse(`"${name}"`) : name, json.subarray(start, end));
    const comma = skipSpace(json, end);
    i = skipSpace(json, comma + 1);
  }
  return sources;
}

/**
 * The shortest form in which numbers are as they were written: without spaces between tokens, and
 * without escapes that strings do not need. PHP, for example, escapes all but ASCII.
 * @param {Buffer} json valid @returns {Buffer} a copy
 */
export function compact(json) {
  const text = json.toString();
  if (!/[ \t\n\r\\]/.test(text)) return Buffer.from(json); // the usual case
  return Buffer.from(
    text.replace(/"(?:[^"\\]|\\.)*"|[ \t\n\r]+/g, (part) => {
      if (part[0] !== '"') return '';
      return part.includes('\\') ? JSON.stringify(JSON.parse(part)) : part;
    }),
  );
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const SPACE = 0x20;

/** @param {string} text valid JSON @returns {number} names written in it */
function countWritten(text) {
  let names = 0;
  for (let i = 0; i < text.length; i++) {
    if (text.charCodeAt(i) !== QUOTE) continue;
    i++;
    while (text.charCodeAt(i) !== QUOTE) i += text.charCodeAt(i) === BACKSLASH ? 2 : 1;
    let next = i + 1;
    while (text.charCodeAt(next) <= SPACE) next++;
    if (text.charCodeAt(next) === COLON) names++;
  }
  return names;
}

/**
 * @param {object} value @param {number} depth
 * @returns {number} names in all objects; NaN, equal to no number, if one is not allowed
 */
function countNames(value, depth) {
  if (depth > MAX_DEPTH) return Number.NaN;
  let names = 0;
  for (const name of Object.keys(value)) {
    if (name === '__proto__') return Number.NaN;
    if (!Array.isArray(value)) names++;
    const inner = /** @type {Record<string, unknown>} */ (value)[name];
    if (typeof inner === 'object' && inner !== null) names += countNames(inner, depth + 1);
  }
  return names;
}
