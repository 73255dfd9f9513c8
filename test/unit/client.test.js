// client.test.js: `fanfare/client` on a fake socket and a fake clock: reconnects, liveness,
// recovery, publishes, tokens, presence, events of the page.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Fanfare, FanfareError } from '../../src/client/index.js';
import { at, message, seen } from '../helpers/client-messages.js';
import { setUp } from '../helpers/fake-client.js';
import { fakeSockets } from '../helpers/fake-socket.js';
import { slowState } from '../helpers/slow-state.js';

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
  Object.assign(client.socket, { refusal: { reason: '', isFinal: false, retryAfterMs: 7000 } });
  client.socket.end(1006);
  await client.pass(6999);
  assert.equal(client.sockets.length, 1);
  await client.pass(1);
  Object.assign(client.socket, { refusal: { reason: 'HTTP status 403', isFinal: true } });
  client.socket.end(1006);
  assert.equal(client.fanfare.state, 'closed');
  assert.equal(client.errors[0].code, 'REFUSED');
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
      [['REFUSED', code, `the server refused the connection: ${code} why`]],
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

test('a rejoin has the position of the last message, and repeats are dropped', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const list = seen(room);
  for (const offset of [11, 12, 12, 11]) client.socket.push(message(offset));
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  assert.deepEqual(client.socket.last('join').since, at(12));
  client.socket.push(message(15));
  client.socket.answer('join', { type: 'joined', room: 'chat.1', ...at(14), recovered: true });
  for (const offset of [12, 13, 14, 15]) client.socket.push(message(offset));
  assert.deepEqual(list, [11, 12, 13, 14, 15]);
  assert.deepEqual(room.position, at(15));
});

test('a join without recovery loads the state before live messages continue', async (t) => {
  const client = setUp(t);
  const { loads, positions, recoverFailed } = slowState();
  const room = await client.joined({ recoverFailed });
  const list = seen(room);
  client.socket.push(message(11));
  client.socket.end(1006);
  await client.rejoined({ ...at(3, 'e2'), recovered: false });
  client.socket.push(message(4, 'e2'));
  await client.pass(0);
  assert.deepEqual(list, [11]);
  assert.deepEqual(positions, [at(3, 'e2')]);
  loads[0]('new');
  await turn();
  client.socket.push(message(5, 'e2'));
  assert.deepEqual(list, [11, { state: 'new' }, 4, 5]);
});

test('the first join of a room has no state to recover, unless it has `since`', async (t) => {
  const client = setUp(t);
  let loads = 0;
  const recoverFailed = () => ++loads;
  await client.joined({ recoverFailed });
  await client.pass(0);
  assert.equal(loads, 0);
  client.fanfare.join('chat.2', { since: at(1), recoverFailed });
  client.socket.answer('join', { type: 'joined', room: 'chat.2', ...at(9), recovered: false });
  await client.pass(0);
  await client.pass(0);
  assert.equal(loads, 1);
});

test('a plain room loads the state after each reconnect', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('plain', { recoverFailed: () => 'state' });
  const list = seen(room);
  await turn();
  client.socket.greet();
  client.socket.answer('join', { type: 'joined', room: 'plain' });
  client.socket.push({ type: 'message', room: 'plain', payload: 1, from: 'a', timestamp: 1 });
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  assert.equal(client.socket.last('join').since, undefined);
  client.socket.answer('join', { type: 'joined', room: 'plain' });
  await client.pass(0);
  await client.pass(0);
  assert.deepEqual(list, [1, { state: 'state' }]);
});

test('resync waits reloadAfterMs, loads the state, and continues from its position', async (t) => {
  const client = setUp(t);
  const room = await client.joined({ recoverFailed: (position) => position });
  const list = seen(room);
  client.socket.push({ type: 'resync', room: 'chat.1', ...at(50, 'e2'), reloadAfterMs: 1200 });
  client.socket.push(message(51, 'e2'));
  await client.pass(1199);
  assert.deepEqual(list, []);
  await client.pass(1);
  assert.deepEqual(list, [{ state: at(50, 'e2') }, 51]);
});

test('a second gap while the state loads is loaded again, and old messages are dropped', async (t) => {
  const client = setUp(t);
  const { loads, recoverFailed } = slowState();
  const room = await client.joined({ recoverFailed });
  const list = seen(room);
  client.socket.push({ type: 'resync', room: 'chat.1', ...at(1, 'e2'), reloadAfterMs: 0 });
  client.socket.push(message(2, 'e2'));
  await client.pass(0);
  client.socket.push({ type: 'resync', room: 'chat.1', ...at(7, 'e3'), reloadAfterMs: 0 });
  client.socket.push(message(8, 'e3'));
  loads[0](1);
  await client.pass(0);
  assert.deepEqual(list, []);
  loads[1](2);
  await turn();
  assert.deepEqual(list, [{ state: 2 }, 8]);
});

test('more messages than may wait for the state are a gap, and the state is loaded again', async (t) => {
  const client = setUp(t);
  const { loads, positions, recoverFailed } = slowState();
  const room = await client.joined({ recoverFailed });
  const list = seen(room);
  client.socket.push({ type: 'resync', room: 'chat.1', ...at(10), reloadAfterMs: 0 });
  await client.pass(0);
  for (let offset = 11; offset <= 1012; offset++) client.socket.push(message(offset));
  loads[0]('old');
  await turn();
  assert.deepEqual(positions, [at(10), at(1011)]);
  loads[1]('new');
  await turn();
  assert.deepEqual(list, [{ state: 'new' }, 1012]);
});

test('a state that cannot be loaded is reported and loaded again', async (t) => {
  const client = setUp(t);
  let calls = 0;
  const room = await client.joined({
    recoverFailed: async () => {
      if (++calls < 3) throw new Error('no database');
      return calls;
    },
  });
  /** @type {string[]} */
  const codes = [];
  room.on('error', ({ code, cause }) =>
    codes.push(`${code}: ${/** @type {Error} */ (cause).message}`),
  );
  const list = seen(room);
  client.socket.push({ type: 'resync', room: 'chat.1', ...at(10), reloadAfterMs: 0 });
  for (const ms of [0, 500, 1000]) await client.pass(ms);
  assert.deepEqual(codes, new Array(2).fill('STATE_UNAVAILABLE: no database'));
  assert.deepEqual(list, [{ state: 3 }]);
});

test('`last` counts for the first join only, and its replay is delivered', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1', { last: 2 });
  const list = seen(room);
  await turn();
  client.socket.greet();
  client.socket.answer('join', {
    type: 'joined',
    room: 'chat.1',
    ...at(10),
    recovered: false,
    replayed: 2,
    first: 9,
  });
  for (const offset of [9, 10, 11]) client.socket.push(message(offset));
  assert.deepEqual(list, [9, 10, 11]);
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  const { last, since } = client.socket.last('join');
  assert.deepEqual([last, since], [undefined, at(11)]);
});

test('a server leaves out own messages of a replay, and the others all arrive', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1', { last: 4 });
  const list = seen(room);
  await turn();
  client.socket.greet();
  const replay = { recovered: false, replayed: 2, first: 7 };
  client.socket.answer('join', { type: 'joined', room: 'chat.1', ...at(10), ...replay });
  for (const offset of [7, 10, 11]) client.socket.push(message(offset));
  assert.deepEqual(list, [7, 10, 11]);
  assert.deepEqual(room.position, at(11));
});

test('a replay of nothing moves the position to the end of the room', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1', { last: 4 });
  await turn();
  client.socket.greet();
  const joined = { type: 'joined', room: 'chat.1', ...at(10), recovered: false, replayed: 0 };
  client.socket.answer('join', joined);
  assert.deepEqual(room.position, at(10));
});

test('a join that is refused for the moment is tried again; another one is reported', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1');
  await turn();
  client.socket.greet();
  client.socket.answer('join', {
    type: 'error',
    error: 'UNAVAILABLE',
    message: 'later',
    retryAfter: 3,
  });
  await client.pass(2999);
  assert.equal(client.socket.all('join').length, 1);
  await client.pass(1);
  assert.equal(client.socket.all('join').length, 2);
  client.socket.answer('join', {
    type: 'error',
    error: 'PERMISSION_DENIED',
    message: 'Not permitted.',
  });
  await client.pass(60_000);
  assert.equal(client.socket.all('join').length, 2);
  assert.deepEqual([client.errors[0].code, client.errors[0].room], ['PERMISSION_DENIED', 'chat.1']);
  assert.equal(room.isJoined, false);
});

test('a room that the server has joined first is left and joined with `since`', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const list = seen(room);
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  client.socket.push({ type: 'joined', room: 'chat.1', ...at(12), recovered: false });
  client.socket.push(message(13));
  client.socket.answer('join', { type: 'error', error: 'ALREADY_JOINED', message: '' });
  assert.equal(client.socket.sent.at(-2)?.type, 'leave');
  assert.deepEqual(client.socket.last('join').since, at(10));
  client.socket.answer('leave', { type: 'left', room: 'chat.1' });
  client.socket.answer('join', { type: 'joined', room: 'chat.1', ...at(13), recovered: true });
  for (const offset of [11, 12, 13]) client.socket.push(message(offset));
  assert.deepEqual(list, [11, 12, 13]);
});

test('a room that has been left delivers nothing more, and is not joined again', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const list = seen(room);
  room.leave();
  client.socket.push(message(11));
  await turn();
  assert.deepEqual(client.socket.last('leave').room, 'chat.1');
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  assert.equal(client.socket.all('join').length, 0);
  assert.deepEqual(list, []);
});

test('publish resolves with the position, or rejects with the code of the error', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const accepted = room.publish({ text: 'hi' }, { echo: false });
  const { id, ...command } = client.socket.last('message');
  assert.deepEqual(command, {
    type: 'message',
    room: 'chat.1',
    payload: { text: 'hi' },
    echo: false,
  });
  client.socket.push({ type: 'ack', id, ...at(11) });
  assert.deepEqual(await accepted, at(11));
  for (const [error, retryable] of /** @type {const} */ ([
    ['UNAVAILABLE', true],
    ['RATE_LIMIT_EXCEEDED', true],
    ['PERMISSION_DENIED', false],
    ['OUTCOME_UNKNOWN', false],
  ])) {
    const refused = room.publish(1);
    client.socket.answer('message', { type: 'error', error, message: 'no', retryAfter: 2 });
    await assert.rejects(refused, { code: error, retryable, room: 'chat.1', retryAfterMs: 2000 });
  }
  await assert.rejects(room.publish(undefined), TypeError);
});

test('history reads a page, whose messages can begin the next one', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const messages = [8, 9].map((offset) => ({
    payload: { offset },
    from: 'ann',
    timestamp: 1,
    offset,
  }));
  const pages = [
    { sent: { limit: 2 }, options: { limit: 2 }, more: true },
    { sent: { sinceTime: 7 }, options: { sinceTime: 7 }, more: false },
  ];
  /** @type {import('../../src/client/room.js').HistoryPage|undefined} */
  let page;
  for (const { sent, options, more } of pages) {
    const reading = room.history(options);
    await turn();
    const { id, ...command } = client.socket.last('history');
    assert.deepEqual(command, { type: 'history', room: 'chat.1', ...sent });
    client.socket.answer('history', { type: 'history', room: 'chat.1', messages, more, ...at(10) });
    page = await reading;
    assert.deepEqual(
      page.messages,
      messages.map((one) => ({ ...one, epoch: 'e1' })),
    );
    assert.deepEqual([page.more, page.epoch, page.offset], [more, 'e1', 10]);
  }
  // The payload of the message is not sent back.
  room.history({ before: page?.messages[0] }).catch(() => {});
  await turn();
  const { before } = client.socket.last('history');
  assert.deepEqual([before.epoch, before.offset, before.payload], ['e1', 8, undefined]);
  // Nothing is joined or delivered by a read, and its refusal is an error with a code.
  const refused = assert.rejects(room.history(), { code: 'PERMISSION_DENIED' });
  await turn();
  client.socket.answer('history', { type: 'error', error: 'PERMISSION_DENIED', message: 'no' });
  await refused;
  client.socket.end(1006);
  await assert.rejects(room.history(), { code: 'OFFLINE', retryable: true });
});

test('a message without an echo is not delivered by a replay, and is not asked for again', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const list = seen(room);
  const published = [1, 2].map((payload) => room.publish(payload, { echo: false }));
  const [first, second] = client.socket.all('message');
  // Offset 12 is on its way.
  client.socket.push({ type: 'ack', id: first.id, ...at(11) });
  client.socket.push({ type: 'ack', id: second.id, ...at(13) });
  await Promise.all(published);
  await turn();
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  assert.deepEqual(client.socket.last('join').since, at(11));
  client.socket.answer('join', { type: 'joined', room: 'chat.1', ...at(14), recovered: true });
  for (const offset of [12, 13, 14]) client.socket.push(message(offset));
  assert.deepEqual(list, [12, 14]);
});

test('messages without an echo whose `ack` comes late leave nothing behind', async (t) => {
  // Not by setUp: mocks remember each call.
  const { Socket, sockets } = fakeSockets();
  const fanfare = new Fanfare('wss://chat.example', { WebSocket: Socket });
  t.after(() => fanfare.close());
  const room = fanfare.join('chat.1');
  await turn();
  const [socket] = sockets;
  socket.greet();
  socket.answer('join', { type: 'joined', room: 'chat.1', ...at(10), recovered: false });
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  const publish = async (/** @type {number} */ count, /** @type {number} */ first) => {
    for (let offset = first; offset < first + 2 * count; offset += 2) {
      const published = room.publish('own', { echo: false });
      socket.push(message(offset + 1));
      socket.answer('message', { type: 'ack', ...at(offset) });
      socket.sent.length = 0;
      await published;
    }
    await turn();
    collect();
    return process.memoryUsage().heapUsed;
  };
  // Compiled code grows the heap now and then, but what publishes leave behind grows it each time.
  let used = await publish(1000, 11);
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 4; round++) {
    const before = used;
    used = await publish(10_000, 3011 + round * 20_000);
    least = Math.min(least, used - before);
  }
  assert.ok(least < 300_000, `${least} bytes are left`);
});

test('a message without an echo is forgotten once the position has passed it', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const list = seen(room);
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  /** @param {ReturnType<typeof at>} position @param {() => void} before the `ack` */
  const publish = async (position, before) => {
    const published = room.publish('own', { echo: false });
    before();
    client.socket.answer('message', { type: 'ack', ...position });
    // What `publish` resolves with is what the room remembers.
    return new WeakRef(await published);
  };
  const nothing = () => {};
  const remembered = [
    // The `ack` comes after a later message.
    await publish(at(11), () => client.socket.push(message(12))),
    // A message before it is not for this connection, so none with the next offset comes.
    await publish(at(14), nothing),
  ];
  client.socket.push(message(15));
  remembered.push(await publish(at(17), nothing));
  // Its own message comes all the same, from the replay of another connection.
  client.socket.push({ ...message(17), payload: 'own' });
  remembered.push(await publish(at(19), nothing));
  client.socket.push({ type: 'resync', room: 'chat.1', ...at(3, 'e2'), reloadAfterMs: 0 });
  await turn();
  collect();
  assert.deepEqual(
    remembered.map((each) => each.deref()),
    new Array(4).fill(undefined),
  );
  assert.deepEqual(list, [12, 15, { state: undefined }]);
});

test('a publish is OFFLINE before it is sent, and OUTCOME_UNKNOWN after', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const unknown = room.publish(1);
  client.socket.end(1006);
  await assert.rejects(unknown, { code: 'OUTCOME_UNKNOWN', retryable: false });
  await assert.rejects(room.publish(2), { code: 'OFFLINE', retryable: true });
});

test('before the first connection publishes wait, in order, and the room is joined first', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1');
  const published = [room.publish('a'), client.fanfare.publish('chat.2', 'b')];
  await turn();
  assert.equal(client.fanfare.state, 'connecting');
  client.socket.greet();
  assert.deepEqual(
    client.socket.sent.map(({ type, room: name, payload }) => [type, name, payload]),
    [
      ['hello', undefined, undefined],
      ['join', 'chat.1', undefined],
      ['message', 'chat.1', 'a'],
      ['message', 'chat.2', 'b'],
    ],
  );
  for (const { id } of client.socket.all('message')) client.socket.push({ type: 'ack', id });
  assert.equal((await Promise.all(published)).length, 2);
});

test('publishes that wait for the first connection are refused when the attempt fails, or above maxPending', async (t) => {
  const client = setUp(t, { maxPending: 1 });
  const waiting = client.fanfare.publish('chat.1', 'a');
  await assert.rejects(client.fanfare.publish('chat.1', 'b'), { code: 'QUEUE_FULL' });
  await turn();
  client.socket.end(1006);
  await assert.rejects(waiting, {
    code: 'OFFLINE',
    retryable: true,
    message:
      'see https://github.com/fanfare/fanfare/blob/main/docs/client.md#OFFLINE (room chat.1)',
  });
  assert.equal(client.fanfare.state, 'waiting');
  await assert.rejects(client.fanfare.publish('chat.1', 'c'), { code: 'OFFLINE' });
  await client.pass(500);
  const next = client.fanfare.publish('chat.1', 'd');
  client.socket.greet();
  client.socket.answer('message', { type: 'ack' });
  await next;
  // Between two connections `reject` counts.
  client.socket.end(1006);
  await client.pass(1000);
  assert.equal(client.fanfare.state, 'connecting');
  await assert.rejects(client.fanfare.publish('chat.1', 'e'), { code: 'OFFLINE' });
});

test('after close, publishes wait for the connection that connect opens anew', async (t) => {
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
    message: 'the server refused the connection: 4500 invalid token',
  });
  const closed = client.fanfare.connect();
  await turn();
  await client.fanfare.close();
  await assert.rejects(closed, { code: 'CLOSED', message: /client\.md#CLOSED$/ });
});

test('the message of an error of the client names a place in docs/client.md', () => {
  const guide = readFileSync(new URL('../../docs/client.md', import.meta.url), 'utf8');
  for (const code of /** @type {const} */ ([
    'OFFLINE',
    'QUEUE_FULL',
    'OUTCOME_UNKNOWN',
    'CLOSED',
    'TOKEN_UNAVAILABLE',
    'STATE_UNAVAILABLE',
    'BUFFER_FULL',
  ])) {
    const { message } = new FanfareError(code);
    assert.equal(
      message,
      `see https://github.com/fanfare/fanfare/blob/main/docs/client.md#${code}`,
    );
    assert.ok(guide.includes(`<a id="${code}"></a>`), code);
  }
});

test('a room that a token does not permit is joined when a later token may permit it', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  client.socket.push(message(11));
  client.socket.push({ type: 'authenticated', userId: 'ann', expiresAt: 1 });
  client.socket.push({ type: 'left', room: 'chat.1', reason: 'permission' });
  assert.deepEqual([room.isJoined, client.errors.at(-1)?.code], [false, 'PERMISSION_DENIED']);
  assert.equal(client.socket.all('join').length, 1, 'not with the same token');
  client.socket.push({ type: 'authenticated', userId: 'ann', expiresAt: 2 });
  assert.deepEqual(client.socket.last('join').since, at(11));
  const refusal = { type: 'error', error: 'PERMISSION_DENIED', message: 'Not permitted.' };
  client.socket.answer('join', refusal);
  client.socket.push({ type: 'authenticated', userId: 'ann', expiresAt: 3 });
  assert.equal(client.socket.all('join').length, 3);
  // While the join is under way, and after it, a token changes nothing.
  client.socket.push({ type: 'authenticated', userId: 'ann', expiresAt: 4 });
  client.socket.answer('join', { type: 'joined', room: 'chat.1', ...at(11), recovered: true });
  client.socket.push({ type: 'authenticated', userId: 'ann', expiresAt: 5 });
  assert.equal(client.socket.all('join').length, 3);
  assert.equal(room.isJoined, true);
  // A backend has taken the user out of the room: a new token is not its permission.
  client.socket.push({ type: 'left', room: 'chat.1', reason: 'removed' });
  client.socket.push({ type: 'authenticated', userId: 'ann', expiresAt: 6 });
  assert.equal(client.socket.all('join').length, 3);
});

test('a queue keeps the order, sends no message twice, and refuses more than its bound', async (t) => {
  const client = setUp(t, { offline: 'queue', maxPending: 3 });
  const room = await client.joined();
  const sent = room.publish('sent');
  client.socket.end(1006);
  await assert.rejects(sent, { code: 'OUTCOME_UNKNOWN' });
  const waiting = ['a', 'b', 'c'].map((payload) => room.publish(payload));
  await assert.rejects(room.publish('d'), { code: 'QUEUE_FULL', retryable: true });
  await client.pass(500);
  client.socket.greet();
  const commands = client.socket.all('message');
  assert.deepEqual(
    commands.map(({ payload }) => payload),
    ['a', 'b', 'c'],
  );
  assert.equal(new Set(commands.map(({ idempotencyKey }) => idempotencyKey)).size, 3);
  for (const { id } of commands) client.socket.push({ type: 'ack', id, ...at(id) });
  assert.equal((await Promise.all(waiting)).length, 3);
});

test('a queue sends a message again with its key if the server remembers keys', async (t) => {
  const client = setUp(t, { offline: 'queue' });
  const room = client.fanfare.join('chat.1');
  await turn();
  const limits = { idempotencyMs: 60_000 };
  client.socket.greet({ limits });
  const published = room.publish('once');
  const first = client.socket.last('message');
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet({ limits });
  assert.deepEqual(client.socket.last('message'), first);
  client.socket.answer('message', { type: 'ack', ...at(1) });
  assert.deepEqual(await published, at(1));
});

test('a queue repeats a message of unknown outcome only while its key is remembered', async (t) => {
  const client = setUp(t, { offline: 'queue' });
  const room = client.fanfare.join('chat.1');
  await turn();
  await client.pass(1);
  client.socket.greet({ limits: { idempotencyMs: 2000 } });
  const unknown = { type: 'error', error: 'OUTCOME_UNKNOWN', message: '' };
  const published = assert.rejects(room.publish('once'), { code: 'OUTCOME_UNKNOWN' });
  client.socket.answer('message', unknown);
  await client.pass(1500);
  const [first, second] = client.socket.all('message');
  assert.deepEqual(second, first);
  await client.pass(500);
  client.socket.answer('message', unknown);
  await published;
});

test('a queue waits as long as the server asks, and then sends the message again', async (t) => {
  const client = setUp(t, { offline: 'queue' });
  const room = await client.joined();
  const published = room.publish(1);
  client.socket.answer('message', {
    type: 'error',
    error: 'RATE_LIMIT_EXCEEDED',
    message: '',
    retryAfter: 5,
  });
  const next = room.publish(2);
  await client.pass(4999);
  assert.equal(client.socket.all('message').length, 1);
  await client.pass(1);
  const [, ...again] = client.socket.all('message');
  assert.deepEqual(
    again.map(({ payload }) => payload),
    [1, 2],
  );
  for (const { id } of again) client.socket.push({ type: 'ack', id });
  await Promise.all([published, next]);
});

test('close ends rooms, iterators and waiting publishes, and nothing reconnects', async (t) => {
  const client = setUp(t, { offline: 'queue' });
  const room = await client.joined();
  const read = (async () => {
    const list = [];
    for await (const { payload } of room) list.push(payload);
    return list;
  })();
  await turn();
  client.socket.push(message(11));
  client.socket.end(1006);
  const waiting = room.publish(1);
  await client.fanfare.close();
  await assert.rejects(waiting, { code: 'CLOSED' });
  assert.deepEqual(await read, [11]);
  await client.pass(60_000);
  assert.equal(client.sockets.length, 1);
  await assert.rejects(room.publish(2), { code: 'CLOSED' });
});

test('an iterator that is not read ends with an error, and its memory is bounded', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const iterator = room[Symbol.asyncIterator]();
  const first = iterator.next();
  for (let offset = 11; offset < 1100; offset++) client.socket.push(message(offset));
  await assert.rejects(
    async () => {
      await first;
      await iterator.next();
    },
    { code: 'BUFFER_FULL' },
  );
});

/** @param {number} seconds @param {string} [name] */
function token(seconds, name = 'x') {
  const iat = Math.floor(Date.now() / 1000);
  const claims = Buffer.from(JSON.stringify({ name, iat, exp: iat + seconds }));
  return `h.${claims.toString('base64url')}.s`;
}

test('a token is asked for once, sent in hello, reused by reconnects, and renewed in time', async (t) => {
  let calls = 0;
  const client = setUp(t, { token: async () => token(600, `token ${++calls}`) });
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  const first = client.socket.last('hello').token;
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  assert.equal(client.socket.last('hello').token, first);
  assert.equal(calls, 1);
  // 82.5 % of its life, as the random number is one half.
  await client.pass(494_400);
  client.socket.push({ type: 'pong' });
  assert.equal(client.socket.all('auth').length, 0);
  await client.pass(200);
  assert.equal(calls, 2);
  assert.notEqual(client.socket.last('auth').token, first);
});

test('after 4001 the token is new; a callback that fails is reported and tried again', async (t) => {
  let calls = 0;
  const client = setUp(t, {
    token: () => {
      if (++calls === 2) throw new Error('no backend');
      return token(600, `token ${calls}`);
    },
  });
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  client.socket.end(4001, 'token expired');
  await client.pass(500);
  assert.equal(client.errors[0].code, 'TOKEN_UNAVAILABLE');
  assert.equal(client.sockets.length, 1);
  await client.pass(1000);
  assert.equal(calls, 3);
  assert.equal(client.sockets.length, 2);
});

test('a wrong clock does not make a token look expired', async (t) => {
  let calls = 0;
  const client = setUp(t, {
    token: () => {
      calls++;
      return token(600);
    },
  });
  // This machine is a day ahead of the signer.
  const signer = Date.now;
  t.mock.method(Date, 'now', () => signer() + (calls === 0 ? 0 : 86_400_000));
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  assert.equal(calls, 1);
});

test('presence: the list in pages, then events; asked for again after a reconnect', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  assert.equal(client.socket.all('presence').length, 0);
  /** @type {[string[], number][]} */
  const changes = [];
  room.presence.on('change', (members, count) =>
    changes.push([members.map(({ user }) => user), count]),
  );
  const event = (/** @type {string} */ kind, /** @type {string} */ user) =>
    client.socket.push({ type: 'presence', room: 'chat.1', event: kind, member: { user } });
  client.socket.answer('presence', {
    type: 'presence',
    room: 'chat.1',
    members: [{ user: 'ann' }, { user: 'bob' }],
    count: 3,
    more: true,
  });
  assert.equal(client.socket.last('presence').after, 'bob');
  event('leave', 'ann');
  client.socket.answer('presence', {
    type: 'presence',
    room: 'chat.1',
    members: [{ user: 'cid' }],
    count: 3,
  });
  assert.deepEqual(changes.at(-1)?.[0], ['bob', 'cid']);
  event('join', 'dan');
  event('join', 'dan');
  assert.deepEqual(changes.at(-1)?.[0], ['bob', 'cid', 'dan']);
  client.socket.push({ type: 'degraded', degraded: false });
  assert.equal(client.socket.all('presence').length, 3);
  client.socket.end(1006);
  await client.rejoined({ ...at(10), recovered: true });
  client.socket.answer('presence', { type: 'presence', room: 'chat.1', count: 5000 });
  assert.deepEqual(changes.at(-1), [[], 5000]);
  assert.equal(room.presence.count, 5000);
});

/** Makes this process look like a page. @param {TestContext} t */
function fakePage(t) {
  const page = new EventTarget();
  const document = Object.assign(new EventTarget(), { visibilityState: 'visible' });
  Object.assign(globalThis, {
    addEventListener: page.addEventListener.bind(page),
    document,
  });
  t.after(() => {
    for (const name of ['addEventListener', 'document']) Reflect.deleteProperty(globalThis, name);
  });
  return {
    window: (/** @type {string} */ name) => page.dispatchEvent(new Event(name)),
    document: (/** @type {string} */ name) => document.dispatchEvent(new Event(name)),
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

test('a listener that throws stops neither the others nor the client', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  /** @type {unknown[]} */
  const uncaught = [];
  t.mock.method(globalThis, 'queueMicrotask', (/** @type {() => void} */ act) => {
    try {
      act();
    } catch (error) {
      uncaught.push(error);
    }
  });
  const list = seen(room);
  room.on('message', () => {
    throw new Error('mine');
  });
  client.socket.push(message(11));
  client.socket.push(message(12));
  assert.deepEqual(list, [11, 12]);
  assert.equal(uncaught.length, 2);
});

test('broadcasts, outages and errors of no command are events of the client', async (t) => {
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  /** @type {unknown[]} */
  const list = [];
  client.fanfare.on('broadcast', (payload) => list.push(payload));
  client.fanfare.on('degraded', (degraded) => list.push(degraded));
  client.socket.push({ type: 'broadcast', payload: 'noon' });
  client.socket.push({ type: 'degraded', degraded: true });
  client.socket.push({ type: 'error', error: 'RATE_LIMIT_EXCEEDED', message: '', timestamp: 1 });
  assert.deepEqual(list, ['noon', true]);
  assert.equal(client.errors[0].code, 'RATE_LIMIT_EXCEEDED');
});

test('the package itself is the client', async () => {
  // The package's own name, as its `exports` resolve it.
  const [whole, client] = await Promise.all(['fanfare', 'fanfare/client'].map((id) => import(id)));
  assert.deepEqual(Object.keys(whole), ['Fanfare', 'FanfareError', 'Room']);
  assert.equal(whole.Fanfare, client.Fanfare);
  const url = import.meta.resolve('fanfare');
  assert.equal(url, new URL('../../src/client/node.js', import.meta.url).href);
});
