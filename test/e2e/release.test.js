// release.test.js: the script that makes the files of a release, on the last commit.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse } from 'yaml';
import { manifest, PACKAGES, root } from '../helpers/packed.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const SCRIPT = `${root}ops/release/release.js`;
const noDpkg = spawnSync('dpkg-deb', ['--version']).error !== undefined;
const noGit = existsSync(`${root}.git`) ? false : 'this is no clone';

/** @param {string[]} args */
const release = (...args) =>
  spawnSync(process.execPath, [SCRIPT, ...args], { encoding: 'utf8', timeout: 590_000 });

test('a release has each package, two SBOMs, its provenance and checksums, and can be installed and used', {
  timeout: 900_000,
  skip: noGit,
}, async (t) => {
  const out = join(temporaryFolder(t), 'release');
  const { status, stdout, stderr } = release('--to', out, '--unreleased', '--no-site');
  assert.equal(status, 0, stderr);
  assert.match(stdout, /are equal\. Nothing is published\./);
  const base = `fanfare-${manifest.version}`;
  const tarballs = Object.keys(PACKAGES).map((name) => `${name}-${manifest.version}.tgz`);
  const chart = `fanfare-chart-${manifest.version}.tgz`;
  const deb = noDpkg ? [] : [`fanfare_${manifest.version}_all.deb`];
  const packages = [...tarballs, chart, ...deb];
  const sboms = [`${base}.cdx.json`, `${base}.spdx.json`];
  const names = [...packages, ...sboms, 'provenance.json'];
  const image = `fanfare-image-${manifest.version}.tar`;
  const present = readdirSync(out).filter((name) => name !== image);
  assert.deepEqual(present.sort(), [...names, 'SHA256SUMS'].sort());

  const read = (/** @type {string} */ name) => readFileSync(join(out, name));
  const sha256 = (/** @type {string} */ name) =>
    createHash('sha256').update(read(name)).digest('hex');
  const sums = String(read('SHA256SUMS')).split('\n');
  for (const name of names) assert.ok(sums.includes(`${sha256(name)}  ${name}`), name);

  const { metadata, components } = JSON.parse(String(read(`${base}.cdx.json`)));
  assert.equal(metadata.component.name, 'fanfare');
  const parts = components.map((/** @type {{name: string}} */ { name }) => name);
  for (const name of Object.keys(manifest.dependencies)) assert.ok(parts.includes(name), name);
  for (const name of ['typescript', 'artillery', 'esbuild']) assert.ok(!parts.includes(name), name);
  const spdx = JSON.parse(String(read(`${base}.spdx.json`)));
  assert.equal(spdx.packages.length, components.length + 1);

  const { subject, predicate } = JSON.parse(String(read('provenance.json')));
  assert.deepEqual(
    subject.map((/** @type {{digest: {sha256: string}}} */ { digest }) => digest.sha256),
    packages.map(sha256),
  );
  const head = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' });
  assert.equal(predicate.buildDefinition.externalParameters.commit, head.stdout.trim());

  await t.test('the files are installed in an empty folder, and used', () => {
    const script = `${root}ops/release/smoke.js`;
    const smoke = spawnSync(process.execPath, [script, out], {
      encoding: 'utf8',
      timeout: 280_000,
    });
    assert.equal(smoke.status, 0, smoke.stdout + smoke.stderr);
    for (const line of [
      /have the checksums/,
      /fanfare-server published, fanfare-client received/,
      /fanfare-ai wrote a run and read it/,
      /the server has drained/,
      /the chart (renders \d+ objects|is not tried)/,
      /the \.deb(: installed, run, drained, removed, purged| is not tried)|there is no \.deb/,
    ])
      assert.match(smoke.stdout, line);
    t.diagnostic(smoke.stdout);
  });

  await t.test('a file that was replaced is refused', () => {
    writeFileSync(join(out, chart), 'evil');
    const script = `${root}ops/release/smoke.js`;
    const smoke = spawnSync(process.execPath, [script, out], { encoding: 'utf8' });
    assert.equal(smoke.status, 1);
    assert.match(smoke.stderr, /fanfare-chart-.*FAILED/);
  });
});

/** @typedef {{name?: string, id?: string, run?: string, uses?: string, env?: object}} Step */
/** @typedef {{needs?: string|string[], outputs?: object, permissions: Record<string, string>, steps: Step[]}} Job */

/** @param {string} [name] @returns {{permissions: {}, jobs: Record<string, Job>}} */
const workflow = (name = 'github-actions') =>
  parse(readFileSync(`${root}ops/release/${name}.yml`, 'utf8'));
/** @param {Job} job */
const commandsOf = ({ steps }) => steps.flatMap(({ run }) => run?.trim().split('\n') ?? []);

test('the workflow for a release runs scripts that exist, and publishes after the tests', () => {
  const { jobs } = workflow();
  for (const command of Object.values(jobs).flatMap(commandsOf)) {
    const script = /^npm run ([\w:]+)/.exec(command)?.[1];
    if (script !== undefined) assert.ok(script in manifest.scripts, script);
    const path = /^node (\S+\.js)/.exec(command)?.[1];
    if (path !== undefined) assert.ok(existsSync(root + path), path);
    const ci = /^\.ci\/\w+$/.exec(command)?.[0];
    if (ci !== undefined) accessSync(root + ci, constants.X_OK);
  }
  assert.deepEqual(commandsOf(jobs.nodes), ['.ci/nodes']);
  assert.ok(commandsOf(jobs.test).includes('npm test'));
  assert.ok(commandsOf(jobs.pack).includes('node ops/release/release.js'));
  assert.deepEqual(jobs.publish.needs, ['test', 'nodes', 'pack']);
  const published = commandsOf(jobs.publish).filter((one) => one.startsWith('npm publish'));
  assert.equal(published.length, Object.keys(PACKAGES).length);
  for (const command of published) assert.match(command, /--provenance/);
});

test('no job of the workflow that may write runs code of the repository or of dependencies', () => {
  const { permissions, jobs } = workflow();
  assert.deepEqual(permissions, {});
  const mayWrite = Object.values(jobs).filter((job) =>
    Object.values(job.permissions).includes('write'),
  );
  assert.equal(mayWrite.length, 1);
  assert.deepEqual(mayWrite[0].permissions, {
    contents: 'write',
    'id-token': 'write',
    packages: 'write',
  });
  for (const command of commandsOf(mayWrite[0]))
    assert.match(
      command,
      /^(cd release && echo "\$SUMS|sha256sum --check|test "\$\(ls|npm publish .* --ignore-scripts$|echo "\$GH_TOKEN" \| (skopeo|helm registry) login|skopeo copy|helm push|tar -xzOf|gh release create) ?/,
    );
  for (const { uses } of mayWrite[0].steps) assert.doesNotMatch(uses ?? '', /^actions\/checkout/);
});

test('the workflow publishes only files whose checksums reached it by another way', (t) => {
  const { jobs } = workflow();
  const { run = '', env } = jobs.publish.steps.find(({ name }) => name === 'Check the files') ?? {};
  assert.deepEqual(env, { SUMS: `\${{ needs.pack.outputs.sums }}` });
  assert.deepEqual(jobs.pack.outputs, { sums: `\${{ steps.pack.outputs.sums }}` });
  const pack = jobs.pack.steps.find(({ id }) => id === 'pack')?.run ?? '';
  const [, output] = /\n(echo "sums=.*)/.exec(pack) ?? [];
  const cwd = temporaryFolder(t);
  const folder = join(cwd, 'release');
  mkdirSync(folder);
  const sh = (/** @type {string} */ script, /** @type {Record<string, string>} */ more) =>
    // As GitHub runs it.
    spawnSync('bash', ['-eo', 'pipefail', '-c', script], {
      ...{ cwd, encoding: 'utf8', env: { ...process.env, ...more } },
    });
  const write = (/** @type {Record<string, string>} */ files) => {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const { stdout } = spawnSync('sha256sum', Object.keys(files), {
      cwd: folder,
      encoding: 'utf8',
    });
    writeFileSync(join(folder, 'SHA256SUMS'), stdout);
  };
  write({ 'a.tgz': 'a', 'b.json': 'b' });
  assert.equal(sh(output, { GITHUB_OUTPUT: join(cwd, 'output') }).status, 0);
  const [, SUMS] = /^sums=([0-9a-f]{64})$/m.exec(readFileSync(join(cwd, 'output'), 'utf8')) ?? [];
  assert.equal(sh(run, { SUMS }).status, 0, 'the files of pack');
  write({ 'a.tgz': 'evil', 'b.json': 'b' });
  assert.notEqual(sh(run, { SUMS }).status, 0, 'a replaced file with its checksum');
  write({ 'a.tgz': 'a', 'b.json': 'b' });
  writeFileSync(join(folder, 'a.tgz'), 'evil');
  assert.notEqual(sh(run, { SUMS }).status, 0, 'a replaced file');
  write({ 'a.tgz': 'a', 'b.json': 'b' });
  writeFileSync(join(folder, 'c.tgz'), 'evil');
  assert.notEqual(sh(run, { SUMS }).status, 0, 'a further file');
  assert.notEqual(sh(run, { SUMS: '' }).status, 0, 'no output of pack');
});

test('the workflow of the site builds it with its script, and deploys without code of the repository', () => {
  const { permissions, jobs } = workflow('github-pages');
  assert.deepEqual(permissions, {});
  assert.deepEqual(jobs.build.permissions, { contents: 'read' });
  const [command] = commandsOf(jobs.build);
  assert.match(command, /^SITE_URL="[^"]+\/" npm run site$/);
  assert.ok('site' in manifest.scripts);
  const { stdout } = spawnSync('bash', ['-c', `${command.split(' ')[0]} && echo "$SITE_URL"`], {
    encoding: 'utf8',
    env: { GITHUB_REPOSITORY_OWNER: 'fanfare', GITHUB_REPOSITORY: 'fanfare/server' },
  });
  assert.equal(stdout, 'https://fanfare.github.io/server/\n');
  assert.equal(jobs.deploy.needs, 'build');
  assert.deepEqual(jobs.deploy.permissions, { pages: 'write', 'id-token': 'write' });
  assert.deepEqual(commandsOf(jobs.deploy), []);
  for (const { uses } of jobs.deploy.steps) assert.match(uses ?? '', /^actions\/deploy-pages@/);
});

test('the workflows name each action by the hash of a commit', () => {
  const actions = ['github-actions', 'github-pages'].flatMap((name) =>
    Object.values(workflow(name).jobs).flatMap(({ steps }) =>
      steps.flatMap(({ uses }) => uses ?? []),
    ),
  );
  assert.ok(actions.length > 0);
  for (const action of actions) assert.match(action, /^actions\/[\w-]+@[0-9a-f]{40}$/);
});
