// http-api.test.js: the HTTP API on real servers.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { createServer } from '../../src/sdk/index.js';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, scrape, startServer, until } from '../harness/server.js';
import { apiOf, newSecret, startWithKey } from '../helpers/api.js';
import { connect } from '../helpers/clients.js';
import { EventClient } from '../helpers/event-stream.js';
import { RawClient } from '../helpers/raw-http.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../harness/server.js').Owner} Owner */
/** @typedef {import('../harness/server.js').Server} Server */

/** Sends SIGHUP. @param {Server} server @returns waits for a line that begins so */
function reload(server) {
  const from = server.lines.length;
  server.kill('SIGHUP');
  return (/** @type {string} */ text) =>
    until(() => server.lines.slice(from).some(({ msg }) => msg.startsWith(text)), 20_000, text);
}

/** Of a key for the rooms h.web.*. */
const webSecret = newSecret();
const start = shared((owner) =>
  startWithKey(owner, {
    API_KEYS: `web ${webSecret} publish,history rooms=h.web.*`,
    LOG_LEVEL: 'trace',
  }),
);
const startOnRedis = shared(async (owner) => {
  const redis = await startRedis(owner);
  return { redis, ...(await startWithKey(owner, { REDIS_URL: redis.url, WORKERS: '2' })) };
});
/** Each worker takes two requests at a time. */
const startBounded = shared(async (owner) => {
  const redis = await startRedis(owner);
  const env = { REDIS_URL: redis.url, FANFARE_API_MAX_REQUESTS: '2' };
  return { redis, ...(await startWithKey(owner, env)) };
});
/**
 * Its keys are in a file: `web` changes, and the others stay. Each has 1,000 messages. Tests reload
 * the server, and the last one ends it.
 */
const startWithFile = shared(async (owner) => {
  const path = join(temporaryFolder(owner), 'keys');
  const [secret, full, web] = [newSecret(), newSecret(), newSecret()];
  const write = (/** @type {string} */ current) =>
    writeFileSync(path, `main ${secret} all\nfull ${full} all\nweb ${current} all\n`);
  write(web);
  const server = await startServer(owner, {
    ...NO_LIMITS,
    WORKERS: '1',
    API_KEYS_FILE: path,
    FANFARE_HISTORY: 'h.*=100/60s',
    FANFARE_API_MESSAGES_RATE: '1/min burst 1000',
    FANFARE_LIMITS: 'enforce',
  });
  return { server, secret, full, web, write };
});

for (const redis of [false, true]) {
  describe(`on the ${redis ? 'Redis' : 'embedded'} backend`, () => {
    const startBackend = redis ? startOnRedis : start;

    test('publish reaches the members with the bytes of the payload', async (t) => {
      const { server, api } = await startBackend();
      const member = await connect(t, server.port);
      await member.join('bytes');
      const raw = '{"n":9007199254740993,"e":1e400,"s":"\\u00e9\\ud800"}';
      /** @type {string[]} */
      const texts = [];
      member.socket.on('message', (data) => void texts.push(String(data)));
      const answer = await api('/publish', { body: `{"room":"bytes","payload": ${raw} }` });
      assert.deepEqual([answer.status, answer.body], [200, {}]);
      const { from } = await member.next('message');
      assert.equal(from, '');
      assert.ok(texts[0].includes(`"payload":${raw},`), texts[0]);
    });

    test('the server library publishes, reads and acts', async (t) => {
      const {
        server: { port },
        secret,
      } = await startBackend();
      const server = createServer({ url: `http://127.0.0.1:${port}`, apiKey: secret });
      const member = await connect(t, port);
      await member.ask({ type: 'join', room: 'p.sdk', presence: { user: 'sdk' } }, 'joined');
      const idempotencyKey = randomUUID();
      const first = await server.publish('h.sdk', { text: 'é' }, { idempotencyKey });
      assert.deepEqual(await server.publish('h.sdk', { text: 'é' }, { idempotencyKey }), first);
      const expect = /** @type {{epoch: string, offset: number}} */ (first);
      // A repeat after a lost answer gets the same answer, and no conflict with itself.
      const repeated = { expect, idempotencyKey: randomUUID() };
      const second = await server.publish('h.sdk', 2, repeated);
      assert.deepEqual(await server.publish('h.sdk', 2, repeated), second);
      await assert.rejects(server.publish('h.sdk', 3, { expect }), {
        ...{ name: 'FanfareApiError', code: 'CONFLICT', status: 409, position: second },
      });
      const results = await server.publishMany([
        { room: 'h.sdk', payload: 3 },
        { room: 'p.sdk', payload: 'many' },
      ]);
      assert.deepEqual(
        results.map(({ room, offset }) => [room, offset]),
        [
          ['h.sdk', 3],
          ['p.sdk', undefined],
        ],
      );
      assert.equal((await member.next('message')).payload, 'many');
      const page = await server.history('h.sdk', { since: expect });
      assert.deepEqual(
        page.messages.map(({ payload }) => payload),
        [2, 3],
      );
      assert.equal((await server.room('h.sdk')).offset, 3);
      assert.deepEqual((await server.presence('p.sdk')).members, [{ user: 'sdk' }]);
      assert.deepEqual(await server.countUsers(['p.sdk', 'h.sdk']), {
        rooms: [
          { room: 'p.sdk', count: 1 },
          { room: 'h.sdk', count: null },
        ],
      });
      const { rooms } = await server.rooms({ prefix: 'p.sdk' });
      assert.deepEqual(rooms, [{ room: 'p.sdk', connections: 1 }]);
      await assert.rejects(server.revoke({ user: 'sdk' }), { code: 'NO_TOKENS' });
      const { connections } = await server.connections({ room: 'p.sdk' });
      const [{ id: connectionId }] = connections;
      assert.equal((await server.connection(connectionId)).id, connectionId);
      assert.deepEqual(await server.disconnect({ connectionId }), { connections: 1 });
      assert.equal((await member.closed()).code, 4503);
      await server.deleteHistory('h.sdk');
      assert.deepEqual((await server.history('h.sdk')).messages, []);
    });

    test('publish to a room with history answers its position', async () => {
      const { api } = await startBackend();
      const body = { room: 'h.position', payload: 'x' };
      const { body: first } = await api('/publish', { body });
      const { body: second } = await api('/publish', { body });
      assert.equal(first.offset, 1);
      assert.deepEqual(second, { epoch: first.epoch, offset: 2 });
      const { body: page } = await api('/rooms/h.position/history?limit=1');
      const [message] = page.messages;
      assert.deepEqual([page.offset, page.messages.length, message.payload], [2, 1, 'x']);
      const since = await api(`/rooms/h.position/history?since=${first.epoch}:1`);
      assert.deepEqual(
        since.body.messages.map((/** @type {any} */ one) => one.offset),
        [2],
      );
    });

    test('a publish to several rooms, and a batch, have a result for each', async (t) => {
      const { server, api } = await startBackend();
      const member = await connect(t, server.port);
      await member.join('many');
      const many = await api('/publish', { body: { rooms: ['many', 'h.many'], payload: 1 } });
      assert.deepEqual(
        many.body.results.map((/** @type {any} */ { room, offset }) => [room, offset]),
        [
          ['many', undefined],
          ['h.many', 1],
        ],
      );
      const messages = Array.from({ length: 1000 }, (_, i) => ({ room: 'many', payload: i }));
      const batch = await api('/publish/batch', { body: { messages } });
      assert.deepEqual([batch.status, batch.body.failed], [200, 0]);
      assert.equal(batch.body.results.length, 1000);
      await member.next(({ payload }) => payload === 999);
      const got = member.all('message').map(({ payload }) => payload);
      assert.deepEqual(got, [1, ...messages.map(({ payload }) => payload)]);
    });

    test('DELETE deletes the history of a room, which begins a new epoch', async () => {
      const { api } = await startBackend();
      const { body: first } = await api('/publish', { body: { room: 'h.delete', payload: 1 } });
      const answer = await api('/rooms/h.delete/history', { method: 'DELETE' });
      assert.deepEqual([answer.status, answer.body], [200, {}]);
      const { body: page } = await api('/rooms/h.delete/history');
      assert.deepEqual([page.messages, page.offset], [[], 0]);
      assert.notEqual(page.epoch, first.epoch);
    });

    test('broadcast reaches each connection, and answers their number', async (t) => {
      const { server, api } = await startBackend();
      const clients = [await connect(t, server.port), await connect(t, server.port)];
      await until(async () => {
        const { body } = await api('/broadcast', { body: { payload: { all: true } } });
        return body.listenerCount === 2;
      });
      for (const client of clients)
        assert.deepEqual((await client.next('broadcast')).payload, { all: true });
    });

    test('except leaves out one connection', async (t) => {
      const { server, api } = await startBackend();
      const [one, other] = [await connect(t, server.port), await connect(t, server.port)];
      const { connectionId } = await one.ask({ type: 'hello' }, 'welcome');
      for (const client of [one, other]) await client.join('except');
      await api('/publish', { body: { room: 'except', payload: 'first', except: connectionId } });
      await api('/publish', { body: { room: 'except', payload: 'second' } });
      for (const client of [one, other]) await client.next(({ payload }) => payload === 'second');
      const got = (/** @type {typeof one} */ client) =>
        client.all('message').map(({ payload }) => payload);
      assert.deepEqual([got(one), got(other)], [['second'], ['first', 'second']]);
    });

    test('an idempotency key publishes once, and belongs to one payload', async (t) => {
      const { server, api } = await startBackend();
      for (const room of ['once', 'h.once']) {
        const member = await connect(t, server.port);
        await member.join(room);
        const send = async (
          /** @type {unknown} */ payload,
          headers = { 'Idempotency-Key': 'k1' },
        ) => api('/publish', { body: { room, payload }, headers });
        const first = await send('once');
        assert.deepEqual((await send('once')).body, first.body);
        const conflict = await send('other');
        assert.deepEqual([conflict.status, conflict.body.error], [409, 'IDEMPOTENCY_CONFLICT']);
        const item = { room, payload: 'once', idempotencyKey: 'k1' };
        const batch = await api('/publish/batch', { body: { messages: [item, item] } });
        assert.deepEqual(batch.body.results, [
          { room, ...first.body },
          { room, ...first.body },
        ]);
        await send('last', { 'Idempotency-Key': 'k2' });
        await member.next(({ payload }) => payload === 'last');
        const got = member.all('message').map(({ payload }) => payload);
        assert.deepEqual(got, ['once', 'last']);
      }
    });

    test('a message is accepted at the position that it expects, else refused with the true one', async () => {
      const { api } = await startBackend();
      const room = 'h.expect';
      const send = (/** @type {object} */ body, headers = {}) =>
        api('/publish', { body: { room, payload: 1, ...body }, headers });
      const first = await send({ expect: { offset: 0 } });
      assert.deepEqual([first.status, first.body.offset], [200, 1]);
      const conflict = await send({ expect: { offset: 0 } });
      const { error, position } = conflict.body;
      assert.deepEqual([conflict.status, error, position], [409, 'CONFLICT', first.body]);
      const second = await send({ expect: position }, { 'Idempotency-Key': 'second' });
      assert.equal(second.body.offset, 2);
      const again = await send({ expect: position }, { 'Idempotency-Key': 'second' });
      assert.deepEqual(again.body, second.body);
    });

    test('a batch: after a refusal, later messages to the room that expect a position are refused', async () => {
      const { api } = await startBackend();
      const [room, other] = ['h.batch-expect', 'h.batch-other'];
      const { body: first } = await api('/publish', { body: { room, payload: 0 } });
      const at = (/** @type {number} */ offset) => ({ epoch: first.epoch, offset });
      const send = (/** @type {object[]} */ ...messages) =>
        api('/publish/batch', {
          body: { messages: messages.map((one) => ({ room, payload: 1, ...one })) },
        });
      const all = await send({ expect: at(1) }, { expect: at(2) }, {}, { expect: at(4) });
      const offsets = all.body.results.map((/** @type {any} */ one) => one.offset);
      assert.deepEqual([offsets, all.body.failed], [[2, 3, 4, 5], 0]);
      // The second would fit, because the third is a message of somebody else.
      const some = await send(
        { expect: at(4) },
        {},
        { expect: at(6) },
        { room: other, expect: { offset: 0 } },
      );
      const [one, two, three, four] = some.body.results;
      assert.deepEqual([one.error, one.position], ['CONFLICT', at(5)]);
      assert.deepEqual([two.offset, three.error, three.position], [6, 'CONFLICT', at(5)]);
      assert.equal(four.offset, 1);
      const none = await send({ expect: at(1) }, { expect: at(2) });
      assert.deepEqual([none.status, none.body.error], [409, 'CONFLICT']);
      // The same if the first is refused for another reason.
      const key = { idempotencyKey: 'of-the-seventh' };
      await send({ expect: at(6), ...key });
      const used = await send({ expect: at(7), payload: 2, ...key }, {}, { expect: at(8) });
      const errors = used.body.results.map((/** @type {any} */ one) => one.error);
      assert.deepEqual(errors, ['IDEMPOTENCY_CONFLICT', undefined, 'IDEMPOTENCY_CONFLICT']);
    });

    test('rooms, users and connections can be looked at and acted on', async (t) => {
      const { server, api } = await startBackend();
      const client = await connect(t, server.port);
      await client.ask({ type: 'join', room: 'p.seen', presence: { user: 'ann' } }, 'joined');
      await client.join('h.seen');
      const other = await connect(t, server.port);
      await other.join('h.seen');
      const rooms = await api('/rooms?prefix=h.seen');
      assert.deepEqual(rooms.body, { rooms: [{ room: 'h.seen', connections: 2 }], partial: false });
      const room = (await api('/rooms/h.seen')).body;
      assert.deepEqual([room.connections, room.offset, room.users], [2, 0, undefined]);
      assert.equal((await api('/rooms/p.seen')).body.users, 1);
      const online = await api('/presence', { body: { users: ['bob', 'ann'] } });
      assert.deepEqual(online.body, { online: ['ann'], partial: false });
      const joined = await api('/users/ann/join', { body: { rooms: ['c', 'd'] } });
      assert.deepEqual([joined.status, joined.body.connections], [200, 1]);
      await client.next(({ type, room: name }) => type === 'joined' && name === 'd');
      const left = await api('/users/ann/leave', { body: { rooms: ['c'] } });
      assert.deepEqual([left.status, left.body.connections], [200, 1]);
      await client.next(({ type, room: name }) => type === 'left' && name === 'c');
      const closed = await api('/disconnect', { body: { user: 'ann', code: 4100 } });
      assert.deepEqual([closed.status, closed.body.connections], [200, 1]);
      await client.until(() => client.close !== null, 5000, 'the close');
      assert.equal(client.close?.code, 4100);
      const { connectionId } = await other.ask({ type: 'hello' }, 'welcome');
      assert.equal((await api('/disconnect', { body: { connectionId } })).body.connections, 1);
      await other.until(() => other.close !== null, 5000, 'the close');
      assert.equal(other.close?.code, 4503);
    });

    test('connections are found by user, room, address and id', async (t) => {
      const { server, api } = await startBackend();
      const beganMs = Date.now();
      const client = await connect(t, server.port);
      await client.ask({ type: 'join', room: 'p.found', presence: { user: 'fay' } }, 'joined');
      await client.join('found');
      const { connectionId } = await client.ask({ type: 'hello' }, 'welcome');
      const stream = await EventClient.open(t, server.port, '?room=found');
      await stream.collect('joined');
      const { body: mine } = await api('/connections?user=fay');
      assert.deepEqual([mine.count, mine.partial], [1, false]);
      const { connectedAt, server: name, worker, ...row } = mine.connections[0];
      assert.deepEqual(row, {
        id: connectionId,
        transport: 'websocket',
        roomCount: 2,
        rooms: ['p.found', 'found'],
        unsentBytes: 0,
        laggingRooms: 0,
        refusedMessages: 0,
      });
      const ageMs = connectedAt - beganMs;
      assert.ok(ageMs > -2000 && ageMs < 10_000, `${ageMs} ms`);
      assert.ok(name.length > 0 && Number.isInteger(worker));
      const { body: members } = await api('/connections?room=found');
      assert.deepEqual(members.connections.map((/** @type {any} */ one) => one.transport).sort(), [
        'sse',
        'websocket',
      ]);
      const { body: first } = await api('/connections?room=found&limit=1');
      assert.deepEqual([first.count, first.connections.length], [2, 1]);
      const { body: one } = await api(`/connections/${connectionId}`);
      assert.deepEqual(one, mine.connections[0]);
      assert.equal((await api('/connections?address=192.0.2.1')).body.count, 0);
      client.socket.close();
      const gone = await until(async () => {
        const answer = await api(`/connections/${connectionId}`);
        return answer.status === 404 && answer.body;
      });
      assert.equal(gone.error, 'NO_CONNECTION');
    });

    test('presence shows the users of a room, and counts for many rooms', async (t) => {
      const { server, api } = await startBackend();
      const client = await connect(t, server.port);
      await client.ask({ type: 'join', room: 'p.present', presence: { user: 'eve' } }, 'joined');
      const shown = await until(async () => {
        const { body } = await api('/rooms/p.present/presence');
        return body.count === 1 && body;
      });
      assert.deepEqual(shown.members, [{ user: 'eve' }]);
      const counts = await api('/presence', { body: { rooms: ['p.present', 'p.2', 'present'] } });
      assert.deepEqual(counts.body.rooms, [
        { room: 'p.present', count: 1 },
        { room: 'p.2', count: 0 },
        { room: 'present', count: null },
      ]);
      assert.equal((await api('/rooms/present/presence')).body.error, 'NO_PRESENCE');
    });
  });
}

test('a key may do what its rights say, in the rooms of its patterns', async () => {
  const { server } = await start();
  const api = apiOf(server, webSecret);
  const statusOf = async (/** @type {string} */ path, /** @type {object|undefined} */ body) =>
    (await api(path, body && { body })).status;
  assert.equal(await statusOf('/publish', { room: 'h.web.1', payload: 1 }), 200);
  assert.equal(await statusOf('/rooms/h.web.1/history', undefined), 200);
  assert.equal(await statusOf('/publish', { room: 'h.other', payload: 1 }), 403);
  assert.equal(await statusOf('/publish', { rooms: ['h.web.1', 'h.other'], payload: 1 }), 403);
  assert.equal(await statusOf('/rooms/h.other/history', undefined), 403);
  assert.equal(await statusOf('/rooms/absent/history', undefined), 403);
  assert.equal(await statusOf('/broadcast', { payload: 1 }), 403);
  assert.equal(await statusOf('/connections?room=h.web.1', undefined), 403);
  // The request that was refused for one of its rooms has published to none of them.
  assert.equal((await api('/rooms/h.web.1/history')).body.offset, 1);
});

test('a request without a valid key gets 401, whatever it asks for', async () => {
  const { server, secret } = await start();
  for (const wrong of ['', 'x', newSecret(), secret.slice(1), `${secret}0`, secret.toUpperCase()]) {
    const api = apiOf(server, wrong);
    for (const path of ['/publish', '/rooms/h.1/history', '/nothing']) {
      const { status, body, headers } = await api(path);
      assert.deepEqual([status, body.error], [401, 'UNAUTHORIZED'], wrong);
      assert.equal(headers.get('www-authenticate'), 'Bearer');
    }
    assert.equal((await api('/publish', { body: { room: 'a', payload: 1 } })).status, 401);
  }
});

test('keys never occur in logs, metrics or answers', async () => {
  const wrong = newSecret();
  const { server, secret, api } = await start();
  const texts = [(await api('/publish', { body: { room: 'a', payload: 1 } })).text];
  texts.push((await api(`/publish?key=${secret}`, { body: '{' })).text);
  texts.push((await apiOf(server, wrong)('/publish')).text);
  texts.push((await api('/rooms/%zz/history')).text);
  texts.push(
    (await scrape(server.metricsPort)).text,
    server.stderr(),
    JSON.stringify(server.lines),
  );
  for (const text of texts) for (const one of [secret, wrong]) assert.ok(!text.includes(one));
});

/** @type {[name: string, path: string, request: import('../helpers/api.js').ApiRequest, status: number, error: string, field?: string][]} */
const REFUSED = [
  ...[
    null,
    [],
    { offset: 1 },
    { epoch: 'e'.repeat(16) },
    { epoch: 'e'.repeat(16), offset: '1' },
    { epoch: 'e'.repeat(16), offset: 1, room: 'a' },
  ].map(
    (expect) =>
      /** @type {(typeof REFUSED)[number]} */ ([
        `a position ${JSON.stringify(expect)}`,
        '/publish',
        { body: { room: 'h.1', payload: 1, expect } },
        422,
        'INVALID_FIELD',
        'expect',
      ]),
  ),
  [
    'a position for several rooms',
    '/publish',
    { body: { rooms: ['h.1'], payload: 1, expect: { offset: 0 } } },
    422,
    'INVALID_FIELD',
    'expect',
  ],
  [
    'a position in a room without history',
    '/publish/batch',
    { body: { messages: [{ room: 'plain', payload: 1, expect: { offset: 0 } }] } },
    422,
    'INVALID_FIELD',
    'messages[0].expect',
  ],
  ['no JSON', '/publish', { body: '{"room":"a","payload":' }, 400, 'INVALID_JSON'],
  ['no body', '/publish', { method: 'POST' }, 400, 'INVALID_JSON'],
  ['a list', '/publish', { body: [] }, 400, 'INVALID_JSON'],
  [
    'too deep JSON',
    '/publish',
    { body: `{"room":"a","payload":${'['.repeat(32)}${']'.repeat(32)}}` },
    400,
    'INVALID_JSON',
  ],
  [
    'too many keys outside the payload',
    '/publish',
    {
      body: {
        room: 'a',
        payload: 1,
        except: Object.fromEntries(Array.from({ length: 256 }, (_, i) => [i, 0])),
      },
    },
    400,
    'INVALID_JSON',
  ],
  [
    'no UTF-8',
    '/publish',
    { body: Buffer.from('{"room":"a","payload":"\xff"}', 'latin1') },
    400,
    'INVALID_JSON',
  ],
  [
    'an invalid room',
    '/publish',
    { body: { room: 'a b', payload: 1 } },
    422,
    'INVALID_FIELD',
    'room',
  ],
  ['no payload', '/publish', { body: { room: 'a' } }, 422, 'INVALID_FIELD', 'payload'],
  [
    'two targets',
    '/publish',
    { body: { room: 'a', rooms: ['b'], payload: 1 } },
    422,
    'INVALID_FIELD',
    'room',
  ],
  [
    'a repeated field',
    '/publish',
    { body: '{"room":"a","room":"a","payload":1}' },
    422,
    'INVALID_FIELD',
    'room',
  ],
  [
    'an unknown field',
    '/publish',
    { body: { room: 'a', payload: 1, exept: 'x' } },
    422,
    'INVALID_FIELD',
    'exept',
  ],
  [
    'a room twice',
    '/publish',
    { body: { rooms: ['a', 'a'], payload: 1 } },
    422,
    'INVALID_FIELD',
    'rooms',
  ],
  [
    '1,001 rooms',
    '/publish',
    { body: { rooms: Array.from({ length: 1001 }, (_, i) => `r${i}`), payload: 1 } },
    422,
    'INVALID_FIELD',
    'rooms',
  ],
  [
    'a fault within a batch',
    '/publish/batch',
    { body: { messages: [{ room: 'h.1', payload: 1 }, { room: 'h.1' }] } },
    422,
    'INVALID_FIELD',
    'messages[1].payload',
  ],
  [
    'a payload of 103 KB',
    '/publish',
    { body: { room: 'a', payload: 'x'.repeat(103_000) } },
    413,
    'PAYLOAD_TOO_LARGE',
  ],
  ['a body of 2 MB', '/publish', { body: 'x'.repeat(2_000_000) }, 413, 'BODY_TOO_LARGE'],
  [
    'another type of body',
    '/publish',
    { body: 'a=1', headers: { 'Content-Type': 'text/plain' } },
    415,
    'UNSUPPORTED_MEDIA_TYPE',
  ],
  [
    'a content encoding',
    '/publish',
    { body: '{}', headers: { 'Content-Encoding': 'gzip' } },
    415,
    'UNSUPPORTED_MEDIA_TYPE',
  ],
  [
    'an invalid idempotency key',
    '/publish',
    { body: { room: 'a', payload: 1 }, headers: { 'Idempotency-Key': 'a b' } },
    400,
    'INVALID_REQUEST',
    'Idempotency-Key',
  ],
  ['an unknown path', '/nothing', {}, 404, 'NOT_FOUND'],
  ['a path in another case', '/Publish', { body: {} }, 404, 'NOT_FOUND'],
  ['another method', '/publish', {}, 405, 'METHOD_NOT_ALLOWED'],
  ['an invalid path', '/rooms/%zz/history', {}, 400, 'INVALID_REQUEST'],
  ['an invalid room in the path', '/rooms/a%20b/history', {}, 400, 'INVALID_REQUEST', 'room'],
  ['an invalid limit', '/rooms/h.1/history?limit=0', {}, 400, 'INVALID_REQUEST', 'limit'],
  ['an unknown parameter', '/rooms/h.1/history?limt=1', {}, 400, 'INVALID_REQUEST', 'limt'],
  ['half a position', '/rooms/h.1/history?since=1', {}, 400, 'INVALID_REQUEST', 'since'],
  ['a before that is none', '/rooms/h.1/history?before=x:1', {}, 400, 'INVALID_REQUEST', 'before'],
  ['no time', '/rooms/h.1/history?sinceTime=-1', {}, 400, 'INVALID_REQUEST', 'sinceTime'],
  ['a fraction', '/rooms/h.1/history?sinceTime=1.5', {}, 400, 'INVALID_REQUEST', 'sinceTime'],
  [
    'two places',
    `/rooms/h.1/history?before=${'0'.repeat(16)}:1&sinceTime=1`,
    {},
    400,
    'INVALID_REQUEST',
    'sinceTime',
  ],
  ['an empty parameter', '/rooms?prefix=', {}, 400, 'INVALID_REQUEST', 'prefix'],
  ['connections of nobody', '/connections', {}, 400, 'INVALID_REQUEST', 'user'],
  ['a user and a room', '/connections?user=a&room=b', {}, 400, 'INVALID_REQUEST', 'user'],
  ['connections of no user', '/connections?user=', {}, 400, 'INVALID_REQUEST', 'user'],
  ['connections of no room', '/connections?room=a%20b', {}, 400, 'INVALID_REQUEST', 'room'],
  ['connections of no address', '/connections?address=', {}, 400, 'INVALID_REQUEST', 'address'],
  ['an invalid limit', '/connections?room=a&limit=1001', {}, 400, 'INVALID_REQUEST', 'limit'],
  ['no id', '/connections/a%20b', {}, 400, 'INVALID_REQUEST', 'connectionId'],
  ['an unknown id', '/connections/nobody', {}, 404, 'NO_CONNECTION'],
  ['history of a room without', '/rooms/a/history', {}, 404, 'NO_HISTORY'],
  ['a revocation without tokens', '/revoke', { body: { user: 'ann' } }, 404, 'NO_TOKENS'],
];

test('a request that is not valid is refused with its own error, and publishes nothing', async () => {
  const { api } = await start();
  for (const [name, path, request, status, error, field] of REFUSED) {
    const answer = await api(path, request);
    assert.deepEqual(
      [answer.status, answer.body.error, answer.body.field],
      [status, error, field],
      name,
    );
    assert.equal(typeof answer.body.message, 'string', name);
  }
  assert.equal((await api('/rooms/h.1/history')).body.offset, 0);
});

/** Requests that are refused, and their answers. */
const MESSAGES = /** @type {[string, object, string][]} */ ([
  ['/publish', { body: { rooom: 'a', payload: 1 } }, 'Unknown field rooom. Did you mean room?'],
  [
    '/publish',
    { body: { channel: 'a', payload: 1 } },
    'Unknown field channel. The fields are room, rooms, payload, upload, key, except, expect, audience.',
  ],
  ['/publish', { body: '{"room":"a","room":"b","payload":1}' }, 'room: it occurs twice.'],
  ['/publish', { body: { payload: 1 } }, 'room: exactly one of room and rooms is required.'],
  [
    '/publish',
    { body: { room: 'has space', payload: 1 } },
    'room: a room is 1 to 200 characters of A-Z a-z 0-9 _ . : @ / -.',
  ],
  [
    '/publish/batch',
    { body: { messages: [{ room: 'a', payload: 1, idempotencykey: 'k' }] } },
    'Unknown field messages[0].idempotencykey. Did you mean messages[0].idempotencyKey?',
  ],
  ['/publish/batch', { body: { messages: [] } }, 'messages: a list of 1 to 1,000 objects.'],
  ['/publish/batch', { body: { messages: [1] } }, 'messages[0]: an object.'],
  ['/rooms?limit=5000', {}, 'limit: a whole number from 1 to 1,000.'],
  ['/rooms?page=1', {}, 'Unknown parameter page. The parameters are prefix, after, limit.'],
  ['/rooms?limt=1', {}, 'Unknown parameter limt. Did you mean limit?'],
  ['/rooms?limit=1&limit=2', {}, 'limit: it occurs twice.'],
]);

test('a refusal names its cause', async () => {
  const { api } = await start();
  for (const [path, request, message] of MESSAGES)
    assert.equal((await api(path, request)).body.message, message);
});

for (const room of ['frozen', 'h.frozen']) {
  test(`a publish to ${room} during a freeze of Redis and again after it makes one message`, async (t) => {
    const { redis, server, api } = await startOnRedis();
    const isUp = async () =>
      (await scrape(server.metricsPort)).values.get('fanfare_broker_up') === 1;
    await until(isUp); // after another freeze
    const members = [await connect(t, server.port), await connect(t, server.port)];
    for (const member of members) await member.join(room);
    const send = (/** @type {string} */ payload) =>
      api('/publish', { body: { room, payload }, headers: { 'Idempotency-Key': room + payload } });
    redis.freeze();
    const frozen = await send('once');
    redis.thaw();
    assert.deepEqual([frozen.status, frozen.body.error], [504, 'OUTCOME_UNKNOWN']);
    // A member of a plain room misses what is sent while its worker reconnects.
    await until(isUp);
    // A worker that is still reconnecting answers 503.
    const accepted = async (/** @type {string} */ payload) => {
      let answer = await send(payload);
      await until(async () => answer.status === 200 || (answer = await send(payload)) === null);
      return answer;
    };
    const again = await accepted('once');
    const last = await accepted('last');
    if (room === 'h.frozen') {
      assert.deepEqual([again.body.offset, last.body.offset], [1, 2]);
      // The other worker may still be reconnecting.
      const { body } = await until(async () => {
        const answer = await api('/rooms/h.frozen/history');
        return answer.status === 200 ? answer : null;
      });
      assert.equal(body.messages.length, 2);
    }
    for (const member of members) {
      await member.next(({ payload }) => payload === 'last');
      const got = member.all('message').map(({ payload }) => payload);
      assert.deepEqual(got, ['once', 'last']);
    }
  });
}

test('a publish that Redis refuses gets 503, and its idempotency key stays new', async (t) => {
  const { redis, server, api } = await startBounded();
  const member = await connect(t, server.port);
  await member.join('a');
  const send = async (/** @type {string} */ key) => {
    const headers = { 'Idempotency-Key': key };
    const { status, body } = await api('/publish', { body: { room: 'a', payload: key }, headers });
    return [status, body.error];
  };
  /** @param {'+'|'-'} sign @param {readonly string[]} commands */
  const permit = (sign, commands) =>
    redis.cli('ACL', 'SETUSER', 'default', ...commands.map((command) => `${sign}${command}`));
  const refused = [['set'], ['publish'], ['publish', 'del']];
  for (const commands of refused) {
    const key = `without-${commands.join('-')}`;
    await permit('-', commands);
    assert.deepEqual(await send(key), [503, 'UNAVAILABLE']);
    await permit('+', commands);
    // A refused PUBLISH degrades the broker until its own probe is published again.
    await until(async () => (await send('up'))[0] === 200);
    assert.deepEqual(await send(key), [200, undefined]);
    assert.deepEqual(await send(key), [200, undefined]);
  }
  await send('last');
  await member.next(({ payload }) => payload === 'last');
  assert.deepEqual(
    member.all('message').map(({ payload }) => payload),
    ['up', 'without-set', 'without-publish', 'without-publish-del', 'last'],
  );
});

test('requests beyond the bound get 503 and are counted', async () => {
  const { redis, server, api } = await startBounded();
  redis.freeze();
  const body = { room: 'a', payload: 1 };
  const answers = await Promise.all(Array.from({ length: 5 }, () => api('/publish', { body })));
  redis.thaw();
  const statuses = answers.map(({ status }) => status).sort();
  assert.deepEqual(statuses.slice(0, 3), [503, 503, 503]);
  assert.ok(statuses.slice(3).every((status) => status === 503 || status === 504));
  const { values } = await scrape(server.metricsPort);
  assert.equal(values.get('fanfare_api_refused_total{reason="busy"}'), 3);
});

test('a key over its rate gets 429 with Retry-After, and other keys do not', async () => {
  const { server, secret, full } = await startWithFile();
  const api = apiOf(server, full);
  const body = { messages: Array.from({ length: 1000 }, () => ({ room: 'a', payload: 1 })) };
  assert.equal((await api('/publish/batch', { body })).status, 200);
  const refused = await api('/publish', { body: { room: 'a', payload: 1 } });
  assert.deepEqual([refused.status, refused.body.error], [429, 'RATE_LIMIT_EXCEEDED']);
  assert.ok(Number(refused.headers.get('retry-after')) >= 30);
  assert.equal(
    (await apiOf(server, secret)('/publish', { body: { room: 'a', payload: 1 } })).status,
    200,
  );
});

test('a reload replaces the keys of the file', async () => {
  const { server, web: old, write } = await startWithFile();
  const next = newSecret();
  const statusWith = async (/** @type {string} */ secret) =>
    (await apiOf(server, secret)('/rooms/h.1/history')).status;
  assert.deepEqual([await statusWith(old), await statusWith(next)], [200, 401]);
  write(next);
  const logged = reload(server);
  // The old worker answers at its end, too, so no request may fail.
  const isNow = (/** @type {string} */ secret, /** @type {number} */ status) =>
    until(async () => (await statusWith(secret)) === status, 20_000, `${status}`);
  await isNow(next, 200);
  await isNow(old, 401);
  await logged('reload complete');
});

test('a reload answers the request that comes on a kept-alive socket of an old worker', async (t) => {
  const { server, secret } = await startWithFile();
  const body = '{"room":"a","payload":1}';
  const request = `POST /api/publish HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const [kept, idle] = [await RawClient.connect(t, server), await RawClient.connect(t, server)];
  for (const client of [kept, idle]) {
    const first = await client.write(request).response();
    assert.deepEqual([first.status, first.headers.connection], [200, 'keep-alive']);
  }
  const logged = reload(server);
  await logged('new workers are ready');
  const last = await kept.write(request).response();
  assert.deepEqual([last.status, last.headers.connection], [200, 'close']);
  await logged('reload complete');
  assert.ok(idle.isClosed);
});

test('a drain answers the request under way before it ends, and takes no other', async (t) => {
  const { server, secret } = await startWithFile();
  const body = '{"room":"h.1","payload":1}';
  const head = `POST /api/publish HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  const [busy, idle] = [await RawClient.connect(t, server), await RawClient.connect(t, server)];
  idle.write(head + body);
  assert.equal((await idle.response()).status, 200);
  busy.write(head + body.slice(0, 9));
  await until(async () => {
    const { values } = await scrape(server.metricsPort);
    return values.get('fanfare_api_requests_in_flight') === 1;
  });
  server.kill('SIGTERM');
  await until(() => idle.isClosed);
  busy.write(body.slice(9));
  const { status, headers, body: answer } = await busy.response();
  assert.deepEqual([status, headers['content-length'] > '0'], [200, true]);
  assert.match(answer, /"offset":2}/);
  assert.equal((await server.exited).code, 0);
});
