// strict-json.js: a JSON object in which no name comes twice.
//
// RFC 7519 4 and RFC 7515 4 leave it to the parser whether the first or the last of two equal names
// counts. Two programs that decide differently see two different users in one token, so such a
// token is refused.

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
  const names = countNames(value, 1);
  // The text is valid JSON: each string before a colon is a name.
  const written = text.match(/"(?:[^"\\]|\\.)*"\s*:/g)?.length ?? 0;
  return names === written ? /** @type {Record<string, unknown>} */ (value) : null;
}

/**
 * @param {object} value
 * @param {number} depth
 * @returns {number} names in all objects; NaN, equal to no number, if one is not allowed
 */
function countNames(value, depth) {
  if (depth > MAX_DEPTH) return Number.NaN;
  let names = 0;
  for (const [name, inner] of Object.entries(value)) {
    if (name === '__proto__') return Number.NaN;
    if (!Array.isArray(value)) names++;
    if (typeof inner === 'object' && inner !== null) names += countNames(inner, depth + 1);
  }
  return names;
}
