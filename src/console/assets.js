// assets.js: the files of the page, and the headers that every answer of the console has.
//
// The page consists of the files of page/, and of uPlot from its package. Nothing else is
// reachable, and nothing comes from another machine.

import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const PAGE = fileURLToPath(new URL('./page/', import.meta.url));
const UPLOT = dirname(createRequire(import.meta.url).resolve('uplot'));
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

/**
 * @typedef {object} Asset
 * @property {string} path of the file
 * @property {string} type
 */

/** @returns {ReadonlyMap<string, Asset>} by its URL path */
export function readAssets() {
  /** @type {Map<string, Asset>} */
  const assets = new Map();
  for (const name of readdirSync(PAGE)) {
    const type = TYPES[extname(name)];
    if (type !== undefined) assets.set(`/console/${name}`, { path: PAGE + name, type });
  }
  const page = assets.get('/console/index.html');
  if (page !== undefined) assets.set('/', page);
  assets.set('/console/uplot.js', { path: join(UPLOT, 'uPlot.iife.min.js'), type: TYPES['.js'] });
  assets.set('/console/uplot.css', { path: join(UPLOT, 'uPlot.min.css'), type: TYPES['.css'] });
  return assets;
}
