// http-answers.js: plain HTTP answers of the public port: health checks and refusals.

import { refusal, toHttp } from '../protocol/refusal.js';
import { hasBody, headFault } from './handshake.js';
import { STATUS_CODES } from './node-http.js';

/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @typedef {Record<string, string>} Headers */
/** @typedef {import('../protocol/refusal.js').Answer} Answer */
/** @import { Streams } from './route.js' */

/** Every answer has this header, so that browsers take none for a page or a script. */
export const NOSNIFF = Object.freeze(/** @type {const} */ (['X-Content-Type-Options', 'nosniff']));

/**
 * @param {IncomingMessage} request that is neither a handshake nor a request for a stream
 * @param {import('./route.js').Route} route @param {object} parts
 * @param {(route: 'livez'|'readyz') => Answer} parts.health
 * @param {(request: IncomingMessage) => import('../protocol/refusal.js').Refusal} parts.notFound
 * @param {Streams|null} parts.streams of the route; null: it has none @returns {Answer}
 */
export function plainAnswer(request, { name: route }, { health, notFound, streams }) {
  const { method } = request;
  const isHealth = route === 'livez' || route === 'readyz';
  const fault = requestFault(request);
  if (fault !== null) return fault;
  if (streams !== null && route === 'stream') return streamAnswer(request, streams);
  if (!isHealth && route !== 'websocket') return toHttp(notFound(request));
  if (method !== 'GET' && !(isHealth && method === 'HEAD'))
    return notAllowed(isHealth ? 'GET, HEAD' : 'GET');
  return isHealth ? health(route) : toHttp(refusal('upgrade_required'));
}

/** @param {IncomingMessage} request of a stream @param {Streams} streams @returns {Answer} */
function streamAnswer(request, streams) {
  if (request.method === 'OPTIONS') return streams.preflight(request);
  if (takesMethod(streams, request))
    return toHttp(refusal('service_unavailable', 'The previous request is not answered yet.', 1));
  return notAllowed(`${streams.allow}, OPTIONS`);
}

/** @param {Streams} streams @param {Pick<IncomingMessage, 'method'>} request */
export function takesMethod({ allow }, { method = '' }) {
  return allow.split(', ').includes(method);
}

/** @param {string} methods @returns {Answer} */
function notAllowed(methods) {
  const { status, headers, body } = toHttp(refusal('method_not_allowed'));
  return { status, headers: { ...headers, Allow: methods }, body };
}

/** The fault of a request, whatever its path. @param {IncomingMessage} request @returns {Answer|null} */
export function requestFault(request) {
  const fault = headFault(request);
  if (fault !== null) return toHttp(fault);
  const { expect } = request.headers;
  return expect === undefined || expect.toLowerCase() === '100-continue'
    ? null
    : toHttp(refusal('expectation_failed')); // RFC 9110 10.1.1
}

/**
 * RFC 9110 10.1.1: a client may wait for this before it sends a body. One of HTTP/1.0 knows no such
 * answer.
 * @param {IncomingMessage} request @param {ServerResponse} response
 */
export function askForBody(request, response) {
  const { headers, httpVersion } = request;
  if (headers.expect !== undefined && httpVersion === '1.1' && hasBody(request))
    response.writeContinue();
}

/**
 * @param {number} status @param {Readonly<Headers>} headers @param {string} body
 * @returns {string} a whole response, the last of its connection
 */
export function responseText(status, headers, body) {
  let text = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`;
  for (const name in headers) if (name !== 'Connection') text += `${name}: ${headers[name]}\r\n`;
  // RFC 9110 7.8: a sender of Upgrade names it in Connection.
  const connection = headers.Upgrade === undefined ? 'close' : 'Upgrade, close';
  return `${text}Connection: ${connection}\r\n${NOSNIFF.join(': ')}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

/**
 * @param {ServerResponse} response @param {number} status
 * @param {Headers} headers @param {string} body
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
    'Content-Length': Buffer.byteLength(body),
    'Cache-Control': 'no-store',
    ...headers,
  });
  response.end(body);
}
