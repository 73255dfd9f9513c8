// console-page-trouble.test.js: the console while something is wrong, and whether it can
// be read on a telephone. In Chromium, against real servers on a real Redis that is frozen, and a
// server that is killed. It runs with `node test/run.js long`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startServer, until } from '../harness/server.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { connect } from '../helpers/clients.js';
import {
  areasOf,
  axisFaults,
  misplaced,
  openConsole,
  seriousFaults,
  watchCanvases,
} from '../helpers/console-page.js';
import { disturb, startScene } from '../helpers/console-scene.js';
import { shared } from '../helpers/shared.js';
import { SECRET, token } from '../helpers/tokens.js';

/** @typedef {import('playwright-core').Page} Page */

const OPTIONS = { timeout: 120_000, skip: withoutChromium };
/** A worker notices a silent Redis after some seconds, and the console samples every three. */
const SLOW = { timeout: 45_000 };
const VIEWS = [
  '',
  'rooms',
  'busiest',
  'rooms/chat.lobby',
  'users',
  'users/alice',
  'addresses/127.0.0.1',
  'publish',
  'servers',
  'limits',
];

const browserOf = shared((owner) => openBrowser(owner));
/** A server with users, and a second one on the same Redis. */
const start = shared(async (owner) => {
  const scene = await startScene(owner, { users: 30 });
  const second = await startServer(owner, {
    REDIS_URL: scene.redis.url,
    WORKERS: '2',
    SERVER_ID: 'web-number-two',
    JWT_SECRET: SECRET,
    ALLOWED_ORIGINS: 'https://game.example',
  });
  return { ...scene, second };
});

/**
 * @param {import('node:test').TestContext} t
 * @param {string} url
 * @param {import('playwright-core').BrowserContextOptions & {hash?: string}} [options]
 */
async function open(t, url, options) {
  const { page, faults } = await openConsole(t, url, { ...options, browser: await browserOf() });
  t.after(() => assert.deepEqual(faults, []));
  return page;
}

/** @param {Page} page @param {string} title */
const chart = (page, title) => page.locator('.chart', { hasText: title });

/** @param {Page} page @param {string} selector */
const colorOf = (page, selector) =>
  page
    .locator(selector)
    .first()
    .evaluate((element) => /** @type {any} */ (globalThis).getComputedStyle(element).color);

test(
  'a frozen Redis is a banner over every view, a pill, events and no old figures',
  OPTIONS,
  async (t) => {
    const { redis, url } = await startScene(t, { users: 2 });
    const page = await open(t, url);
    await watchCanvases(page);
    await page.reload();
    await page.locator('.status', { hasText: 'Redis' }).waitFor();
    assert.equal(await page.locator('.banner').count(), 0);
    const latency = chart(page, 'Bus latency').locator('.chart-value');
    await latency.filter({ hasText: 'ms' }).waitFor();
    const areas = async () => (await areasOf(page)).filter((widths) => widths.length > 0);
    assert.deepEqual(await areas(), []);

    redis.freeze();
    t.after(() => redis.thaw());
    const banner = page.locator('.banner', { hasText: /Redis unavailable since \d\d:\d\d:\d\d/ });
    await banner.waitFor(SLOW);
    await page.locator('.status .pill.bad', { hasText: 'Redis unavailable' }).waitFor();
    await page.locator('.status', { hasText: 'degraded' }).waitFor();
    await latency.filter({ hasText: /^–$/ }).waitFor(SLOW);
    await page.locator('.event-list li', { hasText: 'Redis is unavailable' }).waitFor();
    await page.locator('.figures-note', { hasText: 'while Redis is unavailable' }).waitFor(SLOW);
    // Every chart has one area, and it grows until Redis is back.
    await until(async () => (await areas()).filter(([width]) => width > 1).length === 10);
    assert.deepEqual(await seriousFaults(page), []);
    for (const hash of ['limits', 'rooms', 'servers']) {
      await page.goto(`${url}/#/${hash}`);
      assert.equal(await banner.count(), 1, hash);
    }

    redis.thaw();
    await banner.waitFor({ ...SLOW, state: 'detached' });
    await page.goto(`${url}/#/`);
    await page.locator('.event-list li', { hasText: /Redis is back after \d+ s/ }).waitFor();
    await latency.filter({ hasText: 'ms' }).waitFor(SLOW);
  },
);

test('a server that does not answer is a banner, and its figures are grey', OPTIONS, async (t) => {
  const { server, url } = await startScene(t, { users: 2 });
  const page = await open(t, url);
  await page.locator('.chart-value', { hasText: '/s' }).first().waitFor();
  const alive = await colorOf(page, '.chart-value');
  const banner = page.locator('.banner', {
    hasText: /web-1 does not answer. Last seen \d\d:\d\d:\d\d/,
  });

  // One that is frozen takes requests and does not answer them.
  server.kill('SIGSTOP');
  await banner.waitFor(SLOW);
  server.kill('SIGCONT');
  await banner.waitFor({ ...SLOW, state: 'detached' });
  assert.equal(await colorOf(page, '.chart-value'), alive);

  server.kill('SIGKILL');
  await banner.waitFor(SLOW);
  await page.locator('.status', { hasText: /no answer.*last seen/ }).waitFor();
  assert.notEqual(await colorOf(page, '.chart-value'), alive);
  assert.equal(await page.locator('.status .good').count(), 0);
  assert.deepEqual(await seriousFaults(page), []);
});

test(
  'the overview has the figures of all servers, and of each that is chosen',
  OPTIONS,
  async (t) => {
    const { url, second } = await start();
    await disturb({ crowd: [], server: second });
    const page = await open(t, url);
    const figures = page.locator('.figures');
    const figure = (/** @type {string} */ name) =>
      figures.locator('div', { has: page.getByText(name, { exact: true }) }).locator('dd');
    await figure('Workers ready').filter({ hasText: '4 of 4' }).waitFor(SLOW);
    await figure('Connections').filter({ hasText: /^30$/ }).waitFor(SLOW);
    await page.getByRole('heading', { name: 'Last 15 minutes of web-1 this server' }).waitFor();
    await page.getByRole('button', { name: 'web-number-two' }).click();
    await figure('Workers ready').filter({ hasText: '2 of 2' }).waitFor(SLOW);
    await figure('Connections').filter({ hasText: /^0$/ }).waitFor(SLOW);
    await page.getByText('Those of web-number-two are on its own operations port.').waitFor();
    // Refusals of the other server, which the charts of this one do not have.
    await page.getByRole('button', { name: 'All servers' }).click();
    await disturb({ crowd: [], server: second });
    await figure('Refused in 1 min')
      .filter({ hasText: /^[1-9]/ })
      .waitFor(SLOW);
  },
);

test(
  'a page that opens has the figures of all servers with the first answer',
  OPTIONS,
  async (t) => {
    const { url } = await start();
    // The server has been asked about for a while, whether or not a page was open.
    await until(async () => {
      const response = await fetch(`${url}/console/api/history`, {
        headers: { 'X-Fanfare-Console': '1' },
      });
      const { fleet } = /** @type {any} */ (await response.json());
      return fleet.sums?.workers === 4 && fleet.sums.messages !== null;
    }, 30_000);
    const page = await open(t, url, { hash: 'limits' });
    await page.goto('about:blank');
    let answers = 0;
    await page.route('**/history?*', (route) =>
      ++answers === 1 ? route.continue() : route.fulfill({ status: 503 }),
    );
    await page.goto(`${url}/#/`);
    await page.locator('.figures div', { hasText: 'Messages in' }).getByText('/s').waitFor();
    assert.deepEqual(await page.locator('.figures dd').getByText('–', { exact: true }).count(), 0);
  },
);

test(
  'a second server that is killed is as loud as an outage: a banner over every view, a pill, an event',
  OPTIONS,
  async (t) => {
    const { redis, url } = await startScene(t, { users: 1 });
    const startSecond = () =>
      startServer(t, {
        REDIS_URL: redis.url,
        WORKERS: '1',
        SERVER_ID: 'web-2',
        JWT_SECRET: SECRET,
      });
    const second = await startSecond();
    const page = await open(t, url, { hash: 'servers' });
    const card = page.locator('.card', { has: page.getByRole('heading', { name: 'web-2' }) });
    await card.waitFor(SLOW);
    assert.equal(await page.locator('.banner').count(), 0);
    second.kill('SIGKILL');
    const banner = page.locator('.banner', {
      hasText: /web-2 does not answer since \d\d:\d\d:\d\d/,
    });
    await banner.waitFor(SLOW);
    await card.locator('.pill.bad', { hasText: /no answer, last seen/ }).waitFor(SLOW);
    await page.locator('.status .pill.bad', { hasText: 'web-2 dead' }).waitFor();
    for (const hash of ['limits', 'rooms', 'users', '']) {
      await page.goto(`${url}/#/${hash}`);
      assert.equal(await banner.count(), 1, hash);
    }
    await page.locator('.figures-note .pill.bad', { hasText: /web-2: last seen/ }).waitFor(SLOW);
    await page.locator('.event-list li', { hasText: 'web-2 does not answer' }).waitFor();
    assert.deepEqual(await seriousFaults(page), []);
    await startSecond();
    await banner.waitFor({ ...SLOW, state: 'detached' });
    await page.locator('.event-list li', { hasText: 'web-2 answers again' }).waitFor();
  },
);

test('a server that is stopped drains, and its end is no alarm', OPTIONS, async (t) => {
  const { redis, url } = await startScene(t, { users: 1 });
  const second = await startServer(t, {
    REDIS_URL: redis.url,
    WORKERS: '1',
    SERVER_ID: 'web-2',
    JWT_SECRET: SECRET,
    // Longer than a survey takes to see it.
    FANFARE_DRAIN_DELAY_MS: '7000',
  });
  const page = await open(t, url, { hash: 'servers' });
  const card = page.locator('.card', { has: page.getByRole('heading', { name: 'web-2' }) });
  await card.waitFor(SLOW);
  second.kill('SIGTERM');
  await card.locator('.pill.plain', { hasText: /drained, last seen/ }).waitFor(SLOW);
  await page.goto(`${url}/#/`);
  await page.locator('.event-list li', { hasText: 'web-2 has left after a drain' }).waitFor(SLOW);
  assert.equal(await page.locator('.banner').count(), 0);
});

test(
  'in an outage a view says that it does not know, and not that it did not accept',
  OPTIONS,
  async (t) => {
    const { redis, url } = await startScene(t, { users: 1 });
    const page = await open(t, url);
    redis.freeze();
    t.after(() => redis.thaw());
    await page.locator('.banner', { hasText: 'Redis unavailable' }).waitFor(SLOW);
    for (const hash of ['rooms', 'busiest', 'rooms/chat.lobby', 'users/alice', 'users']) {
      await page.goto(`${url}/#/${hash}`);
      await page.getByText('Not known:').first().waitFor(SLOW);
      assert.equal(await page.getByText('Not accepted').count(), 0, hash);
    }
  },
);

/** As long as a room's name can be. */
const LONG = `chat.${'very-long-name.'.repeat(13)}`;

test('long names wrap, and the list of rooms has a total', OPTIONS, async (t) => {
  const { server, url } = await startScene(t, {
    users: 1,
    env: { FANFARE_LIMITS: 'observe', FANFARE_MESSAGES_PER_MINUTE_PER_IP_MODE: '' },
  });
  assert.equal(LONG.length, 200);
  const users = `${'x'.repeat(120)}-${'y'.repeat(7)}`;
  const rights = { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] };
  const signed = token({ sub: users, rooms: rights });
  const client = await connect(t, `ws://127.0.0.1:${server.port}/ws?token=${signed}`);
  for (let i = 0; i < 149; i++) await client.join(`many.${i}`);
  await client.join(LONG);
  // The largest room.
  const other = await connect(t, `ws://127.0.0.1:${server.port}/ws?token=${signed}`);
  await other.join(LONG);
  await client.ask({ type: 'message', room: LONG, payload: 'x'.repeat(300), id: 1 }, 'ack');
  for (const width of [375, 1280]) {
    const page = await open(t, url, { viewport: { width, height: 900 } });
    for (const hash of [
      'largest',
      'busiest',
      `rooms/${LONG}`,
      `members/${LONG}`,
      `users/${users}`,
    ]) {
      await page.goto(`${url}/#/${hash}`);
      await page.locator('main .card').first().waitFor();
      await page
        .getByText(hash.startsWith('users') ? users : LONG)
        .first()
        .waitFor(SLOW);
      assert.deepEqual(await misplaced(page), [], `${width} ${hash}`);
    }
    await page.goto(`${url}/#/rooms`);
    // Those of the scene are among them.
    await page.locator('.total', { hasText: /^1(?:5[0-9]) rooms$/ }).waitFor(SLOW);
    await page.getByLabel('Name begins with').fill('chat.very');
    await page.locator('.total', { hasText: /^1 room$/ }).waitFor();
    assert.deepEqual(await misplaced(page), [], `${width} rooms`);
  }
});

test(
  'the places of the navigation fill its rows, and their labels do not touch',
  OPTIONS,
  async (t) => {
    const { url } = await start();
    for (const width of [320, 375, 430, 700, 860]) {
      const page = await open(t, url, { viewport: { width, height: 812 }, hash: 'limits' });
      const links = page.getByRole('navigation', { name: 'Views' }).locator('a span');
      await links.first().waitFor();
      const boxes = await links.evaluateAll((all) =>
        all.map((one) => {
          const { left, right, top } = /** @type {any} */ (one).getBoundingClientRect();
          return { left, right, top: Math.round(top) };
        }),
      );
      const rows = [...new Set(boxes.map(({ top }) => top))].map((top) =>
        boxes.filter((box) => box.top === top),
      );
      assert.ok(rows.length <= 2, `${width}: ${rows.length} rows`);
      assert.equal(
        new Set(rows.map((row) => row.length)).size,
        1,
        `${width}: ${JSON.stringify(boxes)}`,
      );
      for (const row of rows)
        for (const [i, { left }] of row.slice(1).entries())
          assert.ok(left - row[i].right >= 4, `${width}: labels touch`);
    }
  },
);

test('at 375 px nothing is cut, outside or on top of something else', OPTIONS, async (t) => {
  const { url } = await start();
  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    const page = await open(t, url, { viewport: { width: 375, height: 812 }, colorScheme });
    await page.locator('.plot canvas').first().waitFor();
    for (const hash of VIEWS) {
      await page.goto(`${url}/#/${hash}`);
      await page.locator('.card').first().waitFor();
      await page.locator('.status', { hasText: 'workers' }).waitFor();
      assert.deepEqual(await misplaced(page), [], hash);
      assert.deepEqual(await seriousFaults(page), [], hash);
    }
  }
});

test('no label of an axis is cut or lies over another, at any width', OPTIONS, async (t) => {
  const { url } = await start();
  const page = await open(t, url, { hash: 'limits' });
  await watchCanvases(page);
  await page.reload();
  for (const width of [375, 900, 1280, 1440]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto(`${url}/#/limits`);
    await page.goto(`${url}/#/`);
    await page.locator('.plot canvas').last().waitFor();
    await until(async () => (await axisFaults(page)).labels > 0);
    assert.deepEqual((await axisFaults(page)).faults, [], String(width));
  }
});

test('a table of three columns fits into its chart', OPTIONS, async (t) => {
  const { url } = await start();
  for (const width of [1280, 1440]) {
    const page = await open(t, url, { viewport: { width, height: 900 } });
    for (const title of ['Bus latency', 'Messages in', 'Event-loop lag']) {
      const found = chart(page, title);
      await found.getByRole('button').click();
      await found.locator('tbody td').first().waitFor();
      const [wide, room] = await found
        .locator('.chart-table')
        .evaluate((/** @type {any} */ { scrollWidth, clientWidth }) => [scrollWidth, clientWidth]);
      assert.ok(wide <= room, `${title} at ${width}: ${wide} in ${room}`);
    }
  }
});

test('bars and columns of all servers stand below each other', OPTIONS, async (t) => {
  const { url } = await start();
  const page = await open(t, url, { hash: 'servers' });
  await page.getByRole('heading', { name: 'web-number-two' }).waitFor();
  const lefts = (/** @type {string} */ selector) =>
    page
      .locator(selector)
      .evaluateAll((all) =>
        all.map((one) => Math.round(/** @type {any} */ (one).getBoundingClientRect().left)),
      );
  const bars = await lefts('.bar');
  assert.equal(bars.length, 4);
  assert.equal(new Set(bars).size, 1, bars.join(' '));
  const heads = await lefts('thead th');
  assert.equal(heads.length, 14);
  assert.equal(new Set(heads).size, 7, heads.join(' '));
});

test('the list of members says how many there are, and keeps its place', OPTIONS, async (t) => {
  const { url } = await start();
  const page = await open(t, url, { hash: 'rooms/chat.lobby' });
  const list = page.locator('.members');
  await list.waitFor();
  const count = await list.locator('li').count();
  assert.ok(count > 15, String(count));
  await page.getByRole('heading', { name: `Members ${count}` }).waitFor();
  await list.evaluate((element) => {
    /** @type {any} */ (element).scrollTop = 60;
  });
  await page.waitForResponse((response) => response.url().endsWith('/actions/presence'));
  await page.waitForResponse((response) => response.url().endsWith('/actions/presence'));
  assert.equal(await list.evaluate((element) => /** @type {any} */ (element).scrollTop), 60);
});
