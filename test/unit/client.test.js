// client.test.js: `fanfare/client` on a fake socket: its errors, events and end, and users of a room.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { FanfareError } from '../../src/client/index.js';
import { at, message, seen } from '../helpers/client-messages.js';
import { setUp } from '../helpers/fake-client.js';

test('the message of an error of the client is a sentence, and names a place in docs/client.md', () => {
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
    assert.match(message, /^(The|There|As) .{20,}\. See docs\/client\.md#[A-Z_]+$/);
    assert.ok(message.endsWith(`#${code}`));
    assert.ok(guide.includes(`<a id="${code}"></a>`), code);
  }
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
  await assert.rejects(client.fanfare.publish('chat.1', 2), { code: 'CLOSED' });
  const later = client.fanfare.join('chat.1');
  await assert.rejects(later.history(), { code: 'CLOSED', room: 'chat.1' });
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
  event('join', 'cid');
  client.socket.answer('presence', {
    type: 'presence',
    room: 'chat.1',
    members: [{ user: 'ann' }, { user: 'bob' }],
    count: 3,
    more: true,
  });
  assert.equal(client.socket.last('presence').after, 'bob');
  event('leave', 'ann');
  assert.deepEqual([changes, room.presence.members], [[], []]);
  client.socket.answer('presence', {
    type: 'presence',
    room: 'chat.1',
    members: [{ user: 'cid' }],
    count: 2,
  });
  assert.deepEqual(changes, [[['bob', 'cid'], 2]]);
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

test('presence: after a refused list each change is an event; the next listener asks again', async (t) => {
  const client = setUp(t);
  const room = await client.joined();
  /** @type {string[][]} */
  const changes = [];
  room.presence.on('change', (members) => changes.push(members.map(({ user }) => user)));
  client.socket.answer('presence', { type: 'error', error: 'INTERNAL_ERROR' });
  assert.deepEqual(
    client.errors.map(({ code }) => code),
    ['INTERNAL_ERROR'],
  );
  const member = { user: 'ann' };
  client.socket.push({ type: 'presence', room: 'chat.1', event: 'join', member });
  assert.deepEqual(changes, [['ann']]);
  room.presence.on('change', () => {});
  assert.equal(client.socket.all('presence').length, 2);
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
  assert.deepEqual(Object.keys(whole), ['Fanfare', 'FanfareError', 'Room', 'Rooms']);
  assert.equal(whole.Fanfare, client.Fanfare);
  const url = import.meta.resolve('fanfare');
  assert.equal(url, new URL('../../src/client/node.js', import.meta.url).href);
});
