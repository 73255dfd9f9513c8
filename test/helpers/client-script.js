// client-script.js: `fanfare/client` as the plain scripts of the package, built as `prepack` does.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
const client = `${root}src/client/`;

/** @returns {Map<string, string>} the texts of dist/, by name: `fanfare.min.js` */
export function clientScripts() {
  const { scripts } = JSON.parse(readFileSync(`${client}package.json`, 'utf8'));
  const folder = mkdtempSync(join(tmpdir(), 'fanfare-client-'));
  try {
    const [command, ...options] = scripts.build.replace(/(?<=--outdir=)\S+/, folder).split(' ');
    const built = spawnSync(`${root}node_modules/.bin/${command}`, options, {
      cwd: client,
      encoding: 'utf8',
    });
    if (built.status !== 0) throw new Error(`${command} failed: ${built.stderr}`);
    const names = readdirSync(folder);
    return new Map(names.map((name) => [name, readFileSync(join(folder, name), 'utf8')]));
  } finally {
    rmSync(folder, { recursive: true });
  }
}
