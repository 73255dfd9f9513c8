// webhooks-pusher.test.js: a real server sends the webhooks of an app to a real receiver, and
// Pusher's library for Node verifies each request. clients/pusher.test.js has those for other
// languages.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import Pusher from 'pusher';
import { startRedis } from '../harness/redis.js';
import { startServer, until } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET as TOKEN_SECRET, token } from '../helpers/tokens.js';

const OPTIONS = { timeout: 60_000 };
const APP = Object.freeze({
  id: '7',
  key: 'app-key',
  secret: 'app-secret-of-32-random-characters',
});
const ALL = { join: ['*'], publish: ['*'], presence: ['*'] };
const EVENTS = ['channel_occupied', 'channel_vacated', 'member_added', 'member_removed'];

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {{key: string, signature: string, body: string}} Request */

/** @param {TestContext} t */
async function startReceiver(t) {
  /** @type {Request[]} */
  const requests = [];
  /** @type {string[]} */
  const lines = [];
  const pusher = new Pusher({ appId: APP.id, key: APP.key, secret: APP.secret, host: 'localhost' });
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request.setEncoding('utf8')) body += part;
    const headers = /** @type {Record<string, string>} */ (request.headers);
    const webhook = pusher.webhook({ headers, rawBody: body });
    assert.ok(webhook.isValid());
    assert.ok(Math.abs(webhook.getTime().getTime() - Date.now()) < 60_000);
    requests.push({ key: headers['x-pusher-key'], signature: headers['x-pusher-signature'], body });
    for (const event of webhook.getEvents()) {
      const { name, channel, user_id } = /** @type {any} */ (event);
      lines.push(`${name} ${channel} ${user_id ?? ''}`.trim());
    }
    response.end('OK');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { requests, lines, url: `http://127.0.0.1:${port}/pusher` };
}

/**
 * An app whose channels are native rooms, so a native client can enter them.
 * @param {TestContext} t @param {object} webhook
 * @param {Record<string, string>} [env]
 */
function startShared(t, webhook, env = {}) {
  const path = join(temporaryFolder(t), 'apps.json');
  const webhooks = [{ events: EVENTS, ...webhook }];
  writeFileSync(path, JSON.stringify([{ ...APP, shared: true, publicRooms: ['*'], webhooks }]));
  return startServer(t, {
    WORKERS: '1',
    JWT_SECRET: TOKEN_SECRET,
    FANFARE_PUSHER_APPS: path,
    FANFARE_ROOM_LINGER_MS: '100',
    ...env,
  });
}

/** @param {TestContext} t @param {number} port @param {string} user */
const enter = (t, port, user) =>
  connect(t, `ws://127.0.0.1:${port}/ws?token=${token({ sub: user, rooms: ALL })}`);

// They mostly wait.
describe('webhooks of an app', { concurrency: 2 }, () => {
  for (const backend of /** @type {const} */ (['redis', 'embedded']))
    test(
      `${backend}: an app hears of its channels, and Pusher's library verifies it`,
      OPTIONS,
      async (t) => {
        const receiver = await startReceiver(t);
        const { port } = await startShared(
          t,
          { url: receiver.url, startsWith: 'presence-' },
          backend === 'redis' ? { REDIS_URL: (await startRedis(t)).url } : {},
        );
        const ann = await enter(t, port, 'ann');
        await ann.join('other');
        await ann.join('presence-1');
        const seen = (/** @type {number} */ count) =>
          until(() => receiver.lines.length >= count, 15_000, receiver.lines.join());
        await seen(2);
        const bob = await enter(t, port, 'bob');
        await bob.join('presence-1');
        await seen(3);
        const leftMs = Date.now();
        bob.socket.close();
        await seen(4);
        assert.ok(Date.now() - leftMs >= 3000, 'who leaves may come back within 3 s');
        ann.socket.close();
        await seen(6);
        assert.deepEqual(receiver.lines.slice(0, 4), [
          'channel_occupied presence-1',
          'member_added presence-1 ann',
          'member_added presence-1 bob',
          'member_removed presence-1 bob',
        ]);
        assert.deepEqual(receiver.lines.slice(4), [
          'member_removed presence-1 ann',
          'channel_vacated presence-1',
        ]);
      },
    );
});
