// client-handles.test.js: `fanfare.join('x')` twice: handles over one membership, on a fake socket.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { at, message, seen } from '../helpers/client-messages.js';
import { setUp } from '../helpers/fake-client.js';
import { slowState } from '../helpers/slow-state.js';

const joined = (/** @type {object} */ about) => ({ type: 'joined', room: 'chat.1', ...about });

/** The codes and names of the errors that a handle reports. @param {any} room */
function errorsOf(room) {
  /** @type {string[]} */
  const list = [];
  room.on('error', (/** @type {{code: string}} */ { code }) => list.push(code));
  return list;
}

test('two handles share one membership, and the last one leaves the room', async (t) => {
  const client = setUp(t);
  const first = await client.joined();
  const second = client.fanfare.join('chat.1');
  assert.notEqual(first, second);
  const lists = [seen(first), seen(second)];
  /** @type {unknown[]} */
  const abouts = [];
  second.on('joined', (about) => abouts.push(about));
  await turn();
  assert.deepEqual(abouts, [{ recovered: false, since: undefined, position: at(10) }]);
  client.socket.push(message(11));
  first.leave();
  await turn();
  client.socket.push(message(12));
  assert.deepEqual(lists, [[11], [11, 12]]);
  assert.equal(client.socket.all('leave').length, 0);
  second.leave();
  await turn();
  assert.equal(client.socket.all('leave').length, 1);
  assert.equal(client.socket.all('join').length, 1);
});

test('a handle that has left is silent, and its publish is refused', async (t) => {
  const client = setUp(t);
  const first = await client.joined();
  const second = client.fanfare.join('chat.1');
  await turn();
  const errors = errorsOf(first);
  let lefts = 0;
  first.on('left', () => lefts++);
  first.presence.on('change', () => assert.fail('the handle has left'));
  first.leave();
  first.leave();
  first.presence.on('change', () => assert.fail('the handle has left'));
  client.socket.push({ type: 'presence', room: 'chat.1', event: 'join', member: { user: 'bob' } });
  client.socket.push({ type: 'left', room: 'chat.1', reason: 'removed' });
  assert.deepEqual([errors, lefts, first.isJoined], [[], 1, false]);
  assert.equal(client.errors.length, 1, 'the other handle has the error');
  await assert.rejects(first.publish(1), { code: 'CLOSED', room: 'chat.1' });
  for await (const _ of first) assert.fail('no message');
  const accepted = second.publish(2);
  client.socket.answer('message', { type: 'ack' });
  await accepted;
});

test('handles that come and go in one turn change nothing at the server', async (t) => {
  const client = setUp(t);
  // As under React StrictMode: mount, unmount, mount.
  client.fanfare.join('chat.1', { last: 5 }).leave();
  const room = client.fanfare.join('chat.1', { last: 5 });
  const list = seen(room);
  await turn();
  client.socket.greet();
  client.socket.answer('join', joined({ ...at(10), replayed: 5, first: 6 }));
  for (let offset = 6; offset <= 10; offset++) client.socket.push(message(offset));
  assert.deepEqual(list, [6, 7, 8, 9, 10]);
  room.leave();
  const next = client.fanfare.join('chat.1');
  await turn();
  client.socket.push(message(11));
  assert.deepEqual(next.position, at(11));
  // The same while the join is under way, on an open connection.
  client.fanfare.join('chat.2', { last: 5 }).leave();
  const other = client.fanfare.join('chat.2', { last: 5 });
  await turn();
  const reply = { room: 'chat.2', ...at(3), replayed: 3, first: 1 };
  client.socket.answer('join', joined(reply));
  await turn();
  assert.equal(other.isJoined, true);
  assert.deepEqual(
    client.socket.sent.map(({ type, room: name }) => [type, name]),
    [
      ['hello', undefined],
      ['join', 'chat.1'],
      ['join', 'chat.2'],
    ],
  );
});

test('a later handle gets its `last`, and the first one no message twice', async (t) => {
  const client = setUp(t);
  const first = await client.joined();
  const lists = [seen(first)];
  client.socket.push(message(11));
  const second = client.fanfare.join('chat.1', { last: 3 });
  lists.push(seen(second));
  await turn();
  const { since, last } = client.socket.last('join');
  assert.deepEqual([since, last], [at(8), 3]);
  client.socket.push(message(12));
  client.socket.answer('join', joined({ ...at(12), recovered: true }));
  for (const offset of [9, 10, 11, 12, 13]) client.socket.push(message(offset));
  assert.deepEqual(lists, [
    [11, 12, 13],
    [10, 11, 12, 13],
  ]);
  assert.equal(client.socket.all('leave').length, 0);
});

test('a later handle of a short history gets what there is, and asks once', async (t) => {
  const client = setUp(t);
  const first = await client.joined({ recoverFailed: () => assert.fail('nothing is missing') });
  const lists = [seen(first)];
  const second = client.fanfare.join('chat.1', { last: 8 });
  lists.push(seen(second));
  await turn();
  const replay = { recovered: false, replayed: 2, first: 9 };
  client.socket.answer('join', joined({ ...at(10), ...replay }));
  for (const offset of [9, 10, 11]) client.socket.push(message(offset));
  await client.pass(0);
  assert.deepEqual(lists, [[11], [9, 10, 11]]);
  assert.equal(client.socket.all('join').length, 2);
});

test('a later handle continues after its `since`, or loads its own state', async (t) => {
  const client = setUp(t);
  const first = await client.joined({ recoverFailed: () => assert.fail('nothing is missing') });
  const lists = [seen(first)];
  const level = client.fanfare.join('chat.1', { since: at(10) });
  await turn();
  assert.equal(level.isJoined, true, 'without a join');
  const behind = client.fanfare.join('chat.1', { since: at(8) });
  lists.push(seen(behind));
  await turn();
  assert.deepEqual(client.socket.last('join').since, at(8));
  client.socket.answer('join', joined({ ...at(10), recovered: true }));
  for (const offset of [9, 10, 11]) client.socket.push(message(offset));
  assert.deepEqual(lists, [[11], [9, 10, 11]]);
  for (const since of [at(3), at(3, 'e0')]) {
    const late = client.fanfare.join('chat.1', { since, recoverFailed: (position) => position });
    const list = seen(late);
    await turn();
    if (since.epoch === 'e1') client.socket.answer('join', joined({ ...at(11), recovered: false }));
    await client.pass(0);
    assert.deepEqual(list, [{ state: at(11) }]);
  }
  assert.deepEqual(lists[0], [11]);
  assert.equal(client.socket.all('join').length, 3);
});

test('handles that join together share one join, each with its own number of messages', async (t) => {
  const client = setUp(t);
  const wishes = [{ last: 2 }, {}, { last: 4 }];
  const lists = wishes.map((options) => seen(client.fanfare.join('chat.1', options)));
  await turn();
  client.socket.greet();
  const { since, last } = client.socket.last('join');
  assert.deepEqual([since, last], [undefined, 4]);
  client.socket.answer('join', joined({ ...at(10), recovered: false, replayed: 4, first: 7 }));
  for (let offset = 7; offset <= 11; offset++) client.socket.push(message(offset));
  await turn();
  assert.deepEqual(lists, [[9, 10, 11], [11], [7, 8, 9, 10, 11]]);
  assert.equal(client.socket.all('join').length, 1);
});

test('`lastSeconds` is sent with the first join, and its replay is delivered', async (t) => {
  const client = setUp(t);
  const list = seen(client.fanfare.join('chat.1', { last: 20, lastSeconds: 60 }));
  await turn();
  client.socket.greet();
  const { since, last, lastSeconds } = client.socket.last('join');
  assert.deepEqual([since, last, lastSeconds], [undefined, 20, 60]);
  client.socket.answer('join', joined({ ...at(10), recovered: false, replayed: 2, first: 9 }));
  for (const offset of [9, 10, 11]) client.socket.push(message(offset));
  assert.deepEqual(list, [9, 10, 11]);
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  const again = client.socket.last('join');
  assert.deepEqual([again.since, again.lastSeconds], [at(11), undefined]);
});

test('a later handle gets its `lastSeconds`, and the first one no message twice', async (t) => {
  const client = setUp(t);
  const first = await client.joined({ recoverFailed: () => assert.fail('nothing is missing') });
  const lists = [seen(first)];
  client.socket.push(message(11));
  const second = client.fanfare.join('chat.1', { lastSeconds: 60 });
  lists.push(seen(second));
  await turn();
  const { since, last, lastSeconds } = client.socket.last('join');
  assert.deepEqual([since, last, lastSeconds], [undefined, undefined, 60]);
  client.socket.push(message(12));
  client.socket.answer('join', joined({ ...at(12), recovered: false, replayed: 4, first: 9 }));
  for (const offset of [9, 10, 11, 12, 13]) client.socket.push(message(offset));
  await client.pass(0);
  assert.deepEqual(lists, [
    [11, 12, 13],
    [9, 10, 11, 12, 13],
  ]);
  assert.equal(client.socket.all('join').length, 2);
});

test('messages before those of `lastSeconds` that the join left out arrive by another join', async (t) => {
  const client = setUp(t);
  const first = await client.joined({ recoverFailed: () => assert.fail('nothing is missing') });
  const lists = [seen(first)];
  lists.push(seen(client.fanfare.join('chat.1', { last: 9, lastSeconds: 1 })));
  await turn();
  // The messages from 11 to 14 are older than a second, and have not been sent yet.
  client.socket.answer('join', joined({ ...at(16), recovered: false, replayed: 2, first: 15 }));
  for (const offset of [15, 16]) client.socket.push(message(offset));
  const { since, lastSeconds } = client.socket.last('join');
  assert.deepEqual([since, lastSeconds], [at(10), undefined]);
  client.socket.answer('join', joined({ ...at(16), recovered: true }));
  for (let offset = 11; offset <= 17; offset++) client.socket.push(message(offset));
  await client.pass(0);
  assert.deepEqual(lists, [
    [11, 12, 13, 14, 15, 16, 17],
    [15, 16, 17],
  ]);
});

test('handles that join together with `last` and `lastSeconds` each get theirs', async (t) => {
  const client = setUp(t);
  const wishes = [{ last: 3 }, { lastSeconds: 60 }, {}, { lastSeconds: 5 }];
  const lists = wishes.map((options) => seen(client.fanfare.join('chat.1', options)));
  await turn();
  client.socket.greet();
  assert.equal(client.socket.last('join').lastSeconds, 5);
  client.socket.answer('join', joined({ ...at(10), recovered: false, replayed: 0 }));
  await turn();
  assert.equal(client.socket.last('join').lastSeconds, 60);
  client.socket.answer('join', joined({ ...at(10), recovered: false, replayed: 1, first: 10 }));
  await turn();
  client.socket.push(message(10));
  const { since, lastSeconds } = client.socket.last('join');
  assert.deepEqual([since.epoch, lastSeconds], ['e1', undefined]);
  assert.ok(since.offset <= 7);
  client.socket.answer('join', joined({ ...at(10), recovered: true }));
  for (let offset = since.offset + 1; offset <= 11; offset++) client.socket.push(message(offset));
  await client.pass(0);
  assert.deepEqual(lists, [[8, 9, 10, 11], [10, 11], [11], [11]]);
});

test('in a plain room a later handle with `lastSeconds` begins with the next message', async (t) => {
  const client = setUp(t);
  const lists = [seen(client.fanfare.join('chat.1'))];
  await turn();
  client.socket.greet();
  client.socket.answer('join', joined({}));
  lists.push(seen(client.fanfare.join('chat.1', { lastSeconds: 60 })));
  await turn();
  client.socket.push({ type: 'message', room: 'chat.1', payload: 1 });
  assert.deepEqual(lists, [[1], [1]]);
  assert.equal(client.socket.all('join').length, 1);
});

test('a handle that joins while a join is under way is served after it', async (t) => {
  const client = setUp(t);
  const lists = [seen(client.fanfare.join('chat.1'))];
  await turn();
  client.socket.greet();
  lists.push(seen(client.fanfare.join('chat.1', { last: 2 })));
  lists.push(seen(client.fanfare.join('chat.1', { since: at(7) })));
  assert.equal(client.socket.all('join').length, 1);
  client.socket.answer('join', joined({ ...at(10), recovered: false }));
  await turn();
  const { since, last } = client.socket.last('join');
  // From the older of the two.
  assert.deepEqual([since, last], [at(5), 2]);
  client.socket.answer('join', joined({ ...at(10), recovered: true }));
  for (let offset = 6; offset <= 11; offset++) client.socket.push(message(offset));
  assert.deepEqual(lists, [[11], [9, 10, 11], [8, 9, 10, 11]]);
});

test('a rejoin begins at the earliest position, and brings no handle a message twice', async (t) => {
  const client = setUp(t);
  const lists = [seen(await client.joined())];
  lists.push(seen(client.fanfare.join('chat.1', { last: 5 })));
  await turn();
  client.socket.answer('join', joined({ ...at(10), recovered: true }));
  // The connection breaks in the middle of the replay.
  client.socket.push(message(6));
  client.socket.end(1006);
  await client.rejoined({ ...at(11), recovered: true });
  assert.deepEqual(client.socket.last('join').since, at(6));
  for (let offset = 7; offset <= 11; offset++) client.socket.push(message(offset));
  assert.deepEqual(lists, [[11], [6, 7, 8, 9, 10, 11]]);
});

test('a gap is one of every handle, and each loads its own state', async (t) => {
  const client = setUp(t);
  const states = [slowState(), slowState()];
  const first = await client.joined({ recoverFailed: states[0].recoverFailed });
  const second = client.fanfare.join('chat.1', { recoverFailed: states[1].recoverFailed });
  const lists = [seen(first), seen(second)];
  await turn();
  client.socket.push({ type: 'resync', room: 'chat.1', ...at(20, 'e2'), reloadAfterMs: 0 });
  client.socket.push(message(21, 'e2'));
  await client.pass(0);
  states[1].loads[0]('second');
  await turn();
  assert.deepEqual(lists, [[], [{ state: 'second' }, 21]], 'none waits for the other');
  states[0].loads[0]('first');
  await turn();
  assert.deepEqual(lists[0], [{ state: 'first' }, 21]);
});

test('every handle of a plain room loads its state after a reconnect', async (t) => {
  const client = setUp(t);
  const rooms = [1, 2].map((n) => client.fanfare.join('chat.1', { recoverFailed: () => n }));
  const lists = rooms.map(seen);
  await turn();
  client.socket.greet();
  client.socket.answer('join', joined({}));
  const late = client.fanfare.join('chat.1', { last: 5 });
  await turn();
  assert.deepEqual([late.isJoined, client.socket.all('join').length], [true, 1]);
  client.socket.end(1006);
  await client.rejoined({});
  await client.pass(0);
  assert.deepEqual(lists, [[{ state: 1 }], [{ state: 2 }]]);
});

test('an error reaches every handle, and the client only if no handle listens', async (t) => {
  const client = setUp(t);
  const first = await client.joined();
  const second = client.fanfare.join('chat.1');
  await turn();
  const errors = [errorsOf(first), errorsOf(second)];
  client.socket.push({ type: 'left', room: 'chat.1', reason: 'permission' });
  assert.deepEqual(errors, [['PERMISSION_DENIED'], ['PERMISSION_DENIED']]);
  assert.deepEqual(client.errors, []);
  client.socket.push({ type: 'authenticated', userId: 'ann', expiresAt: 2 });
  client.socket.answer('join', joined({ ...at(10), recovered: true }));
  assert.deepEqual([first.isJoined, second.isJoined], [true, true]);
});

test('if only the older messages of a later handle are refused, that handle ends', async (t) => {
  const client = setUp(t);
  const first = await client.joined();
  const list = seen(first);
  const second = client.fanfare.join('chat.1', { last: 5 });
  const errors = [errorsOf(first), errorsOf(second)];
  let hasLeft = false;
  second.on('left', () => {
    hasLeft = true;
  });
  await turn();
  client.socket.answer('join', { type: 'error', error: 'PERMISSION_DENIED', message: 'no' });
  assert.deepEqual([errors, hasLeft], [[[], ['PERMISSION_DENIED']], true]);
  client.socket.push(message(11));
  assert.deepEqual(list, [11]);
});

test('a join for a later handle that is refused for the moment is repeated for all', async (t) => {
  const client = setUp(t);
  const lists = [seen(await client.joined())];
  lists.push(seen(client.fanfare.join('chat.1', { last: 2 })));
  await turn();
  // The connection is not a member any more (docs/protocol.md).
  client.socket.answer('join', { type: 'error', error: 'UNAVAILABLE', message: 'later' });
  await client.pass(500);
  assert.deepEqual(client.socket.last('join').since, at(10));
  client.socket.answer('join', joined({ ...at(11), recovered: true }));
  await turn();
  client.socket.push(message(11));
  assert.deepEqual(client.socket.last('join').since, at(8));
  client.socket.answer('join', joined({ ...at(11), recovered: true }));
  for (const offset of [9, 10, 11, 12]) client.socket.push(message(offset));
  assert.deepEqual(lists, [
    [11, 12],
    [10, 11, 12],
  ]);
});

test('no handle receives what one has published without an echo', async (t) => {
  const client = setUp(t);
  const first = await client.joined();
  const second = client.fanfare.join('chat.1');
  const lists = [seen(first), seen(second)];
  await turn();
  const accepted = first.publish('own', { echo: false });
  client.socket.answer('message', { type: 'ack', ...at(12) });
  await accepted;
  client.socket.push(message(11));
  client.socket.end(1006);
  await client.rejoined({ ...at(13), recovered: true });
  assert.deepEqual(client.socket.last('join').since, at(12));
  for (const offset of [12, 13]) client.socket.push(message(offset));
  assert.deepEqual(lists, [
    [11, 13],
    [11, 13],
  ]);
});

test('handles share one list of users', async (t) => {
  const client = setUp(t);
  const rooms = [await client.joined(), client.fanfare.join('chat.1')];
  await turn();
  const changes = rooms.map((room) => {
    /** @type {string[][]} */
    const list = [];
    room.presence.on('change', (members) => list.push(members.map(({ user }) => user)));
    return list;
  });
  client.socket.answer('presence', { type: 'presence', members: [{ user: 'ann' }], count: 1 });
  client.socket.push({ type: 'presence', room: 'chat.1', event: 'join', member: { user: 'bob' } });
  for (const list of changes) assert.deepEqual(list.at(-1), ['ann', 'bob']);
  assert.equal(rooms[0].presence.count, rooms[1].presence.count);
  rooms[0].leave();
  client.socket.push({ type: 'presence', room: 'chat.1', event: 'leave', member: { user: 'ann' } });
  assert.deepEqual(changes[0].at(-1), ['ann', 'bob']);
  assert.deepEqual(changes[1].at(-1), ['bob']);
});

test('the connection is listed if a handle is, under the last name', async (t) => {
  const client = setUp(t);
  const watcher = await client.joined({ presence: false });
  const list = seen(watcher);
  const ann = client.fanfare.join('chat.1', { presence: { user: 'ann' } });
  await turn();
  const [leave, join] = client.socket.sent.slice(-2);
  assert.deepEqual([leave.type, join.presence, join.since], ['leave', { user: 'ann' }, at(10)]);
  client.socket.answer('join', joined({ ...at(11), recovered: true }));
  client.socket.push(message(11));
  // Another one of the same name changes nothing.
  ann.leave();
  const again = client.fanfare.join('chat.1', { presence: { user: 'ann' } });
  await turn();
  assert.equal(client.socket.all('join').length, 2);
  again.leave();
  await turn();
  assert.equal(client.socket.last('join').presence, false);
  client.socket.answer('join', joined({ ...at(11), recovered: true }));
  assert.deepEqual(list, [11]);
});

test('a handle that a listener of another one ends is not joined', async (t) => {
  for (const end of ['leave', 'close']) {
    const client = setUp(t);
    const first = client.fanfare.join('chat.1');
    const second = client.fanfare.join('chat.1');
    /** @type {string[]} */
    const list = [];
    first.on('joined', () => (end === 'leave' ? second.leave() : client.fanfare.close()));
    second.on('joined', () => list.push('joined'));
    second.on('left', () => list.push('left'));
    await turn();
    client.socket.greet();
    client.socket.answer('join', joined({ ...at(10), recovered: false }));
    assert.deepEqual([list, second.isJoined], [['left'], false], end);
    await client.fanfare.close();
    t.mock.reset();
  }
});

test('after close, a room that is joined in the same turn is a new one', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  room.leave();
  const closed = client.fanfare.close();
  client.fanfare.connect();
  const next = client.fanfare.join('chat.1');
  await closed;
  await turn();
  client.socket.greet();
  client.socket.answer('join', joined({ ...at(10), recovered: false }));
  assert.equal(next.isJoined, true);
  await turn();
  assert.equal(client.socket.all('leave').length, 0);
});

test('a leave that is refused for the moment is said again, unless the room is joined again', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  const refused = { type: 'error', error: 'RATE_LIMIT_EXCEEDED', message: '', retryAfter: 4 };
  room.leave();
  await turn();
  client.socket.answer('leave', refused);
  await client.pass(3999);
  assert.equal(client.socket.all('leave').length, 1);
  await client.pass(1);
  assert.equal(client.socket.all('leave').length, 2);

  client.socket.answer('leave', refused);
  const next = client.fanfare.join('chat.1');
  client.socket.answer('join', joined({ ...at(10), recovered: false }));
  assert.equal(next.isJoined, true);
  await client.pass(4000);
  assert.equal(client.socket.all('leave').length, 2);
});

test('a room that is joined between the ends of its handles is joined, and joined again later', async (t) => {
  const client = setUp(t);
  const first = await client.joined();
  const second = client.fanfare.join('chat.1');
  await turn();
  /** @type {import('../../src/client/index.js').Room|undefined} */
  let third;
  first.on('left', async () => {
    await null;
    third = client.fanfare.join('chat.1');
  });
  first.leave();
  second.leave();
  await turn();
  assert.deepEqual(
    client.socket.sent.map(({ type }) => type),
    ['hello', 'join', 'leave', 'join'],
  );
  client.socket.answer('join', joined({ ...at(10), recovered: false }));
  assert.equal(third?.isJoined, true);
  client.socket.end(1006);
  await client.pass(500);
  client.socket.greet();
  assert.equal(client.socket.all('join').length, 1);
});

test('a room that ends and begins in one turn, in which the reply to a join comes, is joined', async (t) => {
  const client = setUp(t);
  const first = await client.joined();
  const second = client.fanfare.join('chat.1', { last: 5 });
  await turn();
  // `ws` emits the messages of one read in one turn.
  first.leave();
  second.leave();
  client.socket.answer('join', joined({ ...at(10), recovered: true }));
  const third = client.fanfare.join('chat.1');
  await turn();
  client.socket.end(1006);
  await client.rejoined({ ...at(10), recovered: true });
  assert.equal(third.isJoined, true);
});

test('a room that is joined again whenever it ends does not keep the client from closing', async (t) => {
  const client = setUp(t);
  let joins = 0;
  const join = () => {
    // A test that fails must not hang.
    if (++joins > 10) return;
    client.fanfare.join('chat.1').on('left', join);
  };
  join();
  await turn();
  await client.fanfare.close();
  assert.equal(joins, 2);
});

for (const isFirst of [true, false])
  test(`${isFirst ? 'first' : 'second'} handle: what comes when its joined closes the client is not in the room`, async (t) => {
    const client = setUp(t);
    if (!isFirst) await client.joined();
    const room = client.fanfare.join('chat.1');
    const list = /** @type {import('../../src/client/index.js').Room[]} */ ([]);
    room.on('joined', () => client.fanfare.close());
    room.on('left', () => list.push(client.fanfare.join('chat.1')));
    await turn();
    if (isFirst) {
      client.socket.greet();
      client.socket.answer('join', joined({ ...at(10), recovered: false }));
    }
    assert.deepEqual(
      list.map(({ isJoined }) => isJoined),
      [false],
    );
  });
