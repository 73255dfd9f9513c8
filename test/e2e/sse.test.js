// sse.test.js: server-sent events on real servers, with an EventSource in Chromium and the one of
// the package `eventsource`, alone and behind proxies.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { test } from 'node:test';
import { EventSource } from 'eventsource';
import { freePort, startRedis } from '../harness/redis.js';
import { NO_LIMITS, samples, startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { connect } from '../helpers/clients.js';
import { EventClient, EventReader } from '../helpers/event-stream.js';
import { startHaproxy, startNginx } from '../helpers/proxies.js';
import { shared } from '../helpers/shared.js';
import { SECRET, token } from '../helpers/tokens.js';

/** @typedef {import('node:test').TestContext} TestContext */

const ENV = {
  ...NO_LIMITS,
  FANFARE_HISTORY: 'chat.*=10000/600s',
  FANFARE_RECONNECT_WINDOW_MS: '1000',
};
const ROOMS = ['chat.1', 'chat.2'];
/** Each second one is in both rooms. */
const LISTENERS = 8;
/** An EventSource returns within 5 s of a crash. */
const BACK_MS = 20_000;

const originOf = (/** @type {{port: number}} */ { port }) => `http://127.0.0.1:${port}`;
// Each test that uses these two has rooms of its own.
const plain = shared((owner) => startServer(owner, ENV));
/** It accepts pages of the other one. */
const withTokens = shared(async (owner) =>
  startServer(owner, {
    ...ENV,
    WORKERS: '1',
    JWT_SECRET: SECRET,
    ALLOWED_ORIGINS: originOf(await plain()),
  }),
);

/** Heartbeats in short intervals. Tests reload it. */
const beating = shared((owner) =>
  startServer(owner, {
    ...ENV,
    WORKERS: '1',
    FANFARE_PING_INTERVAL_MS: '1000',
    FANFARE_PONG_TIMEOUT_MS: '500',
  }),
);
/** One connection for a user, and three for an address. */
const capped = shared((owner) =>
  startServer(owner, {
    ...ENV,
    WORKERS: '1',
    JWT_SECRET: SECRET,
    FANFARE_MAX_CONNECTIONS_PER_USER: '1',
    FANFARE_MAX_CONNECTIONS_PER_USER_MODE: 'enforce',
    FANFARE_MAX_CONNECTIONS_PER_IP: '3',
    FANFARE_MAX_CONNECTIONS_PER_IP_MODE: 'enforce',
  }),
);
const browser = shared(openBrowser);

/** @param {{metricsPort: number}} server */
const metricsOf = async ({ metricsPort }) =>
  samples(await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text());

/** An EventSource of the package, and the offsets that it has received, by room. */
class Listener {
  /** @param {TestContext} t @param {number} port @param {readonly string[]} rooms */
  constructor(t, port, rooms) {
    this.rooms = rooms;
    /** @type {Map<string, number[]>} */
    this.offsets = new Map();
    this.opened = 0;
    this.resyncs = 0;
    /** @type {Set<string>} */
    this.types = new Set();
    const source = new EventSource(
      `http://127.0.0.1:${port}/sse?${rooms.map((room) => `room=${room}`).join('&')}`,
    );
    t.after(() => source.close());
    source.onopen = () => void this.opened++;
    source.onmessage = ({ data }) => {
      const { room, offset } = JSON.parse(data);
      const seen = this.offsets.get(room);
      if (seen === undefined) this.offsets.set(room, [offset]);
      else seen.push(offset);
    };
    source.addEventListener('resync', () => void this.resyncs++);
    for (const type of ['SERVER_SHUTDOWN', 'close'])
      source.addEventListener(type, () => void this.types.add(type));
  }

  /** @param {string} room */
  of(room) {
    return this.offsets.get(room) ?? [];
  }
}

/** @param {TestContext} t closes it */
async function openPage(t) {
  const page = await (await browser()).newPage();
  t.after(() => page.close());
  return page;
}

/** The page of a real browser, with an EventSource in it. */
class Page {
  /** @param {TestContext} t @param {number} port @param {string} query */
  static async open(t, port, query) {
    const page = await openPage(t);
    await page.goto(`http://127.0.0.1:${port}/livez`);
    await page.evaluate(`
      window.offsets = [];
      window.resyncs = 0;
      window.source = new EventSource('/sse${query}');
      source.onmessage = ({ data }) => offsets.push(JSON.parse(data).offset);
      source.addEventListener('resync', () => resyncs++);
    `);
    return new Page(page);
  }

  /** @param {import('playwright-core').Page} page */
  constructor(page) {
    this.page = page;
  }

  /** @returns {Promise<number[]>} */
  async offsets() {
    return /** @type {Promise<number[]>} */ (this.page.evaluate('offsets'));
  }

  /** @returns {Promise<number>} */
  async resyncs() {
    return /** @type {Promise<number>} */ (this.page.evaluate('resyncs'));
  }
}

/** More messages than can be on their way when a server dies: the publisher sends one in 10 ms. */
const IN_FLIGHT = 20;

/** Publishes without a pause; a lost connection is opened again, somewhere. */
class Publisher {
  /** @param {TestContext} t @param {() => number} port @param {readonly string[]} rooms */
  constructor(t, port, rooms) {
    this.rooms = rooms;
    this.isOver = false;
    /** The latest acknowledged offset, by room. @type {Map<string, number>} */
    this.acknowledged = new Map();
    this.running = this.#run(t, port);
    t.after(() => {
      this.isOver = true;
      return this.running;
    });
  }

  /** @param {TestContext} t @param {() => number} port */
  async #run(t, port) {
    while (!this.isOver) {
      try {
        const client = await connect(t, port());
        for (let id = 1; !this.isOver; id++) {
          const room = this.rooms[id % this.rooms.length];
          client.send({ type: 'message', room, payload: id, id });
          const answer = await client.next(({ id: replied }) => replied === id, 2000);
          if (answer.type === 'ack') this.acknowledged.set(room, answer.offset);
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
        client.socket.terminate();
      } catch {
        // The server is unavailable, or the connection was lost: the next one goes on.
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  }

  async stop() {
    this.isOver = true;
    await this.running;
    return this.acknowledged;
  }
}

/**
 * Every listener has each offset once, in order, up to the last one acknowledged.
 * @param {readonly number[]} offsets @param {number} last
 */
function assertComplete(offsets, last) {
  const [first] = offsets;
  assert.deepEqual(
    offsets,
    offsets.map((_, i) => first + i),
    'a gap or a repeat',
  );
  assert.ok(Number(offsets.at(-1)) >= last, `${offsets.at(-1)} < ${last}`);
}

test('streams pay for their rooms and for what they replay, and returning ones pass on credit', {
  timeout: 60_000,
}, async (t) => {
  const secret = newSecret();
  const server = await startServer(t, {
    WORKERS: '1',
    API_KEYS: `web ${secret} all`,
    FANFARE_HISTORY: 'chat.*=1000/600s',
    FANFARE_MESSAGES_RATE_PER_IP: '100/min burst 100',
  });
  const call = apiOf(server, secret);
  const payload = 'x'.repeat(4000);
  for (const room of ROOMS) {
    const messages = Array.from({ length: 60 }, () => ({ room, payload }));
    assert.equal((await call('/publish/batch', { body: { messages } })).status, 200);
  }
  /** @param {string} query @param {Record<string, string>} [headers] */
  const open = (query, headers) => EventClient.open(t, server.port, query, headers);
  const EVENT_SOURCE = { Accept: 'text/event-stream' };

  const first = await open('?room=chat.1&room=chat.2&last=60');
  await first.collect('message', 120);
  const [id] = first.reader.lastEventId.split(',');
  // 480 KB cost some 120 tokens.
  const refused = await open('?room=chat.1');
  assert.equal(refused.status, 429);
  assert.ok(Number(refused.headers['retry-after']) >= 10, refused.headers['retry-after']);
  const source = await open('?room=chat.1', EVENT_SOURCE);
  await source.ended();
  assert.equal(source.status, 200, 'an EventSource would give up');
  assert.equal(source.all('error')[0].error, 'RATE_LIMIT_EXCEEDED');
  assert.match(source.text, /^retry: 1\d{4}$/m);
  // What it has just missed costs a returning client nothing but a token for its room.
  const [epoch, offset] = id.split(':');
  const missed = { 'Last-Event-ID': `${epoch}:${Number(offset) - 20}` };
  for (let i = 0; i < 20; i++) {
    const back = await open('?room=chat.1', missed);
    assert.equal(back.status, 200);
    await back.collect('message', 20);
    back.close();
  }
  // Its credit ends, too.
  let count = 20;
  while ((await open('?room=chat.1', { 'Last-Event-ID': id })).status === 200) count++;
  assert.ok(count >= 70 && count < 120, `${count}`);
  const metrics = await metricsOf(server);
  assert.ok(Number(metrics.get('websocket_errors_total{code="RATE_LIMIT_EXCEEDED"}')) >= 3);
});

test('EventSources in one room and in two miss nothing over a worker kill, a reload, a drain and a restart of the server', {
  timeout: 120_000,
}, async (t) => {
  const redis = await startRedis(t);
  const port = await freePort();
  const env = { ...ENV, REDIS_URL: redis.url, PORT: String(port) };
  // Publishes go on through it while the other server is down.
  const other = await startServer(t, { ...env, PORT: '0', WORKERS: '1' });
  let server = await startServer(t, env);
  const listeners = Array.from(
    { length: LISTENERS },
    (_, i) => new Listener(t, port, ROOMS.slice(0, 1 + (i % 2))),
  );
  const page = withoutChromium ? null : await Page.open(t, port, '?room=chat.1');
  await until(() => listeners.every(({ opened }) => opened === 1), BACK_MS, 'the first streams');
  const publisher = new Publisher(t, () => other.port, ROOMS);
  const back = async (/** @type {string} */ what) => {
    // A stream that has just ended may have received more than is acknowledged, so each must get
    // further than any of them could without being open.
    const latest = listeners.map((listener) => Number(listener.of('chat.1').at(-1) ?? 0));
    const goal = Math.max(publisher.acknowledged.get('chat.1') ?? 0, ...latest) + IN_FLIGHT;
    await until(
      async () =>
        listeners.every((listener) => Number(listener.of('chat.1').at(-1)) > goal) &&
        (page === null || Number((await page.offsets()).at(-1)) > goal),
      BACK_MS,
      `all streams after ${what}`,
    );
  };
  await back('the start');

  process.kill(server.workerPids()[0], 'SIGKILL');
  await back('the worker kill');

  server.kill('SIGHUP');
  await server.line(({ msg }) => msg === 'reload complete', 30_000);
  await back('the reload');
  assert.ok(
    listeners.every(({ types }) => types.has('SERVER_SHUTDOWN') && types.has('close')),
    'each stream was told before it ended',
  );

  server.kill('SIGTERM');
  assert.deepEqual(await server.exited, { code: 0, signal: null });
  server = await startServer(t, { ...env, WORKERS: '1' });
  await back('the drain');

  const pids = [server.pid, ...server.workerPids()];
  for (const pid of pids) process.kill(pid, 'SIGKILL');
  await server.exited;
  server = await startServer(t, { ...env, WORKERS: '1' });
  await back('the restart');

  const acknowledged = await publisher.stop();
  for (const room of ROOMS) {
    const last = acknowledged.get(room) ?? 0;
    assert.ok(last > 50, `${last} messages`);
    for (const listener of listeners.filter(({ rooms }) => rooms.includes(room))) {
      await until(
        () => Number(listener.of(room).at(-1)) >= last,
        BACK_MS,
        `message ${last} of ${room}`,
      );
      assertComplete(listener.of(room), last);
      assert.equal(listener.resyncs, 0);
      assert.ok(listener.opened >= 4, `${listener.opened} connections`);
    }
  }
  if (page === null) return;
  const last = acknowledged.get('chat.1') ?? 0;
  await until(
    async () => Number((await page.offsets()).at(-1)) >= last,
    BACK_MS,
    'the browser to catch up',
  );
  assertComplete(await page.offsets(), last);
  assert.equal(await page.resyncs(), 0);
});

test('200 streams and 200 WebSockets in one room get the same messages in the same order', {
  timeout: 120_000,
}, async (t) => {
  const COUNT = 200;
  const MESSAGES = 100;
  const server = await plain();
  const room = 'chat.both';
  /** @type {EventClient[]} */
  const streams = [];
  /** @type {import('../helpers/clients.js').Client[]} */
  const sockets = [];
  for (let i = 0; i < COUNT; i += 50) {
    await Promise.all(
      Array.from({ length: 50 }, async () => {
        const stream = await EventClient.open(t, server.port, `?room=${room}`);
        await stream.collect('joined');
        streams.push(stream);
        const socket = await connect(t, server.port);
        await socket.join(room);
        sockets.push(socket);
      }),
    );
  }
  // Those of the tests before may end a moment later.
  await until(async () => {
    const metrics = await metricsOf(server);
    return ['sse', 'websocket'].every(
      (name) => metrics.get(`fanfare_transport_connections{transport="${name}"}`) === COUNT,
    );
  });
  // Two publishers, so that the order is not that of one connection.
  for (let i = 1; i <= MESSAGES; i++) sockets[i % 2].send({ type: 'message', room, payload: i });
  for (const socket of sockets) await socket.collect('message', MESSAGES, 60_000);
  for (const stream of streams) await stream.collect('message', MESSAGES);
  const expected = sockets[0].all('message');
  assert.deepEqual(
    expected.map(({ offset }) => offset),
    Array.from({ length: MESSAGES }, (_, i) => i + 1),
  );
  for (const socket of sockets) assert.deepEqual(socket.all('message'), expected);
  for (const stream of streams) assert.deepEqual(stream.all('message'), expected);
});

for (const { name, start } of [
  { name: 'HAProxy', start: startHaproxy },
  { name: 'nginx', start: startNginx },
]) {
  test(`events pass ${name} at once, heartbeats keep the stream, and an EventSource recovers`, {
    timeout: 60_000,
  }, async (t) => {
    const server = await beating();
    const room = `chat.${name}`;
    const port = await start(t, [server.port]);
    const client = await EventClient.open(t, port, `?room=${room}`);
    await client.collect('joined');
    const { comments } = client.reader;
    await client.until(() => client.reader.comments > comments + 1, 'heartbeats');
    const listener = new Listener(t, port, [room]);
    await until(() => listener.opened === 1, BACK_MS, 'the stream');
    const publisher = new Publisher(t, () => server.port, [room]);
    await until(() => listener.of(room).length > 10, BACK_MS, 'the first events');
    const reloads = () => server.lines.filter(({ msg }) => msg === 'reload complete').length;
    const before = reloads();
    server.kill('SIGHUP');
    await until(() => reloads() > before, 30_000, 'the reload');
    const last = publisher.acknowledged.get(room) ?? 0;
    await until(() => Number(listener.of(room).at(-1)) > last, BACK_MS, 'events after the reload');
    assertComplete(listener.of(room), last);
    assert.equal(listener.resyncs, 0);
  });

  test(`events pass ${name} over HTTP/2`, { timeout: 60_000 }, async (t) => {
    const server = await plain();
    const room = `chat.${name}`;
    const port = await start(t, [server.port], { isHttp2: true });
    const session = connectHttp2(`http://127.0.0.1:${port}`);
    t.after(() => session.destroy());
    // Browsers open more than six streams to a host only over HTTP/2.
    const readers = Array.from({ length: 10 }, () => {
      const reader = new EventReader();
      /** @type {import('../helpers/event-stream.js').ServerEvent[]} */
      const events = [];
      const stream = session.request({ ':path': `/sse?room=${room}` });
      stream.on('data', (bytes) => events.push(...reader.read(bytes)));
      return events;
    });
    await until(
      () => readers.every((events) => events.some(({ type }) => type === 'joined')),
      BACK_MS,
      'the joins',
    );
    const publisher = await connect(t, server.port);
    publisher.send({ type: 'message', room, payload: 'hello' });
    await until(
      () => readers.every((events) => events.some(({ data }) => data.includes('hello'))),
      BACK_MS,
      'the event',
    );
  });
}

const RIGHTS = { join: ['chat.*'], publish: ['chat.*'] };
const EVENT_SOURCE = { Accept: 'text/event-stream' };

test('a token lets a stream in, and its rights and rooms count', { timeout: 30_000 }, async (t) => {
  const server = await withTokens();
  const before = await metricsOf(server);
  const valid = token({ rooms: RIGHTS, autojoin: ['chat.9', 'user.alice'] });
  const byHeader = await EventClient.open(t, server.port, '?room=chat.1', {
    Authorization: `Bearer ${valid}`,
  });
  await byHeader.collect('joined', 3);
  assert.deepEqual(
    byHeader
      .all('joined')
      .map(({ room }) => room)
      .sort(),
    ['chat.1', 'chat.9', 'user.alice'],
  );
  const byQuery = await EventClient.open(t, server.port, `?token=${valid}`);
  await byQuery.collect('joined', 2);
  for (const [query, headers, status] of /** @type {const} */ ([
    ['?room=chat.1', {}, 401],
    ['?room=chat.1', { Cookie: `token=${valid}` }, 401],
    ['?room=chat.1&token=nonsense', {}, 401],
    [`?room=chat.1&token=${token({ rooms: RIGHTS, exp: 1 })}`, {}, 401],
    [`?room=secret&token=${valid}`, {}, 403],
    [`?room=chat.1&last=5&token=${valid}`, {}, 403],
  ])) {
    const plain = await EventClient.open(t, server.port, query, headers);
    assert.equal(plain.status, status, query);
    const source = await EventClient.open(t, server.port, query, { ...headers, ...EVENT_SOURCE });
    assert.equal(source.status, 204, query);
  }
  const none = await EventClient.open(t, server.port, '?room=chat.1', EVENT_SOURCE);
  assert.match(String(none.headers['fanfare-error-message']), /^A token is missing: send it as/);
  const nowS = Math.floor(Date.now() / 1000);
  const early = `?room=chat.1&token=${token({ rooms: RIGHTS, iat: nowS + 60, exp: nowS + 900 })}`;
  const later = await EventClient.open(t, server.port, early);
  assert.equal(later.status, 401);
  assert.ok(Number(later.headers['retry-after']) > 45, JSON.stringify(later.headers));
  const waiting = await EventClient.open(t, server.port, early, EVENT_SOURCE);
  assert.equal(waiting.status, 200, 'an EventSource returns');
  const metrics = await metricsOf(server);
  const refused = 'fanfare_admissions_refused_total{reason="denied"}';
  assert.equal(Number(metrics.get(refused)) - (before.get(refused) ?? 0), 15);
  assert.equal(metrics.get('fanfare_authenticated_connections'), 2);
  const log = JSON.stringify(server.lines);
  for (const secret of valid.split('.').slice(1)) assert.ok(!log.includes(secret));
});

test('pages of an allowed origin listen by fetch with a token and by EventSource, others stop', {
  timeout: 60_000,
  skip: withoutChromium,
}, async (t) => {
  const server = await withTokens();
  const allowed = originOf(await plain());
  const forbidden = allowed.replace('127.0.0.1', 'localhost');
  const valid = token({ rooms: RIGHTS });
  const url = `http://127.0.0.1:${server.port}/sse?room=chat.page`;
  const visit = async (/** @type {string} */ origin) => {
    const page = await openPage(t);
    await page.goto(`${origin}/livez`);
    await page.evaluate(`
      window.texts = { byFetch: '', bySource: '' };
      fetch('${url}', { headers: { Authorization: 'Bearer ${valid}' } }).then(async ({ body }) => {
        const reader = body.pipeThrough(new TextDecoderStream()).getReader();
        for (let read = await reader.read(); !read.done; read = await reader.read())
          texts.byFetch += read.value;
      }).catch((error) => { texts.byFetch = error.name; });
      window.source = new EventSource('${url}&token=${valid}');
      source.onmessage = ({ data }) => { texts.bySource += data; };
      window.refused = new EventSource('${url}&room=secret&token=${valid}');
    `);
    return page;
  };
  const page = await visit(allowed);
  await page.waitForFunction("texts.byFetch.includes('joined') && source.readyState === 1");
  const publisher = await connect(t, `ws://127.0.0.1:${server.port}/?token=${valid}`);
  publisher.send({ type: 'message', room: 'chat.page', payload: 'hello', id: 1 });
  await publisher.next('ack');
  await page.waitForFunction("texts.byFetch.includes('hello') && texts.bySource.includes('hello')");
  await page.waitForFunction('refused.readyState === EventSource.CLOSED');
  const stranger = await visit(forbidden);
  await stranger.waitForFunction(
    "texts.byFetch === 'TypeError' && source.readyState === EventSource.CLOSED",
  );
});

test('the browser code of docs/server-sent-events.md prints messages, by EventSource and by fetch', {
  timeout: 60_000,
  skip: withoutChromium,
}, async (t) => {
  const server = await plain();
  const text = readFileSync(new URL('../../docs/server-sent-events.md', import.meta.url), 'utf8');
  const blocks = [...text.matchAll(/^```js\n([\s\S]*?)^```/gm)].map(([, code]) => code);
  assert.equal(blocks.length, 2);
  const page = await openPage(t);
  /** @type {string[]} */
  const printed = [];
  page.on('console', (message) => void printed.push(message.text()));
  await page.goto(`http://127.0.0.1:${server.port}/livez`);
  for (const code of blocks) {
    const here = code.replace('http://localhost:3000', `http://127.0.0.1:${server.port}`);
    await page.evaluate(`(async () => { const token = 'none'; ${here} })(); undefined`);
  }
  const publisher = await connect(t, server.port);
  await until(
    async () => {
      publisher.send({ type: 'message', room: 'news', payload: 'hello' });
      return (
        printed.some((line) => /^news \S+ hello$/.test(line)) &&
        printed.some((line) => line.includes('"payload":"hello"'))
      );
    },
    BACK_MS,
    'the printed messages',
  );
});

test('rooms that a token joins recover as the rooms of the request do', {
  timeout: 30_000,
}, async (t) => {
  const server = await withTokens();
  const valid = token({ rooms: RIGHTS, autojoin: ['chat.joined'] });
  const publisher = await connect(t, `ws://127.0.0.1:${server.port}/?token=${valid}`);
  const publish = async (/** @type {number} */ id) => {
    publisher.send({ type: 'message', room: 'chat.joined', payload: id, id });
    await publisher.next('ack');
  };
  const query = `?room=chat.asked&token=${valid}`;
  const first = await EventClient.open(t, server.port, query);
  await first.collect('joined', 2);
  await publish(1);
  await first.collect('message');
  first.close();
  await publish(2);
  const again = await EventClient.open(t, server.port, query, {
    'Last-Event-ID': first.reader.lastEventId,
  });
  const [message] = await again.collect('message');
  assert.equal(message.payload, 2);
});

test('an expired token and a user over the limit end or refuse a stream', {
  timeout: 30_000,
}, async (t) => {
  const server = await capped();
  const nowS = Math.floor(Date.now() / 1000);
  const short = token({ rooms: RIGHTS, exp: nowS + 3 });
  const query = `?room=chat.1&token=${short}`;
  const client = await EventClient.open(t, server.port, query);
  await client.collect('joined');
  const refused = await EventClient.open(t, server.port, query);
  assert.deepEqual([refused.status, refused.headers['fanfare-error']], [429, 'CONNECTION_LIMIT']);
  assert.ok(Number(refused.headers['retry-after']) >= 5);
  // 204 would stop an EventSource for good.
  const source = await EventClient.open(t, server.port, query, EVENT_SOURCE);
  await source.ended();
  assert.deepEqual([source.status, source.all('error')[0].error], [200, 'CONNECTION_LIMIT']);
  assert.ok(source.reader.retryMs >= 5000, `${source.reader.retryMs} ms`);
  await client.ended();
  assert.equal(client.all('close')[0].code, 4001);
  const other = token({ rooms: RIGHTS });
  await until(
    async () =>
      (await EventClient.open(t, server.port, `?room=chat.1&token=${other}`)).status === 200,
    5000,
    'the place of the ended stream',
  );
});

test('the limit of connections per address counts streams and WebSockets together', {
  timeout: 30_000,
}, async (t) => {
  const server = await capped();
  // Those of the test before have left.
  await until(
    async () => (await metricsOf(server)).get('websocket_connections_total') === 0,
    5000,
    'an empty server',
  );
  const queryOf = (/** @type {string} */ sub) =>
    `?room=chat.1&token=${token({ sub, rooms: RIGHTS })}`;
  const open = (/** @type {string} */ sub, headers = {}) =>
    EventClient.open(t, server.port, queryOf(sub), headers);
  const streams = [await open('ann'), await open('bob')];
  await connect(t, `ws://127.0.0.1:${server.port}/ws${queryOf('carol')}`);
  assert.deepEqual(
    streams.map(({ status }) => status),
    [200, 200],
  );
  assert.equal((await open('dan')).status, 429);
  const source = await open('dan', EVENT_SOURCE);
  assert.equal(source.status, 200);
  await source.ended();
  assert.ok(source.reader.retryMs >= 10_000);
  streams[0].close();
  await until(
    async () => (await open('dan')).status === 200,
    5000,
    'the place of the closed stream',
  );
});
