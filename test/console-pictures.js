// console-pictures.js: makes the pictures of the console in docs/images/, from a real server with
// real traffic: `node test/console-pictures.js --minutes 16`. It needs Chromium and redis-server, and looks
// best if the font Inter is installed.
//
// The traffic lasts as long as the charts. In between a worker is killed, and the workers are
// reloaded, so that the charts have marks. (With 61 users all take turns in all rooms.) The last pictures are of trouble: Redis is frozen, and
// the server is killed.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { readOptions } from '../loadtest/lib/options.js';
import { startServer } from '../loadtest/lib/server.js';
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

const { values } = readOptions(
  `Pictures of the console for the documentation, taken in Chromium.

  node test/console-pictures.js --minutes 3`,
  `minutes M | number 1..600 | 16 | ends after this time
  users N | whole 1..1000 | 61 | users of the scene
  folder FOLDER | | docs/images | where the pictures go
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

/** @param {number} lastsMs */
async function run(lastsMs) {
  const folder = values.folder;
  mkdirSync(folder, { recursive: true });
  const scene = await startScene(owner, { users: values.users });
  await startServer(owner, {
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
  const browser = await openBrowser(owner);
  /** One of each scheme, open until the server is killed. */
  /** @type {{page: import('playwright-core').Page, colorScheme: string}[]} */
  const pages = [];
  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    const page = await browser.newPage({ viewport: SIZE, colorScheme });
    pages.push({ page, colorScheme });
    /** @param {string} name @param {string} hash @param {{width: number, height: number}} [size] */
    const take = async (name, hash, size = SIZE) => {
      await page.setViewportSize(size);
      await page.goto(`${scene.url}/#/${hash}`);
      await page.waitForLoadState('networkidle').catch(() => {});
      await delay(SETTLED_MS);
      const path = join(folder, `console-${name}-${colorScheme}.png`);
      await page.screenshot({ path });
    };
    await take('overview', '', TALL);
    await take('room', 'rooms/chat.lobby');
    for (const name of ['rooms', 'users/alice', 'servers', 'limits', 'doctor', 'publish'])
      await take(name.replace('/', '-'), name);
    await take('phone', 'servers', PHONE);
    await page.goto(`${scene.url}/#/`);
  }
  /** @param {string} name */
  const takeTrouble = async (name) => {
    for (const { page } of pages) {
      await page.setViewportSize(SIZE);
      await page.locator('.banner').waitFor({ timeout: MINUTE_MS });
    }
    await delay(TROUBLE_MS);
    for (const { page, colorScheme } of pages) {
      await page.screenshot({ path: join(folder, `console-${name}-${colorScheme}.png`) });
      await page.setViewportSize(PHONE);
      await page.screenshot({ path: join(folder, `console-${name}-phone-${colorScheme}.png`) });
    }
  };
  scene.redis.freeze();
  await takeTrouble('outage');
  scene.redis.thaw();
  for (const { page } of pages)
    await page.locator('.banner').waitFor({ state: 'detached', timeout: MINUTE_MS });
  await delay(TROUBLE_MS);
  scene.server.kill('SIGKILL');
  await takeTrouble('gone');
  if (values.wait) await new Promise(() => {});
  stop.abort();
}
