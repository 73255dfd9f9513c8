// doc-pages.js: the Markdown pages of docs/.

import { readdirSync } from 'node:fs';

const docs = new URL('../../docs/', import.meta.url);

/**
 * The folder .vitepress makes a site of these pages, and has what it builds and installs.
 * @returns {string[]} paths from the root: `docs/client.md`
 */
export function docPages() {
  return readdirSync(docs, { withFileTypes: true })
    .flatMap((entry) => {
      if (entry.name.startsWith('.')) return [];
      if (!entry.isDirectory()) return entry.name;
      return readdirSync(new URL(`${entry.name}/`, docs)).map((name) => `${entry.name}/${name}`);
    })
    .filter((path) => path.endsWith('.md'))
    .map((path) => `docs/${path}`);
}
