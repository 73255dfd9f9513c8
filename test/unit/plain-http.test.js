// plain-http.test.js: plain HTTP on the public port, its idle connections and its bounds
// (transport/plain-http.js, transport/idle-sockets.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../src/config/config.js';
import { decodeEmulation } from '../../src/doors/centrifugo/codec/json.js';
import { UpstreamRequests } from '../../src/doors/upstream-requests.js';
import { NO_PRESENCE } from '../../src/hub/room-users.js';
import { createCounters } from '../../src/observability/counters.js';
import { MessageRules } from '../../src/operations/message.js';
import { HttpApi } from '../../src/transport/http-api/http-api.js';
import { createNotFound } from '../../src/transport/not-found.js';
import { serverConfigOf } from '../helpers/config.js';
import { limit, start, until } from '../helpers/public-port.js';
import { handshake } from '../helpers/raw-http.js';

const SECRET = 'x'.repeat(32);

/** The parts of an HTTP API that answers nothing but refusals. */
function apiParts() {
  const { config } = loadConfig({ API_KEYS: `backend ${SECRET} all` });
  assert.ok(config);
  const never = async () => assert.fail('not called');
  return {
    config,
    broker: { countConnections: never },
    publisher: { publish: never, rules: new MessageRules(config, () => null) },
    historyOf: () => null,
    stateOf: () => null,
    stateReader: { read: async () => null },
    blobs: null,
    historyReader: { read: never },
    tracker: NO_PRESENCE,
    fleet: /** @type {any} */ ({}),
    phase: { isDraining: false },
    revoke: null,
    counters: createCounters(),
    log: { error() {} },
    take: () => 0,
    observe() {},
    audit: { acted() {}, refused() {} },
    addressOf: () => '',
  };
}

/** @param {any} parts @param {any} fleet */
function upstreamOf(parts, fleet) {
  return new UpstreamRequests({ ...parts, api: { fleet } }, () => decodeEmulation, 65_536);
}

/**
 * A request for a path that the HTTP API does not have.
 * @param {string} [body]
 * @param {number} [length] of the whole body
 */
function apiRequest(body = '', length = body.length) {
  return `POST /api/none HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${SECRET}\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n${body}`;
}

test(
  'requests behind the last one that is answered never reach the HTTP server',
  limit,
  async (t) => {
    const { connect, server, counters } = await start(t, { env: { FANFARE_LIMITS: 'off' } });
    let requests = 0;
    server.reader.http.prependListener('request', () => void requests++);
    const client = await connect();
    client.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(1000));
    await client.closed();
    assert.equal(requests, 2);
    assert.equal(client.bytes.toString().split('HTTP/1.1 200').length - 1, 2);
    // Empty lines before a request: a parser may ignore one (RFC 9112 2.2).
    const padded = await connect();
    padded.write(`\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\n\r\n`);
    assert.equal((await padded.response()).status, 200);
    const empty = await connect();
    empty.write('\r\n'.repeat(1000));
    await empty.closed();
    assert.equal(counters.refused.bad_request, 1);
  },
);

/**
 * @type {[name: string, sent: string, status: number, headers: Record<string, string|RegExp>][]}
 */
const PLAIN = [
  [
    'GET /livez',
    'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n',
    200,
    { 'content-type': 'application/json', 'cache-control': 'no-store' },
  ],
  ['HEAD /readyz', 'HEAD /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n', 200, {}],
  [
    'GET /livez in HTTP/1.0 without a Host, as load balancers do',
    'GET /livez HTTP/1.0\r\n\r\n',
    200,
    { connection: 'close' },
  ],
  ['GET /livez with a query', 'GET /livez?x HTTP/1.1\r\nHost: a\r\n\r\n', 200, {}],
  [
    'GET with 101 headers',
    `GET /livez HTTP/1.1\r\nHost: a\r\n${'a:b\r\n'.repeat(100)}\r\n`,
    431,
    { connection: 'close' },
  ],
  [
    'GET with an empty body',
    'GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n',
    200,
    { connection: 'keep-alive' },
  ],
  [
    'GET /livez with an offer of HTTP/2, as curl and Java make it',
    'GET /livez HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 0\r\nHost: a\r\nHTTP2-Settings: AAEAAEAA\r\nUpgrade: h2c\r\n\r\n',
    200,
    { connection: 'keep-alive', 'content-type': 'application/json', 'cache-control': 'no-store' },
  ],
  [
    'HEAD /readyz with an offer of HTTP/2',
    'HEAD /readyz HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n',
    200,
    {},
  ],
  [
    'POST /livez with an offer of HTTP/2',
    'POST /livez HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n',
    405,
    {},
  ],
  ['GET without a Host', 'GET /livez HTTP/1.1\r\n\r\n', 400, { connection: 'close' }],
  [
    'GET with two Hosts',
    'GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n',
    400,
    { connection: 'close' },
  ],
  [
    'GET in HTTP/1.0 with two Hosts',
    'GET /livez HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n',
    400,
    { connection: 'close' },
  ],
  [
    'POST /livez',
    'POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc',
    405,
    { allow: 'GET, HEAD', connection: 'close' },
  ],
  ['OPTIONS /', 'OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n', 405, { allow: 'GET' }],
  [
    'GET /',
    'GET / HTTP/1.1\r\nHost: a\r\n\r\n',
    426,
    { upgrade: 'websocket', connection: /Upgrade/ },
  ],
  ['GET /metrics', 'GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n', 404, {}],
  ['GET /console', 'GET /console HTTP/1.1\r\nHost: a\r\n\r\n', 404, {}],
  ['GET /sse', 'GET /sse?room=a HTTP/1.1\r\nHost: a\r\n\r\n', 404, {}],
  [
    'POST /api/publish',
    'POST /api/publish HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n',
    404,
    { connection: 'close' },
  ],
  ['another expectation', 'GET /livez HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n', 417, {}],
  [
    'a smuggled request',
    'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    400,
    { connection: 'close' },
  ],
];

/**
 * @param {string} response
 * @returns {string|undefined} the name of a header that stands there twice
 */
function repeatedHeader(response) {
  const [head] = response.split('\r\n\r\n');
  const names = [...head.matchAll(/^([\w-]+): /gm)].map(([, name]) => name.toLowerCase());
  return names.find((name, i) => names.indexOf(name) !== i);
}

test('each plain HTTP request gets its status, and faults are counted', limit, async (t) => {
  const { connect, counters } = await start(t);
  for (const [name, sent, status, headers] of PLAIN) {
    await t.test(`${name}: ${status}`, limit, async () => {
      const before = counters.refused.bad_request;
      const client = await connect();
      client.write(sent);
      if (sent.startsWith('HEAD')) {
        await client.closed();
        assert.match(client.bytes.toString(), /^HTTP\/1.1 200 OK\r\n/);
        assert.match(client.bytes.toString(), /\r\n\r\n$/);
        assert.equal(repeatedHeader(client.bytes.toString()), undefined);
        return;
      }
      const response = await client.response();
      assert.equal(repeatedHeader(response.text), undefined);
      assert.equal(response.status, status, response.text);
      assert.equal(counters.refused.bad_request - before, status === 200 ? 0 : 1);
      assert.equal(response.headers['x-content-type-options'], 'nosniff');
      for (const [header, value] of Object.entries(headers)) {
        if (value instanceof RegExp) assert.match(response.headers[header], value);
        else assert.equal(response.headers[header], value);
      }
    });
  }
});

test('the HTTP API refuses two Hosts, and its answers are not sniffed', limit, async (t) => {
  const { connect } = await start(t, { api: new HttpApi(apiParts()) });
  const client = await connect();
  const one = await client.write(apiRequest('{}')).response();
  assert.deepEqual([one.status, one.headers['x-content-type-options']], [404, 'nosniff']);
  const two = await client.write(apiRequest('{}').replace('Host', 'Host: b\r\nHost')).response();
  assert.deepEqual([two.status, two.headers['x-content-type-options']], [400, 'nosniff']);
  await client.closed();
});

test('idle HTTP connections are kept as long as FANFARE_KEEP_ALIVE_MS says', limit, async (t) => {
  for (const [env, header] of /** @type {[Record<string, string>, string][]} */ ([
    [{}, 'timeout=5'],
    [{ FANFARE_KEEP_ALIVE_MS: '65000' }, 'timeout=65'],
  ])) {
    const { connect, server } = await start(t, { env });
    const client = await connect();
    const { headers } = await client.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n').response();
    assert.equal(headers['keep-alive'], header);
    assert.equal(server.reader.http.keepAliveTimeout, Number(header.slice(8)) * 1000);
  }
});

test('the PROXY protocol is refused: nobody may claim an address in it', limit, async (t) => {
  const { connect, counters } = await start(t);
  const second = Buffer.from('0d0a0d0a000d0a515549540a2111000cc0000207c00002011f901f90', 'hex');
  for (const head of ['PROXY TCP4 192.0.2.7 192.0.2.1 8080 80\r\n', second]) {
    const client = await connect();
    client.write(Buffer.concat([Buffer.from(head), Buffer.from(handshake())]));
    assert.equal((await client.response()).status, 400);
    await client.closed();
  }
  assert.equal(counters.refused.bad_request, 2);
});

test('an answer that is not ASCII has its length in bytes', limit, async (t) => {
  const text = 'Zugang verweigert – für «x» 😀';
  const body = JSON.stringify({ message: text });
  const api = /** @type {any} */ ({ begin: () => ({ status: 403, headers: {}, body }) });
  const { connect } = await start(t, { api });
  const client = await connect();
  // A kept-alive socket, then a body that is refused unread.
  const get = 'GET /api/none HTTP/1.1\r\nHost: a\r\n\r\n';
  for (const request of [get, apiRequest('x', 10)]) {
    const answer = await client.write(request).response();
    assert.equal(JSON.parse(Buffer.from(answer.body, 'latin1').toString()).message, text);
  }
  await client.closed();
  assert.equal(client.bytes.length, 0);
});

/** Paths of doors that are off, and of other servers: what the answer names. */
const ELSEWHERE = /** @type {const} */ ([
  ['/socket.io/?EIO=4&transport=polling', /Socket\.IO.*docs\/migration\.md/],
  ['/app/KEY?protocol=7', /FANFARE_PUSHER_APP_ID.*FANFARE_PUSHER_APPS/],
  ['/apps/1/events', /FANFARE_PUSHER_APPS/],
  ['/connection/websocket', /FANFARE_CENTRIFUGO=on/],
  ['/connection/http_stream', /FANFARE_CENTRIFUGO=on/],
  ['/emulation', /FANFARE_CENTRIFUGO=on/],
  ['/centrifugo/api/publish', /FANFARE_CENTRIFUGO=on.*FANFARE_CENTRIFUGO_API_KEY/],
  ['/api/publish', /API_KEYS/],
  ['/sse?room=a', /FANFARE_SSE=on/],
  ['/console/', /METRICS_PORT/],
  ['/metrics', /METRICS_PORT/],
  ['/nowhere', /^Not found\. WebSockets are at \/ws\.$/],
]);

test('the answer at a path of a door that is off names the setting', limit, async (t) => {
  const { connect, counters } = await start(t, { env: { FANFARE_SSE: 'off' } });
  for (const [path, text] of ELSEWHERE) {
    const requests = [`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`, handshake({ target: path })];
    for (const request of requests) {
      const { status, body } = await (await connect()).write(request).response();
      assert.equal(status, 404, path);
      assert.match(JSON.parse(body).message, text, request);
    }
  }
  assert.equal(counters.refused.bad_request, 2 * ELSEWHERE.length);
});

test('at a wrong path of a door that is on, the answer names the right one', () => {
  const ask = (/** @type {Record<string, string>} */ env, /** @type {string} */ url) =>
    createNotFound(serverConfigOf({ JWT_SECRET: 's'.repeat(32), ...env }))({ url }).message;
  const centrifugo = { FANFARE_CENTRIFUGO: 'on', FANFARE_CENTRIFUGO_PATH: '/live' };
  assert.match(ask(centrifugo, '/connection/websocket'), / \/live\/connection\/websocket/);
  assert.match(ask(centrifugo, '/centrifugo/api/info'), /set FANFARE_CENTRIFUGO_API_KEY/);
  const key = { FANFARE_CENTRIFUGO_API_KEY: 'k'.repeat(32), FANFARE_CENTRIFUGO_API_PATH: '/rt' };
  assert.match(ask({ ...centrifugo, ...key }, '/centrifugo/api/info'), / is at \/rt /);
  const pusher = {
    ...{ FANFARE_PUSHER_APP_ID: '1', FANFARE_PUSHER_APP_KEY: 'key' },
    FANFARE_PUSHER_APP_SECRET: 'a-secret-of-some-length',
  };
  assert.match(ask(pusher, '/apps/'), /^Not found/);
  assert.match(ask(pusher, '/app/a/b'), /\/app\/KEY for clients/);
});

test(
  'a person who opens the port in a browser gets a page, and others get JSON',
  limit,
  async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    const get = (/** @type {string} */ path, /** @type {string} */ accept) =>
      client.write(`GET ${path} HTTP/1.1\r\nHost: a\r\nAccept: ${accept}\r\n\r\n`).response();
    const browser = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8';
    const missing = await get('/socket.io/<script>', browser);
    assert.equal(missing.status, 404);
    assert.match(missing.body, /<p>This server does not speak Socket\.IO/);
    assert.doesNotMatch(missing.body, /script/);
    for (const accept of ['*/*', 'application/json'])
      assert.match((await get('/nowhere', accept)).headers['content-type'], /json/);
    const { status, headers, body } = await get('/', browser);
    assert.equal(status, 426);
    assert.match(headers['content-type'], /^text\/html/);
    assert.match(headers['cache-control'], /^public, max-age=\d+$/);
    assert.equal(headers.vary, 'Accept');
    assert.match(headers['content-security-policy'], /default-src 'none'/);
    for (const name of [
      'METRICS_PORT',
      'npm run hello',
      'docs/getting-started.md',
      'API_KEYS',
      '/ws',
    ])
      assert.ok(body.includes(name), name);
    assert.ok(body.length < 1500 && body.split('\n').length < 25, `${body.length} bytes`);
  },
);

test('/readyz follows readiness, /livez does not', limit, async (t) => {
  const { connect, ready } = await start(t);
  const client = await connect();
  const get = async (/** @type {string} */ path) => {
    const { status, body } = await client
      .write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`)
      .response();
    return [status, JSON.parse(body)];
  };
  assert.deepEqual(await get('/readyz'), [200, { status: 'ok' }]);
  ready.reason = 'event loop lag';
  assert.deepEqual(await get('/readyz'), [
    503,
    { status: 'unavailable', reason: 'event loop lag' },
  ]);
  assert.deepEqual(await get('/livez'), [200, { status: 'ok' }]);
});

test(
  'plain HTTP keeps few connections alive; the address with the most loses its oldest',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t);
    const livez = 'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n';
    const check = await connect('127.0.0.3');
    assert.equal((await check.write(livez).response()).status, 200);
    const clients = [];
    for (let i = 0; i < 80; i++) {
      clients.push(await connect('127.0.0.2'));
      assert.equal((await clients[i].write(livez).response()).status, 200);
    }
    assert.equal(server.plainSockets, 64);
    assert.equal(counters.idleClosed.plain_http, 17);
    for (const client of clients.slice(0, 17)) await client.closed();
    assert.equal((await check.write(livez).response()).status, 200);
    assert.equal((await clients[79].write(livez).response()).status, 200);
    await until(() => server.openSockets === 64);
  },
);

test(
  '256 idle connections of the HTTP API are kept, then the oldest is closed',
  limit,
  async (t) => {
    const api = new HttpApi(apiParts());
    const { connect, counters, server } = await start(t, { api });
    const clients = [];
    for (let i = 0; i < 260; i++) {
      clients.push(await connect());
      assert.equal((await clients[i].write(apiRequest()).response()).status, 404);
    }
    await until(() => server.openSockets === 256);
    for (const client of clients.slice(0, 4)) await client.closed();
    assert.equal(counters.idleClosed.plain_http, 4);
    assert.equal((await clients[4].write(apiRequest()).response()).status, 404);
  },
);

test('idle connections of clients are bounded, and those of backends stay', {
  timeout: 60_000, // it opens a thousand, one after another
}, async (t) => {
  /** @type {import('../../src/transport/route.js').Api} */
  const api = {
    begin: ({ method }) => ({ endConnection() {}, isOfClient: method === 'POST' }),
    handle: (_call, request, response) => {
      request.resume();
      response.writeHead(204).end();
    },
  };
  const { connect, counters, server } = await start(t, { api, env: { FANFARE_LIMITS: 'off' } });
  const ask = async (/** @type {string} */ method) => {
    const client = await connect();
    const head = `${method} /api/x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n`;
    assert.equal((await client.write(head).response()).status, 204);
    return client;
  };
  const backend = await ask('GET');
  const clients = /** @type {Awaited<ReturnType<typeof ask>>[]} */ ([]);
  for (let i = 0; i < 1028; i++) clients.push(await ask('POST'));
  await until(() => clients.filter(({ isClosed }) => isClosed).length === 4);
  assert.equal(counters.idleClosed.plain_http, 4);
  assert.equal(backend.isClosed, false);
  assert.ok(server.openSockets >= 1025);
});

test('a body that is not whole after 10 s gets 408, and its connection ends', limit, async (t) => {
  const parts = apiParts();
  const { connect } = await start(t, { api: new HttpApi(parts) });
  const client = await connect();
  t.mock.timers.enable({ apis: ['setTimeout'] });
  client.socket.write(apiRequest('{"room":"a","pay', 100));
  while (parts.counters.api.inFlight === 0) await new Promise((resolve) => setImmediate(resolve));
  t.mock.timers.tick(9999);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(parts.counters.api.inFlight, 1);
  t.mock.timers.tick(1);
  // First it reads what has arrived.
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(parts.counters.api.inFlight, 0);
  t.mock.timers.reset();
  const { status, body, headers } = await client.response();
  assert.deepEqual([status, JSON.parse(body).error], [408, 'REQUEST_TIMEOUT']);
  assert.equal(headers.connection, 'close');
  assert.equal(parts.counters.api.refused.body_time, 1);
  await client.closed();
});

/**
 * An HTTP API whose histories have 16 MB: more than the kernel takes for a client.
 * @param {Record<string, string>} [env]
 */
function largeAnswers(env = {}) {
  const { config } = loadConfig({ API_KEYS: `backend ${SECRET} all`, ...env });
  assert.ok(config);
  const page = {
    messages: Buffer.alloc(16_777_216, 0x20),
    position: { epoch: '0'.repeat(16), offset: 0 },
  };
  const parts = {
    ...apiParts(),
    config,
    historyOf: () => /** @type {any} */ ({}),
    historyReader: { read: async () => /** @type {any} */ (page) },
  };
  return { api: new HttpApi(parts), counters: parts.counters.api };
}

/** @param {string} [secret] */
const historyRequest = (secret = SECRET) =>
  `GET /api/rooms/a/history HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${secret}\r\n\r\n`;

test(
  'a client that does not take an answer of the HTTP API loses its connection after 10 s for each MiB',
  limit,
  async (t) => {
    const { api, counters } = largeAnswers();
    const { connect, server } = await start(t, { api });
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const [unread, pipelined, reader] = [await connect(), await connect(), await connect()];
    reader.socket.removeAllListeners('data').resume();
    for (const client of [unread, pipelined]) client.socket.pause();
    unread.write(historyRequest());
    pipelined.write(historyRequest() + historyRequest());
    await until(() => counters.requests.history === 3);
    reader.write(historyRequest());
    await until(() => counters.inFlight === 3 && counters.requests.history === 4);
    t.mock.timers.tick(169_999);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(counters.inFlight, 3, 'the reader’s place alone is free');
    t.mock.timers.tick(1);
    await until(() => counters.inFlight === 0);
    await until(() => server.openSockets === 1);
    assert.equal(counters.unread, 3);
    await api.drain(60_000); // nothing is left to wait for
  },
);

test('a pipelined request gives back its place if its socket closes first', limit, async (t) => {
  const parts = apiParts();
  /** @type {Promise<never>} */
  const never = new Promise(() => {});
  const { connect } = await start(t, {
    api: new HttpApi({ ...parts, publisher: { ...parts.publisher, publish: () => never } }),
  });
  const fleet = { name: '', listen: () => never, deliver: () => never };
  const emulation = upstreamOf(parts, fleet);
  const other = await start(t, { api: emulation });
  const publish = apiRequest('{"room":"a","payload":1}').replace('none', 'publish');
  const emulated = apiRequest('{"session":"a","node":"b","data":"c"}');
  const client = (await connect()).write(publish + publish);
  const browser = (await other.connect()).write(emulated + emulated);
  await until(() => parts.counters.api.inFlight === 2 && emulation.underWay === 2);
  client.socket.destroy();
  browser.socket.destroy();
  await until(() => parts.counters.api.inFlight === 0 && emulation.underWay === 0);
});

test(
  'at the bound of emulated requests, the address with most unfinished bodies gives way',
  limit,
  async (t) => {
    const parts = apiParts();
    const fleet = { name: '', listen: async () => {}, deliver: async () => true };
    const emulation = upstreamOf(parts, fleet);
    emulation.maxRequests = 3;
    const { connect } = await start(t, { api: emulation });
    const whole = apiRequest('{"session":"a","node":"b","data":"c"}');
    const slow = [];
    for (let i = 0; i < 3; i++) {
      slow.push((await connect('127.0.0.2')).write(whole.slice(0, -1)));
      await until(() => emulation.underWay === i + 1);
    }
    const honest = await connect('127.0.0.3');
    honest.write(whole);
    assert.equal((await honest.response()).status, 204);
    assert.equal((await slow[0].response()).status, 503);
    await slow[0].closed();
    // One of another address takes no place from it.
    const other = (await connect('127.0.0.4')).write(whole.slice(0, -1));
    await until(() => emulation.underWay === 3);
    slow.push((await connect('127.0.0.2')).write(whole.slice(0, -1)));
    assert.equal((await slow[1].response()).status, 503);
    for (const client of [other, slow[2], slow[3]]) {
      client.write(whole.slice(-1));
      assert.equal((await client.response()).status, 204);
    }
    assert.deepEqual(parts.counters.emulation, {
      ...{ delivered: 4, unavailable: 2, malformed: 0, unknown: 0 },
    });
    assert.equal(emulation.underWay, 0);
  },
);

test('emulated requests that wait for their stream keep their places', limit, async (t) => {
  const parts = apiParts();
  /** @type {Promise<never>} */
  const never = new Promise(() => {});
  const fleet = { name: '', listen: () => never, deliver: () => never };
  const emulation = upstreamOf(parts, fleet);
  emulation.maxRequests = 1;
  const { connect } = await start(t, { api: emulation });
  const whole = apiRequest('{"session":"a","node":"b","data":"c"}');
  (await connect()).write(whole);
  await until(() => emulation.underWay === 1);
  const other = (await connect()).write(whole);
  assert.equal((await other.response()).status, 503);
  assert.equal(emulation.underWay, 1);
});

test('what follows the last request is not parsed while that is not answered', limit, async (t) => {
  /** @type {Promise<never>} */
  const never = new Promise(() => {});
  const fleet = { name: '', listen: () => never, deliver: () => never };
  const emulation = upstreamOf(apiParts(), fleet);
  const { connect, server } = await start(t, { api: emulation });
  let parsed = 0;
  server.reader.http.on('request', () => parsed++);
  const client = await connect();
  client.write(apiRequest('{"session":"a","node":"b","data":"c"}'));
  await until(() => emulation.underWay === 1);
  const more = 'GET / HTTP/1.1\r\n\r\n'.repeat(10_000);
  client.write(more);
  await until(() => client.socket.bytesWritten > more.length);
  client.write(more);
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.ok(parsed < 100, `${parsed} requests`);
});

test('a request behind one that is not answered does not leave HTTP', limit, async (t) => {
  /** @type {Promise<never>} */
  const never = new Promise(() => {});
  const fleet = { name: '', listen: () => never, deliver: () => never };
  const emulation = upstreamOf(apiParts(), fleet);
  const { connect, counters, server } = await start(t, { api: emulation });
  const call = apiRequest('{"session":"a","node":"b","data":"c"}');
  for (const next of [handshake(), 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n']) {
    const client = await connect();
    client.write(call + next);
    await client.closed();
    assert.equal(client.bytes.length, 0);
  }
  assert.equal(counters.refused.bad_request, 2);
  await until(() => server.openSockets === 0 && emulation.underWay === 0);
});

test('one of several API keys has half of the places at most', limit, async (t) => {
  const other = 'y'.repeat(32);
  const { api, counters } = largeAnswers({
    API_KEYS: `backend ${SECRET} all; other ${other} all`,
    FANFARE_API_MAX_REQUESTS: '4',
  });
  const { connect } = await start(t, { api });
  const clients = [];
  for (let i = 0; i < 3; i++) {
    clients.push(await connect());
    clients[i].socket.pause();
    clients[i].write(historyRequest());
    await until(() => counters.requests.history + counters.refused.busy === i + 1);
  }
  assert.deepEqual([counters.inFlight, counters.refused.busy], [2, 1]);
  const client = await connect();
  const small = `GET /api/none HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer`;
  assert.equal((await client.write(`${small} ${other}\r\n\r\n`).response()).status, 404);
  assert.equal((await client.write(`${small} ${SECRET}\r\n\r\n`).response()).status, 503);
  for (const one of clients) one.socket.destroy();
  await until(() => counters.inFlight === 0);
  assert.equal((await client.write(`${small} ${SECRET}\r\n\r\n`).response()).status, 404);
});

test('plain HTTP closes a connection after 100 requests, and after a minute', limit, async (t) => {
  const { connect, server } = await start(t);
  const livez = 'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n';
  const busy = await connect();
  for (let i = 1; i <= 100; i++) {
    const { status, headers } = await busy.write(livez).response();
    assert.equal(status, 200);
    assert.equal(headers.connection, i < 100 ? 'keep-alive' : 'close');
  }
  await busy.closed();
  const old = await connect();
  assert.equal((await old.write(livez).response()).headers.connection, 'keep-alive');
  const realNow = performance.now.bind(performance);
  t.mock.method(performance, 'now', () => realNow() + 60_000);
  assert.equal((await old.write(livez).response()).headers.connection, 'close');
  await old.closed();
  await until(() => server.openSockets === 0);
});

test('of pipelined requests, two are answered', limit, async (t) => {
  const { connect, server } = await start(t);
  const client = await connect();
  client.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(1000));
  assert.equal((await client.response()).headers.connection, 'keep-alive');
  assert.equal((await client.response()).headers.connection, 'close');
  await client.closed();
  assert.equal(client.bytes.length, 0);
  await until(() => server.openSockets === 0);
  assert.equal(server.plainSockets, 0);
});

test(
  'of pipelined requests, few are parsed, also after a partial first request',
  limit,
  async (t) => {
    const { connect, server } = await start(t);
    let parsed = 0;
    server.reader.http.on('request', () => parsed++);
    for (const request of ['GET /livez HTTP/1.1\r\nHost: a\r\n\r\n', 'GET / HTTP/1.1\r\n\r\n']) {
      for (const cut of [0, 1]) {
        parsed = 0;
        const client = await connect();
        const all = request.repeat(3000);
        if (cut > 0) {
          client.write(all.slice(0, cut));
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
        client.write(all.slice(cut));
        await client.closed();
        assert.ok(parsed > 0 && parsed <= 1 + 512 / request.length, `${parsed} requests`);
      }
    }
  },
);

test('a body is parsed as it is read, and requests after it in small pieces', limit, async (t) => {
  const { connect, server } = await start(t, { api: new HttpApi(apiParts()) });
  const client = await connect();
  let requests = 0;
  let parts = 0;
  server.reader.http.on('request', (request) => {
    requests++;
    request.on('data', () => parts++);
  });
  const livez = 'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n';
  client.write(apiRequest('x'.repeat(60_000)) + livez.repeat(3000));
  assert.equal((await client.response()).status, 404);
  await client.closed();
  assert.ok(parts <= 20, `${parts} parts of 512 bytes would be 118`);
  assert.ok(requests > 0 && requests <= 2 + 1024 / livez.length, `${requests} requests`);
});
