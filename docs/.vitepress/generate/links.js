// links.js: where the links of a page lead on the site: to other pages, to files that the site has,
// and into the repository for everything outside of docs/.

import { posix } from 'node:path';
import { outsideCode } from './markdown.js';

/** Files of docs/ that become pages of another name. @type {Readonly<Record<string, string>>} */
const RENAMED = { 'README.md': 'contents.md', 'openapi.yaml': 'openapi.md' };
const TARGET = /(\]\(|(?:src|href)=")([^)"\s]+)/g;

/** @param {string} path in docs/ @returns {string} its page on the site, from the root */
export const pageOf = (path) => RENAMED[path] ?? path;

/**
 * @param {string} text of a page
 * @param {string} path of the page in docs/: `architecture/overview.md`
 * @param {string} repository `https://github.com/owner/name`
 * @returns {string}
 */
export function withLinks(text, path, repository) {
  return outsideCode(text, (part) =>
    part.replace(TARGET, (_all, before, target) => before + linkTo(target, path, repository)),
  );
}

/**
 * @param {string} target as it stands in docs/
 * @param {string} from the page that has it, in docs/
 * @param {string} repository
 * @returns {string}
 */
export function linkTo(target, from, repository) {
  if (/^(?:[a-z][a-z+.-]*:|#|\/)/i.test(target)) return target;
  const [file, anchor] = target.split('#');
  const to = posix.join('docs', posix.dirname(from), file);
  const end = anchor === undefined ? '' : `#${anchor}`;
  if (!to.startsWith('docs/')) {
    const isFolder = file.endsWith('/') || !/\.\w+$|\/[A-Z]+$/.test(to);
    return `${repository}/${isFolder ? 'tree' : 'blob'}/main/${to}${end}`;
  }
  const inDocs = to.slice('docs/'.length);
  // Pictures are files beside the pages, which no page is built into.
  if (inDocs.startsWith('images/')) return `/${inDocs}`;
  const page = posix.relative(posix.dirname(pageOf(from)), pageOf(inDocs));
  return `${page.startsWith('.') ? '' : './'}${page}${end}`;
}
