// client-state.test.js: the map of a room with state (client/state.js) through joins, resets,
// reconnects and several handles, on a fake socket.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { at, change, message, reset, seenState, synced } from '../helpers/client-messages.js';
import { setUp } from '../helpers/fake-client.js';

const joined = (/** @type {object} */ about) => ({
  type: 'joined',
  room: 'chat.1',
  state: true,
  ...at(10),
  recovered: false,
  ...about,
});

/**
 * A client in a room with state, without any key so far.
 * @param {import('node:test').TestContext} t @param {import('../../src/client/room.js').JoinOptions} [options]
 */
async function inState(t, options) {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1', options);
  const list = seenState(room);
  await turn();
  client.socket.greet();
  client.socket.answer('join', joined({}));
  return { client, room, list };
}

test('the map is filled, then follows each change', async (t) => {
  const { client, room, list } = await inState(t);
  client.socket.push(change('a', 1, 4));
  client.socket.push(change('b', 1, 9));
  client.socket.push(synced(10));
  client.socket.push(change('a', 2, 12));
  client.socket.push(change('b', null, 13));
  assert.deepEqual(list, [
    ['joined', false],
    ['a', 1, undefined],
    ['b', 1, undefined],
    ['synced', 10],
    ['a', 2, 1],
    ['b', null, 1],
  ]);
  assert.deepEqual(room.state, new Map([['a', 2]]));
  assert.deepEqual(room.position, at(13));
});

test('the removal of a key that is not in the map is no change, and moves the position', async (t) => {
  const { client, room, list } = await inState(t);
  client.socket.push(change('gone', null, 3));
  assert.deepEqual(list, [['joined', false]]);
  assert.deepEqual(room.position, at(3));
});

test('a change says who made it, when and where', async (t) => {
  const { client, room } = await inState(t);
  const about = new Promise((resolve) => room.on('change', resolve));
  client.socket.push(change('a', { price: 1 }, 4));
  const { key, payload, previous, from, timestamp, offset, epoch } = /** @type {any} */ (
    await about
  );
  assert.deepEqual(
    [key, payload, previous, from, timestamp, offset, epoch],
    ['a', { price: 1 }, undefined, 'ann', 1, 4, 'e1'],
  );
});

test('there is no map before the reply to the join, nor in other rooms', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1');
  assert.equal(room.state, undefined);
  await turn();
  client.socket.greet();
  client.socket.answer('join', joined({ state: undefined }));
  client.socket.push(message(11));
  assert.equal(room.state, undefined);
  assert.deepEqual(room.position, at(11));
});

test('any string is a key', async (t) => {
  const { client, room } = await inState(t);
  for (const key of ['__proto__', 'constructor', '0', ' ']) {
    client.socket.push(change(key, key, Number(room.position?.offset) + 1));
    assert.equal(room.state?.get(key), key);
  }
  assert.equal(room.state?.size, 4);
});

test('a reconnect continues after the last message, also in the middle of the state', async (t) => {
  const { client, room, list } = await inState(t);
  client.socket.push(change('a', 1, 4));
  client.socket.end(1006);
  assert.deepEqual(room.state, new Map([['a', 1]]));
  await client.rejoined(joined({ ...at(12), recovered: true }));
  assert.deepEqual(client.socket.last('join').since, at(4));
  client.socket.push(change('b', 1, 9));
  client.socket.push(change('a', null, 12));
  client.socket.push(synced(12));
  client.socket.end(1006);
  await client.rejoined(joined({ ...at(12), recovered: true }));
  assert.deepEqual(client.socket.last('join').since, at(12));
  client.socket.push(synced(12));
  assert.deepEqual(list, [
    ['joined', false],
    ['a', 1, undefined],
    ['joined', true],
    ['b', 1, undefined],
    ['a', null, 1],
    ['synced', 12],
    ['joined', true],
    ['synced', 12],
  ]);
  assert.deepEqual(room.state, new Map([['b', 1]]));
});

test('a connection lost before the first key asks for all of them again', async (t) => {
  const { client, list } = await inState(t);
  client.socket.end(1006);
  await client.rejoined(joined({ recovered: true }));
  assert.deepEqual(client.socket.last('join').since, at(0));
  client.socket.push(change('a', 1, 4));
  assert.deepEqual(list.at(-1), ['a', 1, undefined]);
});

test('the position of synced counts, though no key changed there', async (t) => {
  const { client, room } = await inState(t);
  client.socket.push(change('a', 1, 4));
  client.socket.push(synced(10));
  assert.deepEqual(room.position, at(10));
  client.socket.end(1006);
  await client.rejoined(joined({ recovered: true }));
  assert.deepEqual(client.socket.last('join').since, at(10));
});

test('a reconnect that is not recovered, and a reset, empty the map', async (t) => {
  const { client, room, list } = await inState(t);
  client.socket.push(change('a', 1, 4));
  client.socket.push(synced(10));
  client.socket.end(1006);
  await client.rejoined(joined(at(3, 'e2')));
  assert.equal(room.state?.size, 0);
  client.socket.push({ ...change('b', 1, 2), epoch: 'e2' });
  client.socket.push(synced(3, 'e2'));
  client.socket.push(reset(7, 'e3'));
  assert.deepEqual(room.position, at(0, 'e3'));
  client.socket.push({ ...change('c', 1, 1), epoch: 'e3' });
  client.socket.push(synced(7, 'e3'));
  assert.deepEqual(list.slice(3), [
    ['reset', 0],
    ['joined', false],
    ['b', 1, undefined],
    ['synced', 3],
    ['reset', 0],
    ['c', 1, undefined],
    ['synced', 7],
  ]);
  assert.deepEqual(room.state, new Map([['c', 1]]));
});

test('recoverFailed is not for rooms with state, and their messages are changes', async (t) => {
  const recoverFailed = () => assert.fail('the server sends the state');
  const { client, list } = await inState(t, { recoverFailed });
  client.socket.push(synced(10));
  client.socket.end(1006);
  await client.rejoined(joined(at(3, 'e2')));
  client.socket.push(reset(3, 'e3'));
  await client.pass(0);
  assert.equal(list.includes('message'), false);
});

test('repeats, and pushes that the client does not know, change nothing', async (t) => {
  const { client, room, list } = await inState(t);
  client.socket.push(change('a', 2, 4));
  client.socket.push(change('a', 1, 3));
  client.socket.push(change('a', 2, 4));
  client.socket.push({ type: 'new', room: 'chat.1', key: 'a', payload: 7, ...at(11) });
  assert.deepEqual(list.slice(1), [['a', 2, undefined]]);
  assert.deepEqual(room.position, at(4));
});

test('handles share the map, and a later one is synced when it is whole', async (t) => {
  const { client, room, list } = await inState(t);
  client.socket.push(change('a', 1, 4));
  const second = seenState(client.fanfare.join('chat.1'));
  await turn();
  client.socket.push(synced(10));
  const third = client.fanfare.join('chat.1', { last: 5 });
  const thirdList = seenState(third);
  await turn();
  assert.equal(third.state, room.state);
  client.socket.push(change('a', 2, 11));
  assert.deepEqual(list.slice(1), [
    ['a', 1, undefined],
    ['synced', 10],
    ['a', 2, 1],
  ]);
  assert.deepEqual(second, [
    ['joined', false],
    ['synced', 10],
    ['a', 2, 1],
  ]);
  assert.deepEqual(thirdList, second);
  room.leave();
  client.socket.push(change('a', 3, 12));
  assert.equal(list.length, 4);
  assert.deepEqual(thirdList.at(-1), ['a', 3, 2]);
  assert.deepEqual(client.socket.all('join').length, 1);
});

test('a handle that joins after a reconnect is synced when the map is whole again', async (t) => {
  const { client } = await inState(t);
  client.socket.push(synced(10));
  client.socket.end(1006);
  await client.rejoined(joined({ ...at(11), recovered: true }));
  const list = seenState(client.fanfare.join('chat.1'));
  await turn();
  assert.deepEqual(list, [['joined', false]]);
  client.socket.push(change('a', 1, 11));
  client.socket.push(synced(11));
  assert.deepEqual(list.slice(1), [
    ['a', 1, undefined],
    ['synced', 11],
  ]);
});

test('`since` of the application has no map to continue, so the whole state is fetched', async (t) => {
  const client = setUp(t);
  const room = client.fanfare.join('chat.1', { since: at(8) });
  const list = seenState(room);
  await turn();
  client.socket.greet();
  assert.deepEqual(client.socket.last('join').since, at(8));
  client.socket.answer('join', joined({ recovered: true }));
  client.socket.push(change('b', 1, 9));
  assert.deepEqual(
    client.socket.sent.map(({ type }) => type),
    ['hello', 'join', 'leave', 'join'],
  );
  assert.equal(client.socket.last('join').since, undefined);
  client.socket.answer('join', joined({}));
  client.socket.push(change('a', 1, 4));
  client.socket.push(change('b', 1, 9));
  client.socket.push(synced(10));
  assert.deepEqual(list, [
    ['joined', false],
    ['a', 1, undefined],
    ['b', 1, undefined],
    ['synced', 10],
  ]);
});

test('publish sends the key, and null removes it', async (t) => {
  const { client, room } = await inState(t);
  for (const payload of [1.5, null]) {
    const accepted = room.publish(payload, { key: 'EURUSD' });
    const { type, key, payload: sent } = client.socket.last('message');
    assert.deepEqual([type, key, sent], ['message', 'EURUSD', payload]);
    client.socket.answer('message', { type: 'ack', ...at(11) });
    assert.deepEqual(await accepted, at(11));
  }
});

test('a room that is no room with state any more has no map', async (t) => {
  const { client, room } = await inState(t);
  client.socket.push(change('a', 1, 4));
  client.socket.push(synced(10));
  client.socket.end(1006);
  await client.rejoined(joined({ state: undefined, ...at(2, 'e2') }));
  assert.equal(room.state, undefined);
});
