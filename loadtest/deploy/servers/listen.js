// listen.js: what the servers of this folder share: an HTTP server with health checks and a publish
// route, and a stop in the order that a load balancer needs.
//
// SIGTERM: /readyz answers 503, so that the load balancer sends nobody here any more. Three seconds
// later the connections are closed, and the process exits.

import { createServer } from 'node:http';

const { PORT = '3000' } = process.env;
/** HAProxy notices after two checks, one second apart. */
const DRAIN_DELAY_MS = 3000;
const CLOSE_MS = 3000;

/**
 * @param {(message: {room: string, data: unknown}) => Promise<unknown>} publish
 */
export function makeServer(publish) {
  let isReady = true;
  const server = createServer((request, response) => {
    if (request.url === '/readyz') {
      response.statusCode = isReady ? 200 : 503;
      return response.end();
    }
    if (request.url !== '/publish' || request.method !== 'POST') {
      response.statusCode = 404;
      return response.end();
    }
    let body = '';
    request.setEncoding('utf8').on('data', (text) => {
      body += text;
    });
    request.on('end', async () => {
      try {
        await publish(JSON.parse(body));
      } catch {
        response.statusCode = 503;
      }
      response.end();
    });
  });
  /** @param {() => unknown} closeAll */
  const start = (closeAll) => {
    server.listen({ port: Number(PORT), host: '127.0.0.1', backlog: 4096 });
    process.once('SIGTERM', () => {
      isReady = false;
      setTimeout(() => {
        closeAll();
        setTimeout(() => process.exit(0), CLOSE_MS);
      }, DRAIN_DELAY_MS);
    });
  };
  return { server, start };
}
