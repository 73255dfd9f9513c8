// packed.js: the package as npm packs it, installed in a folder of its own.
//
// npm takes the dependencies from its cache, or from the registry. Without either, it links those of
// this checkout and reports that.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from './temporary-folder.js';

export const root = fileURLToPath(new URL('../../', import.meta.url));
export const manifest = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));
const TIMEOUT_MS = 120_000;
/** The folder of each package. */
export const PACKAGES = Object.freeze({
  fanfare: '',
  'fanfare-client': 'src/client',
  'fanfare-server': 'src/sdk',
  'fanfare-ai': 'src/ai',
});

/** @typedef {keyof typeof PACKAGES} PackageName */

/** @param {string} cwd @param {string} command @param {string[]} args */
export function run(cwd, command, ...args) {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd,
    encoding: 'utf8',
    timeout: TIMEOUT_MS,
    env: { ...process.env, npm_config_update_notifier: 'false' },
  });
  return { status, stdout, stderr };
}

/**
 * Packs a copy of this checkout, or a library in it.
 * @param {import('node:test').TestContext} t
 * @param {PackageName} [name]
 * @returns {{tarball: string, files: string[], home: string}} its path, the paths in it, and an
 *   empty folder
 */
export function pack(t, name = 'fanfare') {
  const folder = temporaryFolder(t);
  const copy = join(folder, 'copy');
  const home = join(folder, 'home');
  mkdirSync(home);
  const ignored = ['node_modules', '.git', 'types', 'results'];
  cpSync(root, copy, { recursive: true, filter: (path) => !ignored.includes(basename(path)) });
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
  const options = ['--silent', '--ignore-scripts=false', `--pack-destination=${folder}`];
  const packed = run(join(copy, PACKAGES[name]), 'npm', 'pack', ...options);
  assert.equal(packed.status, 0, packed.stdout + packed.stderr);
  const tarball = join(folder, `${name}-${manifest.version}.tgz`);
  const { stdout } = run(folder, 'tar', '-tzf', tarball);
  const files = stdout.trim().split('\n');
  return { tarball, files: files.map((path) => path.slice('package/'.length)), home };
}

/**
 * Packs a library and installs it alone, in an empty folder.
 * @param {import('node:test').TestContext} t @param {PackageName} name
 */
export function installAlone(t, name) {
  const { tarball, files, home } = pack(t, name);
  writeFileSync(join(home, 'package.json'), '{"private":true,"type":"module"}\n');
  const added = run(home, 'npm', 'install', '--offline', '--no-audit', tarball);
  assert.equal(added.status, 0, added.stderr);
  assert.deepEqual(
    readdirSync(join(home, 'node_modules')).filter((one) => !one.startsWith('.')),
    [name],
  );
  return { tarball, files, home };
}

/**
 * Packs this checkout and installs the tarball in a folder of its own.
 * @param {import('node:test').TestContext} t
 * @param {string[]} [others] packages to install, too; each is a dependency of Fanfare
 * @returns {{home: string, files: string[], tarball: string}} the folder, and the paths in the tarball
 */
export function install(t, others = []) {
  const { tarball, files, home } = pack(t);
  writeFileSync(join(home, 'package.json'), '{"name":"home","private":true,"type":"module"}\n');
  const options = ['--prefer-offline', '--ignore-scripts', '--no-audit', '--no-fund'];
  const installed = run(
    home,
    'npm',
    'install',
    ...options,
    '--fetch-retries=0',
    tarball,
    ...others,
  );
  if (installed.status !== 0) {
    t.diagnostic(`npm install failed, linking the dependencies: ${installed.stderr.slice(0, 300)}`);
    link(home, tarball);
  }
  return { home, files, tarball };
}

/** @param {string} path */
const basename = (path) => path.slice(path.lastIndexOf('/') + 1);

/** Installs without a registry. @param {string} home @param {string} tarball */
export function link(home, tarball) {
  const modules = join(home, 'node_modules');
  rmSync(modules, { recursive: true, force: true });
  mkdirSync(join(modules, 'fanfare'), { recursive: true });
  mkdirSync(join(modules, '.bin'));
  const { status } = run(
    home,
    'tar',
    '-xzf',
    tarball,
    '--strip-components=1',
    '-C',
    join(modules, 'fanfare'),
  );
  assert.equal(status, 0);
  for (const name of Object.keys(manifest.dependencies)) {
    mkdirSync(dirname(join(modules, name)), { recursive: true });
    symlinkSync(join(root, 'node_modules', name), join(modules, name));
  }
  assert.equal(run(modules, 'chmod', '+x', `fanfare/${manifest.bin.fanfare}`).status, 0);
  symlinkSync(`../fanfare/${manifest.bin.fanfare}`, join(modules, '.bin', 'fanfare'));
}

/**
 * Starts the installed server, as a terminal does.
 * @param {import('node:test').TestContext} t
 * @param {string} home
 * @param {object} [options]
 * @param {string} [options.command]
 * @param {Record<string, string>} [options.env]
 * @returns {Promise<{pid: number, port: number, metricsPort: number, exited: Promise<any[]>, workers: () => number[]}>}
 *   `workers`: the processes of all workers so far
 */
export async function startInstalled(t, home, { command = 'npx --no-install fanfare', env } = {}) {
  const child = spawn('bash', ['-c', command], {
    cwd: home,
    env: {
      ...process.env,
      PORT: '0',
      METRICS_PORT: '0',
      HOST: '127.0.0.1',
      WORKERS: '2',
      LOG_FORMAT: 'json',
      FANFARE_DRAIN_DELAY_MS: '0',
      FANFARE_RECONNECT_WINDOW_MS: '0',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  });
  const group = -(/** @type {number} */ (child.pid));
  const exited = once(child, 'exit');
  t.after(() => {
    try {
      process.kill(group, 'SIGKILL');
    } catch {
      // The group has exited.
    }
  });
  /** @type {number[]} */
  const workers = [];
  return new Promise((resolve, reject) => {
    let log = '';
    createInterface({ input: child.stdout }).on('line', (line) => {
      log += `${line}\n`;
      const { msg, pid, port, metricsPort, workerPid } = JSON.parse(line);
      if (msg === 'worker ready') workers.push(workerPid);
      if (String(msg).startsWith('fanfare is ready'))
        resolve({ pid, port, metricsPort, exited, workers: () => workers });
    });
    exited.then(() => reject(new Error(`the server has ended:\n${log}`)));
  });
}
