// console-pictures.js: makes the pictures of the console in docs/images/, from a real server with
// real traffic: `npm run pictures -- --minutes 16`. It needs Chromium and redis-server, and looks
// best if the font Inter is installed.
//
// The traffic lasts as long as the charts. In between a worker is killed, and the workers are
// reloaded, so that the charts have marks.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { openBrowser } from './helpers/browser.js';
import { disturb, startScene, talk } from './helpers/console-scene.js';

const SIZE = { width: 1440, height: 900 };
/** The overview is as high as its content. */
const TALL = { width: 1440, height: 1240 };
const MINUTE_MS = 60_000;

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '16' },
    users: { type: 'string', default: '60' },
    folder: { type: 'string', default: 'docs/images' },
    wait: { type: 'boolean', default: false },
  },
});

/** @type {(() => unknown)[]} */
const cleanups = [];
const owner = { after: (/** @type {() => unknown} */ cleanup) => void cleanups.push(cleanup) };

const cleanUp = async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
};
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM']))
  process.on(signal, () => cleanUp().finally(() => process.exit(1)));
try {
  await run(Number(values.minutes) * MINUTE_MS);
} finally {
  await cleanUp();
}

/** @param {number} lastsMs */
async function run(lastsMs) {
  const folder = values.folder;
  mkdirSync(folder, { recursive: true });
  const scene = await startScene(owner, { users: Number(values.users) });
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
  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    const page = await browser.newPage({ viewport: SIZE, colorScheme });
    /**
     * @param {string} name
     * @param {string} hash
     * @param {{width: number, height: number}} [size]
     */
    const take = async (name, hash, size = SIZE) => {
      await page.setViewportSize(size);
      await page.goto(`${scene.url}/#/${hash}`);
      await page.waitForLoadState('networkidle').catch(() => {});
      await delay(1500);
      const path = join(folder, `console-${name}-${colorScheme}.png`);
      await page.screenshot({ path });
    };
    await take('overview', '', TALL);
    await take('room', 'rooms/chat.lobby');
    for (const name of ['rooms', 'users/alice', 'servers', 'limits', 'doctor', 'publish'])
      await take(name.replace('/', '-'), name);
    await page.close();
  }
  if (values.wait) await new Promise(() => {});
  stop.abort();
}
