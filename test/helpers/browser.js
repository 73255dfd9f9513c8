// browser.js: the system's Chromium, for tests of pages.

import { spawnSync } from 'node:child_process';
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
