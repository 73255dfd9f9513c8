// pusher-api.js: a client of Pusher's HTTP API for tests. It signs by its own code.

import { createHash, createHmac } from 'node:crypto';

/** @typedef {{id: string, key: string, secret: string}} TestApp */

/**
 * @typedef {object} PusherRequest
 * @property {string} [method] POST if there is a body, else GET
 * @property {unknown} [body] stringified, unless it is a string
 * @property {Record<string, string>} [query] signed
 * @property {Record<string, string>} [auth] in place of the right parameters
 * @property {Record<string, string>} [headers]
 * @property {string} [signedPath] if it differs from the path
 */

/**
 * @param {TestApp} app @param {string} path of the request
 * @param {PusherRequest} [request]
 * @returns {{method: string, body: string|undefined, path: string}} with the signed query
 */
export function signedRequest(app, path, { method, body, query = {}, auth = {}, signedPath } = {}) {
  const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
  const verb = method ?? (text === undefined ? 'GET' : 'POST');
  /** @type {Record<string, string>} */
  const parameters = {
    auth_key: app.key,
    auth_timestamp: String(Math.floor(Date.now() / 1000)),
    auth_version: '1.0',
    ...(text === undefined ? {} : { body_md5: createHash('md5').update(text).digest('hex') }),
    ...query,
    ...auth,
  };
  const names = Object.keys(parameters).sort();
  const signed = names.map((name) => `${name.toLowerCase()}=${parameters[name]}`).join('&');
  const signature = createHmac('sha256', app.secret)
    .update([verb, signedPath ?? path, signed].join('\n'))
    .digest('hex');
  const search = new URLSearchParams({ ...parameters, auth_signature: signature });
  return { method: verb, body: text, path: `${path}?${search}` };
}

/**
 * A function that sends requests of an app to a server.
 * @param {{port: number}} server @param {TestApp} app
 */
export function pusherApiOf({ port }, app) {
  /**
   * @param {string} path behind /apps/:id, or from `/users` or a prefix on
   * @param {PusherRequest} [request]
   * @returns {Promise<{status: number, headers: Headers, body: any, text: string}>}
   */
  return async (path, request = {}) => {
    const full = /^\/(users\/|ws\/)/.test(path) ? path : `/apps/${app.id}${path}`;
    const signed = signedRequest(app, full, request);
    const response = await fetch(`http://127.0.0.1:${port}${signed.path}`, {
      method: signed.method,
      headers: { 'Content-Type': 'application/json', ...request.headers },
      body: signed.body,
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
