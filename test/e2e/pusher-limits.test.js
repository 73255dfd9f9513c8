// pusher-limits.test.js: limits, silence and hooks at the Pusher door: what clients are told, with
// which close code.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { scrape, startServer, until } from '../harness/server.js';
import { handshakeStatus } from '../helpers/clients.js';
import {
  APP,
  entryOf,
  openPusher,
  PusherClient,
  pusherOf,
  sharedPusher,
  startPusher,
  writeApps,
} from '../helpers/pusher.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const OPTIONS = { timeout: 60_000 };
const ONE_WORKER = { WORKERS: '1' };
const hooks = join(temporaryFolder({ after }), 'hooks.mjs');
writeFileSync(
  hooks,
  `export function onConnect({ query, transport, token }) {
     if (transport !== 'pusher' || token !== null) throw new Error('not the door');
     if (query.get('version') === 'broken') throw new Error('broken');
     return query.get('version') === 'old' ? { deny: 'Please update.' } : true;
   }
   export function onJoin({ transport }, room) {
     if (room === '~${APP.id}:private-no') return { deny: 'Members only.' };
   }
   export function onPublish(connection, room, { event, data }) {
     if (data === 'spam') return false;
     if (data === 'long') return { payload: { event, data: 'cut' } };
   }`,
);
const start = sharedPusher(
  { five: { maxConnections: 5 } },
  {
    WORKERS: '2',
    FANFARE_LIMITS: 'enforce,messages_per_ip=off,api_messages=off',
    FANFARE_MAX_CONNECTIONS_PER_USER: '2',
    FANFARE_MAX_UNSENT_BYTES: '200000',
    FANFARE_MESSAGES_RATE: '1/min burst 10',
    FANFARE_MAX_REFUSED_MESSAGES: '3',
    FANFARE_FRAMES_RATE: '60/min burst 5',
    FANFARE_HOOKS: hooks,
  },
);

/** The error, then the close, of a client. @param {PusherClient} client */
async function endOf(client) {
  const { code } = await client.closed();
  const errors = client.all(({ event }) => event === 'pusher:error').map(({ data }) => data);
  return { code, errors };
}

/**
 * Resolves when a client has its socket id, or is refused.
 * @param {PusherClient} client @returns {Promise<number|null>} the close code; null: it is in
 */
async function outcomeOf(client) {
  // A client that waits for its refusal gets it at once if it sends something.
  const impatience = setInterval(
    () => client.socket.readyState === 1 && client.send({ event: 'pusher:ping' }),
    100,
  );
  const first = await client.next(() => true).finally(() => clearInterval(impatience));
  return first.event === 'pusher:connection_established' ? null : (await client.closed()).code;
}

describe('limits of the server', () => {
  test(
    'are told inside the WebSocket, after a random time, or when it drains',
    OPTIONS,
    async (t) => {
      const env = {
        ...ONE_WORKER,
        FANFARE_LIMITS: 'enforce',
        FANFARE_MAX_CONNECTIONS_PER_IP: '1',
        FANFARE_HANDSHAKES_RATE_PER_IP: '1/min burst 8',
        TRUST_PROXY: '127.0.0.1/32',
      };
      const { server, port } = await startPusher(t, {}, env);
      const url = `ws://127.0.0.1:${port}/app/${APP.key}?protocol=7`;
      const open = (/** @type {string} */ address) => {
        const client = new PusherClient(url, APP, { headers: { 'X-Forwarded-For': address } });
        t.after(() => client.socket.terminate());
        return client;
      };
      const first = open('192.0.2.1');
      await first.established();
      const refused = Array.from({ length: 6 }, () => open('192.0.2.1'));
      await Promise.all(refused.map(({ opened }) => opened));
      const earliest = await Promise.race(
        refused.map((client) => client.closed().then(() => client)),
      );
      assert.equal(earliest.close?.code, 4100);
      assert.deepEqual(
        earliest.messages.map(({ event, data }) => [event, data.code]),
        [['pusher:error', 4100]],
      );
      assert.match(earliest.messages[0].data.message, /address/);
      await first.pong();
      const loud = open('192.0.2.1');
      await loud.opened;
      const sentMs = Date.now();
      loud.send({ event: 'pusher:subscribe', data: { channel: 'news' } });
      assert.equal((await loud.closed()).code, 4100);
      assert.ok(Date.now() - sentMs < 1000, 'it has not waited in silence');

      // The ninth handshake of this address; others have their own rate.
      const ninth = open('192.0.2.1');
      await ninth.opened;
      ninth.send({ event: 'pusher:ping' });
      const { code, errors } = await endOf(ninth);
      assert.deepEqual([code, errors.length, errors[0].code], [4100, 1, 4100]);
      assert.match(errors[0].message, /new connections/);
      await open('192.0.2.2').established();
      // Without the proxy between them, a client is refused by HTTP.
      const direct = { localAddress: '127.0.0.2' };
      for (let i = 0; i < 8; i++) assert.equal(await handshakeStatus(url, direct), 101);
      assert.equal(await handshakeStatus(url, direct), 429);

      server.kill('SIGTERM');
      for (const client of refused) {
        const { code } = await client.closed();
        assert.ok(code === 4100 || code === 4200, `${code}`);
      }
      assert.ok(refused.some(({ close }) => close?.code === 4200));
    },
  );

  test('of a user apply from the sign-in, over all workers', OPTIONS, async (t) => {
    const { connect, server } = await start(t);
    const tabs = [await connect(), await connect(), await connect()];
    await tabs[0].signin({ id: 'ann' });
    await tabs[1].signin({ id: 'ann' });
    tabs[2].signin({ id: 'ann' }).catch(() => {});
    const { code, errors } = await endOf(tabs[2]);
    assert.deepEqual([code, errors.map((error) => error.code)], [4100, [4100]]);
    // The same user may sign in again on a connection that counts already.
    await tabs[1].signin({ id: 'ann' });
    await (await connect()).signin({ id: 'ben' });
    tabs[0].socket.close();
    await tabs[0].closed();
    const next = await connect();
    await until(async () => {
      const { values } = await scrape(server.metricsPort);
      return values.get('fanfare_authenticated_connections') === 2;
    });
    await next.signin({ id: 'ann' });
  });
});

describe('maxConnections of an app', () => {
  /** @param {PusherClient[]} clients */
  const outcomes = async (clients) =>
    (await Promise.all(clients.map(outcomeOf))).sort((a, b) => Number(a) - Number(b));

  test('is exact over the workers of a server', OPTIONS, async (t) => {
    const { port, connect } = await start(t, 'five');
    const open = () => openPusher(t, port, { ...APP, key: 'five' });
    const all = Array.from({ length: 12 }, open);
    const none = /** @type {(number|null)[]} */ (Array(5).fill(null));
    assert.deepEqual(await outcomes(all), [...none, ...Array(7).fill(4100)]);
    const admitted = all.filter(({ close }) => close === null);
    for (const client of admitted.slice(0, 2)) {
      client.socket.close();
      await client.closed();
    }
    await until(async () => {
      const late = open();
      if ((await outcomeOf(late)) !== null) return false;
      await late.pong();
      return true;
    });
    await connect();
    assert.equal(await outcomeOf(open()), 4100);
  });

  test('holds over servers, as they report to each other', OPTIONS, async (t) => {
    const env = {
      ...ONE_WORKER,
      FANFARE_LIMITS: 'enforce',
      REDIS_URL: (await startRedis(t)).url,
      FANFARE_PUSHER_APPS: writeApps(t, [entryOf({ maxConnections: 3, quotaCode: 4100 })]),
    };
    const [one, two] = [await startServer(t, env), await startServer(t, env)];
    for (let i = 0; i < 2; i++) await pusherOf(t, one).connect();
    await until(async () => {
      const { values } = await scrape(two.metricsPort);
      return values.get('fanfare_fleet_limit_servers') === 2;
    });
    // A report follows a change within a quarter of a second.
    await new Promise((resolve) => setTimeout(resolve, 1000));
    await pusherOf(t, two).connect();
    const late = openPusher(t, two.port);
    assert.equal(await outcomeOf(late), 4100);
  });
});

describe('a connection ends', () => {
  test('with 4201 if it answers no ping, else with 4200 at its maximum age', OPTIONS, async (t) => {
    const env = {
      ...ONE_WORKER,
      FANFARE_PING_INTERVAL_MS: '1500',
      FANFARE_PONG_TIMEOUT_MS: '1200',
      FANFARE_MAX_CONNECTION_AGE_MS: '8000',
    };
    const { port, connect } = await startPusher(t, {}, env);
    const answering = await connect();
    const url = `ws://127.0.0.1:${port}/app/${APP.key}?protocol=7`;
    const open = async () => {
      const client = new PusherClient(url, APP, { autoPong: false });
      t.after(() => client.socket.terminate());
      await client.established();
      return client;
    };
    const [silent, talking] = [await open(), await open()];
    // Any frame is an answer.
    const talk = setInterval(() => talking.send({ event: 'pusher:pong', data: {} }), 100);
    t.after(() => clearInterval(talk));
    const { code, errors } = await endOf(silent);
    assert.deepEqual([code, errors.map((error) => error.code)], [4201, [4201]]);
    for (const client of [answering, talking]) await client.pong();
    assert.deepEqual(await endOf(answering), { code: 4200, errors: [] });
  });

  test('with 4100 if it reads too slowly', OPTIONS, async (t) => {
    const { connect, api, server } = await start(t);
    const slow = await connect();
    await slow.subscribe('news');
    slow.socket.pause();
    const batch = Array(10).fill({ name: 'e', channel: 'news', data: 'x'.repeat(10_000) });
    // The kernel takes the first megabytes.
    await until(async () => {
      for (let i = 0; i < 10; i++) await api('/batch_events', { batch });
      const { values } = await scrape(server.metricsPort);
      return values.get('fanfare_slow_consumers_total{consequence="closed"}') === 1;
    }, 30_000);
    slow.socket.resume();
    assert.equal((await slow.closed()).code, 4100);
  });

  test('with 4100 if it goes on above the rate of messages, or of frames', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    await client.subscribe('private-x');
    for (let i = 0; i < 20; i++) client.send({ event: 'client-e', channel: 'private-x', data: i });
    const { code, errors } = await endOf(client);
    assert.equal(code, 4100);
    assert.ok(errors.length > 0 && errors.every((error) => error.code === 4301));
    const pinging = await connect();
    for (let i = 0; i < 20; i++) pinging.socket.ping();
    assert.equal((await pinging.closed()).code, 4100);
  });
});

test('hooks see the door and its channels, and what they deny stays inside', OPTIONS, async (t) => {
  const { port, connect } = await start(t);
  const denied = await endOf(openPusher(t, port, APP, 'protocol=7&version=old'));
  assert.deepEqual(denied, { code: 4009, errors: [{ message: 'Please update.', code: 4009 }] });
  const broken = await endOf(openPusher(t, port, APP, 'protocol=7&version=broken'));
  assert.deepEqual([broken.code, broken.errors.map(({ code }) => code)], [4100, [4100]]);
  const [ann, ben] = [await connect(), await connect()];
  ann.sendSubscribe('private-no');
  const { data } = await ann.event('pusher:subscription_error', 'private-no');
  assert.deepEqual(data, { type: 'AuthError', error: 'Members only.', status: 401 });
  for (const client of [ann, ben]) await client.subscribe('private-x');
  for (const text of ['spam', 'long', 'fine'])
    ann.send({ event: 'client-e', channel: 'private-x', data: text });
  const error = await ann.event('pusher:error');
  assert.deepEqual(error.data, { message: 'Client event rejected', code: null });
  const isEvent = (/** @type {import('../helpers/clients.js').Message} */ { event }) =>
    event === 'client-e';
  const passed = await ben.collect(isEvent, 2);
  assert.deepEqual(
    passed.map(({ data: text }) => text),
    ['cut', 'fine'],
  );
});
