// json-list.js: reads a file with a JSON array, in which apps or endpoints are listed.

const MAX_FILE_BYTES = 1_048_576;

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
  } catch {
    // The parser's own message quotes the text.
    return 'not JSON';
  }
  if (!Array.isArray(list)) return `not a JSON array of ${what}`;
  if (list.length === 0) return `has no ${what}`;
  if (list.length > max) return `${list.length} ${what}, at most ${max}`;
  return list;
}

/** Of the list, or in one. @param {unknown} value @returns {value is Record<string, unknown>} */
export function isRecord(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
