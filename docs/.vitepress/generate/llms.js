// llms.js: the site for programs that read Markdown: an index, and everything in one file.
//
// The format is that of llmstxt.org: a title, a summary, and lists of links with a line each.

/** @import { Page } from './pages.js' */
/** @import { Part } from './navigation.js' */

/**
 * @param {readonly Part[]} parts
 * @param {(path: string) => string} hrefOf a path in docs/, as a link
 * @param {string} summary
 * @returns {string} llms.txt
 */
export function indexOf(parts, hrefOf, summary) {
  const sections = parts.map(({ name, groups }) => {
    const rows = groups.flatMap(({ pages }) =>
      pages.map(({ title, path, about }) => `- [${title}](${hrefOf(path)}): ${about}`),
    );
    return `## ${name}\n\n${rows.join('\n')}\n`;
  });
  return `# Fanfare\n\n> ${summary}\n\n${sections.join('\n')}`;
}

/**
 * @param {readonly Page[]} pages in the order of the navigation
 * @returns {string} llms-full.txt
 */
export function everything(pages) {
  return pages
    .map(({ path, markdown }) => `<!-- ${path} -->\n\n${markdown.trim()}\n`)
    .join('\n---\n\n');
}
