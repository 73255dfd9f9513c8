// ai-chat.test.js: the chat of docs/ai.md, file by file as the page has it, with the stock packages
// `ai`, `@ai-sdk/react` and `@ai-sdk/svelte`, in Chromium. Only the ports and the pace of the model
// differ.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { build } from 'esbuild';
import { freePort } from '../harness/redis.js';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { svelte } from '../helpers/client-bindings.js';
import { filesOf } from '../helpers/doc-code.js';
import { startBackend } from '../helpers/example.js';
import { root } from '../helpers/packed.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { sectionsOf } from '../helpers/tutorial.js';

const OPTIONS = { timeout: 115_000, skip: withoutChromium };
const STEP_MS = 30_000;
const WORDS = 160;
const LINKED = ['express', 'ai', '@ai-sdk/react', 'react', 'react-dom', 'esbuild'];
/** In place of page.jsx. */
const SVELTE_APP = `
  import { FanfareChatTransport } from 'fanfare/ai';
  import { Fanfare } from 'fanfare/client';
  import { mount } from 'svelte';
  import Chat from './Chat.svelte';
  const id = new URLSearchParams(location.search).get('chat');
  const url = await (await fetch('/server-url')).text();
  const messages = await (await fetch('/api/chat/' + id)).json();
  const transport = new FanfareChatTransport({ fanfare: new Fanfare(url) });
  mount(Chat, { target: document.getElementById('chat'), props: { id, messages, transport } });`;

/** Makes the project of the page. @param {import('../harness/server.js').Owner} t */
function makeProject(t) {
  const text = readFileSync(`${root}docs/ai.md`, 'utf8').split('\n### With Svelte', 1)[0];
  const [blocks] = sectionsOf(text);
  const [install, ...files] = blocks;
  const commands = /** @type {typeof install} */ (files.pop());
  assert.deepEqual([install.kind, commands.kind], ['sh', 'sh']);
  const home = temporaryFolder(t);
  writeFileSync(join(home, 'package.json'), '{"private":true,"type":"module"}\n');
  for (const name of LINKED) assert.ok(install.code.includes(` ${name}`), `it has ${name}`);
  for (const [name, target] of [
    ['fanfare', root],
    ...[...LINKED, '@ai-sdk/svelte', 'svelte'].map((name) => [name, `${root}node_modules/${name}`]),
  ]) {
    const path = join(home, 'node_modules', name);
    mkdirSync(dirname(path), { recursive: true });
    symlinkSync(target, path);
  }
  for (const { path, code } of files) {
    mkdirSync(dirname(join(home, path)), { recursive: true });
    writeFileSync(join(home, path), code.replace('length: 400', `length: ${WORDS}`));
  }
  const [build] = commands.code.split('\n', 1);
  assert.match(build, /^npx esbuild /);
  const esbuild = `${root}node_modules/.bin/esbuild`;
  execFileSync(esbuild, ['--log-level=warning', ...build.split(' ').slice(2)], { cwd: home });
  const history = /FANFARE_HISTORY='([^']+)'/.exec(commands.code)?.[1] ?? '';
  return { home, history };
}

/** Adds the page of Svelte. @param {string} home */
async function addSvelte(home) {
  writeFileSync(join(home, 'Chat.svelte'), filesOf('docs/ai.md')['Chat.svelte']);
  writeFileSync(join(home, 'svelte.js'), SVELTE_APP);
  const html = readFileSync(join(home, 'public/index.html'), 'utf8');
  writeFileSync(join(home, 'public/svelte.html'), html.replace('page.js', 'svelte.js'));
  await build({
    entryPoints: [join(home, 'svelte.js')],
    outfile: join(home, 'public/svelte.js'),
    ...{ bundle: true, format: 'esm', conditions: ['browser', 'svelte'], logLevel: 'warning' },
    plugins: [svelte('client')],
  });
}

const running = shared(async (owner) => {
  const { home, history } = makeProject(owner);
  await addSvelte(home);
  const apiKey = newSecret();
  const settings = {
    ...NO_LIMITS,
    PORT: String(await freePort()),
    API_KEYS: `ai ${apiKey} all`,
    FANFARE_HISTORY: history,
    FANFARE_RECONNECT_WINDOW_MS: '200',
  };
  const start = () => startServer(owner, settings);
  const server = await start();
  const env = { SERVER_URL: `http://127.0.0.1:${server.port}`, API_KEY: apiKey };
  const url = await startBackend(owner, ['backend.js'], env, home);
  return { url, server, start, browser: await openBrowser(owner) };
});

const ANSWER = Array.from({ length: WORDS }, (_, i) => `Word ${i} of a long answer. `).join('');

/** @param {import('playwright-core').Browser} browser @param {string} address */
async function openChat(browser, address) {
  const page = await browser.newPage();
  /** @type {Error[]} */
  const errors = [];
  page.on('pageerror', (error) => void errors.push(error));
  await page.goto(address);
  await page.waitForSelector('main');
  const answers = () =>
    page.$$eval('.assistant', (all) => all.map(({ textContent }) => textContent ?? ''));
  return {
    page,
    errors,
    answers,
    /** @param {number} length of the last answer */
    async longer(length) {
      const grown = `[...document.querySelectorAll('.assistant')].at(-1)?.textContent.length > ${length}`;
      await page.waitForFunction(grown, null, { timeout: STEP_MS });
    },
    idle: () => page.waitForSelector('main[data-status="ready"]', { timeout: STEP_MS }),
  };
}

test(
  'useChat: a reload, a second tab and a killed server leave the answer whole, in every tab',
  OPTIONS,
  async (t) => {
    const { url, server, start, browser } = await running();
    const address = `${url}/?chat=whole`;
    const first = await openChat(browser, address);
    t.after(() => first.page.close());
    await first.page.click('#ask');
    await first.longer(300);
    const second = await openChat(browser, address);
    t.after(() => second.page.close());
    await second.longer(600);
    await first.page.reload();
    await first.longer(900);
    // The embedded backend loses the run, and the writer writes it again.
    server.kill('SIGKILL');
    await server.exited;
    await start();
    await Promise.all([first.longer(ANSWER.length - 1), second.longer(ANSWER.length - 1)]);
    await Promise.all([first.idle(), second.idle()]);
    for (const { answers, errors } of [first, second]) {
      assert.deepEqual(await answers(), [ANSWER]);
      assert.deepEqual(errors, []);
    }
  },
);

test('useChat: stop in a second tab ends the answer in both, and the model', OPTIONS, async (t) => {
  const { url, browser } = await running();
  const address = `${url}/?chat=stop`;
  const first = await openChat(browser, address);
  t.after(() => first.page.close());
  await first.page.click('#ask');
  await first.longer(200);
  const second = await openChat(browser, address);
  t.after(() => second.page.close());
  await second.longer(200);
  await second.page.click('#stop');
  await Promise.all([first.idle(), second.idle()]);
  const [[one], [other]] = [await first.answers(), await second.answers()];
  assert.ok(one.length < ANSWER.length && ANSWER.startsWith(one), `${one.length} characters`);
  assert.ok(ANSWER.startsWith(other) && other.length <= one.length);
  // Nothing is under way that a third tab could resume, and the chat goes on.
  await first.page.click('#ask');
  await first.page.waitForFunction(`document.querySelectorAll('.assistant').length === 2`);
  await first.longer(100);
  await first.page.click('#stop');
  await first.idle();
  assert.deepEqual([first.errors, second.errors], [[], []]);
});

test(
  'Svelte: a reload leaves the answer whole beside a page of React, and stop ends it in both',
  OPTIONS,
  async (t) => {
    const { url, browser } = await running();
    const first = await openChat(browser, `${url}/svelte.html?chat=svelte`);
    t.after(() => first.page.close());
    await first.page.click('#ask');
    await first.longer(300);
    const second = await openChat(browser, `${url}/?chat=svelte`);
    t.after(() => second.page.close());
    await second.longer(600);
    await first.page.reload();
    await Promise.all([first.longer(ANSWER.length - 1), second.longer(ANSWER.length - 1)]);
    await Promise.all([first.idle(), second.idle()]);
    for (const { answers } of [first, second]) assert.deepEqual(await answers(), [ANSWER]);

    await first.page.click('#ask');
    await first.page.waitForFunction(`document.querySelectorAll('.assistant').length === 2`);
    await first.longer(100);
    await second.page.reload();
    await second.longer(100);
    await first.page.click('#stop');
    await Promise.all([first.idle(), second.idle()]);
    const [, other] = await second.answers();
    assert.ok(other.length < ANSWER.length && ANSWER.startsWith(other));
    assert.deepEqual([first.errors, second.errors], [[], []]);
  },
);
