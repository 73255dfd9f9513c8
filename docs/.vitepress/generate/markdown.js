// markdown.js: small operations on the text of a page.

/** Fenced blocks, comments and code in a line: nothing in them is a link or a table. */
const CODE = /(^ *```[\s\S]*?^ *```|<!--[\s\S]*?-->|`[^`\n]*`)/gm;
const FENCED = /(^ *```[\s\S]*?^ *```)/gm;
/** Comments for the tests and the generated tables, which readers need not see. */
const MARKS = /^ *<!--[\s\S]*?-->\n/gm;

/**
 * @param {string} text
 * @param {(part: string) => string} change
 * @returns {string} with everything changed but code and comments
 */
export function outsideCode(text, change) {
  return text
    .split(CODE)
    .map((part, i) => (i % 2 === 0 ? change(part) : part))
    .join('');
}

/** @param {string} text @returns {string} */
export function withoutMarks(text) {
  return text
    .split(FENCED)
    .map((part, i) => (i % 2 === 0 ? part.replace(MARKS, '') : part))
    .join('');
}

/** @param {string} text @returns {string} its first heading, without marks of code */
export const titleOf = (text) => /^# (.+)$/m.exec(text)?.[1].replaceAll('`', '') ?? '';

/** The first paragraph after the title, as one line of plain text. @param {string} text */
export function summaryOf(text) {
  const [, paragraph = ''] = /^# .+\n+((?:[^\n#|<`-][^\n]*\n)+)/m.exec(withoutMarks(text)) ?? [];
  return paragraph
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/[`*]/g, '')
    .replaceAll('\n', ' ')
    .trim();
}

/**
 * The anchor that GitHub gives to a heading, which the links in docs/ use.
 * @param {string} heading
 */
export function slugOf(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\p{Pc} -]/gu, '')
    .replaceAll(' ', '-');
}

/** The only fenced block of a page that has a text, with its fences. @param {string} page @param {string} text */
export function blockWith(page, text) {
  const found = [...page.matchAll(/^```\w*\n[\s\S]*?^```$/gm)].filter(([all]) =>
    all.includes(text),
  );
  if (found.length !== 1) throw new Error(`${found.length} blocks have ${text}`);
  return found[0][0];
}
