// pusher-checker.test.js: the Pusher client of random runs notices faults of the door.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { WebSocketServer } from 'ws';
import { PusherClient } from '../checker/pusher-client.js';
import { Recorder, readRecord } from '../checker/record.js';
import { until } from '../harness/server.js';
import { APP } from '../helpers/pusher.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const ROOM = 'presence-0';
const member = (/** @type {string} */ event, /** @type {string} */ user) => ({
  event: `pusher_internal:member_${event}`,
  channel: ROOM,
  data: JSON.stringify({ user_id: user }),
});

/**
 * A client of a server that answers its subscription, then sends these frames and closes.
 * @param {import('node:test').TestContext} t @param {readonly object[]} frames @param {number} code
 */
async function clientOf(t, frames, code) {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  t.after(() => server.close());
  await once(server, 'listening');
  server.once('connection', (socket) => {
    const send = (/** @type {object} */ frame) => socket.send(JSON.stringify(frame));
    send({ event: 'pusher:connection_established', data: '{"socket_id":"1.1"}' });
    socket.once('message', () => {
      const data = '{"presence":{"ids":["ann"],"hash":{"ann":{}},"count":1}}';
      send({ event: 'pusher_internal:subscription_succeeded', channel: ROOM, data });
      for (const frame of frames) send(frame);
      socket.close(code);
    });
  });
  const path = join(temporaryFolder(t), 'record.jsonl');
  const recorder = new Recorder(path);
  const client = new PusherClient({
    ...{ id: 0, urls: [`ws://127.0.0.1:${Object(server.address()).port}/`], rooms: [ROOM] },
    ...{ user: 'ann', app: APP, recorder },
  });
  t.after(() => client.stop());
  client.start();
  await until(() => client.socket === null || client.attempts > 1);
  recorder.close();
  return { client, events: [...readRecord(path)].map(({ type }) => type) };
}

test('members that come and go are no finding, and a close with 4200 is none', async (t) => {
  const frames = [member('added', 'ben'), member('removed', 'ben'), member('added', 'ben')];
  const { client, events } = await clientOf(t, frames, 4200);
  assert.deepEqual(client.oddities, []);
  assert.deepEqual(events, ['connect', 'subscribe', 'reply', 'close']);
});

test('a member who is added twice, or removed and was not there, is a finding', async (t) => {
  const frames = [member('added', 'ann'), member('removed', 'cat')];
  const { client } = await clientOf(t, frames, 4200);
  assert.equal(client.oddities.length, 2);
});

test('a close after which pusher-js never returns is a finding', async (t) => {
  const { client } = await clientOf(t, [], 4009);
  assert.deepEqual(client.oddities, ['closed for ever with 4009']);
});
