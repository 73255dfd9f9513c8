// offers.test.js: a header that offers something never changes the answer, on any route of any door.
// Java's HttpClient and `curl --http2` offer HTTP/2 with each first request, for example.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { signedRequest } from '../helpers/pusher-api.js';
import { handshake, KEY, RawClient } from '../helpers/raw-http.js';
import { shared } from '../helpers/shared.js';

/** @import { TestContext } from 'node:test' */

const limit = { timeout: 60_000 };
const SECRET = newSecret();
const APP = { id: '1', key: 'app-key', secret: 'a-secret-of-some-length' };

const start = shared((owner) =>
  startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    API_KEYS: `backend ${SECRET} all`,
    FANFARE_HISTORY: 'h.*=10/60s',
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_CENTRIFUGO_API_KEY: SECRET,
    FANFARE_PUSHER_APP_ID: APP.id,
    FANFARE_PUSHER_APP_KEY: APP.key,
    FANFARE_PUSHER_APP_SECRET: APP.secret,
  }),
);

const API = [`Authorization: Bearer ${SECRET}`];
const JSON_API = [...API, 'Content-Type: application/json'];
const CENTRIFUGO = [`X-API-Key: ${SECRET}`, 'Content-Type: application/json'];
const PUBLISH = '{"room":"a","payload":1}';
const EVENT = { name: 'n', channels: ['a'], data: 'd' };
const events = () => signedRequest(APP, '/apps/1/events', { body: EVENT });
const EMULATED = JSON.stringify({ session: 'A'.repeat(22), node: 'ThKJUQU53fSi5reL' });

/** @typedef {{status: number, lines?: readonly string[], body?: string, port?: 'ops'}} Wanted */

/** Requests by method and path. @type {readonly [string, string|(() => string), Wanted][]} */
const REQUESTS = [
  ['GET', '/livez', { status: 200 }],
  ['HEAD', '/livez', { status: 200 }],
  ['POST', '/livez', { status: 405 }],
  ['GET', '/readyz', { status: 200 }],
  ['GET', '/', { status: 426 }],
  ['GET', '/ws', { status: 426 }],
  ['POST', '/ws', { status: 405, body: 'x' }],
  ['GET', '/nowhere', { status: 404 }],
  ['POST', '/nowhere', { status: 404, body: 'x' }],
  ['POST', '/api/publish', { status: 200, lines: JSON_API, body: PUBLISH }],
  ['POST', '/api/publish', { status: 400, lines: JSON_API, body: '{' }],
  ['POST', '/api/publish', { status: 401, body: PUBLISH }],
  ['POST', '/api/publish', { status: 415, lines: API, body: PUBLISH }],
  ['GET', '/api/rooms', { status: 200, lines: API }],
  ['GET', '/api/none', { status: 404, lines: API }],
  ['DELETE', '/api/rooms/h.1/history', { status: 200, lines: API }],
  ['PUT', '/api/publish', { status: 405, lines: JSON_API, body: PUBLISH }],
  ['POST', () => events().path, { status: 200, lines: JSON_API, body: events().body }],
  ['GET', () => signedRequest(APP, '/apps/1/channels').path, { status: 200 }],
  ['GET', '/apps/1/channels', { status: 401 }],
  ['GET', '/app/app-key?protocol=7', { status: 426 }],
  ['POST', '/centrifugo/api/publish', { status: 200, lines: CENTRIFUGO, body: '{}' }],
  ['POST', '/centrifugo/api/info', { status: 401, body: '{}' }],
  ['POST', '/emulation', { status: 400, lines: JSON_API, body: EMULATED }],
  ['OPTIONS', '/emulation', { status: 204 }],
  ['POST', '/connection/http_stream', { status: 200, body: '{"id":1,"connect":{}}' }],
  ['POST', '/connection/http_stream', { status: 400 }],
  ['GET', '/connection/sse?cf_connect=%7B%7D', { status: 200 }],
  ['GET', '/connection/websocket', { status: 426 }],
  ['GET', '/sse?room=a', { status: 200 }],
  ['POST', '/sse', { status: 405, body: 'x' }],
  ['OPTIONS', '/sse', { status: 204 }],
  ['GET', '/livez', { status: 200, port: 'ops' }],
  ['GET', '/metrics', { status: 200, port: 'ops' }],
  ['GET', '/nowhere', { status: 404, port: 'ops' }],
];

const WEBSOCKET = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  `Sec-WebSocket-Key: ${KEY}`,
];
/** Header lines. @type {Readonly<Record<string, readonly string[]>>} */
const OFFERS = {
  'HTTP/2, as Java does': [
    'Connection: Upgrade, HTTP2-Settings',
    'HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA',
    'Upgrade: h2c',
  ],
  'HTTP/2 without Connection': ['Upgrade: h2c'],
  TLS: ['Connection: Upgrade', 'Upgrade: TLS/1.0'],
  'HTTP/2 or a WebSocket': ['Connection: Upgrade', 'Upgrade: h2c, websocket'],
  'an upgrade to nothing': ['Connection: Upgrade'],
  'to wait for 100': ['Expect: 100-continue'],
  'to wait for 100, and HTTP/2': [
    'Connection: Upgrade, HTTP2-Settings',
    'Upgrade: h2c',
    'Expect: 100-continue',
  ],
  'the end of the connection': ['Connection: close'],
  'trailers and a long life': ['Connection: keep-alive, TE', 'TE: trailers', 'Keep-Alive: 600'],
  'codings and preferences': ['Accept-Encoding: br, gzip', 'Prefer: respond-async', 'DNT: 1'],
};

/** For paths of WebSockets it is no offer. */
const isForWebSockets = (/** @type {string} */ path) =>
  /^\/(ws|app\/.*|connection\/websocket.*)?$/.test(path);

/**
 * @param {TestContext} t @param {{port: number, metricsPort: number}} server
 * @param {typeof REQUESTS[number]} request @param {readonly string[]} offer
 */
async function answerTo(t, server, [method, pathOf, { lines = [], body = '', port }], offer) {
  const path = typeof pathOf === 'string' ? pathOf : pathOf();
  const client = await RawClient.connect(t, {
    port: port === 'ops' ? server.metricsPort : server.port,
  });
  const length = body === '' ? [] : [`Content-Length: ${body.length}`];
  const head = [`${method} ${path} HTTP/1.1`, 'Host: a', ...lines, ...length, ...offer];
  client.write(`${head.join('\r\n')}\r\n\r\n`).write(body);
  if (method === 'HEAD') {
    await until(() => client.bytes.includes('\r\n\r\n'));
    client.bytes = Buffer.from(client.bytes.toString().replace(/Content-Length: \d+/i, 'A: b'));
  }
  let answer = await client.response();
  while (answer.status === 100) answer = await client.response();
  client.socket.destroy();
  const { error, message, code } = /^\{.*\}$/.test(answer.body) ? JSON.parse(answer.body) : {};
  const { 'content-type': type, allow } = answer.headers;
  return { status: answer.status, type, allow, error, message, code };
}

for (const request of REQUESTS) {
  const [method, pathOf, { status, port = 'public' }] = request;
  const path = (typeof pathOf === 'string' ? pathOf : pathOf()).split('?')[0];
  test(
    `no offer changes the answer to ${method} ${path}: ${status} (${port})`,
    limit,
    async (t) => {
      const server = await start();
      const plain = await answerTo(t, server, request, []);
      assert.equal(plain.status, status);
      const offers = Object.entries(OFFERS);
      if (!isForWebSockets(path)) offers.push(['a WebSocket', WEBSOCKET]);
      for (const [name, offer] of offers)
        assert.deepEqual(await answerTo(t, server, request, offer), plain, name);
    },
  );
}

for (const target of ['/ws', '/', '/app/app-key?protocol=7', '/connection/websocket'])
  test(`no further offer changes a handshake at ${target}`, limit, async (t) => {
    const server = await start();
    for (const headers of [
      {},
      { Connection: 'keep-alive, Upgrade, HTTP2-Settings', 'HTTP2-Settings': 'AAEAAEAA' },
      { Connection: 'Upgrade, TE', TE: 'trailers' },
      { Expect: '100-continue' },
      { 'Accept-Encoding': 'br, gzip', Accept: 'text/html', Prefer: 'respond-async' },
    ]) {
      const client = await RawClient.connect(t, server);
      const answer = await client.write(handshake({ target, headers })).response();
      assert.equal(answer.status, 101, JSON.stringify(headers));
      client.socket.destroy();
    }
  });

test('a connection goes on after an offer that was passed over', limit, async (t) => {
  const client = await RawClient.connect(t, await start());
  const [method, path, { lines = [], body = '' }] = REQUESTS[9];
  const offer = OFFERS['HTTP/2, as Java does'];
  const head = [
    `${method} ${path} HTTP/1.1`,
    'Host: a',
    ...lines,
    `Content-Length: ${body.length}`,
  ];
  const livez = `GET /livez HTTP/1.1\r\nHost: a\r\n${offer.join('\r\n')}\r\n\r\n`;
  for (let i = 0; i < 3; i++) {
    client.write(`${[...head, ...offer].join('\r\n')}\r\n\r\n${body}`);
    assert.equal((await client.response()).status, 200);
    assert.equal((await client.write(livez).response()).status, 200);
  }
  assert.equal((await client.write(handshake()).response()).status, 101);
  const pipelined = await RawClient.connect(t, await start());
  pipelined.write(livez + livez);
  for (let i = 0; i < 2; i++) assert.equal((await pipelined.response()).status, 200);
});

test('a client of HTTP/1.0 gets no 100 Continue', limit, async (t) => {
  const client = await RawClient.connect(t, await start());
  const lines = [...JSON_API, `Content-Length: ${PUBLISH.length}`, 'Expect: 100-continue'];
  client.write(`POST /api/publish HTTP/1.0\r\n${lines.join('\r\n')}\r\n\r\n${PUBLISH}`);
  assert.equal((await client.response()).status, 200);
});
