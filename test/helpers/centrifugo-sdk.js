// centrifugo-sdk.js: a server for SDKs of Centrifugo's protocol: anybody may do everything, as in the
// configurations of their own tests.

import { NO_LIMITS, startServer } from '../harness/server.js';
import { SECRET } from './tokens.js';

/** Of the server API. */
export const API_KEY = 'centrifugo-api-key-0123456789-abcdef';
export const API_PATH = '/centrifugo/api';

/** The rights of an insecure Centrifugo. */
const OPEN_DOOR = Object.freeze({
  ...NO_LIMITS,
  FANFARE_CENTRIFUGO: 'on',
  FANFARE_CENTRIFUGO_TOKENS: 'lenient',
  FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*,publish:*,presence:*,history:*',
  FANFARE_CENTRIFUGO_API_KEY: API_KEY,
  JWT_SECRET: SECRET,
  FANFARE_AUTH: 'optional',
});

/**
 * Starts a server that is open to all.
 * @param {import('../harness/server.js').Owner} t
 * @param {Record<string, string>} [env]
 */
export async function startOpenDoor(t, env) {
  const server = await startServer(t, { ...OPEN_DOOR, ...env });
  return { server, port: server.port, ...endpointsOf(server.port), api: apiOf(server.port) };
}

/** The addresses that clients are given. @param {number} port */
export function endpointsOf(port) {
  const http = `http://127.0.0.1:${port}`;
  return {
    websocket: `ws://127.0.0.1:${port}/connection/websocket`,
    http_stream: `${http}/connection/http_stream`,
    sse: `${http}/connection/sse`,
    emulation: `${http}/emulation`,
  };
}

/**
 * The server API.
 * @param {number} port
 * @returns {(method: string, request: object) => Promise<any>} its result
 */
export function apiOf(port) {
  return async (method, request) => {
    const response = await fetch(`http://127.0.0.1:${port}${API_PATH}/${method}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-API-Key': API_KEY },
      body: JSON.stringify(request),
    });
    /** @type {any} */
    const { result, error } = await response.json();
    if (error !== undefined) throw new Error(`${method}: ${JSON.stringify(error)}`);
    return result;
  };
}
