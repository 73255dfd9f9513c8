// console-page.js: the console in a real browser, watched for faults: errors, violations of its
// policy, and requests to other machines.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { openBrowser } from './browser.js';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** @typedef {import('playwright-core').Page} Page */

/**
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {string} url
 * @param {import('playwright-core').BrowserContextOptions & {hash?: string, browser?: import('playwright-core').Browser}}
 *   [options] `hash`: of the first view; `browser`: one of its own if it is absent
 */
export async function openConsole(t, url, { hash = '', browser, ...options } = {}) {
  browser ??= await openBrowser(t);
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 }, ...options });
  t.after(() => page.close());
  page.setDefaultTimeout(10_000);
  /** What must not happen. @type {string[]} */
  const faults = [];
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
  page.on('console', (message) => {
    // Chromium reports each refused request as an error of the console; tests refuse some.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      faults.push(`console: ${message.text()}`);
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(`${url}/`) && !request.url().startsWith('data:'))
      faults.push(`request to ${request.url()}`);
  });
  await page.goto(`${url}/#/${hash}`);
  return { page, faults };
}

/**
 * Serious faults of accessibility, by the rules of axe.
 * @param {Page} page
 * @returns {Promise<string[]>}
 */
export async function seriousFaults(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => {
    const { axe } = /** @type {any} */ (globalThis);
    return axe.run({ resultTypes: ['violations'] });
  });
  return violations
    .filter((/** @type {any} */ { impact }) => impact === 'serious' || impact === 'critical')
    .flatMap((/** @type {any} */ { id, nodes }) =>
      nodes.map((/** @type {any} */ node) => `${id}: ${node.html} ${node.any[0]?.message ?? ''}`),
    );
}
