// pusher-js.test.js: pusher-js and Laravel Echo, unchanged, in Node and in Chromium, and the server
// SDK `pusher`. clients/pusher.test.js has the SDKs of other languages.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { after, test } from 'node:test';
import express from 'express';
import { startRedis } from '../harness/redis.js';
import { until } from '../harness/server.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import {
  APP,
  connectPusher,
  sdkOf,
  sharedPusher,
  startPusher,
  startReceiver,
} from '../helpers/pusher.js';
import '../helpers/short-timers.js';

const OPTIONS = { timeout: 60_000 };
const receiver = await startReceiver({ after });
const events = [
  'channel_occupied',
  'channel_vacated',
  'member_added',
  'member_removed',
  'client_event',
];
const HOOKED = { id: 'app-1', key: 'hooked', secret: APP.secret };
const start = sharedPusher(
  { [HOOKED.key]: { webhooks: [{ url: receiver.url, events }] } },
  { WORKERS: '1', FANFARE_RECONNECT_WINDOW_MS: '500' },
);
const require = createRequire(import.meta.url);
/** @type {any} */
const PusherJs = require('pusher-js');

/** @typedef {import('node:test').TestContext} TestContext */

/**
 * pusher-js in this process. The backend gets its user by name, as from a cookie.
 * @param {TestContext} t @param {number} port @param {string} name
 */
function openPusherJs(t, port, name) {
  const sdk = sdkOf(port);
  const answer = (/** @type {() => object} */ make, /** @type {Function} */ callback) => {
    try {
      callback(null, make());
    } catch (error) {
      callback(error, null);
    }
  };
  const pusher = new PusherJs(APP.key, {
    ...{
      cluster: '',
      wsHost: '127.0.0.1',
      wsPort: port,
      forceTLS: false,
      enabledTransports: ['ws'],
    },
    channelAuthorization: {
      customHandler: (/** @type {any} */ { socketId, channelName }, /** @type {any} */ callback) =>
        answer(
          () =>
            sdk.authorizeChannel(socketId, channelName, {
              user_id: name,
              user_info: { name },
            }),
          callback,
        ),
    },
    userAuthentication: {
      customHandler: (/** @type {any} */ { socketId }, /** @type {any} */ callback) =>
        answer(() => sdk.authenticateUser(socketId, { id: name, watchlist: ['ben'] }), callback),
    },
  });
  t.after(() => pusher.disconnect());
  return pusher;
}

/** The next event of pusher-js. @param {any} source @param {string} event @returns {Promise<any>} */
const next = (source, event) =>
  new Promise((resolve) => {
    const listener = (/** @type {any} */ data, /** @type {any} */ meta) => {
      source.unbind(event, listener);
      resolve(meta === undefined || Object.keys(meta).length === 0 ? data : { data, ...meta });
    };
    source.bind(event, listener);
  });

/** @param {any} pusher @param {string} name */
async function subscribe(pusher, name) {
  const channel = pusher.subscribe(name);
  const error = next(channel, 'pusher:subscription_error').then((data) => {
    throw new Error(`${name}: ${JSON.stringify(data)}`);
  });
  await Promise.race([next(channel, 'pusher:subscription_succeeded'), error]);
  return channel;
}

test('pusher-js in Node: every kind of channel', OPTIONS, async (t) => {
  const { port } = await start(t);
  const sdk = sdkOf(port);
  const [ann, ben] = [openPusherJs(t, port, 'ann'), openPusherJs(t, port, 'ben')];

  const news = await subscribe(ann, 'news');
  const greeting = next(news, 'greeting');
  await sdk.trigger('news', 'greeting', { text: 'hällo' });
  assert.deepEqual(await greeting, { text: 'hällo' });

  const encrypted = await subscribe(ann, 'private-encrypted-x');
  const secret = next(encrypted, 'secret');
  await sdk.trigger('private-encrypted-x', 'secret', { a: 1 });
  assert.deepEqual(await secret, { a: 1 });

  await sdk.trigger('cache-x', 'state', { n: 7 });
  const cached = ann.subscribe('cache-x');
  assert.deepEqual(await next(cached, 'state'), { n: 7 });
  await next(ben.subscribe('cache-empty'), 'pusher:cache_miss');

  const room = await subscribe(ann, 'presence-room');
  assert.deepEqual(room.members.me, { id: 'ann', info: { name: 'ann' } });
  const added = next(room, 'pusher:member_added');
  const same = await subscribe(ben, 'presence-room');
  assert.deepEqual(await added, { id: 'ben', info: { name: 'ben' } });
  assert.equal(same.members.count, 2);
  const whisper = next(room, 'client-typing');
  same.trigger('client-typing', { on: true });
  assert.deepEqual(await whisper, { data: { on: true }, user_id: 'ben' });
  const removed = next(room, 'pusher:member_removed');
  ben.disconnect();
  assert.equal((await removed).id, 'ben');
});

test('pusher-js in Node: excluded, signed in, terminated', OPTIONS, async (t) => {
  const { port } = await start(t);
  const sdk = sdkOf(port);
  const [ann, ben] = [openPusherJs(t, port, 'ann'), openPusherJs(t, port, 'ben')];
  const channels = [await subscribe(ann, 'news'), await subscribe(ben, 'news')];
  /** @type {string[]} */
  const seen = [];
  for (const [index, channel] of channels.entries())
    channel.bind('e', (/** @type {string} */ data) => seen.push(`${index} ${data}`));
  await sdk.trigger('news', 'e', 'not for ann', { socket_id: ann.connection.socket_id });
  const last = next(channels[0], 'e');
  await sdk.trigger('news', 'e', 'for both');
  await last;
  await until(() => seen.length === 3);
  assert.deepEqual(seen.sort(), ['0 for both', '1 for both', '1 not for ann']);

  ann.signin();
  await ann.user.signinDonePromise;
  const hello = next(ann.user, 'hello');
  await sdk.sendToUser('ann', 'hello', { n: 1 });
  assert.deepEqual(await hello, { n: 1 });
  ben.signin();
  await ben.user.signinDonePromise;
  await sdk.terminateUserConnections('ben');
  await until(() => ben.connection.state === 'disconnected');
  assert.equal(ann.connection.state, 'connected');
});

test('pusher-js in Node: users who are watched', OPTIONS, async (t) => {
  const { port } = await start(t);
  const [ann, ben] = [openPusherJs(t, port, 'ann'), openPusherJs(t, port, 'ben')];
  ann.signin();
  await ann.user.signinDonePromise;
  const online = next(ann.user.watchlist, 'online');
  ben.signin();
  assert.deepEqual((await online).user_ids, ['ben']);
});

test('pusher-js in Node: comes back at once when all workers are replaced', OPTIONS, async (t) => {
  const { server } = await start(t);
  const ann = openPusherJs(t, server.port, 'ann');
  const news = await subscribe(ann, 'news');
  await subscribe(ann, 'presence-room');
  /** @type {string[]} */
  const states = [];
  ann.connection.bind('state_change', (/** @type {any} */ { current }) => states.push(current));
  const error = next(ann.connection, 'error');
  server.kill('SIGHUP');
  const greeting = next(news, 'greeting');
  await next(news, 'pusher:subscription_succeeded');
  await sdkOf(server.port).trigger('news', 'greeting', 1);
  assert.equal(await greeting, 1);
  assert.deepEqual(states, ['connecting', 'connected']);
  // After 4100 it would wait for a second.
  assert.equal((await error).data.code, 4200);
});

test(
  'pusher-js in Node: what was refused while Redis was unavailable works afterwards',
  OPTIONS,
  async (t) => {
    const redis = await startRedis(t);
    const { port } = await startPusher(t, {}, { REDIS_URL: redis.url, WORKERS: '1' });
    const ann = openPusherJs(t, port, 'ann');
    await subscribe(ann, 'news');
    await redis.kill();
    const room = ann.subscribe('presence-room');
    await next(room, 'pusher:subscription_error');
    ann.signin();
    await redis.restart();
    await next(room, 'pusher:subscription_succeeded');
    await ann.user.signinDonePromise;
    assert.equal(ann.connection.state, 'connected');
  },
);

test('the SDK pusher: batch, info, refusals, webhooks', OPTIONS, async (t) => {
  const { port } = await start(t);
  const { received } = receiver;
  const { id: appId, ...hooked } = HOOKED;
  const sdk = sdkOf(port, { appId, ...hooked });
  const ann = await connectPusher(t, port, HOOKED);
  await ann.subscribe('presence-room', { user_id: 'ann' });
  const bodyOf = async (/** @type {Promise<any>} */ response) => (await response).json();
  const get = (/** @type {string} */ path, /** @type {any} */ params) =>
    bodyOf(sdk.get({ path, params }));
  assert.deepEqual(await get('/channels/presence-room', { info: 'user_count' }), {
    occupied: true,
    user_count: 1,
  });
  assert.deepEqual(await get('/channels/presence-room/users', {}), { users: [{ id: 'ann' }] });
  const filter = { filter_by_prefix: 'presence-', info: 'user_count' };
  assert.deepEqual(await get('/channels', filter), {
    channels: { 'presence-room': { user_count: 1 } },
  });
  const info = { info: 'user_count' };
  const item = { channel: 'presence-room', name: 'e', data: '1' };
  assert.deepEqual(await bodyOf(sdk.trigger('presence-room', 'e', 0, info)), {
    channels: { 'presence-room': { user_count: 1 } },
  });
  const batch = [
    { ...item, ...info },
    { ...item, channel: 'news', data: '2' },
  ];
  assert.deepEqual(await bodyOf(sdk.triggerBatch(batch)), { batch: [{ user_count: 1 }, {}] });
  await ann.event('e');
  await ann.event('e');
  await assert.rejects(sdk.get({ path: '/channels/news/users' }), { status: 400 });
  await assert.rejects(sdkOf(port, { appId, ...hooked, secret: 'wrong' }).trigger('news', 'e', 1), {
    status: 401,
  });
  await assert.rejects(sdk.trigger('news', 'e', 'x'.repeat(10_241)), { status: 413 });

  // Who leaves before the courier runs has no effect.
  await until(() => received.some(({ body }) => body.includes('member_added')), 20_000);
  ann.send({ event: 'client-e', channel: 'presence-room', data: { a: 1 } });
  ann.socket.close();
  await until(() => received.some(({ body }) => body.includes('channel_vacated')), 20_000);
  const hooks = received.flatMap(({ headers, body }) => {
    const hook = sdk.webhook({ headers, rawBody: body });
    assert.ok(hook.isValid());
    const forged = sdk.webhook({ headers, rawBody: body.replace('time_ms', 'time_mz') });
    assert.ok(!forged.isValid());
    return /** @type {any[]} */ (hook.getEvents());
  });
  const channel = 'presence-room';
  assert.deepEqual(
    hooks.filter(({ name }) => name !== 'client_event'),
    [
      { name: 'channel_occupied', channel },
      { name: 'member_added', channel, user_id: 'ann' },
      { name: 'member_removed', channel, user_id: 'ann' },
      { name: 'channel_vacated', channel },
    ],
  );
  const client = hooks.find(({ name }) => name === 'client_event');
  const { socketId: socket_id } = ann;
  const wanted = { name: 'client_event', channel, event: 'client-e', data: '{"a":1}', socket_id };
  assert.deepEqual(client, { ...wanted, user_id: 'ann' });
});

/**
 * A web server with the browser bundles and an auth endpoint, as Laravel has one.
 * @param {TestContext} t @param {number} port of Fanfare @returns {Promise<string>} its address
 */
async function startWeb(t, port) {
  const sdk = sdkOf(port);
  const app = express();
  app.use(express.urlencoded({ extended: true }));
  const distOf = (/** @type {string} */ name) => dirname(require.resolve(`${name}/package.json`));
  app.use('/pusher', express.static(join(distOf('pusher-js'), 'dist/web')));
  app.use('/echo', express.static(join(dirname(require.resolve('laravel-echo')))));
  app.get('/', (_, res) => {
    res.send(`<!doctype html><title>x</title><link rel="icon" href="data:,">
      <script src="/pusher/pusher-with-encryption.min.js"></script>
      <script src="/echo/echo.iife.js"></script>`);
  });
  app.post('/broadcasting/auth', (req, res) => {
    const name = String(req.get('X-User'));
    const { socket_id, channel_name } = req.body;
    if (channel_name === 'private-forbidden') res.status(403).send('{}');
    else
      res.send(
        sdk.authorizeChannel(socket_id, channel_name, { user_id: name, user_info: { name } }),
      );
  });
  const server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${Object(server.address()).port}/`;
}

test('Laravel Echo in Chromium as pusher and as reverb: listen, whisper, here, encrypted', {
  ...OPTIONS,
  skip: withoutChromium,
}, async (t) => {
  const { port } = await start(t);
  const sdk = sdkOf(port);
  const browser = await openBrowser(t);
  const url = await startWeb(t, port);
  const [ann, ben] = [await browser.newPage(), await browser.newPage()];
  const sees = (/** @type {any} */ page, /** @type {string} */ text) =>
    page.waitForFunction(`seen.includes(${JSON.stringify(text)})`, undefined, {
      timeout: 15_000,
    });
  for (const broadcaster of ['pusher', 'reverb']) {
    const open = async (/** @type {any} */ page, /** @type {string} */ name) => {
      await page.goto(url);
      await page.evaluate(
        `window.seen = [];
         window.say = (what) => (data) => seen.push(what + ' ' + JSON.stringify(data));
         window.echo = new Echo.default({ broadcaster: '${broadcaster}', key: '${APP.key}', cluster: '',
           wsHost: '127.0.0.1', wsPort: ${port}, forceTLS: false, enabledTransports: ['ws'],
           authEndpoint: '/broadcasting/auth', auth: { headers: { 'X-User': '${name}' } } });
         echo.join('room').here(say('here')).joining(say('joining')).leaving(say('leaving'))
           .listenForWhisper('typing', say('typing')).subscribed(say('subscribed'));`,
      );
    };
    await open(ann, 'ann');
    await sees(ann, 'here [{"name":"ann"}]');
    await open(ben, 'ben');
    await sees(ann, 'joining {"name":"ben"}');
    await ben.waitForFunction('seen.some((text) => text.startsWith("here"))');
    await ben.evaluate(`echo.join('room').whisper('typing', { on: true })`);
    await sees(ann, 'typing {"on":true}');
    await ann.evaluate(
      `echo.channel('news').listen('.greeting', say('greeting')).subscribed(say('news'));
       echo.channel('news').listen('Order\\\\Shipped', say('shipped'));
       echo.encryptedPrivate('vault').listen('.secret', say('secret')).subscribed(say('vault'));
       echo.private('forbidden').error(say('error'));`,
    );
    await ann.waitForFunction(`seen.some((text) => text.startsWith('news')) &&
      seen.some((text) => text.startsWith('vault')) && seen.some((text) => text.startsWith('error'))`);
    await sdk.trigger('news', 'greeting', { a: 'ü' });
    await sdk.trigger('news', 'App\\Events\\Order\\Shipped', { id: 1 });
    await sdk.trigger('private-encrypted-vault', 'secret', { s: 1 });
    await sees(ann, 'greeting {"a":"ü"}');
    await sees(ann, 'shipped {"id":1}');
    await sees(ann, 'secret {"s":1}');
    await ben.goto('about:blank');
    await sees(ann, 'leaving {"name":"ben"}');
    await ann.goto('about:blank');
  }
});
