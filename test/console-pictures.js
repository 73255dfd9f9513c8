// console-pictures.js: makes the pictures of the console in docs/images/, from real servers with
// real traffic: `node test/console-pictures.js --minutes 16`. It needs Chromium and redis-server, and
// looks best if the font Inter is installed.
//
// The traffic lasts as long as the charts. Meanwhile a worker is killed and the workers are reloaded,
// so that the charts have marks. With 61 users, all take turns in all rooms. The last pictures are of
// trouble: Redis is frozen, the other server is killed, then this one.
//
// On a busy machine the charts would show its lag and not that of the server, so none is taken there.
// console.json beside the pictures has the navigation that they show. unit/docs compares it with the
// page, so that the pictures do not become stale.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { readOptions } from './harness/options.js';
import { startServer } from './harness/server.js';
import { openBrowser } from './helpers/browser.js';
import { disturb, startScene, talk } from './helpers/console-scene.js';
import { SECRET } from './helpers/tokens.js';

const SIZE = { width: 1440, height: 900 };
/** The overview is as high as its content. */
const TALL = { width: 1440, height: 1500 };
const PHONE = { width: 375, height: 812 };
const MINUTE_MS = 60_000;
/** Until a view has all of its figures: rates need two surveys. */
const SETTLED_MS = 8000;
/** Until the charts have seen some of it. */
const TROUBLE_MS = 15_000;
/** From this lag on, the server would refuse connections (FANFARE_MAX_LOOP_LAG_MS). */
const MAX_LAG_MS = 500;
/** The pictures that documents show; a run takes others to look at. */
const SHOWN = [
  'overview-light',
  'overview-dark',
  'room-light',
  'room-dark',
  'outage-light',
  'outage-phone-light',
  'dead-light',
  'gone-light',
];

const { values } = readOptions(
  `Pictures of the console for the documentation, taken in Chromium.

  node test/console-pictures.js --minutes 3`,
  `minutes M | number 1..600 | 16 | ends after this time
  users N | whole 1..1000 | 61 | users of the scene
  folder FOLDER | | docs/images | where the pictures go
  busy | | | takes them on a busy machine, too
  all | | | keeps pictures of all views, also those that no document shows
  wait | | | leaves the server up for a look with your own browser`,
);

/** @type {(() => unknown)[]} */
const cleanups = [];
const owner = { after: (/** @type {() => unknown} */ cleanup) => void cleanups.push(cleanup) };

const cleanUp = async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
};
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM']))
  process.on(signal, () => cleanUp().finally(() => process.exit(1)));
try {
  await run(values.minutes * MINUTE_MS);
} finally {
  await cleanUp();
}

/** @typedef {{page: import('playwright-core').Page, colorScheme: 'light'|'dark'}} Open */

/** @param {number} lastsMs */
async function run(lastsMs) {
  mkdirSync(values.folder, { recursive: true });
  const scene = await startScene(owner, { users: values.users });
  const second = await startServer(owner, {
    REDIS_URL: scene.redis.url,
    WORKERS: '2',
    SERVER_ID: 'web-2',
    JWT_SECRET: SECRET,
    // The same as the other server: servers that differ in this number no messages.
    FANFARE_HISTORY: 'chat.*=200/10m,game.*=50/10m',
    FANFARE_PRESENCE: 'chat.*',
  });
  const stop = new AbortController();
  talk(scene, stop.signal);
  console.log(`${scene.url}, for ${values.minutes} minutes`);
  await delay(lastsMs * 0.3);
  process.kill(scene.server.workerPids()[1], 'SIGKILL');
  await delay(lastsMs * 0.2);
  await disturb(scene);
  await delay(lastsMs * 0.2);
  scene.server.kill('SIGHUP');
  await delay(lastsMs * 0.3);
  await refuseBusy(scene.url);
  const browser = await openBrowser(owner);
  /** One of each scheme, open until the server is killed. @type {Open[]} */
  const pages = [];
  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    const page = await browser.newPage({ viewport: SIZE, colorScheme });
    pages.push({ page, colorScheme });
    await takeViews({ page, colorScheme }, scene.url);
  }
  writeNavigation(await pages[0].page.locator('nav[aria-label="Views"] a').allTextContents());
  const areOver = () =>
    Promise.all(
      pages.map(({ page }) =>
        page.locator('.banner').waitFor({ state: 'detached', timeout: MINUTE_MS }),
      ),
    );
  scene.redis.freeze();
  await takeTrouble(pages, 'outage', 'Redis');
  scene.redis.thaw();
  await areOver();
  await delay(TROUBLE_MS);
  second.kill('SIGKILL');
  await takeTrouble(pages, 'dead', 'web-2');
  scene.server.kill('SIGKILL');
  await takeTrouble(pages, 'gone', 'web-1');
  if (values.wait) await new Promise(() => {});
  stop.abort();
}

/** @param {string} url of the console @throws {Error} the charts show the lag of this machine */
async function refuseBusy(url) {
  const response = await fetch(`${url}/console/api/history`, {
    headers: { 'X-Fanfare-Console': '1' },
  });
  const { lines } = /** @type {any} */ (await response.json());
  const lags = lines
    .filter((/** @type {any} */ { chart }) => chart === 'lag')
    .flatMap((/** @type {any} */ line) => line.values);
  const most = Math.round(Math.max(...lags));
  console.log(`highest event-loop lag: ${most} ms`);
  if (most > MAX_LAG_MS && !values.busy)
    throw new Error(
      `The machine is busy: an event-loop lag of ${most} ms, above ${MAX_LAG_MS} ms. Try again, or add --busy.`,
    );
}

/** @param {Open} open @param {string} url */
async function takeViews({ page, colorScheme }, url) {
  /** @param {string} name @param {string} hash @param {{width: number, height: number}} [size] */
  const take = async (name, hash, size = SIZE) => {
    if (!isWanted(`${name}-${colorScheme}`)) return;
    await page.setViewportSize(size);
    await page.goto(`${url}/#/${hash}`);
    await page.waitForLoadState('networkidle').catch(() => {});
    await delay(SETTLED_MS);
    await page.screenshot({ path: pathOf(`${name}-${colorScheme}`) });
  };
  await page.goto(`${url}/#/`);
  await take('overview', '', TALL);
  await take('room', 'rooms/chat.lobby');
  for (const name of ['rooms', 'users/alice', 'servers', 'limits', 'doctor', 'publish'])
    await take(name.replace('/', '-'), name);
  await take('phone', 'servers', PHONE);
  await page.goto(`${url}/#/`);
}

/** @param {readonly Open[]} pages @param {string} name @param {string} text of the banner */
async function takeTrouble(pages, name, text) {
  for (const { page } of pages) {
    await page.setViewportSize(SIZE);
    await page.locator('.banner', { hasText: text }).waitFor({ timeout: MINUTE_MS });
  }
  await delay(TROUBLE_MS);
  for (const { page, colorScheme } of pages)
    for (const [kind, size] of /** @type {const} */ ([
      [name, SIZE],
      [`${name}-phone`, PHONE],
    ])) {
      if (!isWanted(`${kind}-${colorScheme}`)) continue;
      await page.setViewportSize(size);
      await page.screenshot({ path: pathOf(`${kind}-${colorScheme}`) });
    }
}

/** @param {string} name */
function isWanted(name) {
  return values.all === true || SHOWN.includes(name);
}

/** @param {string} name */
function pathOf(name) {
  return join(values.folder, `console-${name}.png`);
}

/** @param {readonly string[]} navigation */
function writeNavigation(navigation) {
  const pictures = SHOWN.map((name) => `console-${name}.png`).sort();
  writeFileSync(
    join(values.folder, 'console.json'),
    `${JSON.stringify({ navigation, pictures }, null, 2)}\n`,
  );
}
