// replace-file.js: writes a whole file of FANFARE_STATE_DIR, so that a crash leaves the old or the
// new one.

import { rename, rm, writeFile } from 'node:fs/promises';

/**
 * @param {string} path @param {string} text
 * @throws if the disk is full, for example. The file is as before then, and nothing lies beside it
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
