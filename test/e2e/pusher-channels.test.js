// pusher-channels.test.js: frames of the Pusher door: subscriptions, their order, client events,
// cache channels, and the type of every `data`.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { scrape } from '../harness/server.js';
import { connect as connectNative } from '../helpers/clients.js';
import { APP, hmac, sharedPusher, startPusher } from '../helpers/pusher.js';

const OPTIONS = { timeout: 60_000 };
const SUCCEEDED = 'pusher_internal:subscription_succeeded';
/** The events whose data is an object. All others have a string. */
const OBJECTS = [
  'pusher:error',
  'pusher:signin_success',
  'pusher:subscription_error',
  'pusher_internal:watchlist_events',
];

/** @typedef {import('../helpers/pusher.js').PusherClient} PusherClient */

/** The type of the data of every frame so far. @param {readonly PusherClient[]} clients */
function assertTypes(...clients) {
  for (const { event, data } of clients.flatMap(({ messages }) => messages)) {
    const isObject = OBJECTS.includes(event);
    assert.equal(typeof data, isObject ? 'object' : 'string', `${event}: ${data}`);
    if (event === 'pusher:error')
      assert.ok(data.code === null || typeof data.code === 'number', `code ${data.code}`);
  }
}

const start = sharedPusher({
  rotated: { secrets: ['new-secret', APP.secret] },
  soketi: { preset: 'soketi', maxClientEventsPerSecond: -1 },
  slow: { clientEventsPerSecond: 5 },
  quiet: { clientEvents: false },
  other: {},
  sharing: { shared: true, publicRooms: ['news', 'open-*', 'cache-open', 'a/eb'] },
});

describe('subscribe', () => {
  test(
    'in a shared app, a channel without a signature needs a place among its public rooms',
    OPTIONS,
    async (t) => {
      const client = await (await start(t, 'sharing')).connect();
      await client.signin({ id: 'ann' }); // is no right to read native rooms
      for (const name of ['news', 'open-1', 'cache-open', 'a=b', 'private-x', 'private-news'])
        assert.deepEqual(await client.subscribe(name), {}, name);
      await client.subscribe('presence-x', { user_id: 'ann' });
      for (const name of ['team.board', 'newspaper', 'cache-x', 'open']) {
        client.sendSubscribe(name);
        const { data } = await client.event('pusher:subscription_error', name);
        assert.deepEqual([data.type, data.status], ['AuthError', 401], name);
        assert.match(data.error, /publicRooms/);
      }
    },
  );

  test('each kind of channel is answered, with its data as text', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    const names = ['news', 'a-b_c=d@e,f.g;h', 'cachestuff', 'private-x', 'private-encrypted-x'];
    for (const name of names) {
      assert.deepEqual(await client.subscribe(name), {}, name);
      const [text] = client.texts.slice(-1);
      assert.equal(text, `{"event":"${SUCCEEDED}","channel":"${name}","data":"{}"}`);
    }
    for (const name of ['cache-x', 'private-cache-x', 'private-encrypted-cache-x']) {
      assert.deepEqual(await client.subscribe(name), {}, name);
      await client.event('pusher:cache_miss', name);
    }
    for (const name of ['presence-x', 'presence-cache-x']) {
      const { presence } = await client.subscribe(name, { user_id: '1' });
      assert.deepEqual(presence, { ids: ['1'], hash: { 1: {} }, count: 1 });
    }
    assertTypes(client);
  });

  test('a channel of another prefix than with a dash is public', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    for (const channel of ['privatestuff', 'presencestuff', 'cachestuff', 'private', 'presence_x'])
      assert.deepEqual(await client.subscribe(channel), {});
  });

  test('a wrong signature is refused, and the right one is not told', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    const channel = 'private-x';
    const right = hmac(APP.secret, `${client.socketId}:${channel}`);
    const wrongs = [
      undefined,
      '',
      1,
      right,
      `${APP.key}:`,
      `${APP.key}:${'0'.repeat(64)}`,
      `${APP.key}:${right.slice(0, 63)}`,
      `${APP.key}:${right}0`,
      `${APP.key}:${hmac(APP.secret, `1.1:${channel}`)}`,
      `${APP.key}:${hmac(APP.secret, `${client.socketId}:private-y`)}`,
      `other:${right}`,
    ];
    for (const auth of wrongs) {
      client.send({ event: 'pusher:subscribe', data: { channel, auth } });
      const { channel: of, data } = await client.event('pusher:subscription_error');
      assert.deepEqual([of, data.type, data.status], [channel, 'AuthError', 401], String(auth));
      if (!String(auth).includes(right)) assert.ok(!data.error.includes(right));
    }
    const [first] = client.of(channel, 'pusher:subscription_error');
    const data = { type: 'AuthError', error: 'The connection is unauthorized.', status: 401 };
    assert.deepEqual(first, { event: 'pusher:subscription_error', channel, data });
    const [last] = client.of(channel, 'pusher:subscription_error').slice(-1);
    assert.equal(last.data.error, "Invalid key in subscription auth data: 'other'");
    client.send({
      event: 'pusher:subscribe',
      data: JSON.stringify({ channel, auth: `${APP.key}:${right.toUpperCase()}` }),
    });
    await client.event(SUCCEEDED, channel);
    assertTypes(client);
  });

  test(
    'the signature covers channel_data, byte for byte, also where it means nothing',
    OPTIONS,
    async (t) => {
      const { connect } = await start(t);
      const client = await connect();
      const channel = 'private-x';
      const channel_data = ' {"a" : "\u00fc",\n"user_id":"1"}';
      const signed = hmac(APP.secret, `${client.socketId}:${channel}:${channel_data}`);
      const auth = `${APP.key}:${signed}`;
      client.send({ event: 'pusher:subscribe', data: { channel, auth, channel_data: '{}' } });
      await client.event('pusher:subscription_error', channel);
      client.send({ event: 'pusher:subscribe', data: { channel, auth, channel_data } });
      await client.event(SUCCEEDED, channel);
    },
  );

  test('no channel_data may be null, as pusher-js passes it on', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    const data = { channel: 'private-x', auth: client.authOf('private-x'), channel_data: null };
    client.send({ event: 'pusher:subscribe', data });
    await client.event(SUCCEEDED, 'private-x');
  });

  test('every secret of an app verifies', OPTIONS, async (t) => {
    const { connect } = await start(t, 'rotated');
    await (await connect()).subscribe('private-x');
  });

  test('names have 1 to 200 characters of the alphabet', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    for (const length of [1, 164, 165, 200]) await client.subscribe('x'.repeat(length));
    for (const name of ['', 'x'.repeat(201), 'a b', 'a/b', 'a:b', '#a', 'a#', 'ä', 'a\n', '~1:a']) {
      client.sendSubscribe(name);
      const answer = await client.next(({ event }) =>
        ['pusher:subscription_error', 'pusher:error'].includes(event),
      );
      if (answer.event === 'pusher:subscription_error') assert.equal(answer.data.status, 4009);
    }
    assert.equal(client.close, null);
    assertTypes(client);
  });

  test('a second subscription is an error, and makes no second member', OPTIONS, async (t) => {
    const { connect, api } = await start(t);
    const client = await connect();
    await client.subscribe('news');
    client.sendSubscribe('news');
    const { data } = await client.event('pusher:error');
    assert.deepEqual([data.code, data.message], [null, 'Existing subscription to channel news']);
    await api('/events', { name: 'e', data: '1', channel: 'news' });
    await client.event('e');
    await client.pong();
    assert.deepEqual(
      client.of('news').flatMap(({ event }) => (event === 'pusher:error' ? [] : [event])),
      [SUCCEEDED, 'e'],
    );
  });

  test('a hundred at once are all answered; names of Object are names', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    const names = Array.from({ length: 97 }, (_, i) => `presence-room-${i}`);
    names.push('__proto__', 'constructor', 'toString');
    for (const name of names)
      client.sendSubscribe(
        name,
        name.startsWith('presence') ? { user_id: '__proto__' } : undefined,
      );
    await client.collect((frame) => frame.event === SUCCEEDED, 100);
    const { presence } = JSON.parse(client.of(names[0])[0].data);
    assert.deepEqual(presence.ids, ['__proto__']);
    assert.deepEqual(Object.keys(presence.hash), ['__proto__']);
    assert.equal(client.close, null);
  });

  test(
    'unsubscribe is silent, holds from then on, and may come early or twice',
    OPTIONS,
    async (t) => {
      const { connect, api } = await start(t);
      const client = await connect();
      client.sendSubscribe('news');
      client.unsubscribe('news');
      client.unsubscribe('news');
      client.unsubscribe('never');
      await client.event(SUCCEEDED, 'news');
      await client.pong();
      await client.subscribe('other');
      await api('/events', { name: 'e', data: '1', channels: ['news', 'other'] });
      await client.event('e', 'other');
      assert.deepEqual(client.of('news', 'e'), []);
      assert.deepEqual(
        client.all(({ event }) => event === 'pusher:error'),
        [],
      );
      await client.subscribe('news');
    },
  );
});

test(
  'the success comes before each event of its channel, and events keep their order',
  OPTIONS,
  async (t) => {
    const { connect, api } = await start(t);
    const clients = [await connect(), await connect(), await connect(), await connect()];
    let isPublishing = true;
    let published = 0;
    const publisher = (async () => {
      while (isPublishing)
        await api('/events', { name: 'e', data: String(published++), channel: 'private-x' });
    })();
    for (let round = 0; round < 10; round++)
      for (const client of clients) {
        const before = client.messages.length;
        await client.subscribe('private-x');
        await client.event('e', 'private-x');
        client.unsubscribe('private-x');
        await client.pong();
        const [first, ...events] = client.messages
          .slice(before)
          .filter(({ channel }) => channel === 'private-x');
        assert.equal(first.event, SUCCEEDED);
        for (const [index, { event, data }] of events.entries()) {
          assert.equal(event, 'e');
          assert.equal(Number(data), Number(events[0].data) + index, 'without a gap');
        }
      }
    isPublishing = false;
    await publisher;
  },
);

describe('client events', () => {
  test(
    'reach the others as text, never the sender, with the user of a member',
    OPTIONS,
    async (t) => {
      const { connect } = await start(t);
      const [ann, ben] = [await connect(), await connect()];
      for (const [client, user_id] of /** @type {const} */ ([
        [ann, 7],
        [ben, 'ben'],
      ])) {
        await client.subscribe('private-x');
        await client.subscribe('presence-x', { user_id });
      }
      const cases = [
        [{ b: [1, 'ü'] }, '{"b":[1,"ü"]}'],
        ['text "quoted"', 'text "quoted"'],
        [12345678901234567890n, '12345678901234567890'],
        [null, 'null'],
        [undefined, '{}'],
      ];
      for (const [data, wanted] of cases) {
        const text =
          data === undefined
            ? ''
            : `,"data":${typeof data === 'bigint' ? data : JSON.stringify(data)}`;
        ann.send(`{"event":"client-e","channel":"private-x"${text},"user_id":"forged"}`);
        const frame = await ben.event('client-e', 'private-x');
        assert.deepEqual(frame, { event: 'client-e', channel: 'private-x', data: wanted });
      }
      ann.send({ event: 'client-e', channel: 'presence-x', data: {}, user_id: 'forged' });
      assert.equal((await ben.event('client-e', 'presence-x')).user_id, '7');
      await ann.pong();
      assert.deepEqual(
        ann.all(({ event }) => event === 'client-e'),
        [],
      );
      assertTypes(ann, ben);
    },
  );

  test('keep the form of their data, as with soketi, if the app wants it', OPTIONS, async (t) => {
    const { connect } = await start(t, 'soketi');
    const [ann, ben] = [await connect(), await connect()];
    for (const client of [ann, ben]) await client.subscribe('private-x');
    for (const data of [{ a: [1] }, 'text', null]) {
      ann.send({ event: 'client-e', channel: 'private-x', data });
      assert.deepEqual((await ben.event('client-e')).data, data);
    }
    ann.send({ event: 'client-e', channel: 'private-x' });
    assert.equal((await ben.event('client-e')).data, '{}', 'there is always data');
    // More than the usual limit.
    for (let i = 0; i < 20; i++) ann.send({ event: 'client-e', channel: 'private-x', data: i });
    for (let i = 0; i < 20; i++) assert.equal((await ben.event('client-e')).data, i);
  });

  test('are refused without a close', OPTIONS, async (t) => {
    const { connect } = await start(t, 'slow');
    const [client, other] = [await connect(), await connect()];
    for (const channel of ['news', 'private-x', 'private-encrypted-x', 'private-cache-x']) {
      await client.subscribe(channel);
      await other.subscribe(channel);
    }
    const refused = async (/** @type {string} */ channel, /** @type {object} */ frame = {}) => {
      client.send({ event: 'client-e', channel, data: {}, ...frame });
      return (await client.event('pusher:error')).data;
    };
    assert.match((await refused('news')).message, /only supported on private and presence/);
    assert.match((await refused('private-encrypted-x')).message, /private and presence/);
    assert.match((await refused('private-y')).message, /not subscribed/);
    assert.match((await refused('private-x', { event: 'e' })).message, /start with client-/);
    assert.equal((await refused('private-x', { event: `client-${'e'.repeat(194)}` })).code, 4301);
    assert.equal((await refused('private-x', { data: 'x'.repeat(10_241) })).code, 4301);
    // One that is too large has counted, as everybody's messages do.
    for (let i = 0; i < 10; i++) client.send({ event: 'client-e', channel: 'private-x', data: i });
    const { data } = await client.event('pusher:error');
    assert.equal(data.code, 4301);
    const isPassed = (/** @type {import('../helpers/clients.js').Message} */ frame) =>
      frame.event === 'client-e' && frame.channel === 'private-x';
    const passed = (await other.collect(isPassed, 4)).map(({ data }) => Number(data));
    assert.deepEqual(passed.slice(0, 4), [0, 1, 2, 3]);
    assert.ok(passed.length < 10);
    assert.equal(client.close, null);
    assertTypes(client, other);
  });

  test('are off unless the app has them', OPTIONS, async (t) => {
    const { connect } = await start(t, 'quiet');
    const client = await connect();
    await client.subscribe('private-x');
    client.send({ event: 'client-e', channel: 'private-x', data: {} });
    assert.equal((await client.event('pusher:error')).data.code, 4301);
  });
});

for (const backend of ['embedded', 'redis'])
  test(`cache channels keep the last event of the server: ${backend}`, OPTIONS, async (t) => {
    /** @type {Record<string, string>} */
    const env = { FANFARE_RECONNECT_WINDOW_MS: '500' };
    if (backend === 'redis') env.REDIS_URL = (await startRedis(t)).url;
    const { connect, api, server } =
      backend === 'redis' ? await startPusher(t, {}, env) : await start(t);
    const first = await connect();
    for (const channel of ['cache-kept', 'private-cache-kept', 'presence-cache-kept']) {
      const member = channel.startsWith('presence') ? { user_id: '1' } : undefined;
      await first.subscribe(channel, member);
      const miss = await first.event('pusher:cache_miss', channel);
      assert.deepEqual(miss, { event: 'pusher:cache_miss', channel, data: '{}' });
      await api('/events', { name: 'old', data: '0', channel });
      await api('/events', { name: 'App\\Events\\X', data: '{"a":"ü"}', channel });
      await first.event('App\\Events\\X', channel);
      if (channel !== 'cache-kept') first.send({ event: 'client-e', channel, data: 'not kept' });
      const second = await connect();
      await second.subscribe(channel, member && { user_id: '2' });
      const frame = await second.next((one) => one.channel === channel);
      assert.deepEqual(frame, { event: 'App\\Events\\X', channel, data: '{"a":"ü"}' });
      await second.pong();
      assert.equal(second.of(channel, 'App\\Events\\X').length, 1);
      if (channel !== 'cache-kept') {
        second.send({ event: 'client-f', channel, data: 'to members' });
        await first.event('client-f', channel);
      }
      // An event that leaves out a connection is the last one for that connection, too.
      const but = { name: 'but', data: '1', channel, socket_id: second.socketId };
      await api('/events', but);
      await first.event('but', channel);
      second.unsubscribe(channel);
      await second.subscribe(channel, member && { user_id: '2' });
      await second.pong();
      assert.equal(second.of(channel, 'but').length, 1);
      assert.equal(second.of(channel, 'pusher:cache_miss').length, 0);
      await api('/events', { name: 'App\\Events\\X', data: '{"a":"ü"}', channel });
      assertTypes(first, second);
    }
    // An event without an offset that is not marked would end the room's epoch.
    const { values } = await scrape(server.metricsPort);
    assert.equal(values.get('fanfare_unnumbered_publications_total'), 0);
    if (backend === 'embedded') return;
    // The next server has the event.
    server.kill('SIGTERM');
    await server.exited;
    const next = await startPusher(t, {}, { ...env, WORKERS: '1' });
    const client = await next.connect();
    await client.subscribe('cache-kept');
    assert.equal((await client.event('App\\Events\\X', 'cache-kept')).data, '{"a":"ü"}');
  });

test('apps and native rooms are apart, unless the app is shared', OPTIONS, async (t) => {
  const apps = [await start(t), await start(t, 'other'), await start(t, 'sharing')];
  const [{ server, api }, , sharing] = apps;
  const [own, other, member] = [
    await apps[0].connect(),
    await apps[1].connect(),
    await sharing.connect(),
  ];
  const native = await connectNative(t, `ws://127.0.0.1:${server.port}/ws`);
  await native.join('news');
  for (const client of [own, other, member]) await client.subscribe('news');
  await sharing.api('/events', { name: 'e', data: '{"a":1}', channel: 'news' });
  assert.deepEqual((await native.next('message')).payload, { event: 'e', data: '{"a":1}' });
  assert.equal((await member.event('e', 'news')).data, '{"a":1}');
  native.send({ type: 'message', room: 'news', payload: { free: 'form' } });
  assert.equal((await member.event('message', 'news')).data, '{"free":"form"}');
  native.send({ type: 'message', room: 'news', payload: { event: 'x', data: '1' } });
  assert.equal((await member.event('x', 'news')).data, '1');
  await api('/events', { name: 'mine', data: '2', channel: 'news' });
  await own.event('mine', 'news');
  for (const client of [own, other]) {
    await client.pong();
    assert.deepEqual(
      client.of('news').filter(({ event }) => event !== SUCCEEDED && event !== 'mine'),
      [],
    );
  }
  assert.deepEqual(other.of('news', 'mine'), []);
});
