// handshake.js: is a request on the public port a well-formed WebSocket handshake?
//
// `ws` answers 101 to HTTP/1.0, to no Host or two, to absolute URLs and to upgrades with a body.
// These checks cost less than admission, so they come first.

import { refusal } from '../protocol/refusal.js';

/** More are refused. Node silently drops headers above its own limit, which is one higher. */
export const MAX_HEADERS = 100;
/** RFC 6455 4.1: 16 bytes in base64. */
const KEY = /^[+/0-9A-Za-z]{22}==$/;

/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { IncomingMessage } from 'node:http' */
/** @import { Route } from './route.js' */

/**
 * @param {IncomingMessage} request @param {Route} route
 * @param {(request: IncomingMessage) => Refusal} [notFound] for a path without a route
 * @returns {Refusal|null}
 */
export function handshakeFault(request, route, notFound = () => refusal('not_found')) {
  const { headers } = request;
  const wrong = headFault(request);
  if (wrong !== null) return wrong;
  if (route.name !== 'websocket') return notFound(request);
  if (request.method !== 'GET') return refusal('method_not_allowed');
  if (request.httpVersionMajor !== 1 || request.httpVersionMinor !== 1)
    return refusal('bad_request', 'Only HTTP/1.1.');
  // Request smuggling: the body would be read as frames.
  if (hasBody(request)) return refusal('bad_request', 'No body.');
  if (!isToWebSocket(request)) return refusal('upgrade_required');
  if (headers['sec-websocket-version'] !== '13') return refusal('websocket_version');
  if (!KEY.test(headers['sec-websocket-key'] ?? ''))
    return refusal('bad_request', 'Sec-WebSocket-Key is not valid.');
  return null;
}

/**
 * Checks every request. RFC 9112 3.2: exactly one Host. If there are two, `headers` has the first,
 * and a proxy may have routed by the second. HTTP/1.0, which health checks and nginx by default
 * speak, needs none.
 * @param {IncomingMessage} request @returns {Refusal|null}
 */
export function headFault({ rawHeaders, httpVersion }) {
  // Each header has two entries: a name and a value.
  if (rawHeaders.length > 2 * MAX_HEADERS)
    return refusal('request_header_fields_too_large', `More than ${MAX_HEADERS} headers.`);
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i].length === 4 && rawHeaders[i].toLowerCase() === 'host') hosts++;
  }
  return hosts === 1 || (hosts === 0 && httpVersion !== '1.1')
    ? null
    : refusal('bad_request', 'Exactly one Host header is required.');
}

/** Java's WebSocket client sends Content-Length 0: no body. @param {IncomingMessage} request */
export function hasBody({ headers }) {
  const length = headers['content-length'];
  return (
    (length !== undefined && !/^0+$/.test(length)) || headers['transfer-encoding'] !== undefined
  );
}

/**
 * Does a request ask for a WebSocket, on a path that may have one? All other requests are plain
 * HTTP, whatever they offer. RFC 9110 7.8: a server may ignore an Upgrade. Java's HttpClient and
 * `curl --http2` offer h2c with every first request, and some proxies pass on an Upgrade for each.
 * @param {IncomingMessage} request @param {Route} route
 */
export function isHandshake(request, { name }) {
  return (name === 'websocket' || name === 'none') && isToWebSocket(request);
}

/** @param {IncomingMessage} request */
function isToWebSocket({ headers }) {
  return headers.upgrade?.toLowerCase() === 'websocket';
}
