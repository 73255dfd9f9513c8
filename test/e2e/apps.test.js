// apps.test.js: tokens and API keys that name an app: what their holders can do, and what they learn
// of other apps and of native rooms. Native, Pusher and HTTP clients on real servers.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Fanfare } from '../../src/client/node.js';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, scrape, startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { connect } from '../helpers/clients.js';
import { EventClient } from '../helpers/event-stream.js';
import { connectPusher, apiOf as pusherApiOf } from '../helpers/pusher.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET, token } from '../helpers/tokens.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../helpers/clients.js').Client} Client */

const limit = { timeout: 60_000 };
const A = { id: '1', key: 'key-a', secret: 'a'.repeat(32) };
const B = { id: '12', key: 'key-b', secret: 'b'.repeat(32) };
const SHARED = { id: '3', key: 'key-shared', secret: 's'.repeat(32) };
const SMALL = { id: '5', key: 'key-small', secret: 'm'.repeat(32) };
const OFF = { id: '4', key: 'key-off', secret: 'o'.repeat(32) };
const KEYS = {
  a: newSecret(),
  b: newSecret(),
  all: newSecret(),
  shared: newSecret(),
  off: newSecret(),
  small: newSecret(),
};
const ALL = { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] };
/** Names that look like rooms of others, or like escapes. */
const TRICKY = ['1:r', '12:r', 'u:ann', '/e1', '/x41', '__proto__', 'constructor', ':', '::u:ann'];

/** @param {import('../harness/server.js').Owner} t @param {Record<string, string>} [env] */
async function start(t, env = {}) {
  const path = join(temporaryFolder(t), 'apps.json');
  const own = { history: ['h:*=100/1h'], presence: ['team:*'], clientEvents: true };
  const apps = [
    { ...A, ...own },
    { ...B, ...own },
    { ...SHARED, shared: true },
    { ...OFF, enabled: false },
    { ...SMALL, maxConnections: 2, maxEventBytes: 64 },
  ];
  writeFileSync(path, JSON.stringify(apps));
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '2',
    JWT_SECRET: SECRET,
    FANFARE_AUTH: 'optional',
    FANFARE_HISTORY: 'h:*=100/1h',
    FANFARE_PRESENCE: 'team:*',
    FANFARE_CLIENT_BROADCAST: 'on',
    FANFARE_PUSHER_APPS: path,
    API_KEYS: [
      `a ${KEYS.a} all app=1`,
      `b ${KEYS.b} all app=12`,
      `shared ${KEYS.shared} all app=3`,
      `off ${KEYS.off} all app=4`,
      `small ${KEYS.small} all app=5`,
      `all ${KEYS.all} all`,
    ].join(';'),
    ...env,
  });
  return { server, path, apps };
}

const started = shared((owner) => start(owner));

/** @param {string} name of a key */
const api = async (name) => apiOf((await started()).server, KEYS[/** @type {'a'} */ (name)]);

/**
 * A native connection.
 * @param {TestContext} t @param {Record<string, unknown>} claims @param {{port: number}} [where]
 */
async function open(t, claims, where) {
  const { port } = where ?? (await started()).server;
  const text = token({ rooms: ALL, ...claims });
  const client = await connect(t, `ws://127.0.0.1:${port}/ws?token=${text}`);
  const { userId } = await client.ask({ type: 'hello' }, 'welcome');
  assert.equal(userId, claims.sub);
  return client;
}

/** @param {Client} client @param {string} room */
async function presenceOf(client, room) {
  client.send({ type: 'presence', room, id: 'p' });
  return client.next(({ id }) => id === 'p');
}

/** A round trip: what the server sent before has arrived. @param {Client} client */
async function settle(client) {
  await client.ask({ type: 'ping' }, 'pong');
}

/** Everything that a client was told about rooms. @param {Client} client */
const roomsOf = (client) =>
  client.all(({ room }) => room !== undefined).map((/** @type {any} */ { room }) => room);

test('clients of an app and of others meet in no room, whatever its name', limit, async (t) => {
  const a = await open(t, { app: A.id, sub: 'ann' });
  const b = await open(t, { app: B.id, sub: 'ann' });
  const native = await open(t, { sub: 'ann' });
  const pusher = await connectPusher(t, (await started()).server.port, B);
  await pusher.subscribe('r');
  await pusher.signin({ id: 'ann' });
  const names = ['r', ...TRICKY];
  for (const client of [a, b, native]) for (const name of names) await client.join(name);
  for (const [index, client] of [a, b, native].entries())
    for (const name of names)
      await client.ask({ type: 'message', room: name, payload: { index, name }, id: 1 }, 'ack');
  for (const client of [a, b, native]) await settle(client);
  for (const [index, client] of [a, b, native].entries()) {
    const got = client.all('message');
    assert.deepEqual(
      got.map(({ room, payload, from }) => [room, payload, from]),
      names.map((name) => [name, { index, name }, 'ann']),
    );
    assert.ok(roomsOf(client).every((room) => names.includes(room)));
  }
  await pusher.pong();
  assert.deepEqual(
    pusher.of('r', 'message').map(({ data }) => JSON.parse(data).index),
    [1],
  );
  assert.deepEqual(
    pusher.messages
      .map(({ channel }) => channel)
      .filter((name) => name !== undefined && name !== 'r'),
    [],
    'a room named u:ann is not the address of user ann',
  );
});

test(
  'a native client and a Pusher client of an app meet in the channel of the same name',
  limit,
  async (t) => {
    const { port } = (await started()).server;
    const ann = await open(t, { app: A.id, sub: 'ann', info: { n: 1 } });
    const bob = await connectPusher(t, port, A);
    await bob.subscribe('presence-x', { user_id: 'bob' });
    await ann.join('presence-x');
    const added = await bob.event('pusher_internal:member_added', 'presence-x');
    assert.deepEqual(JSON.parse(added.data), { user_id: 'ann', user_info: { n: 1 } });
    const { members } = await presenceOf(ann, 'presence-x');
    assert.deepEqual(members.map((/** @type {any} */ { user }) => user).sort(), ['ann', 'bob']);
    ann.send({ type: 'message', room: 'presence-x', payload: { event: 'e', data: { a: 1 } } });
    const event = await bob.event('e', 'presence-x');
    assert.deepEqual(event, { channel: 'presence-x', event: 'e', data: '{"a":1}' });
    bob.send({ event: 'client-hi', channel: 'presence-x', data: { b: 2 } });
    const message = await ann.next(({ from }) => from === 'bob');
    assert.deepEqual([message.room, message.payload.event], ['presence-x', 'client-hi']);
    // Escapes, as in a shared app.
    await bob.subscribe('a=b');
    await ann.join('a/eb');
    ann.send({ type: 'message', room: 'a/eb', payload: 1 });
    assert.equal((await bob.event('message', 'a=b')).data, '1');
    const { status } = await pusherApiOf(port, A)('/events', {
      name: 'n',
      channel: 'a=b',
      data: 'd',
    });
    assert.equal(status, 200);
    const sent = await ann.next(({ room }) => room === 'a/eb');
    assert.deepEqual([sent.from, sent.payload], ['ann', 1]);
    const published = await ann.next(({ room }) => room === 'a/eb');
    assert.deepEqual(published.payload, { event: 'n', data: 'd' });
  },
);

test(
  'a native client cannot name a user or an event of the protocol to Pusher clients',
  limit,
  async (t) => {
    const { port } = (await started()).server;
    const eve = await open(t, { app: A.id, sub: '~1:eve' });
    const bob = await connectPusher(t, port, A);
    await bob.subscribe('presence-forged', { user_id: 'bob' });
    const forged = { event: 'client-x', data: '"d"', user_id: 'admin', channel: 'private-b' };
    for (const payload of [
      forged,
      { event: 'pusher_internal:member_removed', data: '{"user_id":"bob"}' },
    ])
      await eve.ask({ type: 'message', room: 'presence-forged', payload, id: 1 }, 'ack');
    assert.deepEqual(await bob.event('client-x'), {
      channel: 'presence-forged',
      event: 'client-x',
      data: '"d"',
    });
    assert.equal((await bob.event('message')).channel, 'presence-forged');
    assert.equal(bob.of('presence-forged', 'pusher_internal:member_removed').length, 0);
  },
);

test(
  'history, recovery and presence of an app have its own names, and nothing of others',
  limit,
  async (t) => {
    const a = await open(t, { app: A.id, sub: 'ann' });
    const b = await open(t, { app: B.id, sub: 'ben' });
    await a.join('h:1');
    await a.ask({ type: 'message', room: 'h:1', payload: 'of a', id: 1 }, 'ack');
    await b.ask({ type: 'message', room: 'h:1', payload: 'of b', id: 1 }, 'ack');
    const native = await open(t, { sub: 'nat' });
    await native.ask({ type: 'message', room: 'h:1', payload: 'native', id: 1 }, 'ack');
    for (const [client, text] of /** @type {const} */ ([
      [a, 'of a'],
      [b, 'of b'],
      [native, 'native'],
    ])) {
      const { room, messages } = await client.ask({ type: 'history', room: 'h:1' }, 'history');
      assert.deepEqual(
        [room, messages.map((/** @type {any} */ { payload }) => payload)],
        ['h:1', [text]],
      );
    }
    const [{ epoch, offset }] = a.all('message');
    const foreign = await b.ask(
      { type: 'join', room: 'h:1', since: { epoch, offset: 0 } },
      'joined',
    );
    assert.equal(foreign.recovered, false, 'a position of another app proves nothing');
    const again = await open(t, { app: A.id, sub: 'ann' });
    const joined = await again.ask(
      { type: 'join', room: 'h:1', since: { epoch, offset: offset - 1 } },
      'joined',
    );
    assert.deepEqual([joined.room, joined.recovered], ['h:1', true]);
    assert.equal((await again.next('message')).payload, 'of a');
    for (const client of [a, b, native]) await client.join('team:x');
    for (const [client, user] of /** @type {const} */ ([
      [a, 'ann'],
      [b, 'ben'],
      [native, 'nat'],
    ])) {
      const { room, members } = await presenceOf(client, 'team:x');
      assert.deepEqual([room, members], ['team:x', [{ user }]]);
      const events = client.all((message) => message.type === 'presence' && 'event' in message);
      assert.ok(events.every(({ member, room: of }) => member.user === user && of === 'team:x'));
    }
    const named = await a.ask(
      { type: 'join', room: 'team:y', presence: { user: '~1:ann' } },
      'joined',
    );
    assert.equal(named.error, 'PERMISSION_DENIED');
    assert.equal(
      (await a.ask({ type: 'join', room: 'team:y', presence: { user: 'ann' } }, 'joined')).room,
      'team:y',
    );
  },
);

test(
  'the client library, autojoin and server-sent events work with bare names',
  limit,
  async (t) => {
    const { port } = (await started()).server;
    const text = token({ app: A.id, sub: 'cli', rooms: ALL, autojoin: ['home', 'u:7'] });
    const fanfare = new Fanfare(`ws://127.0.0.1:${port}`, { token: text });
    t.after(() => fanfare.close());
    /** @type {Promise<any>} */
    const heard = new Promise((resolve) => {
      fanfare.join('home').on('message', (payload) => resolve(payload));
    });
    const stream = await EventClient.open(t, port, `?room=h:sse&room=h:2&token=${text}`);
    const events = await stream.collect('joined', 4);
    assert.deepEqual(events.map((/** @type {any} */ { room }) => room).sort(), [
      'h:2',
      'h:sse',
      'home',
      'u:7',
    ]);
    const publisher = await api('a');
    await until(async () => (await publisher('/rooms/home')).body.connections > 0);
    await publisher('/publish', { body: { room: 'home', payload: 'hello' } });
    assert.equal(await heard, 'hello');
    const { status } = await publisher('/publish', { body: { room: 'h:sse', payload: 1 } });
    assert.equal(status, 200);
    await stream.until(
      () => stream.all('message').some((/** @type {any} */ { room }) => room === 'h:sse'),
      'it',
    );
    const id = stream.reader.lastEventId;
    stream.close();
    await publisher('/publish', { body: { room: 'h:sse', payload: 2 } });
    await (await api('b'))('/publish', { body: { room: 'h:sse', payload: 'of b' } });
    const returned = await EventClient.open(t, port, `?room=h:sse&room=h:2&token=${text}`, {
      'Last-Event-ID': id,
    });
    const [message] = await returned.collect('message');
    assert.deepEqual([message.room, message.payload], ['h:sse', 2]);
    assert.ok(!returned.text.includes('of b') && !returned.text.includes('~1'));
    const narrow = token({ app: A.id, sub: 'n', rooms: { join: ['h:sse'] } });
    assert.equal((await EventClient.open(t, port, `?room=h:2&token=${narrow}`)).status, 403);
    assert.equal((await EventClient.open(t, port, `?room=~1:r&token=${text}`)).status, 400);
  },
);

test('rights of a token are about names in its app', limit, async (t) => {
  const rooms = { join: ['chat:*'], publish: ['chat:1'] };
  const ann = await open(t, { app: A.id, sub: 'ann', rooms });
  assert.equal((await ann.join('chat:1')).room, 'chat:1');
  assert.equal(
    (await ann.ask({ type: 'join', room: 'news' }, 'joined')).error,
    'PERMISSION_DENIED',
  );
  for (const command of [
    { type: 'message', room: 'chat:2', payload: 1 },
    { type: 'history', room: 'h:1' },
    { type: 'presence', room: 'chat:1' },
    { type: 'broadcast', payload: 1 },
  ])
    assert.equal((await ann.ask(command, 'none')).error, 'PERMISSION_DENIED', command.type);
  for (const room of ['~1:chat:1', '~12:r', '*', '~1:u:ann', '#server-to-user-ann'])
    for (const type of ['join', 'leave', 'message', 'history', 'presence'])
      assert.equal((await ann.ask({ type, room, payload: 1 }, 'none')).error, 'INVALID_ROOM');
  assert.equal(
    (await ann.ask({ type: 'message', payload: 1, id: 7 }, 'ack')).type,
    'ack',
    'its only room',
  );
  assert.equal((await ann.next('message')).room, 'chat:1');
  assert.equal((await ann.ask({ type: 'leave', room: 'chat:1' }, 'left')).room, 'chat:1');
});

test('a guest that names an app by a token leaves native rooms', limit, async (t) => {
  const { port } = (await started()).server;
  const guest = await connect(t, port);
  await guest.join('lobby');
  await guest.ask(
    { type: 'auth', token: token({ app: A.id, sub: 'g', rooms: ALL }) },
    'authenticated',
  );
  const left = await guest.next('left');
  assert.deepEqual([left.room, left.reason], ['lobby', 'permission']);
  await guest.join('lobby');
  await (await api('all'))('/publish', { body: { room: 'lobby', payload: 'native' } });
  await (await api('a'))('/publish', { body: { room: 'lobby', payload: 'own' } });
  assert.equal((await guest.next('message')).payload, 'own');
  const other = await guest.ask(
    { type: 'auth', token: token({ sub: 'g', rooms: ALL }) },
    'authenticated',
  );
  assert.equal(
    other.error,
    'PERMISSION_DENIED',
    'the same name outside of the app is another user',
  );
});

describe('an API key of an app', () => {
  test('publishes to rooms of its app only, and reads them only', limit, async (t) => {
    const [a, b, all] = await Promise.all(['a', 'b', 'all'].map(api));
    const listeners = {
      a: await open(t, { app: A.id, sub: 'la' }),
      b: await open(t, { app: B.id, sub: 'lb' }),
      native: await open(t, { sub: 'ln' }),
    };
    for (const client of Object.values(listeners))
      for (const room of ['r:1', 'h:api']) await client.join(room);
    const publish = async (/** @type {typeof a} */ to, /** @type {string} */ text) => {
      const { body } = await to('/publish', { body: { rooms: ['r:1', 'h:api'], payload: text } });
      assert.deepEqual(
        body.results.map((/** @type {any} */ { room }) => room),
        ['r:1', 'h:api'],
      );
      const batch = { messages: [{ room: 'r:1', payload: text, idempotencyKey: 'same' }] };
      const answer = await to('/publish/batch', { body: batch });
      assert.deepEqual(answer.body, { results: [{ room: 'r:1' }], failed: 0 }, 'no conflict');
    };
    await publish(a, 'of a');
    await publish(b, 'of b');
    await publish(all, 'native');
    for (const [client, text] of /** @type {[Client, string][]} */ ([
      [listeners.a, 'of a'],
      [listeners.b, 'of b'],
      [listeners.native, 'native'],
    ])) {
      await settle(client);
      await client.collect('message', 3);
      assert.deepEqual(
        client.all('message').map((/** @type {any} */ { payload }) => payload),
        [text, text, text],
      );
    }
    const { body: history } = await a('/rooms/h:api/history');
    assert.deepEqual(
      [history.room, history.messages.map((/** @type {any} */ { payload }) => payload)],
      ['h:api', ['of a']],
    );
    const { body: room } = await a('/rooms/h:api');
    assert.deepEqual([room.room, room.connections], ['h:api', 1]);
    assert.deepEqual((await a('/rooms/h:api/history', { method: 'DELETE' })).body, {});
    assert.equal((await a('/rooms/h:api/history')).body.messages.length, 0);
    assert.equal((await b('/rooms/h:api/history')).body.messages.length, 1);
    assert.equal((await all('/rooms/h:api/history')).body.messages.length, 1);
    for (const name of ['~12:r', '~12:h~api', '*', '~1:u:la'])
      assert.equal((await a(`/rooms/${encodeURIComponent(name)}`)).status, 400, name);
  });

  test(
    'lists rooms of its app only, page by page, without those of signed-in users',
    limit,
    async (t) => {
      const { port } = (await started()).server;
      const a = await api('a');
      const ann = await open(t, { app: A.id, sub: 'lister' });
      const names = ['list', 'list:1', 'list:2', 'listx', 'u', 'u:7'];
      for (const name of names) await ann.join(name);
      const pusher = await connectPusher(t, port, A);
      await pusher.signin({ id: '7' });
      const other = await open(t, { app: B.id, sub: 'lister' });
      await other.join('list:b');
      const listed = async (/** @type {string} */ query) =>
        (await a(`/rooms${query}`)).body.rooms.map((/** @type {any} */ { room }) => room);
      assert.deepEqual((await listed('?prefix=list')).sort(), [
        'list',
        'list:1',
        'list:2',
        'listx',
      ]);
      assert.deepEqual((await listed('?prefix=list:')).sort(), ['list:1', 'list:2']);
      assert.deepEqual((await listed('?prefix=u')).sort(), ['u', 'u:7']);
      const all = await listed('?limit=1000');
      for (const name of names) assert.ok(all.includes(name), name);
      assert.ok(
        all.every((/** @type {string} */ room) => !room.includes('~')),
        String(all),
      );
      assert.ok(!all.includes('list:b'));
      /** @type {string[]} */
      const paged = [];
      for (let after = ''; ; ) {
        const page = await listed(
          `?limit=2${after === '' ? '' : `&after=${encodeURIComponent(after)}`}`,
        );
        if (page.length === 0) break;
        paged.push(...page);
        after = page[page.length - 1];
      }
      assert.deepEqual(paged, all);
      const native = await (await api('shared'))('/rooms?limit=1000');
      assert.ok(native.body.rooms.every((/** @type {any} */ { room }) => !room.startsWith('~')));
    },
  );

  test('sees, moves and closes connections of its app only', limit, async (t) => {
    const { port } = (await started()).server;
    const a = await api('a');
    const [mine, theirs, native] = [
      await open(t, { app: A.id, sub: 'zoe' }),
      await open(t, { app: B.id, sub: 'zoe' }),
      await open(t, { sub: 'zoe' }),
    ];
    const pusher = await connectPusher(t, port, A);
    await pusher.signin({ id: 'zoe' });
    await pusher.subscribe('joined');
    const idOf = async (/** @type {Client} */ client) =>
      (await client.ask({ type: 'hello' }, 'welcome')).connectionId;
    const join = await a('/users/zoe/join', { body: { rooms: ['joined', 'u:zoe'] } });
    assert.deepEqual(join.body, { connections: 1 });
    assert.equal((await mine.next('joined')).room, 'joined');
    const { body: seen } = await a('/connections?user=zoe');
    assert.equal(seen.count, 2);
    for (const one of seen.connections) {
      assert.deepEqual([one.user, one.app], ['zoe', A.id]);
      assert.ok(
        one.rooms.every((/** @type {string} */ room) => ['joined', 'u:zoe'].includes(room)),
      );
      assert.equal(one.roomCount, one.rooms.length);
    }
    assert.equal((await a('/connections?room=joined')).body.count, 2);
    assert.equal((await a('/connections?address=127.0.0.1')).status, 403);
    for (const client of [theirs, native]) {
      const id = await idOf(client);
      assert.equal((await a(`/connections/${id}`)).status, 404);
      assert.deepEqual((await a('/disconnect', { body: { connectionId: id } })).body, {
        connections: 0,
      });
    }
    assert.equal((await a(`/connections/${await idOf(mine)}`)).body.user, 'zoe');
    assert.deepEqual(
      (await a('/presence', { body: { users: ['zoe', 'nat', '~12:zoe'] } })).body.online,
      ['zoe'],
    );
    const left = await a('/users/zoe/leave', { body: { rooms: ['joined'] } });
    assert.deepEqual(left.body, { connections: 1 }, 'a Pusher client stays: it would not know');
    assert.equal((await mine.next('left')).room, 'joined');
    for (const user of ['~12:zoe', '~1:zoe'])
      assert.deepEqual((await a('/disconnect', { body: { user } })).body, { connections: 0 });
    assert.deepEqual((await a('/disconnect', { body: { user: 'zoe' } })).body, { connections: 2 });
    assert.equal((await mine.closed()).code, 4503);
    await pusher.closed();
    for (const client of [theirs, native]) await settle(client);
  });

  test('revokes tokens of its app only, by user and by id', limit, async (t) => {
    const { port } = (await started()).server;
    const a = await api('a');
    const claims = { sub: 'rev', jti: 'same-id' };
    const [mine, theirs, native] = [
      await open(t, { ...claims, app: A.id }),
      await open(t, { ...claims, app: B.id }),
      await open(t, claims),
    ];
    assert.equal((await a('/revoke', { body: { tokenId: 'same-id' } })).status, 200);
    assert.equal((await mine.closed()).code, 4503);
    assert.equal((await a('/revoke', { body: { user: 'rev' } })).status, 200);
    for (const client of [theirs, native]) await settle(client);
    const again = async (/** @type {Record<string, unknown>} */ more) => {
      const client = await connect(
        t,
        `ws://127.0.0.1:${port}/ws?token=${token({ sub: 'rev', rooms: ALL, ...more })}`,
      );
      client.send({ type: 'ping' });
      return client.next(({ type }) => type === 'pong' || type === 'error');
    };
    assert.equal((await again({ app: A.id })).error, 'INVALID_TOKEN');
    assert.equal((await again({ app: B.id })).type, 'pong');
    assert.equal((await again({})).type, 'pong');
  });

  test('cannot broadcast, and a disabled app refuses key and token', limit, async (t) => {
    const { port } = (await started()).server;
    assert.equal((await (await api('a'))('/broadcast', { body: { payload: 1 } })).status, 403);
    const off = await (await api('off'))('/rooms');
    assert.deepEqual(
      [off.status, off.body],
      [
        403,
        {
          error: 'PERMISSION_DENIED',
          message: 'The app of the API key is disabled.',
        },
      ],
    );
    for (const app of [OFF.id, '99']) {
      const client = await connect(
        t,
        `ws://127.0.0.1:${port}/ws?token=${token({ app, rooms: ALL })}`,
      );
      const error = await client.next('error');
      assert.equal(error.error, 'INVALID_TOKEN');
      assert.match(error.message, /names an app that is unknown or disabled/);
      assert.equal((await client.closed()).code, 4500);
      assert.equal(
        (await EventClient.open(t, port, `?room=a&token=${token({ app })}`)).status,
        401,
      );
    }
  });
});

test('a shared app has native rooms and users of its own', limit, async (t) => {
  const { port } = (await started()).server;
  const ann = await open(t, { app: SHARED.id, sub: 'ann' });
  const native = await open(t, { sub: 'nina' });
  const pusher = await connectPusher(t, port, SHARED);
  await pusher.subscribe('meet');
  for (const client of [ann, native]) await client.join('meet');
  await native.ask(
    { type: 'message', room: 'meet', payload: { event: 'e', data: 'x' }, id: 1 },
    'ack',
  );
  assert.equal((await pusher.event('e', 'meet')).data, 'x');
  assert.equal((await ann.next('message')).from, 'nina');
  await ann.ask({ type: 'message', room: 'meet', payload: 'y', id: 1 }, 'ack');
  const message = await native.next(({ payload }) => payload === 'y');
  assert.equal(message.from, '~3:ann', 'it does not pass for a native user');
  const key = await api('shared');
  assert.equal((await key('/rooms/meet')).body.connections, 3);
  assert.deepEqual((await key('/presence', { body: { users: ['ann', 'nina'] } })).body.online, [
    'ann',
  ]);
  assert.deepEqual((await key('/disconnect', { body: { user: 'nina' } })).body, { connections: 0 });
  for (const room of ['~1:r', '~12:r'])
    assert.equal((await ann.ask({ type: 'join', room }, 'joined')).error, 'INVALID_ROOM');
});

test('limits and metrics of an app hold for native connections', limit, async (t) => {
  const { server } = await started();
  const { port, metricsPort } = server;
  const value = async (/** @type {string} */ name) => (await scrape(metricsPort)).values.get(name);
  const closes = async () => Number(await value('fanfare_auth_closes_total{cause="app_limit"}'));
  const before = await closes();
  const first = await open(t, { app: SMALL.id, sub: 'ann' });
  const pusher = await connectPusher(t, port, SMALL);
  const url = `ws://127.0.0.1:${port}/ws?token=${token({ app: SMALL.id, sub: 'ben', rooms: ALL })}`;
  const refused = await connect(t, url);
  assert.equal((await refused.next('error')).error, 'CONNECTION_LIMIT');
  assert.deepEqual(await refused.closed(), { code: 4010, reason: 'connection limit of the app' });
  const stream = await EventClient.open(
    t,
    port,
    `?room=r&token=${token({ app: SMALL.id, rooms: ALL })}`,
  );
  assert.equal(stream.status, 429);
  await first.join('r');
  const large = { type: 'message', room: 'r', payload: 'x'.repeat(65), id: 1 };
  assert.equal((await first.ask(large, 'ack')).error, 'MESSAGE_TOO_LARGE');
  assert.equal((await first.ask({ ...large, payload: 'x' }, 'ack')).type, 'ack');
  const a = await api('small');
  assert.equal((await a('/publish', { body: { room: 'r', payload: 'x'.repeat(65) } })).status, 413);
  assert.equal((await a('/publish', { body: { room: 'r', payload: 'x' } })).status, 200);
  await until(async () => (await value('fanfare_app_connections{app="5"}')) === 2);
  await until(
    async () => (await value('fanfare_app_events_total{app="5",publisher="client"}')) === 1,
  );
  await until(async () => (await value('fanfare_app_events_total{app="5",publisher="api"}')) === 1);
  assert.ok(Number(await value('fanfare_app_messages_total{app="5"}')) >= 4);
  assert.equal((await closes()) - before, 2, 'the WebSocket and the stream');
  pusher.socket.terminate();
  first.socket.terminate();
  await until(async () => (await value('fanfare_app_connections{app="5"}')) === 0);
  await open(t, { app: SMALL.id, sub: 'ben' });
  await open(t, { app: SMALL.id, sub: 'ben' });
});

test('two servers with Redis keep apps apart and together', limit, async (t) => {
  const env = { WORKERS: '1', REDIS_URL: (await startRedis(t)).url };
  const [{ server: one }, { server: two }] = [await start(t, env), await start(t, env)];
  const here = await open(t, { app: A.id, sub: 'here' }, one);
  const there = await open(t, { app: A.id, sub: 'there' }, two);
  const other = await open(t, { app: B.id, sub: 'other' }, two);
  const pusher = await connectPusher(t, two.port, A);
  await pusher.subscribe('h');
  for (const client of [here, there, other])
    for (const room of ['h', 'h:1', 'team:x']) await client.join(room);
  await here.ask({ type: 'message', room: 'h', payload: 'plain', id: 1 }, 'ack');
  const ack = await here.ask({ type: 'message', room: 'h:1', payload: 'kept', id: 2 }, 'ack');
  assert.equal(ack.offset, 1);
  assert.equal((await pusher.event('message', 'h')).data, '"plain"');
  assert.deepEqual(
    (await there.collect('message', 2)).map(({ room, payload }) => [room, payload]),
    [
      ['h', 'plain'],
      ['h:1', 'kept'],
    ],
  );
  const a = apiOf(two, KEYS.a);
  assert.deepEqual((await a('/rooms?prefix=h')).body.rooms, [
    { room: 'h', connections: 3 },
    { room: 'h:1', connections: 2 },
  ]);
  assert.equal((await a('/rooms/team:x/presence')).body.count, 2);
  await a('/publish', { body: { room: 'h:1', payload: 'more' } });
  assert.equal((await here.next(({ payload }) => payload === 'more')).room, 'h:1');
  assert.deepEqual((await a('/disconnect', { body: { user: 'here' } })).body, { connections: 1 });
  await here.closed();
  await settle(other);
  assert.deepEqual(other.all('message'), []);
});
