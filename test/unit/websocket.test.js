import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { loadConfig } from '../../src/config/config.js';
import { Heartbeat } from '../../src/hub/heartbeat.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { WebSockets } from '../../src/transport/websocket.js';
import { Turn } from '../../src/worker/turn.js';
import { accepted } from '../helpers/accepted.js';
import { buildHub, noHistory } from '../helpers/hub.js';
import { handshake, RawClient } from '../helpers/raw-http.js';

/**
 * The transport over real sockets, with a broker that answers at once.
 * @param {import('node:test').TestContext} t @param {Record<string, string>} [env]
 */
async function serve(t, env = {}) {
  const { config } = loadConfig(env);
  assert.ok(config);
  /** @type {import('../../src/hub/hub.js').Hub} */
  let hub;
  const broker = {
    subscribe: async () => {},
    unsubscribe() {},
    reportConnections() {},
    countConnections: async () => hub.connections.length,
    history: noHistory,
    publish: async (/** @type {string} */ room, /** @type {Buffer} */ publication) =>
      hub.broadcast(room, publication),
  };
  const parts = buildHub({ config, broker });
  const { counters, commands } = parts;
  hub = parts.hub;
  const heartbeat = new Heartbeat({
    intervalMs: config.pingIntervalMs,
    timeoutMs: config.pongTimeoutMs,
    counters,
  });
  const websockets = new WebSockets({
    config,
    hub,
    door: commands.door,
    heartbeat,
    counters,
    turn: new Turn(),
  });
  const server = http.createServer();
  server.on('upgrade', (request, socket, head) =>
    websockets.upgrade(request, accepted(/** @type {any} */ (socket)), head, '127.0.0.1'),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  t.after(() => {
    for (const connection of [...hub.connections]) connection.transport.terminate();
    server.close();
  });
  const connect = async (
    /** @type {import('ws').ClientOptions} */ options = { perMessageDeflate: false },
  ) => {
    const client = new WebSocket(`ws://127.0.0.1:${port}/ws`, options);
    t.after(() => client.terminate());
    /** @type {any[]} */
    const messages = [];
    client.on('message', (data) => messages.push(JSON.parse(String(data))));
    await once(client, 'open');
    return { client, messages };
  };
  return { hub, counters, port, connect };
}

/** @param {() => boolean} condition */
async function until(condition) {
  const end = performance.now() + 5000;
  while (!condition()) {
    assert.ok(performance.now() < end, 'in time');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const publication = (/** @type {number} */ n, size = 0) => {
  const json = Buffer.from(JSON.stringify({ n, fill: 'x'.repeat(size) }));
  return encodePublication(KIND.MESSAGE, Date.now(), 0, 'me', json, 0, json.length);
};

test('frames past a full socket, its partial write included, arrive whole and in order', async (t) => {
  const { hub, counters, connect } = await serve(t, { FANFARE_MAX_UNSENT_BYTES: String(1 << 30) });
  const { client, messages } = await connect();
  client.send('{"type":"join","room":"r"}');
  await until(() => messages.length === 1);
  client.pause();
  const [connection] = hub.connections;
  let n = 0;
  // Until the kernel takes no more, and some way beyond: the rest waits in the stream.
  while (connection.transport.pendingBytes < 1_000_000) {
    hub.broadcast('r', publication(n++, 10_000));
    await turn();
    assert.ok(n < 10_000);
  }
  connection.send('{"type":"reply"}');
  client.resume();
  await until(() => messages.length === n + 2);
  const numbers = messages.slice(1, -1).map(({ payload }) => payload.n);
  assert.deepEqual(
    numbers,
    Array.from({ length: n }, (_, i) => i),
  );
  assert.equal(messages.at(-1).type, 'reply');
  // Drained, it is written to directly again.
  await until(() => connection.transport.pendingBytes === 0);
  hub.broadcast('r', publication(n));
  await until(() => messages.length === n + 3);
  assert.equal(counters.slow.closed, 0);
});

test('replies past a full socket, a partly written one included, arrive whole and in order', async (t) => {
  const { hub, connect } = await serve(t, { FANFARE_MAX_UNSENT_BYTES: String(1 << 30) });
  const { client, messages } = await connect();
  client.send('{"type":"ping"}');
  await until(() => messages.length === 1);
  client.pause();
  const [connection] = hub.connections;
  let n = 0;
  // Long enough for the kernel to take a part of one, short enough to be built where replies are
  // built.
  const rest = JSON.stringify('x'.repeat(9000));
  while (connection.transport.pendingBytes < 1_000_000) {
    const source = Buffer.from(`[${n++},${rest}]`);
    connection.sendAround(Buffer.from('{"type":"echo","payload":'), source, 0, source.length, '}');
    assert.ok(n < 10_000);
  }
  client.resume();
  await until(() => messages.length === n + 1);
  for (let i = 0; i < n; i++) assert.equal(messages[i + 1].payload[0], i);
  assert.equal(messages[n].payload[1].length, 9000);
});

test('a client that sends echoes and reads no reply is closed as a slow consumer, and few bytes wait for it', async (t) => {
  const { hub, counters, connect } = await serve(t);
  const { client, messages } = await connect();
  client.send('{"type":"ping"}');
  await until(() => messages.length === 1);
  client.pause();
  const [{ transport }] = hub.connections;
  const message = JSON.stringify({ type: 'echo', payload: 'x'.repeat(100_000) });
  let most = 0;
  // The kernel takes some megabytes before the first byte waits.
  for (let sent = 0; counters.slow.closed === 0; sent++) {
    assert.ok(sent < 1000, 'closed in time');
    if (client.bufferedAmount < 1_000_000) client.send(message);
    await new Promise((resolve) => setTimeout(resolve, 1));
    most = Math.max(most, transport.pendingBytes);
  }
  assert.ok(most > 0 && most <= 1 << 20, `${most} bytes waited`);
  await until(() => hub.connections.length === 0);
  assert.deepEqual(counters.slow, { closed: 1, dropped: 0, shed: 0 });
});

test('data frames, pings and the close frame keep their order', async (t) => {
  const { hub, connect } = await serve(t);
  const { client, messages } = await connect();
  /** @type {string[]} */
  const order = [];
  client.on('message', (data) => order.push(JSON.parse(String(data)).type));
  client.on('ping', () => order.push('ping'));
  client.on('close', (code) => order.push(String(code)));
  client.send('{"type":"join","room":"r"}');
  await until(() => messages.length === 1);
  const [connection] = hub.connections;
  connection.transport.ping();
  connection.send('{"type":"a"}');
  connection.transport.ping();
  connection.close({ code: 1012, reason: 'service restart' });
  connection.send('{"type":"never"}');
  hub.broadcast('r', publication(1));
  await once(client, 'close');
  assert.deepEqual(order, ['joined', 'ping', 'a', 'ping', '1012']);
  await until(() => hub.connections.length === 0);
});

test('a write to a closed socket is not a fault, and reaches no other socket', async (t) => {
  const { hub, connect } = await serve(t);
  const gone = await connect();
  await until(() => hub.connections.length === 1);
  const [connection] = hub.connections;
  const socket = /** @type {any} */ (connection.transport).socket;
  socket.destroy();
  const other = await connect(); // most likely on the very descriptor
  connection.transport.write(Buffer.from([0x81, 2, 0x7b, 0x7d]));
  other.client.send('{"type":"ping"}');
  await until(() => other.messages.length > 0);
  assert.deepEqual(other.messages, [{ type: 'pong' }]);
  await until(() => hub.connections.length === 1);
  gone.client.terminate();
});

test('binary messages are refused with 1003, messages over the limit with 1009', async (t) => {
  const { connect } = await serve(t, { FANFARE_MAX_MESSAGE_BYTES: '1024' });
  const one = await connect();
  one.client.send(Buffer.from([1]));
  assert.equal((await once(one.client, 'close'))[0], 1003);
  const two = await connect();
  two.client.send('x'.repeat(1025));
  assert.equal((await once(two.client, 'close'))[0], 1009);
});

test('a ping is answered, and a flood of pings only at a bounded rate', async (t) => {
  const { connect } = await serve(t);
  const { client, messages } = await connect();
  /** @type {string[]} */
  const pongs = [];
  client.on('pong', (body) => pongs.push(String(body)));
  client.ping('one');
  await until(() => pongs.length === 1);
  assert.deepEqual(pongs, ['one']);
  for (let i = 0; i < 1000; i++) client.ping(String(i));
  client.send('{"type":"ping"}');
  await until(() => messages.length === 1);
  assert.ok(pongs.length <= 21, `${pongs.length} pongs`);
});

test('a connection that does not answer a ping is terminated', async (t) => {
  const { hub, counters, connect } = await serve(t, {
    FANFARE_PING_INTERVAL_MS: '200',
    FANFARE_PONG_TIMEOUT_MS: '100',
  });
  const dead = await connect();
  const alive = await connect();
  await until(() => hub.connections.length === 2);
  dead.client.pause();
  await until(() => hub.connections.length === 1);
  assert.equal(counters.heartbeatTimeouts, 1);
  assert.equal(alive.client.readyState, WebSocket.OPEN);
});

test('a connection is removed from all rooms and registries when its socket closes', async (t) => {
  const { hub, counters, connect } = await serve(t);
  const { client, messages } = await connect();
  for (const room of ['a', 'b', 'c']) client.send(JSON.stringify({ type: 'join', room }));
  await until(() => messages.length === 3);
  assert.equal(hub.rooms.size, 4);
  client.terminate();
  await until(() => hub.connections.length === 0);
  assert.equal(hub.rooms.size, 1);
  assert.deepEqual(
    [counters.connections, counters.rooms, counters.accepted, counters.closed],
    [0, 0, 1, 1],
  );
});

test('one compressed buffer is sent to all connections that negotiated compression, and plain text to the others', async (t) => {
  const { hub, connect } = await serve(t, { FANFARE_COMPRESSION: 'on' });
  const deflating = [
    await connect({ perMessageDeflate: true }),
    await connect({ perMessageDeflate: true }),
  ];
  const narrow = await connect({ perMessageDeflate: { serverMaxWindowBits: 9 } });
  const plain = await connect();
  const all = [...deflating, narrow, plain];
  for (const { client } of all) client.send('{"type":"join","room":"r"}');
  await until(() => all.every(({ messages }) => messages.length === 1));
  assert.deepEqual(
    all.map(({ client }) => client.extensions !== ''),
    [true, true, true, false],
  );
  /** @type {Buffer[]} */
  const written = [];
  for (const { transport } of hub.connections) {
    const write = transport.write.bind(transport);
    transport.write = (frames) => {
      written.push(frames);
      write(frames);
    };
  }
  hub.broadcast('r', publication(1, 10_000));
  await until(() => all.every(({ messages }) => messages.length === 2));
  for (const { messages } of all)
    assert.deepEqual(messages[1].payload, { n: 1, fill: 'x'.repeat(10_000) });
  assert.equal(written[0], written[1], 'the very same buffer');
  assert.ok(written[0].length < 300);
  assert.equal(written[2], written[3]);
  assert.ok(written[2].length > 10_000);
  // Compressed messages of a client are read too.
  deflating[0].client.send(JSON.stringify({ type: 'echo', payload: 'y'.repeat(5000) }));
  await until(() => deflating[0].messages.length === 3);
  assert.equal(deflating[0].messages[2].payload.length, 5000);
});

test('a compression bomb is refused with 1009', async (t) => {
  const { connect } = await serve(t, { FANFARE_COMPRESSION: 'on' });
  const { client } = await connect({ perMessageDeflate: true, maxPayload: 0 });
  client.send('0'.repeat(50_000_000));
  assert.equal((await once(client, 'close'))[0], 1009);
});

test('compression is off unless configured', async (t) => {
  const { connect } = await serve(t);
  const { client } = await connect({ perMessageDeflate: true });
  assert.equal(client.extensions, '');
});

test('the server accepts only its own subprotocol among those offered', async (t) => {
  const { port } = await serve(t);
  for (const [offered, agreed] of /** @type {const} */ ([
    ['fanfare', 'fanfare'],
    ['graphql-ws, fanfare, mqtt', 'fanfare'],
    ['graphql-ws, mqtt', undefined],
    [undefined, undefined],
  ])) {
    const client = await RawClient.connect(t, { port });
    const response = await client
      .write(handshake({ headers: { 'Sec-WebSocket-Protocol': offered } }))
      .response();
    assert.equal(response.status, 101);
    assert.equal(response.headers['sec-websocket-protocol'], agreed);
    client.socket.destroy();
  }
});
