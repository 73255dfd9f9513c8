// client-publish.test.js: publishes until their replies, queues, own messages without an echo
// (client/outgoing.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Fanfare } from '../../src/client/index.js';
import { at, message, seen } from '../helpers/client-messages.js';
import { setUp } from '../helpers/fake-client.js';
import { fakeSockets } from '../helpers/fake-socket.js';

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
  // Compiled code grows the heap now and then, but garbage of publishes grows it each time.
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
    // `publish` resolves with the position that the room remembers.
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
    message: /^There is no connection, and the message was not sent\./,
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

test('a refused message has the position of its room, and is not sent again', async (t) => {
  const client = setUp(t, { offline: 'queue' });
  const room = await client.joined();
  const epoch = 'e'.repeat(16);
  const published = room.publish('x', { expect: { epoch, offset: 4 } });
  const { id, expect } = client.socket.last('message');
  assert.deepEqual(expect, { epoch, offset: 4 });
  const position = { epoch, offset: 6 };
  client.socket.push({ type: 'error', error: 'CONFLICT', message: 'm', position, id });
  await assert.rejects(published, { code: 'CONFLICT', position, retryable: false });
  assert.equal(client.socket.all('message').length, 1);
});

test('a queue has keys of its own where there is no crypto, as in React Native', async (t) => {
  const { crypto } = globalThis;
  t.after(() => Object.defineProperty(globalThis, 'crypto', { value: crypto, configurable: true }));
  Object.defineProperty(globalThis, 'crypto', { value: undefined, configurable: true });
  const client = setUp(t, { offline: 'queue' });
  const room = await client.joined();
  const sent = [room.publish(1), room.publish(2)];
  const keys = client.socket.all('message').map(({ idempotencyKey }) => idempotencyKey);
  for (const key of keys) assert.ok(key.length <= 128, key);
  assert.equal(new Set(keys).size, 2);
  for (const { id } of client.socket.all('message'))
    client.socket.push({ type: 'ack', id, ...at(id) });
  await Promise.all(sent);
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
  const { id } = client.socket.last('message');
  assert.deepEqual(client.socket.last('message'), { ...first, id });
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
  assert.deepEqual(second, { ...first, id: second.id });
  await client.pass(500);
  client.socket.answer('message', unknown);
  await published;
});

test('close() refuses what a queue has sent with OUTCOME_UNKNOWN, and the rest with CLOSED', async (t) => {
  const client = setUp(t, { offline: 'queue' });
  await client.joined();
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet({ limits: { idempotencyMs: 60_000 } });
  const sent = assert.rejects(client.fanfare.publish('chat.1', 1), { code: 'OUTCOME_UNKNOWN' });
  const lost = assert.rejects(client.fanfare.publish('chat.1', 2), { code: 'OUTCOME_UNKNOWN' });
  client.socket.end(1006);
  const waits = assert.rejects(client.fanfare.publish('chat.1', 3), { code: 'CLOSED' });
  await client.fanfare.close();
  await Promise.all([sent, lost, waits]);
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

test('a queue does not send a message again after its key is forgotten, however long it is offline', async (t) => {
  const client = setUp(t, { offline: 'queue' });
  const room = client.fanfare.join('chat.1');
  await turn();
  const limits = { idempotencyMs: 60_000 };
  client.socket.greet({ limits });
  const published = assert.rejects(room.publish('pay 10'), { code: 'OUTCOME_UNKNOWN' });
  const later = room.publish('more');
  client.socket.end(1006);
  // No attempt succeeds for more than a minute.
  for (let attempts = 0; attempts < 10; attempts++) {
    await client.pass(15_000);
    client.socket.end(1006);
  }
  assert.equal(client.sockets.flatMap((socket) => socket.all('message')).length, 2);
  const fresh = room.publish('fresh');
  await client.pass(15_000);
  client.socket.greet({ limits });
  await published;
  await assert.rejects(later, { code: 'OUTCOME_UNKNOWN' });
  assert.deepEqual(
    client.socket.all('message').map(({ payload }) => payload),
    ['fresh'],
  );
  client.socket.answer('message', { type: 'ack', ...at(1) });
  await fresh;
});

test('a message that the server would close the connection for is refused, and not sent', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1');
  await turn();
  client.socket.greet({ limits: { maxMessageBytes: 200 } });
  const bytesOf = (/** @type {unknown} */ payload) =>
    JSON.stringify({ type: 'message', room: 'chat.1', payload, id: 1 }).length;
  const full = 'x'.repeat(200 - bytesOf(''));
  room.publish(full).catch(() => {});
  assert.equal(client.socket.last('message').payload, full);
  // A letter of two bytes in UTF-8.
  for (const payload of [`${full}x`, `é${full.slice(1)}`])
    await assert.rejects(room.publish(payload), { code: 'MESSAGE_TOO_LARGE', retryable: false });
  for (const payload of [undefined, () => {}, Symbol('none'), { toJSON() {} }])
    await assert.rejects(room.publish(payload), { code: 'INVALID_MESSAGE_FORMAT' });
  assert.equal(client.socket.all('message').length, 1);
  assert.equal(client.fanfare.state, 'connected');
});

test('a message of no room is refused, and an id is the first field', async (t) => {
  const client = setUp(t);
  await client.joined();
  const { fanfare, socket } = client;
  await assert.rejects(fanfare.publish(/** @type {any} */ (undefined), 1), {
    message: "publish: the name of the room is missing, such as publish('lobby')",
  });
  const reply = fanfare.request({ type: 'ping', id: 'mine' });
  assert.equal(Object.keys(socket.last('ping'))[0], 'id');
  socket.answer('ping', { type: 'pong' });
  assert.equal((await reply).type, 'pong');
});
