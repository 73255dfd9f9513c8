// examples.test.js: each example, started by its one command, in Chromium.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { runExample } from '../helpers/example.js';

const OPTIONS = { timeout: 60_000, skip: withoutChromium };
const STEP = { timeout: 20_000 };
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/**
 * @param {import('playwright-core').BrowserContext|import('playwright-core').Browser} browser
 * @param {string} url
 */
async function openPage(browser, url) {
  const page = await browser.newPage();
  page.setDefaultTimeout(STEP.timeout);
  page.on('pageerror', (error) => {
    throw error;
  });
  await page.goto(url);
  return page;
}

/** @param {import('playwright-core').Page} page */
async function assertAccessible(page) {
  await page.evaluate(AXE);
  const { violations } = /** @type {any} */ (await page.evaluate('axe.run()'));
  const serious = violations.filter((/** @type {{impact: string}} */ { impact }) =>
    ['serious', 'critical'].includes(impact),
  );
  assert.deepEqual(
    serious.map((/** @type {any} */ { id, nodes }) => [id, nodes[0].html, nodes[0].failureSummary]),
    [],
  );
}

/**
 * A page in light, and one in dark.
 * @param {import('playwright-core').Browser} browser
 */
const contexts = (browser) =>
  Promise.all(
    /** @type {const} */ (['light', 'dark']).map((colorScheme) =>
      browser.newContext({ colorScheme }),
    ),
  );

test('chat: people see each other, messages and typing notices', OPTIONS, async (t) => {
  const url = await runExample(t, 'chat');
  const [light, dark] = await contexts(await openBrowser(t));
  const ann = await openPage(light, url);
  await assertAccessible(ann);
  await ann.fill('input[name=name]', 'Ann <b>');
  await ann.click('#login button');
  const ben = await openPage(dark, `${url}/?name=Ben`);
  for (const page of [ann, ben])
    await page.waitForFunction(`document.getElementById('people').children.length === 2`);
  await ben.locator('#text').pressSequentially('Hel');
  await ann.locator('#typing', { hasText: 'Ben is typing' }).waitFor();
  await ben.fill('#text', 'Hello <i>Ann</i>');
  await ben.press('#text', 'Enter');
  for (const page of [ann, ben])
    await page.locator('#messages li', { hasText: 'Hello <i>Ann</i>' }).waitFor();
  await ann.waitForFunction(`document.getElementById('typing').textContent === ''`);
  assert.equal(await ben.inputValue('#text'), '');
  for (const page of [ann, ben]) await assertAccessible(page);
  // A new tab shows the earlier messages. A person that leaves disappears.
  await ann.close();
  await ben.waitForFunction(`document.getElementById('people').children.length === 1`);
  const again = await openPage(light, `${url}/?name=Ann`);
  await again.locator('#messages li', { hasText: 'Hello <i>Ann</i>' }).waitFor();
});

test('leaderboard: the page shows ten players, and their scores grow', OPTIONS, async (t) => {
  const url = await runExample(t, 'leaderboard', { UPDATES_PER_SECOND: '500' });
  const best = `Math.max(...[...document.querySelectorAll('#board data')]
    .map(({ textContent }) => Number(textContent.replaceAll(',', ''))))`;
  for (const context of await contexts(await openBrowser(t))) {
    const page = await openPage(context, url);
    await page.locator('#board li').nth(9).waitFor();
    const first = await page.evaluate(best);
    await page.waitForFunction(`${best} > ${first}`);
    await assertAccessible(page);
  }
});

test('leaderboard: each of 100 readers ends with the true top ten', OPTIONS, () => {
  const load = fileURLToPath(new URL('../../examples/leaderboard/load.js', import.meta.url));
  const options = ['--readers', '100', '--updates', '200', '--seconds', '2'];
  const { status, stdout, stderr } = spawnSync(process.execPath, [load, ...options], {
    encoding: 'utf8',
    timeout: 50_000,
  });
  assert.equal(status, 0, stdout + stderr);
  assert.match(stdout, /readers that show the true top ten: 100 \(required: 100\)/);
});

test('AI stream: a page asks and shows the answer', OPTIONS, async (t) => {
  const url = await runExample(t, 'ai-stream', { TOKENS_PER_SECOND: '500' });
  for (const context of await contexts(await openBrowser(t))) {
    const page = await openPage(context, url);
    await assertAccessible(page);
    await page.fill('#question', 'Warum? 🌊');
    await page.click('#ask');
    await page.waitForFunction(
      `document.getElementById('answer').textContent.startsWith('“Warum? 🌊”')`,
    );
    await assertAccessible(page);
    await page.waitForFunction(`document.getElementById('answer').textContent.includes('αντίο')`);
  }
});
