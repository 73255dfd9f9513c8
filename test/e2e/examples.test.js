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
  page.on('response', (response) => {
    if (response.status() === 404) throw new Error(`404: ${response.url()}`);
  });
  await page.goto(url);
  return page;
}

/** @param {import('playwright-core').Page} page */
async function assertAccessible(page) {
  await page.evaluate(AXE);
  const { violations } = /** @type {any} */ (await page.evaluate('axe.run()'));
  assert.deepEqual(
    violations.map((/** @type {any} */ { id, nodes }) => [
      id,
      nodes[0].html,
      nodes[0].failureSummary,
    ]),
    [],
  );
}

/** A page in light, and one in dark. @param {import('playwright-core').Browser} browser */
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
  // On a phone a long name is cut, and the short ones beside it are not.
  await ben.setViewportSize({ width: 375, height: 740 });
  const long = await openPage(dark, `${url}/?name=${'x'.repeat(30)}`);
  await ben.locator('#people li').nth(2).waitFor();
  const cut = await ben
    .locator('#people li')
    .evaluateAll((all) =>
      all.map((/** @type {any} */ { textContent, clientWidth, scrollWidth }) => [
        textContent,
        scrollWidth > clientWidth + 1,
      ]),
    );
  assert.deepEqual(
    cut.filter(([, isCut]) => isCut).map(([name]) => name),
    ['x'.repeat(30)],
  );
  await long.close();
  await ben.waitForFunction(`document.getElementById('people').children.length === 2`);
  // A new tab shows the earlier messages. A person that leaves disappears.
  await ann.close();
  await ben.waitForFunction(`document.getElementById('people').children.length === 1`);
  const again = await openPage(light, `${url}/?name=Ann`);
  await again.locator('#messages li', { hasText: 'Hello <i>Ann</i>' }).waitFor();
});

test('echo-chat: people, messages and typing notices by Laravel Echo', OPTIONS, async (t) => {
  const url = await runExample(t, 'echo-chat');
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
  await ben.waitForFunction(`document.getElementById('messages').children.length === 1`);
  await ben.locator('#text').pressSequentially('o');
  await ann.locator('#typing', { hasText: 'Ben is typing' }).waitFor();
  for (const page of [ann, ben]) await assertAccessible(page);
  await ann.close();
  await ben.waitForFunction(`document.getElementById('people').children.length === 1`);
});

test('chat: sending twice, writing again and losing the connection', OPTIONS, async (t) => {
  const url = await runExample(t, 'chat');
  const browser = await openBrowser(t);
  const ann = await openPage(browser, `${url}/?name=Ann`);
  const ben = await browser.newPage();
  ben.setDefaultTimeout(STEP.timeout);
  /** @type {import('playwright-core').WebSocketRoute|undefined} */
  let socket;
  let isCut = false;
  await ben.routeWebSocket(/./, (route) => {
    socket = route;
    // Without a server the handshake succeeds, and nothing follows.
    if (!isCut) route.connectToServer();
  });
  await ben.goto(`${url}/?name=Ben`);
  const state = ben.locator('#state');
  await state.filter({ hasText: 'Online' }).waitFor();
  const noticeOfBen = ann.locator('#typing', { hasText: 'Ben is typing…' });

  await ben.locator('#text').pressSequentially('once');
  await noticeOfBen.waitFor();
  // Two quick Enters: the second comes before the reply to the first.
  await ben.evaluate(`for (let i = 0; i < 2; i++) document.getElementById('form').requestSubmit()`);
  await ann.locator('#messages li', { hasText: 'once' }).waitFor();
  await noticeOfBen.waitFor({ state: 'hidden' });
  await ben.waitForFunction(`document.getElementById('messages').children.length === 1`);
  await ben.locator('#text').pressSequentially('t');
  await noticeOfBen.waitFor();
  await ben.locator('#text').pressSequentially('wice');
  await ben.press('#text', 'Enter');
  await ann.locator('#messages li', { hasText: 'twice' }).waitFor();
  assert.equal(await ann.locator('#messages li').count(), 2);

  const dot = `getComputedStyle(document.querySelector('#people li'), '::before').backgroundColor`;
  const green = await ben.evaluate(dot);
  isCut = true;
  await socket?.close({ code: 1012 });
  await state.filter({ hasText: 'Reconnecting…' }).waitFor();
  assert.notEqual(await ben.evaluate(dot), green, 'nobody is shown as online');
  await ben.fill('#text', 'meanwhile');
  await ben.press('#text', 'Enter');
  await ben.locator('#typing', { hasText: 'Not sent. Please try again.' }).waitFor();
  assert.equal(await ben.inputValue('#text'), 'meanwhile');
  await assertAccessible(ben);
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
    const places = `[...document.querySelectorAll('#board b')].map((each) => each.textContent)`;
    assert.deepEqual(
      await page.evaluate(places),
      Array.from({ length: 10 }, (_, place) => String(place + 1)),
      'a screen reader reads the places in their order',
    );
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
