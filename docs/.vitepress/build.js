// build.js: `npm run site` makes a static site of docs/, in site/.
//
//   npm run site                                      for the root of any host
//   SITE_URL=https://fanfare.github.io/fanfare/ npm run site    for this address
//   npm run site -- --serve                           builds it, and serves it on port 4173
//
// VitePress has an install of its own in this folder, so that Fanfare's stays as quick and small as
// it is: 103 packages and 76 MB that only this script needs. The script installs them when the lock
// file is new.

import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { linkTo, pageOf } from './generate/links.js';
import { everything, indexOf } from './generate/llms.js';
import { ADDRESS, BASE, OUT, ROOT, SOURCE } from './places.js';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const PORT = 4173;

install();
// These need what has just been installed. Only this folder has VitePress, so a type check of the
// repository must not look for it.
const VITEPRESS = /** @type {string} */ ('vitepress');
const { pages, parts, REPOSITORY } = await import('./generate/pages.js');
const { build, serve } = await import(VITEPRESS);
writeSource();
await build(`${ROOT}docs`);
writeForPrograms();
if (process.argv.includes('--serve')) {
  await serve({ root: `${ROOT}docs`, base: BASE, port: PORT });
} else {
  console.log(
    `site/ is the site; npm run site -- --serve shows it on http://localhost:${PORT}${BASE}`,
  );
}

function install() {
  const ageOf = (/** @type {string} */ path) =>
    statSync(HERE + path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  if (ageOf('node_modules/.package-lock.json') >= ageOf('package-lock.json')) return;
  const { status } = spawnSync('npm', ['ci', '--prefer-offline'], { cwd: HERE, stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}

/** The pages for VitePress, and the files that it copies as they are. */
function writeSource() {
  rmSync(SOURCE, { recursive: true, force: true });
  rmSync(OUT, { recursive: true, force: true });
  for (const { path, text } of pages()) write(`${SOURCE}${path}`, text);
  cpSync(`${ROOT}docs/images`, `${SOURCE}public/images`, { recursive: true });
  cpSync(`${ROOT}src/console/page/icon.svg`, `${SOURCE}public/icon.svg`);
  for (const name of ['openapi.yaml', 'hooks.schema.json'])
    cpSync(`${ROOT}docs/${name}`, `${SOURCE}public/${name}`);
}

/** The Markdown of each page beside it, llms.txt and llms-full.txt. */
function writeForPrograms() {
  const all = pages();
  for (const { path, markdown } of all) write(`${OUT}${path}`, markdown);
  const [{ about }] = all.filter(({ path }) => path === 'index.md');
  const hrefOf = (/** @type {string} */ path) =>
    path.startsWith('../') ? linkTo(path, 'README.md', REPOSITORY) : `${ADDRESS}${pageOf(path)}`;
  write(`${OUT}llms.txt`, indexOf(parts(), hrefOf, about));
  write(`${OUT}llms-full.txt`, everything(all));
}

/** @param {string} path @param {string} text */
function write(path, text) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}
