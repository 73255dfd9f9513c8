// hooks.js: where the hooks are, FANFARE_HOOKS.
//
// The configuration has a digest of the file, without its imports, so that a reload sees a change.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';

/** @typedef {{path: string, digest: string}} HookSettings frozen; the path is absolute */

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @returns {{hooks: HookSettings|null, faults: string[]}} null if there are none
 */
export function readHookSettings(values) {
  const given = String(values.hooksFile ?? '');
  if (given === '') return { hooks: null, faults: [] };
  const path = resolve(given);
  try {
    const digest = createHash('sha256').update(readFileSync(path)).digest('hex');
    return { hooks: Object.freeze({ path, digest }), faults: [] };
  } catch (error) {
    const { code } = /** @type {NodeJS.ErrnoException} */ (error);
    return { hooks: null, faults: [`FANFARE_HOOKS: cannot read ${path}: ${code}`] };
  }
}
