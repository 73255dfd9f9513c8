// readme.test.js: the browser code of README.md and of docs/getting-started.md, run in Chromium
// against a real server.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { startServer } from '../harness/server.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const TIMEOUT_MS = 10_000;
const root = new URL('../../', import.meta.url);
const readme = readFileSync(new URL('README.md', root), 'utf8');

/**
 * The first block of a language in a page, for a server at another port.
 * @param {string} path @param {string} language @param {number} port
 */
function codeOf(path, language, port) {
  const text = readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
  const [, code] = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(text) ?? [];
  assert.ok(code?.includes('ws://localhost:3000'), `${path} has no block that connects`);
  return code.replace('ws://localhost:3000', `ws://127.0.0.1:${port}`);
}

/**
 * Waits until a tab shows this many messages.
 * @param {import('playwright-core').Page} page @param {number} count
 */
async function messagesOn(page, count) {
  const isThere = `document.body.textContent.match(/\\S+: Hello!\\n/g)?.length === ${count}`;
  await page.waitForFunction(isThere, null, { timeout: TIMEOUT_MS });
}

test('README.md: the code with the client library prints a message', {
  timeout: 60_000,
}, async (t) => {
  const { port } = await startServer(t);
  const [, code] = readme.split("import { Fanfare } from 'fanfare/client';");
  const script = code.split('```')[0].replace('ws://localhost:3000', `ws://127.0.0.1:${port}`);
  const child = spawn(
    process.execPath,
    ['--input-type=module', '-e', `import { Fanfare } from 'fanfare/client';${script}`],
    { cwd: fileURLToPath(root), stdio: ['ignore', 'pipe', 'inherit'] },
  );
  t.after(() => child.kill('SIGKILL'));
  const [line] = await once(createInterface({ input: child.stdout }), 'line');
  assert.match(line, /^\S+: Hello!$/);
});

test('the browser code in the documentation shows a message', {
  timeout: 60_000,
  skip: withoutChromium,
}, async (t) => {
  const { port } = await startServer(t);
  const browser = await openBrowser(t);

  await t.test(
    'README.md: pasted into the consoles of two tabs, each sees the messages of both',
    async () => {
      const code = codeOf('README.md', 'js', port);
      assert.ok(code.trim().split('\n').length <= 10, 'ten lines');
      const first = await browser.newPage();
      await first.goto(`http://127.0.0.1:${port}/livez`);
      await first.evaluate(code);
      await messagesOn(first, 1);
      const second = await browser.newPage();
      await second.goto(`http://127.0.0.1:${port}/livez`);
      await second.evaluate(code);
      await messagesOn(first, 2);
      await messagesOn(second, 1);
    },
  );

  await t.test('docs/getting-started.md: a line typed in one tab shows in another', async () => {
    const folder = temporaryFolder(t);
    const file = join(folder, 'chat.html');
    writeFileSync(file, codeOf('docs/getting-started.md', 'html', port));
    const pages = [await browser.newPage(), await browser.newPage()];
    for (const page of pages) {
      const joined = page.waitForEvent('websocket').then((socket) =>
        socket.waitForEvent('framereceived', {
          predicate: ({ payload }) => String(payload).includes('"joined"'),
          timeout: TIMEOUT_MS,
        }),
      );
      await page.goto(pathToFileURL(file).href);
      await joined;
    }
    // Half a line: the field loses the focus, and nothing is sent.
    await pages[0].fill('#text', 'Good');
    await pages[0].locator('#text').blur();
    await pages[0].fill('#text', 'Good morning, Zoë');
    await pages[0].press('#text', 'Enter');
    for (const page of pages) {
      await page.locator('li').first().waitFor({ timeout: TIMEOUT_MS });
      const lines = await page.locator('li').allTextContents();
      assert.deepEqual(
        lines.map((line) => line.replace(/^\S+: /, '')),
        ['Good morning, Zoë'],
      );
      assert.equal(await page.evaluate('document.characterSet'), 'UTF-8');
      assert.equal(await page.title(), 'Chat');
    }
  });
});
