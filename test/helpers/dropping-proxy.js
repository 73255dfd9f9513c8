// dropping-proxy.js: a WebSocket proxy that loses deliveries on purpose, for tests of tools that
// must notice.

import { once } from 'node:events';
import { WebSocket, WebSocketServer } from 'ws';

/**
 * @param {import('node:test').TestContext} t ends it
 * @param {string} target the server's URL
 * @param {object} faults
 * @param {number} faults.every of how many deliveries one is lost, whosoever it is
 * @param {number} faults.deaf of how many clients one gets no delivery at all
 * @returns {Promise<{url: string, dropped: () => number}>}
 */
export async function startDroppingProxy(t, target, { every, deaf }) {
  let clients = 0;
  let deliveries = 0;
  let dropped = 0;
  const proxy = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  t.after(() => {
    for (const client of proxy.clients) client.terminate();
    proxy.close();
  });
  await once(proxy, 'listening');
  proxy.on('connection', (client) => {
    const isDeaf = ++clients % deaf === 0;
    const server = new WebSocket(target);
    const opened = once(server, 'open');
    opened.catch(() => {}); // A client may hang up before the server's end is open, without a word.
    // A client's first words may come before the server's end is open; promises keep their order.
    client.on('message', (data) =>
      opened.then(() => server.send(data.toString())).catch(() => client.terminate()),
    );
    client.on('close', () => server.terminate());
    server.on('message', (data) => {
      const text = data.toString();
      if (text.startsWith('{"type":"message"') && (++deliveries % every === 0 || isDeaf)) dropped++;
      else client.send(text);
    });
    server.on('close', () => client.close());
    server.on('error', () => client.terminate());
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (proxy.address());
  return { url: `ws://127.0.0.1:${port}`, dropped: () => dropped };
}
