// strict-json.js: a JSON object in which no name comes twice. RFC 7519 4 and RFC 7515 4 let parsers
// choose which of two equal names counts, so two programs could see two users in one token.

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
