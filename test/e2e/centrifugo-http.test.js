// centrifugo-http.test.js: Centrifugo's server API on real servers, with real clients of its door.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, scrape, startServer, until } from '../harness/server.js';
import { connectionToken, connectRaw, WITH_TOKENS } from '../helpers/centrifugo.js';
import { centrifugoApiOf, KEY } from '../helpers/centrifugo-api.js';
import { connect } from '../helpers/clients.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { token } from '../helpers/tokens.js';

/** @typedef {import('../harness/server.js').Owner} Owner */

const OPTIONS = { timeout: 60_000 };
const OLD_KEY = `${KEY}-old`;
const ENV = {
  ...NO_LIMITS,
  ...WITH_TOKENS,
  FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*, publish:*, presence:*, history:*',
  FANFARE_CENTRIFUGO_API_KEY: KEY,
  FANFARE_HISTORY: 'h*=10/60s, $h*=10/60s',
  FANFARE_PRESENCE: 'p*',
};

/**
 * @param {Owner} t @param {Record<string, string>} [env] @param {number} [count]
 * @param {readonly Record<string, string>[]} [more] settings of each
 */
async function startServers(t, env = {}, count = 1, more = []) {
  /** @type {Awaited<ReturnType<typeof startServer>>[]} */
  const servers = [];
  for (let i = 0; i < count; i++)
    servers.push(await startServer(t, { ...ENV, SERVER_ID: `s${i}`, ...env, ...more[i] }));
  const { port } = servers[0];
  return {
    servers,
    port,
    api: centrifugoApiOf(port),
    /** @param {Owner} owner @param {string} sub @param {number} [at] which server */
    user: (owner, sub, at = 0) =>
      connectRaw(owner, servers[at % count].port, { token: connectionToken({ sub }) }),
  };
}

const BACKENDS = {
  /** Its keys are in a file. */
  'one server of two workers': shared(async (owner) => {
    const path = join(temporaryFolder(owner), 'keys');
    writeFileSync(path, `${KEY}\n${OLD_KEY}\n`);
    const env = { FANFARE_CENTRIFUGO_API_KEY: '', FANFARE_CENTRIFUGO_API_KEY_FILE: path };
    return { path, ...(await startServers(owner, { WORKERS: '2', ...env })) };
  }),
  'two servers on Redis': shared(async (owner) =>
    startServers(owner, { REDIS_URL: (await startRedis(owner)).url }, 2, [
      {},
      { FANFARE_CENTRIFUGO_API_PATH: '/api' },
    ]),
  ),
};

for (const [name, start] of Object.entries(BACKENDS)) {
  describe(name, () => {
    test(
      'a publication reaches the members of a channel, and keeps its bytes',
      OPTIONS,
      async (t) => {
        const { api, user, servers } = await start();
        const client = await user(t, 'ann', 1);
        const native = await connect(t, servers[0].port, {
          headers: { Authorization: `Bearer ${token({ sub: 'nat', rooms: { join: ['*'] } })}` },
        });
        await native.join('news');
        for (const channel of ['news', 'news#ann', 'h'])
          assert.equal((await client.call('subscribe', { channel })).error, undefined, channel);
        assert.deepEqual(await api('publish', { channel: 'news', data: { n: 1 } }), { result: {} });
        assert.deepEqual((await client.push('pub')).pub.data, { n: 1 });
        assert.deepEqual((await native.next('message')).payload, { n: 1 });
        await api('publish', { channel: 'news#ann', b64data: btoa('"x"') });
        const pushed = await client.push('pub');
        assert.deepEqual([pushed.channel, pushed.pub.data], ['news#ann', 'x']);
        const { result } = await api('publish', { channel: 'h', data: null });
        assert.deepEqual([result.offset, typeof result.epoch], [1, 'string']);
        const { pub } = await client.push('pub');
        assert.deepEqual([pub.data ?? null, pub.offset, pub.info], [null, 1, undefined]);
        // Not kept, and without a position.
        const unkept = { channel: 'h', data: 2, skip_history: true };
        assert.deepEqual(await api('publish', unkept), { result: {} });
        assert.equal((await client.push('pub')).pub.offset, undefined);
        assert.equal((await api('history', { channel: 'h' })).result.offset, 1);
      },
    );

    test('a broadcast answers for each channel', OPTIONS, async (t) => {
      const { api, user } = await start();
      const client = await user(t, 'ann');
      for (const channel of ['b1', 'b2']) await client.call('subscribe', { channel });
      const channels = ['b1', '', 'h-b', 'b*', 'b2', '__proto__'];
      const { responses } = (await api('broadcast', { channels, data: 'all' })).result;
      assert.deepEqual(
        responses.map((/** @type {any} */ { error, result }) => error?.code ?? result.offset ?? 0),
        [0, 107, 1, 102, 0, 0],
      );
      const got = [await client.push('pub'), await client.push('pub')];
      assert.deepEqual(got.map(({ channel }) => channel).sort(), ['b1', 'b2']);
    });

    test('an idempotency key publishes once', OPTIONS, async () => {
      const { api } = await start();
      const once = { channel: 'h-once', data: 1, idempotency_key: 'k' };
      const first = await api('publish', once);
      assert.equal(first.result.offset, 1);
      assert.deepEqual(await api('publish', once), first);
      assert.equal((await api('publish', { ...once, data: 2 })).error.code, 113);
      assert.equal((await api('publish', { ...once, idempotency_key: 'é' })).error.code, 107);
    });

    test('history is read in both directions, and removed', OPTIONS, async (t) => {
      const { api, user } = await start();
      const client = await user(t, 'ann');
      const channel = '$h-read';
      assert.deepEqual((await api('history', { channel, limit: 5 })).result?.publications, []);
      for (let i = 1; i <= 12; i++) await api('publish', { channel, data: i });
      const offsets = async (/** @type {object} */ query) =>
        (await api('history', { channel, limit: -1, ...query })).result.publications.map(
          (/** @type {any} */ { offset, data }) => (offset === data ? offset : Number.NaN),
        );
      assert.deepEqual(await offsets({}), [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
      assert.deepEqual(await offsets({ limit: 2, reverse: true }), [12, 11]);
      const { epoch, offset, publications } = (await api('history', { channel })).result;
      assert.deepEqual([offset, publications], [12, []]);
      assert.deepEqual(await offsets({ since: { offset: 10, epoch } }), [11, 12]);
      assert.deepEqual(await offsets({ since: { offset: 5, epoch }, reverse: true }), [4, 3]);
      const other = { channel, since: { offset: 1, epoch: 'x' } };
      assert.equal((await api('history', other)).error.code, 112);
      assert.deepEqual(await api('history_remove', { channel }), { result: {} });
      assert.notEqual((await api('history', { channel })).result.epoch, epoch);
      // Who has published, and what a client sees of it.
      await client.call('subscribe', { channel: 'h-info' });
      await client.call('publish', { channel: 'h-info', data: 'by ann' });
      const [row] = (await api('history', { channel: 'h-info', limit: 1 })).result.publications;
      assert.equal(row.info.user, 'ann');
      for (const method of ['history', 'history_remove'])
        assert.equal((await api(method, { channel: 'none' })).error.code, 108);
    });

    test('presence has the users of all servers', OPTIONS, async (t) => {
      const { api, user } = await start();
      const clients = [await user(t, 'ann'), await user(t, 'ann', 1), await user(t, 'bob', 1)];
      for (const client of clients) await client.call('subscribe', { channel: 'p1' });
      const stats = { result: { num_clients: 2, num_users: 2 } };
      await until(
        async () =>
          JSON.stringify(await api('presence_stats', { channel: 'p1' })) === JSON.stringify(stats),
        5000,
        'two users',
      );
      const { presence } = (await api('presence', { channel: 'p1' })).result;
      const users = Object.values(presence).map((/** @type {any} */ one) => one.user);
      assert.deepEqual(users.sort(), ['ann', 'bob']);
      for (const method of ['presence', 'presence_stats'])
        assert.equal((await api(method, { channel: 'none' })).error.code, 108);
    });

    test('channels and nodes are listed', OPTIONS, async (t) => {
      const { api, user } = await start();
      const [one, two] = [await user(t, 'ann'), await user(t, 'bob', 1)];
      for (const client of [one, two]) await client.call('subscribe', { channel: 'list:1' });
      await one.call('subscribe', { channel: 'list#ann' });
      const list = async (/** @type {string} */ pattern) =>
        (await api('channels', { pattern })).result.channels;
      const all = { 'list:1': { num_clients: 2 }, 'list#ann': { num_clients: 1 } };
      await until(async () => Object.keys(await list('list*')).length === 2, 5000, 'two channels');
      assert.deepEqual(await list('list*'), all);
      assert.deepEqual(await list('list#*'), { 'list#ann': { num_clients: 1 } });
      assert.deepEqual(await list('no*'), {});
      assert.ok((await api('channels', {})).result.channels['list:1']);
      assert.equal((await api('channels', { pattern: 'list?' })).error.code, 107);
      const { nodes } = (await api('info', {})).result;
      assert.equal(nodes.length, 2);
      const clients = nodes.map((/** @type {any} */ { num_clients: count }) => count);
      assert.ok(clients[0] + clients[1] >= 2, JSON.stringify(nodes));
    });

    test(
      'connections of a user are subscribed, unsubscribed and closed, wherever they are',
      OPTIONS,
      async (t) => {
        const { api, user } = await start();
        const clients = [await user(t, 'cat'), await user(t, 'cat', 1), await user(t, 'cat', 1)];
        const { client: first } = clients[0].welcome;
        assert.deepEqual(await api('subscribe', { user: 'cat', channel: '$own' }), { result: {} });
        for (const client of clients)
          assert.equal((await client.push('subscribe')).channel, '$own');
        await api('publish', { channel: '$own', data: 'to cat' });
        for (const client of clients) assert.equal((await client.push('pub')).pub.data, 'to cat');
        const one = { user: 'cat', client: first, channel: '$own' };
        assert.deepEqual(await api('unsubscribe', one), { result: {} });
        assert.equal((await clients[0].push('unsubscribe')).unsubscribe.code, 2000);
        assert.deepEqual((await api('channels', { pattern: '$own' })).result.channels, {
          $own: { num_clients: 2 },
        });
        const others = {
          user: 'cat',
          whitelist: [first],
          disconnect: { code: 4321, reason: 'go' },
        };
        assert.deepEqual(await api('disconnect', others), { result: {} });
        assert.equal(await clients[1].closeCode(), 4321);
        assert.equal(clients[1].close?.reason, 'go');
        assert.equal(await clients[2].closeCode(), 4321);
        // Not the connection of this user, and one that nobody has.
        for (const [name, client] of [
          ['bob', first],
          ['cat', 'nobody'],
          ['', first],
          ['bob', 'u:cat'],
        ])
          assert.deepEqual(await api('disconnect', { user: name, client }), { result: {} });
        const kept = { user: 'cat', whitelist: ['u:cat'] };
        assert.deepEqual(await api('disconnect', kept), { result: {} });
        assert.equal((await clients[0].call('subscribe', { channel: 'x' })).error, undefined);
        assert.deepEqual(await api('disconnect', { user: 'cat', client: first }), { result: {} });
        assert.equal(await clients[0].closeCode(), 3503);
        // As presence lists the user.
        const again = [await user(t, 'cat'), await user(t, 'cat', 1)];
        assert.deepEqual(await api('disconnect', { user: 'cat', client: 'u:cat' }), { result: {} });
        for (const client of again) assert.equal(await client.closeCode(), 3503);
        // A backend's codes are its own, also those that mean something else to this server.
        for (const [code, reason] of /** @type {const} */ ([
          [4500, 'banned'],
          [4003, ''],
        ])) {
          const client = await user(t, 'cat', 1);
          await api('disconnect', { user: 'cat', disconnect: { code, reason } });
          const shown = { code, reason: reason || 'force disconnect' };
          await client.closeCode();
          assert.deepEqual(client.close, shown);
        }
      },
    );

    test('a refresh gives connections another expiry', OPTIONS, async (t) => {
      const { api, user } = await start();
      const [one, two] = [await user(t, 'dan'), await user(t, 'dan', 1)];
      const expireAt = Math.floor(Date.now() / 1000) + 600;
      const later = { user: 'dan', client: one.welcome.client, expire_at: expireAt };
      assert.deepEqual(await api('refresh', later), { result: {} });
      const { refresh } = await one.push('refresh');
      assert.ok(
        refresh.expires && refresh.ttl > 590 && refresh.ttl <= 600,
        JSON.stringify(refresh),
      );
      const over = { user: 'dan', client: two.welcome.client, expired: true };
      assert.deepEqual(await api('refresh', over), { result: {} });
      assert.equal(await two.closeCode(), 3005);
      assert.equal((await api('refresh', { user: 'dan' })).error.code, 107);
    });

    test('a batch carries out its commands, in order or side by side', OPTIONS, async () => {
      const { api } = await start();
      const publish = (/** @type {number} */ data) => ({ publish: { channel: 'h-batch', data } });
      const commands = [
        publish(1),
        { publish: { channel: '', data: 1 } },
        publish(2),
        { history: { channel: 'h-batch', limit: 10 } },
        { nothing: {} },
        { publish: null },
        { publish: 7 },
        { rpc: { method: 'x', params: {} } },
      ];
      const { replies } = await api('batch', { commands });
      assert.deepEqual(
        replies.map((/** @type {any} */ one) => one.error?.code ?? Object.keys(one)[0]),
        ['publish', 107, 'publish', 'history', 104, 107, 107, 104],
      );
      assert.deepEqual(
        replies[3].history.publications.map((/** @type {any} */ { data }) => data),
        [1, 2],
      );
      const many = Array.from({ length: 100 }, (_, i) => publish(i));
      const parallel = await api('batch', { commands: many, parallel: true });
      assert.deepEqual(
        parallel.replies
          .map((/** @type {any} */ one) => one.publish.offset)
          .sort((/** @type {number} */ a, /** @type {number} */ b) => a - b),
        many.map((_, i) => i + 3),
      );
    });

    test('the replies of a batch end after 4 MB', OPTIONS, async () => {
      const { api } = await start();
      const data = 'x'.repeat(90_000);
      for (let i = 0; i < 5; i++) await api('publish', { channel: 'h-large', data });
      const read = { history: { channel: 'h-large', limit: 5 } };
      const publish = { publish: { channel: 'h-large', data: 'after' } };
      const commands = [...Array.from({ length: 30 }, () => read), publish];
      const { replies } = await api('batch', { commands });
      const codes = replies.map((/** @type {any} */ one) => one.error?.code ?? 0);
      const whole = Math.ceil((4 * 1024 * 1024) / (5 * data.length));
      assert.deepEqual(codes, [...Array(whole).fill(0), ...Array(31 - whole).fill(106)]);
      const { result } = await api('history', { channel: 'h-large' });
      assert.equal(result.offset, 5, 'what was refused was not carried out');
    });
  });
}

const startOne = BACKENDS['one server of two workers'];

test('a request needs a key, in one of its three places', OPTIONS, async () => {
  const { port } = await startOne();
  const url = `http://127.0.0.1:${port}/centrifugo/api/info`;
  const post = async (/** @type {Record<string, string>} */ headers, query = '') => {
    const response = await fetch(url + query, { method: 'POST', headers, body: '{}' });
    return [response.status, Object.keys(/** @type {object} */ (await response.json()))[0]];
  };
  assert.deepEqual(await post({ 'X-API-Key': KEY }), [200, 'result']);
  assert.deepEqual(await post({ Authorization: `apikey ${KEY}` }), [200, 'result']);
  assert.deepEqual(await post({}, `?api_key=${KEY}`), [200, 'result']);
  for (const [headers, query] of /** @type {[Record<string, string>, string?][]} */ ([
    [{}],
    [{ 'X-API-Key': '' }, `?api_key=${KEY}`],
    [{ 'X-API-Key': `${KEY}x` }],
    [{ Authorization: `Bearer ${KEY}` }],
    [{}, `?api_key=${'x'.repeat(300)}`],
    [{}, `?API_KEY=${KEY}`],
  ]))
    assert.deepEqual(await post(headers, query), [401, 'error'], JSON.stringify([headers, query]));
});

test('statuses: HTTP itself, JSON, and the error mode transport', OPTIONS, async () => {
  const { port, api } = await startOne();
  const base = `http://127.0.0.1:${port}/centrifugo/api`;
  const ask = async (/** @type {string} */ path, /** @type {RequestInit} */ more = {}) => {
    const headers = { 'X-API-Key': KEY, .../** @type {object} */ (more.headers) };
    const response = await fetch(base + path, { method: 'POST', body: '{}', ...more, headers });
    return { status: response.status, body: /** @type {any} */ (await response.json()) };
  };
  assert.equal((await ask('/nothing')).status, 404);
  assert.equal((await ask('')).status, 404);
  assert.equal((await ask('/info', { method: 'GET', body: undefined })).status, 405);
  assert.equal((await ask('/publish', { body: '{' })).status, 400);
  assert.equal((await ask('/publish', { body: '[]' })).status, 400);
  assert.equal((await ask('/publish', { body: '' })).status, 400);
  // The grammar counts before a field that is refused.
  const malformed = '{"channel":"a","data":1,"tags":{"a":"b"},}';
  assert.equal((await ask('/publish', { body: malformed })).status, 400);
  assert.deepEqual((await ask('/batch', { body: '{"commands":[]}' })).body, { replies: [] });
  assert.equal((await ask('/rpc')).body.error.code, 107);
  assert.equal((await ask('/batch', { body: '{"commands":7}' })).status, 400);
  assert.equal((await ask('/info', { headers: { 'Content-Encoding': 'gzip' } })).status, 415);
  assert.deepEqual((await ask('/publish')).body, {
    error: { code: 107, message: 'bad request: channel is required' },
  });
  const headers = { 'X-Centrifugo-Error-Mode': 'transport' };
  for (const [status, method, request] of /** @type {[number, string, object][]} */ ([
    [200, 'publish', { channel: 'a', data: 1 }],
    [400, 'publish', { channel: 'a' }],
    [404, 'publish', { channel: 'a*', data: 1 }],
    [404, 'rpc', { method: 'a' }],
    [400, 'history', { channel: 'a' }],
    [416, 'history', { channel: 'h', since: { offset: 1, epoch: 'x' } }],
  ])) {
    const answer = await ask(`/${method}`, { headers, body: JSON.stringify(request) });
    assert.equal(answer.status, status, `${method} ${JSON.stringify(answer.body)}`);
    if (status !== 200) assert.equal(typeof answer.body.code, 'number');
  }
  assert.equal((await api('presence', { channel: 7 })).error.code, 107);
  const { metricsPort } = (await startOne()).servers[0];
  const { values: page } = await scrape(metricsPort);
  assert.ok(Number(page.get('fanfare_api_requests_total{route="centrifugo_history"}')) > 0);
  assert.ok(Number(page.get('fanfare_api_responses_total{status="416"}')) > 0);
});

test('what would have no effect, or too much, is refused with its code', OPTIONS, async () => {
  const { api } = await startOne();
  const user = { user: 'ann', channel: 'a' };
  for (const [code, method, request] of /** @type {[number, string, object][]} */ ([
    [108, 'publish', { channel: 'a', data: 1, tags: { a: 'b' } }],
    [108, 'publish', { channel: 'a', data: 1, version: 1 }],
    [107, 'publish', { channel: 1, data: 1, tags: { a: 'b' } }],
    [107, 'publish', { channel: 'a', data: 'x'.repeat(110_000) }],
    [107, 'publish', { channel: 'a', b64data: 'AAAA' }],
    [107, 'publish', { channel: 'a', b64data: '%' }],
    [107, 'broadcast', { channels: [], data: 1 }],
    [108, 'subscribe', { ...user, data: { a: 1 } }],
    [108, 'subscribe', { ...user, recover_since: { offset: 1, epoch: 'x' } }],
    [108, 'subscribe', { ...user, session: 's' }],
    [108, 'disconnect', { user: '', all_users: true }],
    [108, 'unsubscribe', { ...user, label_filter: { op: 'x' } }],
    [107, 'disconnect', { user: '' }],
    [107, 'disconnect', { user: 'a', disconnect: { code: 1000 } }],
    [107, 'disconnect', { user: 'a', disconnect: { code: 4000, reason: 'x'.repeat(124) } }],
    [107, 'disconnect', { user: 'x'.repeat(129) }],
    [107, 'unsubscribe', { user: 'ann' }],
    [108, 'refresh', { user: 'ann', info: { a: 1 } }],
  ]))
    assert.equal(
      (await api(method, request)).error?.code,
      code,
      `${method} ${JSON.stringify(request).slice(0, 80)}`,
    );
  for (const request of [
    { channel: 'a', data: 1, tags: {}, version: 0, delta: true, unknown: 1, idempotency_key: null },
    { channel: 'a', data: 1, skip_history: null, b64data: '' },
  ])
    assert.deepEqual(await api('publish', request), { result: {} });
});

test('/api may be its path', OPTIONS, async () => {
  const { servers } = await BACKENDS['two servers on Redis']();
  assert.ok((await centrifugoApiOf(servers[1].port, '/api')('info', {})).result.nodes);
});

// The last test of this server, because its workers change.
test('a reload replaces the keys of the file', OPTIONS, async () => {
  const { path, port, servers } = await startOne();
  const next = `${KEY}-next`;
  const url = `http://127.0.0.1:${port}/centrifugo/api/info`;
  // A worker that leaves closes connections that fetch keeps alive.
  const statusWith = async (/** @type {string} */ key) => {
    const headers = { 'X-API-Key': key };
    const response = await fetch(url, { method: 'POST', headers, body: '{}' }).catch(() => null);
    return response?.status;
  };
  const statuses = async () => {
    const all = [];
    for (const key of [OLD_KEY, KEY, next]) all.push(await statusWith(key));
    return all.join();
  };
  assert.equal(await statuses(), '200,200,401');
  writeFileSync(path, `${next}\n${KEY}\n`);
  servers[0].kill('SIGHUP');
  await servers[0].line(({ msg }) => msg === 'reload complete', 30_000);
  await until(async () => (await statuses()) === '401,200,200', 20_000, 'the new keys');
});
