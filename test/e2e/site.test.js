// site.test.js: builds the site of docs/ with `npm run site`, then reads it as people do, in
// Chromium: links, search, tables, the playground, narrow windows, paper. It takes two minutes.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { freePort } from '../harness/redis.js';
import { startServer, until } from '../harness/server.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { seriousFaults } from '../helpers/console-page.js';
import { shared } from '../helpers/shared.js';
import { serveFolder } from '../helpers/static-site.js';

/** @typedef {import('playwright-core').Page} Page */

const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = join(root, 'site');
const MAX_BUILD_S = 60;
/** What a page loads, compressed, without pictures and the index of the search. */
const MAX_PAGE_BYTES = 150 * 1024;
const OPTIONS = { timeout: 240_000, skip: withoutChromium };
const PHONE = { width: 375, height: 800 };

/** What people look for, and the pages that answer it. @type {readonly (readonly [string, ...string[]])[]} */
const QUESTIONS = [
  ['429', 'troubleshooting'],
  ['4502', 'protocol'],
  ['sticky sessions', 'deployment', 'pusher', 'migration'],
  ['nothing arrives', 'troubleshooting'],
  ['EventSource stops', 'troubleshooting'],
  ['FANFARE_HISTORY', 'configuration'],
  ['fanfare_broker_up', 'operations'],
  ['RATE_LIMIT_EXCEEDED', 'protocol'],
  ['rotate keys', 'authentication'],
  ['nginx', 'deployment', 'server-sent-events'],
  ['systemd', 'deployment'],
  ['kubernetes', 'deployment'],
  ['renew certificate', 'deployment'],
  ['idempotency key', 'http-api', 'guarantees'],
  ['laravel echo', 'pusher'],
  ['react hook', 'react'],
  ['useChat', 'ai'],
  ['load older messages', 'client'],
  ['missed messages after reconnect', 'troubleshooting', 'history-and-recovery'],
  ['prometheus alerts', 'operations'],
  ['verify webhook signature', 'webhooks'],
  ['session cookie', 'hooks'],
  ['move from socket.io', 'migration'],
  ['1006', 'troubleshooting'],
  ['max connections per ip', 'configuration'],
  ['postgres transaction', 'outbox'],
  ['swift', 'mobile', 'centrifugo'],
  ['npm run doctor', 'operations'],
  ['redis unreachable', 'troubleshooting'],
  ['token expired', 'protocol'],
  ['slow consumer', 'protocol'],
  ['403 origin', 'troubleshooting'],
  ['django', 'authentication', 'pusher'],
  ['presence list', 'presence'],
  ['rolling upgrade', 'operations'],
];

const built = shared(async () => {
  const begun = performance.now();
  const child = spawn('bash', ['-c', 'TIMEFORMAT="CPU %U %S"; time npm run -s site'], {
    cwd: root,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      output += data;
    });
  const [code] = await once(child, 'exit');
  assert.equal(code, 0, output);
  const [, user, system] = /CPU ([\d.]+) ([\d.]+)/.exec(output) ?? [];
  return {
    seconds: (performance.now() - begun) / 1000,
    cpuSeconds: Number(user) + Number(system),
    pages: readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.html'))
      .sort(),
  };
});
const url = shared(async (owner) => {
  await built();
  return serveFolder(owner, folder);
});
const browserOf = shared((owner) => openBrowser(owner));

/**
 * @param {import('node:test').TestContext} t
 * @param {string} path
 * @param {import('playwright-core').BrowserContextOptions} [options]
 */
async function open(t, path, options) {
  const [base, browser] = [await url(), await browserOf()];
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  t.after(() => context.close());
  const page = await context.newPage();
  /** @type {string[]} */
  const faults = [];
  /** @type {import('playwright-core').Response[]} */
  const responses = [];
  page.on('pageerror', ({ message }) => faults.push(message));
  page.on('console', (line) => {
    if (line.type() === 'error') faults.push(line.text());
  });
  page.on('response', (response) => responses.push(response));
  page.on('request', (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith('data:'))
      faults.push(`another host: ${request.url()}`);
  });
  await page.goto(`${base}/${path}`);
  return { page, base, faults, responses };
}

test(
  'npm run site builds every page, its Markdown, an index for programs and a sitemap',
  OPTIONS,
  async (t) => {
    const { seconds, cpuSeconds, pages } = await built();
    t.diagnostic(`built in ${seconds.toFixed(0)} s, ${cpuSeconds.toFixed(0)} s of processor time`);
    assert.ok(cpuSeconds < MAX_BUILD_S, `${cpuSeconds} s`);
    assert.ok(pages.length > 45, `${pages.length} pages`);
    const [index, everything, sitemap] = ['llms.txt', 'llms-full.txt', 'sitemap.xml'].map((name) =>
      readFileSync(join(folder, name), 'utf8'),
    );
    for (const [, href] of index.matchAll(/\]\(([^)]+)\)/g))
      assert.ok(href.startsWith('https://') || existsSync(join(folder, href)), href);
    for (const path of pages.filter((name) => name !== '404.html')) {
      const twin = path.replace(/\.html$/, '.md');
      assert.ok(existsSync(join(folder, twin)), twin);
      assert.ok(everything.includes(`<!-- ${twin} -->`), twin);
      assert.ok(sitemap.includes(path === 'index.html' ? '4173/</loc>' : `/${path}</loc>`), path);
      if (!/^(?:index|playground|contents)\.html$/.test(path))
        assert.ok(index.includes(`](${twin})`), twin);
    }
  },
);

test(
  'every link of every page leads somewhere, and no page loads from another host',
  OPTIONS,
  async () => {
    const { pages } = await built();
    const texts = new Map(pages.map((path) => [path, readFileSync(join(folder, path), 'utf8')]));
    const wrong = [...texts].flatMap(([path, html]) =>
      [...html.matchAll(/<(\w+)[^>]*? (href|src)="([^"]*)"/g)].flatMap(([, tag, , target]) => {
        if (/^(?:https?|mailto|data):/.test(target))
          return tag === 'a' ? [] : [`${path}: ${target}`];
        const [file, anchor] = target.replaceAll('&amp;', '&').split('#');
        const from = posix.join('/', posix.dirname(path));
        const to = file === '' ? path : posix.resolve(from, file).slice(1) || 'index.html';
        if (!existsSync(join(folder, to))) return [`${path}: ${target}`];
        // The page of missing addresses has no text until its script runs.
        if (anchor === undefined || anchor === 'VPContent') return [];
        const id = decodeURIComponent(anchor).replaceAll('"', '&quot;');
        return texts.get(to)?.includes(` id="${id}"`) ? [] : [`${path}: ${target}`];
      }),
    );
    assert.deepEqual(wrong, []);
  },
);

test(
  'each page is accessible, asks no other host, is light, and fits a narrow window',
  OPTIONS,
  async (t) => {
    const { pages } = await built();
    const { page, base, faults, responses } = await open(t, '');
    /** Each fault, with the first page that has it. @type {Map<string, string>} */
    const wrong = new Map();
    const note = (/** @type {string} */ fault, /** @type {string} */ path) => {
      if (!wrong.has(fault)) wrong.set(fault, path);
    };
    let [heaviest, mostBytes] = ['', 0];
    for (const path of pages.filter((name) => name !== '404.html')) {
      responses.length = 0;
      await page.setViewportSize({ width: 1280, height: 900 });
      await page.goto('about:blank');
      await page.goto(`${base}/${path}`, { waitUntil: 'networkidle' });
      let bytes = 0;
      for (const response of responses)
        if (!/\.png$/.test(response.url())) bytes += gzipSync(await response.body()).length;
      if (bytes > mostBytes) [heaviest, mostBytes] = [path, bytes];
      for (const fault of await seriousFaults(page)) note(fault, path);
      await page.setViewportSize(PHONE);
      const [whole, seen] = await page.evaluate(() => {
        const { document, innerWidth } = /** @type {any} */ (globalThis);
        return [document.documentElement.scrollWidth, innerWidth];
      });
      if (whole > seen) note(`${whole} px wide in ${seen}`, path);
    }
    t.diagnostic(`heaviest page: ${heaviest}, ${(mostBytes / 1024).toFixed(0)} KB compressed`);
    assert.deepEqual([...[...wrong].slice(0, 20), ...faults], []);
    assert.ok(mostBytes <= MAX_PAGE_BYTES, `${heaviest}: ${mostBytes} bytes`);
  },
);

/**
 * Presses the keys until the search opens: before its scripts have run, a page does not hear them.
 * @param {Page} page
 */
async function openSearch(page) {
  const field = page.locator('#localsearch-input');
  await until(async () => {
    await page.keyboard.press('Control+k');
    return field.waitFor({ timeout: 1000 }).then(
      () => true,
      () => false,
    );
  }, 30_000);
  return field;
}

test('a search has the right page among its first three hits', OPTIONS, async (t) => {
  const { page, faults } = await open(t, '');
  const field = await openSearch(page);
  /** @type {string[]} */
  const missed = [];
  for (const [question, ...answers] of QUESTIONS) {
    await field.fill('');
    await page.locator('.result').first().waitFor({ state: 'detached' });
    await field.fill(question);
    await page.locator('.result').first().waitFor();
    const hrefs = await page
      .locator('.result')
      .evaluateAll((links) =>
        links.slice(0, 3).map((link) => /** @type {any} */ (link).getAttribute('href')),
      );
    const found = hrefs.map((href) => /^\/([\w/-]+)\.html/.exec(String(href))?.[1]);
    if (!answers.some((answer) => found.includes(answer))) missed.push(`${question}: ${hrefs}`);
  }
  assert.ok(QUESTIONS.length >= 30);
  assert.deepEqual(missed, []);
  assert.deepEqual(faults, []);
  await field.fill('4502');
  await page.locator('.result', { hasText: '4502' }).first().click();
  await page.waitForURL(/protocol\.html#4502$/);
});

test('a search and a dark page are accessible, too', OPTIONS, async (t) => {
  for (const path of ['', 'protocol.html', 'openapi.html', 'playground.html', 'nowhere.html']) {
    const { page } = await open(t, path, { colorScheme: 'dark' });
    await page.locator(':root.dark').waitFor();
    assert.deepEqual(await seriousFaults(page), [], path);
  }
  const { page } = await open(t, 'client.html');
  await (await openSearch(page)).fill('token');
  await page.locator('.result').first().waitFor();
  assert.deepEqual(await seriousFaults(page), []);
});

test(
  'a filter shows the rows with its words, and a link to a hidden row shows it',
  OPTIONS,
  async (t) => {
    const { page, faults } = await open(t, 'configuration.html');
    const settings = page.locator('.filter-rows').first();
    const rows = settings.locator('tbody tr:visible');
    const all = await rows.count();
    assert.ok(all > 100, `${all} rows`);
    await page.getByLabel('Filter settings').fill('redis url');
    await settings.locator('output', { hasText: / of \d+$/ }).waitFor();
    for (const text of await rows.allTextContents()) assert.match(text.toLowerCase(), /redis/);
    assert.ok((await rows.count()) < all / 4);
    const tables = settings.locator('table:visible');
    const withRows = tables.filter({ has: page.locator('tbody tr:visible') });
    assert.equal(await tables.count(), await withRows.count(), 'a table without rows is shown');
    await page.evaluate(() => {
      /** @type {any} */ (globalThis).location.hash = '#FANFARE_HISTORY';
    });
    const row = page.locator('tr', { has: page.locator('#FANFARE_HISTORY') });
    await row.waitFor();
    assert.deepEqual(faults, []);
  },
);

test(
  'a page can be copied from, edited, read as Markdown and left for the next',
  OPTIONS,
  async (t) => {
    const { page, base, faults } = await open(t, 'getting-started.html', {
      permissions: ['clipboard-read', 'clipboard-write'],
    });
    await page.locator('div[class*=language-]').first().hover();
    await page.locator('button.copy').first().click();
    const copied = await page.evaluate(() =>
      /** @type {any} */ (globalThis).navigator.clipboard.readText(),
    );
    assert.equal(copied.trim(), 'npm ci --omit=dev && npm start');
    const edit = page.getByRole('link', { name: 'Edit this page' });
    assert.match(
      String(await edit.getAttribute('href')),
      /\/edit\/main\/docs\/getting-started\.md$/,
    );
    const twin = await page
      .getByRole('link', { name: 'This page as Markdown' })
      .getAttribute('href');
    const markdown = await (await fetch(base + twin)).text();
    assert.match(markdown, /^# Getting started\n/);
    await page.getByRole('link', { name: /^Next page/ }).click();
    await page.waitForURL(/tutorial\.html$/);
    await page.locator('.VPSwitchAppearance').first().click();
    await page.locator(':root.dark').waitFor();
    await page.getByRole('button', { name: /^\d+\.\d+\.\d+/ }).hover();
    await page.getByRole('link', { name: 'Changelog' }).waitFor();
    assert.deepEqual(faults, []);
  },
);

test('a page prints its text, without navigation', OPTIONS, async (t) => {
  const { page } = await open(t, 'protocol.html');
  await page.emulateMedia({ media: 'print' });
  for (const part of ['.VPNav', '.VPSidebar', '.aside', '.filter', '.VPDocFooter'])
    assert.equal(await page.locator(part).first().isVisible(), false, part);
  const paper = await page.pdf({ format: 'A4' });
  const sheets = paper.toString('latin1').match(/\/Type \/Page\b/g)?.length ?? 0;
  t.diagnostic(`the protocol is ${sheets} sheets of A4`);
  assert.ok(sheets > 5, `${sheets} sheets`);
});

test('an address without a page says where to go on', OPTIONS, async (t) => {
  const { page, base } = await open(t, 'nowhere.html');
  await page.getByRole('heading', { name: 'There is no such page' }).waitFor();
  await page.getByRole('link', { name: 'all pages' }).click();
  await page.waitForURL(`${base}/contents.html`);
});

test(
  'the playground shows a message, a broken connection and what is recovered after it',
  OPTIONS,
  async (t) => {
    const { port } = await startServer(t, {
      FANFARE_HISTORY: 'play.*=100/300s',
      FANFARE_PRESENCE: 'play.*',
      WORKERS: '1',
    });
    const { page, base, faults } = await open(t, 'playground.html');
    const [a, b] = [1, 2].map((i) => page.locator('.panes section').nth(i - 1));
    await page.getByLabel('Server', { exact: true }).fill(`ws://localhost:${port}`);
    await page.getByRole('button', { name: 'Connect', exact: true }).click();
    for (const pane of [a, b]) await pane.getByText('connected', { exact: true }).waitFor();
    await a.getByText('2 in the room').waitFor();
    await a.getByLabel('Message of client A').fill('hello');
    await a.getByRole('button', { name: 'Publish' }).click();
    for (const pane of [a, b]) await pane.getByText('A: hello').waitFor();
    await b.getByRole('button', { name: 'Break the connection' }).click();
    await b.getByText('waiting to reconnect').waitFor();
    await a.getByLabel('Message of client A').fill('while you were away');
    await a.getByLabel('Message of client A').press('Enter');
    await a.getByText('A: while you were away').waitFor();
    await b.getByText('joined again, nothing is missing').waitFor();
    const recovered = b.locator('li.recovered');
    assert.match(await recovered.innerText(), /A: while you were away\s+recovered, offset 2/);
    assert.equal(await b.getByText('A: hello').count(), 1);
    assert.deepEqual(await seriousFaults(page), []);
    await page.getByRole('button', { name: 'Disconnect' }).click();
    await a.getByText('closed', { exact: true }).waitFor();
    // A page has no WebSocket requests of its own among those that `open` watches.
    assert.deepEqual(faults, [], base);
  },
);

test(
  'the playground says that no server answers, and connects when one starts',
  OPTIONS,
  async (t) => {
    const { page } = await open(t, 'playground.html');
    const port = await freePort();
    await page.getByLabel('Server', { exact: true }).fill(`ws://localhost:${port}`);
    await page.getByRole('button', { name: 'Connect', exact: true }).click();
    const notice = page
      .getByRole('status')
      .filter({ hasText: `No server answers at ws://localhost:${port}` });
    await notice.waitFor();
    assert.deepEqual(await seriousFaults(page), []);
    await startServer(t, { PORT: String(port), WORKERS: '1', ALLOWED_ORIGINS: await url() });
    const pane = page.locator('.panes section').first();
    await pane.getByText('connected', { exact: true }).waitFor({ timeout: 60_000 });
    await notice.waitFor({ state: 'detached' });
  },
);

test('the playground links a refusal to its row in the protocol', OPTIONS, async (t) => {
  const { port } = await startServer(t, { JWT_SECRET: 'x'.repeat(32), WORKERS: '1' });
  const { page } = await open(t, 'playground.html');
  await page.getByLabel('Server', { exact: true }).fill(`ws://localhost:${port}`);
  await page.getByLabel('Token').fill('no.such.token');
  await page.getByRole('button', { name: 'Connect', exact: true }).click();
  const link = page.getByRole('link', { name: /the server refuses this client: 4500/ }).first();
  assert.equal(await link.getAttribute('href'), '/protocol.html#4500');
});
