import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { IncomingMessage, ServerResponse } from 'node:http';
import { connect as dial } from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { WebSocketServer } from 'ws';
import { Admission } from '../../src/admission/admission.js';
import { loadConfig } from '../../src/config/config.js';
import { OWN_DESCRIPTORS } from '../../src/config/system-limits.js';
import { NO_PRESENCE } from '../../src/hub/room-users.js';
import { createCounters } from '../../src/observability/counters.js';
import { HttpApi } from '../../src/transport/http-api/http-api.js';
import { HttpServer } from '../../src/transport/http-server.js';
import { Turn } from '../../src/worker/turn.js';
import { serverConfigOf } from '../helpers/config.js';
import { handshake, RawClient } from '../helpers/raw-http.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../../src/backend/places.js').Places} Addresses */

const limit = { timeout: 10_000 };

/**
 * A server on a free port with real admission and real `ws`, and addresses counted in memory.
 * @param {TestContext} t
 * @param {object} [parts]
 * @param {Record<string, string>} [parts.env]
 * @param {Partial<Addresses>} [parts.addresses]
 * @param {number} [parts.descriptors] that the process may open
 * @param
 *   {(request: import('node:http').IncomingMessage, socket: import('node:net').Socket, head: Buffer) => void}
 *   [parts.onUpgrade]
 * @param {import('../../src/transport/plain-http.js').Api|null} [parts.api]
 */
async function start(
  t,
  { env = {}, addresses = {}, descriptors = 20_000, onUpgrade, api = null } = {},
) {
  const config = serverConfigOf(env);
  const counters = createCounters();
  /** @type {Map<string, number>} */
  const held = new Map();
  /** @type {Addresses} */
  const counter = {
    async acquire(address, cap, force) {
      const connections = held.get(address) ?? 0;
      if (connections >= cap && !force) return { admitted: false, connections };
      held.set(address, connections + 1);
      return { admitted: true, connections: connections + 1 };
    },
    release(address) {
      held.set(address, (held.get(address) ?? 0) - 1);
    },
    ...addresses,
  };
  const health = {
    lag: 0,
    lagMs: () => health.lag,
    heapPercent: () => 0,
    openDescriptors: () => counters.sockets + OWN_DESCRIPTORS,
    descriptorLimit: descriptors,
  };
  const admission = new Admission({
    config,
    addresses: counter,
    health,
    counters,
    now: () => performance.now(),
  });
  const websockets = new WebSocketServer({ noServer: true });
  /** @type {{reason: string|null}} */
  const ready = { reason: null };
  /** @type {string[]} */
  const errors = [];
  const log = {
    debug() {},
    error: (/** @type {object} */ _fields, /** @type {string} */ text) => void errors.push(text),
  };
  const server = new HttpServer({
    config,
    admission,
    onUpgrade:
      onUpgrade ??
      ((request, socket, head) =>
        websockets.handleUpgrade(request, socket, head, (ws) => ws.on('error', () => {}))),
    api,
    readiness: () => ready.reason,
    log,
    counters,
    turn: new Turn(),
  });
  const { port } = await server.listen();
  t.after(async () => {
    for (const ws of websockets.clients) ws.terminate();
    await server.close();
  });
  const connect = (/** @type {string|void} */ localAddress) =>
    RawClient.connect(t, { port, localAddress: localAddress || undefined });
  return { server, counters, held, health, ready, websockets, errors, connect };
}

/** @param {() => boolean} condition @param {number} [withinMs] */
async function until(condition, withinMs = 3000) {
  const end = performance.now() + withinMs;
  while (!condition()) {
    assert.ok(performance.now() < end, `not within ${withinMs} ms: ${condition}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const SECRET = 'x'.repeat(32);

/** The parts of an HTTP API that answers nothing but refusals. */
function apiParts() {
  const { config } = loadConfig({ API_KEYS: `backend ${SECRET} all` });
  assert.ok(config);
  const never = async () => assert.fail('not called');
  return {
    config,
    broker: { countConnections: never },
    publisher: { publish: never },
    historyOf: () => null,
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
  };
}

/**
 * A request for a path that the HTTP API does not have.
 * @param {string} [body]
 * @param {number} [length] of the whole body
 */
function apiRequest(body = '', length = body.length) {
  return `POST /api/none HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${SECRET}\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n${body}`;
}

const none = undefined;

/**
 * Requests and their required answers.
 * @type {[name: string, sent: string, status: number][]}
 */
const TABLE = [
  ['a handshake', handshake(), 101],
  ['at /', handshake({ target: '/' }), 101],
  ['with a query', handshake({ target: '/ws?token=x/../y' }), 101],
  ['at / with a query', handshake({ target: '/?a' }), 101],
  [
    'in another case',
    handshake({ headers: { Upgrade: 'WebSocket', Connection: 'keep-alive, upgrade' } }),
    101,
  ],
  ['without a key', handshake({ headers: { 'Sec-WebSocket-Key': none } }), 400],
  ['with a bad key', handshake({ headers: { 'Sec-WebSocket-Key': 'short' } }), 400],
  [
    'with two keys',
    handshake({
      headers: { 'Sec-WebSocket-Key': ['dGhlIHNhbXBsZSBub25jZQ==', 'dGhlIHNhbXBsZSBub25jZQ=='] },
    }),
    400,
  ],
  ['of version 8', handshake({ headers: { 'Sec-WebSocket-Version': '8' } }), 426],
  ['of version 777', handshake({ headers: { 'Sec-WebSocket-Version': '777' } }), 426],
  ['of version 013', handshake({ headers: { 'Sec-WebSocket-Version': '013' } }), 426],
  ['of no version', handshake({ headers: { 'Sec-WebSocket-Version': none } }), 426],
  ['by POST', handshake({ method: 'POST' }), 405],
  ['by HEAD', handshake({ method: 'HEAD' }), 405],
  ['to h2c', handshake({ headers: { Upgrade: 'h2c' } }), 400],
  ['to websocket and more', handshake({ headers: { Upgrade: 'websocket, h2c' } }), 400],
  ['in HTTP/1.0', handshake({ version: 'HTTP/1.0' }), 400],
  ['in HTTP/2.0', handshake({ version: 'HTTP/2.0' }), 400],
  ['without a Host', handshake({ headers: { Host: none } }), 400],
  ['with two Hosts', handshake({ headers: { Host: ['a.test', 'b.test'] } }), 400],
  ['with a Content-Length', handshake({ headers: { 'Content-Length': '5' }, body: 'hello' }), 400],
  ['with a Content-Length of 0', handshake({ headers: { 'Content-Length': '0' } }), 101],
  ['with a Content-Length of 1', handshake({ headers: { 'Content-Length': '1' } }), 400],
  ['with a Content-Length of 01', handshake({ headers: { 'Content-Length': '01' } }), 400],
  ['with 100 headers', handshake({ headers: { A: Array(95).fill('b') } }), 101],
  ['with 101 headers', handshake({ headers: { A: Array(96).fill('b') } }), 431],
  [
    'with a second Host behind 1,100 headers',
    handshake({ headers: { A: Array(1100).fill('b'), host: 'evil' } }),
    431,
  ],
  [
    'with a body behind 1,100 headers',
    handshake({ headers: { A: Array(1100).fill('b'), 'Content-Length': '5' } }),
    431,
  ],
  [
    'with a Transfer-Encoding',
    handshake({ headers: { 'Transfer-Encoding': 'chunked' }, body: '0\r\n\r\n' }),
    400,
  ],
  [
    'with both',
    handshake({
      headers: { 'Content-Length': '5', 'Transfer-Encoding': 'chunked' },
      body: '0\r\n\r\n',
    }),
    400,
  ],
  ['at //ws', handshake({ target: '//ws' }), 404],
  ['at //', handshake({ target: '//' }), 404],
  ['at /ws/', handshake({ target: '/ws/' }), 404],
  ['at /WS', handshake({ target: '/WS' }), 404],
  ['at /%77s', handshake({ target: '/%77s' }), 404],
  ['at an absolute URL', handshake({ target: 'http://fanfare.test/ws' }), 404],
  ['at a traversal', handshake({ target: '/x/../ws' }), 404],
  ['at ./', handshake({ target: '/./ws' }), 404],
  ['at *', handshake({ target: '*' }), 404],
  ['at /livez', handshake({ target: '/livez' }), 404],
  ['at a fragment', handshake({ target: '/ws#a' }), 404],
  ['with the subprotocols a, b', handshake({ headers: { 'Sec-WebSocket-Protocol': 'a, b' } }), 101],
  [
    'with a duplicate subprotocol',
    handshake({ headers: { 'Sec-WebSocket-Protocol': 'a, a' } }),
    400,
  ],
  ['with an invalid subprotocol', handshake({ headers: { 'Sec-WebSocket-Protocol': 'a(b' } }), 400],
  ['with a header over 16 KiB', handshake({ headers: { 'X-Big': 'x'.repeat(17_000) } }), 431],
  ['with a space before a colon', handshake().replace('Host:', 'Host :'), 400],
  ['with bare LFs', handshake().replaceAll('\r\n', '\n'), 400],
  ['with a NUL', handshake({ headers: { 'X-Nul': 'a\0b' } }), 400],
  [
    'with a folded header',
    handshake().replace('Host: fanfare.test', 'Host: fanfare.test\r\n folded'),
    400,
  ],
  ['by CONNECT', 'CONNECT fanfare.test:443 HTTP/1.1\r\nHost: fanfare.test\r\n\r\n', 405],
  ['in TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00\x00\x00', 400],
  ['that is no HTTP', 'hello\r\n\r\n', 400],
  [
    'with nothing to upgrade to',
    handshake({ headers: { Upgrade: none, Connection: 'keep-alive' } }),
    426,
  ],
];

test('each handshake of the table gets its status', limit, async (t) => {
  const { connect, counters, server, websockets } = await start(t, {
    env: { FANFARE_LIMITS: 'off' },
  });
  for (const [name, sent, status] of TABLE) {
    await t.test(`${name}: ${status}`, limit, async () => {
      const client = await connect();
      client.socket.write(sent, 'latin1');
      const response = await client.response();
      assert.equal(response.status, status, response.text);
      if (status === 101) {
        client.socket.destroy();
        return;
      }
      assert.match(response.headers.connection, /close/);
      // ws itself refuses subprotocols, with a fixed text.
      if (!name.includes('subprotocol'))
        assert.equal(response.headers['x-content-type-options'], 'nosniff');
      if (status === 426) {
        assert.match(response.headers.upgrade, /^websocket$/);
        assert.match(response.headers.connection, /Upgrade/);
      }
      if (name.startsWith('of')) assert.equal(response.headers['sec-websocket-version'], '13');
      await client.closed();
      assert.equal(client.bytes.length, 0, 'one whole response and nothing after it');
    });
  }
  await until(() => server.openSockets === 0);
  assert.equal(server.handshakes, 0);
  assert.equal(websockets.clients.size, 0);
  assert.ok(counters.refused.bad_request > 30);
});

/** Requests with an unfinished body that would leave HTTP, and their answers. */
const UNFINISHED = /** @type {const} */ ([
  ['a handshake', handshake({ headers: { 'Content-Length': '9' }, body: 'half' }), 400],
  [
    'a handshake in chunks',
    handshake({ headers: { 'Transfer-Encoding': 'chunked' }, body: '4\r\nhalf\r\n' }),
    400,
  ],
  [
    'a health check that offers h2c',
    handshake({ target: '/livez', headers: { Upgrade: 'h2c', 'Content-Length': '9' } }),
    200,
  ],
  ['a stream', handshake({ target: '/sse', headers: { 'Content-Length': '9' } }), 400],
  ['CONNECT', 'CONNECT a:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf', 405],
]);

test(
  'no end of a connection does harm after an upgrade with an unfinished body',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t, { env: { FANFARE_LIMITS: 'off' } });
    for (const [name, sent, status] of UNFINISHED)
      for (const end of /** @type {const} */ (['rest', 'end', 'reset', 'destroy']))
        await t.test(`${name}, then ${end}: ${status}`, limit, async () => {
          const client = await connect();
          const response = await client.write(sent).response();
          assert.equal(response.status, status, response.text);
          if (end === 'rest') client.write(`rest\r\n0\r\n\r\n${handshake()}`);
          else if (end === 'end') client.socket.end();
          else if (end === 'reset') client.socket.resetAndDestroy();
          else client.socket.destroy();
          await until(() => server.openSockets === 0);
          assert.equal(client.bytes.length, 0, 'one whole response and nothing after it');
        });
    const kept = promisify(server.reader.http.getConnections.bind(server.reader.http));
    assert.equal(await kept(), 0, 'the HTTP server has let go of them');
    assert.equal(counters.refused.unknown_socket, 0);
  },
);

test('a socket that the port has not accepted is closed and counted', limit, async (t) => {
  const { connect, counters, errors, server } = await start(t);
  const stranger = () => new Duplex({ read() {}, write: (_bytes, _encoding, done) => done() });
  const events = /** @type {const} */ ([
    'upgrade',
    'connect',
    'clientError',
    'request',
    'checkContinue',
    'checkExpectation',
  ]);
  for (const event of events) {
    const stream = stranger();
    const request = new IncomingMessage(/** @type {any} */ (stream));
    if (event === 'upgrade' || event === 'connect')
      server.reader.http.emit(event, request, stream, Buffer.alloc(0));
    else if (event === 'clientError') server.reader.http.emit(event, new Error('any'), stream);
    else server.reader.http.emit(event, request, new ServerResponse(request));
    assert.ok(stream.destroyed, event);
    // Some streams of Node emit an error as they close.
    stream.emit('error', new Error('late'));
  }
  assert.equal(counters.refused.unknown_socket, events.length);
  assert.equal(errors.length, 1, 'logged at most once a minute');
  const client = await connect();
  assert.equal((await client.write(handshake()).response()).status, 101);
});

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

test('frames sent with the handshake arrive', limit, async (t) => {
  const { connect } = await start(t, {
    onUpgrade: (_request, socket, head) => {
      socket.unshift(head);
      socket.on('data', (data) => socket.end(`got ${data}`));
    },
  });
  const client = await connect();
  client.write(handshake({ body: 'early' }));
  await client.closed();
  assert.equal(client.bytes.toString(), 'got early');
});

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
    { connection: 'close', 'content-type': 'application/json', 'cache-control': 'no-store' },
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

test('each plain HTTP request gets its status', limit, async (t) => {
  const { connect } = await start(t);
  for (const [name, sent, status, headers] of PLAIN) {
    await t.test(`${name}: ${status}`, limit, async () => {
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

test('a socket may become a WebSocket after plain HTTP', limit, async (t) => {
  const { connect, server, held } = await start(t);
  const client = await connect();
  assert.equal(
    (await client.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n').response()).status,
    200,
  );
  assert.equal(server.handshakes, 0);
  assert.equal((await client.write(handshake()).response()).status, 101);
  assert.equal(held.get('127.0.0.1'), 1);
});

test(
  '100 of 300 connections from one address are admitted, with or without forged headers, and places are given back',
  limit,
  async (t) => {
    const { connect, counters, held, server } = await start(t);
    const clients = await Promise.all(Array.from({ length: 300 }, connect));
    const forged = (/** @type {number} */ i) =>
      i % 2 ? { 'X-Forwarded-For': `6.6.${i >> 8}.${i & 255}`, Forwarded: `for=6.6.6.${i}` } : {};
    const responses = await Promise.all(
      clients.map((client, i) => client.write(handshake({ headers: forged(i) })).response()),
    );
    const refused = responses.filter(({ status }) => status === 429);
    assert.equal(responses.filter(({ status }) => status === 101).length, 100);
    assert.equal(refused.length, 200);
    assert.equal(counters.refused.per_ip, 200);
    for (const { headers } of refused)
      assert.ok(Number(headers['retry-after']) >= 10 && Number(headers['retry-after']) <= 20);
    assert.ok(
      new Set(refused.map(({ headers }) => headers['retry-after'])).size > 1,
      'with jitter',
    );
    await until(() => server.openSockets === 100);
    for (const client of clients) client.socket.destroy();
    await until(() => server.openSockets === 0);
    assert.equal(held.get('127.0.0.1'), 0);
    assert.equal((await (await connect()).write(handshake()).response()).status, 101);
  },
);

test('a page of another origin gets 403, and its name is not echoed', limit, async (t) => {
  const { connect } = await start(t, { env: { ALLOWED_ORIGINS: 'https://app.example' } });
  for (const [origin, status] of /** @type {const} */ ([
    ['https://app.example', 101],
    [none, 101],
    ['https://app.example.evil', 403],
    ['null', 403],
  ])) {
    const response = await (await connect())
      .write(handshake({ headers: { Origin: origin } }))
      .response();
    assert.equal(response.status, status);
    assert.doesNotMatch(response.text, /evil/);
  }
});

test('a worker that lags refuses with 503', limit, async (t) => {
  const { connect, health } = await start(t);
  health.lag = 10_000;
  const response = await (await connect()).write(handshake()).response();
  assert.equal(response.status, 503);
  assert.ok(Number(response.headers['retry-after']) >= 5);
});

test(
  'a client that sends nothing, half a header, or single bytes gets 408 at the deadline',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t, {
      env: { FANFARE_HANDSHAKE_TIMEOUT_MS: '300' },
    });
    const started = performance.now();
    const [idle, half, dribbling] = await Promise.all([connect(), connect(), connect()]);
    half.write('GET /ws HTTP/1.1\r\nHost: a\r\n');
    dribbling.write('GET /ws HTTP/1.1\r\n');
    const timer = setInterval(() => dribbling.socket.writable && dribbling.write('X-A: b\r\n'), 20);
    t.after(() => clearInterval(timer));
    for (const client of [idle, half, dribbling]) {
      assert.equal((await client.response()).status, 408);
      await client.closed();
    }
    clearInterval(timer);
    assert.ok(performance.now() - started >= 290);
    assert.ok(performance.now() - started < 2500);
    assert.equal(counters.refused.handshake_timeout, 3);
    await until(() => server.openSockets === 0);
  },
);

test(
  'an admission that stalls ends in 503, and a place granted later is given back',
  limit,
  async (t) => {
    /** @type {(() => void)[]} */
    const answer = [];
    let released = 0;
    const { connect, counters } = await start(t, {
      env: { FANFARE_HANDSHAKE_TIMEOUT_MS: '200' },
      addresses: {
        acquire: () =>
          new Promise((resolve) => answer.push(() => resolve({ admitted: true, connections: 1 }))),
        release: () => released++,
      },
      onUpgrade: () => assert.fail('too late'),
    });
    const client = await connect();
    const response = await client.write(handshake()).response();
    assert.equal(response.status, 503);
    assert.ok(response.headers['retry-after']);
    assert.equal(counters.refused.handshakes, 1);
    await client.closed();
    assert.equal(released, 0);
    answer[0]();
    await until(() => released === 1);
  },
);

test('the place of a client that disconnects during admission is given back', limit, async (t) => {
  /** @type {(() => void)[]} */
  const answer = [];
  let released = 0;
  const { connect, server } = await start(t, {
    addresses: {
      acquire: () =>
        new Promise((resolve) => answer.push(() => resolve({ admitted: true, connections: 1 }))),
      release: () => released++,
    },
    onUpgrade: () => assert.fail('nobody is there'),
  });
  const client = await connect();
  client.write(handshake());
  await until(() => answer.length === 1);
  client.socket.resetAndDestroy();
  await until(() => server.openSockets === 0);
  answer[0]();
  await until(() => released === 1);
});

test('a place is given back once if ws refuses an admitted handshake', limit, async (t) => {
  let released = 0;
  const { connect, server } = await start(t, {
    addresses: {
      acquire: async () => ({ admitted: true, connections: 1 }),
      release: () => released++,
    },
  });
  const client = await connect();
  assert.equal(
    (await client.write(handshake({ headers: { 'Sec-WebSocket-Protocol': 'a,a' } })).response())
      .status,
    400,
  );
  await client.closed();
  await until(() => server.openSockets === 0);
  assert.equal(released, 1);
});

test(
  'if an address opens many silent connections, its own oldest are closed, and no other is refused',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t, { env: { FANFARE_MAX_HANDSHAKES: '4' } });
    const quiet = await connect('127.0.0.3');
    await until(() => server.handshakes === 1);
    const silent = [];
    for (let i = 0; i < 6; i++) {
      silent.push(await connect('127.0.0.2'));
      if (i % 2) silent[i].write('GET /ws HTTP/1.1\r\n'); // half a handshake is no better
    }
    await until(() => counters.idleClosed.handshakes === 3);
    for (const client of silent.slice(0, 3)) await client.closed();
    assert.equal(server.handshakes, 4);
    for (let i = 4; i < 20; i++) {
      const honest = await connect(`127.0.0.${i}`);
      assert.equal((await honest.write(handshake()).response()).status, 101);
    }
    assert.equal((await quiet.write(handshake()).response()).status, 101);
    assert.equal(counters.refused.handshakes, 0);
  },
);

test(
  'a trusted proxy does not count as one address: the address with the most silent connections loses first',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t, {
      env: { FANFARE_MAX_HANDSHAKES: '6', TRUST_PROXY: '127.0.0.1' },
    });
    const proxied = await Promise.all(Array.from({ length: 4 }, () => connect('127.0.0.1')));
    const silent = [await connect('127.0.0.2'), await connect('127.0.0.2')];
    await until(() => server.handshakes === 6);
    const more = await connect('127.0.0.1');
    await silent[0].closed();
    const last = await connect('127.0.0.1');
    // Now that all have one each, the oldest goes.
    await proxied[0].closed();
    assert.equal(counters.idleClosed.handshakes, 2);
    for (const client of [...proxied.slice(1), silent[1], more, last])
      assert.equal((await client.write(handshake()).response()).status, 101);
  },
);

test('1,200 handshakes at once are all accepted', limit, async (t) => {
  const { connect, counters, server, websockets } = await start(t);
  const clients = await Promise.all(
    Array.from({ length: 1200 }, (_, i) => connect(`127.0.1.${1 + (i % 24)}`)),
  );
  await until(() => server.openSockets === 1200);
  for (const client of clients) client.write(handshake());
  const answers = await Promise.all(clients.map((client) => client.response(8000)));
  assert.equal(answers.filter(({ status }) => status === 101).length, 1200);
  assert.equal(websockets.clients.size, 1200);
  assert.equal(counters.idleClosed.handshakes, 0);
});

for (const mode of ['enforce', 'observe', 'off']) {
  test(
    `a handshake that the worker cannot handle in time gets 503, not 408: ${mode}`,
    limit,
    async (t) => {
      const { connect, counters, server } = await start(t, {
        env: { FANFARE_HANDSHAKE_TIMEOUT_MS: '600', FANFARE_MAX_HANDSHAKES_MODE: mode },
        onUpgrade(_request, socket) {
          const end = performance.now() + 100;
          while (performance.now() < end);
          socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n');
        },
      });
      const clients = await Promise.all(Array.from({ length: 12 }, () => connect()));
      await until(() => server.openSockets === 12);
      for (const client of clients) client.write(handshake());
      const answers = await Promise.all(clients.map((client) => client.response()));
      const refused = answers.filter(({ status }) => status === 503);
      assert.equal(answers.filter(({ status }) => status === 101).length, 12 - refused.length);
      assert.equal(counters.refused.handshakes, refused.length);
      assert.equal(counters.refused.handshake_timeout, 0);
      assert.equal(refused.length > 0, mode === 'enforce');
      assert.equal(counters.observed.handshakes > 0, mode === 'observe');
      for (const { headers } of refused) assert.ok(Number(headers['retry-after']) >= 5);
      await until(() => server.handshakes === 0);
    },
  );
}

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

for (const length of [1, 600, 2000]) {
  test(
    `no handshake of ${length} bytes more is read behind an answer that closes`,
    limit,
    async (t) => {
      let upgrades = 0;
      const { connect, server } = await start(t, {
        env: { FANFARE_LIMITS: 'off' }, // admits at once
        onUpgrade(_request, socket) {
          upgrades++;
          socket.destroy();
        },
      });
      const client = await connect();
      const more = handshake({ headers: { Cookie: 'a'.repeat(length) } });
      client.write(`GET /other HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n${more}`);
      const { status, headers } = await client.response();
      assert.deepEqual([status, headers.connection], [404, 'close']);
      await client.closed();
      await until(() => server.openSockets === 0);
      assert.equal(upgrades, 0);
    },
  );
}

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

test('all data sent behind a handshake arrives in order', limit, async (t) => {
  const early = Buffer.from(Array.from({ length: 3000 }, (_, i) => i & 0xff));
  for (const cut of [0, 20]) {
    /** @type {Buffer[]} */
    const heads = [];
    const { connect } = await start(t, {
      onUpgrade(_request, socket, head) {
        heads.push(head);
        socket.on('data', (bytes) => heads.push(bytes));
      },
    });
    const client = await connect();
    const all = Buffer.concat([Buffer.from(handshake()), early]);
    client.write(all.subarray(0, cut));
    await new Promise((resolve) => setTimeout(resolve, 50));
    client.write(all.subarray(cut));
    await until(() => Buffer.concat(heads).length === early.length);
    assert.deepEqual(Buffer.concat(heads), early);
  }
});

test(
  'an address that connects too often gets 429 before its request is read; its further requests count too',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t, {
      env: { FANFARE_HANDSHAKES_PER_MINUTE_PER_IP: '1', FANFARE_HANDSHAKES_BURST_PER_IP: '3' },
    });
    const livez = 'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n';
    const first = await connect();
    assert.equal((await first.write(livez).response()).status, 200);
    assert.equal((await first.write(livez).response()).status, 200);
    assert.equal((await (await connect()).write(handshake()).response()).status, 101);
    const refused = await connect();
    const { status, headers } = await refused.response();
    assert.equal(status, 429);
    assert.ok(Number(headers['retry-after']) >= 1);
    await refused.closed();
    const last = await first.write(livez).response();
    assert.equal(last.status, 429);
    assert.equal(last.headers.connection, 'close');
    assert.equal((await (await connect('127.0.0.2')).write(handshake()).response()).status, 101);
    assert.equal(counters.refused.handshakes_per_ip, 2);
    await until(() => server.openSockets === 2);
  },
);

test(
  'when descriptors run short, idle connections are closed and handshakes are admitted',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t, { descriptors: 100 });
    const livez = 'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n';
    // 25 of 100 are the reserve, 64 the worker's own: 11 are left.
    for (let i = 0; i < 31; i++) {
      const client = await connect('127.0.0.2');
      if (i % 2) client.write(livez);
      await until(
        () =>
          server.openSockets === Math.min(i + 1, 11) &&
          counters.idleClosed.descriptors === Math.max(0, i - 10),
      );
    }
    for (let i = 3; i < 14; i++) {
      const client = await connect(`127.0.0.${i}`);
      assert.equal((await client.write(handshake()).response()).status, 101);
    }
    // Now all are WebSockets, and none of them gives way.
    const refused = await connect('127.0.0.14');
    assert.equal((await refused.write(handshake()).response()).status, 503);
    assert.equal(counters.refused.descriptors, 1);
  },
);

test(
  'the last descriptors stay free: further connections are closed without an answer, and logged once',
  limit,
  async (t) => {
    const { connect, counters, server, errors, held } = await start(t, {
      descriptors: 68,
      env: { FANFARE_OVERLOAD_MODE: 'off' },
    });
    for (let i = 0; i < 4; i++)
      assert.equal((await (await connect()).write(handshake()).response()).status, 101);
    for (let i = 0; i < 3; i++) await (await connect()).closed();
    assert.equal(counters.refused.descriptors, 3);
    assert.equal(errors.length, 1);
    assert.equal(server.openSockets, 4);
    assert.equal(held.get('127.0.0.1'), 4);
  },
);

test(
  'the handshake of Java 17 (java.net.http.WebSocket) is accepted, byte for byte',
  limit,
  async (t) => {
    const { connect } = await start(t);
    const recorded = [
      'GET /ws HTTP/1.1',
      'Connection: Upgrade',
      'Content-Length: 0',
      'Host: 127.0.0.1:34359',
      'Upgrade: websocket',
      'User-Agent: Java-http-client/17.0.15',
      'Sec-WebSocket-Key: xVB63pjehtf4N+6dtFZOHg==',
      'Sec-WebSocket-Version: 13',
      '\r\n',
    ].join('\r\n');
    const { status, headers } = await (await connect()).write(recorded).response();
    assert.equal(status, 101);
    assert.equal(
      headers['sec-websocket-accept'],
      createHash('sha1')
        .update('xVB63pjehtf4N+6dtFZOHg==258EAFA5-E914-47DA-95CA-C5AB0DC85B11')
        .digest('base64'),
    );
  },
);

test(
  'unfinished sockets that leave the queue count against the cap of handshakes',
  limit,
  async (t) => {
    const { connect, server, counters } = await start(t, { env: { FANFARE_MAX_HANDSHAKES: '3' } });
    let accepted = 0;
    server.reader.acceptor.on('connection', () => accepted++);
    const first = await Promise.all([connect(), connect(), connect()]);
    await until(() => accepted === 3);
    // All of it comes in one turn: the first three are in line when the next three come.
    for (const client of first) client.write('G');
    await Promise.all([connect(), connect(), connect()]);
    await until(() => accepted === 6);
    for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(server.handshakes, 3);
    assert.equal(counters.idleClosed.handshakes, 3);
  },
);

test('an observed cap of handshakes counts and admits', limit, async (t) => {
  const { connect, counters, server } = await start(t, {
    env: { FANFARE_MAX_HANDSHAKES: '1', FANFARE_MAX_HANDSHAKES_MODE: 'observe' },
  });
  await connect();
  await until(() => server.handshakes === 1);
  assert.equal((await (await connect()).write(handshake()).response()).status, 101);
  assert.equal(counters.observed.handshakes, 1);
  assert.equal(counters.refused.handshakes, 0);
});

test('a refused peer that stays connected is disconnected', limit, async (t) => {
  const { connect, server } = await start(t);
  const client = await connect();
  client.socket.allowHalfOpen = true;
  client.write(handshake({ target: '/nowhere' }));
  await client.response();
  assert.equal(server.openSockets, 1);
  await until(() => server.openSockets === 0);
});

test('a refused peer that goes on sending is closed after 8 MB', limit, async (t) => {
  const { connect, server } = await start(t);
  /** @type {import('node:net').Socket|undefined} */
  let socket;
  server.reader.acceptor.on('connection', (one) => {
    socket = one;
  });
  const client = await connect();
  client.write(handshake({ target: '/nowhere' }));
  await client.response();
  for (let i = 0; i < 64; i++) client.write(Buffer.alloc(1_048_576));
  await client.closed();
  assert.ok(socket !== undefined && socket.bytesRead < 8_388_608 + 1_000_000);
});

test('handshakes that time out together are refused a hundred at a time', limit, async (t) => {
  const { connect, counters } = await start(t, {
    env: { FANFARE_HANDSHAKE_TIMEOUT_MS: '300', FANFARE_LIMITS: 'off' },
  });
  await Promise.all(Array.from({ length: 250 }, () => connect()));
  let [refused, most] = [0, 0];
  await until(() => {
    most = Math.max(most, counters.refused.handshake_timeout - refused);
    refused = counters.refused.handshake_timeout;
    return refused === 250;
  });
  assert.ok(most <= 100, `${most} in a turn`);
});

test('peers that linger together are closed a hundred at a time', limit, async (t) => {
  const { server } = await start(t, { env: { FANFARE_LIMITS: 'off' } });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.reader.acceptor.address());
  // They do not end when the server does.
  const clients = Array.from(
    { length: 250 },
    () => new RawClient(dial({ port, host: '127.0.0.1', allowHalfOpen: true })),
  );
  for (const client of clients) t.after(() => client.socket.destroy());
  for (const client of clients) client.write(handshake({ method: 'POST' }));
  for (const client of clients) assert.equal((await client.response()).status, 405);
  const late = performance.now() + 1100;
  while (performance.now() < late); // a busy worker: all are overdue at once
  let [open, most] = [server.openSockets, 0];
  await until(() => {
    most = Math.max(most, open - server.openSockets);
    open = server.openSockets;
    return open === 0;
  }, 5000);
  assert.ok(most <= 100, `${most} in a turn`);
});

test('what refused peers go on sending is read in small parts of a turn', limit, async (t) => {
  const { server } = await start(t, { env: { FANFARE_LIMITS: 'off' } });
  let reads = 0;
  let most = 0;
  const { data } = server;
  server.data = (socket, bytes) => {
    reads++;
    data.call(server, socket, bytes);
  };
  const turn = () => {
    most = Math.max(most, reads);
    reads = 0;
    next = setImmediate(turn);
  };
  let next = setImmediate(turn);
  t.after(() => clearImmediate(next));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.reader.acceptor.address());
  // They do not end when the server does.
  const clients = Array.from(
    { length: 150 },
    () => new RawClient(dial({ port, host: '127.0.0.1', allowHalfOpen: true })),
  );
  for (const client of clients) t.after(() => client.socket.destroy());
  for (const client of clients)
    client.write(handshake({ method: 'POST', headers: { 'Content-Length': '2000000' } }));
  for (const client of clients) assert.equal((await client.response()).status, 405);
  const more = Buffer.alloc(1_048_576);
  for (const client of clients) client.write(more);
  await until(() => server.openSockets === 0, 5000); // they had LINGER_MS to close
  assert.ok(most > 0);
  // At most two reads of each when they begin; then 64 sockets go on in a turn. It was 2,100.
  assert.ok(most <= 2 * 150 + 2 * 64, `${most} reads in a turn`);
});

test('a refused peer that is still sending gets the answer, not a reset', limit, async (t) => {
  const { connect } = await start(t);
  const client = await connect();
  client.write(
    handshake({
      method: 'POST',
      headers: { 'Content-Length': '4000000' },
      body: 'x'.repeat(2_000_000),
    }),
  );
  client.write('x'.repeat(2_000_000));
  assert.equal((await client.response()).status, 405);
});

test(
  'when accepting stops, pending handshakes get 503, WebSockets stay, and new connections fail',
  limit,
  async (t) => {
    const { connect, server, counters, websockets } = await start(t);
    const open = await connect();
    assert.equal((await open.write(handshake()).response()).status, 101);
    const late = await connect();
    const probe = await connect();
    await until(() => server.handshakes === 2);
    late.write('GET /ws HTTP/1.1\r\n'); // begun: an idle one would be closed at once
    probe.write('GET /readyz HTTP/1.1\r\n');
    await until(() => server.openSockets === 3);
    server.stopAccepting();
    server.stopAccepting();
    const response = await late.write(handshake().replace('GET /ws HTTP/1.1\r\n', '')).response();
    assert.equal(response.status, 503);
    assert.equal(response.headers.connection, 'close');
    assert.ok(response.headers['retry-after']);
    assert.equal(counters.refused.draining, 1);
    const readiness = await probe.write('Host: a\r\n\r\n').response();
    assert.equal(readiness.status, 503);
    assert.deepEqual(JSON.parse(readiness.body), { status: 'unavailable', reason: 'draining' });
    await assert.rejects(connect(), { code: 'ECONNREFUSED' });
    const [ws] = websockets.clients;
    ws.ping();
    await once(open.socket, 'data');
    assert.equal(open.isClosed, false);
  },
);

test(
  'close ends every socket that is not a WebSocket, and may be called twice',
  limit,
  async (t) => {
    const { connect, server } = await start(t);
    const idle = await connect();
    const keptAlive = await connect();
    await keptAlive.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n').response();
    await until(() => server.openSockets === 2);
    await Promise.all([server.close(), server.close()]);
    await Promise.all([idle.closed(), keptAlive.closed()]);
    await server.close();
  },
);

test('listen rejects if the port is in use', limit, async (t) => {
  const { connect, server } = await start(t);
  await connect();
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.reader.acceptor.address());
  await assert.rejects(start(t, { env: { PORT: String(port) } }), { code: 'EADDRINUSE' });
});

test('a reset at any moment of a handshake affects no other connection', limit, async (t) => {
  const { connect, server, held } = await start(t);
  const text = handshake();
  for (let cut = 0; cut <= text.length; cut += 7) {
    const client = await connect();
    client.write(text.slice(0, cut));
    if (cut % 2) await new Promise((resolve) => setImmediate(resolve));
    client.socket.resetAndDestroy();
  }
  for (const target of ['/nowhere', '/ws']) {
    const client = await connect();
    client.write(handshake({ target }));
    await once(client.socket, 'data');
    client.socket.resetAndDestroy();
  }
  await until(() => server.openSockets === 0);
  assert.equal(held.get('127.0.0.1') ?? 0, 0);
  assert.equal((await (await connect()).write(text).response()).status, 101);
});

for (const [mode, cut] of /** @type {[string, number][]} */ ([
  ['off', 0],
  ['enforce', 0],
  ['off', 5],
])) {
  const pieces = cut === 0 ? 'whole' : 'behind a first piece';
  test(
    `handshakes that come at once, ${pieces}, take turns of some milliseconds, with the cap per address: ${mode}`,
    limit,
    async (t) => {
      const came = /** @type {string[]} */ ([]);
      /** By turn of the event loop. @type {number[]} */
      const counts = [0];
      const { connect, server } = await start(t, {
        env: { FANFARE_MAX_CONNECTIONS_PER_IP_MODE: mode },
        onUpgrade(request, socket) {
          came.push(String(request.url));
          counts[counts.length - 1]++;
          const end = performance.now() + 3;
          while (performance.now() < end);
          socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n');
        },
      });
      const clients = [];
      for (let i = 0; i < 30; i++) clients.push(await connect());
      await until(() => server.handshakes === 30);
      for (const client of clients) client.write(handshake().slice(0, cut));
      await new Promise((resolve) => setTimeout(resolve, 100));
      let isOver = false;
      const turn = () => {
        counts.push(0);
        if (!isOver) setImmediate(turn);
      };
      setImmediate(turn);
      // Written in one turn, read in one turn.
      for (const [i, client] of clients.entries())
        client.write(handshake({ target: `/ws?${i}` }).slice(cut));
      await until(() => came.length === 30);
      isOver = true;
      assert.deepEqual(came.sort(), clients.map((_, i) => `/ws?${i}`).sort());
      assert.ok(Math.max(...counts) <= 2, `${counts}`);
      for (const client of clients) assert.equal((await client.response()).status, 101);
    },
  );
}

test(
  'a client waits for its own turn, not for all handshakes of an earlier address',
  limit,
  async (t) => {
    const came = /** @type {string[]} */ ([]);
    const { connect, server } = await start(t, {
      env: { FANFARE_MAX_CONNECTIONS_PER_IP_MODE: 'off' },
      onUpgrade(request, socket) {
        came.push(String(request.url));
        const end = performance.now() + 5;
        while (performance.now() < end); // one a turn
        socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n');
      },
    });
    const many = [];
    for (let i = 0; i < 30; i++) many.push(await connect('127.0.0.2'));
    const other = await connect('127.0.0.3');
    await until(() => server.handshakes === 31);
    for (const client of many) client.write(handshake({ target: '/ws?many' }));
    other.write(handshake({ target: '/ws?other' }));
    await until(() => came.length === 31);
    const before = came.indexOf('/ws?other');
    assert.ok(before >= 0 && before <= 5, `${before} came before it`);
  },
);

test(
  'a client that leaves without a request, or before its turn, leaves nothing behind',
  limit,
  async (t) => {
    const { connect, server, counters } = await start(t);
    const silent = await connect();
    await until(() => server.handshakes === 1);
    silent.socket.end();
    await silent.closed();
    await until(() => server.openSockets === 0);
    for (let i = 0; i < 20; i++) {
      const client = await connect();
      client.write(handshake());
      client.socket.destroy();
    }
    await until(() => server.openSockets === 0);
    assert.equal(server.handshakes, 0);
    assert.equal(counters.refused.handshake_timeout, 0);
  },
);
