// texts.js: the texts of the files that settings name.
//
// The primary passes those of the last good load to the workers and the courier. So a process that
// replaces a dead one has the settings of the others, even if a file has changed since. The
// certificate (certificate.js) and the hooks are no part of this.

import { readFileSync } from 'node:fs';

/** @typedef {Readonly<Record<string, string>>} Texts by path */
/** @typedef {(path: string) => string} ReadText throws if the file cannot be read */

/** @type {ReadText} */
export const readText = (path) => readFileSync(path, 'utf8');

/** @param {Record<string, string>} texts gets what is read @returns {ReadText} */
export const recordInto = (texts) => (path) => {
  texts[path] = readText(path);
  return texts[path];
};

/** @param {Texts|undefined} texts undefined from an earlier primary @returns {ReadText} */
export const readFrom = (texts) => (path) => texts?.[path] ?? readText(path);
