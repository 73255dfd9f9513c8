// client-mobile.test.js: `fanfare-client/mobile` on a fake socket: apps in the background.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { followAppState } from '../../src/client/mobile.js';
import { at, message, seen } from '../helpers/client-messages.js';
import { setUp } from '../helpers/fake-client.js';

/** React Native's AppState. @param {string} [currentState] */
function fakeAppState(currentState = 'active') {
  /** @type {Set<(state: string) => void>} */
  const listeners = new Set();
  return {
    currentState,
    listeners,
    /** @param {'change'} _ @param {(state: string) => void} listener */
    addEventListener(_, listener) {
      listeners.add(listener);
      return { remove: () => void listeners.delete(listener) };
    },
    /** @param {string} state */
    enter(state) {
      for (const listener of listeners) listener(state);
    },
  };
}

test('an app in the background has no connection, and recovers when it is active', async (t) => {
  const client = setUp(t);
  const app = fakeAppState();
  followAppState(client.fanfare, app);
  const room = await client.joined();
  const list = seen(room);
  client.socket.push(message(11));
  app.enter('inactive');
  assert.equal(client.fanfare.state, 'connected', 'iOS is inactive for moments');
  app.enter('background');
  assert.deepEqual([client.fanfare.state, client.socket.closedWith], ['sleeping', 1000]);
  await client.pass(3_600_000);
  assert.equal(client.sockets.length, 1);
  app.enter('active');
  await turn();
  client.socket.greet();
  assert.deepEqual(client.socket.last('join').since, at(11));
  client.socket.answer('join', { type: 'joined', room: 'chat.1', ...at(12), recovered: true });
  client.socket.push(message(12));
  assert.deepEqual(list, [11, 12]);
});

test('with sleepAfterMs a short absence costs nothing', async (t) => {
  const client = setUp(t);
  const app = fakeAppState();
  followAppState(client.fanfare, app, { sleepAfterMs: 5000 });
  await client.joined();
  app.enter('background');
  await client.pass(4999);
  app.enter('active');
  assert.equal(client.socket.all('ping').length, 1, 'it checks the connection at once');
  client.socket.push({ type: 'pong' });
  await client.pass(5000);
  assert.equal(client.fanfare.state, 'connected');
  app.enter('background');
  await client.pass(5000);
  assert.equal(client.fanfare.state, 'sleeping');
});

test('an app that is started in the background connects when it is active', async (t) => {
  const client = setUp(t);
  const app = fakeAppState('background');
  const stop = followAppState(client.fanfare, app);
  client.fanfare.join('chat.1');
  await turn();
  assert.deepEqual([client.fanfare.state, client.sockets.length], ['sleeping', 0]);
  app.enter('active');
  await turn();
  client.socket.greet();
  assert.equal(client.socket.all('join').length, 1);
  stop();
  app.enter('background');
  assert.equal(client.fanfare.state, 'connected');
  assert.equal(app.listeners.size, 0);
});

test('a client that was closed stays closed, and an idle one idle', async (t) => {
  const client = setUp(t);
  const app = fakeAppState();
  followAppState(client.fanfare, app);
  app.enter('active');
  assert.equal(client.fanfare.state, 'idle');
  await client.joined();
  await client.fanfare.close();
  for (const state of ['background', 'active']) app.enter(state);
  assert.equal(client.fanfare.state, 'closed');
});

test('a connection that waits for its next attempt makes it soon', async (t) => {
  const client = setUp(t, { firstDelayMs: 1000 });
  const app = fakeAppState();
  followAppState(client.fanfare, app);
  await client.joined();
  for (let i = 0; i < 6; i++) {
    client.socket.end(1006);
    await client.pass(i < 5 ? 30_000 : 0);
  }
  assert.equal(client.fanfare.state, 'waiting');
  const { length } = client.sockets;
  app.enter('active');
  await client.pass(1000);
  assert.equal(client.sockets.length, length + 1);
});

test('a message is measured in bytes of UTF-8', async (t) => {
  const client = setUp(t);
  client.fanfare.connect();
  await turn();
  client.socket.greet({ limits: { maxMessageBytes: 100 } });
  const sizeOf = (/** @type {string} */ payload) => {
    const before = client.socket.sent.length;
    client.fanfare.publish('r', payload).catch(() => {});
    const command = client.socket.sent[before];
    return command && new TextEncoder().encode(JSON.stringify(command)).length;
  };
  const empty = sizeOf('');
  for (const text of ['a', 'é', '€', '😀']) {
    const bytes = new TextEncoder().encode(text).length;
    const fits = text.repeat(Math.floor((100 - empty) / bytes));
    assert.ok(sizeOf(fits) <= 100, text);
    assert.equal(sizeOf(fits + text.repeat(2)), undefined, text);
  }
});
