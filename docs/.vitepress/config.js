// config.js: VitePress's configuration. build.js writes the pages first.

import { linkTo, pageOf } from './generate/links.js';
import { slugOf } from './generate/markdown.js';
import { parts, REPOSITORY, VERSION } from './generate/pages.js';
import { sectionsOf, termOf, weightOf } from './generate/search.js';
import { keepRanges } from './generate/tables.js';
import { ADDRESS, BASE, OUT, SOURCE } from './places.js';

const all = parts();
export default {
  title: 'Fanfare',
  description: 'A clustered WebSocket fan-out server for Node.js',
  lang: 'en',
  base: BASE,
  srcDir: SOURCE,
  outDir: OUT,
  lastUpdated: false,
  router: { prefetchLinks: false },
  // docs/ names servers that its readers start. Any other dead link ends the build.
  ignoreDeadLinks: 'localhostLinks',
  // Search engines want whole addresses. Without SITE_URL these are of `npm run site -- --serve`.
  sitemap: { hostname: ADDRESS || 'http://localhost:4173/' },
  head: [
    ['link', { rel: 'icon', type: 'image/svg+xml', href: `${BASE}icon.svg` }],
    ['meta', { name: 'theme-color', content: '#4f46e5' }],
  ],
  transformHead: (/** @type {any} */ { pageData: { relativePath: path, isNotFound } }) => {
    if (isNotFound) return [];
    const twin = ['link', { rel: 'alternate', type: 'text/markdown', href: BASE + path }];
    if (ADDRESS === '') return [twin];
    return [twin, ['link', { rel: 'canonical', href: ADDRESS + hrefOf(path) }]];
  },
  markdown: {
    anchor: { slugify: slugOf },
    // Others have comments and keywords of too little contrast on VitePress's grey.
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    image: { lazyLoading: true },
    languageAlias: { haproxy: 'nginx' },
    config: keepRanges,
  },
  themeConfig: {
    siteTitle: 'Fanfare',
    logo: { src: '/icon.svg', alt: '' },
    nav: [
      ...all.map((part) => ({
        text: part.name,
        link: `/${hrefOf(pathsOf(part)[0])}`,
        activeMatch: matchOf(part),
      })),
      { text: 'Playground', link: '/playground.html' },
      {
        text: VERSION,
        items: [
          { text: `${VERSION}, this version`, link: '/' },
          { text: 'Changelog', link: `${REPOSITORY}/blob/main/CHANGELOG.md` },
          { text: 'Support and upgrades', link: `${REPOSITORY}/blob/main/SECURITY.md` },
        ],
      },
    ],
    sidebar: Object.fromEntries(
      all.flatMap((part) => pathsOf(part).map((path) => [`/${pageOf(path)}`, sidebarOf(part)])),
    ),
    outline: [2, 3],
    socialLinks: [{ icon: 'github', link: REPOSITORY, ariaLabel: 'The repository on GitHub' }],
    editLink: {
      pattern: (/** @type {any} */ { frontmatter }) => frontmatter.edit,
      text: 'Edit this page',
    },
    docFooter: { prev: 'Previous page', next: 'Next page' },
    search: {
      provider: 'local',
      options: {
        detailedView: false,
        _render: (/** @type {string} */ text) => text,
        miniSearch: {
          _splitIntoSections: (/** @type {string} */ _file, /** @type {string} */ text) =>
            sectionsOf(text),
          options: { processTerm: termOf },
          searchOptions: {
            boost: { title: 4, text: 2, titles: 1 },
            boostDocument: weightOf,
            fuzzy: (/** @type {string} */ term) =>
              term.length > 4 && !/\d/.test(term) ? 0.2 : false,
            prefix: (
              /** @type {string} */ term,
              /** @type {number} */ i,
              /** @type {string[]} */ terms,
            ) => i === terms.length - 1 || term.length > 3,
          },
        },
      },
    },
  },
  vite: { build: { chunkSizeWarningLimit: 4096 } },
};

/** @param {string} path as docs/README.md has it @returns {boolean} is it a page of the site? */
function isOwn(path) {
  return !path.startsWith('../');
}

/** @param {string} path of a page, in docs/ or on the site */
function hrefOf(path) {
  return pageOf(path)
    .replace(/\.md$/, '.html')
    .replace(/^index\.html$/, '');
}

/** @param {import('./generate/navigation.js').Part} part */
function pathsOf({ groups }) {
  return groups.flatMap(({ pages }) => pages.map(({ path }) => path)).filter(isOwn);
}

/** @param {import('./generate/navigation.js').Part} part */
function sidebarOf({ groups }) {
  return groups.map(({ name, pages }) => ({
    text: name,
    items: pages.map(({ title, path }) => ({
      text: title,
      link: isOwn(path) ? `/${hrefOf(path)}` : linkTo(path, 'README.md', REPOSITORY),
    })),
  }));
}

/** A pattern for the addresses of its pages. @param {import('./generate/navigation.js').Part} part */
function matchOf(part) {
  return `^/(?:${pathsOf(part)
    .map((path) => pageOf(path).replace('.md', ''))
    .join('|')})$`;
}
