// client-connection.test.js: reconnects, liveness and events of the page (client/connection.js).

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Fanfare } from '../../src/client/index.js';
import { Fanfare as NodeFanfare } from '../../src/client/node.js';
import { at, message, seen } from '../helpers/client-messages.js';
import { setUp } from '../helpers/fake-client.js';
import { fakeSockets } from '../helpers/fake-socket.js';

/** @typedef {import('node:test').TestContext} TestContext */

test('join connects, says hello and joins; the URL may be of HTTP', async (t) => {
  const { Socket, sockets } = fakeSockets();
  const fanfare = new Fanfare('https://chat.example/ws', { WebSocket: Socket });
  t.after(() => fanfare.close());
  assert.equal(sockets.length, 0);
  fanfare.join('chat.1', { last: 5, presence: false });
  await turn();
  const [socket] = sockets;
  assert.equal(socket.url, 'wss://chat.example/ws');
  socket.greet();
  assert.deepEqual(socket.sent, [
    { type: 'hello', id: 0 },
    { type: 'join', id: 1, room: 'chat.1', last: 5, presence: false },
  ]);
  assert.equal(fanfare.state, 'connected');
});

test('a connection that breaks is replaced after full jitter that doubles', async (t) => {
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  for (const delay of [500, 1000, 2000, 4000, 8000, 15_000, 15_000]) {
    const { length } = client.sockets;
    client.socket.end(1006);
    assert.equal(client.fanfare.state, 'waiting');
    await client.pass(delay - 1);
    assert.equal(client.sockets.length, length, `before ${delay} ms`);
    await client.pass(1);
    assert.equal(client.sockets.length, length + 1, `after ${delay} ms`);
  }
});

test('an error of a socket is its end, also if no close follows', async (t) => {
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  const [socket] = client.sockets;
  socket.onerror?.({});
  await turn();
  assert.deepEqual(client.states, ['connecting', 'waiting']);
  // Those that follow concern nobody, but `ws` wants a listener.
  socket.onerror?.({});
  socket.end(1002);
  await client.pass(500);
  assert.deepEqual(client.states, ['connecting', 'waiting', 'connecting']);
});

test('a reason that follows an error at once, as in React Native, is reported', async (t) => {
  const client = setUp(t);
  /** @type {unknown[]} */
  const reasons = [];
  client.fanfare.on('state', (_, { reason }) => reasons.push(reason));
  client.fanfare.connect();
  await turn();
  client.socket.onerror?.({ type: 'error' });
  client.socket.end(1006, 'The Internet connection appears to be offline.');
  await turn();
  assert.deepEqual(reasons, [undefined, 'The Internet connection appears to be offline.']);
});

test('only 30 s of a stable connection reset the back-off', async (t) => {
  const client = setUp(t);
  /** @type {(number|undefined)[]} */
  const delays = [];
  client.fanfare.on('state', (_, { delayMs }) => delayMs !== undefined && delays.push(delayMs));
  client.fanfare.connect();
  await turn();
  for (const stableMs of [29_000, 29_000, 30_000]) {
    client.socket.greet();
    await client.pass(stableMs);
    client.socket.end(1006);
    await client.pass(30_000);
  }
  assert.deepEqual(delays, [500, 1000, 500]);
});

test('the delay of SERVER_SHUTDOWN is kept, for one attempt', async (t) => {
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  client.socket.push({ type: 'SERVER_SHUTDOWN', message: 'restart', reconnectAfterMs: 12_345 });
  client.socket.end(1012, 'service restart');
  await client.pass(12_344);
  assert.equal(client.sockets.length, 1);
  await client.pass(1);
  assert.equal(client.sockets.length, 2);
  client.socket.end(1006);
  await client.pass(1000);
  assert.equal(client.sockets.length, 3);
});

test('a refusal with Retry-After is kept, and one for good ends the client', async (t) => {
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  client.socket.onclose?.({ code: 1006, reason: '', isFinal: false, retryAfterMs: 7000 });
  await client.pass(6999);
  assert.equal(client.sockets.length, 1);
  await client.pass(1);
  client.socket.onclose?.({ code: 1006, reason: 'HTTP status 403', isFinal: true });
  assert.equal(client.fanfare.state, 'closed');
  assert.equal(client.errors[0].code, 'REFUSED');
});

test('in Node the state names the error of a connection that failed', async (t) => {
  const server = createServer((socket) => socket.end('no HTTP')).listen(0);
  t.after(() => server.close());
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const fanfare = new NodeFanfare(`ws://127.0.0.1:${port}`);
  t.after(() => fanfare.close());
  /** @type {unknown[]} */
  const reasons = [];
  await new Promise((resolve) => {
    fanfare.on(
      'state',
      (state, { reason }) => state === 'waiting' && resolve(reasons.push(reason)),
    );
    fanfare.connect();
  });
  assert.equal(reasons.length, 1, 'a failure counts once, and the pause grows once');
  assert.match(String(reasons[0]), /Parse Error/);
});

for (const code of [4500, 4503, 1009]) {
  test(`close code ${code} ends the client with an error that says so`, async (t) => {
    const client = setUp(t);
    client.fanfare.connect();
    await turn();
    client.socket.greet();
    client.socket.end(code, 'why');
    await client.pass(3_600_000);
    assert.equal(client.sockets.length, 1);
    assert.deepEqual(
      client.errors.map((error) => [error.code, error.closeCode, error.message]),
      [['REFUSED', code, `refused: ${code} why`]],
    );
    client.fanfare.connect();
    await turn();
    assert.equal(client.sockets.length, 2, 'connect() tries again');
  });
}

test('a half-open connection is dropped a heartbeat and 10 s after its last message', async (t) => {
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  client.socket.greet({ heartbeatMs: 20_000 });
  await client.pass(15_000);
  client.socket.push({ type: 'broadcast', payload: 1 });
  await client.pass(19_999);
  assert.equal(client.socket.all('ping').length, 0);
  await client.pass(1);
  assert.equal(client.socket.all('ping').length, 1);
  await client.pass(9999);
  assert.equal(client.fanfare.state, 'connected');
  await client.pass(1);
  assert.equal(client.fanfare.state, 'waiting');
  assert.equal(client.sockets[0].closedWith, 1000);
});

test('a pong keeps the connection', async (t) => {
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  for (let i = 1; i <= 3; i++) {
    await client.pass(30_000);
    client.socket.push({ type: 'pong' });
    await client.pass(10_000);
    assert.equal(client.socket.all('ping').length, i);
    await client.pass(0);
    client.socket.push({ type: 'pong' });
  }
  assert.equal(client.sockets.length, 1);
  assert.equal(client.fanfare.state, 'connected');
});

test('a handshake without an answer ends after 15 s', async (t) => {
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  client.socket.onopen?.();
  await client.pass(15_000);
  assert.equal(client.fanfare.state, 'waiting');
});

test('after close, publishes wait for the connection that connect opens again', async (t) => {
  const client = setUp(t);
  await client.joined();
  await client.fanfare.close();
  await assert.rejects(client.fanfare.publish('chat.1', 1), { code: 'CLOSED' });
  client.fanfare.connect();
  const published = client.fanfare.publish('chat.1', 2);
  await turn();
  client.socket.greet();
  client.socket.answer('message', { type: 'ack' });
  await published;
});

test('connect resolves with the first welcome, also after failed attempts, and rejects at the end', async (t) => {
  const client = setUp(t);
  const opened = client.fanfare.connect();
  assert.equal(client.fanfare.connect(), opened, 'one promise for one connection');
  await turn();
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  await opened;
  await client.fanfare.connect();
  assert.equal(client.sockets.length, 2);
  client.socket.end(4500, 'INVALID_TOKEN');
  const refused = client.fanfare.connect();
  await turn();
  client.socket.end(4500, 'invalid token');
  await assert.rejects(refused, {
    code: 'REFUSED',
    closeCode: 4500,
    message: 'refused: 4500 invalid token',
  });
  const closed = client.fanfare.connect();
  await turn();
  await client.fanfare.close();
  await assert.rejects(closed, { code: 'CLOSED', message: /client\.md#CLOSED$/ });
});

/** Makes this process look like a page. @param {TestContext} t */
function fakePage(t) {
  const page = new EventTarget();
  Object.assign(globalThis, {
    addEventListener: page.addEventListener.bind(page),
    document: { hidden: false },
  });
  t.after(() => {
    for (const name of ['addEventListener', 'document']) Reflect.deleteProperty(globalThis, name);
  });
  return {
    window: (/** @type {string} */ name) => page.dispatchEvent(new Event(name)),
    // An event of a document reaches the listeners of its window that capture.
    document: (/** @type {string} */ name) => page.dispatchEvent(new Event(name)),
  };
}

test('a page that hides closes the connection, and reconnects when it is shown', async (t) => {
  const page = fakePage(t);
  const client = setUp(t);
  const room = await client.joined();
  const list = seen(room);
  client.socket.push(message(11));
  page.window('pagehide');
  assert.equal(client.socket.closedWith, 1000);
  assert.equal(client.fanfare.state, 'sleeping');
  await client.pass(3_600_000);
  assert.equal(client.sockets.length, 1);
  page.window('pageshow');
  await turn();
  client.socket.greet();
  assert.deepEqual(client.socket.last('join').since, at(11));
  assert.deepEqual(list, [11]);
});

for (const [target, name] of /** @type {const} */ ([
  ['window', 'online'],
  ['document', 'visibilitychange'],
  ['document', 'resume'],
])) {
  test(`${name} ends a delay early, but no delay of the server`, async (t) => {
    const page = fakePage(t);
    const client = setUp(t);
    client.fanfare.connect();
    await turn();
    for (const ms of [500, 1000, 2000, 4000]) {
      client.socket.end(1006);
      await client.pass(ms);
    }
    client.socket.end(1006);
    page[target](name);
    await client.pass(500);
    assert.equal(client.sockets.length, 6);
    client.socket.end(1013);
    page[target](name);
    await client.pass(9999);
    assert.equal(client.sockets.length, 6);
  });
}

test('a page that wakes up checks its connection within 4 s', async (t) => {
  const page = fakePage(t);
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  page.document('resume');
  page.window('pageshow');
  assert.equal(client.socket.all('ping').length, 1);
  client.socket.push({ type: 'pong' });
  await client.pass(4000);
  assert.equal(client.fanfare.state, 'connected');
  page.window('online');
  await client.pass(4000);
  assert.equal(client.fanfare.state, 'waiting');
});

for (const error of ['RATE_LIMIT_EXCEEDED', 'TOKEN_NOT_YET_VALID'])
  test(`a hello that is refused by ${error} is said again, later and not by all at once`, async (t) => {
    const client = setUp(t);
    client.fanfare.connect();
    await turn();
    client.socket.onopen?.();
    client.socket.push({ type: 'error', id: 0, error, retryAfter: 3 });
    assert.equal(client.fanfare.state, 'waiting');
    assert.equal(client.socket.closedWith, 1000);
    // Three seconds, and half of the first second of a back-off.
    await client.pass(3499);
    assert.equal(client.sockets.length, 1);
    await client.pass(1);
    client.socket.greet();
    assert.equal(client.fanfare.state, 'connected');
    assert.deepEqual(client.errors, []);
  });

test('close() in a listener of `welcome` closes', async (t) => {
  const greeted = setUp(t);
  greeted.fanfare.on('welcome', () => void greeted.fanfare.close());
  greeted.fanfare.connect();
  await turn();
  greeted.socket.greet();
  await greeted.pass(60_000);
  assert.deepEqual(greeted.states, ['connecting', 'closed']);
  assert.equal(greeted.sockets.length, 1);
});

test('close() closes when the token callback has failed', async (t) => {
  const token = () => {
    throw new Error('logged out');
  };
  const client = setUp(t, { token });
  client.fanfare.on('error', () => void client.fanfare.close());
  client.fanfare.connect();
  await turn();
  await client.pass(60_000);
  assert.deepEqual(client.states, ['connecting', 'closed']);
});

for (const [name, end] of /** @type {[string, (client: ReturnType<typeof setUp>) => void][]} */ ([
  ['a refusal', ({ socket }) => socket.end(4503, 'disconnected')],
  ['close()', ({ fanfare }) => fanfare.close()],
]))
  test(`connect() in a listener of \`closed\` waits for the new connection after ${name}`, async (t) => {
    const client = setUp(t);
    client.fanfare.connect();
    await turn();
    client.socket.greet();
    /** @type {Promise<void>|undefined} */
    let again;
    client.fanfare.on('state', (state) => {
      if (state === 'closed') again ??= client.fanfare.connect();
    });
    end(client);
    await turn();
    client.socket.greet();
    await again;
    assert.equal(client.fanfare.state, 'connected');
  });

test('connect() rejects if a listener closes the client while it begins', async (t) => {
  const { fanfare } = setUp(t);
  fanfare.on('state', (state) => {
    if (state === 'connecting') fanfare.close();
  });
  await assert.rejects(fanfare.connect(), { code: 'CLOSED' });
});

test('a fragment of the URL is dropped, and a URL without a WebSocket ends the client', async (t) => {
  const { Socket, sockets } = fakeSockets();
  const fanfare = new Fanfare('https://chat.example/ws#top', { WebSocket: Socket });
  t.after(() => fanfare.close());
  fanfare.connect();
  await turn();
  assert.equal(sockets[0].url, 'wss://chat.example/ws');

  class Refusing {
    constructor() {
      throw new SyntaxError('no such protocol');
    }
  }
  const other = new Fanfare('wss://chat.example', { WebSocket: /** @type {any} */ (Refusing) });
  /** @type {string[]} */
  const errors = [];
  other.on('error', ({ code, message }) => errors.push(`${code} ${message}`));
  await assert.rejects(other.connect(), { code: 'REFUSED' });
  assert.deepEqual(errors, ['REFUSED refused: 1006 no such protocol']);
  assert.equal(other.state, 'closed');
});
