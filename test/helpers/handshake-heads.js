// handshake-heads.js: the heads of handshakes as common clients send them, and random ones, good
// and bad.

import { KEY } from './raw-http.js';

/** The headers of handshakes, as observed. @type {Readonly<Record<string, readonly string[]>>} */
const CLIENTS = Object.freeze({
  ws: [
    'Sec-WebSocket-Version: 13',
    `Sec-WebSocket-Key: ${KEY}`,
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits',
    'Host: localhost:3000',
  ],
  chrome: [
    'Host: chat.example.com',
    'Connection: Upgrade',
    'Pragma: no-cache',
    'Cache-Control: no-cache',
    'User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36',
    'Upgrade: websocket',
    'Origin: https://chat.example.com',
    'Sec-WebSocket-Version: 13',
    'Accept-Encoding: gzip, deflate, br, zstd',
    'Accept-Language: en-US,en;q=0.9',
    'Cookie: a=b; c=d',
    `Sec-WebSocket-Key: ${KEY}`,
    'Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits',
    'Sec-WebSocket-Protocol: fanfare, fanfare.token.abc.def.ghi',
  ],
  firefox: [
    'Host: chat.example.com',
    'User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0',
    'Accept: */*',
    'Accept-Language: en-US,en;q=0.5',
    'Accept-Encoding: gzip, deflate, br, zstd',
    'Sec-WebSocket-Version: 13',
    'Origin: https://chat.example.com',
    'Sec-WebSocket-Extensions: permessage-deflate',
    `Sec-WebSocket-Key: ${KEY}`,
    'Connection: keep-alive, Upgrade',
    'Sec-Fetch-Dest: empty',
    'Sec-Fetch-Mode: websocket',
    'Sec-Fetch-Site: same-origin',
    'Pragma: no-cache',
    'Cache-Control: no-cache',
    'Upgrade: websocket',
  ],
  proxy: [
    'upgrade: websocket',
    'connection: upgrade',
    'host: chat.example.com',
    'x-real-ip: 192.0.2.7',
    'x-forwarded-for: 192.0.2.7, 198.51.100.2',
    'x-forwarded-proto: https',
    'authorization: Bearer abc.def.ghi',
    'sec-websocket-version: 13',
    `sec-websocket-key: ${KEY}`,
  ],
  eventSource: [
    'Host: chat.example.com',
    'Connection: keep-alive',
    'User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36',
    'Accept: text/event-stream',
    'Cache-Control: no-cache',
    'Origin: https://chat.example.com',
    'Last-Event-ID: abc:12',
    'Cookie: a=b; c=d',
  ],
});

/** Lines that a fault adds. */
const LINES = Object.freeze([
  'Host: b',
  'Host:',
  'Content-Length: 0',
  'Content-Length: 4',
  'Content-Length: +4',
  'Content-Length: 4, 4',
  'Transfer-Encoding: chunked',
  'Transfer-Encoding: identity',
  'Transfer-Encoding : chunked',
  'Transfer-Encoding:\x0bchunked',
  'Connection: close',
  'Connection: keep-alive',
  'Connection: Upgrade, Content-Length',
  'Proxy-Connection: close',
  'Upgrade: h2c',
  'Upgrade: websocket, h2c',
  'HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA',
  'Expect: 100-continue',
  'Origin: https://evil.example',
  'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
  'Sec-WebSocket-Version: 8',
  'Sec-WebSocket-Protocol: a',
  'Sec-WebSocket-Protocol: fanfare,, a',
  'Sec-WebSocket-Extensions: permessage-deflate; unknown=1',
  'X-Forwarded-For: unknown',
  'Cookie: e=f',
  'Set-Cookie: a',
  'Trailer: a',
  'TE: trailers',
  'A: b\r\n c',
  'A: b\r\n\tc',
  '__proto__: a',
  'constructor: a',
  'toString: a',
  'A:',
  'A: ',
  'A:b',
  'A:  b',
  'A: b ',
  'A : b',
  ' A: b',
  'A(b): c',
  'A',
  ': a',
  `A: ${'b'.repeat(3000)}`,
  `A: ${'b'.repeat(17_000)}`,
  Array.from({ length: 70 }, (_, i) => `A${i}: b`).join('\r\n'),
]);
const TARGETS = Object.freeze([
  '/',
  '/ws?token=abc.def.ghi',
  '/ws?a=%zz&b=\\',
  '/ws#a',
  '/ws?a#b',
  '/other',
  '//ws',
  '/./ws',
  '/WS',
  '/livez',
  '/sse?room=a',
  '/api/rooms',
  '*',
  'http://a/ws',
  'a:80',
  '/ws?\xe9',
  '/w s',
  '',
]);
const METHODS = Object.freeze([
  'POST',
  'HEAD',
  'PUT',
  'CONNECT',
  'OPTIONS',
  'get',
  'GETS',
  ' GET',
  'PRI',
]);
const VERSIONS = Object.freeze([
  'HTTP/1.0',
  'HTTP/0.9',
  'HTTP/2.0',
  'HTTP/1.2',
  'http/1.1',
  'HTTP/1.1 ',
  'ICE/1.1',
]);
const VALUES = Object.freeze([
  'Upgrade',
  'upgrade',
  'UPGRADE',
  'keep-alive,Upgrade',
  'keep-alive, Upgrade',
  'Upgrade, keep-alive',
  'WebSocket',
  'websocket/13',
  '13',
  '013',
  '8',
  KEY,
  'a, b',
  '',
]);
/** Bytes that a fault puts anywhere. */
const BYTES = Object.freeze([
  0x00, 0x09, 0x0a, 0x0b, 0x0d, 0x20, 0x22, 0x28, 0x2c, 0x3a, 0x41, 0x7f, 0x80, 0xff,
]);
const BEHIND = Object.freeze([
  '\0',
  '\r\n',
  'x',
  '\x81\x80abcd',
  'GET / HTTP/1.1\r\nHost: a\r\n\r\n',
]);
/** Frames of a client: a text, one that is not masked, a ping, and a close. */
const FRAMES = Object.freeze(
  ['818261626364030b', '81026869', '8980abcdefab', '88826162636462 8b'].map((hex) =>
    Buffer.from(hex.replaceAll(' ', ''), 'hex'),
  ),
);
/** Requests that are no handshakes. */
const PLAIN = Object.freeze([
  'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n',
  'HEAD /livez HTTP/1.1\r\nHost: a\r\n\r\n',
  'GET /livez HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n',
  'GET /ws HTTP/1.1\r\nHost: a\r\n\r\n',
  'CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n',
  '\r\n',
]);
/**
 * Requests whose body hides another, for servers that disagree on its length.
 * @type {readonly ((hidden: string) => string)[]}
 */
const BODIES = Object.freeze([
  (/** @type {string} */ hidden) => withBody(`Content-Length: ${hidden.length}`, hidden),
  (/** @type {string} */ hidden) => withBody('Content-Length: 4', `abcd${hidden}`),
  (/** @type {string} */ hidden) =>
    withBody(
      'Transfer-Encoding: chunked',
      `${hidden.length.toString(16)}\r\n${hidden}\r\n0\r\n\r\n`,
    ),
  (/** @type {string} */ hidden) =>
    withBody('Transfer-Encoding: chunked\r\nContent-Length: 4', `0\r\n\r\n${hidden}`),
  (/** @type {string} */ hidden) =>
    withBody(`Content-Length: 0\r\nContent-Length: ${hidden.length}`, hidden),
  (/** @type {string} */ hidden) => withBody('Transfer-Encoding: xchunked', hidden),
]);
const MAX_FAULTS = 3;

/** @typedef {import('../checker/random.js').Random} Random */

/** @returns {Record<string, string>} the head that each client sends */
export function handshakeHeads() {
  return Object.fromEntries(
    Object.entries(CLIENTS).map(([name, lines]) => [name, headOf('GET', '/ws', 'HTTP/1.1', lines)]),
  );
}

/**
 * @param {Random} random
 * @returns {Buffer} the head of a handshake, with up to MAX_FAULTS changes; most of them are faults
 */
export function randomHead(random) {
  const lines = [...random.pick(Object.values(CLIENTS))];
  let [method, target, version, separator, behind] = ['GET', '/ws', 'HTTP/1.1', '\r\n', ''];
  shuffle(lines, random);
  const faults = random.below(MAX_FAULTS + 1);
  let scattered = 0;
  for (let i = 0; i < faults; i++) {
    const at = random.below(lines.length);
    switch (random.below(13)) {
      case 0:
        method = random.pick(METHODS);
        break;
      case 1:
      case 2:
        target = random.pick(TARGETS);
        break;
      case 3:
        version = random.pick(VERSIONS);
        break;
      case 4:
        if (random.below(3) === 0) separator = '\n';
        break;
      case 5:
        behind = random.pick(BEHIND);
        break;
      case 6:
      case 7:
        lines.splice(at, 0, random.pick(LINES));
        break;
      case 8:
        lines.splice(at, 1);
        break;
      case 9:
        lines.push(lines[at]);
        break;
      case 10:
        lines[at] = `${lines[at].split(':')[0]}: ${random.pick(VALUES)}`;
        break;
      case 11:
        lines[at] = random.below(2) === 0 ? lines[at].toUpperCase() : lines[at].replace(': ', ':');
        break;
      default:
        scattered++;
    }
    if (lines.length === 0) lines.push('A: b');
  }
  const text = headOf(method, target, version, lines, separator) + behind;
  /** @type {Buffer} */
  let bytes = Buffer.from(text, 'latin1');
  for (; scattered > 0; scattered--) bytes = withFault(bytes, random);
  return bytes;
}

/**
 * @param {Random} random
 * @param {string} token that is valid; some handshakes have it
 * @returns {Buffer[]} the pieces in which a client sends some requests and frames
 */
export function randomExchange(random, token) {
  const parts = [randomHead(random)];
  while (random.below(4) === 0) parts.push(randomPart(random));
  if (random.below(8) === 0) parts.unshift(randomPart(random));
  let text = Buffer.concat(parts).toString('latin1');
  if (random.below(2) === 0) text = text.replaceAll('abc.def.ghi', token);
  if (random.below(8) === 0) text = text.replaceAll('Origin: https://', 'Origin: http://');
  const bytes = Buffer.from(text, 'latin1');
  const cuts = new Set();
  if (random.below(4) === 0) {
    for (let i = random.below(3); i >= 0; i--) cuts.add(random.below(bytes.length));
  }
  if (random.below(4) === 0) {
    let end = 0;
    for (const part of parts) cuts.add((end += part.length));
  }
  const ends = [...cuts, bytes.length].sort((a, b) => a - b);
  return ends
    .map((end, i) => bytes.subarray(ends[i - 1] ?? 0, end))
    .filter((piece) => piece.length > 0);
}

/**
 * @param {Random} random
 * @returns {Buffer} a request, or frames, before or behind a handshake
 */
function randomPart(random) {
  switch (random.below(4)) {
    case 0:
      return randomHead(random);
    case 1:
      return random.pick(FRAMES);
    case 2:
      return Buffer.from(random.pick(PLAIN), 'latin1');
    default: {
      const hidden = randomHead(random).toString('latin1');
      return Buffer.from(random.pick(BODIES)(hidden), 'latin1');
    }
  }
}

/**
 * @param {Buffer} bytes
 * @param {Random} random
 * @returns {Buffer} with one byte more, less, or another
 */
function withFault(bytes, random) {
  const at = random.below(bytes.length);
  const kind = random.below(3);
  const added = kind === 0 ? [] : [random.pick(BYTES)];
  return Buffer.concat([
    bytes.subarray(0, at),
    Buffer.from(added),
    bytes.subarray(kind === 1 ? at : at + 1),
  ]);
}

/**
 * @param {string} method
 * @param {string} target
 * @param {string} version
 * @param {readonly string[]} lines
 * @param {string} [separator]
 */
function headOf(method, target, version, lines, separator = '\r\n') {
  const first = `${method} ${target} ${version}`;
  return [first, ...lines, '', ''].join(separator);
}

/** @param {string} framing @param {string} body */
function withBody(framing, body) {
  return `POST /ws HTTP/1.1\r\nHost: a\r\n${framing}\r\n\r\n${body}`;
}

/** @param {string[]} list @param {Random} random */
function shuffle(list, random) {
  for (let i = list.length - 1; i > 0; i--) {
    const at = random.below(i + 1);
    [list[i], list[at]] = [list[at], list[i]];
  }
}
