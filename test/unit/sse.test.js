// sse.test.js: the life of an event stream, from its first event to its end (doors/native/sse.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CLOSES } from '../../src/protocol/codes.js';
import { Relocations } from '../../src/worker/relocation.js';
import { EventReader } from '../helpers/event-stream.js';
import { limit, serve, until } from '../helpers/sse-server.js';

test(
  'a stream begins with its head, a comment and a time to return, and joins its room',
  limit,
  async (t) => {
    const { open, publish, counters } = await serve(t);
    const client = await open('?room=news');
    await client.collect('joined');
    assert.equal(client.status, 200);
    assert.equal(client.headers['content-type'], 'text/event-stream');
    assert.equal(client.headers['cache-control'], 'no-cache, no-transform');
    assert.equal(client.headers['x-accel-buffering'], 'no');
    assert.equal(client.headers['x-content-type-options'], 'nosniff');
    assert.ok(client.text.startsWith(':\n'));
    assert.ok(client.reader.retryMs >= 1000 && client.reader.retryMs <= 5000);
    assert.deepEqual(client.all('joined'), [{ type: 'joined', room: 'news' }]);
    publish('news', { a: 1 });
    const [message] = await client.collect('message');
    assert.deepEqual(message, {
      type: 'message',
      room: 'news',
      payload: { a: 1 },
      from: 'ann',
      timestamp: 1,
    });
    assert.equal(client.events.at(-1)?.id, '');
    assert.equal(counters.eventStreams, 1);
    client.close();
    await until(() => counters.eventStreams === 0 && counters.connections === 0);
  },
);

test('the events of a room are built once and shared by its streams', limit, async (t) => {
  const { open, publish, hub } = await serve(t);
  await Promise.all([1, 2, 3].map(async () => (await open('?room=news')).collect('joined')));
  /** @type {Buffer[]} */
  const written = [];
  for (const { transport } of hub.connections) {
    const write = transport.write.bind(transport);
    transport.write = (bytes) => {
      written.push(bytes);
      write(bytes);
    };
  }
  publish('news', 1);
  await until(() => written.length === 3);
  assert.equal(new Set(written).size, 1);
});

test('a draining worker sends an EventSource away with a time to return', limit, async (t) => {
  const { server, phase, raw } = await serve(t);
  const client = await raw();
  client.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
  await client.response();
  const late = await raw();
  late.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n');
  await until(() => server.handshakes === 1);
  phase.advance('draining');
  server.stopAccepting();
  late.write('\r\n');
  await late.closed();
  assert.match(
    String(late.bytes),
    /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nretry: \d{4,5}\nevent: error\n/,
  );
});

test('a stream may follow other requests on a kept-alive connection', limit, async (t) => {
  const { raw, publish, hub } = await serve(t);
  const client = await raw();
  for (let i = 0; i < 3; i++) {
    client.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
    assert.equal((await client.response()).status, 200);
  }
  client.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\n\r\n');
  await until(() => (hub.rooms.get('a')?.members.length ?? 0) === 1);
  publish('a', 'hello');
  await until(() => String(client.bytes).includes('"payload":"hello"'));
});

test('a stream leaves nothing of its request in the HTTP server', limit, async (t) => {
  const { open, server, publish } = await serve(t);
  const clients = await Promise.all([1, 2, 3].map(() => open('?room=a')));
  for (const client of clients) await client.collect('joined');
  // It would end the connections that it knows.
  server.reader.http.closeAllConnections();
  publish('a', 1);
  for (const client of clients) await client.collect('message');
});

test('a request behind a stream gets no answer, and more of them end it', limit, async (t) => {
  const { raw, counters, publish } = await serve(t);
  const client = await raw();
  client.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
  await until(() => counters.connections === 1);
  publish('a', 1);
  await until(() => String(client.bytes).includes('"payload":1'));
  assert.equal(String(client.bytes).match(/HTTP\/1\.1/g)?.length, 1);
  client.write('x'.repeat(100_000));
  await client.closed();
  await until(() => counters.connections === 0);
});

test('a client that closes its side has gone', limit, async (t) => {
  const { raw, counters } = await serve(t);
  const client = await raw();
  client.socket.allowHalfOpen = true;
  client.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\n\r\n');
  await until(() => counters.connections === 1);
  client.socket.end();
  await client.closed();
  await until(() => counters.connections === 0 && counters.eventStreams === 0);
});

test('a reset by the client closes the stream, and the worker lives', limit, async (t) => {
  const { raw, counters, publish } = await serve(t);
  const client = await raw();
  client.write('GET /sse?room=a HTTP/1.1\r\nHost: a\r\n\r\n');
  await until(() => counters.connections === 1);
  client.socket.resetAndDestroy();
  publish('a', 1);
  await until(() => counters.connections === 0);
});

test('heartbeats are comments, and a silent peer stays', limit, async (t) => {
  const { open, heartbeat, counters } = await serve(t);
  const client = await open('?room=a');
  await client.collect('joined');
  const { comments } = client.reader;
  const turns = 2 * heartbeat.places.length;
  for (let i = 1; i <= turns; i++) heartbeat.pingDue(i * heartbeat.stepMs);
  await client.until(() => client.reader.comments === comments + 2, 'two comments');
  assert.equal(counters.heartbeatTimeouts, 0);
  assert.equal(client.isClosed, false);
});

test('a stream at its maximum age ends with its own time to return', limit, async (t) => {
  const { open, hub, counters } = await serve(t);
  const client = await open('?room=a');
  await client.collect('joined');
  const relocations = new Relocations({ hub, isSteady: () => true, counters });
  t.after(() => relocations.close());
  relocations.closeAged(hub.connections[0], 0);
  relocations.closeDue(1000);
  await client.ended();
  assert.deepEqual(client.all('close'), [
    { type: 'close', code: CLOSES.AGE.code, reason: CLOSES.AGE.reason },
  ]);
  assert.ok(client.reader.retryMs >= 100 && client.reader.retryMs < 1000);
  assert.equal(counters.relocated.age, 1);
});

test('a stream never returns faster than ten times a second', limit, async (t) => {
  const { open, hub } = await serve(t);
  const client = await open('?room=a');
  await client.collect('joined');
  const [connection] = hub.connections;
  connection.announceShutdown(0);
  connection.close(CLOSES.DRAIN);
  await client.ended();
  assert.equal(client.reader.retryMs, 100);
});

test('a drain sends each stream its own time to return, then ends it', limit, async (t) => {
  const { open, hub } = await serve(t);
  const client = await open('?room=a');
  await client.collect('joined');
  const [connection] = hub.connections;
  connection.announceShutdown(1234);
  connection.close(CLOSES.DRAIN);
  await client.ended();
  assert.equal(client.reader.retryMs, 1234);
  assert.equal(client.all('SERVER_SHUTDOWN')[0].reconnectAfterMs, 1234);
  assert.equal(client.all('close')[0].code, 1012);
});

test(
  'a stream of a plain room that does not read is closed as a slow consumer, and the others do not wait',
  limit,
  async (t) => {
    const { raw, open, publish, counters, hub } = await serve(t, {
      FANFARE_MAX_UNSENT_BYTES: '131072',
    });
    const slow = await raw();
    slow.socket.pause();
    slow.write('GET /sse?room=plain HTTP/1.1\r\nHost: a\r\n\r\n');
    const fast = await open('?room=plain');
    await fast.collect('joined');
    await until(() => hub.connections.length === 2);
    const payload = 'x'.repeat(50_000);
    let sent = 0;
    while (counters.slow.closed === 0 && sent < 2000) {
      publish('plain', payload);
      sent++;
      await fast.collect('message', sent);
    }
    assert.equal(counters.slow.closed, 1);
    assert.equal(fast.isClosed, false);
    await until(() => counters.connections === 1);
  },
);

test('a reader gets the same events wherever the bytes are cut', () => {
  const text = ':\r\n\r\nevent: a\r\nid: 1\rdata: x\ndata:y\n\ndata\n\nid: 2\n\n';
  const whole = new EventReader();
  const expected = whole.read(text);
  assert.deepEqual(
    expected.map(({ type, data, id }) => [type, data, id]),
    [
      ['a', 'x\ny', '1'],
      ['message', '', '1'],
    ],
  );
  assert.equal(whole.lastEventId, '2');
  const cut = new EventReader();
  assert.deepEqual(
    [...text].flatMap((character) => cut.read(character)),
    expected,
  );
});
