// texts.js: the texts of the files that settings name.
//
// A primary of version 0.2 passes them to its workers and its courier, which read the settings
// again.
// handover.js has what passes today.

import { readFileSync } from 'node:fs';

/** @typedef {Readonly<Record<string, string>>} Texts by path */
/** @typedef {(path: string) => string} ReadText throws if the file cannot be read */

/** @type {ReadText} */
export const readText = (path) => readFileSync(path, 'utf8');

/** @param {Texts|undefined} texts undefined: the primary sends none @returns {ReadText} */
export const readFrom = (texts) => (path) => texts?.[path] ?? readText(path);
