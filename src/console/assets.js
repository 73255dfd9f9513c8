// assets.js: the files of the page, and the headers that every answer of the console has.
//
// The page consists of the files of page/, and of its libraries from their packages. Nothing else
// is reachable, and nothing comes from another machine.
//
// A browser finds no package by its name without an import map, which has to be an inline script,
// and the policy forbids those. So the names in imports become paths when a file is sent.

import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const PAGE = fileURLToPath(new URL('./page/', import.meta.url));
const UPLOT = dirname(pathOf('uplot'));
/** Files of packages, by the names under which the page gets them. */
const LIBRARIES = Object.freeze([
  ['uplot.js', join(UPLOT, 'uPlot.iife.min.js')],
  ['uplot.css', join(UPLOT, 'uPlot.min.css')],
  ['preact.js', pathOf('preact')],
  ['htm.js', pathOf('htm')],
]);
/** Scripts that are no modules, and one that has only types. */
const CLASSIC = /\/(?:theme|uplot|view)\.js$/;
const PACKAGE_IMPORT = / from '(preact|htm)';/g;
const TYPES = /** @type {Readonly<Record<string, string>>} */ ({
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
});

/** The headers of every answer, errors included. */
export const HEADERS = Object.freeze({
  'Content-Security-Policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'X-Content-Type-Options': 'nosniff',
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
});

/** @typedef {{headers: Record<string, string>, read: () => Promise<string|Buffer>}} Asset */

/** @returns {ReadonlyMap<string, Asset>} by its URL path */
export function readAssets() {
  /** @type {Map<string, Asset>} */
  const assets = new Map();
  /** @param {string} name @param {Asset['read']} read */
  const add = (name, read) => {
    const type = TYPES[extname(name)];
    if (type !== undefined)
      assets.set(`/console/${name}`, { headers: { 'Content-Type': type }, read });
  };
  for (const name of readdirSync(PAGE)) add(name, () => readPageFile(name));
  for (const [name, path] of LIBRARIES) add(name, () => readFile(path));
  const page = /** @type {Asset} */ (assets.get('/console/index.html'));
  // Modules import each other several deep; without this a browser asks for each level in turn.
  const modules = [...assets.keys()].filter((path) => path.endsWith('.js') && !CLASSIC.test(path));
  page.headers.Link = modules.map((path) => `<${path}>; rel=modulepreload`).join(', ');
  return assets.set('/', page);
}

/** @param {string} name of a package @returns {string} its main file */
function pathOf(name) {
  return fileURLToPath(import.meta.resolve(name));
}

/** @param {string} name */
async function readPageFile(name) {
  const text = await readFile(PAGE + name, 'utf8');
  return extname(name) === '.js' ? text.replace(PACKAGE_IMPORT, " from './$1.js';") : text;
}
