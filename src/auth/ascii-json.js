// ascii-json.js: the form in which a publication carries a user's name.

/**
 * A publication carries its sender as ASCII that can stand in JSON.
 * @param {string} text
 * @returns {string} JSON without its quotes
 */
export function asciiJson(text) {
  return JSON.stringify(text)
    .slice(1, -1)
    .replace(
      /[\u0080-\uffff]/g,
      (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
    );
}
