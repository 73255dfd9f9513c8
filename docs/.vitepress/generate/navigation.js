// navigation.js: the parts, groups and pages of the site, as docs/README.md lists them.
//
// A part is a `##` section, a group a `###` section in it, and a page a link in the first column of
// a table whose head is `page`. The same page in two rows is listed once.

/** @typedef {{title: string, path: string, about: string}} Page `path` is relative to docs/ */
/** @typedef {{name: string, pages: Page[]}} Group */
/** @typedef {{name: string, groups: Group[]}} Part */

const LINK = /\[([^\]]+)\]\(([^)]+)\)/g;

/**
 * @param {string} index the text of docs/README.md
 * @returns {Part[]}
 */
export function partsOf(index) {
  /** @type {Part[]} */
  const parts = [];
  /** @type {Set<string>} */
  const seen = new Set();
  let isPages = false;
  for (const line of index.split('\n')) {
    const [, level, name = ''] = /^(#{2,3}) (.+)$/.exec(line) ?? [];
    if (level === '##') parts.push({ name, groups: [] });
    else if (level === '###') parts.at(-1)?.groups.push({ name, pages: [] });
    if (!line.startsWith('|')) isPages = false;
    else if (/^\| page /.test(line)) isPages = true;
    else if (isPages && line.startsWith('| '))
      parts
        .at(-1)
        ?.groups.at(-1)
        ?.pages.push(...pagesOf(line, seen));
  }
  return parts.filter(({ groups }) => groups.length > 0);
}

/** @param {string} row @param {Set<string>} seen @returns {Page[]} */
function pagesOf(row, seen) {
  const [links, about] = row.slice('| '.length, -' |'.length).split(' | ');
  return [...links.matchAll(LINK)].flatMap(([, label, path]) => {
    if (seen.has(path)) return [];
    seen.add(path);
    return { title: titleFrom(label), path, about };
  });
}

/** A word begins with a capital, a path stays as it is. @param {string} label */
const titleFrom = (label) =>
  /^[a-z]+(?: |$)/.test(label) ? label[0].toUpperCase() + label.slice(1) : label;
