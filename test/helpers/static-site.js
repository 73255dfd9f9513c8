// static-site.js: serves the files of a folder as a plain host of static sites does.

import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';

/** @type {Readonly<Record<string, string>>} */
const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.json': 'application/json',
  '.xml': 'application/xml',
};

/**
 * @param {{after: (fn: () => unknown) => void}} t stops it after the test
 * @param {string} folder
 * @returns {Promise<string>} its URL, without a slash at the end
 */
export async function serveFolder(t, folder) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://localhost');
    const path = join(
      folder,
      normalize(decodeURIComponent(pathname)).replace(/\/$/, '/index.html'),
    );
    const body = await readFile(path).catch(() => null);
    if (body !== null) {
      const type = TYPES[extname(path)] ?? 'text/plain; charset=utf-8';
      return response.writeHead(200, { 'Content-Type': type }).end(body);
    }
    const missing = await readFile(join(folder, '404.html')).catch(() => '');
    response.writeHead(404, { 'Content-Type': TYPES['.html'] }).end(missing);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return `http://127.0.0.1:${port}`;
}
