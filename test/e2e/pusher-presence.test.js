// pusher-presence.test.js: frames of the Pusher door: members of presence channels over workers and
// servers, signed-in users, watch lists.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { startServer } from '../harness/server.js';
import { APP, entryOf, hmac, pusherOf, sharedPusher, writeApps } from '../helpers/pusher.js';
import { shared } from '../helpers/shared.js';
import { startTcpProxy } from '../helpers/tcp-proxy.js';

const OPTIONS = { timeout: 60_000 };
const ADDED = 'pusher_internal:member_added';
const REMOVED = 'pusher_internal:member_removed';
const ROOM = 'presence-room';
const start = sharedPusher({
  hasty: { authorizeWithinMs: 1500 },
  counting: { subscriptionCount: true },
  small: { maxPresenceMembers: 2, maxMemberBytes: 100 },
});

/** @typedef {import('../helpers/pusher.js').PusherClient} PusherClient */

/**
 * Subscribes with channel_data as it is written.
 * @param {PusherClient} client @param {string} text
 */
function sendMember(client, text, channel = ROOM) {
  client.send({
    event: 'pusher:subscribe',
    data: { channel, auth: client.authOf(channel, text), channel_data: text },
  });
}

/** Two servers; the second one's wire to Redis can be slow. */
const twoServers = shared(async (t) => {
  const { port } = await startRedis(t);
  const wire = await startTcpProxy(t, port);
  const env = { FANFARE_PUSHER_APPS: writeApps(t, [entryOf()]), WORKERS: '1' };
  const quick = await startServer(t, { ...env, REDIS_URL: `redis://127.0.0.1:${port}` });
  const slow = await startServer(t, { ...env, REDIS_URL: wire.url });
  return { wire, quick, slow };
});

/**
 * Connections to two workers of one server, or to two servers.
 * @param {import('node:test').TestContext} t @param {'embedded'|'redis'} backend
 * @returns {Promise<{connect: () => Promise<PusherClient>}>} its connections alternate
 */
async function startTwo(t, backend) {
  if (backend === 'embedded') return start(t);
  const { quick, slow } = await twoServers();
  const servers = [quick, slow];
  let turn = 0;
  return { connect: () => pusherOf(t, servers[turn++ % 2]).connect() };
}

for (const backend of /** @type {const} */ (['embedded', 'redis']))
  describe(`presence, ${backend}`, () => {
    test(
      'members see who is there, who comes and who goes, once for each user',
      OPTIONS,
      async (t) => {
        const { connect } = await startTwo(t, backend);
        const ann = await connect();
        const { presence } = await ann.subscribe(ROOM, { user_id: 'ann', user_info: { n: 1 } });
        assert.deepEqual(presence, { ids: ['ann'], hash: { ann: { n: 1 } }, count: 1 });

        const tabs = [await connect(), await connect()];
        for (const tab of tabs) {
          const seen = await tab.subscribe(ROOM, { user_id: 'ben' });
          assert.deepEqual(seen.presence.ids.sort(), ['ann', 'ben']);
          assert.deepEqual(seen.presence.hash, { ann: { n: 1 }, ben: {} });
          assert.equal(seen.presence.count, 2);
        }
        const added = await ann.event(ADDED, ROOM);
        assert.equal(JSON.parse(added.data).user_id, 'ben');
        tabs[0].socket.close();
        await tabs[0].closed();
        await tabs[1].pong();
        tabs[1].unsubscribe(ROOM);
        const removed = await ann.event(REMOVED, ROOM);
        assert.deepEqual(JSON.parse(removed.data), { user_id: 'ben' });
        await ann.pong();
        assert.equal(ann.of(ROOM, ADDED).length, 1, 'two tabs are one user');
        assert.equal(ann.of(ROOM, REMOVED).length, 1);
        assert.deepEqual(
          tabs.flatMap((tab) => [...tab.of(ROOM, ADDED), ...tab.of(ROOM, REMOVED)]),
          [],
        );
      },
    );

    test('a numeric id keeps its digits, and is the user of its text', OPTIONS, async (t) => {
      const { connect } = await startTwo(t, backend);
      const room = 'presence-numbers';
      const ann = await connect();
      await ann.subscribe(room, { user_id: 'ann' });
      const ben = await connect();
      sendMember(ben, '{"user_id":12345678901234567890,"user_info":{"big":1.0}}', room);
      const { data } = await ben.event('pusher_internal:subscription_succeeded', room);
      assert.deepEqual(JSON.parse(data).presence.ids.sort(), ['12345678901234567890', 'ann']);
      const added = await ann.event(ADDED, room);
      assert.equal(added.data, '{"user_id":12345678901234567890,"user_info":{"big":1.0}}');
      const same = await connect();
      await same.subscribe(room, { user_id: '12345678901234567890' });
      ben.unsubscribe(room);
      await ben.pong();
      same.unsubscribe(room);
      const removed = await ann.event(REMOVED, room);
      assert.match(removed.data, /^\{"user_id":"?12345678901234567890"?\}$/);
      await ann.pong();
      assert.deepEqual([ann.of(room, ADDED).length, ann.of(room, REMOVED).length], [1, 1]);
    });
  });

describe('a user with a connection elsewhere', () => {
  /** @param {import('node:test').TestContext} t */
  async function startSlow(t) {
    const { wire, quick, slow } = await twoServers();
    wire.change({});
    return { wire, quick: pusherOf(t, quick), slow: pusherOf(t, slow) };
  }

  test('is a member on this server, too, before the success is sent', OPTIONS, async (t) => {
    const { wire, quick, slow } = await startSlow(t);
    const [ann, ben] = [await quick.connect(), await quick.connect()];
    const [cat, same] = [await slow.connect(), await slow.connect()];
    await ann.subscribe(ROOM, { user_id: 'ann' });
    await ben.subscribe(ROOM, { user_id: 'ben' });
    await cat.subscribe(ROOM, { user_id: 'cat' });
    await ann.next(({ event, data }) => event === ADDED && JSON.parse(data).user_id === 'cat');
    wire.change({ latencyMs: 300 });
    await same.subscribe(ROOM, { user_id: 'ben' });
    ben.unsubscribe(ROOM);
    await ben.pong();
    for (const client of [same, cat]) client.unsubscribe(ROOM);
    await ann.next(({ event, data }) => event === REMOVED && JSON.parse(data).user_id === 'cat');
    const users = [ADDED, REMOVED].map((event) =>
      ann.of(ROOM, event).map(({ data }) => JSON.parse(data).user_id),
    );
    assert.deepEqual(users, [
      ['ben', 'cat'],
      ['ben', 'cat'],
    ]);
  });

  test('is online on this server, too, before the sign-in is confirmed', OPTIONS, async (t) => {
    const { wire, quick, slow } = await startSlow(t);
    const [ben, ann] = [await quick.connect(), await quick.connect()];
    const [same, dan] = [await slow.connect(), await slow.connect()];
    await ben.signin({ id: 'ben' });
    await ann.signin({ id: 'ann', watchlist: ['ben', 'dan'] });
    const isWatch = (/** @type {any} */ { event }) => event === 'pusher_internal:watchlist_events';
    await ann.next(isWatch);
    wire.change({ latencyMs: 300 });
    await same.signin({ id: 'ben' });
    ben.socket.close();
    await ben.closed();
    await dan.signin({ id: 'dan' });
    await ann.next((frame) => isWatch(frame) && frame.data.events[0].user_ids[0] === 'dan');
    assert.deepEqual(
      ann.all(isWatch).flatMap(({ data }) => data.events),
      [
        { name: 'online', user_ids: ['ben'] },
        { name: 'offline', user_ids: ['dan'] },
        { name: 'online', user_ids: ['dan'] },
      ],
    );
  });
});

describe('members', () => {
  test('without an id are refused, after their signature was verified', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    const wrong = ['{}', '[]', 'null', '{"user_id":null}', '{"user_id":""}', '{"user_id":{}}', '{'];
    for (const text of wrong) {
      sendMember(client, text);
      const { data } = await client.event('pusher:subscription_error', ROOM);
      assert.deepEqual([data.type, data.status], ['AuthError', 401], text);
    }
    client.sendSubscribe(ROOM);
    const { data } = await client.event('pusher:subscription_error', ROOM);
    assert.equal(data.status, 401);
    for (const id of ['__proto__', 'constructor', 'a b/ü~"', '0', 'x'.repeat(128)]) {
      const { presence } = await client.subscribe(ROOM, { user_id: id, user_info: { __proto: 1 } });
      assert.deepEqual(presence.ids, [id]);
      assert.deepEqual(Object.keys(presence.hash), [id]);
      client.unsubscribe(ROOM);
      await client.pong();
    }
  });

  test('have limits: their number, bytes and the length of an id', OPTIONS, async (t) => {
    const { connect } = await start(t, 'small');
    const [first, second, third] = [await connect(), await connect(), await connect()];
    await first.subscribe(ROOM, { user_id: '0' });
    await second.subscribe(ROOM, { user_id: '1' });
    // Until each worker knows of both, more may enter.
    await first.event('pusher_internal:member_added', ROOM);
    await assert.rejects(third.subscribe(ROOM, { user_id: 'c' }), /LimitReached.*4100/);
    await third.subscribe(ROOM, { user_id: '1' });
    const other = await connect();
    const long = { user_id: 'l', user_info: 'x'.repeat(99) };
    await assert.rejects(other.subscribe('presence-b', long), /LimitReached.*4301/);
    await assert.rejects(
      other.subscribe('presence-b', { user_id: 'x'.repeat(129) }),
      /LimitReached.*4301/,
    );
    await other.signin({ id: 'l', user_info: long.user_info });
    other.sendSubscribe('presence-b'); // as the signed-in user
    const { data } = await other.event('pusher:subscription_error', 'presence-b');
    assert.deepEqual([data.type, data.status], ['LimitReached', 4301]);
    assert.equal(other.close, null);
  });
});

describe('users', () => {
  test(
    'sign in, and receive events of their own on all of their connections',
    OPTIONS,
    async (t) => {
      const { connect, api } = await start(t);
      const clients = [await connect(), await connect()];
      for (const client of clients) {
        const answer = await client.signin({ id: 'ann', user_info: { a: 1 } });
        assert.deepEqual(JSON.parse(answer.data.user_data), { id: 'ann', user_info: { a: 1 } });
      }
      const channel = '#server-to-user-ann';
      assert.deepEqual((await api('/events', { name: 'hi', data: '1', channel })).body, {});
      for (const client of clients) {
        assert.deepEqual(await client.event('hi'), { event: 'hi', channel, data: '1' });
        client.sendSubscribe(channel);
        await client.event('pusher_internal:subscription_succeeded', channel);
        client.sendSubscribe('#server-to-user-ben');
        await client.event('pusher:subscription_error', '#server-to-user-ben');
      }
      await api('/events', { name: 'again', data: '2', channel });
      for (const client of clients) {
        await client.event('again', channel);
        await client.pong();
        assert.equal(client.of(channel, 'again').length, 1, 'once, though subscribed too');
      }
      const { body } = await api('/channels');
      assert.deepEqual(body, { channels: {} }, 'the address of a user is no channel');
    },
  );

  test('who sign in wrongly are closed with 4009', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const forged = await connect();
    const user_data = '{"id":"ann"}';
    forged.send({
      event: 'pusher:signin',
      data: { auth: `${APP.key}:${'0'.repeat(64)}`, user_data },
    });
    assert.equal((await forged.event('pusher:error')).data.code, 4009);
    assert.equal((await forged.closed()).code, 4009);
    const changing = await connect();
    await changing.signin({ id: 'ann' });
    await changing.signin({ id: 'ann' });
    const lists = ['[{"toString":1}]', '["ben",null]', '[[]]'];
    const listing = lists.map((watchlist) => `{"id":"ann","watchlist":${watchlist}}`);
    for (const user_data of [
      ...['{', '[]', '{}', '{"id":""}', '{"id":null}', '{"id":{}}'],
      ...listing,
    ]) {
      const client = await connect();
      const signed = hmac(APP.secret, `${client.socketId}::user::${user_data}`);
      client.send({ event: 'pusher:signin', data: { auth: `${APP.key}:${signed}`, user_data } });
      assert.equal((await client.closed()).code, 4009, user_data);
    }
    const text = '{"id":"ben"}';
    const auth = `${APP.key}:${hmac(APP.secret, `${changing.socketId}::user::${text}`)}`;
    changing.send({ event: 'pusher:signin', data: { auth, user_data: text } });
    assert.equal((await changing.event('pusher:error')).data.code, 4009);
    assert.equal((await changing.closed()).code, 4009);
  });

  test('need no channel_data for presence channels', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const client = await connect();
    await client.signin({ id: 'ann', user_info: { a: 1 } });
    const { presence } = await client.subscribe(ROOM);
    assert.deepEqual(presence, { ids: ['ann'], hash: { ann: { a: 1 } }, count: 1 });
  });

  test('are terminated by the HTTP API, all connections over the workers', OPTIONS, async (t) => {
    const { connect, api } = await start(t);
    const [one, two, other] = [await connect(), await connect(), await connect()];
    for (const client of [one, two]) await client.signin({ id: 'ann' });
    await other.signin({ id: 'ben' });
    assert.deepEqual((await api('/users/ann/terminate_connections', {})).body, {});
    for (const client of [one, two]) assert.equal((await client.closed()).code, 4009);
    await other.pong();
  });

  test('hear of the users on their watch list', OPTIONS, async (t) => {
    const { connect } = await start(t);
    const ben = await connect();
    await ben.signin({ id: 'ben' });
    const ann = await connect();
    await ann.signin({ id: 'ann', watchlist: ['ben', 'cat'] });
    const eventsOf = async () => {
      const { data } = await ann.event('pusher_internal:watchlist_events');
      return (typeof data === 'string' ? JSON.parse(data) : data).events;
    };
    assert.deepEqual(await eventsOf(), [
      { name: 'online', user_ids: ['ben'] },
      { name: 'offline', user_ids: ['cat'] },
    ]);
    const cats = [await connect(), await connect()];
    for (const cat of cats) await cat.signin({ id: 'cat' });
    assert.deepEqual(await eventsOf(), [{ name: 'online', user_ids: ['cat'] }]);
    for (const cat of cats) {
      cat.socket.close();
      await cat.closed();
    }
    assert.deepEqual(await eventsOf(), [{ name: 'offline', user_ids: ['cat'] }]);
    await ann.pong();
    assert.equal(ann.all(({ event }) => event === 'pusher_internal:watchlist_events').length, 3);
  });

  test('may have a number as their id, and watch a hundred others', OPTIONS, async (t) => {
    const { connect, api } = await start(t);
    const client = await connect();
    const watchlist = Array.from({ length: 101 }, (_, i) => `user-${i}`);
    await client.signin({ id: 12, watchlist });
    assert.equal((await client.event('pusher:error')).data.code, 4302);
    const { data } = await client.event('pusher_internal:watchlist_events');
    assert.deepEqual(data, { events: [{ name: 'offline', user_ids: watchlist.slice(0, 100) }] });
    const other = await connect();
    await other.signin({ id: '13', watchlist: [] });
    await api('/events', { name: 'hi', data: '1', channel: '#server-to-user-12' });
    await client.event('hi', '#server-to-user-12');
    await other.pong();
    assert.equal(other.messages.length, 3, 'the first frame, the sign-in, a pong');
  });

  test('must sign in or subscribe in time, if the app wants so', OPTIONS, async (t) => {
    const { connect } = await start(t, 'hasty');
    const [idle, member] = [await connect(), await connect()];
    await member.subscribe('private-x');
    assert.equal((await idle.event('pusher:error')).data.code, 4100, 'it may come back');
    assert.equal((await idle.closed()).code, 4100);
    await member.pong();
  });
});

test('subscribers are told how many they are, if the app wants so', OPTIONS, async (t) => {
  const { connect } = await start(t, 'counting');
  const event = 'pusher_internal:subscription_count';
  const [ann, ben] = [await connect(), await connect()];
  await ann.subscribe('news');
  await ben.subscribe('news');
  const counted = (/** @type {number} */ count) =>
    ann.next((frame) => frame.event === event && frame.data === `{"subscription_count":${count}}`);
  await counted(2);
  ben.unsubscribe('news');
  await counted(1);
});
