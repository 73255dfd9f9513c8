// release.test.js: the script that makes the files of a release, on the last commit.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse } from 'yaml';
import { manifest, root } from '../helpers/packed.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const SCRIPT = `${root}ops/release/release.js`;
const noGit = existsSync(`${root}.git`) ? false : 'this is no clone';

/** @param {string[]} args */
const release = (...args) =>
  spawnSync(process.execPath, [SCRIPT, ...args], { encoding: 'utf8', timeout: 110_000 });

test('a release has the tarball, two SBOMs, its provenance and checksums', {
  timeout: 115_000,
  skip: noGit,
}, (t) => {
  const out = join(temporaryFolder(t), 'release');
  const { status, stdout, stderr } = release('--to', out, '--unreleased');
  assert.equal(status, 0, stderr);
  assert.match(stdout, /are equal\. Nothing is published\./);
  const base = `fanfare-${manifest.version}`;
  const names = [`${base}.tgz`, `${base}.cdx.json`, `${base}.spdx.json`, 'provenance.json'];
  assert.deepEqual(readdirSync(out).sort(), [...names, 'SHA256SUMS'].sort());

  const read = (/** @type {string} */ name) => readFileSync(join(out, name));
  const sha256 = (/** @type {string} */ name) =>
    createHash('sha256').update(read(name)).digest('hex');
  const sums = names.map((name) => `${sha256(name)}  ${name}\n`).join('');
  assert.equal(String(read('SHA256SUMS')), sums);

  const { metadata, components } = JSON.parse(String(read(`${base}.cdx.json`)));
  assert.equal(metadata.component.name, 'fanfare');
  const parts = components.map((/** @type {{name: string}} */ { name }) => name);
  for (const name of Object.keys(manifest.dependencies)) assert.ok(parts.includes(name), name);
  for (const name of ['typescript', 'artillery', 'esbuild']) assert.ok(!parts.includes(name), name);
  const { packages } = JSON.parse(String(read(`${base}.spdx.json`)));
  assert.equal(packages.length, components.length + 1);

  const { subject, predicate } = JSON.parse(String(read('provenance.json')));
  assert.equal(subject[0].digest.sha256, sha256(`${base}.tgz`));
  const head = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' });
  assert.equal(predicate.buildDefinition.externalParameters.commit, head.stdout.trim());
});

test('the workflow for a release runs scripts that exist, with the least rights', () => {
  const { permissions, jobs } = parse(
    readFileSync(`${root}ops/release/github-actions.yml`, 'utf8'),
  );
  assert.deepEqual(permissions, {});
  const { steps, permissions: rights } = jobs.release;
  assert.deepEqual(rights, { contents: 'write', 'id-token': 'write' });
  const commands = steps.flatMap((/** @type {{run?: string}} */ { run }) => run ?? []);
  for (const command of commands) {
    const script = /^npm run ([\w:]+)/.exec(command)?.[1];
    if (script !== undefined) assert.ok(script in manifest.scripts, script);
    const path = /^node (\S+\.js)/.exec(command)?.[1];
    if (path !== undefined) assert.ok(existsSync(root + path), path);
  }
  const publish = commands.findIndex((/** @type {string} */ one) => one.startsWith('npm publish'));
  assert.ok(commands.indexOf('npm test') < publish);
  assert.match(commands[publish], /--provenance/);
});
