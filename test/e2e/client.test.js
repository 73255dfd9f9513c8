// client.test.js: `fanfare/client` in Node and in Chromium, against real servers that restart,
// drain, die, lose Redis, and end tokens.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { Fanfare } from '../../src/client/node.js';
import { startRedis } from '../harness/redis.js';
import { startServer, until, urlOf } from '../harness/server.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { servePages } from '../helpers/client-pages.js';
import { follow, NumberedStream } from '../helpers/numbered-stream.js';
import { SECRET, token } from '../helpers/tokens.js';
import { killWorker, reloads } from '../helpers/workers.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../helpers/numbered-stream.js').Sight} Sight */

const OPTIONS = { timeout: 60_000 };
const ENV = {
  FANFARE_LIMITS: 'off',
  FANFARE_HISTORY: 'chat.*=1000/60s',
  FANFARE_PRESENCE: 'chat.*',
  FANFARE_SCHEDULING: 'round-robin',
  FANFARE_RECONNECT_WINDOW_MS: '500',
};
const ROOM = 'chat.1';
const INTERVAL_MS = 5;
const QUICK = { firstDelayMs: 100, maxDelayMs: 1000 };

/**
 * @param {TestContext} t
 * @param {string} url
 * @param {import('../../src/client/fanfare.js').Options} [options]
 */
function open(t, url, options) {
  const fanfare = new Fanfare(url, { ...QUICK, ...options });
  t.after(() => fanfare.close());
  fanfare.on('error', () => {});
  return fanfare;
}

/** Four viewers of a stream, and the stream. @param {TestContext} t @param {string} url */
async function startStream(t, url) {
  const clients = Array.from({ length: 4 }, () => open(t, url));
  const views = clients.map((fanfare) => follow(fanfare, ROOM));
  const rooms = clients.map((fanfare) => fanfare.join(ROOM));
  await until(() => rooms.every(({ isJoined }) => isJoined));
  const stream = new NumberedStream(open(t, url), ROOM, INTERVAL_MS);
  stream.start();
  t.after(() => void (stream.isEnding = true));
  return {
    stream,
    views,
    clients,
    /** Waits for this many further messages. @param {number} count */
    more: async (count) => {
      const from = stream.accepted.size;
      await until(() => stream.accepted.size >= from + count, 20_000, `${count} messages`);
    },
    /** Ends it and judges all viewers. @returns {Promise<Sight[][]>} */
    finish: async () => {
      const { epoch, offset } = await stream.end();
      const isThere = (/** @type {Sight[]} */ view) =>
        view.at(-1)?.epoch === epoch && view.at(-1)?.offset === offset;
      await until(() => views.every(isThere), 20_000, 'the last message');
      for (const view of views) assert.deepEqual(stream.judge(view), []);
      return views;
    },
  };
}

/** @param {readonly Sight[][]} views */
const states = (views) => views.flat().filter(({ type }) => type === 'state').length;

test('the judge of a stream finds gaps, repeats, wrong order and wrong values', () => {
  const stream = new NumberedStream(
    /** @type {Fanfare} */ (/** @type {unknown} */ (null)),
    ROOM,
    1,
  );
  for (let i = 1; i <= 5; i++) stream.accepted.set(`e:${i}`, i);
  const see = (/** @type {number[]} */ offsets) =>
    offsets.map(
      (offset) => /** @type {Sight} */ ({ type: 'message', payload: offset, epoch: 'e', offset }),
    );
  assert.deepEqual(stream.judge(see([1, 2, 3])), []);
  for (const offsets of [
    [1, 3],
    [1, 1],
    [2, 1],
  ])
    assert.notDeepEqual(stream.judge(see(offsets)), []);
  assert.notDeepEqual(stream.judge([{ type: 'message', payload: 9, epoch: 'e', offset: 1 }]), []);
  const state = /** @type {Sight} */ ({ type: 'state', epoch: 'e', offset: 3 });
  assert.deepEqual(stream.judge([...see([1]), state, ...see([4])]), []);
  assert.notDeepEqual(stream.judge([...see([1]), state, ...see([5])]), []);
});

test('clients of killed workers miss nothing', OPTIONS, async (t) => {
  const server = await startServer(t, ENV);
  const run = await startStream(t, urlOf(server));
  for (let i = 0; i < 3; i++) {
    await run.more(30);
    await killWorker(server, server.workerPids()[0]);
  }
  await run.more(30);
  assert.equal(states(await run.finish()), 0);
});

test(
  'clients of reloaded workers return in their own time, and miss nothing',
  OPTIONS,
  async (t) => {
    const server = await startServer(t, ENV);
    const run = await startStream(t, urlOf(server));
    /** @type {(number|undefined)[]} */
    const codes = [];
    for (const client of run.clients)
      client.on('state', (state, { code }) => state === 'waiting' && codes.push(code));
    await run.more(30);
    server.kill('SIGHUP');
    await until(() => codes.length >= 4, 20_000, 'four drained clients');
    await run.more(30);
    assert.equal(states(await run.finish()), 0);
    assert.deepEqual([...new Set(codes)], [1012]);
  },
);

test('clients survive a restart of the server, and of Redis with a new state', {
  timeout: 90_000,
}, async (t) => {
  const redis = await startRedis(t);
  const env = { ...ENV, REDIS_URL: redis.url };
  const first = await startServer(t, env);
  const run = await startStream(t, urlOf(first));
  await run.more(30);
  first.kill('SIGTERM');
  await first.exited;
  await startServer(t, { ...env, PORT: String(first.port) });
  await run.more(30);
  assert.equal(states(run.views), 0);
  await redis.kill();
  await redis.restart();
  await run.more(30);
  // The new epoch reached every viewer as a new state.
  assert.ok(states(await run.finish()) >= 4);
});

test('a client renews its token, and returns with a new one after 4001', OPTIONS, async (t) => {
  const server = await startServer(t, { ...ENV, JWT_SECRET: SECRET });
  const nowS = Math.floor(Date.now() / 1000);
  const rooms = { join: ['*'], publish: ['*'] };
  let renewed = 0;
  const lasting = open(t, urlOf(server), {
    token: () => {
      renewed++;
      const iat = Math.floor(Date.now() / 1000);
      return token({ rooms, iat, exp: iat + 4 });
    },
  });
  let asked = 0;
  // Its tokens do not show when they end to a client, which reads no `iat` in the future.
  const expiring = open(t, urlOf(server), {
    token: () => {
      asked++;
      return asked === 1 ? token({ rooms, iat: nowS - 3600, exp: nowS - 4 }) : token({ rooms });
    },
  });
  /** @type {(number|undefined)[]} */
  const closes = [];
  lasting.on('state', (_, { code }) => code !== undefined && closes.push(code));
  const [one, two] = [lasting, expiring].map((client) => follow(client, ROOM));
  const handles = [lasting, expiring].map((client) => client.join(ROOM));
  await until(() => handles.every(({ isJoined }) => isJoined));
  await until(() => renewed >= 4, 20_000, 'three renewals');
  await lasting.publish(ROOM, 1);
  await until(() => one.length === 1 && two.length === 1);
  assert.deepEqual(closes, []);
});

test('presence follows users over a killed worker', OPTIONS, async (t) => {
  const server = await startServer(t, ENV);
  const clients = ['ann', 'bob', 'cid'].map((user) => {
    const fanfare = open(t, urlOf(server));
    return { fanfare, room: fanfare.join(ROOM, { presence: { user } }) };
  });
  const users = () =>
    clients.map(({ room }) => room.presence.members.map(({ user }) => user).sort());
  for (const { room } of clients) room.presence.on('change', () => {});
  const all = ['ann', 'bob', 'cid'];
  await until(() => users().every((list) => String(list) === String(all)), 10_000, 'three users');
  // A client may return within a poll of `until`, so the losses are counted.
  let losses = 0;
  for (const { fanfare } of clients)
    fanfare.on('state', (state) => {
      if (state !== 'connected') losses++;
    });
  process.kill(server.workerPids()[0], 'SIGKILL');
  await until(() => losses > 0);
  await until(() => clients.every(({ fanfare }) => fanfare.state === 'connected'));
  await until(
    () => users().every((list) => String(list) === String(all)),
    20_000,
    'three users again',
  );
  await clients[2].fanfare.close();
  await until(() =>
    users()
      .slice(0, 2)
      .every((list) => String(list) === 'ann,bob'),
  );
});

test('a refused handshake stops the client, and an overload delays it', OPTIONS, async (t) => {
  // As Fanfare writes them: what passes has a time to retry.
  const answers = ['503 Busy\r\nRetry-After: 1', '404 Not Found\r\nFanfare-Error: not_found'];
  let at = performance.now();
  const server = createServer().listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  server.on('upgrade', (_, socket) => {
    if (answers.length === 2) at = performance.now();
    socket.end(`HTTP/1.1 ${answers.shift()}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
  });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const fanfare = open(t, `ws://127.0.0.1:${port}/wrong`);
  fanfare.connect();
  await until(() => fanfare.state === 'closed');
  const waitedMs = performance.now() - at;
  assert.ok(waitedMs >= 990 && waitedMs < 4000, `${waitedMs} ms`);
});

const FOLLOW = `
  window.start = (url) => {
    window.sights = [];
    window.connections = 0;
    window.fanfare = new Fanfare(url, { firstDelayMs: 100, maxDelayMs: 1000 });
    fanfare.on('state', (state) => { if (state === 'connected') connections++; });
    const room = fanfare.join('${ROOM}', { recoverFailed: (position) => position });
    room.on('reset', (position) => sights.push({ type: 'state', ...position }));
    room.on('message', (payload, { epoch, offset }) =>
      sights.push({ type: 'message', payload, epoch, offset }));
  };`;
const MODULE = `<script type="module">
  import { Fanfare } from '/client/index.js';${FOLLOW}</script>`;
const SCRIPT = `<script src="/fanfare.min.js"></script><script>${FOLLOW}</script>`;

test('in Chromium a client survives a drain, killed workers, and the events of the back-forward cache', {
  timeout: 90_000,
  skip: withoutChromium,
}, async (t) => {
  const server = await startServer(t, ENV);
  const pages = await servePages(t, { '/module': MODULE, '/script': SCRIPT });
  const browser = await openBrowser(t);
  const run = await startStream(t, urlOf(server));
  for (const path of ['module', 'script']) {
    await t.test(`as a ${path}`, async () => {
      const page = await browser.newPage();
      await page.goto(`${pages}/${path}`);
      await page.waitForFunction('window.start !== undefined');
      await page.evaluate(`start('${urlOf(server)}')`);
      await page.waitForFunction('sights.length > 10');
      const before = reloads(server);
      server.kill('SIGHUP');
      await page.waitForFunction('connections === 2');
      // The old workers have ended, too: a killed one of them would not be replaced.
      await until(() => reloads(server) > before, 20_000, 'the end of the reload');
      const { length } = /** @type {Sight[]} */ (await page.evaluate('sights'));
      await page.waitForFunction(`sights.length > ${length} + 10`);
      // One after the other: the port stays open.
      for (const pid of server.workerPids()) await killWorker(server, pid);
      await page.waitForFunction('connections >= 3 && fanfare.state === "connected"');
      // Playwright turns the back-forward cache off, so the page gets its events alone.
      await page.evaluate(
        `dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))`,
      );
      assert.equal(await page.evaluate('fanfare.state'), 'sleeping');
      await run.more(20);
      await page.evaluate(
        `dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))`,
      );
      await page.waitForFunction('fanfare.state === "connected"');
      await run.more(20);
      const { offset } = /** @type {{offset: number}} */ (run.stream.last);
      await page.waitForFunction(`sights.at(-1).offset >= ${offset}`);
      const sights = /** @type {Sight[]} */ (await page.evaluate('sights'));
      assert.deepEqual(run.stream.judge(sights), []);
      assert.equal(states([sights]), 0);
      await page.close();
    });
  }
  await run.finish();
});

/** A program with the globals of React Native (Hermes): there is no page, crypto, or channel. */
const REACT_NATIVE = `
  import { createRequire } from 'node:module';
  const { WebSocket } = createRequire(process.argv[1])('ws');
  for (const name of ['addEventListener', 'document', 'crypto', 'BroadcastChannel', 'structuredClone',
    'TextDecoderStream']) Object.defineProperty(globalThis, name, { value: undefined });
  Object.assign(globalThis, { window: globalThis, WebSocket });
  Object.defineProperty(globalThis, 'navigator', { value: { product: 'ReactNative' } });
  for (const [path, options] of [['index.js', {}], ['index.js', { offline: 'queue' }], ['shared/index.js', {}]]) {
    const { Fanfare } = await import(new URL(path, process.argv[2]));
    const fanfare = new Fanfare(process.argv[3], options);
    const room = fanfare.join('chat.9');
    const got = new Promise((resolve) => room.on('message', resolve));
    await new Promise((resolve) => room.on('joined', resolve));
    await room.publish({ path });
    console.log(JSON.stringify(await got));
    await fanfare.close();
  }`;

test('the library works with the globals of React Native', OPTIONS, async (t) => {
  const server = await startServer(t, { ...ENV, WORKERS: '1' });
  const [here, client] = ['.', '../../src/client/'].map((path) => new URL(path, import.meta.url));
  const args = [
    '--input-type=module',
    '--eval',
    REACT_NATIVE,
    `${here}`,
    `${client}`,
    urlOf(server),
  ];
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 20_000 });
  const paths = ['index.js', 'index.js', 'shared/index.js'];
  assert.equal(stdout, paths.map((path) => `${JSON.stringify({ path })}\n`).join(''));
});
