// client-script.js: `fanfare/client` as the plain script of the package, built as `prepack` does.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** @returns {string} the text of dist/fanfare.min.js */
export function clientScript() {
  const { scripts } = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));
  const [command, ...options] = scripts['build:client'].split(' ');
  const toStdout = options.filter((/** @type {string} */ option) => !/^--outfile/.test(option));
  const { status, stdout, stderr } = spawnSync(`${root}node_modules/.bin/${command}`, toStdout, {
    cwd: root,
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`${command} failed: ${stderr}`);
  return stdout;
}
