// closing-server.js: a server that greets each client as a door does, and then closes with the code
// that the path names, or refuses it as the path says:
//
//   /native/CODE /app/CODE /centrifugo/CODE   a WebSocket of that door
//   /close/CODE                               a stream of server-sent events
//   /refusal/REFUSAL                          a refusal of codes.js, in HTTP
//   /proxy/STATUS                             an answer that is not Fanfare's

import { once } from 'node:events';
import { createServer } from 'node:http';
import { WebSocketServer } from 'ws';
import { StreamRequest, streamRefusal } from '../../src/doors/native/sse-request.js';
import { refusal, toHttp } from '../../src/protocol/refusal.js';

/** @typedef {import('ws').WebSocket} WebSocket */

const server = createServer((request, response) => {
  const url = new URL(request.url ?? '', 'http://a');
  const name = url.pathname.slice(1).split('/')[1];
  if (url.pathname.startsWith('/close/')) {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(`data: ${JSON.stringify({ type: 'close', code: Number(name), reason: 'r' })}\n\n`);
  } else if (url.pathname.startsWith('/proxy/')) response.writeHead(Number(name)).end('not here');
  else if (url.pathname.startsWith('/refusal/')) {
    const stream = new StreamRequest(request, {});
    const refused = refusal(
      /** @type {import('../../src/protocol/codes.js').RefusalCode} */ (name),
    );
    request.socket.end(streamRefusal(stream, refused));
  }
});
server.on('upgrade', (request, socket, head) => {
  const [, kind, name] = (request.url ?? '').split(/[/?]/);
  if (kind === 'proxy') return socket.end(`HTTP/1.1 ${name} X\r\nContent-Length: 0\r\n\r\n`);
  if (kind === 'refusal') {
    const { status, headers, body } = toHttp(refusal(/** @type {any} */ (name)));
    const lines = Object.entries(headers).map(([field, value]) => `${field}: ${value}\r\n`);
    const length = `Content-Length: ${body.length}\r\nConnection: close\r\n`;
    return socket.end(`HTTP/1.1 ${status} X\r\n${lines.join('')}${length}\r\n${body}`);
  }
  websockets.handleUpgrade(request, socket, head, (websocket) =>
    GREETINGS[/** @type {keyof typeof GREETINGS} */ (kind)](websocket, Number(name)),
  );
});
const websockets = new WebSocketServer({
  noServer: true,
  handleProtocols: () => 'fanfare',
});
/** @param {WebSocket} websocket @param {object} greeting @param {number} code */
const greet = (websocket, greeting, code) => {
  websocket.send(JSON.stringify(greeting));
  websocket.close(code, 'r');
};
/** How each door begins. */
const GREETINGS = {
  native: (/** @type {WebSocket} */ websocket, /** @type {number} */ code) =>
    websocket.once('message', () =>
      greet(websocket, { type: 'welcome', id: 0, heartbeatMs: 30_000, limits: {} }, code),
    ),
  app: (/** @type {WebSocket} */ websocket, /** @type {number} */ code) => {
    const data = JSON.stringify({ socket_id: '1.1', activity_timeout: 120 });
    greet(websocket, { event: 'pusher:connection_established', data }, code);
  },
  centrifugo: (/** @type {WebSocket} */ websocket, /** @type {number} */ code) =>
    websocket.once('message', () => greet(websocket, { id: 1, connect: { client: 'c' } }, code)),
};

/** @returns {Promise<{port: number, close: () => void}>} one for a process */
export async function startClosingServer() {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const close = () => {
    for (const websocket of websockets.clients) websocket.terminate();
    server.closeAllConnections();
    server.close();
  };
  return { port, close };
}
