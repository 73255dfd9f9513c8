// backend.js: a backend of hooks over HTTP. It answers by the functions of a file of hooks, so that one
// suite can run against both kinds.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { Webhook } from 'standardwebhooks';

export const HOOKS_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

/** @typedef {import('../../../src/hooks/types.js').Hooks} Hooks */
/** @typedef {{hook: keyof Hooks, [field: string]: any}} Asked */

/** The arguments of each hook, as its types have them. @type {Record<string, (asked: Asked, context: object) => any[]>} */
const ARGUMENTS = {
  onConnect: ({ request }, context) => [
    { ...request, query: new URLSearchParams(request.query) },
    context,
  ],
  onJoin: ({ connection, room }, context) => [connection, room, context],
  onPublish: ({ connection, room, payload }, context) => [connection, room, payload, context],
  onRpc: ({ connection, method, data }, context) => [connection, method, data, context],
  onSend: ({ connection, data }, context) => [connection, data, context],
  onDisconnect: ({ connection }, context) => [connection, context],
};

/**
 * @param {import('../../harness/server.js').Owner} t @param {import('node:http').RequestListener} listener
 * @returns {Promise<{url: string, server: import('node:http').Server}>}
 */
export async function listen(t, listener) {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { url: `http://127.0.0.1:${port}/fanfare`, server };
}

/**
 * @param {import('node:http').IncomingMessage} request
 * @returns {Promise<Asked>} @throws {Error} if the signature is wrong
 */
export async function askedOf(request) {
  const body = await text(request);
  new Webhook(HOOKS_SECRET).verify(body, /** @type {Record<string, string>} */ (request.headers));
  return JSON.parse(body);
}

/**
 * @param {import('../../harness/server.js').Owner} t @param {Hooks} functions
 * @param {{onAsked?: (asked: Asked) => void}} [options]
 */
export function hookBackend(t, functions, { onAsked = () => {} } = {}) {
  return listen(t, async (request, response) => {
    const cancel = new AbortController();
    response.on('close', () => cancel.abort());
    try {
      const asked = await askedOf(request);
      onAsked(asked);
      const { hook, key } = asked;
      const call = /** @type {(...args: any[]) => unknown} */ (functions[hook]);
      const answer = await call(...ARGUMENTS[hook](asked, { key, signal: cancel.signal }));
      if (answer === undefined) response.writeHead(204).end();
      else response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
    } catch {
      response.writeHead(500).end();
    }
  });
}
