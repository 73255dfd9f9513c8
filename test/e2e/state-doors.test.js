// state-doors.test.js: the doors of Pusher and Centrifugo beside rooms with state. Their clients do
// not know keys, so a subscription and a publish are refused, and the state stays as it is.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NO_LIMITS, startServer } from '../harness/server.js';
import {
  connectionToken,
  connectRaw,
  subscriptionToken,
  WITH_TOKENS,
} from '../helpers/centrifugo.js';
import { centrifugoApiOf, KEY } from '../helpers/centrifugo-api.js';
import { connect } from '../helpers/clients.js';
import { entryOf, pusherOf, writeApps } from '../helpers/pusher.js';

const OPTIONS = { timeout: 60_000 };
const ENV = Object.freeze({
  ...NO_LIMITS,
  WORKERS: '1',
  FANFARE_STATE: 'price*=100/1h, private-price*=100/1h',
  FANFARE_HISTORY: 'h*=10/60s',
});

/**
 * A native client in a room with state that has one key, and what it is sent later.
 * @param {import('node:test').TestContext} t @param {number} port @param {string} room
 * @param {string} [token]
 */
async function member(t, port, room, token = '') {
  const client = await connect(t, `ws://127.0.0.1:${port}/${token && `?token=${token}`}`);
  await client.join(room);
  const set = async (/** @type {number} */ payload) => {
    client.send({ type: 'message', room, key: 'a', payload, id: payload });
    const hasBoth = () =>
      [client.all('ack'), client.all('message')].every(({ length }) => length === payload);
    await client.until(hasBoth, 10_000, 'its ack and its message');
  };
  await set(1);
  return {
    /** After a change of its own it has been sent nothing else, and no offset is missing. */
    async assertUnchanged() {
      await set(2);
      assert.equal(client.all('ack')[1].offset, 2);
      assert.deepEqual(
        client.all('message').map(({ key, payload }) => [key, payload]),
        [
          ['a', 1],
          ['a', 2],
        ],
      );
    },
  };
}

test(
  'clients of Centrifugo can neither subscribe nor publish to a room with state',
  OPTIONS,
  async (t) => {
    const server = await startServer(t, {
      ...ENV,
      ...WITH_TOKENS,
      FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*, publish:*, history:*',
      FANFARE_CENTRIFUGO_API_KEY: KEY,
    });
    const rooms = { join: ['*'], publish: ['*'] };
    const iat = Math.floor(Date.now() / 1000);
    const native = await member(t, server.port, 'price.eur', connectionToken({ iat, rooms }));
    // The server does not subscribe it either: by its token, or at the request of the backend.
    const token = connectionToken({ channels: ['price.eur', 'h.1'] });
    const client = await connectRaw(t, server.port, { token });
    assert.deepEqual(Object.keys(client.welcome.subs), ['h.1']);
    const channel = 'price.eur';
    assert.equal(await client.errorOf('subscribe', { channel }), 103);
    assert.equal(await client.errorOf('subscribe', { channel, recover: true }), 103);
    const granted = { channel, token: subscriptionToken(channel) };
    assert.equal(await client.errorOf('subscribe', granted), 103);
    assert.equal(await client.errorOf('publish', { channel, data: { a: 3 } }), 107);
    assert.equal(await client.errorOf('publish', { channel, data: { a: 3 }, key: 'a' }), 108);
    assert.equal(await client.errorOf('history', { channel, limit: 10 }), 108);
    const api = centrifugoApiOf(server.port);
    assert.equal((await api('publish', { channel, data: { a: 3 } })).error?.code, 107);
    const { result } = await api('broadcast', { channels: [channel, 'h.1'], data: { a: 3 } });
    assert.deepEqual(
      result.responses.map((/** @type {any} */ { error }) => error?.code),
      [107, undefined],
    );
    assert.deepEqual(await api('subscribe', { user: 'alice', channel }), { result: {} });
    await native.assertUnchanged();
    // The connection goes on.
    assert.equal(await client.errorOf('subscribe', { channel: 'h.2' }), undefined);
    assert.equal(client.publications('h.1').length, 1);
    assert.deepEqual(
      client.all(({ push }) => push?.channel === channel),
      [],
    );
  },
);

test(
  'clients of Pusher can neither subscribe nor publish to a room with state',
  OPTIONS,
  async (t) => {
    const apps = writeApps(t, [entryOf({ shared: true })]);
    const server = await startServer(t, { ...ENV, FANFARE_PUSHER_APPS: apps });
    const room = 'private-price.eur';
    const native = await member(t, server.port, room);
    const { connect: open, api } = pusherOf(t, server);
    const client = await open();
    await assert.rejects(client.subscribe('price.eur'), /subscription_error|subscribe price\.eur/);
    await assert.rejects(client.subscribe(room), /subscribe private-price\.eur/);
    client.send({ event: 'client-move', channel: room, data: { a: 3 } });
    const event = { name: 'moved', data: '{"a":3}' };
    for (const channels of [[room], [room, 'h.1']]) {
      const { status } = await api('/events', { ...event, channels });
      assert.ok(status >= 400 && status < 500, `${status}`);
    }
    const batch = [{ ...event, channel: room }];
    const { status } = await api('/batch_events', { batch });
    assert.ok(status >= 400 && status < 500, `${status}`);
    // The connection goes on.
    assert.deepEqual(await client.subscribe('h.1'), {});
    await native.assertUnchanged();
  },
);
