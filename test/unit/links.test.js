// links.test.js: every relative link and every #anchor in the Markdown files of the repository has a
// target. Links to other sites are not checked.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
const SKIPPED = new Set(['node_modules', '.git', 'types', 'coverage', '.vitepress', 'site']);

/**
 * @param {string} folder
 * @returns {string[]} paths of the Markdown files in it
 */
function markdownIn(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return SKIPPED.has(entry.name) ? [] : markdownIn(path);
    return entry.name.endsWith('.md') ? [path] : [];
  });
}

/** Text without code, in which brackets are no links. @param {string} text */
function withoutCode(text) {
  return text
    .replace(/^```[\s\S]*?^```/gm, '')
    .replace(/`[^`\n]*`/g, (code) => code.replace(/[[\]()]/g, '.'));
}

/** The anchors that GitHub gives to the headings of a page. @param {string} text */
function anchorsOf(text) {
  /** @type {Map<string, number>} */
  const seen = new Map();
  return new Set(
    [...text.replace(/^```[\s\S]*?^```/gm, '').matchAll(/^#{1,6} +(.+?) *#*$/gm)].map(
      ([, heading]) => {
        const slug = heading
          .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
          .replace(/[`*]/g, '')
          .toLowerCase()
          .replace(/[^\p{L}\p{N}\p{Pc} -]/gu, '')
          .replaceAll(' ', '-');
        const count = seen.get(slug) ?? 0;
        seen.set(slug, count + 1);
        return count === 0 ? slug : `${slug}-${count}`;
      },
    ),
  );
}

/**
 * @param {string} path of a Markdown file
 * @param {string} text
 * @returns {string[]} the links in it that lead nowhere
 */
function brokenLinks(path, text) {
  const plain = withoutCode(text);
  const targets = [
    ...[...plain.matchAll(/\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)/g)].map(([, target]) => target),
    ...[...plain.matchAll(/^ {0,3}\[[^\]]+\]: +(\S+)/gm)].map(([, target]) => target),
    ...[...plain.matchAll(/\b(?:src|srcset|href)="([^"\s]+)/g)].map(([, target]) => target),
  ];
  return targets
    .filter((target) => !/^[a-z][a-z+.-]*:/i.test(target))
    .filter((target) => {
      const [file, anchor] = target.split('#');
      const to = file === '' ? path : join(dirname(path), decodeURI(file));
      if (file !== '' && !existsSync(to)) return true;
      if (anchor === undefined) return false;
      if (to !== path && !(to.endsWith('.md') && statSync(to).isFile())) return true;
      return !anchorsOf(to === path ? text : readFileSync(to, 'utf8')).has(anchor);
    })
    .map((target) => `${relative(root, path)}: ${target}`);
}

test('every relative link and anchor in the Markdown files has a target', () => {
  const files = markdownIn(root);
  assert.ok(files.length > 20, `${files.length} files`);
  assert.deepEqual(
    files.flatMap((path) => brokenLinks(path, readFileSync(path, 'utf8'))),
    [],
  );
});

test('a broken link and a broken anchor are found', () => {
  const text = [
    '# One `two` heading',
    '[good](README.md) [good](#one-two-heading) [good](https://example.com/x)',
    '[bad](missing.md) [bad](#missing) [bad](README.md#missing) [bad][reference]',
    '![bad](docs/images/missing.svg) <img src="missing.png"> `[code](missing.js)`',
    '[reference]: missing-too.md',
    '```',
    '[code](missing.js)',
    '```',
  ].join('\n');
  assert.deepEqual(
    brokenLinks(join(root, 'page.md'), text).map((link) => link.slice('page.md: '.length)),
    [
      'missing.md',
      '#missing',
      'README.md#missing',
      'docs/images/missing.svg',
      'missing-too.md',
      'missing.png',
    ],
  );
});

test('every page of docs is in its index', () => {
  const index = readFileSync(`${root}docs/README.md`, 'utf8');
  for (const path of markdownIn(`${root}docs`)) {
    const name = relative(`${root}docs`, path);
    if (name !== 'README.md') assert.ok(index.includes(`](${name})`), name);
  }
});
