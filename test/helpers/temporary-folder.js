// temporary-folder.js: a folder that is removed after the test.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** @param {import('../harness/server.js').Owner} t */
export function temporaryFolder(t) {
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-test-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
