// newcomer.test.js: follows docs/ai.md and docs/react.md in empty folders, block by block, with the
// packages that the release script packs. Only ports and the place of these packages differ. Then a
// project of Next.js.
//
//   node test/run.js newcomer
//
// It needs the network: npm installs React, Vite, Next.js and others, 400 MB.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { freePort } from '../harness/redis.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { parse } from '../helpers/doc-code.js';
import { manifest, PACKAGES, root, run } from '../helpers/packed.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

/** @typedef {import('../harness/server.js').Owner} Owner */

const OPTIONS = { timeout: 590_000, skip: withoutChromium };
const STEP_MS = 60_000;
const START_MS = 300_000;

const running = shared(async (owner) => {
  const release = join(temporaryFolder(owner), 'release');
  const script = `${root}ops/release/release.js`;
  const options = ['--to', release, '--unreleased'];
  const { status, stderr } = spawnSync(process.execPath, [script, ...options], {
    encoding: 'utf8',
  });
  assert.equal(status, 0, stderr);
  return { release, browser: await openBrowser(owner) };
});

/** @param {string} release @param {string} name of a package */
const tarballOf = (release, name) => join(release, `${name}-${manifest.version}.tgz`);

/** A page of the documentation as the package has it. @param {string} release @param {string} path */
function pageOf(release, path) {
  const { stdout } = run(release, 'tar', '-xzOf', tarballOf(release, 'fanfare'), `package/${path}`);
  assert.notEqual(stdout, '');
  return stdout;
}

/** Packages are installed from their files. @param {string} command @param {string} release */
function withTarballs(command, release) {
  const names = Object.keys(PACKAGES);
  return command.replace(/^npm install .*$/gm, (line) =>
    line
      .split(' ')
      .map((word) => (names.includes(word) ? tarballOf(release, word) : word))
      .join(' '),
  );
}

/**
 * The page as a script: commands as they are, and files saved under the names that the text or their
 * first line gives.
 * @param {string} text up to the end of the guide @param {string} release @param {number} port
 */
function scriptOf(text, release, port) {
  const lines = text.split('\n');
  return parse(text)
    .map(({ language, code, line }) => {
      if (language === 'sh') return withTarballs(code, release);
      const before = lines.slice(0, line - 1).join(' ');
      const [, own] = /^(?:\/\/|<!--) ([\w.]+\.\w+)(?: -->)?\n/.exec(code) ?? [];
      const path = own ?? [...before.matchAll(/Save as `([^`]+)`/g)].at(-1)?.[1];
      assert.ok(path, `line ${line}: a file has a name`);
      return `cat > ${path} <<'END_OF_FILE'\n${code.replace('localhost:3000', `localhost:${port}`)}END_OF_FILE\n`;
    })
    .join('\n');
}

/**
 * Runs a script in an empty folder until it prints the address of its page.
 * @param {Owner} t @param {string} script @param {Record<string, string>} env
 * @param {string} [folder]
 */
async function follow(t, script, env, folder = temporaryFolder(t)) {
  const child = spawn('bash', ['-ec', script], {
    cwd: folder,
    env: {
      ...{ PATH: process.env.PATH, HOME: process.env.HOME, NO_COLOR: '1', ...env },
      ...{ HOST: '127.0.0.1', METRICS_PORT: '0', npm_config_update_notifier: 'false' },
      ...{ npm_config_prefer_offline: 'true', npm_config_audit: 'false', npm_config_fund: 'false' },
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (bytes) => {
      output += bytes;
    });
  t.after(() => {
    try {
      process.kill(-Number(child.pid), 'SIGKILL');
    } catch {
      // The group has exited.
    }
  });
  const address = () => /(?:open|Local:) +(http:\/\/[\w.]+:\d+)/.exec(output)?.[1];
  await until(() => address() !== undefined || child.exitCode !== null, START_MS);
  assert.ok(address(), output);
  return { url: String(address()), output: () => output };
}

/** @param {Owner} t @param {import('playwright-core').Browser} browser @param {string} url */
async function openPage(t, browser, url) {
  const page = await browser.newPage();
  t.after(() => page.close());
  /** @type {string[]} */
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (line) => {
    const isOurs = !line.location().url.endsWith('/favicon.ico');
    if (isOurs && line.type() === 'error') errors.push(line.text());
  });
  await page.goto(url, { timeout: STEP_MS });
  const shows = (/** @type {RegExp} */ wanted) =>
    page.waitForFunction(`${wanted}.test(document.body.innerText)`, null, { timeout: STEP_MS });
  return { page, errors, shows };
}

test('docs/ai.md, in an empty folder: a chat that goes on after a reload', OPTIONS, async (t) => {
  const { release, browser } = await running();
  const [guide] = pageOf(release, 'docs/ai.md').split('\n### With Svelte', 1);
  const port = await freePort();
  const env = { PORT: String(port), WEB_PORT: '0', SERVER_URL: `http://127.0.0.1:${port}` };
  const { url } = await follow(t, scriptOf(guide, release, port), env);
  const { page, errors, shows } = await openPage(t, browser, url);
  await page.click('#ask', { timeout: STEP_MS });
  await shows(/Word 5 of/);
  await page.reload();
  await shows(/Word 5 of[\s\S]*Word 30 of/);
  await page.click('#stop');
  await page.waitForSelector('main[data-status="ready"]', { timeout: STEP_MS });
  assert.deepEqual(errors, []);
});

test('docs/react.md, in an empty folder: two tabs chat', OPTIONS, async (t) => {
  const { release, browser } = await running();
  const [guide] = pageOf(release, 'docs/react.md').split('\n## The hooks\n', 1);
  const port = await freePort();
  const { url } = await follow(t, scriptOf(guide, release, port), { PORT: String(port) });
  const [first, second] = [await openPage(t, browser, url), await openPage(t, browser, url)];
  for (const { shows } of [first, second]) await shows(/connected\s+chat\.42, 0 here/);
  await first.page.fill('input', 'Good morning');
  await first.page.press('input', 'Enter');
  for (const { shows } of [first, second]) await shows(/Good morning/);
  assert.deepEqual([...first.errors, ...second.errors], []);
});

const LAYOUT = `
  import { Providers } from './providers';
  export default function Layout({ children }: { children: React.ReactNode }) {
    return <html lang="en"><body><Providers>{children}</Providers></body></html>;
  }`;
const PAGE = `
  import { Chat } from './chat';
  import { Connection } from './prices';
  export default function Page() { return <><Connection /><Chat name="chat.42" /></>; }`;
const WRONG = `
  import { useMessages } from 'fanfare-client/react';
  export const dynamic = 'force-dynamic';
  export default function Page() { return useMessages('chat.42').messages.length; }`;

test(
  'Next.js: the page of a server is hydrated, and a hook on the server is a clear error',
  OPTIONS,
  async (t) => {
    const { release, browser } = await running();
    const { port } = await startServer(t, {
      ...{ ...NO_LIMITS, FANFARE_HISTORY: 'chat.*=1000/1h', API_KEYS: `web ${newSecret()} all` },
    });
    const named = parse(pageOf(release, 'docs/react.md'));
    const code = (/** @type {string} */ name) =>
      String(named.find((block) => block.code.startsWith(`// ${name}\n`))?.code);
    const folder = temporaryFolder(t);
    for (const [path, text] of Object.entries({
      'package.json': '{"private":true}',
      'app/providers.tsx': code('providers.tsx').replace("'/ws'", `'ws://127.0.0.1:${port}/ws'`),
      'app/fanfare.ts': code('fanfare.ts').replace(/export const fanfare .*/, ''),
      'app/chat.tsx': `'use client';\nimport './fanfare';\n${code('chat.tsx')}`,
      'app/prices.tsx': `'use client';\n${code('prices.tsx')}`,
      'app/layout.tsx': LAYOUT,
      'app/page.tsx': PAGE,
      'app/wrong/page.tsx': WRONG,
    })) {
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      writeFileSync(join(folder, path), text);
    }
    const install = withTarballs(
      'npm install fanfare-client next react react-dom typescript @types/react @types/node',
      release,
    );
    const script = `${install}\nnpx next build\nnpx next start --port ${await freePort()}`;
    const env = { NEXT_TELEMETRY_DISABLED: '1' };
    const { url, output } = await follow(t, script, env, folder);
    const html = await (await fetch(url)).text();
    assert.match(html.replaceAll('<!-- -->', ''), /<h2>chat\.42, 0 here<\/h2>/);
    const { page, errors, shows } = await openPage(t, browser, url);
    await shows(/connected/);
    await page.fill('input', 'From Next.js');
    await page.press('input', 'Enter');
    await shows(/From Next\.js/);
    assert.deepEqual(errors, []);
    assert.equal((await fetch(`${url}/wrong`)).status, 500);
    await until(() => /Attempted to call useMessages\(\) from the server/.test(output()));
  },
);
