// ai-stream.test.js: the example of an AI stream, whose server restarts while viewers watch.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventSource } from 'eventsource';
import { Fanfare } from '../../src/client/node.js';
import { startRedis } from '../harness/redis.js';
import { until } from '../harness/server.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { startExample } from '../helpers/example.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {{text: string, isDone: boolean, position?: {epoch: string, offset: number}}} State */
/** @typedef {{at: number, text: string, done: boolean}} Part */

const OPTIONS = { timeout: 115_000, skip: withoutChromium };
const STEP_MS = 20_000;
/** The text lasts for two minutes, and the tests stop it. */
const SLOW = { TOKENS_PER_SECOND: '4' };

/** A viewer of a test: the text that its user sees. */
class View {
  text = '';
  isDone = false;
  /** States that were loaded because parts were missing. */
  states = 0;

  /** @param {Part} part */
  add({ at, text, done }) {
    if (this.states === 0)
      assert.equal(at, this.text.length, 'each part begins where the last one ended');
    if (at + text.length > this.text.length) this.text = this.text.slice(0, at) + text;
    this.isDone ||= done;
  }

  /** @param {State} state */
  set({ text, isDone }) {
    this.states++;
    this.text = text;
    this.isDone ||= isDone;
  }
}

/**
 * An answer that has begun.
 * @param {string} url of the backend
 * @returns {Promise<{id: string, load: () => Promise<State>, token: string}>}
 */
async function ask(url) {
  const response = await fetch(`${url}/answers`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: '{"question":"Why?"}',
  });
  const { id } = /** @type {{id: string}} */ (await response.json());
  const load = async () =>
    /** @type {State} */ (await (await fetch(`${url}/answers/${id}`)).json());
  const token = await (await fetch(`${url}/answers/${id}/token`)).text();
  return { id, load, token };
}

/**
 * @param {TestContext} t @param {string} serverUrl @param {Awaited<ReturnType<typeof ask>>} answer
 */
function watchByClient(t, serverUrl, { id, load, token }) {
  const view = new View();
  const fanfare = new Fanfare(serverUrl, { token, firstDelayMs: 100, maxDelayMs: 500 });
  t.after(() => fanfare.close());
  const room = fanfare.join(`ai.${id}`, { last: 1000, recoverFailed: load });
  room.on('reset', (state) => view.set(state));
  room.on('message', (part) => view.add(part));
  return view;
}

/**
 * @param {TestContext} t @param {string} serverUrl @param {Awaited<ReturnType<typeof ask>>} answer
 */
async function watchBySse(t, serverUrl, { id, load, token }) {
  const view = new View();
  await until(async () => (await load()).position !== undefined, STEP_MS, 'the first part');
  const { position, ...state } = await load();
  Object.assign(view, state);
  const since = `${position?.epoch}:${position?.offset}`;
  const url = `${serverUrl}/sse?room=ai.${id}&token=${token}&lastEventId=${since}`;
  const source = new EventSource(url);
  t.after(() => source.close());
  let queue = Promise.resolve();
  source.onmessage = ({ data }) => {
    // The text of the backend may be ahead of its position.
    const part = JSON.parse(data).payload;
    queue = queue.then(() => {
      if (part.at + part.text.length > view.text.length || part.done)
        view.add({
          ...part,
          at: view.text.length,
          text: part.text.slice(view.text.length - part.at),
        });
    });
  };
  source.addEventListener('resync', () => {
    queue = queue.then(async () => view.set(await load()));
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
      const client = watchByClient(t, serverUrl, answer);
      const sse = await watchBySse(t, serverUrl, answer);
      const browser = await openBrowser(t);
      const address = `${url}/?answer=${answer.id}`;
      const first = await openPage(browser, address);
      const bySse = await openPage(browser, `${address}&by=sse`);
      const views = [client, sse];
      const pages = [first, bySse];

      /** All viewers get further, and the text has not ended. */
      const goOn = async () => {
        const { text, isDone } = await answer.load();
        assert.equal(isDone, false, 'the text still grows');
        await until(
          () => views.every((view) => view.text.length > text.length),
          STEP_MS,
          'more text',
        );
        for (const page of pages) await page.longer(text.length);
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
      await until(() => views.every(({ isDone }) => isDone), STEP_MS, 'the end of the text');
      for (const page of pages) await page.done();
      const { text } = await answer.load();
      assert.ok(text.length > 60, `${text.length} characters`);
      for (const view of views) assert.deepEqual(Buffer.from(view.text), Buffer.from(text));
      for (const page of pages) {
        assert.deepEqual(page.errors, []);
        assert.deepEqual(Buffer.from(String(await page.text())), Buffer.from(text));
      }
      // With Redis the history outlives each restart. The embedded one ends with the primary.
      if (redis !== null) assert.deepEqual([client.states, sse.states], [0, 0]);
      else assert.ok(client.states > 0);
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
  const load = async () =>
    /** @type {State} */ (await (await fetch(`${url}/answers/${id}`)).json());
  const token = await (await fetch(`${url}/answers/${id}/token`)).text();
  const client = watchByClient(t, serverUrl, { id, load, token });
  await until(() => client.text.length > 20);
  await first.page.click('#stop');
  await first.done();
  await until(() => client.isDone);
  const { text, isDone } = await load();
  assert.ok(isDone && text.length < 1000);
  assert.equal(client.text, text);
  assert.equal(await first.text(), text);
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
