#!/usr/bin/env node
// rehearse.js: a whole release from a clean clone, up to the point where something is published.
//
//   node ops/release/rehearse.js 0.3.0                    the last commit, cut as this version
//   node ops/release/rehearse.js 0.3.0 --to /tmp/files    and keeps the files
//
// Clones this repository, installs what the lock file has, cuts the version (cut.js) unless the
// commit has it, commits and tags it in the clone, makes the files (release.js), and installs and
// uses them in an empty folder (smoke.js). Everything but the files is gone afterwards.

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { run, runWith } from './run.js';

const root = resolve(import.meta.dirname, '../..');
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { to: { type: 'string' } },
});
const [version] = positionals;
if (version === undefined) {
  console.error('rehearse: which version? node ops/release/rehearse.js 0.3.0');
  process.exit(64);
}

const work = mkdtempSync(join(tmpdir(), 'fanfare-rehearsal-'));
process.on('exit', () => rmSync(work, { recursive: true, force: true }));
const clone = join(work, 'fanfare');
const startedAt = Date.now();
/** @param {string} text */
const say = (text) =>
  console.log(`rehearse, ${((Date.now() - startedAt) / 1000).toFixed(0)} s: ${text}`);

run(work, 'git', 'clone', '--quiet', root, clone);
say(`a clone of ${run(clone, 'git', 'rev-parse', '--short', 'HEAD')}`);
run(clone, 'npm', 'ci', '--prefer-offline', '--no-audit', '--no-fund', '--silent');
say('npm ci');
const manifest = JSON.parse(readFileSync(join(clone, 'package.json'), 'utf8'));
if (manifest.version !== version) {
  run(clone, process.execPath, 'ops/release/cut.js', version);
  // The tables of the documentation may name the version.
  run(clone, 'npm', 'run', '--silent', 'docs');
  const author = ['-c', 'user.name=rehearsal', '-c', 'user.email=rehearsal@localhost'];
  run(clone, 'git', ...author, 'commit', '--quiet', '--all', `--message=release: ${version}`);
  say(`version ${version}`);
}
run(clone, 'git', 'tag', '--force', `v${version}`);
// The tools that ops/helm/check.sh has built.
const tools = 'node_modules/.cache/helm-tools';
mkdirSync(join(clone, 'node_modules/.cache'), { recursive: true });
try {
  cpSync(join(root, tools), join(clone, tools), { recursive: true });
} catch (error) {
  if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'ENOENT') throw error;
}

const release = join(work, 'release');
/** @type {import('node:child_process').SpawnSyncOptions} */
const show = { cwd: clone, stdio: ['ignore', 'inherit', 'inherit'] };
const commit = ['--commit', `v${version}`, '--to', release];
runWith(show, process.execPath, 'ops/release/release.js', ...commit);
say('the files');
runWith(show, process.execPath, 'ops/release/smoke.js', release);
say('installed and used');
if (values.to !== undefined) cpSync(release, resolve(values.to), { recursive: true });
