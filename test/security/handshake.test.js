// handshake.test.js: the answer to each kind of handshake: valid, malformed and hostile. Each row
// is sent whole and byte by byte.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { startServer } from '../harness/server.js';
import { handshake, KEY, RawClient } from '../helpers/raw-http.js';
import { GOODBYE, text, Wire } from './wire.js';

const PLAIN = 'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n';
const UPGRADE = [
  'Host: a',
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  `Sec-WebSocket-Key: ${KEY}`,
];

/**
 * A request whose lines are sent as they are.
 * @param {string} first @param {readonly string[]} lines
 */
function request(first, lines) {
  return `${[first, ...lines].join('\r\n')}\r\n\r\n`;
}

/** @param {Record<string, string|string[]|undefined>} headers */
const having = (headers) => handshake({ headers });
/** @param {string} target */
const to = (target) => handshake({ target });

/**
 * @type {[string, string|Buffer, number, Record<string, string>?][]} name, request, status,
 *   headers of the answer
 */
const ROWS = [
  ['a good one', handshake(), 101],
  ['at /', to('/'), 101],
  ['with a query', to('/ws?a=b'), 101],
  [
    'names in another case',
    request(
      'GET /ws HTTP/1.1',
      UPGRADE.map((line) => line.toUpperCase().replace(KEY.toUpperCase(), KEY)),
    ),
    101,
  ],
  ['several tokens in Connection', having({ Connection: 'keep-alive, Upgrade' }), 101],
  [
    'with a frame behind it',
    Buffer.concat([Buffer.from(handshake()), text('{"type":"ping"}')]),
    101,
  ],

  // RFC 6455 4.1, 4.2.1
  ['no key', having({ 'Sec-WebSocket-Key': undefined }), 400],
  ['an empty key', having({ 'Sec-WebSocket-Key': '' }), 400],
  ['a key of 15 bytes', having({ 'Sec-WebSocket-Key': Buffer.alloc(15).toString('base64') }), 400],
  ['a key of 17 bytes', having({ 'Sec-WebSocket-Key': Buffer.alloc(17).toString('base64') }), 400],
  ['a key that is not base64', having({ 'Sec-WebSocket-Key': `${'*'.repeat(22)}==` }), 400],
  [
    'no version',
    having({ 'Sec-WebSocket-Version': undefined }),
    426,
    { 'sec-websocket-version': '13', upgrade: 'websocket' },
  ],
  ['version 8', having({ 'Sec-WebSocket-Version': '8' }), 426, { 'sec-websocket-version': '13' }],
  [
    'version 777',
    having({ 'Sec-WebSocket-Version': '777' }),
    426,
    { 'sec-websocket-version': '13' },
  ],
  [
    'no upgrade',
    having({ Upgrade: undefined, Connection: undefined }),
    426,
    { upgrade: 'websocket' },
  ],
  ['an upgrade to h2c', having({ Upgrade: 'h2c' }), 426, { upgrade: 'websocket' }],
  ['a POST', handshake({ method: 'POST' }), 405, { allow: 'GET' }],
  ['a CONNECT', 'CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n', 405],
  ['HTTP/1.0', handshake({ version: 'HTTP/1.0' }), 400],
  ['HTTP/0.9', 'GET /ws\r\n\r\n', 426],
  ['HTTP/2.0', handshake({ version: 'HTTP/2.0' }), 400],

  // RFC 9112: requests that smuggle others past proxies
  ['no Host', having({ Host: undefined }), 400],
  ['two Hosts', having({ Host: ['a', 'b'] }), 400],
  ['two Hosts of one name', having({ Host: ['a', 'a'] }), 400],
  ['a body', having({ 'Content-Length': '4' }), 400],
  ['a body in chunks', having({ 'Transfer-Encoding': 'chunked' }), 400],
  ['a body of both kinds', having({ 'Transfer-Encoding': 'chunked', 'Content-Length': '4' }), 400],
  ['two lengths', having({ 'Content-Length': ['0', '4'] }), 400],
  ['a length that is none', having({ 'Content-Length': '+4' }), 400],
  ['a blank before a colon', request('GET /ws HTTP/1.1', ['Host : a', ...UPGRADE.slice(1)]), 400],
  ['a folded line', request('GET /ws HTTP/1.1', [...UPGRADE, 'A: b', ' c']), 400],
  ['line feeds alone', `GET /ws HTTP/1.1\n${UPGRADE.join('\n')}\n\n`, 400],
  ['a NUL in a value', having({ A: 'b\0c' }), 400],
  ['a name that is none', request('GET /ws HTTP/1.1', [...UPGRADE, 'A(b): c']), 400],
  ['TLS', Buffer.from('160301020001000001fc0303', 'hex'), 400],
  ['HTTP/2 with prior knowledge', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],

  // The raw path, compared as it is
  ['another path', to('/other'), 404],
  ['two slashes', to('//ws'), 404],
  ['a slash behind', to('/ws/'), 404],
  ['a dot', to('/./ws'), 404],
  ['a way out and back', to('/x/../ws'), 404],
  ['an escaped letter', to('/%77s'), 404],
  ['another case', to('/WS'), 404],
  ['an absolute URL', to('http://a/ws'), 404],
  ['an asterisk', handshake({ target: '*' }), 404],
  ['metrics', 'GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n', 404],
  ['metrics, as an upgrade', to('/metrics'), 404],
  ...['/admin', '/debug', '/console', '/.env', '/api/rooms', '/json/list'].map((path) =>
    row(path, `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`, 404),
  ),

  // Sizes
  ['a header of 16 KB', having({ A: 'b'.repeat(16_384) }), 431],
  ['a path of 16 KB', to(`/ws?${'a'.repeat(16_384)}`), 431],

  // Pages of others
  ['an origin that is allowed', having({ Origin: 'https://app.example.com' }), 101],
  ['no origin', handshake(), 101],
  ...[
    'https://evil.example',
    'https://app.example.com.evil.example',
    'https://evil.example#https://app.example.com',
    'http://app.example.com',
    'https://app.example.com:8443',
    'null',
    '',
  ].map((origin) => row(`the origin ${JSON.stringify(origin)}`, having({ Origin: origin }), 403)),
  ['two origins', having({ Origin: ['https://app.example.com', 'https://evil.example'] }), 403],

  // Health checks
  ['a health check', PLAIN, 200],
  ['a health check by POST', 'POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n', 405],
];

/**
 * @param {string} name
 * @param {string} bytes
 * @param {number} status
 * @returns {[string, string, number]}
 */
function row(name, bytes, status) {
  return [name, bytes, status];
}

test('each handshake gets its answer, however it is cut', { timeout: 60_000 }, async (t) => {
  const server = await startServer(t, {
    WORKERS: '1',
    FANFARE_LIMITS: 'off',
    ALLOWED_ORIGINS: 'https://app.example.com',
  });
  for (const [name, bytes, status, headers = {}] of ROWS) {
    await t.test(`${status}: ${name}`, async (t) => {
      const whole = Buffer.from(bytes);
      const pieces = Array.from(whole.subarray(0, 2000), (_, i) => whole.subarray(i, i + 1));
      pieces.push(whole.subarray(2000));
      for (const cut of [[whole], pieces]) {
        const client = await RawClient.connect(t, server);
        for (const piece of cut) {
          if (client.isClosed) break;
          client.write(piece);
          if (cut.length > 1) await turn();
        }
        const response = await client.response();
        assert.equal(response.status, status);
        for (const [name, value] of Object.entries(headers))
          assert.equal(response.headers[name], value);
        assert.equal(response.headers['x-powered-by'], undefined);
        assert.equal(response.headers.server, undefined);
        // A refusal ends the connection, and does not repeat the request.
        if (status >= 400 && status !== 404) await client.closed();
        if (status >= 400) assert.ok(!/evil|bbbb|aaaa/.test(response.text));
        client.socket.destroy();
      }
    });
  }
  await t.test('data behind a refused request is not read', async (t) => {
    const client = await RawClient.connect(t, server);
    client.write(`${having({ 'Content-Length': '4' })}${handshake()}${PLAIN}`);
    assert.equal((await client.response()).status, 400);
    await client.closed();
    assert.equal(client.bytes.length, 0);
  });
  await t.test('a request behind an accepted handshake is read as frames', async () => {
    const wire = new Wire(server.port, { request: handshake() + PLAIN });
    assert.equal((await wire.ended()).close, 1002);
  });
  await t.test('frames behind a handshake are accepted in order', async () => {
    const early = Buffer.concat([
      Buffer.from(handshake()),
      text('{"type":"ping","id":1}'),
      text('{"type":"ping","id":2}'),
      GOODBYE,
    ]);
    const wire = new Wire(server.port, { request: early });
    assert.deepEqual((await wire.ended()).texts, [
      '{"type":"pong","id":1}',
      '{"type":"pong","id":2}',
    ]);
  });
  await t.test('no input makes the worker log a warning or an error', () => {
    assert.deepEqual(
      server.lines.filter(({ level }) => level >= 40),
      [],
    );
  });
});

test('requests with an Expect header count against the limit of requests per socket', {
  timeout: 20_000,
}, async (t) => {
  const server = await startServer(t, { WORKERS: '1', FANFARE_LIMITS: 'off' });
  const client = await RawClient.connect(t, server);
  client.write('GET /livez HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n'.repeat(1000));
  await client.closed();
  const answers = client.bytes.toString('latin1').split('HTTP/1.1 ').length - 1;
  assert.ok(answers >= 1 && answers <= 100, `${answers}`);
});

test('a handshake that takes too long gets 408', { timeout: 20_000 }, async (t) => {
  const server = await startServer(t, { WORKERS: '1', FANFARE_HANDSHAKE_TIMEOUT_MS: '300' });
  for (const start of ['GET', handshake().slice(0, -2)]) {
    const client = await RawClient.connect(t, server);
    client.write(start);
    assert.equal((await client.response()).status, 408);
    await client.closed();
  }
});

test('an address above its cap gets 429 and a time to wait, over all workers', {
  timeout: 20_000,
}, async (t) => {
  const server = await startServer(t, {
    WORKERS: '2',
    FANFARE_MAX_CONNECTIONS_PER_IP: '3',
    FANFARE_SCHEDULING: 'round-robin',
  });
  const localAddress = '127.0.0.9';
  const held = [];
  for (let i = 0; i < 3; i++) held.push(await new Wire(server.port, { localAddress }).opened());
  assert.deepEqual(
    held.map(({ heard }) => heard.status),
    [101, 101, 101],
  );
  for (let i = 0; i < 4; i++) {
    const client = await RawClient.connect(t, { ...server, localAddress });
    const { status, headers } = await client.write(handshake()).response();
    assert.equal(status, 429);
    assert.ok(Number(headers['retry-after']) >= 1);
  }
  const other = await new Wire(server.port, { localAddress: '127.0.0.10' }).opened();
  assert.equal(other.heard.status, 101);
  for (const wire of [...held, other]) wire.destroy();
});
