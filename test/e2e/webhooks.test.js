// webhooks.test.js: real servers send webhooks to a real receiver, which verifies each of them with
// the library of Standard Webhooks.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Webhook } from 'standardwebhooks';
import { startRedis } from '../harness/redis.js';
import { samples, startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { withoutChromium } from '../helpers/browser.js';
import { connect } from '../helpers/clients.js';
import { openConsole, seriousFaults } from '../helpers/console-page.js';
import { knowLanes } from '../helpers/known-partitions.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET, token } from '../helpers/tokens.js';

const OPTIONS = { timeout: 60_000 };
const KEY = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const MAIN = fileURLToPath(new URL('../../src/main.js', import.meta.url));
const ALL = { join: ['*'], publish: ['*'], presence: ['*'] };
const TYPES = [
  'room.occupied',
  'room.vacated',
  'member.joined',
  'member.left',
  'user.connected',
  'user.disconnected',
  'message.published',
];

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {{id: string, type: string, data: Record<string, any>, body: string}} Received */

/**
 * @param {TestContext} t
 * @param {(event: Received, count: number) => number} [status] of the answer
 */
async function startReceiver(t, status = () => 204) {
  /** @type {Received[]} */
  const events = [];
  const webhook = new Webhook(KEY);
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request.setEncoding('utf8')) body += part;
    const headers = /** @type {Record<string, string>} */ (request.headers);
    const { type, data } = /** @type {any} */ (webhook.verify(body, headers));
    const event = { id: headers['webhook-id'], type, data, body };
    events.push(event);
    response.writeHead(status(event, events.length)).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  /** `joined ann` @returns {string[]} */
  const lines = () => events.map(({ type, data }) => `${type} ${data.user ?? data.room ?? ''}`);
  return { events, lines, url: `http://127.0.0.1:${port}/hook?key=secret` };
}

/** @param {TestContext} t @param {object[]} endpoints */
function endpointFile(t, ...endpoints) {
  const path = join(temporaryFolder(t), 'webhooks.json');
  const all = endpoints.map((one) => ({ name: 'back-end', secret: KEY, ...one }));
  writeFileSync(path, JSON.stringify(all));
  return path;
}

/** @param {TestContext} t @param {'redis'|'embedded'} backend @param {Record<string, string>} more */
async function start(t, backend, more) {
  /** @type {Record<string, string>} */
  const env = {};
  if (backend === 'redis') {
    const redis = await startRedis(t);
    await knowLanes(redis);
    env.REDIS_URL = redis.url;
  }
  return startServer(t, {
    WORKERS: '2',
    JWT_SECRET: SECRET,
    FANFARE_PRESENCE: 'chat.*',
    FANFARE_ROOM_LINGER_MS: '100',
    FANFARE_RECONNECT_WINDOW_MS: '500',
    ...env,
    ...more,
  });
}

/** @param {TestContext} t @param {number} port @param {string} user */
const enter = (t, port, user) =>
  connect(t, `ws://127.0.0.1:${port}/ws?token=${token({ sub: user, rooms: ALL })}`);

/** @param {number} metricsPort */
async function metricsOf(metricsPort) {
  return samples(await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text());
}

for (const backend of /** @type {const} */ (['redis', 'embedded'])) {
  test(
    `${backend}: a receiver hears who comes, goes and publishes, in order`,
    OPTIONS,
    async (t) => {
      const receiver = await startReceiver(t);
      const { port, metricsPort } = await start(t, backend, {
        FANFARE_WEBHOOKS: endpointFile(t, {
          url: receiver.url,
          types: TYPES,
          rooms: ['chat.*'],
          graceMs: 300,
        }),
      });
      const ann = await enter(t, port, 'ann');
      await ann.join('chat.1');
      await ann.join('other');
      const bob = await enter(t, port, 'bob');
      await bob.join('chat.1');
      // JavaScript would round the numbers.
      const payload = '{"id":9007199254740993,"x":1e999,"text":"\\ud83d \u2028 ,\\"seq\\":1"}';
      bob.socket.send(`{"type":"message","room":"chat.1","payload":${payload},"id":1}`);
      await bob.next('ack');
      await until(() => receiver.events.length === 6, 15_000, receiver.lines().join());
      bob.socket.close();
      await until(() => receiver.events.length === 8, 15_000, receiver.lines().join());
      ann.socket.close();
      await until(() => receiver.events.length === 11, 15_000, receiver.lines().join());
      assert.deepEqual(receiver.lines().sort(), [
        'member.joined ann',
        'member.joined bob',
        'member.left ann',
        'member.left bob',
        'message.published chat.1',
        'room.occupied chat.1',
        'room.vacated chat.1',
        'user.connected ann',
        'user.connected bob',
        'user.disconnected ann',
        'user.disconnected bob',
      ]);
      const states = receiver.events.filter(
        ({ type, data }) => data.room === 'chat.1' && type !== 'message.published',
      );
      const sequences = states.map(({ data }) => data.sequence);
      assert.deepEqual(sequences, sequences.toSorted?.((a, b) => a - b) ?? sequences);
      const [message] = receiver.events.filter(({ type }) => type === 'message.published');
      assert.deepEqual([message.data.from, message.data.payload], ['bob', JSON.parse(payload)]);
      assert.ok(message.body.includes(`"payload":${payload}`), message.body);
      const [last] = receiver.events.filter(({ data }) => data.count === 0);
      assert.deepEqual([last.type, last.data.user], ['member.left', 'ann']);
      assert.equal(new Set(receiver.events.map(({ id }) => id)).size, 11);

      await until(async () => {
        const values = await metricsOf(metricsPort);
        const name = 'fanfare_webhooks_attempts_total{endpoint="back-end",outcome="delivered"}';
        return values.get(name) === 11 && values.get('fanfare_webhooks_lanes') === 16;
      });
      const failures = 'fanfare_webhooks_queue_failures_total';
      assert.equal((await metricsOf(metricsPort)).get(failures), 0);
    },
  );

  test(
    `${backend}: a reconnect and a rolling reload within the grace send nothing`,
    OPTIONS,
    async (t) => {
      const receiver = await startReceiver(t);
      const file = endpointFile(t, { url: receiver.url });
      const server = await start(t, backend, {
        FANFARE_WEBHOOKS: file,
        FANFARE_RECONNECT_WINDOW_MS: '6000',
      });
      let client = await enter(t, server.port, 'ann');
      await client.join('chat.1');
      await until(() => receiver.events.length === 2, 15_000, receiver.lines().join());
      for (let round = 0; round < 2; round++) {
        client.socket.close();
        client = await enter(t, server.port, 'ann');
        await client.join('chat.1');
      }
      server.kill('SIGHUP');
      const isOver = () => server.lines.some(({ msg }) => msg === 'reload complete');
      // Comes back when its worker drains, as a client does. Its close may arrive a moment later
      // than the end of the reload.
      for (let quiet = 0; quiet < 25; quiet = isOver() ? quiet + 1 : 0) {
        await new Promise((resolve) => setTimeout(resolve, 20));
        if (client.close === null) continue;
        // Longer than the grace, and within the window.
        await new Promise((resolve) => setTimeout(resolve, 5000));
        client = await enter(t, server.port, 'ann');
        await client.join('chat.1');
      }
      // The next event comes after all that had been recorded before it.
      const bob = await enter(t, server.port, 'bob');
      await bob.join('chat.1');
      await until(() => receiver.events.length > 2, 30_000, receiver.lines().join());
      // Occupancy and presence are recorded by different calls.
      const [first, second, ...rest] = receiver.lines();
      assert.deepEqual([first, second].sort(), ['member.joined ann', 'room.occupied chat.1']);
      assert.deepEqual(rest, ['member.joined bob']);
    },
  );

  test(
    `${backend}: the HTTP API answers for covered rooms without asking every worker`,
    OPTIONS,
    async (t) => {
      const secret = newSecret();
      const server = await start(t, backend, {
        API_KEYS: `main ${secret} all`,
        FANFARE_SCHEDULING: 'round-robin',
        FANFARE_WEBHOOKS: endpointFile(t, { url: 'http://127.0.0.1:9/', rooms: ['chat.*'] }),
      });
      const call = apiOf(server, secret);
      const clients = [];
      for (const user of ['ann', 'bob', 'ann']) {
        const client = await enter(t, server.port, user);
        await client.join('chat.1');
        clients.push(client);
      }
      await clients[0].join('other');
      const rooms = [{ room: 'chat.1', connections: 3 }];
      const list = async () => (await call('/rooms?prefix=chat.')).body;
      await until(async () => JSON.stringify((await list()).rooms) === JSON.stringify(rooms));
      const { connections, users, partial } = (await call('/rooms/chat.1')).body;
      assert.deepEqual(
        { connections, users, partial },
        { connections: 3, users: 2, partial: false },
      );
      assert.deepEqual((await call('/rooms/other')).body.connections, 1);
      assert.deepEqual((await call('/rooms')).body.rooms, [
        ...rooms,
        { room: 'other', connections: 1 },
      ]);

      // A survey waits for this one.
      const [frozen] = server.workerPids();
      process.kill(frozen, 'SIGSTOP');
      const api = await answering(server, secret);
      assert.deepEqual((await api('/rooms?prefix=chat.')).body, { rooms, partial: false });
      assert.equal((await api('/rooms/chat.1')).body.partial, false);
      assert.equal((await api('/rooms')).body.partial, true);
    },
  );

  test(
    `${backend}: a user who reconnects at once is there for whoever reads the state meanwhile`,
    OPTIONS,
    async (t) => {
      const receiver = await startReceiver(t);
      const secret = newSecret();
      const server = await start(t, backend, {
        API_KEYS: `main ${secret} all`,
        FANFARE_ROOM_LINGER_MS: '5000',
        FANFARE_WEBHOOKS: endpointFile(t, { url: receiver.url, types: TYPES, rooms: ['*'] }),
      });
      const call = apiOf(server, secret);
      const read = async () => ({
        rooms: (await call('/rooms')).body.rooms.map((/** @type {any} */ { room }) => room),
        ...(await call('/presence', { body: { users: ['ann', 'bob'] } })).body,
      });
      const client = await enter(t, server.port, 'ann');
      await client.join('chat.1');
      await until(() => receiver.events.length === 3, 15_000, receiver.lines().join());
      client.socket.close();
      // No event would come if she came back within these five seconds.
      await until(async () => (await call('/connections?user=ann')).body.count === 0);
      const there = { rooms: ['chat.1'], online: ['ann'], partial: false };
      assert.deepEqual(await read(), there);
      await until(() => receiver.events.length === 6, 15_000, receiver.lines().join());
      assert.deepEqual(await read(), { rooms: [], online: [], partial: false });
    },
  );

  test(
    `${backend}: a courier that is killed is replaced, and what waits is sent`,
    OPTIONS,
    async (t) => {
      let isDown = true;
      const receiver = await startReceiver(t, () => (isDown ? 500 : 204));
      const file = endpointFile(t, { url: receiver.url, graceMs: 0 });
      const server = await start(t, backend, { FANFARE_WEBHOOKS: file });
      const client = await enter(t, server.port, 'ann');
      await client.join('chat.1');
      await until(() => receiver.events.length >= 1);
      process.kill(Number(server.courierPid()), 'SIGKILL');
      isDown = false;
      const before = receiver.events.length;
      await until(
        () => new Set(receiver.events.slice(before).map(({ type }) => type)).size === 2,
        40_000,
      );
      const ids = (/** @type {string} */ type) =>
        new Set(receiver.events.filter((one) => one.type === type).map(({ id }) => id));
      assert.equal(ids('room.occupied').size, 1, 'the same id in each attempt');
      const values = await metricsOf(server.metricsPort);
      assert.equal(values.get('fanfare_webhooks_courier_restarts_total'), 1);
    },
  );
}

/**
 * The API of a server of which a worker stands still: that worker gets requests, too.
 * @param {import('../harness/server.js').Server} server @param {string} secret
 */
async function answering(server, secret) {
  const call = apiOf(server, secret);
  return async (/** @type {string} */ path) => {
    for (;;) {
      const answer = await Promise.race([
        call(path),
        new Promise((resolve) => setTimeout(resolve, 2000, null)),
      ]);
      if (answer !== null) return answer;
    }
  };
}

test(
  'a reload reads the file again; a broken file keeps the endpoints, and no log has a secret',
  OPTIONS,
  async (t) => {
    const [first, second] = [await startReceiver(t), await startReceiver(t)];
    const file = endpointFile(t, { url: first.url, graceMs: 0 });
    const server = await start(t, 'embedded', { FANFARE_WEBHOOKS: file });
    const aborted = () =>
      server.lines.filter(({ msg }) => String(msg).startsWith('reload aborted'));
    const courier = server.courierPid();
    for (const [n, text] of [
      '[{"url": "http://127.0.0.1:1/key-in-the-path", "secret": "whsec_secretsecretsecret"',
      JSON.stringify([{ url: 'http://127.0.0.1:1/key-in-the-path', secret: 'secretsecretsecret' }]),
      '[]',
    ].entries()) {
      writeFileSync(file, text);
      server.kill('SIGHUP');
      await until(() => aborted().length === n + 1, 15_000, 'an aborted reload');
    }
    const ann = await enter(t, server.port, 'ann');
    await ann.join('chat.1');
    await until(() => first.events.length === 2, 15_000, first.lines().join());
    assert.equal(server.courierPid(), courier);

    writeFileSync(file, JSON.stringify([{ url: second.url, secret: KEY, graceMs: 0 }]));
    server.kill('SIGHUP');
    await server.line(({ msg }) => msg === 'reload complete', 30_000);
    const bob = await enter(t, server.port, 'bob');
    await bob.join('chat.1');
    await until(() => second.lines().includes('member.joined bob'), 15_000, second.lines().join());
    assert.equal(first.lines().includes('member.joined bob'), false);
    const log = JSON.stringify(server.lines) + server.stderr();
    assert.doesNotMatch(log, /secretsecret|key-in-the-path|key=secret|MfKQ9r8G/);
  },
);

test(
  'the console shows the endpoints and sends a test, and so does the doctor',
  OPTIONS,
  async (t) => {
    const receiver = await startReceiver(t);
    const file = endpointFile(t, { url: receiver.url });
    const { metricsPort } = await start(t, 'embedded', { FANFARE_WEBHOOKS: file });
    const url = `http://127.0.0.1:${metricsPort}/console/api/webhooks`;
    const headers = { 'X-Fanfare-Console': '1' };
    /** @returns {Promise<any>} */
    const read = async () => (await fetch(url, { headers })).json();
    await until(async () => (await read()).endpoints !== null);
    const { isConfigured, endpoints } = await read();
    assert.equal(isConfigured, true);
    assert.doesNotMatch(JSON.stringify(endpoints), /secret|whsec/);
    assert.deepEqual(
      [endpoints[0].name, endpoints[0].origin, endpoints[0].state],
      ['back-end', new URL(receiver.url).origin, 'ok'],
    );
    const send = async (/** @type {string} */ name) =>
      (await fetch(`${url}/${name}/test`, { method: 'POST', headers })).json();
    assert.deepEqual(await send('back-end'), { outcome: 'delivered', error: '' });
    assert.deepEqual(await send('other'), { outcome: 'failed', error: 'no such endpoint' });
    assert.deepEqual(receiver.lines(), ['webhook.test ']);
    assert.deepEqual(receiver.events[0].data, { endpoint: 'back-end' });

    const doctor = async (/** @type {string} */ path) => {
      const child = spawn(process.execPath, [MAIN, 'doctor', '--webhooks'], {
        env: { PATH: process.env.PATH, FANFARE_WEBHOOKS: path },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let text = '';
      child.stdout.setEncoding('utf8').on('data', (part) => {
        text += part;
      });
      const [code] = await once(child, 'close');
      return { code, text };
    };
    const good = await doctor(file);
    assert.equal(good.code, 0);
    assert.match(
      good.text,
      /^ok {6}back-end \(http:\/\/127\.0\.0\.1:\d+\): received the test, \d+ ms\n$/,
    );
    const bad = await doctor(
      endpointFile(t, { url: receiver.url }, { name: 'gone', url: 'http://127.0.0.1:1/' }),
    );
    assert.equal(bad.code, 1);
    assert.match(bad.text, /^failed {2}gone \(http:\/\/127\.0\.0\.1:1\): ECONNREFUSED, \d+ ms$/m);
  },
);

test('the page of the console shows an endpoint, and its button sends a test', {
  ...OPTIONS,
  skip: withoutChromium,
}, async (t) => {
  const receiver = await startReceiver(t);
  const file = endpointFile(t, { url: receiver.url });
  const { metricsPort } = await start(t, 'embedded', { FANFARE_WEBHOOKS: file });
  const { page, faults } = await openConsole(t, `http://127.0.0.1:${metricsPort}`, {
    hash: 'webhooks',
  });
  await page.getByRole('button', { name: 'Send test' }).click();
  await page.locator('.notice', { hasText: 'back-end received the test' }).waitFor();
  assert.deepEqual(receiver.lines(), ['webhook.test ']);
  assert.deepEqual(await seriousFaults(page), []);
  assert.deepEqual(faults, []);
});

test('without endpoints there is no courier, and the console says so', OPTIONS, async (t) => {
  const server = await startServer(t, { WORKERS: '1' });
  assert.equal(server.workerPids().length, 1);
  assert.equal(server.courierPid(), null);
  const url = `http://127.0.0.1:${server.metricsPort}/console/api/webhooks`;
  const answer = await (await fetch(url, { headers: { 'X-Fanfare-Console': '1' } })).json();
  assert.deepEqual(answer, { isConfigured: false, endpoints: null, partitions: 0 });
});
