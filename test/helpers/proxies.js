// proxies.js: real load balancers before servers under test: HAProxy with the file of docker/, nginx with what the README says.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from './redis.js';
import { until } from './server.js';

const HAPROXY_CFG = new URL('../../docker/haproxy.cfg', import.meta.url);
/** Not in everybody's PATH. */
const PATH = `${process.env.PATH}:/usr/local/sbin:/usr/sbin:/sbin`;
const START_MS = 10_000;

/**
 * @param {import('node:test').TestContext} t
 * @param {readonly number[]} servers their public ports on this machine, as fanfare-1, fanfare-2 …
 * @returns {Promise<number>} its port
 */
export async function startHaproxy(t, servers) {
  const port = await freePort();
  let text = (await readFile(HAPROXY_CFG, 'utf8')).replace('bind :3000', `bind 127.0.0.1:${port}`);
  servers.forEach((server, i) => {
    const named = `fanfare-${i + 1}:3000`;
    if (!text.includes(named)) throw new Error(`docker/haproxy.cfg has no ${named}`);
    text = text.replace(named, `127.0.0.1:${server}`);
  });
  const file = join(await folderFor(t), 'haproxy.cfg');
  await writeFile(file, text);
  // -db: in the foreground, ours to stop.
  await start(t, 'haproxy', ['-db', '-f', file], port);
  return port;
}

/**
 * @param {import('node:test').TestContext} t
 * @param {number} server its public port on this machine
 * @returns {Promise<number>} its port
 */
export async function startNginx(t, server) {
  const folder = await folderFor(t);
  const port = await freePort();
  const file = join(folder, 'nginx.conf');
  await writeFile(
    file,
    `daemon off;
master_process off;
pid ${folder}/pid;
error_log stderr;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path ${folder};
  proxy_temp_path ${folder};
  fastcgi_temp_path ${folder};
  uwsgi_temp_path ${folder};
  scgi_temp_path ${folder};
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://127.0.0.1:${server};
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
      # Adds to what the client has sent, the riskier of the usual two ways.
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_read_timeout 1h;
    }
  }
}
`,
  );
  await start(t, 'nginx', ['-p', folder, '-c', file, '-e', 'stderr'], port);
  return port;
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
