// short-handshake.js: reads usual requests for a WebSocket or a stream without Node's HTTP parser.
//
// Nearly all of them have one shape and arrive in one read: GET, headers of printable ASCII, none
// twice, no body, no byte after the head. For these, handshake.js and admission.js get the same
// strings as from Node's parser. All others go to Node's parser.
//
// Private: how Node's parser recognises an upgrade, and reads headers.

import { Duplex } from 'node:stream';
import { createServer } from '../node-http.js';

/** Longer heads, or heads with more headers, go to Node's parser. */
const MAX_HEAD_BYTES = 8192;
const MAX_SHORT_HEADERS = 48;
/** No value begins or ends with a space, no path has a '#'. */
const SHAPE =
  /^GET \/[!"$-~]* HTTP\/1\.[01]\r\n(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: ?[!-~](?:[ -~]*[!-~])?\r\n)*\r\n$/;
/** RFC 9110 7.6.1: Firefox also names keep-alive. */
const CONNECTION = /^(?:keep-alive, ?)?upgrade$/i;
const PLAIN_CONNECTION = /^(?:keep-alive|close)?$/i;
/** `GET / HTTP/1.1` is shorter than any line that can follow. */
const METHOD_BYTES = 4;
const VERSION_BYTES = 9;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;

/** Node's parser acts on these, or Node keeps a list. @type {ReadonlySet<string>} */
const NOT_SHORT = new Set([
  'content-length',
  'transfer-encoding',
  'proxy-connection',
  'expect',
  'trailer',
  'set-cookie',
]);

/** Names in lower case, by the spellings of common clients. @type {ReadonlyMap<string, string>} */
const NAMES = new Map(
  [
    'Host',
    'Connection',
    'Upgrade',
    'Origin',
    'User-Agent',
    'Authorization',
    'Cookie',
    'Pragma',
    'Cache-Control',
    'Accept',
    'Accept-Encoding',
    'Accept-Language',
    'Sec-WebSocket-Key',
    'Sec-WebSocket-Version',
    'Sec-WebSocket-Extensions',
    'Sec-WebSocket-Protocol',
    'Last-Event-ID',
    'Sec-Fetch-Dest',
    'Sec-Fetch-Mode',
    'Sec-Fetch-Site',
    'X-Forwarded-For',
    'X-Forwarded-Proto',
    'X-Forwarded-Host',
    'X-Real-IP',
  ].flatMap((name) => [
    [name, name.toLowerCase()],
    [name.toLowerCase(), name.toLowerCase()],
  ]),
);

/** @import { IncomingMessage } from 'node:http' */
/** @import { Socket } from 'node:net' */

/** The fields of an IncomingMessage that checks and admission read. */
class ShortRequest {
  method = 'GET';
  httpVersionMajor = 1;

  /** @param {Socket} socket @param {string} url @param {0|1} minor version of HTTP */
  constructor(socket, url, minor) {
    this.socket = socket;
    this.url = url;
    this.httpVersion = minor === 1 ? '1.1' : '1.0';
    this.httpVersionMinor = minor;
    /** @type {Record<string, string>} */
    this.headers = {};
    /** @type {string[]} */
    this.rawHeaders = [];
  }
}

/**
 * @param {Buffer} bytes the first read of a socket @param {Socket} socket
 * @returns {IncomingMessage|null} a GET with an upgrade to WebSocket or without any; null: Node's
 *   parser has to read the bytes
 */
export function readShortHandshake(bytes, socket) {
  const { length } = bytes;
  if (length > MAX_HEAD_BYTES || length < METHOD_BYTES) return null;
  // Rules most others out without creating a string.
  if (bytes[length - 1] !== LF || bytes[length - 3] !== LF || bytes[3] !== SPACE) return null;
  const text = bytes.toString('latin1');
  if (!SHAPE.test(text)) return null;
  // A connection may keep a value as its address: a slice of `text` would keep the whole head.
  const part = (/** @type {number} */ from, /** @type {number} */ to) =>
    bytes.toString('latin1', from, to);
  let at = text.indexOf('\r');
  const minor = text[at - 1] === '1' ? 1 : 0;
  const request = new ShortRequest(socket, part(METHOD_BYTES, at - VERSION_BYTES), minor);
  const { headers, rawHeaders } = request;
  at += 2;
  for (let count = 0; text.charCodeAt(at) !== CR; count++) {
    if (count === MAX_SHORT_HEADERS) return null;
    const colon = text.indexOf(':', at);
    const end = text.indexOf('\r', colon);
    const name = text.slice(at, colon);
    const value = part(text.charCodeAt(colon + 1) === SPACE ? colon + 2 : colon + 1, end);
    const field = NAMES.get(name) ?? name.toLowerCase();
    // Node joins the values of some headers, and drops those of others.
    if (headers[field] !== undefined || NOT_SHORT.has(field)) return null;
    headers[field] = value;
    rawHeaders.push(name, value);
    at = end + 2;
  }
  const { upgrade, connection = '' } = headers;
  const isUsual =
    upgrade === undefined
      ? PLAIN_CONNECTION.test(connection)
      : minor === 1 && upgrade.toLowerCase() === 'websocket' && CONNECTION.test(connection);
  if (!isUsual || (headers.host === undefined && minor === 1)) return null;
  return /** @type {IncomingMessage} */ (/** @type {unknown} */ (request));
}

/**
 * Reads the complete lines of a head that may be cut, to decide how to refuse it.
 * @param {Buffer} bytes @param {Socket} socket
 */
export function peekShortHandshake(bytes, socket) {
  const lines = bytes.subarray(0, MAX_HEAD_BYTES - 2);
  const end = lines.lastIndexOf('\r\n');
  const head = lines.toString('latin1', 0, end + 2);
  const isWhole = head.endsWith('\r\n\r\n');
  return readShortHandshake(Buffer.from(isWhole ? head : `${head}\r\n`, 'latin1'), socket);
}

/** Reads a handshake in both ways. @returns {string} '': they agree */
export function shortHandshakeFault() {
  const head = Buffer.from(
    'GET /ws?a=b HTTP/1.1\r\nHost: x\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\nX-A: b c\r\n\r\n',
  );
  const stream = /** @type {Socket} */ (
    /** @type {unknown} */ (new Duplex({ read() {}, write: (_bytes, _encoding, done) => done() }))
  );
  const short = readShortHandshake(head, stream);
  let fault = 'the HTTP server does not see an upgrade in a handshake';
  const server = createServer();
  server.on('upgrade', ({ method, url, headers, rawHeaders }) => {
    const isSame =
      short !== null &&
      method === short.method &&
      url === short.url &&
      JSON.stringify([headers, rawHeaders]) === JSON.stringify([short.headers, short.rawHeaders]);
    fault = isSame ? '' : 'the HTTP server reads a handshake in another way';
  });
  server.emit('connection', stream);
  stream.emit('data', head);
  stream.destroy();
  return fault;
}
