#!/usr/bin/env node
// release.js: makes the files of a release from a commit. It publishes nothing.
//
//   npm ci && node ops/release/release.js           into release/
//   node ops/release/release.js --to /tmp/out --commit v0.2.0
//
// 1. Exports the commit twice, and packs the server and the client in both. The tarballs have to be
//    equal byte for byte.
// 2. Writes the SBOM of the production dependencies from package-lock.json, as CycloneDX and SPDX.
// 3. Writes provenance.json: from which commit, lock file, Node and npm the tarballs were made. It is
//    not signed. `npm publish --provenance` in CI signs a statement of its own (README.md).
// 4. Writes SHA256SUMS over all of them.
//
// Uncommitted changes are not in the release. The script refuses a version without a heading in
// CHANGELOG.md. It uses node_modules of the checkout for tsc and esbuild.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

const root = resolve(import.meta.dirname, '../..');
const { values } = parseArgs({
  options: {
    to: { type: 'string', default: join(root, 'release') },
    commit: { type: 'string', default: 'HEAD' },
    // For a test, and for a look before the version is set.
    unreleased: { type: 'boolean', default: false },
  },
});

/**
 * @param {string} cwd
 * @param {string} command
 * @param {...string} args
 * @returns {string} its output
 */
function run(cwd, command, ...args) {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    cwd,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  if (status === 0) return stdout.trim();
  throw new Error(`${command} ${args.join(' ')}: ${error?.message ?? stderr}`);
}

/** @param {string} algorithm @param {string} path */
const digest = (algorithm, path) => createHash(algorithm).update(readFileSync(path)).digest('hex');

/** Packages of their own, with the version of the server. */
const LIBRARIES = ['src/client', 'src/sdk', 'src/ai'];

/**
 * Exports the commit to a folder and packs the server and the libraries there.
 * @param {string} work
 * @param {string} commit
 * @returns {{source: string, tarballs: string[]}} the server's first
 */
function packIn(work, commit) {
  // npm takes the name of the SBOM from the folder.
  const source = join(work, 'fanfare');
  mkdirSync(source, { recursive: true });
  run(root, 'git', 'archive', '--format=tar', `--output=${work}/source.tar`, commit);
  run(source, 'tar', '-xf', '../source.tar');
  symlinkSync(join(root, 'node_modules'), join(source, 'node_modules'));
  const options = ['--silent', '--ignore-scripts=false', `--pack-destination=${work}`];
  const tarballs = ['', ...LIBRARIES].map((folder) => {
    const path = join(source, folder);
    const { name, version } = manifestOf(path);
    run(path, 'npm', 'pack', ...options);
    return join(work, `${name}-${version}.tgz`);
  });
  return { source, tarballs };
}

/** @param {string} folder */
const manifestOf = (folder) => JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));

const startedOn = new Date().toISOString();
const work = mkdtempSync(join(tmpdir(), 'fanfare-release-'));
process.on('exit', () => rmSync(work, { recursive: true, force: true }));

const commit = run(root, 'git', 'rev-parse', `${values.commit}^{commit}`);
const { source, tarballs } = packIn(join(work, 'first'), commit);
const again = packIn(join(work, 'second'), commit);
for (const [index, tarball] of tarballs.entries()) {
  if (digest('sha512', tarball) !== digest('sha512', again.tarballs[index]))
    throw new Error(`two builds of the commit differ: ${basename(tarball)} is not reproducible`);
}

const { name, version, repository } = manifestOf(source);
const changelog = readFileSync(join(source, 'CHANGELOG.md'), 'utf8');
if (!values.unreleased && !changelog.includes(`\n## ${version} `))
  throw new Error(`CHANGELOG.md has no heading "## ${version} – date" (--unreleased: go on)`);

const out = resolve(values.to);
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
/** @type {string[]} */
const files = [];

/** @param {string} file @param {string|Buffer} content */
function save(file, content) {
  writeFileSync(join(out, file), content);
  files.push(file);
}

/**
 * A folder with the manifest and the lock of what production installs. `npm sbom --omit=dev` leaves
 * out packages that development needs, too, and what they depend on.
 * @param {string} source
 */
function productionOf(source) {
  // npm takes the name of the SBOM from the folder.
  const folder = join(source, '../production/fanfare');
  mkdirSync(folder, { recursive: true });
  const [manifest, lock] = ['package.json', 'package-lock.json'].map((file) =>
    JSON.parse(readFileSync(join(source, file), 'utf8')),
  );
  delete manifest.devDependencies;
  delete lock.packages[''].devDependencies;
  for (const [path, { dev, devOptional }] of Object.entries(lock.packages))
    if (dev || devOptional) delete lock.packages[path];
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  writeFileSync(join(folder, 'package-lock.json'), JSON.stringify(lock));
  return folder;
}

const base = `${name}-${version}`;
for (const tarball of tarballs) save(basename(tarball), readFileSync(tarball));
const production = productionOf(source);
for (const [format, ending] of [
  ['cyclonedx', 'cdx.json'],
  ['spdx', 'spdx.json'],
]) {
  const options = ['--omit=dev', '--package-lock-only', `--sbom-format=${format}`];
  save(`${base}.${ending}`, `${run(production, 'npm', 'sbom', ...options)}\n`);
}

// In-toto statement v1 with a SLSA provenance v1, https://slsa.dev/spec/v1.0/provenance
const statement = {
  _type: 'https://in-toto.io/Statement/v1',
  subject: tarballs.map((tarball) => ({
    name: `pkg:npm/${basename(tarball, `-${version}.tgz`)}@${version}`,
    digest: { sha256: digest('sha256', tarball), sha512: digest('sha512', tarball) },
  })),
  predicateType: 'https://slsa.dev/provenance/v1',
  predicate: {
    buildDefinition: {
      buildType: `${repository.url}#ops/release/release.js`,
      externalParameters: { commit },
      internalParameters: { node: process.version, npm: run(source, 'npm', '--version') },
      resolvedDependencies: [
        { uri: repository.url, digest: { gitCommit: commit } },
        {
          uri: 'package-lock.json',
          digest: { sha256: digest('sha256', join(source, 'package-lock.json')) },
        },
      ],
    },
    runDetails: {
      builder: { id: process.env.GITHUB_ACTIONS ? 'GitHub Actions' : 'a local checkout' },
      metadata: { startedOn },
    },
  },
};
save('provenance.json', `${JSON.stringify(statement, null, 2)}\n`);
save('SHA256SUMS', files.map((file) => `${digest('sha256', join(out, file))}  ${file}\n`).join(''));

console.log(`${files.join('\n')}\n`);
console.log(`Two builds of ${commit.slice(0, 12)} are equal. Nothing is published.`);
for (const tarball of tarballs) {
  const path = join(out, basename(tarball));
  console.log(`To publish: npm publish ${path} --provenance --access public`);
}
