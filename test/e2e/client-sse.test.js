// client-sse.test.js: `fanfare/client/sse` against real servers, whose workers are drained and
// killed under a numbered stream.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fanfare as Publisher } from '../../src/client/node.js';
import { Fanfare } from '../../src/client/sse/index.js';
import { startServer, until, urlOf } from '../harness/server.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { servePages } from '../helpers/client-pages.js';
import { follow, NumberedStream } from '../helpers/numbered-stream.js';
import { SECRET, token } from '../helpers/tokens.js';
import { killWorker } from '../helpers/workers.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {import('../helpers/numbered-stream.js').Sight} Sight */

const OPTIONS = { timeout: 30_000 };
const ROOM = 'chat.1';
const ENV = {
  FANFARE_LIMITS: 'off',
  FANFARE_HISTORY: 'chat.*=1000/60s',
  FANFARE_RECONNECT_WINDOW_MS: '500',
  JWT_SECRET: SECRET,
};
const RIGHTS = { rooms: { join: ['*'], publish: ['*'] } };

/** @param {import('../harness/server.js').Server} server */
const streamOf = (server) => urlOf(server).replace(/^ws(.*)ws$/, 'http$1sse');

/** A numbered stream, and a viewer of it. @param {TestContext} t */
async function setUp(t) {
  const server = await startServer(t, ENV);
  const getToken = () => token(RIGHTS);
  const publisher = new Publisher(urlOf(server), { token: getToken });
  const fanfare = new Fanfare(streamOf(server), { token: getToken, firstDelayMs: 100 });
  t.after(() => Promise.all([publisher.close(), fanfare.close()]));
  const view = follow(/** @type {any} */ (fanfare), ROOM);
  await until(() => fanfare.state === 'connected');
  const stream = new NumberedStream(publisher, ROOM, 10);
  stream.start();
  t.after(() => void (stream.isEnding = true));
  return {
    server,
    fanfare,
    stream,
    view,
    /** @param {number} count */
    more: (count) => {
      const { length } = view;
      return until(() => view.length >= length + count, 10_000, `${count} messages`);
    },
  };
}

test(
  'a drain and a killed worker cost a stream no message, nor does another room',
  OPTIONS,
  async (t) => {
    const { server, fanfare, stream, view, more } = await setUp(t);
    await more(20);
    /** @type {(number|undefined)[]} */
    const codes = [];
    fanfare.on('state', (state, { code }) => state === 'waiting' && codes.push(code));
    const old = server.workerPids();
    server.kill('SIGHUP');
    // The stream may move to an old worker that drains after the first one.
    await until(() => codes.length > 0 && !server.workerPids().some((pid) => old.includes(pid)));
    await until(() => fanfare.state === 'connected');
    const drains = codes.length;
    await more(20);
    // The stream begins again with a plain room.
    const plain = fanfare.join('plain');
    await new Promise((resolve) => plain.on('joined', () => resolve(undefined)));
    await more(20);
    for (const pid of server.workerPids()) await killWorker(server, pid);
    await until(() => codes.length > drains);
    await more(20);
    const { offset } = await stream.end();
    await until(() => view.at(-1)?.offset === offset);
    assert.deepEqual(stream.judge(view), []);
    assert.deepEqual(
      view.filter(({ type }) => type === 'state'),
      [],
    );
    assert.deepEqual(new Set(codes.slice(0, drains)), new Set([1012]));
    assert.equal(codes[drains], 1006);
  },
);

test(
  'a token that ends is replaced, and one without rights ends the client',
  OPTIONS,
  async (t) => {
    const server = await startServer(t, ENV);
    let calls = 0;
    const fanfare = new Fanfare(streamOf(server), {
      firstDelayMs: 100,
      token: () => {
        const iat = Math.floor(Date.now() / 1000);
        return token(++calls === 1 ? { ...RIGHTS, iat, exp: iat + 1 } : { rooms: { join: [] } });
      },
    });
    t.after(() => fanfare.close());
    /** @type {[string, number|undefined][]} */
    const states = [];
    fanfare.on('state', (state, { code }) => states.push([state, code]));
    const refused = new Promise((resolve) => fanfare.on('error', resolve));
    fanfare.join(ROOM);
    const { message } = /** @type {Error} */ (await refused);
    assert.match(message, /^refused: HTTP 403: The token's rooms.join does not name the room /);
    assert.equal(calls, 2);
    assert.deepEqual(
      states.map(([state, code]) => (code === undefined ? state : `${state} ${code}`)),
      ['connecting', 'connected', 'waiting 4001', 'connecting', 'closed 4500'],
    );
  },
);

test('in Chromium the plain script shows messages', {
  ...OPTIONS,
  skip: withoutChromium,
}, async (t) => {
  const server = await startServer(t, ENV);
  const pages = await servePages(t, { '/': '<script src="/fanfare-sse.min.js"></script>' });
  const page = await (await openBrowser(t)).newPage();
  await page.goto(pages);
  await page.evaluate(`
    window.payloads = [];
    window.fanfare = new Fanfare('${streamOf(server)}', { token: () => '${token(RIGHTS)}' });
    fanfare.join('${ROOM}').on('message', (payload) => payloads.push(payload));
  `);
  await page.waitForFunction('fanfare.state === "connected"');
  const publisher = new Publisher(urlOf(server), { token: token(RIGHTS) });
  t.after(() => publisher.close());
  publisher.connect();
  await until(() => publisher.state === 'connected');
  for (const payload of ['one', 'two']) await publisher.publish(ROOM, payload);
  await page.waitForFunction('payloads.length === 2');
  assert.deepEqual(await page.evaluate('payloads'), ['one', 'two']);
});
