// browser.js: the system's Chromium, for tests of pages.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const CHROMIUM = spawnSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).stdout.trim();
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-sync',
];

/** The reason to skip a test, or false. */
export const withoutChromium = CHROMIUM === '' && 'there is no chromium; npm run test:setup';

/** @param {{after: (fn: () => unknown) => void}} t closes the browser after the test */
export async function openBrowser(t) {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
  t.after(() => browser.close());
  return browser;
}

/**
 * Tabs as a user has them: they can be hidden and frozen. In the pages of `openBrowser` Playwright
 * prevents both. A hidden page has no animation frames, so `waitForFunction` needs `polling`.
 * @param {{after: (fn: () => unknown) => void}} t closes the browser after the test
 * @returns {Promise<import('playwright-core').BrowserContext>}
 */
export async function openTabs(t) {
  const profile = mkdtempSync(join(tmpdir(), 'fanfare-chromium-'));
  const own = ['--headless=new', '--remote-debugging-port=0', `--user-data-dir=${profile}`];
  const child = spawn(CHROMIUM, [...FLAGS, ...own], { stdio: ['ignore', 'ignore', 'pipe'] });
  const exited = once(child, 'exit');
  /** @type {import('playwright-core').Browser|undefined} */
  let browser;
  t.after(async () => {
    // Killed, it would leave processes behind that write into the profile.
    const session = await browser?.newBrowserCDPSession();
    if (session) session.send('Browser.close').catch(() => {});
    else child.kill('SIGKILL');
    await exited;
    rmSync(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  });
  for await (const line of createInterface(child.stderr)) {
    const url = /^DevTools listening on (ws:.*)/.exec(line)?.[1];
    if (url === undefined) continue;
    child.stderr.resume();
    browser = await chromium.connectOverCDP(url, { noDefaults: true });
    return browser.contexts()[0];
  }
  throw new Error('Chromium has ended.');
}
