// proxies.js: real load balancers before servers under test, with the configurations of ops/: only
// addresses and paths differ.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '../harness/redis.js';
import { edited, startDaemon } from './daemon.js';
import { temporaryFolder } from './temporary-folder.js';

/**
 * HAProxy with ops/haproxy/haproxy.cfg.
 * @param {import('node:test').TestContext} t
 * @param {readonly number[]} servers their public ports on this machine, as fanfare-1, fanfare-2 …
 * @param {object} [options]
 * @param {boolean} [options.isHttp2] it speaks HTTP/2 with clients, without TLS
 * @param {string} [options.pem] it speaks TLS with clients, with this certificate and key
 * @returns {Promise<number>} its port
 */
export async function startHaproxy(t, servers, { isHttp2 = false, pem = '' } = {}) {
  const port = await freePort();
  const how = pem === '' ? (isHttp2 ? ' proto h2' : '') : ` ssl crt ${pem}`;
  const text = await configuration('haproxy/haproxy.cfg', servers, [
    ['bind :3000', `bind 127.0.0.1:${port}${how}`],
  ]);
  const file = join(temporaryFolder(t), 'haproxy.cfg');
  await writeFile(file, text);
  // -db: in the foreground, ours to stop.
  await startDaemon(t, 'haproxy', ['-db', '-f', file], port);
  return port;
}

/**
 * nginx with ops/nginx/nginx.conf, in one process.
 * @param {import('node:test').TestContext} t
 * @param {readonly number[]} servers their public ports on this machine, as fanfare-1, fanfare-2 …
 * @param {object} [options]
 * @param {boolean} [options.appends] it adds to the X-Forwarded-For of the client instead of
 *   replacing it, as many do
 * @param {boolean} [options.isHttp2] it speaks HTTP/2 with clients, without TLS
 * @param {string} [options.pem] it speaks TLS with clients, with this certificate and key
 * @param {string} [options.log] the file of its error log
 * @returns {Promise<number>} its port
 */
export async function startNginx(t, servers, options = {}) {
  const { appends = false, isHttp2 = false, pem = '', log = 'stderr' } = options;
  const folder = temporaryFolder(t);
  const port = await freePort();
  const buffers = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (kind) => `${kind}_temp_path ${folder};`,
  );
  const tls = pem === '' ? '' : `ssl_certificate ${pem}; ssl_certificate_key ${pem};`;
  /** @type {[string, string][]} */
  const edits = [
    [
      'listen 3000',
      `listen 127.0.0.1:${port}${isHttp2 ? ' http2' : ''}${pem === '' ? '' : ' ssl'}`,
    ],
    ['/run/nginx.pid', `${folder}/pid`],
    ['error_log /var/log/nginx/error.log', `error_log ${log}`],
    ['http {', `http {\n${buffers.join('\n')}\n${tls}`],
  ];
  if (appends)
    edits.push(['X-Forwarded-For $remote_addr', 'X-Forwarded-For $proxy_add_x_forwarded_for']);
  const file = join(folder, 'nginx.conf');
  await writeFile(file, await configuration('nginx/nginx.conf', servers, edits));
  // A master process that is killed leaves its workers behind.
  const alone = 'daemon off; master_process off;';
  await startDaemon(t, 'nginx', ['-p', folder, '-c', file, '-e', 'stderr', '-g', alone], port);
  return port;
}

/**
 * A file of ops/ with the servers' addresses in it, and without those that are not there.
 * @param {string} path
 * @param {readonly number[]} servers
 * @param {readonly (readonly [string, string])[]} edits
 */
async function configuration(path, servers, edits) {
  const named = servers.map(
    (port, i) => /** @type {const} */ ([`fanfare-${i + 1}:3000`, `127.0.0.1:${port}`]),
  );
  const text = await edited(path, [...named, ...edits]);
  return text.replace(/^.*\bfanfare-\d+:3000.*\n/gm, '');
}
