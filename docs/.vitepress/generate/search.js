// search.js: what a reader can find: the sections of each page, and each row that has an address.
//
// VitePress calls `sectionsOf` at build time. The other functions also run in the page, where
// VitePress sends their text, so they use nothing outside of themselves.

import { slugOf } from './markdown.js';

/** @typedef {{anchor: string, titles: string[], text: string}} Section */

const ROW = /^\| <a id="([^"]+)" class="row-link"[^>]*><\/a>(.*) \|$/;

/**
 * @param {string} page its text for VitePress
 * @returns {Section[]}
 */
export function sectionsOf(page) {
  /** @type {Section[]} */
  const sections = [];
  /** @type {Section[]} */
  const rows = [];
  /** @type {string[]} */
  const titles = [];
  /** @type {Map<string, number>} */
  const slugs = new Map();
  let isCode = false;
  for (const line of page.replace(/^---\n[\s\S]*?\n---\n/, '').split('\n')) {
    if (/^ *```/.test(line)) isCode = !isCode;
    const [, marks, heading] = (!isCode && /^(#{1,6}) (.+)$/.exec(line)) || [];
    const [, id, cells] = ROW.exec(line) ?? [];
    if (heading !== undefined) {
      titles.splice(marks.length - 1, Infinity, plain(heading));
      const slug = slugOf(plain(heading));
      const count = slugs.get(slug) ?? 0;
      slugs.set(slug, count + 1);
      const anchor = marks === '#' ? '' : count === 0 ? slug : `${slug}-${count}`;
      sections.push({ anchor, titles: [...titles].filter(Boolean), text: '' });
    } else if (id !== undefined) {
      const [name, next = ''] = cells.split(' | ').map(plain);
      const short = next.length <= 40 ? `${name} ${next}`.trim() : name;
      rows.push({ anchor: id, titles: [...titles.filter(Boolean), short], text: plain(cells) });
    } else if (sections.length > 0) {
      const section = /** @type {Section} */ (sections.at(-1));
      section.text += `${plain(line)}\n`;
    }
  }
  return [...sections, ...rows];
}

/** @param {string} text of a line @returns {string} without marks and tags */
function plain(text) {
  return text
    .replace(/<[^>]+>/g, '')
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/[`*|]/g, ' ')
    .replace(/ {2,}/g, ' ')
    .trim();
}

/**
 * "stopped" and "stops" are found by "stop". Words that say nothing are left out.
 * @param {string} term @returns {string|null}
 */
export function termOf(term) {
  const word = term.toLowerCase();
  const silent =
    ' a an and are as at be by do for from how i in is it my of on or that the to with ';
  if (silent.includes(` ${word} `)) return null;
  if (word.length < 4 || /\d/.test(word)) return word;
  const stem = word.replace(/(?:ing|ed|es|s|e)$/, '');
  return stem.length < 3 ? word : stem.replace(/([b-df-hj-np-tv-z])\1$/, '$1');
}

/** Guides before the engineers' pages, which name everything. @param {string} id @returns {number} */
export function weightOf(id) {
  if (id.includes('/architecture/files')) return 0.2;
  if (id.includes('/architecture/')) return 0.4;
  if (/\/(?:openapi|contents)\b/.test(id)) return 0.5;
  return id.includes('/troubleshooting') ? 1.6 : 1;
}
