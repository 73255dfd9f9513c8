// ai-stream.test.js: the example of an AI stream, whose server restarts while viewers watch.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { read } from '../../src/ai/index.js';
import { Fanfare } from '../../src/client/node.js';
import { startRedis } from '../harness/redis.js';
import { until } from '../harness/server.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { startExample } from '../helpers/example.js';

/** @typedef {import('node:test').TestContext} TestContext */
const OPTIONS = { timeout: 115_000, skip: withoutChromium };
const STEP_MS = 30_000;
/** The text lasts for two minutes, and the tests stop it. */
const SLOW = { TOKENS_PER_SECOND: '4' };

/**
 * An answer that has begun.
 * @param {string} url of the backend
 * @returns {Promise<{id: string, token: string}>}
 */
async function ask(url) {
  const response = await fetch(`${url}/answers`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: '{"question":"Why?"}',
  });
  const { id } = /** @type {{id: string}} */ (await response.json());
  const token = await (await fetch(`${url}/answers/${id}/token`)).text();
  return { id, token };
}

/**
 * A viewer of a test: the text that its user sees.
 * @param {TestContext} t @param {string} serverUrl @param {{id: string, token: string}} answer
 */
function watch(t, serverUrl, { id, token }) {
  const fanfare = new Fanfare(serverUrl, { token, firstDelayMs: 100, maxDelayMs: 500 });
  t.after(() => fanfare.close());
  const run = read(fanfare, `ai.${id}`);
  const view = { text: '', run };
  (async () => {
    for await (const chunk of run) view.text += chunk;
  })().catch((error) => {
    view.text = String(error);
  });
  return view;
}

/** @param {import('playwright-core').Browser} browser @param {string} url */
async function openPage(browser, url) {
  const page = await browser.newPage();
  /** @type {Error[]} */
  const errors = [];
  page.on('pageerror', (error) => void errors.push(error));
  await page.goto(url);
  return {
    page,
    errors,
    text: () => page.evaluate(`document.getElementById('answer').textContent`),
    longer: (/** @type {number} */ length) =>
      page.waitForFunction(
        `document.getElementById('answer').textContent.length > ${length}`,
        null,
        { timeout: STEP_MS },
      ),
    done: () =>
      page.waitForFunction(`document.getElementById('answer').ariaBusy === 'false'`, null, {
        timeout: STEP_MS,
      }),
  };
}

for (const backend of ['Redis', 'embedded']) {
  test(
    `three restarts while the text streams, ${backend}: each viewer has it byte for byte`,
    OPTIONS,
    async (t) => {
      const redis = backend === 'Redis' ? await startRedis(t) : null;
      const example = await startExample(
        t,
        'ai-stream',
        { FANFARE_LIMITS: 'off', ...(redis && { REDIS_URL: redis.url }) },
        SLOW,
      );
      const { url, serverUrl } = example;
      let { server } = example;
      const answer = await ask(url);
      const view = watch(t, serverUrl, answer);
      const browser = await openBrowser(t);
      const address = `${url}/?answer=${answer.id}`;
      const first = await openPage(browser, address);
      const pages = [first, await openPage(browser, address)];

      /** All viewers get further, and the text has not ended. */
      const goOn = async () => {
        const { length } = view.text;
        assert.equal(view.run.end, undefined, 'the text still grows');
        await until(() => view.text.length > length, STEP_MS, 'more text');
        for (const page of pages) await page.longer(length);
      };
      await goOn();

      server.kill('SIGHUP');
      await server.line(({ msg }) => msg === 'reload complete', STEP_MS);
      await goOn();
      // A second tab in the middle of the text, and a reload of the first.
      pages.push(await openPage(browser, address));
      await first.page.reload();
      await goOn();

      server.kill('SIGTERM');
      await server.exited;
      server = await example.start();
      await goOn();

      const workers = server.workerPids();
      server.kill('SIGKILL');
      await server.exited;
      for (const pid of workers) await until(() => !isAlive(pid), STEP_MS, 'the end of a worker');
      server = await example.start();
      await goOn();

      await first.page.click('#stop');
      await until(() => view.run.end !== undefined, STEP_MS, 'the end of the text');
      assert.equal(view.run.end, 'stopped');
      for (const page of pages) await page.done();
      assert.ok(view.text.length > 60, `${view.text.length} characters`);
      // A viewer who comes after the end has the text that the others saw grow.
      const late = watch(t, serverUrl, answer);
      await until(() => late.run.end !== undefined, STEP_MS, 'the text for a late viewer');
      assert.deepEqual(Buffer.from(view.text), Buffer.from(late.text));
      for (const page of pages) {
        assert.deepEqual(page.errors, []);
        assert.deepEqual(Buffer.from(String(await page.text())), Buffer.from(view.text));
      }
    },
  );
}

test('the stop button ends the text for all viewers', OPTIONS, async (t) => {
  const { url, serverUrl } = await startExample(t, 'ai-stream', {}, SLOW);
  const browser = await openBrowser(t);
  const first = await openPage(browser, url);
  await first.page.click('#ask');
  await first.longer(20);
  const id = new URL(first.page.url()).searchParams.get('answer') ?? '';
  const token = await (await fetch(`${url}/answers/${id}/token`)).text();
  const view = watch(t, serverUrl, { id, token });
  await until(() => view.text.length > 20);
  await first.page.click('#stop');
  await first.done();
  await until(() => view.run.end === 'stopped');
  assert.ok(view.text.length < 1000);
  assert.equal(await first.text(), view.text);
  assert.equal(await first.page.isVisible('#ask'), true);
});

/** @param {number} pid */
function isAlive(pid) {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
