// client-pages.js: serves src/client as it is, the scripts of the package, and the pages of a test.
// `/wait/1000` is answered after a second: a page that reads it synchronously stands still.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { clientScripts } from './client-script.js';

/**
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {Record<string, string>} pages scripts by path, as HTML; other paths are empty pages
 * @returns {Promise<string>} the origin
 */
export async function servePages(t, pages) {
  const scripts = clientScripts();
  const server = createServer((request, response) => {
    const path = String(request.url);
    const name = path.slice(1);
    if (scripts.has(name)) {
      response.setHeader('content-type', 'text/javascript');
      response.end(scripts.get(name));
    } else if (/^\/client\/([\w-]+\/)?[\w-]+\.js$/.test(path)) {
      response.setHeader('content-type', 'text/javascript');
      response.end(readFileSync(new URL(`../../src${path}`, import.meta.url)));
    } else if (path.startsWith('/wait/')) {
      setTimeout(() => response.end(), Number(path.slice('/wait/'.length)));
    } else {
      response.setHeader('content-type', 'text/html');
      response.end(`<!doctype html>${pages[path] ?? ''}`);
    }
  }).listen(0, '127.0.0.1');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return `http://127.0.0.1:${port}`;
}
