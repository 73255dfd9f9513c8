// api.js: a client of the HTTP API for tests, and keys.

import { randomBytes } from 'node:crypto';
import { NO_LIMITS, startServer } from '../harness/server.js';

/** A new secret of a key. */
export const newSecret = () => randomBytes(32).toString('hex');

/**
 * @typedef {object} ApiAnswer
 * @property {number} status
 * @property {Headers} headers
 * @property {any} body parsed
 * @property {string} text
 */

/**
 * @typedef {object} ApiRequest
 * @property {string} [method] POST if there is a body, else GET
 * @property {unknown} [body] stringified, unless it is a string or a buffer
 * @property {Record<string, string>} [headers]
 */

/**
 * A function that sends requests to a server with a key.
 * @param {{port: number}} server
 * @param {string} secret '' sends none
 */
export function apiOf({ port }, secret) {
  /**
   * @param {string} path after /api
   * @param {ApiRequest} [request]
   * @returns {Promise<ApiAnswer>}
   */
  return async (path, { method, body, headers = {} } = {}) => {
    const hasBody = body !== undefined;
    const isRaw = typeof body === 'string' || Buffer.isBuffer(body);
    const response = await fetch(`http://127.0.0.1:${port}/api${path}`, {
      method: method ?? (hasBody ? 'POST' : 'GET'),
      headers: {
        ...(secret === '' ? {} : { Authorization: `Bearer ${secret}` }),
        ...(hasBody ? { 'Content-Type': 'application/json' } : {}),
        ...headers,
      },
      body: /** @type {string|undefined} */ (isRaw || !hasBody ? body : JSON.stringify(body)),
    });
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      body: text === '' ? null : JSON.parse(text),
      text,
    };
  };
}

/**
 * A server with a key that may do everything.
 * @param {import('../harness/server.js').Owner} t @param {Record<string, string>} [env]
 */
export async function startWithKey(t, env = {}) {
  const secret = newSecret();
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_HISTORY: 'h.*=100/60s',
    FANFARE_PRESENCE: 'p.*',
    ...env,
    API_KEYS: `main ${secret} all${env.API_KEYS === undefined ? '' : `; ${env.API_KEYS}`}`,
  });
  return { server, secret, api: apiOf(server, secret) };
}
