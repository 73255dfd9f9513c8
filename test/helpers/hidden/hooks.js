// hooks.js: the module hook of preload.js.

import { FIELDS } from './fields.js';

const root = new URL('../../../', import.meta.url).href;
/** @type {import('./fields.js').Field|undefined} */
let field;

/** @param {string|undefined} name */
export function initialize(name) {
  field = FIELDS[name ?? ''];
  if (field === undefined) throw new Error(`TEST_HIDDEN_FIELD=${name}: no such field`);
}

/**
 * @typedef {{source?: string|Uint8Array|ArrayBuffer|null, format: string}} Loaded
 */

/**
 * @param {string} url of a module
 * @param {Loaded} loaded
 * @returns {Loaded} without the field
 */
export function hide(url, loaded) {
  if (field === undefined || url !== root + field.file) return loaded;
  const source = Buffer.from(/** @type {Uint8Array} */ (loaded.source)).toString();
  if (!source.includes(field.text)) throw new Error(`${field.file} does not contain ${field.text}`);
  return { ...loaded, source: source.replaceAll(field.text, field.hidden) };
}

/**
 * @type {(url: string, context: object, next: (url: string, context: object) => Promise<Loaded>) =>
 *   Promise<Loaded>}
 */
export async function load(url, context, next) {
  return hide(url, await next(url, context));
}
