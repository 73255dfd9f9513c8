// replace-file.js: replaces a file in FANFARE_STATE_DIR, so that a crash leaves the old or the new
// one.

import { rename, rm, writeFile } from 'node:fs/promises';

/**
 * @param {string} path @param {string} text
 * @throws for example if the disk is full. Then the old file is unchanged, without leftovers.
 */
export async function replaceFile(path, text) {
  const draft = `${path}.${process.pid}`;
  try {
    await writeFile(draft, text, { mode: 0o600, flush: true });
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => {});
    throw error;
  }
}
