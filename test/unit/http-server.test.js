// http-server.test.js: the public port listens, runs short of descriptors, stops accepting and closes
// (transport/http-server.js).

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { limit, start, until } from '../helpers/public-port.js';
import { handshake } from '../helpers/raw-http.js';

test(
  'a connection that was reset before it was accepted is dropped: it has no address',
  limit,
  async (t) => {
    const { server } = await start(t, { env: { FANFARE_LIMITS: 'off' } });
    const socket = new Socket(); // as such a connection, it has no peer
    server.reader.acceptor.emit('connection', socket);
    await until(() => socket.closed);
    assert.equal(server.openSockets, 0);
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
  'when accepting stops, pending handshakes get 503, WebSockets stay, and new connections fail',
  limit,
  async (t) => {
    const { connect, server, phase, counters, websockets } = await start(t);
    const open = await connect();
    assert.equal((await open.write(handshake()).response()).status, 101);
    const late = await connect();
    const probe = await connect();
    await until(() => server.handshakes === 2);
    late.write('GET /ws HTTP/1.1\r\n');
    probe.write('GET /readyz HTTP/1.1\r\n');
    await until(() => server.openSockets === 3);
    phase.advance('draining');
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

test('a client that has connected when the port closes still gets an answer', limit, async (t) => {
  const { connect, server, phase } = await start(t);
  const fresh = await connect();
  await until(() => server.openSockets === 1);
  phase.advance('draining');
  const closed = server.close();
  assert.equal((await fresh.write(handshake()).response()).status, 503);
  await closed;
});

test('listen rejects if the port is in use', limit, async (t) => {
  const { connect, server } = await start(t);
  await connect();
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.reader.acceptor.address());
  await assert.rejects(start(t, { env: { PORT: String(port) } }), { code: 'EADDRINUSE' });
});
