// centrifuge-js.test.js: centrifuge-js, unchanged, in Node and in Chromium. clients/centrifugo.test.js
// runs its own tests, and SDKs of other languages.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import { Centrifuge as ProtobufCentrifuge } from 'centrifuge/build/protobuf';
import { EventSource } from 'eventsource';
import express from 'express';
import { WebSocket } from 'ws';
import { freePort } from '../harness/redis.js';
import { until } from '../harness/server.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { endpointsOf, startOpenDoor } from '../helpers/centrifugo-sdk.js';
import { shared } from '../helpers/shared.js';
import { token } from '../helpers/tokens.js';

const OPTIONS = { timeout: 60_000 };
const CHANNELS = { FANFARE_HISTORY: 'small:*=2/300s,*=100/300s', FANFARE_PRESENCE: '*' };
const DELAYS = { minReconnectDelay: 50, maxReconnectDelay: 500 };
/** Each test has channels of its own. */
const started = shared((owner) => startOpenDoor(owner, { ...CHANNELS, WORKERS: '1' }));
/** `protobuf` is a WebSocket, too. */
const TRANSPORTS = /** @type {const} */ (['websocket', 'protobuf', 'http_stream', 'sse']);

/** @typedef {import('node:test').TestContext} TestContext */

/**
 * centrifuge-js in this process.
 * @param {TestContext} t @param {number} port @param {typeof TRANSPORTS[number]} [transport]
 * @param {Partial<import('centrifuge').Options>} [options]
 */
function open(t, port, transport = 'websocket', options = {}) {
  /** @type {typeof Centrifuge} */
  const Library = transport === 'protobuf' ? /** @type {any} */ (ProtobufCentrifuge) : Centrifuge;
  const name = transport === 'protobuf' ? 'websocket' : transport;
  const endpoints = endpointsOf(port);
  const client = new Library([{ transport: name, endpoint: endpoints[name] }], {
    ...DELAYS,
    ...{ websocket: WebSocket, eventsource: EventSource, fetch, readableStream: ReadableStream },
    emulationEndpoint: endpoints.emulation,
    ...options,
  });
  t.after(() => client.disconnect());
  client.connect();
  return client;
}

/** The next event. @param {any} source @param {string} event @returns {Promise<any>} */
async function next(source, event) {
  const [context] = await once(source, event, { signal: AbortSignal.timeout(15_000) });
  return context;
}

/** Protobuf clients send and get bytes. @param {any} client @param {unknown} value */
const encoded = (client, value) =>
  client instanceof ProtobufCentrifuge ? new TextEncoder().encode(JSON.stringify(value)) : value;
const decoded = (/** @type {any} */ data) =>
  data instanceof Uint8Array ? JSON.parse(new TextDecoder().decode(data)) : data;

/**
 * Subscribes, and collects what comes.
 * @param {Centrifuge} client @param {string} channel
 * @param {Partial<import('centrifuge').SubscriptionOptions>} [options]
 */
async function subscribe(client, channel, options) {
  const subscription = client.newSubscription(channel, options);
  /** @type {[unknown, number|undefined][]} */
  const seen = [];
  subscription.on('publication', ({ data, offset }) => seen.push([decoded(data), offset]));
  subscription.subscribe();
  await subscription.ready(15_000);
  return { subscription, seen };
}

for (const transport of TRANSPORTS)
  test(
    `centrifuge-js in Node over ${transport}: publishes, recovers, has history and presence`,
    OPTIONS,
    async (t) => {
      const { port } = await started();
      const channel = `chat:${transport}`;
      const [ann, ben] = [open(t, port, transport), open(t, port)];
      const { subscription, seen } = await subscribe(ann, channel);
      await subscription.publish(encoded(ann, { text: 'hällo' }));
      await until(() => seen.length === 1);

      ann.disconnect();
      await ben.publish(channel, 'missed');
      await ben.publish(channel, ['missed', 2]);
      const again = next(subscription, 'subscribed');
      ann.connect();
      const { wasRecovering, recovered } = await again;
      assert.deepEqual({ wasRecovering, recovered }, { wasRecovering: true, recovered: true });
      await ben.publish(channel, 'live');
      await until(() => seen.length === 4);
      const wanted = [
        [{ text: 'hällo' }, 1],
        ['missed', 2],
        [['missed', 2], 3],
        ['live', 4],
      ];
      assert.deepEqual(seen, wanted);

      const history = await subscription.history({ limit: 2, reverse: true });
      const newest = history.publications.map(({ data, offset }) => [decoded(data), offset]);
      assert.deepEqual(newest, wanted.slice(2).reverse());
      const { numClients } = await subscription.presenceStats();
      assert.equal(numClients, 1);
      assert.equal(Object.keys((await ben.presence(channel)).clients).length, 1);
      subscription.unsubscribe();
      await until(async () => (await ben.presenceStats(channel)).numClients === 0);
    },
  );

test('centrifuge-js in Node: what is no longer kept is not recovered', OPTIONS, async (t) => {
  const { port } = await started();
  const [ann, ben] = [open(t, port), open(t, port)];
  const { subscription, seen } = await subscribe(ann, 'small:news');
  ann.disconnect();
  for (let n = 1; n <= 4; n++) await ben.publish('small:news', n);
  const again = next(subscription, 'subscribed');
  ann.connect();
  const { wasRecovering, recovered, streamPosition } = await again;
  assert.deepEqual([wasRecovering, recovered, streamPosition.offset], [true, false, 4]);
  await ben.publish('small:news', 5);
  await until(() => seen.length > 0);
  assert.deepEqual(seen, [[5, 5]]);
});

test('centrifuge-js in Node: tokens of connections and subscriptions', OPTIONS, async (t) => {
  const { port } = await started();
  const past = Math.floor(Date.now() / 1000) - 60;
  let calls = 0;
  const ann = open(t, port, 'websocket', {
    token: token({ sub: 'ann', exp: past }),
    getToken: async () => {
      calls++;
      return token({ sub: 'ann' });
    },
  });
  await ann.ready(15_000);
  assert.equal(calls, 1);

  const forged = open(t, port, 'websocket', { token: 'x.y.z' });
  assert.equal((await next(forged, 'disconnected')).code, 3500);

  const denied = ann.newSubscription('$vault');
  denied.subscribe();
  assert.equal((await next(denied, 'unsubscribed')).code, 103);
  const getToken = async (/** @type {{channel: string}} */ { channel }) =>
    token({ sub: 'ann', channel });
  const { subscription, seen } = await subscribe(ann, '$safe', { getToken });
  await subscription.publish('secret');
  await until(() => seen.length === 1);
  const foreign = open(t, port);
  const stolen = foreign.newSubscription('$safe', { getToken });
  stolen.subscribe();
  assert.equal((await next(foreign, 'disconnected')).code, 3500);
});

test(
  'centrifuge-js in Node: a client whose new token has expired comes back with the next one',
  OPTIONS,
  async (t) => {
    const { port } = await started();
    const nowS = Math.floor(Date.now() / 1000);
    // The first answer comes from a cache, say. SDKs ask for it at the end of the token before.
    const answers = (/** @type {Record<string, unknown>} */ claims) => {
      let calls = 0;
      return async () => token({ ...claims, exp: nowS + (calls++ === 0 ? -60 : 600) });
    };
    const ann = open(t, port, 'websocket', {
      minReconnectDelay: 50,
      token: token({ sub: 'ann', exp: nowS + 2 }),
      getToken: answers({ sub: 'ann' }),
    });
    await ann.ready(15_000);
    const closed = await next(ann, 'connecting');
    assert.deepEqual([closed.code, closed.reason], [3005, 'connection expired']);
    await ann.ready(15_000);

    const channel = '$safe';
    const subscription = ann.newSubscription(channel, {
      minResubscribeDelay: 50,
      token: token({ sub: 'ann', channel, exp: nowS + 2 }),
      getToken: answers({ sub: 'ann', channel }),
    });
    subscription.subscribe();
    await subscription.ready(15_000);
    assert.equal((await next(ann, 'connecting')).code, 3006);
    await subscription.ready(15_000);
  },
);

for (const transport of /** @type {const} */ (['websocket', 'protobuf']))
  test(
    `centrifuge-js over ${transport}: a refreshed token moves it to other server-side channels`,
    OPTIONS,
    async (t) => {
      const { port, api } = await started();
      const nowS = Math.floor(Date.now() / 1000);
      const [before, after, both] = ['before', 'after', 'both'].map(
        (name) => `${transport}-${name}`,
      );
      const client = open(t, port, transport, {
        token: token({ sub: 'moving', channels: [before, both], exp: nowS + 2 }),
        getToken: async () => token({ sub: 'moving', channels: [after, both] }),
      });
      await next(client, 'connected');
      const events = /** @type {string[]} */ ([]);
      const changed = new Promise((resolve) => {
        for (const event of /** @type {const} */ (['subscribed', 'unsubscribed']))
          client.on(event, (/** @type {{channel: string}} */ { channel }) => {
            events.push(`${event} ${channel}`);
            if (events.length === 2) resolve(undefined);
          });
      });
      await changed;
      assert.deepEqual(events, [`unsubscribed ${before}`, `subscribed ${after}`]);
      const published = next(client, 'publication');
      for (const channel of [before, after]) await api('publish', { channel, data: { channel } });
      const { channel, data } = await published;
      assert.deepEqual([channel, decoded(data)], [after, { channel: after }]);
      assert.equal(client.state, 'connected');
    },
  );

test(
  'centrifuge-js in Node: a client whose token is not valid yet comes back when it is',
  OPTIONS,
  async (t) => {
    const { port } = await started();
    // The clock of the signer is ahead by 8 s, 3 more than the server accepts.
    const iat = Math.floor(Date.now() / 1000) + 8;
    const client = open(t, port, 'websocket', {
      minReconnectDelay: 50,
      maxReconnectDelay: 200,
      token: token({ sub: 'ann', iat, exp: iat + 600 }),
    });
    const { error } = await next(client, 'error');
    assert.deepEqual([error.code, error.temporary], [100, true]);
    await client.ready(15_000);
  },
);

test('centrifuge-js over protobuf and sse comes back to a restarted server', OPTIONS, async (t) => {
  const env = {
    ...CHANNELS,
    PORT: String(await freePort()),
    WORKERS: '1',
    FANFARE_RECONNECT_WINDOW_MS: '500',
  };
  const { server, port } = await startOpenDoor(t, env);
  const clients = await Promise.all(
    /** @type {const} */ (['protobuf', 'sse']).map(async (transport) => {
      const client = open(t, port, transport);
      const channel = `news:${transport}`;
      const { subscription, seen } = await subscribe(client, channel);
      await subscription.publish(encoded(client, 1));
      await until(() => seen.length === 1);
      /** @type {string[]} */
      const states = [];
      client.on('state', ({ newState }) => states.push(newState));
      return { client, subscription, seen, states };
    }),
  );
  server.kill('SIGTERM');
  await server.exited;
  const again = clients.map(({ subscription }) => next(subscription, 'subscribed'));
  await startOpenDoor(t, env);
  for (const [i, { client, subscription, seen, states }] of clients.entries()) {
    // The history was in the memory of the old server.
    assert.equal((await again[i]).recovered, false);
    await subscription.publish(encoded(client, 2));
    await until(() => seen.length === 2);
    assert.ok(!states.includes('disconnected'), states.join());
  }
});

/** A web server with the browser bundle. @param {TestContext} t @returns {Promise<string>} its address */
async function startWeb(t) {
  const app = express();
  const main = createRequire(import.meta.url).resolve('centrifuge');
  app.use('/dist', express.static(join(dirname(dirname(main)), 'dist')));
  app.get('/', (_, res) => {
    res.send(`<!doctype html><title>x</title><link rel="icon" href="data:,">
      <script src="/dist/centrifuge.js"></script>`);
  });
  const server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${Object(server.address()).port}/`;
}

test('centrifuge-js in Chromium over each transport: publishes, goes offline, recovers', {
  ...OPTIONS,
  skip: withoutChromium,
}, async (t) => {
  const { port } = await started();
  const ben = open(t, port);
  const browser = await openBrowser(t);
  const page = await browser.newPage();
  await page.goto(await startWeb(t));
  const { emulation, ...endpoints } = endpointsOf(port);
  await page.evaluate(
    `window.seen = {};
     window.clients = Object.entries(${JSON.stringify(endpoints)}).map(([transport, endpoint]) => {
       const client = new Centrifuge([{ transport, endpoint }], {
         minReconnectDelay: 50, maxReconnectDelay: 500, emulationEndpoint: '${emulation}' });
       const sub = client.newSubscription('page');
       seen[transport] = [];
       sub.on('subscribed', ({ recovered }) => seen[transport].push('recovered ' + recovered));
       sub.on('publication', ({ data }) => seen[transport].push(data));
       sub.subscribe();
       client.connect();
       return { transport, client, sub };
     });`,
  );
  const names = Object.keys(endpoints);
  /** @param {string[]} wanted */
  const see = async (wanted) => {
    const all = Object.fromEntries(names.map((name) => [name, wanted]));
    const text = JSON.stringify(all);
    await page
      .waitForFunction(`JSON.stringify(seen) === ${JSON.stringify(text)}`, undefined, {
        timeout: 15_000,
      })
      .catch(async () => assert.deepEqual(await page.evaluate('seen'), all));
  };
  await see(['recovered false']);
  for (const name of names)
    await page.evaluate(
      `clients.find(({ transport }) => transport === '${name}').sub.publish('by ${name}')`,
    );
  const first = ['recovered false', ...names.map((name) => `by ${name}`)];
  await see(first);
  await page.context().setOffline(true);
  await page.waitForFunction(`clients.every(({ client }) => client.state === 'connecting')`);
  await ben.publish('page', 'missed');
  await page.context().setOffline(false);
  await see([...first, 'recovered true', 'missed']);
});
