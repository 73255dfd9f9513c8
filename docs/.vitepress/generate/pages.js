// pages.js: the text of every page of the site, and the files beside them.
//
// docs/ is the only source. A page differs from its Markdown file in its links, and in what its
// generated tables get (tables.js). The start page and the playground are in ../pages/.

import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { ROOT } from '../places.js';
import { withFigures } from './figures.js';
import { pageOf, withLinks } from './links.js';
import { blockWith, summaryOf, titleOf, withoutMarks } from './markdown.js';
import { partsOf } from './navigation.js';
import { pageOfApi } from './openapi.js';
import { withFilters } from './tables.js';

const DOCS = `${ROOT}docs/`;
const OWN = fileURLToPath(new URL('../pages/', import.meta.url));
const CODE_MARK = /<!-- code: (\S+) "([^"]+)" -->/g;
const FAN_OUT = /!\[[^\]]*\]\(\/images\/fan-out\.svg\)/g;

const manifest = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8'));
/** The repository, `https://github.com/owner/name`. */
export const REPOSITORY = manifest.repository.url.replace(/^git\+|\.git$/g, '');
export const VERSION = manifest.version;

/**
 * @typedef {object} Page
 * @property {string} path on the site: `architecture/overview.md`
 * @property {string} source its file, from the root of the repository
 * @property {string} title
 * @property {string} about one sentence
 * @property {string} markdown for readers of Markdown: its links lead to other such files
 * @property {string} text for VitePress
 */

/** The parts, groups and pages of the site. */
export const parts = () => partsOf(read('docs/README.md'));

/**
 * @returns {Page[]} those of the navigation first, in its order
 */
export function pages() {
  const listed = parts()
    .flatMap(({ groups }) => groups.flatMap(({ pages: own }) => own))
    .filter(({ path }) => !path.startsWith('../'));
  const order = listed.map(({ path }) => path);
  const names = readdirSync(DOCS, { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.md') && !name.startsWith('.'),
  );
  const place = (/** @type {string} */ name) => (order.indexOf(name) + names.length) % names.length;
  const guides = [...names, 'openapi.yaml']
    .sort((one, other) => place(one) - place(other))
    .map((name) => page(name, listed));
  return [...readdirSync(OWN).map((name) => ownPage(name)), ...guides];
}

/**
 * @param {string} name in docs/
 * @param {readonly import('./navigation.js').Page[]} listed the pages of the navigation
 * @returns {Page}
 */
function page(name, listed) {
  const given = read(`docs/${name}`);
  const text = name === 'openapi.yaml' ? pageOfApi(parse(given)) : given;
  const linked = withLinks(text, name, REPOSITORY);
  const i = listed.findIndex(({ path }) => path === name);
  const title = titleOf(text);
  const about = listed[i]?.about ?? summaryOf(text);
  const source = `docs/${name}`;
  const front = {
    title,
    description: about.replace(/[`*]|\[|\]\([^)]*\)/g, ''),
    edit: `${REPOSITORY}/edit/main/${source}`,
    prev: besides(listed[i - 1]),
    next: i < 0 ? false : besides(listed[i + 1]),
  };
  return {
    path: pageOf(name),
    source,
    title,
    about,
    markdown: withoutMarks(linked),
    text: `---\n${JSON.stringify(front)}\n---\n\n${withoutMarks(withPictures(withFilters(linked)))}`,
  };
}

/** @param {import('./navigation.js').Page} [page] @returns {{text: string, link: string}|false} */
function besides(page) {
  if (page === undefined) return false;
  return { text: page.title, link: `/${pageOf(page.path).replace(/\.md$/, '.html')}` };
}

/** @param {string} name in pages/ @returns {Page} */
function ownPage(name) {
  const text = withFigures(readFileSync(OWN + name, 'utf8'), read).replace(
    CODE_MARK,
    (_all, path, code) => blockWith(read(path), code),
  );
  const source = `docs/.vitepress/pages/${name}`;
  const [, title = '', about = ''] = /^title: (.+)\ndescription: (.+)$/m.exec(text) ?? [];
  return {
    path: name,
    source,
    title,
    about,
    markdown: plain(text, title, about),
    text: text.replace(
      '---\n',
      `---\nedit: ${REPOSITORY}/edit/main/${source}\nprev: false\nnext: false\n`,
    ),
  };
}

/** A page of Vue components as Markdown. @param {string} text @param {string} title @param {string} about */
function plain(text, title, about) {
  const body = text
    .replace(/^---\n[\s\S]*?\n---\n/, '')
    .replace(/^ *<\/?[A-Za-z#][^>]*>\n/gm, '')
    .replace(/\n{3,}/g, '\n\n');
  return body.includes(`\n# ${title}\n`) ? body.trimStart() : `# ${title}\n\n${about}\n${body}`;
}

/** Pictures that are dark if the page is. @param {string} text */
function withPictures(text) {
  return text
    .replace(FAN_OUT, '<FanOut />')
    .replace(/!\[([^\]]*)\]\((\/images\/[\w-]+)-light\.png\)/g, (all, alt, path) =>
      pictures().includes(`${path}-dark.png`)
        ? `<Shot path="${path}" alt="${alt.replaceAll('"', '&quot;')}" />`
        : all,
    );
}

/** @returns {string[]} the pictures of docs/, as the site has them: `/images/chat.png` */
export const pictures = () =>
  readdirSync(`${DOCS}images`)
    .filter((name) => /\.(?:png|svg)$/.test(name))
    .map((name) => `/images/${name}`);

/** @param {string} path from the root of the repository */
function read(path) {
  return readFileSync(ROOT + path, 'utf8');
}
