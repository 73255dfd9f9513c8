// tutorial.test.js: runs each step of docs/tutorial.md with the packed package, in another folder.
//
// The commands and the code are those of the page. Only the path of the package and the ports differ,
// and the number of the process to kill. The code at the end is that of examples/chat/.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { freePort } from '../harness/redis.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { startBackend } from '../helpers/example.js';
import { link, manifest, pack, root, startInstalled } from '../helpers/packed.js';
import { changed, sectionsOf } from '../helpers/tutorial.js';

const STEP_MS = 20_000;
const MAKE_PACKAGE = '(cd fanfare && npm ci && npm run package)\n';
const PACKAGE = `../fanfare/fanfare-${manifest.version}.tgz`;

/** @param {string} cwd @param {string} code */
function bash(cwd, code) {
  execFileSync('bash', ['-e', '-c', code], {
    cwd,
    env: { ...process.env, npm_config_prefer_offline: 'true', npm_config_audit: 'false' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

test('the steps of the tutorial build the chat of examples/chat', {
  timeout: 115_000,
  skip: withoutChromium,
}, async (t) => {
  const page = readFileSync(`${root}docs/tutorial.md`, 'utf8');
  const sections = sectionsOf(page);
  assert.equal(sections.length, 8);
  const { home: parent, tarball } = pack(t);
  const home = join(parent, 'chat');
  const serverEnv = { PORT: String(await freePort()) };
  const backendEnv = { SERVER_URL: `http://127.0.0.1:${serverEnv.PORT}` };
  const browser = await openBrowser(t);
  /** @type {Awaited<ReturnType<typeof startInstalled>>|undefined} */
  let server;
  let url = '';
  let lastCommand = '';
  /** @type {() => unknown} */
  let stopBackend = () => null;

  const startServer = async (/** @type {string} */ command) => {
    if (server !== undefined) {
      process.kill(server.pid, 'SIGINT');
      await server.exited;
    }
    lastCommand = command;
    server = await startInstalled(t, home, { command, env: serverEnv });
  };

  /** @param {string} code */
  const shell = async (code) => {
    if (/^node .*server\.js\n$/.test(code)) {
      await stopBackend();
      const owner = {
        after: (/** @type {() => unknown} */ stop) => {
          stopBackend = stop;
        },
      };
      url = await startBackend(owner, code.trim().split(' ').slice(1), backendEnv, home);
    } else if (/^(FANFARE_CONFIG_FILE=fanfare.conf )?npx fanfare\n$/.test(code)) {
      await startServer(code.trim());
    } else if (code === MAKE_PACKAGE) {
      // pack() has run it. e2e/guides runs it in a fresh clone.
    } else if (code.startsWith('kill -9')) {
      process.kill(/** @type {number} */ (server?.workers()[0]), 'SIGKILL');
    } else if (code.startsWith('mkdir chat')) {
      const [before, after] = code.split(/^npm install .*\n/m);
      bash(parent, before);
      const [, command] = /^(npm install .*)\n/m.exec(code) ?? [];
      try {
        bash(home, command.replace(PACKAGE, tarball));
      } catch (error) {
        t.diagnostic(`npm install failed, linking the dependencies: ${error}`);
        link(home, tarball);
      }
      bash(home, after);
    } else bash(home, code);
  };
  t.after(() => stopBackend());

  /** @param {number} number of the section */
  const follow = async (number) => {
    for (const { kind, path, code } of sections[number - 1]) {
      const file = join(home, path);
      if (kind === 'sh') await shell(code);
      else if (kind === 'save') {
        mkdirSync(dirname(file), { recursive: true });
        writeFileSync(file, code);
      } else writeFileSync(file, changed(readFileSync(file, 'utf8'), code));
    }
  };

  /** @type {Record<string, import('playwright-core').Page>} */
  const tabs = {};
  /** Opens the page, or reloads it. @param {string} name */
  const visit = async (name) => {
    tabs[name] ??= await browser.newPage();
    tabs[name].setDefaultTimeout(STEP_MS);
    await tabs[name].goto(`${url}/?name=${name}`);
    await tabs[name].locator('#state', { hasText: 'Online' }).waitFor();
    return tabs[name];
  };
  /** @param {string} name @param {string} text */
  const say = async (name, text) => {
    await tabs[name].fill('#text', text);
    await tabs[name].press('#text', 'Enter');
    for (const tab of Object.values(tabs))
      await tab.locator('#messages li', { hasText: text }).waitFor();
  };
  const sees = (/** @type {string} */ name, /** @type {string} */ text) =>
    tabs[name].locator('#messages li', { hasText: text }).waitFor();

  await t.test('1, 2: messages arrive in both tabs', async () => {
    await follow(1);
    await follow(2);
    await visit('Ann');
    await visit('Ben');
    await say('Ann', 'without names');
  });

  await t.test('3: messages have the names of their tokens', async () => {
    await follow(3);
    await visit('Ann');
    await visit('Ben');
    await say('Ann', 'with names');
    await tabs.Ben.locator('#messages li b', { hasText: 'Ann' }).waitFor();
    await tabs.Ann.locator('#messages li.mine').waitFor();
  });

  await t.test('4: a reloaded tab has the messages of the history', async () => {
    await follow(4);
    await startServer(lastCommand);
    await visit('Ann');
    await visit('Ben');
    await say('Ann', 'to be kept');
    await visit('Ben');
    await sees('Ben', 'to be kept');
  });

  await t.test('4: the button brings the messages before those of a new tab, once', async () => {
    assert.ok(await tabs.Ben.locator('#older').isHidden());
    await tabs.Ann.evaluate(`(async () => {
      const { Fanfare } = await import('/client/index.js');
      const token = await (await fetch('/token?name=Ann')).text();
      const fanfare = new Fanfare(await (await fetch('/server-url')).text(), { token });
      for (let i = 1; i <= 60; i++) await fanfare.publish('chat.lobby', 'number ' + i + '.');
      await fanfare.close();
    })()`);
    await visit('Ben');
    await sees('Ben', 'number 60.');
    assert.equal(await tabs.Ben.locator('#messages li').count(), 50);
    await tabs.Ben.locator('#older').dblclick();
    await sees('Ben', 'to be kept');
    await tabs.Ben.locator('#older').waitFor({ state: 'hidden' });
    const texts = await tabs.Ben.locator('#messages li span').allTextContents();
    const numbers = Array.from({ length: 60 }, (_, i) => `number ${i + 1}.`);
    assert.deepEqual(texts, ['to be kept', ...numbers]);
  });

  const people = (/** @type {number} */ count) =>
    tabs.Ann.waitForFunction(`document.getElementById('people').children.length === ${count}`);

  await t.test('5: the list of people follows a third tab', async () => {
    await follow(5);
    await startServer(lastCommand);
    await visit('Ann');
    await visit('Ben');
    await people(2);
    await visit('Cid');
    await people(3);
    await tabs.Cid.close();
    delete tabs.Cid;
    await people(2);
  });

  await t.test('6: typing shows in the other tab', async () => {
    await follow(6);
    await visit('Ann');
    await visit('Ben');
    await tabs.Ben.locator('#text').pressSequentially('H');
    await tabs.Ann.locator('#typing', { hasText: 'Ben is typing…' }).waitFor();
  });

  await t.test('7: messages for moderators reach no one else, also after a reload', async () => {
    await follow(7);
    for (const name of ['Ann', 'Ben', '@Mod']) await visit(name);
    await tabs['@Mod'].fill('#text', '/mods Who is this?');
    await tabs['@Mod'].press('#text', 'Enter');
    await tabs['@Mod'].locator('#messages .moderators', { hasText: 'Who is this?' }).waitFor();
    await say('Ben', 'for everybody');
    for (const reload of [false, true]) {
      if (reload) await visit('Ann');
      await sees('Ann', 'for everybody');
      const texts = await tabs.Ann.locator('#messages li span').allTextContents();
      assert.ok(!texts.some((text) => text.startsWith('/mods')), texts.join());
    }
    await tabs.Ann.fill('#text', '/mods I am one.');
    await tabs.Ann.press('#text', 'Enter');
    await tabs.Ann.locator('#typing', { hasText: 'Not sent.' }).waitFor();
    await tabs['@Mod'].close();
    delete tabs['@Mod'];
  });

  await t.test('8: after the death of a worker nothing is missing', async () => {
    await say('Ann', 'before');
    await follow(8);
    for (const name of ['Ann', 'Ben'])
      await tabs[name].locator('#state', { hasText: 'Online' }).waitFor();
    await say('Ben', 'after');
    const texts = await tabs.Ann.locator('#messages li span').allTextContents();
    assert.deepEqual(texts.slice(-2), ['before', 'after']);
  });

  await t.test('the files are those of examples/chat', () => {
    for (const name of ['server.js', 'public/chat.js', 'public/index.html'])
      assert.equal(
        readFileSync(join(home, name), 'utf8'),
        readFileSync(`${root}examples/chat/${name}`, 'utf8'),
      );
    const settings = readFileSync(`${root}examples/chat/fanfare.conf`, 'utf8');
    const own = readFileSync(join(home, 'fanfare.conf'), 'utf8');
    for (const line of settings.split('\n').filter((each) => /^\w/.test(each)))
      assert.ok(own.includes(`\n${line}\n`), line);
  });

  await t.test('the installed package runs its examples', async (t) => {
    const run = join(home, 'node_modules/fanfare/examples/run.js');
    const address = await startBackend(t, [run, 'chat'], { PORT: '0', METRICS_PORT: '0' });
    for (const path of ['/', '/chat.js', '/client/index.js', '/server-url', '/token?name=Ann'])
      assert.equal((await fetch(address + path)).status, 200, path);
  });
});
