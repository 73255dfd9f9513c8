// handshake.js: checks whether a request on the public port is a well-formed WebSocket handshake.
//
// `ws` answers 101 to HTTP/1.0, to no Host or two, to absolute URLs and to upgrades with a body.
// These checks come before `ws`. They cost less than admission, so they also come before admission.

/**
 * Requests with more headers are refused. Node silently drops headers beyond its own limit, so
 * Node's limit is one more.
 */
export const MAX_HEADERS = 100;
/** RFC 6455 4.1: 16 bytes in base64. */
const KEY = /^[+/0-9A-Za-z]{22}==$/;

/** @typedef {import('node:http').IncomingMessage} IncomingMessage */
/** @typedef {Record<string, string>} Headers */
/** @typedef {{status: number, message: string, headers: Headers}} Fault */

/**
 * Checks a handshake before admission.
 * @param {IncomingMessage} request
 * @returns {Fault|null}
 */
export function handshakeFault(request) {
  const { headers } = request;
  const excess = tooManyHeaders(request);
  if (excess !== null) return excess;
  if (request.method !== 'GET') return fault(405, 'Only GET.', { Allow: 'GET' });
  if (request.httpVersionMajor !== 1 || request.httpVersionMinor !== 1)
    return fault(400, 'Only HTTP/1.1.');
  if (hostsOf(request) !== 1) return fault(400, 'Exactly one Host header is required.');
  // A body's bytes would be read as frames: request smuggling.
  if (hasBody(request)) return fault(400, 'No body.');
  if (!isWebSocketPath(pathOf(request.url ?? ''))) return fault(404, 'Not found.');
  if (!isToWebSocket(request)) return fault(400, 'The only supported upgrade is websocket.');
  if (headers['sec-websocket-version'] !== '13') {
    // RFC 6455 4.2.2, 4.4
    return fault(426, 'The only supported WebSocket version is 13.', {
      'Sec-WebSocket-Version': '13',
      Upgrade: 'websocket',
    });
  }
  if (!KEY.test(headers['sec-websocket-key'] ?? ''))
    return fault(400, 'Sec-WebSocket-Key is not valid.');
  return null;
}

/**
 * Counts the Host headers. If there are two, `headers` keeps the first, and a proxy may have routed
 * by the second (RFC 9112 3.2).
 * @param {IncomingMessage} request
 */
function hostsOf({ rawHeaders }) {
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i].length === 4 && rawHeaders[i].toLowerCase() === 'host') hosts++;
  }
  return hosts;
}

/**
 * RFC 9112 3.2. Health checks, and nginx unless configured otherwise, speak HTTP/1.0, which needs
 * no Host.
 * @param {IncomingMessage} request other than a handshake
 * @returns {Fault|null}
 */
export function hostFault(request) {
  const hosts = hostsOf(request);
  const isFault = hosts > 1 || (hosts === 0 && request.httpVersion === '1.1');
  return isFault ? fault(400, 'Exactly one Host header is required.') : null;
}

/**
 * @param {IncomingMessage} request
 * @returns {Fault|null}
 */
export function tooManyHeaders({ rawHeaders }) {
  // Each header has two entries: a name and a value.
  return rawHeaders.length > 2 * MAX_HEADERS
    ? fault(431, `More than ${MAX_HEADERS} headers.`)
    : null;
}

/**
 * The server does not wait for a body, and does not take it for the next request. A Content-Length
 * of 0 does not count as a body, because Java's WebSocket client sends it.
 * @param {IncomingMessage} request
 */
export function hasBody({ headers }) {
  const length = headers['content-length'];
  return (
    (length !== undefined && !/^0+$/.test(length)) || headers['transfer-encoding'] !== undefined
  );
}

/** @param {IncomingMessage} request */
export function isToWebSocket({ headers }) {
  return headers.upgrade?.toLowerCase() === 'websocket';
}

/**
 * The raw path. Nothing is decoded or resolved, so no other spelling of a path passes.
 * @param {string} url
 */
export function pathOf(url) {
  const query = url.indexOf('?');
  return query === -1 ? url : url.slice(0, query);
}

/** @param {string} path */
export function isHealthPath(path) {
  return path === '/livez' || path === '/readyz';
}

/** Server-sent events. @param {string} path */
export function isStreamPath(path) {
  return path === '/sse';
}

/** @param {string} path */
export function isApiPath(path) {
  return path.startsWith('/api/') || path === '/api';
}

/** @param {string} path */
export function isWebSocketPath(path) {
  return path === '/ws' || path === '/';
}

/**
 * @param {number} status
 * @param {string} message
 * @param {Headers} [headers]
 */
function fault(status, message, headers = {}) {
  return { status, message, headers };
}
