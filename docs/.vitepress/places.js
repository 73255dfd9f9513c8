// places.js: where the site is built, and for which address.

import { fileURLToPath } from 'node:url';

/** The repository. */
export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** The pages as VitePress reads them. */
export const SOURCE = fileURLToPath(new URL('source/', import.meta.url));
/** The finished site. */
export const OUT = `${ROOT}site/`;

const given = process.env.SITE_URL;
/** Where the site will be; '' if it may be anywhere. It ends with a slash. */
export const ADDRESS = given === undefined ? '' : new URL(given.replace(/\/?$/, '/')).href;
/** The path of its start page. */
export const BASE = ADDRESS === '' ? '/' : new URL(ADDRESS).pathname;
