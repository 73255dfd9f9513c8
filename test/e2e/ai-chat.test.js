// ai-chat.test.js: the chat of docs/ai.md, file by file as the page has it, with the stock packages
// `ai` and `@ai-sdk/react`, in Chromium. Only the ports and the pace of the model differ.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { freePort } from '../harness/redis.js';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { startBackend } from '../helpers/example.js';
import { root } from '../helpers/packed.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { sectionsOf } from '../helpers/tutorial.js';

const OPTIONS = { timeout: 115_000, skip: withoutChromium };
const STEP_MS = 30_000;
const WORDS = 160;
const LINKED = ['express', 'ai', '@ai-sdk/react', 'react', 'react-dom', 'esbuild'];

/** Makes the project of the page. @param {import('../harness/server.js').Owner} t */
function makeProject(t) {
  const text = readFileSync(`${root}docs/ai.md`, 'utf8').split('\n## The writer\n', 1)[0];
  const [blocks] = sectionsOf(text);
  const [install, ...files] = blocks;
  const commands = /** @type {typeof install} */ (files.pop());
  assert.deepEqual([install.kind, commands.kind], ['sh', 'sh']);
  const home = temporaryFolder(t);
  writeFileSync(join(home, 'package.json'), '{"private":true,"type":"module"}\n');
  for (const [name, target] of [
    ['fanfare', root],
    ...LINKED.map((name) => [name, `${root}node_modules/${name}`]),
  ]) {
    assert.ok(install.code.includes(` ${name}`), `npm install has ${name}`);
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

const running = shared(async (owner) => {
  const { home, history } = makeProject(owner);
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
