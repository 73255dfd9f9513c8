// returning.test.js: refusals and closes that time heals, on a real server with the clients of its
// users: each comes back by itself. unit/stock-clients has the table of all codes.

import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import { WebSocket } from 'ws';
import { Fanfare } from '../../src/client/node.js';
import { scrape, startServer, until } from '../harness/server.js';
import { APP, entryOf, writeApps } from '../helpers/pusher.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET, token } from '../helpers/tokens.js';
import '../helpers/short-timers.js';

const OPTIONS = { timeout: 60_000 };
const PATIENCE_MS = 40_000;
const RIGHTS = { join: ['*'], publish: ['*'] };
const SMALL = { id: '2', key: 'small', maxConnections: 1 };
/** @type {any} */
const PusherJs = createRequire(import.meta.url)('pusher-js');

/** @typedef {import('node:test').TestContext} TestContext */

/** Tokens are required; a user and the small app may have one connection. */
const started = shared(async (owner) => {
  const folder = temporaryFolder(owner);
  const away = join(folder, 'away');
  const hooks = join(folder, 'hooks.mjs');
  writeFileSync(
    hooks,
    `import { existsSync } from 'node:fs';
     export async function onJoin(connection, room) {
       if (!existsSync('${away}')) return;
       if (room.endsWith('hangs')) await new Promise(() => {});
       if (room.endsWith('throws')) throw new Error('the database is away');
     }`,
  );
  const server = await startServer(owner, {
    ...{ WORKERS: '1', JWT_SECRET: SECRET, FANFARE_AUTH: 'required' },
    ...{ FANFARE_HOOKS: hooks, FANFARE_HOOK_TIMEOUT_MS: '500' },
    ...{ FANFARE_LIMITS: 'enforce', FANFARE_MAX_CONNECTIONS_PER_USER: '1' },
    ...{ FANFARE_CENTRIFUGO: 'on', FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*' },
    FANFARE_PUSHER_APPS: writeApps(owner, [entryOf(), entryOf(SMALL)]),
  });
  return { server, port: server.port, away };
});

/** @param {TestContext} t @param {number} port @param {Record<string, unknown>} claims */
function openNative(t, port, claims) {
  const client = new Fanfare(`ws://127.0.0.1:${port}`, {
    token: () => token({ rooms: RIGHTS, ...claims }),
    maxDelayMs: 2000,
  });
  const codes = /** @type {(number|undefined)[]} */ ([]);
  client.on('state', (_state, { code }) => void (code && codes.push(code)));
  client.on('error', () => {});
  t.after(() => client.close());
  client.connect();
  return { client, codes };
}

/** @param {TestContext} t @param {number} port @param {string} user */
function openCentrifuge(t, port, user) {
  const client = new Centrifuge(`ws://127.0.0.1:${port}/connection/websocket`, {
    ...{ websocket: WebSocket, minReconnectDelay: 50, maxReconnectDelay: 2000 },
    token: token({ sub: user }),
  });
  t.after(() => client.disconnect());
  client.connect();
  return { client };
}

/** @param {TestContext} t @param {number} port @param {string} [key] of the app */
function openPusherJs(t, port, key = APP.key) {
  const pusher = new PusherJs(key, {
    ...{ cluster: '', wsHost: '127.0.0.1', wsPort: port },
    ...{ forceTLS: false, enabledTransports: ['ws'] },
  });
  const codes = /** @type {number[]} */ ([]);
  pusher.connection.bind('error', (/** @type {any} */ e) => codes.push(e?.error?.data?.code));
  t.after(() => pusher.disconnect());
  return { pusher, codes };
}

describe('clients come back', { concurrency: true }, () => {
  test('into their rooms, after a hook threw or hung', OPTIONS, async (t) => {
    const { server, port, away } = await started();
    writeFileSync(away, '');
    const { pusher } = openPusherJs(t, port);
    const { client: centrifuge } = openCentrifuge(t, port, 'hook-centrifuge');
    const { client } = openNative(t, port, { sub: 'hook-native' });
    const rooms = ['throws', 'hangs'];
    const channels = rooms.map((room) => pusher.subscribe(room));
    const errors = /** @type {unknown[]} */ ([]);
    for (const channel of channels)
      channel.bind('pusher:subscription_error', (/** @type {unknown} */ e) => errors.push(e));
    const subscriptions = rooms.map((room) =>
      centrifuge.newSubscription(room, { minResubscribeDelay: 50, maxResubscribeDelay: 2000 }),
    );
    for (const subscription of subscriptions) subscription.subscribe();
    const inRooms = new Set();
    for (const room of rooms) client.join(room).on('joined', () => void inRooms.add(room));
    const other = pusher.subscribe('news');
    const failures = async (/** @type {string} */ reason) =>
      (await scrape(server.metricsPort)).values.get(
        `fanfare_hook_failures_total{hook="onJoin",reason="${reason}"}`,
      ) ?? 0;
    const areAsked = async () => (await failures('throw')) >= 3 && (await failures('timeout')) >= 3;
    await until(areAsked, PATIENCE_MS, 'a failure for each client');
    await until(() => other.subscribed, PATIENCE_MS, 'another channel of the same client');
    assert.deepEqual(
      channels.map(({ subscribed }) => subscribed),
      [false, false],
    );
    rmSync(away);
    await until(() => channels.every(({ subscribed }) => subscribed), PATIENCE_MS, 'pusher-js');
    await until(
      () => subscriptions.every(({ state }) => state === 'subscribed'),
      PATIENCE_MS,
      'centrifuge-js',
    );
    await until(() => inRooms.size === 2, PATIENCE_MS, 'fanfare/client');
    assert.deepEqual(errors, []);
  });

  test(
    'when their user has a place again: fanfare/client and centrifuge-js',
    OPTIONS,
    async (t) => {
      const { server, port } = await started();
      const refused = async () =>
        (await scrape(server.metricsPort)).values.get(
          'fanfare_auth_closes_total{cause="user_limit"}',
        ) ?? 0;
      const first = openNative(t, port, { sub: 'native' });
      await until(() => first.client.state === 'connected', PATIENCE_MS, 'the first');
      const second = openNative(t, port, { sub: 'native' });
      await until(() => second.codes.includes(4009), PATIENCE_MS, 'the refusal');
      assert.notEqual(second.client.state, 'closed');
      await first.client.close();
      await until(() => second.client.state === 'connected', PATIENCE_MS, 'its return');

      const one = openCentrifuge(t, port, 'centrifuge');
      await until(() => one.client.state === 'connected', PATIENCE_MS, 'the first');
      const before = await refused();
      const two = openCentrifuge(t, port, 'centrifuge');
      // The SDK does not show the code of a refused attempt.
      await until(async () => (await refused()) > before, PATIENCE_MS, 'the refusal');
      assert.equal(two.client.state, 'connecting');
      one.client.disconnect();
      await until(() => two.client.state === 'connected', PATIENCE_MS, 'its return');
    },
  );

  test('when their app has a place again: pusher-js and fanfare/client', OPTIONS, async (t) => {
    const { port } = await started();
    const first = openPusherJs(t, port, SMALL.key);
    await until(() => first.pusher.connection.state === 'connected', PATIENCE_MS, 'the first');
    const native = openNative(t, port, { sub: 'of-app', app: SMALL.id });
    const second = openPusherJs(t, port, SMALL.key);
    await until(() => native.codes.includes(4010), PATIENCE_MS, 'a refusal');
    await until(() => second.codes.includes(4100), PATIENCE_MS, 'a refusal');
    first.pusher.disconnect();
    const isNative = () => native.client.state === 'connected';
    const isPusher = () => second.pusher.connection.state === 'connected';
    await until(() => isNative() || isPusher(), PATIENCE_MS, 'the return of one');
    const isOther = isNative() ? isPusher : isNative;
    if (isNative()) await native.client.close();
    else second.pusher.disconnect();
    await until(isOther, PATIENCE_MS, 'the return of the other');
  });

  test('after their first command came too late', OPTIONS, async (t) => {
    const { port } = await started();
    let isStalled = true;
    const stall = createServer((from) => {
      const to = connect(port, '127.0.0.1');
      to.pipe(from);
      from.once('data', (handshake) => {
        to.write(handshake);
        if (!isStalled) from.pipe(to);
      });
      for (const [one, other] of [
        [from, to],
        [to, from],
      ]) {
        one.on('error', () => {});
        one.on('close', () => other.destroy());
      }
    });
    await new Promise((resolve) => stall.listen(0, '127.0.0.1', () => resolve(undefined)));
    t.after(() => stall.close());
    const { port: stalled } = /** @type {import('node:net').AddressInfo} */ (stall.address());
    const { client, codes } = openNative(t, stalled, { sub: 'phone' });
    await until(() => codes.includes(4011), PATIENCE_MS, 'the time-out');
    isStalled = false;
    await until(() => client.state === 'connected', PATIENCE_MS, 'its return');
  });

  test(
    'never had to: a limit refuses messages, and the connection stays open',
    OPTIONS,
    async (t) => {
      const { port } = await started();
      const { client, codes } = openNative(t, port, { sub: 'deep' });
      await until(() => client.state === 'connected', PATIENCE_MS, 'the connection');
      const deep = JSON.parse(`${'['.repeat(40)}${']'.repeat(40)}`);
      for (let i = 0; i < 4; i++)
        await assert.rejects(client.publish('a', deep), { code: 'INVALID_MESSAGE_FORMAT' });
      await client.publish('a', 1);
      assert.deepEqual(codes, []);
    },
  );
});
