// hooks-backend.js: the backend of hooks.js, a process of its own. It answers after a time, and refuses
// what is more than it may handle at once.

import { createServer } from 'node:http';

const [ms, allowed, cacheS] = process.argv.slice(2).map(Number);
const figures = { requests: 0, refused: 0, most: 0, connections: 0 };
let atOnce = 0;

const server = createServer((request, response) => {
  request.resume();
  figures.requests++;
  if (atOnce >= allowed) {
    figures.refused++;
    return response.writeHead(503).end();
  }
  atOnce++;
  figures.most = Math.max(figures.most, atOnce);
  setTimeout(() => {
    atOnce--;
    response.writeHead(200, { 'fanfare-cache-seconds': cacheS }).end('true');
  }, ms);
});
server.on('connection', () => figures.connections++);
server.listen(0, '127.0.0.1', 4096, () => {
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  process.send?.({ port });
});
process.on('message', () => process.send?.(figures));
process.on('disconnect', () => process.exit());
