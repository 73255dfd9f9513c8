// site.test.js: what `npm run site` makes of docs/: navigation, links, addresses of rows, search and
// figures. e2e/site builds the site and looks at it in Chromium.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { FIGURES, figureIn } from '../../docs/.vitepress/generate/figures.js';
import { linkTo, pageOf } from '../../docs/.vitepress/generate/links.js';
import { partsOf } from '../../docs/.vitepress/generate/navigation.js';
import { pages, parts, pictures, REPOSITORY } from '../../docs/.vitepress/generate/pages.js';
import { sectionsOf, termOf } from '../../docs/.vitepress/generate/search.js';
import { wholeRanges, withFilters } from '../../docs/.vitepress/generate/tables.js';
import { CLOSES, ERRORS } from '../../src/protocol/codes.js';
import { docPages } from '../helpers/doc-pages.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (/** @type {string} */ path) => readFileSync(root + path, 'utf8');
const site = pages();
const pathsOnSite = new Set(site.map(({ path }) => path));

/** @param {string} path @returns {string} its text for VitePress */
function textOf(path) {
  const found = site.find((one) => one.path === path);
  assert.ok(found, path);
  return found.text;
}

test('the navigation has the parts, groups and pages of docs/README.md', () => {
  const names = parts().map(({ name }) => name);
  assert.deepEqual(names, ['Use', 'Run', 'Change']);
  const listed = parts().flatMap(({ groups }) => groups.flatMap(({ pages: own }) => own));
  const index = read('docs/README.md').split('\n## More features\n')[0];
  const linked = [...index.matchAll(/\]\(([^)]+)\)/g)].map(([, path]) => path);
  assert.deepEqual(
    listed.map(({ path }) => path),
    [...new Set(linked)],
  );
  const own = listed.map(({ path }) => `docs/${path}`).filter((path) => path.endsWith('.md'));
  for (const path of docPages())
    if (path !== 'docs/README.md') assert.ok(own.includes(path), `${path} is in no part`);
  for (const { title, path, about } of listed) {
    assert.ok(title !== '' && about !== '', path);
    assert.ok(existsSync(`${root}docs/${path}`), path);
  }
});

test('a page of two rows is listed once, and a path keeps its case', () => {
  const index = `## One\n\n### First\n\n| page | content |\n|---|---|\n| [A b](a.md), [more](c.md) | text |
| [ops/](../ops/), [more](c.md) | files |\n\n## Two\n\n| feature |\n|---|\n| [D](d.md) |\n`;
  const [{ groups }, ...others] = partsOf(index);
  assert.deepEqual(others, []);
  assert.deepEqual(
    groups[0].pages.map(({ title }) => title),
    ['A b', 'More', 'ops/'],
  );
});

test('a line does not end within a range of figures', () => {
  assert.equal(wholeRanges('6.7 (6.3–8.1), p99 – p50'), '6.7 (6.3\u2060–\u20608.1), p99 – p50');
});

test('links inside docs/ lead to pages of the site, all others into the repository', () => {
  const to = (/** @type {string} */ target, from = 'client.md') => linkTo(target, from, REPOSITORY);
  assert.equal(to('protocol.md#errors'), './protocol.md#errors');
  assert.equal(to('../protocol.md', 'architecture/overview.md'), '../protocol.md');
  assert.equal(to('README.md'), './contents.md');
  assert.equal(to('openapi.yaml'), './openapi.md');
  assert.equal(to('images/chat.png'), '/images/chat.png');
  assert.equal(to('../src/main.js'), `${REPOSITORY}/blob/main/src/main.js`);
  assert.equal(to('../ops/sysctl/'), `${REPOSITORY}/tree/main/ops/sysctl/`);
  assert.equal(to('https://example.com/x.md'), 'https://example.com/x.md');
  for (const { path, text, markdown } of site)
    for (const [, target] of `${text}${markdown}`.matchAll(/\]\((\.{1,2}\/[^)#\s]+)/g)) {
      const file = posix.join(posix.dirname(path), target);
      if (file.endsWith('.md')) assert.ok(pathsOnSite.has(file), `${path}: ${target}`);
      else assert.ok(existsSync(`${root}docs/${file}`), `${path}: ${target}`);
    }
});

test('pictures of the pages are on the site', () => {
  for (const { path, text } of site)
    for (const [, picture] of text.matchAll(/\((\/images\/[^)]+)\)|"(\/images\/[^"]+)"/g))
      if (picture) assert.ok(pictures().includes(picture), `${path}: ${picture}`);
});

test('each error and close code has an address, and no two things of a page share one', () => {
  const protocol = textOf('protocol.md');
  for (const { code } of Object.values(CLOSES))
    assert.ok(protocol.includes(`<a id="${code}" class="row-link"`), String(code));
  for (const code of Object.keys(ERRORS))
    assert.ok(protocol.includes(`<a id="${code}" class="row-link"`), code);
  assert.match(textOf('configuration.md'), /<a id="FANFARE_HISTORY" class="row-link"/);
  assert.match(textOf('operations.md'), /<a id="fanfare_broker_up" class="row-link"/);
  assert.match(textOf('http-api.md'), /<a id="IDEMPOTENCY_CONFLICT" class="row-link"/);
  for (const { path, text } of site) {
    const anchors = sectionsOf(text).map(({ anchor }) => anchor);
    assert.deepEqual(
      anchors.filter((one, i) => anchors.indexOf(one) !== i),
      [],
      path,
    );
  }
});

test('rows with the same name in one table have two addresses', () => {
  const table =
    '<!-- table: closes -->\n| code | cause |\n| --- | --- |\n| 1 | a |\n| 1 | b |\n<!-- end -->\n';
  const ids = [...withFilters(table).matchAll(/id="([^"]+)"/g)].map(([, id]) => id);
  assert.deepEqual(ids, ['1', '1-2']);
});

test('the page of the HTTP API has every route of openapi.yaml', () => {
  const routes = [...read('docs/openapi.yaml').matchAll(/^ {6}operationId: (\w+)$/gm)];
  assert.ok(routes.length > 10);
  for (const [, name] of routes) {
    assert.ok(textOf('openapi.md').includes(`\n### ${name}\n`), name);
    assert.ok(textOf('openapi.md').includes(`(#${name.toLowerCase()})`), name);
  }
});

test('a search finds sections and rows, and words by their stem', () => {
  const page =
    '# A page\n\nIntro.\n\n## Two `words`\n\n```sh\n# no heading\n```\n\n## Two words\n\n| <a id="42" class="row-link" href="#42"></a>42 | said | why |\n';
  assert.deepEqual(
    sectionsOf(page).map(({ anchor, titles }) => [anchor, titles.join(' > ')]),
    [
      ['', 'A page'],
      ['two-words', 'A page > Two words'],
      ['two-words-1', 'A page > Two words'],
      ['42', 'A page > Two words > 42 said'],
    ],
  );
  assert.equal(termOf('stops'), termOf('Stopped'));
  assert.equal(termOf('the'), null);
  assert.equal(termOf('4502'), '4502');
});

test('each figure of the start page stands on the page that measures it, with a command that exists', () => {
  assert.equal(FIGURES.length, 5);
  const { scripts } = JSON.parse(read('package.json'));
  for (const figure of FIGURES) {
    const value = figureIn(figure, read(figure.page));
    assert.ok(textOf('index.md').includes(`**${value}**`), value);
    const [, script] = /^npm run (\S+)/.exec(figure.command) ?? [];
    const [, file = ''] = /^node --test (\S+)$/.exec(figure.command) ?? [];
    assert.ok(script === undefined ? existsSync(root + file) : script in scripts, figure.command);
  }
});

test('readers of Markdown see neither marks of tests nor components', () => {
  for (const { path, markdown } of site) {
    const text = markdown.replace(/^ *```[\s\S]*?^ *```$/gm, '').replace(/`[^`\n]*`/g, '');
    assert.doesNotMatch(text, /<!--|<(?:FilterRows|FanOut|Shot|StartPage|PlayGround)\b/, path);
    assert.match(markdown, /^# ./, path);
  }
  assert.equal(pageOf('client.md'), 'client.md');
});
