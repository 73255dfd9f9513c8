// console.test.js: the console of real servers: its access, its actions, its page. Every action in a
// browser is in console-page.test.js, which takes longer.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';
import { startRedis } from '../harness/redis.js';
import { NO_LIMITS, samples, spawnServer, startServer, until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { withoutChromium } from '../helpers/browser.js';
import { connect } from '../helpers/clients.js';
import { openConsole, seriousFaults } from '../helpers/console-page.js';
import { shared } from '../helpers/shared.js';
import { SECRET, token } from '../helpers/tokens.js';

/** @typedef {import('../harness/server.js').Owner} Owner */

const OPTIONS = { timeout: 60_000 };
const HEADER = { 'X-Fanfare-Console': '1' };
const ALL = { join: ['*'], publish: ['*'], presence: ['*'] };

const start = shared(async (/** @type {Owner} */ owner) => {
  const redis = await startRedis(owner);
  const server = await startServer(owner, {
    ...NO_LIMITS,
    REDIS_URL: redis.url,
    SERVER_ID: 'web-1',
    JWT_SECRET: SECRET,
    FANFARE_HISTORY: 'h.*=50/60s',
    FANFARE_PRESENCE: 'p.*',
    FANFARE_SCHEDULING: 'round-robin',
  });
  return { server, url: `http://127.0.0.1:${server.metricsPort}` };
});

/**
 * @param {string} url
 * @param {string} route
 * @param {{params?: object, query?: object, body?: unknown}} [call]
 * @param {Record<string, string>} [headers]
 */
async function act(url, route, { params, query, body } = {}, headers = {}) {
  const response = await fetch(`${url}/console/api/actions/${route}`, {
    method: 'POST',
    headers: { ...HEADER, 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify({
      params,
      query,
      body: body === undefined ? undefined : JSON.stringify(body),
    }),
  });
  return { status: response.status, body: /** @type {any} */ (await response.json()) };
}

/** @param {string} url @param {string} room @param {Record<string, string>} [headers] */
async function openTail(url, room, headers = {}) {
  const response = await fetch(`${url}/console/api/tail?room=${room}`, {
    headers: { ...HEADER, ...headers },
  });
  assert.equal(response.status, 200);
  /** @type {any[]} */
  const messages = [];
  const state = { messages, isOpen: false };
  const body = /** @type {ReadableStream<Uint8Array>} */ (response.body);
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const read = async () => {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      state.isOpen = true;
      for (const part of decoder.decode(value).trim().split('\n'))
        messages.push(
          ...JSON.parse(part).lines.map((/** @type {any} */ { text }) => JSON.parse(text)),
        );
    }
  };
  read().catch(() => {});
  return Object.assign(state, { close: () => reader.cancel() });
}

/** @param {import('node:test').TestContext} t @param {number} port @param {string} user */
const connectAs = (t, port, user) =>
  connect(t, `ws://127.0.0.1:${port}/?token=${token({ sub: user, rooms: ALL })}`);

test(
  'every answer of the console forbids scripts of others, frames and caches',
  OPTIONS,
  async () => {
    const { url } = await start();
    for (const path of [
      '/',
      '/console/main.js',
      '/console/uplot.js',
      '/console/api/session',
      '/console/x',
    ]) {
      const { headers } = await fetch(url + path);
      const policy = String(headers.get('content-security-policy'));
      assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'/, path);
      assert.match(policy, /frame-ancestors 'none'/, path);
      assert.equal(headers.get('x-content-type-options'), 'nosniff', path);
      assert.equal(headers.get('cache-control'), 'no-store', path);
      assert.equal(headers.get('access-control-allow-origin'), null, path);
    }
    const page = await (await fetch(url)).text();
    assert.doesNotMatch(page, /https?:\/\/|style=|<script>/);
  },
);

test(
  'a page of another site can neither read nor act, on loopback without a key',
  OPTIONS,
  async () => {
    const { url } = await start();
    /** @type {[Record<string, string>, string][]} */
    const cases = [
      [{}, 'FOREIGN_REQUEST'],
      [{ ...HEADER, Origin: 'https://evil.example' }, 'FOREIGN_REQUEST'],
      [{ ...HEADER, 'Sec-Fetch-Site': 'cross-site' }, 'FOREIGN_REQUEST'],
    ];
    for (const [headers, error] of cases) {
      const response = await fetch(`${url}/console/api/session`, { headers });
      assert.equal(response.status, 403);
      assert.equal(/** @type {any} */ (await response.json()).error, error);
    }
    // No preflight is answered.
    const preflight = await fetch(`${url}/console/api/session`, { method: 'OPTIONS' });
    assert.equal(preflight.status, 403);
  },
);

test('actions reach rooms and users on every worker', OPTIONS, async (t) => {
  const { server, url } = await start();
  const alice = await connectAs(t, server.port, 'alice');
  const bob = await connectAs(t, server.port, 'bob');
  for (const client of [alice, bob]) {
    await client.join('h.1');
    await client.join('p.1');
  }
  const room = await act(url, 'room', { params: { room: 'h.1' } });
  assert.equal(room.body.connections, 2);
  const published = await act(url, 'publish', { body: { room: 'h.1', payload: { n: 1 } } });
  assert.equal(published.body.offset, 1);
  for (const client of [alice, bob])
    assert.deepEqual((await client.next(({ type }) => type === 'message')).payload, { n: 1 });
  const history = await act(url, 'history', { params: { room: 'h.1' }, query: { limit: '5' } });
  assert.deepEqual(
    history.body.messages.map((/** @type {any} */ { payload }) => payload),
    [{ n: 1 }],
  );

  const user = await act(url, 'connections', { query: { user: 'alice' } });
  assert.equal(user.body.count, 1);
  assert.deepEqual(user.body.connections[0].rooms, ['h.1', 'p.1']);
  const closed = once(alice.socket, 'close');
  const disconnected = await act(url, 'disconnect', { body: { user: 'alice' } });
  assert.deepEqual(disconnected, { status: 200, body: { connections: 1 } });
  await closed;
  const revoked = once(bob.socket, 'close');
  assert.equal((await act(url, 'revoke', { body: { user: 'bob' } })).status, 200);
  await revoked;

  const { body } = await act(url, 'workers');
  assert.equal(body.partial, false);
  assert.deepEqual(
    body.workers.map((/** @type {any} */ { server: name, slot }) => `${name} ${slot}`).sort(),
    ['web-1 0', 'web-1 1'],
  );
  assert.equal((await act(url, 'nonsense')).status, 404);
  const logged = await server.line(
    ({ msg, api, action }) => msg === 'API action' && api === 'console' && action === 'revoke',
  );
  const { user: whom, address, outcome } = logged;
  assert.deepEqual([whom, address, outcome], ['bob', '127.0.0.1', 'done']);
});

test('an action whose body is not JSON, or too large, is refused', OPTIONS, async () => {
  const { url } = await start();
  const send = async (/** @type {string} */ type, /** @type {string} */ body) => {
    const headers = { ...HEADER, 'Content-Type': type };
    const path = `${url}/console/api/actions/rooms`;
    return (await fetch(path, { method: 'POST', headers, body })).status;
  };
  assert.equal(await send('application/json', '{}'), 200);
  assert.equal(await send('text/plain', '{}'), 415);
  assert.equal(await send('application/json', ' '.repeat(4_194_305)), 413);
});

test('a name of any length makes a short line of the log', OPTIONS, async () => {
  const { server, url } = await start();
  const long = 'x'.repeat(1_500_000);
  const many = Array.from({ length: 5000 }, (_, i) => `r.${i}`);
  const bodies = { disconnect: { user: long, rooms: [long, 1, {}] }, publish: { rooms: many } };
  const lines = await Promise.all(
    Object.entries(bodies).map(async ([route, body]) => {
      const { status } = await act(url, route, { body });
      assert.ok(status >= 400, `${route} ${status}`);
      return server.line(
        ({ msg, action, outcome }) =>
          msg === 'API action' && action === route && outcome === 'INVALID_FIELD',
      );
    }),
  );
  for (const line of lines) assert.ok(JSON.stringify(line).length < 2000, line.action);
  assert.equal(lines[0].user, `${'x'.repeat(200)}… (1500000 characters)`);
  assert.equal(lines[1].rooms.at(-1), 'and 4980 more');
});

test('a tail shows the messages of a room, and ends with its request', OPTIONS, async (t) => {
  const { url } = await start();
  const tail = await openTail(url, 'tailed');
  t.after(() => tail.close());
  await until(() => tail.isOpen);
  assert.equal((await act(url, 'room', { params: { room: 'tailed' } })).body.connections, 0);
  await act(url, 'publish', { body: { room: 'tailed', payload: 'seen' } });
  await until(() => tail.messages.length === 1);
  assert.equal(tail.messages[0].payload, 'seen');
});

test('the charts have samples soon after the start, and their marks', OPTIONS, async () => {
  const { url } = await start();
  const read = async () =>
    (await fetch(`${url}/console/api/history?since=0`, { headers: HEADER })).json();
  const wanted = ['connections connections', 'memory worker 0', 'memory worker 1'];
  // The first sample may come before the first report of a worker.
  const page = await until(async () => {
    const found = /** @type {any} */ (await read());
    const names = found.lines.map((/** @type {any} */ { chart, name }) => `${chart} ${name}`);
    return wanted.every((name) => names.includes(name)) && found;
  });
  assert.deepEqual(page.readiness, { ready: 2, workers: 2, draining: false });
  assert.ok(page.marks.some((/** @type {any} */ { kind }) => kind === 'start'));
  // Prometheus reads the same workers, and knows none of what the console has read.
  const values = samples(await (await fetch(`${url}/metrics`)).text());
  assert.equal(values.get('fanfare_worker_up{worker="1"}'), 1);
  assert.ok(values.has('websocket_connections_total'));
});

test('off loopback the console needs a key, and grants what the key may do', OPTIONS, async (t) => {
  const [viewer, web] = [newSecret(), newSecret()];
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    METRICS_HOST: '0.0.0.0',
    API_KEYS: `viewer ${viewer} console,rooms,history rooms=h.*; web ${web} publish`,
  });
  const url = `http://${ownAddress()}:${server.metricsPort}`;
  const session = (/** @type {string} */ key) =>
    fetch(`${url}/console/api/session`, {
      headers: key === '' ? HEADER : { ...HEADER, Authorization: `Bearer ${key}` },
    });
  assert.equal((await fetch(url)).status, 200);
  assert.equal((await fetch(`${url}/metrics`)).status, 200);
  assert.equal((await session('')).status, 401);
  const unknown = await session(newSecret());
  assert.equal(unknown.status, 401);
  assert.match(JSON.stringify(await unknown.json()), /This key is not valid/);
  assert.equal((await session(web)).status, 403);
  const { key, rights } = /** @type {any} */ (await (await session(viewer)).json());
  assert.deepEqual([key, rights], ['viewer', ['console', 'rooms', 'history']]);

  const headers = { Authorization: `Bearer ${viewer}` };
  const publish = { body: { room: 'h.1', payload: 1 } };
  assert.equal((await act(url, 'publish', publish, headers)).body.error, 'PERMISSION_DENIED');
  const look = (/** @type {string} */ room) => act(url, 'room', { params: { room } }, headers);
  assert.equal((await look('h.1')).status, 200);
  assert.equal((await look('secret')).status, 403);
  const tail = await fetch(`${url}/console/api/tail?room=secret`, {
    headers: { ...HEADER, ...headers },
  });
  assert.equal(tail.status, 403);
});

test(
  'off loopback without a key the console is off, or the server does not start',
  OPTIONS,
  async (t) => {
    const server = await startServer(t, { WORKERS: '1', METRICS_HOST: '0.0.0.0' });
    const url = `http://127.0.0.1:${server.metricsPort}`;
    const response = await fetch(url);
    assert.equal(response.status, 404);
    assert.match(
      /** @type {any} */ (await response.json()).message,
      /no API key has the right "console"/,
    );
    assert.equal((await fetch(`${url}/metrics`)).status, 200);
    const ordered = spawnServer(t, { METRICS_HOST: '0.0.0.0', FANFARE_CONSOLE: 'on' });
    const { code } = await ordered.exited;
    assert.notEqual(code, 0);
  },
);

test('the page opens in a browser, draws its charts, and is accessible', {
  ...OPTIONS,
  skip: withoutChromium,
}, async (t) => {
  const { url } = await start();
  const { page, faults } = await openConsole(t, url);
  await page.locator('.plot canvas').first().waitFor();
  assert.equal(await page.locator('.chart').count(), 10);
  await page.getByText('2 of 2 workers', { exact: true }).waitFor();
  assert.deepEqual(await seriousFaults(page), []);
  assert.deepEqual(faults, []);
});

/** An address of this machine that is not loopback; loopback if there is none. */
function ownAddress() {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return all.find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? '127.0.0.1';
}
