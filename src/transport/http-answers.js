// http-answers.js: the answers of the public port in plain HTTP: health checks and refusals.

import { STATUS_CODES } from 'node:http';
import { headFault } from './handshake.js';

/** @typedef {import('node:http').IncomingMessage} IncomingMessage */
/** @typedef {import('node:http').ServerResponse} ServerResponse */
/** @typedef {Record<string, string>} Headers */
/** @typedef {{status: number, headers: Readonly<Headers>, body: string}} Answer */
/** @typedef {{preflight(request: IncomingMessage): Answer}} Streams */

/** A header of every answer: a browser takes no answer for a page or a script. */
export const NOSNIFF = Object.freeze(/** @type {const} */ (['X-Content-Type-Options', 'nosniff']));

/**
 * @param {IncomingMessage} request that is neither a handshake nor a request for a stream
 * @param {import('./handshake.js').Route} route
 * @param {(route: 'livez'|'readyz') => Answer} health
 * @param {Streams|null} streams null: server-sent events are off
 * @returns {Answer}
 */
export function plainAnswer(request, route, health, streams) {
  const { method } = request;
  const isHealth = route === 'livez' || route === 'readyz';
  const fault = requestFault(request);
  if (fault !== null) return fault;
  if (streams !== null && route === 'stream') return streamAnswer(request, streams);
  if (!isHealth && route !== 'websocket') return fullAnswer(404, 'Not found.', {});
  if (method !== 'GET' && !(isHealth && method === 'HEAD'))
    return fullAnswer(405, 'Only GET.', {
      Connection: 'close',
      Allow: isHealth ? 'GET, HEAD' : 'GET',
    });
  if (isHealth) return health(route);
  // RFC 9110 15.5.22: Upgrade names the protocol; 7.8: Connection names Upgrade.
  return fullAnswer(426, 'This endpoint requires a WebSocket upgrade.', {
    Upgrade: 'websocket',
    Connection: 'Upgrade, close',
  });
}

/**
 * @param {IncomingMessage} request of `/sse`
 * @param {Streams} streams
 * @returns {Answer}
 */
function streamAnswer(request, streams) {
  if (request.method === 'OPTIONS') return streams.preflight(request);
  if (request.method === 'GET')
    return fullAnswer(503, 'The previous request is not answered yet.', { 'Retry-After': '1' });
  return fullAnswer(405, 'Only GET.', { Connection: 'close', Allow: 'GET, OPTIONS' });
}

/**
 * The checks of each request in plain HTTP, whatever its path.
 * @param {IncomingMessage} request
 * @returns {Answer|null}
 */
export function requestFault(request) {
  const fault = headFault(request);
  if (fault !== null) return fullAnswer(fault.status, fault.message, { Connection: 'close' });
  // RFC 9110 10.1.1
  const { expect } = request.headers;
  if (expect !== undefined && expect.toLowerCase() !== '100-continue')
    return fullAnswer(417, 'The only supported expectation is 100-continue.', {
      Connection: 'close',
    });
  return null;
}

/**
 * @param {number} status
 * @param {Headers} headers
 * @param {string} body
 * @returns {Answer}
 */
export function answer(status, headers, body) {
  return { status, headers, body };
}

/**
 * @param {number} status
 * @param {Readonly<Headers>} headers
 * @param {string} body ASCII
 * @returns {string} a whole response, the last of its connection
 */
export function responseText(status, headers, body) {
  let text = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`;
  for (const name in headers) if (name !== 'Connection') text += `${name}: ${headers[name]}\r\n`;
  // RFC 9110 7.8: a sender of Upgrade names it in Connection.
  const connection = headers.Upgrade === undefined ? 'close' : 'Upgrade, close';
  return `${text}Connection: ${connection}\r\n${NOSNIFF.join(': ')}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

/**
 * @param {number} status
 * @param {string} message
 */
export function errorBody(status, message) {
  return JSON.stringify({
    error: STATUS_CODES[status]?.toLowerCase().replaceAll(' ', '_'),
    message,
  });
}

/**
 * @param {ServerResponse} response
 * @param {number} status
 * @param {Headers} headers
 * @param {string} body ASCII; empty if the status is 204
 */
export function respond(response, status, headers, body) {
  response.setHeader(...NOSNIFF);
  if (status === 204) {
    response.writeHead(status, headers); // RFC 9110 8.6: without a length
    response.end();
    return;
  }
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': body.length,
    'Cache-Control': 'no-store',
    ...headers,
  });
  response.end(body);
}

/**
 * @param {number} status
 * @param {string} message
 * @param {Headers} headers
 */
function fullAnswer(status, message, headers) {
  return answer(status, headers, errorBody(status, message));
}
