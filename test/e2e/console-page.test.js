// console-page.test.js: every action of the console in Chromium, against a real server with two
// workers on Redis and users who talk. It runs with `node test/run.js long`, because it takes half a
// minute.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { connect } from '../helpers/clients.js';
import { openConsole, seriousFaults } from '../helpers/console-page.js';
import { disturb, startScene, talk } from '../helpers/console-scene.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { token } from '../helpers/tokens.js';

/** @typedef {import('playwright-core').Page} Page */

const OPTIONS = { timeout: 60_000, skip: withoutChromium };
const VIEWS = {
  '': 'Overview',
  rooms: 'Rooms',
  'rooms/chat.lobby': 'chat.lobby',
  largest: 'Rooms',
  busiest: 'Rooms',
  users: 'Users',
  'members/chat.lobby': 'Users',
  'addresses/127.0.0.1': 'Users',
  connections: 'Users',
  'users/alice': 'Users',
  publish: 'Publish',
  servers: 'Servers',
  webhooks: 'Webhooks',
  limits: 'Limits',
  doctor: 'Doctor',
};

const browserOf = shared((owner) => openBrowser(owner));
const start = shared(async (owner) => {
  const scene = await startScene(owner);
  const stop = new AbortController();
  owner.after(() => stop.abort());
  talk(scene, stop.signal);
  const said = scene.crowd.flatMap(({ rooms }) =>
    rooms.map((room) => room.publish({ text: 'hi' })),
  );
  await Promise.all(said);
  return scene;
});

/**
 * @param {import('node:test').TestContext} t
 * @param {string} hash
 * @param {import('playwright-core').BrowserContextOptions} [options]
 */
async function openView(t, hash, options) {
  const scene = await start();
  const browser = await browserOf();
  const { page, faults } = await openConsole(t, scene.url, { ...options, hash, browser });
  t.after(() => assert.deepEqual(faults, []));
  return { scene, page };
}

/** @param {Page} page @param {string} name */
const button = (page, name) => page.getByRole('button', { name, exact: true });

/** Waits for a notice, which a screen reader announces. @param {Page} page @param {RegExp} text */
const notice = (page, text) => page.locator('.notice', { hasText: text }).waitFor();

/**
 * Does an action behind a question. It is repeated while its outcome is unknown: on a busy machine a
 * worker may not answer within a second.
 * @param {Page} page
 * @param {string} name of the button
 * @param {RegExp} text of the notice
 */
async function actAndConfirm(page, name, text) {
  const unknown = page.locator('.notice', { hasText: /may or may not/ });
  for (let attempt = 1; ; attempt++) {
    await button(page, name).click();
    await page.getByRole('dialog').getByRole('button', { name }).click();
    await page.locator('.notice').filter({ hasText: text }).or(unknown).first().waitFor();
    if ((await unknown.count()) === 0) return;
    assert.ok(attempt < 5, 'the outcome stays unknown');
    await unknown.first().waitFor({ state: 'detached' });
  }
}

test('publish a test message from the overview', OPTIONS, async (t) => {
  const { scene, page } = await openView(t, '');
  const listener = await connect(t, `${wsOf(scene)}?token=${tokenOf('listener')}`);
  await listener.join('news');
  const form = page.locator('form.publish');
  await form.getByLabel('Room').fill('news');
  await form.getByLabel('Payload').fill('{"text": "from a test", "big": 12345678901234567890}');
  await button(page, 'Publish').click();
  await notice(page, /Published to news/);
  const { payload } = await listener.next(
    ({ type, payload: found }) => type === 'message' && found.text === 'from a test',
  );
  assert.equal(payload.text, 'from a test');
});

test('a payload that is no JSON is refused with a reason', OPTIONS, async (t) => {
  const { page } = await openView(t, 'publish');
  const form = page.locator('form.publish').first();
  await form.getByLabel('Room').fill('news');
  await form.getByLabel('Payload').fill('{text}');
  await button(page, 'Publish').click();
  await page.getByRole('alert').filter({ hasText: 'Not JSON' }).waitFor();
});

test('a refusal of the API is its sentence, without field names and codes', OPTIONS, async (t) => {
  const { page } = await openView(t, 'publish');
  const form = page.locator('form.publish').first();
  await form.getByLabel('Room').fill('x'.repeat(1000));
  await button(page, 'Publish').click();
  const text = await page.locator('.notice.bad').textContent();
  assert.match(String(text), /^room: [^()]*\.$/);
});

test('broadcast to all connections', OPTIONS, async (t) => {
  const { scene, page } = await openView(t, 'publish');
  const listener = await connect(t, `${wsOf(scene)}?token=${tokenOf('listener')}`);
  await button(page, 'Broadcast to everyone').click();
  await notice(page, /Broadcast to \d+ connections/);
  await listener.next(({ type }) => type === 'broadcast');
});

test('find a room, and look at its members and its history', OPTIONS, async (t) => {
  const { page } = await openView(t, 'rooms');
  await page.getByLabel('Name begins with').fill('chat.');
  await page.getByRole('link', { name: 'game.7' }).waitFor({ state: 'detached' });
  await page.getByRole('link', { name: 'chat.lobby' }).click();
  await page.getByRole('heading', { name: 'chat.lobby' }).waitFor();
  await page.locator('.members li').first().waitFor();
  await page.locator('.message').first().waitFor();
  await page.locator('.counts', { hasText: 'Last offset' }).waitFor();
});

test('the live tail shows new messages, survives its worker, and stops', OPTIONS, async (t) => {
  const { scene, page } = await openView(t, 'rooms/tailed');
  await button(page, 'Live tail').click();
  await page.locator('.tail-state', { hasText: 'live' }).waitFor();
  const say = async (/** @type {string} */ text) => {
    await page.getByLabel('Payload').fill(JSON.stringify({ text }));
    await button(page, 'Publish').click();
    await page.locator('.message', { hasText: text }).waitFor();
  };
  await say('first');
  await page.locator('.counts', { hasText: 'Connections0' }).waitFor();
  // One of the two has the tail; the page comes back to the other, or to the new one.
  const [before] = scene.server.workerPids();
  process.kill(before, 'SIGKILL');
  const isReplaced = () => {
    const pids = scene.server.workerPids();
    return pids.length === 2 && !pids.includes(before);
  };
  await until(isReplaced);
  await page.getByText('2 of 2 workers', { exact: true }).waitFor();
  await page.locator('.tail-state', { hasText: 'live' }).waitFor();
  await say('second');
  await button(page, 'Stop').click();
  await page.locator('.tail-state', { hasText: 'live' }).waitFor({ state: 'detached' });
});

test('delete a history, after a question', OPTIONS, async (t) => {
  const { page } = await openView(t, 'rooms/chat.deleted');
  await button(page, 'Publish').click();
  await page.locator('.message').first().waitFor();
  await button(page, 'Delete history').click();
  await button(page, 'Cancel').click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.locator('.message').first().waitFor();
  await actAndConfirm(page, 'Delete history', /The history of chat.deleted is deleted/);
  await page.getByText('The history is empty').waitFor();
});

test('find a user, and close one connection of two', OPTIONS, async (t) => {
  const { scene, page } = await openView(t, '');
  const first = await connect(t, `${wsOf(scene)}?token=${tokenOf('zoe')}`);
  const second = await connect(t, `${wsOf(scene)}?token=${tokenOf('zoe')}`);
  await first.join('zoes.room');
  await page.getByLabel('User', { exact: true }).fill('zoe');
  await button(page, 'Find').click();
  await page.getByText('2 connections on all servers').waitFor();
  const closed = once(first.socket, 'close');
  await page
    .locator('tr', { hasText: 'zoes.room' })
    .getByRole('button', { name: /^Close connection/ })
    .click();
  await closed;
  await page.getByText('1 connection on all servers').waitFor();
  assert.equal(second.socket.readyState, second.socket.OPEN);
});

test('find who is refused most, the address, and one connection by its id', OPTIONS, async (t) => {
  const { scene, page } = await openView(t, 'users');
  const flooder = await connect(t, `${wsOf(scene)}?token=${tokenOf('flooder')}`);
  await flooder.join('flooded');
  for (let i = 0; i < 400; i++) flooder.send({ type: 'ping', id: `p${i}` });
  await flooder.next(({ error }) => error === 'RATE_LIMIT_EXCEEDED');
  await page.getByRole('link', { name: 'flooder' }).click();
  await page.getByText('1 connection on all servers').waitFor();
  const row = page.locator('tbody tr', { hasText: 'flooded' });
  // Server, time since it was opened, unsent bytes, refused messages.
  const columns = /flooder.*127\.0\.0\.1.*web-1 · \d+.*WebSocket\d+ s0 B[1-9]\d*flooded/;
  assert.match(String(await row.textContent()), columns);
  const id = String(await row.locator('th').textContent());
  await row.getByRole('link', { name: '127.0.0.1' }).click();
  await page.locator('tbody tr').nth(10).waitFor();
  await page.getByRole('link', { name: 'Room', exact: true }).click();
  await page.getByLabel('Room', { exact: true }).fill('flooded');
  await button(page, 'Find').click();
  await row.waitFor();
  assert.equal(await page.locator('tbody tr').count(), 1);
  await page.getByRole('link', { name: 'Connection', exact: true }).click();
  await page.getByLabel('Connection', { exact: true }).fill(id);
  await button(page, 'Find').click();
  await row.waitFor();
  assert.equal(await page.locator('tbody tr').count(), 1);
  await page.goto(`${scene.url}/#/connections/none`);
  await page.getByText('No such connection').waitFor();
  await page.goto(`${scene.url}/#/addresses`);
  await page.locator('tr', { hasText: '127.0.0.1' }).first().waitFor();
});

test('the largest and the busiest rooms', OPTIONS, async (t) => {
  const { page } = await openView(t, 'rooms');
  await page.getByRole('link', { name: 'Largest' }).click();
  const first = page.locator('tbody tr').first();
  await first.locator('.bar').waitFor();
  const counts = await page.locator('tbody tr td:nth-child(2)').allTextContents();
  assert.ok(counts.length >= 4);
  assert.deepEqual(
    counts.map(Number),
    counts.map(Number).sort((one, other) => other - one),
  );
  await page.getByRole('link', { name: 'Busiest' }).click();
  await first.locator('td:nth-child(3)', { hasText: /^[0-9.]*[1-9][0-9.]*\/s$/ }).waitFor({
    timeout: 30_000,
  });
});

test('disconnect a user, after a question', OPTIONS, async (t) => {
  const { scene, page } = await openView(t, 'users/yan');
  await page.getByText('offline').waitFor();
  const client = await connect(t, `${wsOf(scene)}?token=${tokenOf('yan')}`);
  await button(page, 'Find').click();
  await page.getByText('1 connection on all servers').waitFor();
  const closed = once(client.socket, 'close');
  await actAndConfirm(page, 'Disconnect', /\d connections? of yan closed/);
  const [code] = await closed;
  assert.equal(code, 4503);
});

test('revoke the tokens of a user, after a question', OPTIONS, async (t) => {
  const { scene, page } = await openView(t, 'users/xia');
  const text = tokenOf('xia');
  const client = await connect(t, `${wsOf(scene)}?token=${text}`);
  const closed = once(client.socket, 'close');
  await actAndConfirm(page, 'Revoke tokens', /The tokens of xia are revoked/);
  await closed;
  const again = await connect(t, `${wsOf(scene)}?token=${text}`);
  const [code] = await once(again.socket, 'close');
  assert.equal(code, 4500);
});

test('see servers, workers, limits and the findings of the doctor', OPTIONS, async (t) => {
  const { scene, page } = await openView(t, 'servers');
  await page.getByRole('heading', { name: 'web-1' }).waitFor();
  await page.getByText(`pid ${scene.server.workerPids()[0]}`).waitFor();
  await page.getByRole('link', { name: 'Limits' }).click();
  await page.getByText('FANFARE_MAX_CONNECTIONS_PER_IP', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Doctor' }).click();
  await page.getByText('nofile', { exact: true }).first().waitFor();
  await button(page, 'Examine again').click();
});

test(
  'each chart has its values as a table, and the arrow keys read the plot',
  OPTIONS,
  async (t) => {
    const { scene, page } = await openView(t, '');
    await disturb(scene);
    const chart = page.locator('.chart', { hasText: 'Deliveries out' });
    await chart.locator('canvas').waitFor();
    await chart.locator('.plot').focus();
    // A new line is drawn in a new plot, without a cursor: then the key is pressed again.
    await until(async () => {
      await page.keyboard.press('ArrowLeft');
      return chart.locator('.legend-time').isVisible();
    });
    const toggles = page.getByRole('button', { name: /show the values as a table/ });
    const count = await toggles.count();
    assert.equal(count, 10);
    for (let i = 0; i < count; i++) await toggles.nth(i).click();
    assert.equal(await page.locator('.chart-table table').count(), count);
    assert.ok((await chart.locator('tbody tr').count()) > 1);
    await page.locator('.event-list li', { hasText: 'Worker 0 is ready' }).first().waitFor();
    await toggles.first().click();
    await page.locator('.chart canvas').first().waitFor();
  },
);

test('the keyboard alone reaches the views and the content', OPTIONS, async (t) => {
  const { page } = await openView(t, '');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await page.keyboard.press('Tab');
  assert.equal(await focused(page), 'Skip to the content');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  assert.equal(await focused(page), 'Overview');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Rooms', exact: true }).waitFor();
  assert.equal(await focused(page), 'Rooms');
});

test('a key is asked for, kept in the tab, and forgotten', OPTIONS, async (t) => {
  const secret = newSecret();
  const { url } = await startScene(t, {
    users: 0,
    env: { WORKERS: '1', FANFARE_CONSOLE: 'key', API_KEYS: `duty ${secret} console,rooms` },
  });
  const { page, faults } = await openConsole(t, url, { browser: await browserOf() });
  const enter = async (/** @type {string} */ key) => {
    await page.getByLabel('API key').fill(key);
    await button(page, 'Open the console').click();
  };
  await enter(newSecret());
  await page.getByRole('alert').waitFor();
  assert.deepEqual(await seriousFaults(page), []);
  await enter(secret);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await page.getByText('Your key lacks the right publish.').waitFor();
  assert.equal(await button(page, 'Publish').isDisabled(), true);
  await page.reload();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  for (const hash of ['users/alice', 'rooms/chat.lobby']) {
    await page.goto(`${url}/#/${hash}`);
    await page.getByText('Not permitted').first().waitFor();
  }
  await button(page, 'Forget key duty').click();
  await page.getByLabel('API key').waitFor();
  assert.deepEqual(faults, []);
});

for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
  test(`every view is accessible and has its picture, ${colorScheme}`, OPTIONS, async (t) => {
    const folder = temporaryFolder(t);
    const { scene, page } = await openView(t, '', { colorScheme });
    for (const [hash, title] of Object.entries(VIEWS)) {
      await page.goto(`${scene.url}/#/${hash}`);
      await page.getByRole('heading', { name: title, exact: true, level: 1 }).waitFor();
      await page.locator('.card, .empty').first().waitFor();
      assert.deepEqual(await seriousFaults(page), [], `${title}, ${colorScheme}`);
      const path = join(folder, 'view.png');
      await page.screenshot({ path });
      assert.ok(statSync(path).size > 10_000, title);
    }
    const back = await page.evaluate(() => {
      const { document, getComputedStyle } = /** @type {any} */ (globalThis);
      return getComputedStyle(document.body).backgroundColor;
    });
    assert.equal(back, colorScheme === 'light' ? 'rgb(246, 247, 249)' : 'rgb(14, 17, 22)');
    await button(page, colorScheme === 'light' ? 'Dark' : 'Light').click();
    await page
      .locator(`html[data-theme="${colorScheme === 'light' ? 'dark' : 'light'}"]`)
      .waitFor();
  });
}

test('a narrow window needs no scrolling to the side', OPTIONS, async (t) => {
  const { scene, page } = await openView(t, '', { viewport: { width: 390, height: 844 } });
  for (const [hash, title] of Object.entries(VIEWS)) {
    await page.goto(`${scene.url}/#/${hash}`);
    await page.getByRole('heading', { name: title, exact: true, level: 1 }).waitFor();
    const width = await page.evaluate(
      () => /** @type {any} */ (globalThis).document.body.scrollWidth,
    );
    assert.ok(width <= 390, `${title}: ${width}`);
  }
});

/** @param {Awaited<ReturnType<typeof startScene>>} scene */
const wsOf = ({ server }) => `ws://127.0.0.1:${server.port}/`;

/** @param {string} user */
const tokenOf = (user) => token({ sub: user, rooms: { join: ['*'] } });

/** @param {Page} page */
const focused = (page) =>
  page.evaluate(() => /** @type {any} */ (globalThis).document.activeElement?.textContent);
