// client-room.test.js: messages of a room once and in order, its gaps, states and history
// (client/room.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Fanfare } from '../../src/client/index.js';
import { at, message, seen } from '../helpers/client-messages.js';
import { setUp } from '../helpers/fake-client.js';
import { fakeSockets } from '../helpers/fake-socket.js';
import { slowState } from '../helpers/slow-state.js';

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

test('pushes that the client does not know, or has not asked for, change nothing', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const list = seen(room);
  client.socket.push({ type: 'new', room: 'chat.1', payload: 1, ...at(11) });
  client.socket.push({ type: 'new', payload: 1, ...at(11) });
  // By the token's `autojoin`.
  client.socket.push({ type: 'joined', room: 'chat.1', ...at(20), recovered: false });
  client.socket.push({ type: 'message', room: 'chat.2', payload: 1, ...at(30) });
  client.socket.push(message(11));
  assert.deepEqual(list, [11]);
  assert.deepEqual(room.position, at(11));
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

for (const joined of [false, true])
  test(`a loop over a room that is refused ${joined ? 'later' : 'at once'} ends with that error`, async (t) => {
    const client = setUp(t);
    const room = joined ? await client.joined() : client.fanfare.join('chat.1');
    const next = room[Symbol.asyncIterator]().next();
    await turn();
    if (joined) client.socket.push({ type: 'left', room: 'chat.1', reason: 'permission' });
    else {
      client.socket.greet();
      const refusal = { type: 'error', error: 'PERMISSION_DENIED', message: 'no', room: 'chat.1' };
      client.socket.answer('join', refusal);
    }
    await assert.rejects(next, { name: 'FanfareError', code: 'PERMISSION_DENIED', room: 'chat.1' });
    assert.deepEqual(client.errors, [], 'the loop has reported it');
  });

test('a loop ends with REFUSED when the server closes the client for good', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const iterator = room[Symbol.asyncIterator]();
  const next = iterator.next();
  client.socket.push(message(11));
  await next;
  const last = iterator.next();
  client.socket.end(4503, 'disconnected');
  await assert.rejects(last, { code: 'REFUSED', closeCode: 4503 });
});

test('a loop goes on while the state is loaded again, and ends with leave()', async (t) => {
  const client = setUp(t);
  const recoverFailed = () => Promise.reject(new Error('no database'));
  const room = await client.joined({ since: at(1), recoverFailed });
  const next = room[Symbol.asyncIterator]().next();
  await client.pass(0);
  assert.equal(client.errors[0]?.code, 'STATE_UNAVAILABLE');
  room.leave();
  assert.equal((await next).done, true);
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

test('a state that will be loaded again does not keep a program alive', async () => {
  const { Socket, sockets } = fakeSockets();
  const fanfare = new Fanfare('wss://chat.example', { WebSocket: Socket });
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
  const before = timers();
  const room = fanfare.join('chat.1', {
    since: at(1),
    recoverFailed: () => Promise.reject(new Error('no database')),
  });
  const failed = new Promise((resolve) => room.on('error', resolve));
  await turn();
  const [socket] = sockets;
  socket.greet();
  socket.answer('join', { type: 'joined', room: 'chat.1', ...at(10), recovered: false });
  await failed;
  await turn();
  await fanfare.close();
  assert.equal(timers(), before);
});
