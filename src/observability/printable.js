// printable.js: makes foreign text safe for a terminal.
//
// Names, payloads, close reasons and error texts come from clients and servers. Raw control
// characters could move the cursor, set the title or recolour what follows (C0, C1, DEL), and
// bidirectional ones show text in another order than it has. They become \uXXXX, which in JSON
// means the same character, so a line of JSON keeps its value.

const UNSAFE = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;
const UNSAFE_IN_LINES = /(?!\n)[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;

/** @param {unknown} value @returns {string} one line */
export function printable(value) {
  return String(value).replace(UNSAFE, escaped);
}

/** @param {string} text @returns {string} with its line breaks */
export function printableLines(text) {
  return text.replace(UNSAFE_IN_LINES, escaped);
}

/** @param {string} character */
function escaped(character) {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
