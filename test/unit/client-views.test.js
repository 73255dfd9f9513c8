// client-views.test.js: what the bindings for React, Vue and Svelte show, on a fake socket.
// e2e/client-bindings has the bindings themselves.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { actionsOf, connectionOf, messagesOf, stateOf, usersOf } from '../../src/client/views.js';
import { at, change, message, reset, synced } from '../helpers/client-messages.js';
import { setUp } from '../helpers/fake-client.js';

const ROOM = 'chat.1';
const joined = (/** @type {object} */ about) => ({ type: 'joined', room: ROOM, ...about });

/**
 * A connected client, and a view with a subscriber.
 * @template Value
 * @param {import('node:test').TestContext} t
 * @param {(fanfare: any) => import('../../src/client/views.js').View<Value>} viewOf
 */
async function follow(t, viewOf) {
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  client.socket.greet();
  const view = viewOf(client.fanfare);
  let changes = 0;
  const stop = view.subscribe(() => changes++);
  return {
    client,
    view,
    stop,
    /** Lets timers of this turn run. @returns {Promise<number>} changes since the last call */
    changed: async () => {
      await turn();
      await client.pass(1);
      return changes - (changes = 0) + 0;
    },
  };
}

const payloads = (/** @type {{messages: readonly {payload: unknown}[]}} */ { messages }) =>
  messages.map(({ payload }) => payload);

test('a replay is shown once, and each later message at once', async (t) => {
  const { client, view, changed } = await follow(t, (fanfare) => messagesOf(fanfare, ROOM));
  assert.equal(client.socket.last('join').last, 50);
  client.socket.answer('join', joined({ ...at(12), first: 10 }));
  for (const offset of [10, 11, 12]) client.socket.push(message(offset));
  assert.deepEqual(payloads(view.get()), []);
  assert.equal(await changed(), 1);
  const first = view.get();
  assert.deepEqual(payloads(first), [10, 11, 12]);
  assert.equal(view.get(), first, 'the same value until it changes');
  client.socket.push(message(13));
  assert.equal(await changed(), 1);
  assert.deepEqual(payloads(view.get()), [10, 11, 12, 13]);
  assert.deepEqual(payloads(first), [10, 11, 12], 'a value that was shown does not change');
});

test('views of one room share its handle and value, and the last one leaves', async (t) => {
  const { client, view, stop, changed } = await follow(t, (fanfare) => messagesOf(fanfare, ROOM));
  client.socket.answer('join', joined(at(0)));
  client.socket.push(message(1));
  await changed();
  const other = messagesOf(client.fanfare, ROOM);
  assert.equal(other.get(), view.get(), 'at once, before it subscribes');
  const different = messagesOf(client.fanfare, ROOM, { last: 3 });
  assert.deepEqual(payloads(different.get()), []);
  let heard = 0;
  const stopOther = other.subscribe(() => heard++);
  stop();
  await turn();
  client.socket.push(message(2));
  await changed();
  assert.deepEqual([payloads(view.get()), heard], [[1, 2], 1]);
  // As React's StrictMode does.
  stopOther();
  const stopAgain = other.subscribe(() => heard++);
  await turn();
  assert.equal(client.socket.all('leave').length, 0);
  stopAgain();
  await turn();
  assert.deepEqual([client.socket.all('join').length, client.socket.all('leave').length], [1, 1]);
  assert.deepEqual(view.get(), view.first);
});

test('a list is bounded, and grows by the pages of older messages', async (t) => {
  const { client, view, changed } = await follow(t, (fanfare) =>
    messagesOf(fanfare, ROOM, { max: 2 }),
  );
  client.socket.answer('join', joined({ ...at(13), first: 11 }));
  for (const offset of [11, 12, 13]) client.socket.push(message(offset));
  await changed();
  assert.deepEqual([payloads(view.get()), view.get().hasOlder], [[12, 13], true]);
  const loads = [view.get().loadOlder(2), view.get().loadOlder(2)];
  const requests = client.socket.all('history');
  assert.deepEqual(
    requests.map(({ before, limit }) => [before.offset, limit]),
    [
      [12, 2],
      [12, 2],
    ],
  );
  const page = { type: 'history', room: ROOM, ...at(13), more: false };
  for (const { id } of requests)
    client.socket.push({ ...page, id, messages: [message(10), message(11)] });
  await Promise.all(loads);
  await changed();
  assert.deepEqual([payloads(view.get()), view.get().hasOlder], [[10, 11, 12, 13], false]);
  client.socket.push(message(14));
  await changed();
  assert.deepEqual([payloads(view.get()), view.get().hasOlder], [[11, 12, 13, 14], true]);
});

for (const [first, hasOlder] of /** @type {const} */ ([
  [1, false],
  [9, true],
]))
  test(`a list that begins with message ${first} has ${hasOlder ? '' : 'no '}older ones`, async (t) => {
    const { client, view, changed } = await follow(t, (fanfare) =>
      messagesOf(fanfare, ROOM, { last: 0 }),
    );
    client.socket.answer('join', joined(at(first - 1)));
    assert.equal(view.get().hasOlder, false, 'older than what?');
    client.socket.push(message(first));
    await changed();
    assert.deepEqual([payloads(view.get()), view.get().hasOlder], [[first], hasOlder]);
  });

test('pages of messages for others are passed over, for older ones and after a gap', async (t) => {
  const { client, view, changed } = await follow(t, (fanfare) =>
    messagesOf(fanfare, ROOM, { last: 1 }),
  );
  const page = { type: 'history', room: ROOM, ...at(900), more: true, messages: [] };
  client.socket.answer('join', joined({ ...at(900), first: 900 }));
  client.socket.push(message(900));
  await changed();
  const load = view.get().loadOlder(20);
  client.socket.answer('history', { ...page, next: at(820) });
  await turn();
  assert.deepEqual(
    [client.socket.last('history').before, client.socket.last('history').limit],
    [at(820), 20],
  );
  client.socket.answer('history', { ...page, more: false, messages: [message(1)] });
  await load;
  await changed();
  assert.deepEqual([payloads(view.get()), view.get().hasOlder], [[1, 900], false]);
  client.socket.push({ type: 'resync', room: ROOM, ...at(950) });
  await client.pass(1);
  client.socket.answer('history', { ...page, ...at(950), next: at(940) });
  await turn();
  client.socket.answer('history', { ...page, ...at(950), messages: [message(901)] });
  await changed();
  assert.deepEqual(payloads(view.get()), [901]);
});

test('after a gap a list has the newest messages of the history', async (t) => {
  const { client, view, changed } = await follow(t, (fanfare) =>
    messagesOf(fanfare, ROOM, { last: 2 }),
  );
  client.socket.answer('join', joined({ ...at(5), first: 4 }));
  for (const offset of [4, 5]) client.socket.push(message(offset));
  await changed();
  client.socket.push({ type: 'resync', room: ROOM, ...at(20) });
  client.socket.push(message(21));
  await client.pass(1);
  const newest = [message(20), message(21)];
  client.socket.answer('history', { type: 'history', room: ROOM, ...at(21), messages: newest });
  await changed();
  assert.deepEqual(payloads(view.get()), [20, 21], 'each message once');
});

test('a list has what recoverFailed returns; without it, a plain room keeps its messages', async (t) => {
  const { client, view, changed } = await follow(t, (fanfare) => messagesOf(fanfare, ROOM));
  client.socket.answer('join', joined({}));
  const plain = { ...message(1), epoch: undefined, offset: undefined };
  client.socket.push(plain);
  await changed();
  client.socket.end(1006);
  await client.rejoined({});
  for (let i = 0; i < 2; i++) await client.pass(1);
  assert.deepEqual(payloads(view.get()), [1]);
  const recoverFailed = async () => [/** @type {any} */ ({ payload: 'mine' })];
  const own = messagesOf(client.fanfare, ROOM, { recoverFailed, max: 9 });
  own.subscribe(() => {});
  await turn();
  client.socket.end(1006);
  await client.rejoined({});
  for (let i = 0; i < 2; i++) await client.pass(1);
  assert.deepEqual(payloads(own.get()), ['mine']);
});

test('a state is shown when it is whole, once for all changes of a turn', async (t) => {
  const { client, view, changed } = await follow(t, (fanfare) => stateOf(fanfare, ROOM));
  client.socket.answer('join', joined({ ...at(2), state: true }));
  for (const offset of [1, 2]) client.socket.push(change(`k${offset}`, offset, offset));
  assert.equal(await changed(), 0);
  assert.equal(view.get(), undefined);
  client.socket.push(synced(2));
  assert.equal(await changed(), 1);
  const whole = view.get();
  assert.deepEqual(
    [...(whole ?? [])],
    [
      ['k1', 1],
      ['k2', 2],
    ],
  );
  for (const offset of [3, 4]) client.socket.push(change('k1', offset, offset));
  assert.equal(await changed(), 1);
  assert.deepEqual([view.get()?.get('k1'), whole?.get('k1')], [4, 1]);
  // A reset empties the map, but the values stay until the new ones are complete.
  client.socket.push(reset(9, 'e2'));
  client.socket.push({ ...change('k9', 9, 9), epoch: 'e2' });
  assert.equal(await changed(), 0);
  assert.equal(view.get()?.get('k1'), 4);
  client.socket.push(synced(9, 'e2'));
  assert.equal(await changed(), 1);
  assert.deepEqual([...(view.get() ?? [])], [['k9', 9]]);
  // Nothing changed while the connection was gone.
  client.socket.end(1006);
  await client.rejoined({ ...at(9, 'e2'), state: true, recovered: true });
  client.socket.push(synced(9, 'e2'));
  assert.equal(await changed(), 0);
});

test('users are shown again only if they differ', async (t) => {
  const { client, view, changed } = await follow(t, (fanfare) => usersOf(fanfare, ROOM));
  client.socket.answer('join', joined({}));
  const list = { type: 'presence', room: ROOM, members: [{ user: 'ann' }], count: 1 };
  client.socket.answer('presence', list);
  assert.equal(await changed(), 1);
  const { members, count } = view.get();
  assert.deepEqual([members, count], [[{ user: 'ann' }], 1]);
  client.socket.end(1006);
  await client.rejoined({});
  client.socket.answer('presence', list);
  assert.equal(await changed(), 0);
  assert.equal(view.get().members, members);
});

test('the connection is shown as it is, also to a view that comes late', async (t) => {
  const { client, view, changed } = await follow(t, connectionOf);
  assert.deepEqual([view.first, view.get()], [{ state: 'idle' }, { state: 'connected' }]);
  client.socket.end(1006, 'gone');
  assert.equal(await changed(), 1);
  assert.deepEqual(view.get(), { state: 'waiting', code: 1006, reason: 'gone', delayMs: 500 });
  const late = connectionOf(client.fanfare);
  await client.fanfare.close();
  late.subscribe(() => {});
  await changed();
  assert.deepEqual(late.get(), { state: 'closed' });
});

test('nothing connects before a view has a subscriber, or without a room', async (t) => {
  const { fanfare } = setUp(t);
  for (const viewOf of [messagesOf, stateOf, usersOf]) {
    viewOf(fanfare, ROOM).get();
    viewOf(fanfare, /** @type {any} */ (null)).subscribe(() => {})();
  }
  connectionOf(fanfare).subscribe(() => {})();
  actionsOf(fanfare, ROOM);
  actionsOf(fanfare, null).enter(() => ({}))();
  await turn();
  assert.equal(fanfare.state, 'idle');
});

test('a component acts in its room while it is mounted, with its newest listeners', async (t) => {
  const client = setUp(t);
  const { publish, enter } = actionsOf(client.fanfare, ROOM);
  await assert.rejects(publish(1), /publish: the component is not mounted/);
  /** @type {unknown[]} */
  const heard = [];
  /** @type {any} */
  let latest = { onMessage: (/** @type {unknown} */ payload) => heard.push(['first', payload]) };
  const leave = enter(() => latest);
  await turn();
  client.socket.greet();
  client.socket.answer('join', joined(at(0)));
  client.socket.push(message(1));
  latest = { onMessage: (/** @type {unknown} */ payload) => heard.push(['second', payload]) };
  client.socket.push(message(2));
  assert.deepEqual(heard, [
    ['first', 1],
    ['second', 2],
  ]);
  leave();
  await turn();
  assert.equal(client.socket.all('leave').length, 1);
  await assert.rejects(publish(1), { code: 'CLOSED' });
});
