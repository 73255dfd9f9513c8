#!/usr/bin/env node
// release.js: makes the files of a release from a commit. It publishes nothing.
//
//   npm ci && node ops/release/release.js           into release/
//   node ops/release/release.js --to /tmp/out --commit v0.2.0
//
// 1. Exports the commit twice, and makes the npm packages, the chart and the .deb in both. Each pair
//    has to be equal byte for byte.
// 2. Builds the site of docs/, and the image if a Docker engine runs.
// 3. Writes the SBOM of the production dependencies from package-lock.json, as CycloneDX and SPDX.
// 4. Writes provenance.json: from which commit, lock file, Node and npm the packages were made. It is
//    not signed. `npm publish --provenance` in CI signs a statement of its own (README.md).
// 5. Writes SHA256SUMS over all of them.
//
// smoke.js installs and uses them; rehearse.js does everything from a clean clone. Uncommitted
// changes are not in the release. The script refuses a version without a heading in CHANGELOG.md.
// It uses node_modules of the checkout for tsc and esbuild, and says what a missing tool leaves out.

import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { buildDeb } from './deb.js';
import { hasCommand, run, runWith } from './run.js';

const root = resolve(import.meta.dirname, '../..');
const { values } = parseArgs({
  options: {
    to: { type: 'string', default: join(root, 'release') },
    commit: { type: 'string', default: 'HEAD' },
    // For a test, and for a look before the version is set.
    unreleased: { type: 'boolean', default: false },
    // The site takes half a minute; its own test builds it.
    'no-site': { type: 'boolean', default: false },
  },
});

/** @param {string} algorithm @param {string} path */
const digest = (algorithm, path) => createHash(algorithm).update(readFileSync(path)).digest('hex');

/** Packages of their own, with the version of the server. */
const LIBRARIES = ['src/client', 'src/sdk', 'src/ai'];

/**
 * Exports the commit to a folder and makes the packages there.
 * @param {string} work
 * @returns {{source: string, packages: string[]}} the server's package first
 */
function packIn(work) {
  // npm takes the name of the SBOM from the folder.
  const source = join(work, 'fanfare');
  mkdirSync(source, { recursive: true });
  run(root, 'git', 'archive', '--format=tar', `--output=${work}/source.tar`, commit);
  run(source, 'tar', '-xf', '../source.tar');
  symlinkSync(join(root, 'node_modules'), join(source, 'node_modules'));
  const options = ['--silent', '--ignore-scripts=false', `--pack-destination=${work}`];
  const packages = ['', ...LIBRARIES].map((folder) => {
    const path = join(source, folder);
    const { name, version } = manifestOf(path);
    run(path, 'npm', 'pack', ...options);
    return join(work, `${name}-${version}.tgz`);
  });
  packages.push(packChart(source, work));
  if (hasCommand('dpkg-deb')) {
    const deb = join(work, 'deb');
    mkdirSync(deb);
    const modules = join(installed, 'node_modules');
    packages.push(buildDeb({ source, tarball: packages[0], modules, work: deb, epochS }));
  }
  return { source, packages };
}

/** @param {string} source @param {string} work */
function packChart(source, work) {
  const { version } = manifestOf(source);
  // npm's package of the server is called fanfare-VERSION.tgz.
  const file = join(work, `fanfare-chart-${version}.tgz`);
  const folder = join(source, 'ops/helm');
  // The rules are links to ops/prometheus/. ci/ has the test cases, which .helmignore names.
  packFolder(folder, 'fanfare', file, '--dereference', '--exclude=fanfare/ci');
  return file;
}

/**
 * A tarball that depends on nothing but the files, their names and the commit.
 * @param {string} cwd @param {string} folder @param {string} file @param {string[]} options
 */
function packFolder(cwd, folder, file, ...options) {
  const same = ['--sort=name', '--owner=0', '--group=0', '--numeric-owner', '--mode=u=rwX,go=rX'];
  const env = { ...process.env, GZIP: '-n' };
  const more = [`--mtime=@${epochS}`, '--format=ustar', ...options, '-czf', file, folder];
  runWith({ cwd, env }, 'tar', ...same, ...more);
}

/** @param {string} folder */
const manifestOf = (folder) => JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));

const startedOn = new Date().toISOString();
const work = mkdtempSync(join(tmpdir(), 'fanfare-release-'));
process.on('exit', () => rmSync(work, { recursive: true, force: true }));

const commit = run(root, 'git', 'rev-parse', `${values.commit}^{commit}`);
const epochS = Number(run(root, 'git', 'show', '--no-patch', '--format=%ct', commit));
const installed = installProduction();
const { source, packages } = packIn(join(work, 'first'));
const again = packIn(join(work, 'second'));
for (const [index, file] of packages.entries()) {
  if (digest('sha512', file) !== digest('sha512', again.packages[index]))
    throw new Error(`two builds of the commit differ: ${basename(file)} is not reproducible`);
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
 * A folder with the manifest and the lock of what production installs, and with node_modules.
 * `npm sbom --omit=dev` leaves out packages that development needs, too, and what they depend on.
 */
function installProduction() {
  // npm takes the name of the SBOM from the folder.
  const folder = join(work, 'production/fanfare');
  mkdirSync(folder, { recursive: true });
  const [manifest, lock] = ['package.json', 'package-lock.json'].map((file) =>
    JSON.parse(run(root, 'git', 'show', `${commit}:${file}`)),
  );
  delete manifest.devDependencies;
  delete lock.packages[''].devDependencies;
  for (const [path, { dev, devOptional }] of Object.entries(lock.packages))
    if (dev || devOptional) delete lock.packages[path];
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  writeFileSync(join(folder, 'package-lock.json'), JSON.stringify(lock));
  const options = ['--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline', '--silent'];
  run(folder, 'npm', 'ci', ...options);
  return folder;
}

/** Builds the site of docs/, which has an install of its own. @returns {string} its tarball, or '' */
function packSite() {
  const built = join(source, 'site');
  if (values['no-site'] || !('site' in manifestOf(source).scripts)) {
    console.log('The site is left out.');
    return '';
  }
  runWith({ cwd: source, stdio: ['ignore', 'pipe', 'inherit'] }, 'npm', 'run', '--silent', 'site');
  const file = join(work, `fanfare-site-${version}.tgz`);
  packFolder(built, '.', file);
  return file;
}

/**
 * Builds the image with its SBOM and provenance, for the platform of this machine.
 * @returns {string} an OCI archive; '' if no engine runs here
 */
function packImage() {
  if (!hasCommand('docker', 'info') || !hasCommand('docker', 'buildx', 'version')) {
    console.log(
      'The image is left out: no Docker engine. docker/check.sh --by-hand runs its steps.',
    );
    return '';
  }
  // Docker's own builder writes no OCI archives.
  const builder = 'fanfare-release';
  if (!hasCommand('docker', 'buildx', 'inspect', builder))
    run(root, 'docker', 'buildx', 'create', '--name', builder, '--driver', 'docker-container');
  const file = join(work, `fanfare-image-${version}.tar`);
  const labels = [`--build-arg=VERSION=${version}`, `--build-arg=REVISION=${commit}`];
  const attested = ['--sbom=true', '--provenance=mode=max'];
  const target = ['--target=server', '--file=docker/Dockerfile', `--output=type=oci,dest=${file}`];
  const args = [`--builder=${builder}`, ...labels, ...attested, ...target, '.'];
  const env = { ...process.env, SOURCE_DATE_EPOCH: String(epochS) };
  runWith({ cwd: source, env }, 'docker', 'buildx', 'build', ...args);
  return file;
}

const base = `${name}-${version}`;
if (!hasCommand('dpkg-deb')) console.log('The .deb is left out: no dpkg-deb.');
for (const file of [...packages, packSite(), packImage()])
  if (file !== '') save(basename(file), readFileSync(file));
for (const [format, ending] of [
  ['cyclonedx', 'cdx.json'],
  ['spdx', 'spdx.json'],
]) {
  const options = ['--omit=dev', '--package-lock-only', `--sbom-format=${format}`];
  save(`${base}.${ending}`, `${run(installed, 'npm', 'sbom', ...options)}\n`);
}

/** A package URL for npm's packages, and the name of the file for the others. @param {string} file */
const nameOf = (file) =>
  /^fanfare(-client|-server|-ai)?-\d/.test(file)
    ? `pkg:npm/${file.slice(0, -`-${version}.tgz`.length)}@${version}`
    : file;

// In-toto statement v1 with a SLSA provenance v1, https://slsa.dev/spec/v1.0/provenance
const statement = {
  _type: 'https://in-toto.io/Statement/v1',
  subject: packages.map((file) => ({
    name: nameOf(basename(file)),
    digest: { sha256: digest('sha256', file), sha512: digest('sha512', file) },
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
console.log(`To install and use all of it: node ops/release/smoke.js ${out}`);
