// deb.js: the package for Debian and Ubuntu, from the npm tarball and what production installs.
//
//   /usr/lib/fanfare           package.json, LICENSE, src/, node_modules/
//   /usr/bin/fanfare           the program; fanfare-settings runs it with the settings of the service
//   /usr/lib/systemd/system    ops/systemd/fanfare.service, for a user that the package creates
//   /etc/fanfare/fanfare.env   the settings, which an upgrade leaves as the administrator has them
//   /usr/share/doc/fanfare     README, docs/, CHANGELOG, copyright
//
// The scripts and texts are those of ops/debian/. Two builds of a commit are equal byte for byte.

import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { run, runWith } from './run.js';

const HOME = '/usr/lib/fanfare';
/** What differs from the unit of a source in /opt: DynamicUser has no files of its own in /etc. */
const UNIT_CHANGES = /** @type {const} */ ([
  [
    /^# fanfare\.service:[\s\S]*?\n\n/,
    '# Settings: /etc/fanfare/fanfare.env. To change this unit: systemctl edit fanfare\n\n',
  ],
  ['WorkingDirectory=/opt/fanfare\n', `WorkingDirectory=${HOME}\n`],
  ['DynamicUser=yes\nSupplementaryGroups=fanfare-secrets\n', 'User=fanfare\nGroup=fanfare\n'],
]);

/**
 * @param {object} parts
 * @param {string} parts.source the exported commit
 * @param {string} parts.tarball of npm
 * @param {string} parts.modules node_modules of production
 * @param {string} parts.work an empty folder
 * @param {number} parts.epochS time of the commit, the latest of any file
 * @returns {string} the path of the package
 */
export function buildDeb({ source, tarball, modules, work, epochS }) {
  const root = join(work, 'root');
  const at = (/** @type {string} */ path) => join(root, path);
  const debian = join(source, 'ops/debian');
  for (const path of ['DEBIAN', HOME, 'usr/bin', 'usr/lib/systemd/system', 'etc/fanfare'])
    mkdirSync(at(path), { recursive: true });
  run(work, 'tar', '-xzf', tarball);
  const npm = join(work, 'package');
  for (const name of ['package.json', 'LICENSE', 'src'])
    cpSync(join(npm, name), join(at(HOME), name), { recursive: true });
  cpSync(modules, at(`${HOME}/node_modules`), { recursive: true, verbatimSymlinks: true });
  // It has the paths of this machine's cache.
  rmSync(at(`${HOME}/node_modules/.package-lock.json`), { force: true });
  symlinkSync('../lib/fanfare/src/main.js', at('usr/bin/fanfare'));
  cpSync(join(debian, 'fanfare-settings'), at('usr/bin/fanfare-settings'));
  cpSync(join(debian, 'fanfare.env'), at('etc/fanfare/fanfare.env'));
  const unit = readFileSync(join(source, 'ops/systemd/fanfare.service'), 'utf8');
  writeFileSync(at('usr/lib/systemd/system/fanfare.service'), packagedUnit(unit));
  writeDocs(npm, at('usr/share/doc/fanfare'));
  // npm's tarballs have modes of their own; a group may not write.
  run(root, 'chmod', '-R', 'u=rwX,go=rX', '.');
  for (const path of [`${HOME}/src/main.js`, 'usr/bin/fanfare-settings'])
    chmodSync(at(path), 0o755);
  chmodSync(at('etc/fanfare'), 0o750);
  chmodSync(at('etc/fanfare/fanfare.env'), 0o640);
  const { version } = JSON.parse(readFileSync(join(npm, 'package.json'), 'utf8'));
  writeControl(debian, root, version);
  const file = join(work, `fanfare_${version}_all.deb`);
  const env = { ...process.env, SOURCE_DATE_EPOCH: String(epochS) };
  runWith({ cwd: work, env }, 'dpkg-deb', '--root-owner-group', '-Zxz', '--build', root, file);
  return file;
}

/** @param {string} unit of ops/systemd @throws {Error} if it has changed where the package needs it */
export function packagedUnit(unit) {
  let text = unit;
  for (const [from, to] of UNIT_CHANGES) {
    const changed = text.replace(from, to);
    if (changed === text) throw new Error(`ops/systemd/fanfare.service has no ${from}`);
    text = changed;
  }
  return text;
}

/** @param {string} npm the unpacked tarball @param {string} folder */
function writeDocs(npm, folder) {
  cpSync(join(npm, 'docs'), folder, { recursive: true });
  cpSync(join(npm, 'README.md'), join(folder, 'README.md'));
  cpSync(join(npm, 'LICENSE'), join(folder, 'copyright'));
  const changelog = readFileSync(join(npm, 'CHANGELOG.md'));
  writeFileSync(join(folder, 'changelog.gz'), gzipSync(changelog, { level: 9 }));
}

/** @param {string} debian @param {string} root @param {string} version */
function writeControl(debian, root, version) {
  const control = join(root, 'DEBIAN');
  const files = readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, path, name }) => join(parentPath ?? path, name))
    .sort();
  const sums = files.map((path) => `${md5(path)}  ${path.slice(root.length + 1)}\n`);
  writeFileSync(join(control, 'md5sums'), sums.join(''));
  writeFileSync(join(control, 'conffiles'), '/etc/fanfare/fanfare.env\n');
  const bytes = files.reduce((sum, path) => sum + statSync(path).size, 0);
  const text = readFileSync(join(debian, 'control'), 'utf8')
    .replace('VERSION', version)
    .replace('SIZE', String(Math.ceil(bytes / 1024)));
  writeFileSync(join(control, 'control'), text);
  for (const name of ['postinst', 'prerm', 'postrm']) {
    cpSync(join(debian, name), join(control, name));
    chmodSync(join(control, name), 0o755);
  }
}

/** @param {string} path */
const md5 = (path) => createHash('md5').update(readFileSync(path)).digest('hex');
