#!/usr/bin/env node
// smoke.js: installs everything from the files of a release in an empty folder, and uses it.
//
//   node ops/release/smoke.js release/
//
// It checks the checksums, installs the npm packages and starts the server from them, publishes with
// fanfare-server, receives with fanfare-client, writes and reads a run with fanfare-ai, renders the
// chart with helm, installs the .deb on a copy of this machine (try-deb.sh), and looks into the site
// and the image. What cannot be tried here is named, and is no fault.

import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { hasCommand, run, runWith } from './run.js';

const SKIPPED = 77;
const here = import.meta.dirname;
const release = resolve(process.argv[2] ?? join(here, '../../release'));
const home = mkdtempSync(join(tmpdir(), 'fanfare-smoke-'));
process.on('exit', () => rmSync(home, { recursive: true, force: true }));
const files = readdirSync(release);
const [server = ''] = files.filter((file) => /^fanfare-\d.*\.tgz$/.test(file));
const version = server.slice('fanfare-'.length, -'.tgz'.length);
process.env.PATH += `:${join(here, '../../node_modules/.cache/helm-tools/bin')}`;

/** @param {string} text */
const say = (text) => console.log(`smoke: ${text}`);

run(release, 'sha256sum', '--check', '--strict', '--quiet', 'SHA256SUMS');
say(`${files.length - 1} files have the checksums of SHA256SUMS`);
installPackages();
await usePackages();
renderChart();
tryDeb();
lookInto(`fanfare-site-${version}.tgz`, ['./index.html', './llms.txt'], 'the site');
lookInto(`fanfare-image-${version}.tar`, ['oci-layout', 'index.json'], 'the image');

function installPackages() {
  writeFileSync(join(home, 'package.json'), '{"private":true,"type":"module"}\n');
  const names = ['', 'client-', 'server-', 'ai-'];
  const tarballs = names.map((name) => join(release, `fanfare-${name}${version}.tgz`));
  const options = ['--prefer-offline', '--no-audit', '--no-fund', '--silent'];
  run(home, 'npm', 'install', ...options, ...tarballs, 'ws');
  const installed = run(home, 'node_modules/.bin/fanfare', '--version');
  if (installed !== version) throw new Error(`fanfare --version printed ${installed}`);
  say(`the npm packages are installed, fanfare --version is ${version}`);
}

/** Starts the server with tokens and history, and runs smoke-client.js against it. */
async function usePackages() {
  const secret = () => randomBytes(32).toString('hex');
  const apiKey = secret();
  const settings = { JWT_SECRET: secret(), API_KEYS: `web ${apiKey} all`, WORKERS: '2' };
  const rooms = { FANFARE_HISTORY: 'chat.*=100/1h,run.*=1000/1h' };
  const drain = { FANFARE_DRAIN_DELAY_MS: '0', FANFARE_RECONNECT_WINDOW_MS: '0' };
  const ports = { HOST: '127.0.0.1', PORT: '0', METRICS_PORT: '0', LOG_FORMAT: 'json' };
  const env = { ...process.env, ...settings, ...rooms, ...drain, ...ports };
  const command = join(home, 'node_modules/.bin/fanfare');
  const token = runWith({ cwd: home, env }, command, 'token', '--user', 'ann', '--rooms', '*');
  const child = spawn(command, { cwd: home, env, stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  try {
    const port = await portOf(child);
    cpSync(join(here, 'smoke-client.js'), join(home, 'smoke-client.js'));
    const address = `http://127.0.0.1:${port}`;
    const use = { SERVER_URL: address, API_KEY: apiKey, TOKEN: token.split('\n').at(-1) };
    const options = { cwd: home, env: { ...process.env, ...use }, timeout: 60_000 };
    for (const line of runWith(options, process.execPath, 'smoke-client.js').split('\n')) say(line);
  } finally {
    child.kill('SIGTERM');
  }
  const [code] = await exited;
  if (code !== 0) throw new Error(`the server ended with ${code}`);
  say('the server has drained');
}

/** @param {import('node:child_process').ChildProcess} child @returns {Promise<number>} */
function portOf(child) {
  return new Promise((done, failed) => {
    const lines = createInterface({
      input: /** @type {NodeJS.ReadableStream} */ (child.stdout),
    });
    lines.on('line', (line) => {
      const { msg, port } = JSON.parse(line);
      if (String(msg).startsWith('fanfare is ready')) done(port);
    });
    lines.on('close', () => failed(new Error('the server has ended')));
  });
}

function renderChart() {
  const chart = join(release, `fanfare-chart-${version}.tgz`);
  if (!hasCommand('helm', 'version')) return say('the chart is not tried: no helm');
  const options = ['--kube-version', '1.37.0', '--set', 'trustProxy=1'];
  const all = ['--set', 'metrics.prometheusRule.enabled=true,metrics.serviceMonitor.enabled=true'];
  const rendered = run(home, 'helm', 'template', 'fanfare', chart, ...options, ...all);
  for (const text of [`image: ghcr.io/fanfare/fanfare:${version}\n`, 'alert: FanfareServerDown'])
    if (!rendered.includes(text)) throw new Error(`the chart renders no ${text}`);
  say(`the chart renders ${rendered.match(/^kind:/gm)?.length} objects, with image ${version}`);
}

function tryDeb() {
  const [deb] = files.filter((file) => file.endsWith('.deb'));
  if (deb === undefined) return say('there is no .deb');
  const { status, stdout, stderr } = spawnSync(join(here, 'try-deb.sh'), [join(release, deb)], {
    encoding: 'utf8',
  });
  if (status === SKIPPED) return say(`the .deb is not tried: ${stderr.trim()}`);
  if (status !== 0) throw new Error(`${stdout}${stderr}`);
  say(`the .deb: ${stdout.trim().split('\n').at(-1)?.replace('try-deb: ', '')}`);
}

/** @param {string} file @param {string[]} paths @param {string} name */
function lookInto(file, paths, name) {
  if (!files.includes(file)) return say(`${name} is not among the files`);
  const listed = run(release, 'tar', '-tf', file).split('\n');
  for (const path of paths) if (!listed.includes(path)) throw new Error(`${file} has no ${path}`);
  say(`${name} has ${listed.length} files`);
}
