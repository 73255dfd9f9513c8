// pusher-http.test.js: Pusher's HTTP API on real servers. Channels of the shared app are native
// rooms, so native clients are their members.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import Pusher from 'pusher';
import { socketIdOf } from '../../src/doors/pusher/codec/socket-id.js';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, scrape, startServer } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { pusherApiOf, signedRequest } from '../helpers/pusher-api.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const APP = { id: '1', key: 'shared-key', secret: 'a-secret-of-the-shared-app' };
const OTHER = { id: '2', key: 'other-key', secret: 'a-secret-of-the-other-app' };
const OFF = { id: '3', key: 'off-key', secret: 'a-secret-of-an-app-that-is-off' };
const APPS = [
  { ...APP, shared: true, subscriptionCount: true, maxEventBytes: 1000 },
  OTHER,
  { ...OFF, enabled: false },
];

/** @typedef {import('../harness/server.js').Owner} Owner */

/** @param {Owner} t @param {Record<string, string>} [env] @param {unknown} [apps] */
async function startWithApps(t, env = {}, apps = APPS) {
  const path = join(temporaryFolder(/** @type {any} */ (t)), 'apps.json');
  writeFileSync(path, JSON.stringify(apps));
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_PUSHER_APPS: path,
    FANFARE_PUSHER_PATH: '/ws',
    ...env,
  });
  return { server, path, api: pusherApiOf(server, APP) };
}

/** The SDK. @param {{port: number}} server @param {import('../helpers/pusher-api.js').TestApp} app */
function sdkOf({ port }, { id, key, secret } = APP) {
  return new Pusher({ appId: id, key, secret, host: '127.0.0.1', port: String(port) });
}

/**
 * Joins a channel with presence.
 * @param {import('../helpers/clients.js').Client} client @param {string} room @param {string} user
 */
function joinAs(client, room, user) {
  return client.ask({ type: 'join', room, presence: { user } }, 'joined');
}

const start = shared((owner) => startWithApps(owner));
const limited = shared((owner) =>
  startWithApps(owner, {
    FANFARE_LIMITS: 'enforce',
    FANFARE_API_MESSAGES_RATE: '1/min burst 3',
    FANFARE_HANDSHAKES_RATE_PER_IP: '1/min burst 20',
  }),
);

for (const redis of [false, true]) {
  describe(`on the ${redis ? 'Redis' : 'embedded'} backend`, () => {
    const startBackend = redis
      ? shared(async (owner) =>
          startWithApps(owner, { REDIS_URL: (await startRedis(owner)).url, WORKERS: '2' }),
        )
      : start;

    test('an event reaches the members of its channels, but not the socket_id', async (t) => {
      const { server, api } = await startBackend();
      const [member, sender] = [await connect(t, server.port), await connect(t, server.port)];
      const { connectionId } = await sender.ask({ type: 'hello' }, 'welcome');
      for (const client of [member, sender]) await client.join('chat');
      const data = JSON.stringify({ text: 'é"\\😀' });
      const body = { name: 'said', channels: ['chat', 'other'], data };
      const excluded = { ...body, socket_id: socketIdOf(connectionId) };
      assert.deepEqual((await api('/events', { body: excluded })).body, {});
      assert.deepEqual((await api('/events', { body: { ...body, name: 'end' } })).body, {});
      assert.deepEqual((await member.next('message')).payload, { event: 'said', data });
      assert.deepEqual((await member.next('message')).payload, { event: 'end', data });
      assert.deepEqual((await sender.next('message')).payload, { event: 'end', data });
    });

    test('the events of a batch keep their order', async (t) => {
      const { server, api } = await startBackend();
      const member = await connect(t, server.port);
      await member.join('batch');
      const batch = Array.from({ length: 10 }, (_, i) => ({
        name: 'n',
        channel: i === 5 ? 'elsewhere' : 'batch',
        data: String(i),
      }));
      assert.deepEqual((await api('/batch_events', { body: { batch } })).body, {});
      const got = [];
      while (got.length < 9) got.push((await member.next('message')).payload.data);
      assert.deepEqual(got, ['0', '1', '2', '3', '4', '6', '7', '8', '9']);
    });

    test('channels are listed with their users and subscriptions', async (t) => {
      const { server, api } = await startBackend();
      const [one, two] = [await connect(t, server.port), await connect(t, server.port)];
      await one.join('list-a');
      for (const client of [one, two])
        await joinAs(client, 'presence-list', client === one ? '1' : '2');
      assert.deepEqual((await api('/channels', { query: { filter_by_prefix: 'list-' } })).body, {
        channels: { 'list-a': {} },
      });
      const info = 'user_count,subscription_count';
      const users = await api('/channels', { query: { filter_by_prefix: 'presence-list', info } });
      assert.deepEqual(users.body, {
        channels: { 'presence-list': { user_count: 2, subscription_count: 2 } },
      });
      assert.deepEqual((await api('/channels/presence-list', { query: { info } })).body, {
        occupied: true,
        user_count: 2,
        subscription_count: 2,
      });
      const { body } = await api('/channels/presence-list/users');
      assert.deepEqual(body.users.map((/** @type {{id: string}} */ { id }) => id).sort(), [
        '1',
        '2',
      ]);
      assert.deepEqual((await api('/channels/nobody')).body, { occupied: false });
      assert.deepEqual(
        (await api('/channels', { query: { filter_by_prefix: 'no' } })).text,
        '{"channels":{}}',
      );
      assert.deepEqual((await api('/channels/presence-nobody/users')).body, { users: [] });
    });

    test('an answer has the counts that the request asks for', async (t) => {
      const { server, api } = await startBackend();
      const client = await connect(t, server.port);
      await joinAs(client, 'presence-asked', '1');
      await client.join('asked');
      const event = { name: 'n', data: '1' };
      const body = {
        ...event,
        channels: ['presence-asked', 'asked'],
        info: 'user_count,subscription_count,unknown',
      };
      const asked = { subscription_count: 1 };
      const present = { ...asked, user_count: 1 };
      const answer = await api('/events', { body });
      assert.deepEqual(answer.body, { channels: { 'presence-asked': present, asked } });
      const batch = [
        { ...event, channel: 'asked' },
        { ...event, channel: 'presence-asked', info: 'user_count' },
      ];
      const { body: infos } = await api('/batch_events', { body: { batch } });
      assert.deepEqual(infos, { batch: [{}, { user_count: 1 }] });
    });

    test('a cache channel has its last event', async () => {
      const { api } = await startBackend();
      const get = () => api('/channels/cache-last', { query: { info: 'cache' } });
      assert.deepEqual((await get()).body, { occupied: false, cache: null });
      for (const data of ['1', '2'])
        await api('/events', { body: { name: 'n', channel: 'cache-last', data } });
      const { cache } = (await get()).body;
      assert.equal(cache.data, '2');
      assert.ok(cache.ttl > 1700 && cache.ttl <= 1800, String(cache.ttl));
    });

    test('channels of an app are no rooms of others', async (t) => {
      const { server } = await startBackend();
      const other = pusherApiOf(server, OTHER);
      const member = await connect(t, server.port);
      await member.join('apart');
      const event = { name: 'n', channel: 'apart', data: 'x' };
      assert.deepEqual((await other('/events', { body: event })).body, {});
      assert.deepEqual((await other('/channels')).body, { channels: {} });
      assert.deepEqual((await other('/channels/apart')).body, { occupied: false });
      const { api } = await startBackend();
      await api('/events', { body: { ...event, data: 'y' } });
      assert.equal((await member.next('message')).payload.data, 'y');
    });

    test('terminating the connections of a user without any succeeds', async () => {
      const { api } = await startBackend();
      const answer = await api('/users/7/terminate_connections', { body: {} });
      assert.deepEqual([answer.status, answer.body], [200, {}]);
      // apps/1/users and the short path without the app, as the SDK for Python has it.
      const { server } = await startBackend();
      const short = signedRequest(APP, '/users/7/terminate_connections', { body: '{}' });
      const response = await fetch(`http://127.0.0.1:${server.port}${short.path}`, short);
      assert.deepEqual([response.status, await response.json()], [200, {}]);
    });
  });
}

test('a request at fault has the status and the form of the documentation', async () => {
  const { api } = await start();
  const event = { name: 'n', channel: 'c', data: 'd' };
  const post = (/** @type {object} */ change) => api('/events', { body: { ...event, ...change } });
  const cases = /** @type {[Promise<any>, number, RegExp][]} */ ([
    [api('/events', { body: '{' }), 400, /JSON/],
    [api('/events', { body: '[]' }), 400, /JSON/],
    [post({ name: undefined }), 400, /name/],
    [post({ name: 1 }), 400, /name/],
    [post({ name: 'a'.repeat(201) }), 400, /name/],
    [post({ name: 'pusher:x' }), 400, /reserved/],
    [post({ name: 'pusher_internal:x' }), 400, /reserved/],
    [post({ data: undefined }), 400, /data/],
    [post({ channel: undefined }), 400, /channels/],
    [post({ channel: 'a b' }), 400, /channels/],
    [post({ channel: 'a:b' }), 400, /channels/],
    [post({ channel: 'a'.repeat(201) }), 400, /channels/],
    [post({ channels: [] }), 400, /channels/],
    [post({ channels: 'c' }), 400, /channels/],
    [post({ channels: Array.from({ length: 101 }, (_, i) => `c${i}`) }), 400, /1 to 100/],
    [post({ channels: ['private-encrypted-a', 'b'] }), 400, /only one/],
    [post({ channels: ['#server-to-user-1', 'b'] }), 400, /only one/],
    [post({ socket_id: '1' }), 400, /socket_id/],
    [post({ socket_id: '1.1\n' }), 400, /socket_id/],
    [post({ data: 'é'.repeat(501) }), 413, /1,000 bytes/],
    [api('/batch_events', { body: { batch: [] } }), 400, /batch/],
    [api('/batch_events', { body: { batch: Array(11).fill(event) } }), 400, /1 to 10/],
    [
      api('/batch_events', { body: { batch: [event, { ...event, channel: null }] } }),
      400,
      /channel/,
    ],
    [api('/channels', { query: { info: 'user_count' } }), 400, /filter_by_prefix/],
    [api('/channels/c', { query: { info: 'user_count' } }), 400, /presence channel/],
    [api('/channels/c', { query: { info: 'cache' } }), 400, /cache channel/],
    [api('/channels/c/users'), 400, /presence channels/],
    [api('/channels/a%20b'), 400, /channel/],
    [api('/nothing'), 404, /There is no path/],
    [api('/events'), 405, /takes POST, not GET/],
    [api(`/users/${'u'.repeat(201)}/terminate_connections`, { body: '{}' }), 400, /user/],
  ]);
  for (const [answer, status, text] of cases) {
    const { status: got, body } = await answer;
    assert.deepEqual([got, body.code], [status, status], body.error);
    assert.match(body.error, text);
    assert.deepEqual(Object.keys(body), ['error', 'code']);
  }
});

test('an unsigned request is refused before its body, whatever is wrong', async () => {
  const { server, api } = await start();
  const body = { name: 'n', channel: 'c', data: 'd' };
  const cases = /** @type {[Promise<any>, number, RegExp][]} */ ([
    [api('/events', { body, auth: { auth_timestamp: '1' } }), 401, /clock/],
    [api('/events', { body, auth: { auth_version: '2.0' } }), 401, /auth_version/],
    [api('/events', { body, auth: { auth_key: 'other-key' } }), 401, /auth_key/],
    [api('/events', { body, auth: { body_md5: '0'.repeat(32) } }), 401, /body_md5/],
    [api('/events', { body, signedPath: '/apps/2/events' }), 401, /auth_signature/],
    [pusherApiOf(server, { ...APP, secret: 'x' })('/channels'), 401, /auth_signature/],
    [pusherApiOf(server, { ...APP, id: '9' })('/channels'), 404, /Unknown app/],
    [pusherApiOf(server, { ...APP, id: 'constructor' })('/channels'), 404, /Unknown app/],
    [pusherApiOf(server, OFF)('/channels'), 403, /disabled/],
    [api('/users/1/terminate_connections', { body, auth: { auth_key: 'x' } }), 401, /auth_key/],
  ]);
  for (const [answer, status, text] of cases) {
    const { status: got, body: fault, headers } = await answer;
    assert.deepEqual([got, fault.code], [status, status], fault.error);
    assert.match(fault.error, text);
    assert.equal(headers.get('www-authenticate'), null, 'it says Bearer');
  }
});

test('the path prefix may be there, and is not signed', async () => {
  const { server, api } = await start();
  const answer = await api('/ws/apps/1/channels', { signedPath: '/apps/1/channels' });
  assert.equal(answer.status, 200);
  assert.equal((await api('/ws/apps/1/channels')).status, 401);
  for (const path of ['/up', '/ws/up']) {
    const response = await fetch(`http://127.0.0.1:${server.port}${path}`);
    assert.deepEqual([response.status, await response.json()], [200, { health: 'OK' }]);
  }
});

test('data that is no string is sent as its text, digits unchanged', async (t) => {
  const { server, api } = await start();
  const member = await connect(t, server.port);
  await member.join('raw');
  const body = '{"name":"n","channel":"raw","socket_id":null,"data":{"n": 12345678901234567890}}';
  assert.equal((await api('/events', { body })).status, 200);
  assert.equal((await member.next('message')).payload.data, '{"n": 12345678901234567890}');
});

test('SDKs name their content type as they like; the answer is 200 and an object', async () => {
  const { api } = await start();
  const types = [
    'application/json; charset=utf-8',
    'text/plain',
    'application/x-www-form-urlencoded',
  ];
  for (const type of types) {
    // .NET's SDK names itself.
    const headers = { 'Content-Type': type, 'Pusher-Library-Name': 'pusher-http-dotnet' };
    const body = { name: 'n', channels: ['c'], data: 'd' };
    const answer = await api('/events', { body, headers });
    assert.deepEqual([answer.status, answer.text], [200, '{}'], type);
    assert.match(String(answer.headers.get('content-type')), /^application\/json\b/);
  }
  // PHP reads the properties of an object.
  assert.equal(
    (await api('/channels', { query: { filter_by_prefix: 'x' } })).text,
    '{"channels":{}}',
  );
});

test('an idempotency key publishes an event once', async (t) => {
  const { server, api } = await start();
  const member = await connect(t, server.port);
  await member.join('once');
  const event = { name: 'n', channel: 'once', data: '1' };
  const headers = { 'Idempotency-Key': 'k1' };
  for (let i = 0; i < 2; i++)
    assert.equal((await api('/events', { body: event, headers })).status, 200);
  await api('/events', { body: { ...event, data: '2' } });
  assert.equal((await member.next('message')).payload.data, '1');
  assert.equal((await member.next('message')).payload.data, '2');
  const other = { ...event, data: '3' };
  assert.equal((await api('/events', { body: other, headers })).status, 400);
});

test('the SDK for Node publishes, asks and terminates', async (t) => {
  const { server } = await start();
  const sdk = sdkOf(server);
  const member = await connect(t, server.port);
  await member.join('sdk');
  await joinAs(member, 'presence-sdk', 'ü 1');
  await sdk.trigger('sdk', 'one', { text: 'é' });
  assert.deepEqual((await member.next('message')).payload, { event: 'one', data: '{"text":"é"}' });
  await sdk.triggerBatch([{ channel: 'sdk', name: 'two', data: 'x' }]);
  assert.deepEqual((await member.next('message')).payload, { event: 'two', data: 'x' });
  const get = async (/** @type {string} */ path, params = {}) =>
    (await sdk.get({ path, params })).json();
  const channels = await get('/channels', { filter_by_prefix: 'presence-s', info: 'user_count' });
  assert.deepEqual(channels, { channels: { 'presence-sdk': { user_count: 1 } } });
  assert.deepEqual(await get('/channels/presence-sdk/users'), { users: [{ id: 'ü 1' }] });
  assert.equal((await sdk.terminateUserConnections('7')).status, 200);
  assert.equal((await sdk.sendToUser('7', 'n', {})).status, 200);
});

test('the SDK for Node shows the error of an answer', async () => {
  const { server } = await start();
  const wrong = sdkOf(server, { ...APP, secret: 'wrong' });
  await assert.rejects(
    () => wrong.trigger('sdk', 'n', {}),
    (/** @type {any} */ error) => {
      assert.equal(error.name, 'PusherRequestError');
      assert.equal(error.status, 401);
      assert.match(JSON.parse(error.body).error, /auth_signature/);
      return true;
    },
  );
  await assert.rejects(
    () => sdkOf(server).trigger('sdk', 'n', 'x'.repeat(1001)),
    (/** @type {any} */ error) => error.status === 413,
  );
});

test('an app has the rate of an API key, and its own', async () => {
  const { server, api } = await limited();
  const statuses = [];
  for (let i = 0; i < 4; i++) statuses.push((await api('/channels/c')).status);
  assert.deepEqual(statuses, [200, 200, 200, 429]);
  const { status, headers, body } = await api('/channels/c');
  assert.deepEqual([status, body.code], [429, 429]);
  assert.ok(Number(headers.get('retry-after')) > 0);
  assert.equal((await pusherApiOf(server, OTHER)('/channels/c')).status, 200);
});

test('bad signatures use up the rate of their address', async () => {
  const { server } = await limited();
  const wrong = pusherApiOf(server, { ...APP, secret: 'wrong' });
  const statuses = [];
  for (let i = 0; i < 30; i++) statuses.push((await wrong('/channels/c')).status);
  assert.ok(statuses.filter((status) => status === 401).length <= 21, statuses.join());
  assert.ok(statuses.includes(429), statuses.join());
});

test('requests are counted by route, status and refusal', async () => {
  const { server, api } = await start();
  const read = async () => (await scrape(server.metricsPort)).values;
  const before = await read();
  await api('/events', { body: { name: 'n', channels: ['a', 'b'], data: 'd' } });
  await api('/channels', { auth: { auth_key: 'x' } });
  const after = await read();
  const events = 'fanfare_app_events_total';
  for (const [name, rise] of /** @type {const} */ ([
    ['fanfare_api_requests_total{route="pusher_events"}', 1],
    ['fanfare_api_messages_total', 2],
    [`${events}{app="1",publisher="api"}`, 2],
    [`${events}{app="2",publisher="api"}`, 0],
    ['fanfare_api_responses_total{status="401"}', 1],
    ['fanfare_api_refused_total{reason="key"}', 1],
  ]))
    assert.equal(Number(after.get(name)) - (before.get(name) ?? 0), rise, name);
  assert.equal(after.get('fanfare_app_connections{app="1"}'), 0);
  assert.equal(after.get('fanfare_transport_connections{transport="pusher"}'), 0);
  assert.equal(after.get('fanfare_api_requests_in_flight'), 0);
});

// The last test of this server, because it changes the apps.
test('SIGHUP adds an app and rotates a secret; the rules of channels stay', async () => {
  const { server, path } = await start();
  const write = (/** @type {unknown} */ apps) => writeFileSync(path, JSON.stringify(apps));
  const status = async (/** @type {typeof APP} */ app) =>
    (await pusherApiOf(server, app)('/channels')).status;
  const { secret, ...entry } = APPS[0];
  const rotated = { ...APP, secret: 'another-secret-of-the-app' };
  const added = { id: '4', key: 'added-key', secret: 'a-secret-of-an-app-that-is-added' };
  assert.deepEqual(
    [await status(APP), await status(rotated), await status(added)],
    [200, 401, 404],
  );
  write([{ ...entry, secrets: [rotated.secret, secret] }, OTHER, added]);
  server.kill('SIGHUP');
  await server.line(({ msg }) => msg === 'reload complete');
  assert.deepEqual(
    [await status(APP), await status(rotated), await status(added)],
    [200, 200, 200],
  );
  write([{ ...APPS[0], cacheTtl: 60 }]);
  server.kill('SIGHUP');
  const { faults } = await server.line(({ msg }) => msg.startsWith('reload aborted'));
  assert.match(faults.join(), /"presence" or "shared" of apps cannot be changed by a reload/);
  assert.equal(await status(added), 200);
});
