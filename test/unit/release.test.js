// release.test.js: what a release says of itself in many files, and the parts of the .deb, without
// building anything. test/e2e/release.test.js builds, installs and uses all of it.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { packagedUnit } from '../../ops/release/deb.js';
import { loadConfig, parseConfigFile } from '../../src/config/config.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (/** @type {string} */ path) => readFileSync(root + path, 'utf8');
const { version } = JSON.parse(read('package.json'));
const CUT = 'ops/release/cut.js';

/**
 * The files that cut.js changes, in a folder of their own.
 * @param {import('node:test').TestContext} t
 */
function copyOf(t) {
  const folder = temporaryFolder(t);
  const listed = [...read(CUT).matchAll(/^ {2,4}'?\[?'([\w./-]+)'/gm)].map(([, path]) => path);
  const places = [...read(CUT).matchAll(/\['([\w./-]+)', \[/g)].map(([, path]) => path);
  for (const path of new Set([...listed, ...places, CUT, 'package-lock.json', 'CHANGELOG.md'])) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    cpSync(root + path, join(folder, path));
  }
  return folder;
}

/** @param {string} folder @param {string[]} args */
const cut = (folder, ...args) =>
  spawnSync(process.execPath, [join(folder, CUT), ...args], { encoding: 'utf8' });

test('cut.js sets the version in each file, and gives the changelog its heading', (t) => {
  const folder = copyOf(t);
  const changelog =
    '# Changelog\n\n## Unreleased\n\n### Added\n\n- One.\n\n## 0.1.0 - 2020-01-01\n';
  writeFileSync(join(folder, 'CHANGELOG.md'), changelog);
  const { status, stdout, stderr } = cut(folder, '99.1.0', '--date', '2026-12-01');
  assert.equal(status, 0, stderr);
  assert.match(stdout, /is now 99\.1\.0 in \d\d files/);
  const now = (/** @type {string} */ path) => readFileSync(join(folder, path), 'utf8');
  assert.match(now('CHANGELOG.md'), /^# Changelog\n\n## 99\.1\.0 - 2026-12-01\n\n### Added\n/);
  for (const path of ['package.json', 'src/client/package.json', 'src/sdk/package.json'])
    assert.equal(JSON.parse(now(path)).version, '99.1.0', path);
  const lock = JSON.parse(now('package-lock.json'));
  assert.deepEqual([lock.version, lock.packages[''].version], ['99.1.0', '99.1.0']);
  assert.match(now('docker/Dockerfile'), /^ARG VERSION=99\.1\.0$/m);
  assert.match(now('docs/install.md'), /fanfare_99\.1\.0_all\.deb/);
});

test('cut.js refuses an earlier version, and a changelog without entries', (t) => {
  const folder = copyOf(t);
  for (const [args, message] of /** @type {[string[], RegExp][]} */ ([
    [[], /which version/],
    [['1.0'], /which version/],
    [[version], /is not later than/],
    [['0.0.1'], /is not later than/],
    [['99.0.0', '--date', 'today'], /--date/],
  ])) {
    const { status, stderr } = cut(folder, ...args);
    assert.equal(status, 64, args.join(' '));
    assert.match(stderr, message);
  }
  writeFileSync(
    join(folder, 'CHANGELOG.md'),
    '# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2020-01-01\n',
  );
  assert.match(cut(folder, '99.0.0').stderr, /no entries under "## Unreleased"/);
});

test('the unit of the .deb differs in its folder and its user only', () => {
  const unit = read('ops/systemd/fanfare.service');
  const lines = (/** @type {string} */ text) =>
    text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  const packaged = lines(packagedUnit(unit));
  const added = packaged.filter((line) => !lines(unit).includes(line));
  assert.deepEqual(added, ['WorkingDirectory=/usr/lib/fanfare', 'User=fanfare', 'Group=fanfare']);
  const gone = lines(unit).filter((line) => !packaged.includes(line));
  assert.deepEqual(gone, [
    'WorkingDirectory=/opt/fanfare',
    'DynamicUser=yes',
    'SupplementaryGroups=fanfare-secrets',
  ]);
  assert.throws(() => packagedUnit(unit.replace('DynamicUser', 'Dynamic')), /has no/);
});

test('the settings of the .deb are valid, and ask for tokens', (t) => {
  const key = join(temporaryFolder(t), 'jwt-secret');
  writeFileSync(key, 'k'.repeat(64));
  const text = read('ops/debian/fanfare.env').replace('/etc/fanfare/jwt-secret', key);
  const { env, faults: unread } = parseConfigFile(text);
  assert.deepEqual(unread, []);
  const { config, faults } = loadConfig(env);
  assert.deepEqual(faults, []);
  assert.equal(config?.auth, 'required');
  // Each line of an example is a setting, too.
  const examples = text.replace(/^#(?=[A-Z_]+=)/gm, '');
  const names = Object.keys(parseConfigFile(examples).env);
  assert.ok(names.length >= 7);
  for (const name of names) assert.match(name.replace(/_FILE$/, ''), /^[A-Z_]+$/);
});
