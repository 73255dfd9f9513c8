#!/usr/bin/env node
// cut.js: sets the version of everything that has it, and gives the changelog's entries that heading.
//
//   node ops/release/cut.js 0.3.0                 today, by UTC
//   node ops/release/cut.js 0.3.0 --date 2026-12-01
//
// It changes files and commits nothing. It refuses a version that is not later, a changelog without
// entries under "Unreleased", and a file of the table below that has the old version nowhere: then
// the table has to change.

import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

const root = resolve(import.meta.dirname, '../..');

/** Each file with the version, and what stands around it. @type {[string, string[]][]} */
const PLACES = [
  ['package.json', ['"version": "VERSION"']],
  [
    'package-lock.json',
    [
      '"name": "fanfare",\n  "version": "VERSION"',
      '"name": "fanfare",\n      "version": "VERSION"',
    ],
  ],
  ['src/client/package.json', ['"version": "VERSION"']],
  ['src/sdk/package.json', ['"version": "VERSION"']],
  ['src/ai/package.json', ['"version": "VERSION"']],
  ['docker/Dockerfile', ['ARG VERSION=VERSION']],
  ['ops/helm/fanfare/Chart.yaml', ['\nversion: VERSION\n', '\nappVersion: VERSION\n']],
  ['ops/kubernetes/deployment.yaml', ['ghcr.io/fanfare/fanfare:VERSION']],
  ['ops/kubernetes/kustomization.yaml', ['newTag: VERSION']],
  ['ops/kubernetes/README.md', ['/fanfare:VERSION']],
  ['docs/openapi.yaml', ['\n  version: VERSION\n']],
  ['docs/install.md', ['fanfare_VERSION_all.deb', 'fanfare-VERSION.tgz']],
  ['docs/deployment.md', ['fanfare-VERSION.tgz']],
  ['docs/client.md', ['fanfare-VERSION.tgz', 'fanfare-client-VERSION.tgz']],
  ['docs/server-sdk.md', ['fanfare-server-VERSION.tgz']],
  ['docs/tutorial.md', ['fanfare-VERSION.tgz']],
];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { date: { type: 'string', default: new Date().toISOString().slice(0, 10) } },
});
const [version = ''] = positionals;
const old = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version;
if (!/^\d+\.\d+\.\d+$/.test(version)) stop('which version? node ops/release/cut.js 0.3.0');
if (numberOf(version) <= numberOf(old)) stop(`${version} is not later than ${old}`);
if (!/^\d{4}-\d\d-\d\d$/.test(values.date)) stop(`--date: ${values.date} is not like 2026-12-01`);

/** @type {Map<string, string>} */
const changed = new Map();
for (const [path, patterns] of PLACES) {
  let text = readFileSync(join(root, path), 'utf8');
  for (const pattern of patterns) {
    const [from, to] = [old, version].map((one) => pattern.replace(/VERSION(?!=)/, one));
    if (!text.includes(from)) stop(`${path} has no ${JSON.stringify(from)}`);
    text = text.replaceAll(from, to);
  }
  changed.set(path, text);
}
const changelog = readFileSync(join(root, 'CHANGELOG.md'), 'utf8');
if (!/\n## Unreleased\n+(?!## )\S/.test(changelog))
  stop('CHANGELOG.md has no entries under "## Unreleased"');
const heading = `\n## ${version} - ${values.date}\n`;
changed.set('CHANGELOG.md', changelog.replace('\n## Unreleased\n', heading));

for (const [path, text] of changed) writeFileSync(join(root, path), text);
console.log(`${old} is now ${version} in ${changed.size} files. Look at git diff, and commit:`);
console.log(`  git commit -am "release: ${version}" && git tag v${version}`);

/** @param {string} text of a version @returns {number} */
function numberOf(text) {
  return text.split('.').reduce((sum, part) => sum * 1000 + Number(part), 0);
}

/** @param {string} fault @returns {never} */
function stop(fault) {
  console.error(`cut: ${fault}`);
  process.exit(64);
}
