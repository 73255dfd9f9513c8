// api.js: a client of the HTTP API for tests, and keys.

import { randomBytes } from 'node:crypto';

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
   * @param {string} path behind /api
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
