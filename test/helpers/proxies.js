// proxies.js: real load balancers before servers under test, with the configurations of ops/: only addresses and paths differ.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './redis.js';
import { until } from './server.js';

/** Not in everybody's PATH. */
const PATH = `${process.env.PATH}:/usr/local/sbin:/usr/sbin:/sbin`;
const START_MS = 10_000;

/**
 * HAProxy with ops/haproxy/haproxy.cfg.
 * @param {import('node:test').TestContext} t
 * @param {readonly number[]} servers their public ports on this machine, as fanfare-1, fanfare-2 …
 * @returns {Promise<number>} its port
 */
export async function startHaproxy(t, servers) {
  const port = await freePort();
  const text = await configuration('haproxy/haproxy.cfg', servers, [['bind :3000', `bind 127.0.0.1:${port}`]]);
  const file = join(await folderFor(t), 'haproxy.cfg');
  await writeFile(file, text);
  // -db: in the foreground, ours to stop.
  await start(t, 'haproxy', ['-db', '-f', file], port);
  return port;
}

/**
 * nginx with ops/nginx/nginx.conf, in one process.
 * @param {import('node:test').TestContext} t
 * @param {readonly number[]} servers their public ports on this machine, as fanfare-1, fanfare-2 …
 * @param {object} [options]
 * @param {boolean} [options.appends] it adds to the X-Forwarded-For of the client instead of replacing it, as many do
 * @returns {Promise<number>} its port
 */
export async function startNginx(t, servers, { appends = false } = {}) {
  const folder = await folderFor(t);
  const port = await freePort();
  const buffers = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((kind) => `${kind}_temp_path ${folder};`);
  /** @type {[string, string][]} */
  const edits = [
    ['listen 3000', `listen 127.0.0.1:${port}`],
    ['/run/nginx.pid', `${folder}/pid`],
    ['error_log /var/log/nginx/error.log', 'error_log stderr'],
    ['http {', `http {\n${buffers.join('\n')}`],
  ];
  if (appends) edits.push(['X-Forwarded-For $remote_addr', 'X-Forwarded-For $proxy_add_x_forwarded_for']);
  const file = join(folder, 'nginx.conf');
  await writeFile(file, await configuration('nginx/nginx.conf', servers, edits));
  // A master process that is killed leaves its workers behind.
  const alone = 'daemon off; master_process off;';
  await start(t, 'nginx', ['-p', folder, '-c', file, '-e', 'stderr', '-g', alone], port);
  return port;
}

/**
 * A file of ops/ with the servers' addresses in it, and without those that are not there.
 * @param {string} path
 * @param {readonly number[]} servers
 * @param {readonly (readonly [string, string])[]} edits text, and what comes in its place
 */
async function configuration(path, servers, edits) {
  let text = await readFile(new URL(`../../ops/${path}`, import.meta.url), 'utf8');
  const named = servers.map((port, i) => /** @type {const} */ ([`fanfare-${i + 1}:3000`, `127.0.0.1:${port}`]));
  for (const [from, to] of [...named, ...edits]) {
    if (!text.includes(from)) throw new Error(`ops/${path} has no ${from}`);
    text = text.replace(from, to);
  }
  return text.replace(/^.*\bfanfare-\d+:3000.*\n/gm, '');
}

/** @param {import('node:test').TestContext} t */
async function folderFor(t) {
  const folder = await mkdtemp(join(tmpdir(), 'fanfare-proxy-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/**
 * @param {import('node:test').TestContext} t stops it at its end
 * @param {string} command
 * @param {string[]} args
 * @param {number} port on which it must answer
 */
async function start(t, command, args, port) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, PATH } });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += data));
  /** @type {Error|null} */
  let failure = null;
  child.on('error', (error) => {
    failure = error;
  });
  t.after(async () => {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  });
  await until(
    async () => {
      if (failure || child.exitCode !== null) throw new Error(`${command} does not start: ${failure ?? said}`);
      return isListening(port);
    },
    START_MS,
    `the start of ${command}`,
  );
}

/** @param {number} port @returns {Promise<boolean>} */
function isListening(port) {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => resolve(true));
    socket.on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}
