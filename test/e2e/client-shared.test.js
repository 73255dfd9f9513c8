// client-shared.test.js: `fanfare/client/shared` in Chromium: five tabs with one connection, whose
// leader is closed, crashed and frozen again and again.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Fanfare } from '../../src/client/node.js';
import { connectionsPerWorker, scrape, startServer, until, urlOf } from '../harness/server.js';
import { openTabs, withoutChromium } from '../helpers/browser.js';
import { servePages } from '../helpers/client-pages.js';
import { follow, NumberedStream } from '../helpers/numbered-stream.js';

/** @typedef {import('playwright-core').Page} Page */
/** @typedef {import('../helpers/numbered-stream.js').Sight} Sight */
/** @typedef {'closed'|'crashed'|'frozen'|'stopped'} Kind */

const ROOM = 'chat.1';
/** The tabs publish here. */
const TABS_ROOM = 'chat.2';
const TABS = 5;
const KILLS = 20;
const INTERVAL_MS = 20;
const MAX_TAKEOVER_MS = 2000;
/** `frozen`: by the browser, after an event. `stopped`: by a script that does not end. */
const KINDS = /** @type {const} */ (['closed', 'crashed', 'frozen', 'stopped']);
const STOP_MS = 2500;
const LIFECYCLE = 'Page.setWebLifecycleState';
const ENV = { FANFARE_LIMITS: 'off', FANFARE_HISTORY: 'chat.*=5000/300s' };

const PAGE = `<script src="/fanfare-shared.min.js"></script><script>
  window.stop = (ms) => {
    const request = new XMLHttpRequest();
    request.open('GET', '/wait/' + ms, false);
    request.send();
  };
  window.sockets = new Set();
  class Socket extends WebSocket {
    constructor(...args) {
      super(...args);
      sockets.add(this);
      this.addEventListener('close', () => sockets.delete(this));
    }
    terminate() {
      sockets.delete(this);
      this.close();
    }
  }
  window.start = (url, tab) => {
    window.sights = [];
    window.accepted = [];
    window.refused = [];
    window.connectedAtMs = 0;
    window.fanfare = new Fanfare(url, { WebSocket: Socket, firstDelayMs: 100, maxDelayMs: 1000 });
    fanfare.on('state', (state) => {
      if (state === 'connected') connectedAtMs = Date.now();
    });
    const room = fanfare.join('${ROOM}', { recoverFailed: (position) => position });
    room.on('reset', (position) => sights.push({ type: 'state', ...position }));
    room.on('message', (payload, { epoch, offset }) =>
      sights.push({ type: 'message', payload, epoch, offset }));
    let number = 0;
    setInterval(() => {
      const value = tab + ':' + ++number;
      fanfare.publish('${TABS_ROOM}', value).then(
        () => accepted.push(value),
        ({ code }) => refused.push(code),
      );
    }, 50);
  };
</script>`;

/** Waits until an expression is true in a page. @param {Page} page @param {string} expression */
async function seen(page, expression) {
  await page.waitForFunction(expression, null, { polling: 50, timeout: 10_000 });
}

test('five tabs have one connection, and the leader is killed 20 times: no gap and no repeat', {
  timeout: 240_000,
  skip: withoutChromium,
}, async (t) => {
  const server = await startServer(t, ENV);
  const origin = await servePages(t, { '/': PAGE });
  const context = await openTabs(t);
  const publisher = new Fanfare(urlOf(server));
  t.after(() => publisher.close());
  /** Of the tabs, in the order of the room. @type {string[]} */
  const published = [];
  publisher.join(TABS_ROOM).on('message', (value) => published.push(value));
  const witness = follow(publisher, ROOM);
  const handles = [TABS_ROOM, ROOM].map((name) => publisher.join(name));
  await until(() => handles.every(({ isJoined }) => isJoined));
  const stream = new NumberedStream(publisher, ROOM, INTERVAL_MS);
  stream.start();
  t.after(() => void (stream.isEnding = true));

  let opened = 0;
  const open = async () => {
    const page = await context.newPage();
    await page.goto(origin);
    await seen(page, 'window.start !== undefined');
    await page.evaluate(`start('${urlOf(server)}', ${++opened})`);
    await seen(page, 'sights.length > 0');
    return page;
  };
  /** @type {Page[]} */
  let pages = [];
  for (let i = 0; i < TABS; i++) pages.push(await open());

  /** @returns {Promise<Page[]>} pages with a connection */
  const leaders = async () => {
    const counts = await Promise.all(pages.map((page) => page.evaluate('sockets.size')));
    return pages.filter((_, i) => Number(counts[i]) > 0);
  };
  const connections = async () => {
    const { values } = await scrape(server.metricsPort);
    return [...connectionsPerWorker(values).values()].reduce((sum, count) => sum + count, 0);
  };
  /** @type {string[]} */
  const accepted = [];
  /** @type {string[]} */
  const refused = [];
  /** Checks the messages that a tab has got so far. @param {Page} page */
  const judge = async (page) => {
    const about = /** @type {{sights: Sight[], accepted: string[], refused: string[]}} */ (
      await page.evaluate('({ sights, accepted, refused })')
    );
    accepted.push(...about.accepted);
    refused.push(...about.refused);
    assert.deepEqual(stream.judge(about.sights), []);
    assert.deepEqual(
      about.sights.filter(({ type }) => type === 'state'),
      [],
    );
    return about.sights;
  };

  /** @type {Record<Kind, number[]>} */
  const takeoversMs = { closed: [], crashed: [], frozen: [], stopped: [] };
  for (let kill = 0; kill < KILLS; kill++) {
    const kind = KINDS[kill % KINDS.length];
    const [leader, ...others] = await leaders();
    assert.equal(others.length, 0, 'one tab leads');
    const devtools = await context.newCDPSession(leader);
    const followers = pages.filter((page) => page !== leader);
    if (kind === 'closed' || kind === 'crashed') await judge(leader);
    const at = Date.now();
    if (kind === 'closed') await leader.close();
    else if (kind === 'crashed') devtools.send('Page.crash').catch(() => {});
    else if (kind === 'frozen') await devtools.send(LIFECYCLE, { state: 'frozen' });
    else leader.evaluate(`stop(${STOP_MS})`).catch(() => {});
    await Promise.all(followers.map((page) => seen(page, `connectedAtMs > ${at}`)));
    const times = await Promise.all(followers.map((page) => page.evaluate('connectedAtMs')));
    takeoversMs[kind].push(Math.max(...times.map(Number)) - at);
    if (kind === 'closed' || kind === 'crashed') {
      pages = [...followers, await open()];
      await leader.close();
    } else {
      await pause(500);
      if (kind === 'frozen') await devtools.send(LIFECYCLE, { state: 'active' });
      await seen(leader, `connectedAtMs > ${at}`);
    }
    await until(async () => (await connections()) === 2, 10_000, 'one connection');
  }

  const { offset } = await stream.end();
  for (const page of pages) {
    await seen(page, `sights.at(-1).offset >= ${offset}`);
    await page.evaluate('fanfare.close()');
    assert.ok((await judge(page)).length > 100);
  }
  assert.deepEqual(stream.judge(witness), []);
  assert.equal(new Set(published).size, published.length, 'no message of a tab came twice');
  assert.deepEqual(
    accepted.filter((value) => !published.includes(value)),
    [],
  );
  t.diagnostic(`milliseconds until the last tab was connected: ${JSON.stringify(takeoversMs)}`);
  t.diagnostic(`${accepted.length} messages of tabs accepted, refused: ${JSON.stringify(refused)}`);
  for (const ms of Object.values(takeoversMs).flat())
    assert.ok(ms < MAX_TAKEOVER_MS, `${ms} ms until all tabs were connected`);
});
