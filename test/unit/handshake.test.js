// handshake.test.js: the head of a request for a WebSocket, and the bytes behind it
// (transport/handshake.js).

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { limit, start, until } from '../helpers/public-port.js';
import { handshake } from '../helpers/raw-http.js';

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
  ['to h2c', handshake({ headers: { Upgrade: 'h2c' } }), 426],
  ['to websocket and more', handshake({ headers: { Upgrade: 'websocket, h2c' } }), 426],
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
  ['a stream that is off', handshake({ target: '/sse', headers: { 'Content-Length': '9' } }), 404],
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
