// docs-client.test.js: the code of docs/client.md as it stands, against a real server: in Node, and
// the recipes for React and Vue in Chromium.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { WebSocket } from 'ws';
import { Fanfare } from '../../src/client/node.js';
import { Fanfare as Listener } from '../../src/client/sse/index.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { openBrowser, withoutChromium } from '../helpers/browser.js';
import { runCode, scriptWith } from '../helpers/doc-code.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET, token } from '../helpers/tokens.js';

const PAGE = 'docs/client.md';
const root = fileURLToPath(new URL('../../', import.meta.url));

/** @typedef {import('node:test').TestContext} TestContext */

/**
 * A server with history in `chat.*`, and an API; the code of the page, for that server.
 * @param {import('../harness/server.js').Owner} t @param {Record<string, string>} [env]
 */
async function setUp(t, env) {
  const secret = newSecret();
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_HISTORY: 'chat.*=100/300s, orders=100/300s',
    FANFARE_PRESENCE: 'chat.*',
    FANFARE_STATE: 'price.*=100/1h',
    API_KEYS: `main ${secret} all`,
    ...env,
  });
  const code = (/** @type {string} */ text) =>
    scriptWith(PAGE, text)
      .replace('wss://chat.example', `ws://127.0.0.1:${server.port}`)
      .replace('ws://localhost:3000', `ws://127.0.0.1:${server.port}`)
      .replace('https://chat.example', `http://127.0.0.1:${server.port}`);
  return { server, code, api: apiOf(server, secret) };
}

// Each test has rooms of its own.
const openToAll = shared((owner) => setUp(owner));
const withTokens = shared((owner) => setUp(owner, { JWT_SECRET: SECRET }));

/** Rights of a token for all rooms. */
const ALL = { rooms: { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] } };

/**
 * @param {TestContext} t
 * @param {number} port
 * @param {import('../../src/client/fanfare.js').Options} [options]
 */
function clientOf(t, port, options) {
  const fanfare = new Fanfare(`ws://127.0.0.1:${port}`, options);
  t.after(() => fanfare.close());
  return fanfare;
}

test('the first snippet publishes, shows the users, leaves and closes', async () => {
  const { code } = await withTokens();
  /** @type {string[]} */
  const asked = [];
  const fetch = async (/** @type {string} */ path) => {
    asked.push(path);
    return { ok: true, text: async () => token(ALL) };
  };
  const { offset, fanfare } = await runCode(
    code('room.presence.on'),
    {
      Fanfare,
      fetch,
      loadStateFromMyApi: () => assert.fail('nothing is missing'),
      show: () => {},
      append: () => {},
      list: () => {},
    },
    ['offset', 'fanfare'],
  );
  assert.deepEqual([offset, fanfare.state, asked], [1, 'closed', ['/token']]);
});

test('a script that only publishes ends', async () => {
  const { server, api } = await openToAll();
  const script = `
    import { Fanfare } from 'fanfare/client';
    const fanfare = new Fanfare('ws://127.0.0.1:${server.port}');
    await fanfare.publish('chat.script', 'from a script');
    await fanfare.close();`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  assert.deepEqual(await once(child, 'close'), [0, null]);
  const { messages } = (await api('/rooms/chat.script/history')).body;
  assert.deepEqual(
    messages.map((/** @type {{payload: unknown}} */ { payload }) => payload),
    ['from a script'],
  );
});

test('the snippet of a room with state shows all keys, then each change', async (t) => {
  const { server, code, api } = await openToAll();
  const publish = (/** @type {string} */ key, /** @type {unknown} */ payload) =>
    api('/publish', { body: { room: 'price.eur', key, payload } });
  for (const key of ['EURGBP', 'EURCHF']) await publish(key, 1);
  /** @type {unknown[]} */
  const seen = [];
  await runCode(
    code("key: 'EURGBP'"),
    {
      fanfare: clientOf(t, server.port),
      show: (/** @type {Map<string, number>} */ state) => seen.push([...state]),
      flash: (/** @type {unknown[]} */ ...change) => seen.push(change),
    },
    ['room'],
  );
  await until(() => seen.length === 5);
  assert.deepEqual(seen, [
    ['EURGBP', 1, undefined],
    ['EURCHF', 1, undefined],
    [
      ['EURGBP', 1],
      ['EURCHF', 1],
    ],
    ['EURUSD', 1.08, undefined],
    ['EURGBP', null, 1],
  ]);
});

test('loadOlder puts each older message above those shown, until there are no more', async (t) => {
  const { server, code, api } = await openToAll();
  const messages = Array.from({ length: 80 }, (_, i) => ({ room: 'chat.older', payload: i + 1 }));
  await api('/publish/batch', { body: { messages } });
  const { loadOlder } = await runCode(code('function loadOlder'), {}, ['loadOlder']);
  const room = clientOf(t, server.port).join('chat.older', { last: 5 });
  /** @type {{payload: number}[]} */
  const shown = [];
  room.on('message', (payload, meta) => shown.push({ payload, ...meta }));
  await until(() => shown.length === 5);
  assert.equal(await loadOlder(room, shown), true);
  assert.equal(shown.length, 55);
  await room.publish(81);
  assert.equal(await loadOlder(room, shown), false);
  await until(() => shown.length === 81);
  assert.deepEqual(
    shown.map(({ payload }) => payload),
    Array.from({ length: 81 }, (_, i) => i + 1),
  );
});

test('with your own database a row that the state has already is shown once', async (t) => {
  for (const name of ['chat.rows', 'plain.rows']) {
    const { server, code, api } = await openToAll();
    const inRoom = (/** @type {string} */ text) => code(text).replaceAll('chat.42', name);
    /** The rows of the database. @type {{id: string, text: string}[]} */
    const database = [];
    const { post } = await runCode(
      inRoom('export async function post'),
      {
        insert: async (/** @type {{id: string, text: string}} */ row) => database.push(row),
        publish: async (/** @type {string} */ room, /** @type {unknown} */ payload) =>
          assert.equal((await api('/publish', { body: { room, payload } })).status, 200),
      },
      ['post'],
    );
    await post('before the first visit');

    /** Requests of the page for the state, not answered yet. @type {(() => void)[]} */
    const asked = [];
    const fetch = (/** @type {string} */ path) => {
      assert.equal(path, `/rooms/${name}`);
      return new Promise((resolve) => {
        asked.push(() => resolve({ ok: true, json: async () => structuredClone(database) }));
      });
    };
    /** @type {WebSocket[]} */
    const sockets = [];
    const Socket = /** @type {any} */ (
      class extends WebSocket {
        /** @param {string} url @param {string} protocol */
        constructor(url, protocol) {
          super(url, protocol);
          sockets.push(this);
        }
      }
    );
    const fanfare = clientOf(t, server.port, { WebSocket: Socket });
    /** @type {string[]} */
    let shown = [];
    const show = (/** @type {Map<string, {text: string}>} */ rows) => {
      shown = [...rows.values()].map(({ text }) => text);
    };
    const { room } = await runCode(inRoom('let rows = new Map'), { fanfare, fetch, show }, [
      'room',
    ]);
    const answered = async () => {
      await until(() => asked.length === 1);
      asked.shift()?.();
    };
    await answered();
    await until(() => shown.length === 1);
    await post('live');
    await until(() => shown.length === 2);

    // The history is gone, so nothing can be recovered. A row is written and published before the
    // page gets the state: the message follows a state that has it.
    await api(`/rooms/${name}/history`, { method: 'DELETE' });
    sockets.at(-1)?.terminate();
    await until(() => asked.length === 1);
    /** @type {string[]} */
    const repeated = [];
    room.on('message', (/** @type {{text: string}} */ { text }) => repeated.push(text));
    await post('while the state is loaded');
    await answered();
    await until(() => repeated.length === 1);
    assert.deepEqual(repeated, ['while the state is loaded']);
    assert.deepEqual(
      shown,
      database.map(({ text }) => text),
    );
    assert.equal(shown.length, 3);
  }
});

test('the client of all tabs and the one that only listens receive', async (t) => {
  const { server, code } = await openToAll();
  const names = { Fanfare, userId: 'ann', getToken: async () => '' };
  const { fanfare } = await runCode(code('name: userId'), names, ['fanfare']);
  t.after(() => fanfare.close());
  await fanfare.connect();

  const publisher = clientOf(t, server.port);
  const received = new Promise((resolve) => {
    const listener = { Fanfare: Listener, getToken: async () => '' };
    const more = { loadStateFromMyApi: () => [], show: () => {}, append: resolve };
    runCode(code("'https://chat.example/sse'"), { ...listener, ...more }, ['fanfare', 'room']).then(
      ({ fanfare: stream, room }) => {
        t.after(() => stream.close());
        room.on('joined', () => publisher.publish('news', 'to a stream'));
      },
    );
  });
  assert.equal(await received, 'to a stream');
});

test('the program for Node goes on behind the message that it has handled', async (t) => {
  const { code, api } = await withTokens();
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(root, join(folder, 'node_modules', 'fanfare'));
  symlinkSync(join(root, 'node_modules', 'jose'), join(folder, 'node_modules', 'jose'));
  const store = `
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
const loadPosition = async () =>
  existsSync('position') ? JSON.parse(readFileSync('position', 'utf8')) : undefined;
const savePosition = async (position) => writeFileSync('position', JSON.stringify(position));
const handle = async (payload) => console.log(payload);
`;
  const source = code('SignJWT').replace(/^const secret/m, `${store}$&`);
  writeFileSync(
    join(folder, 'program.mjs'),
    `${source.replace('for await', "room.on('joined', () => console.log('joined'));\n$&")}`,
  );
  const run = () => {
    const child = spawn(process.execPath, ['program.mjs'], {
      cwd: folder,
      env: { PATH: process.env.PATH, JWT_SECRET: SECRET },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.after(() => child.kill('SIGKILL'));
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
    return { child, next: async () => (await lines.next()).value };
  };
  const publish = (/** @type {string} */ payload) =>
    api('/publish', { body: { room: 'orders', payload } });
  const first = run();
  assert.equal(await first.next(), 'joined');
  await publish('one');
  assert.equal(await first.next(), 'one');
  // Its position is saved after the message is handled.
  const position = join(folder, 'position');
  await until(() => existsSync(position) && readFileSync(position, 'utf8').includes('"offset":1'));
  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  await publish('two');
  const second = run();
  assert.equal(await second.next(), 'joined');
  assert.equal(await second.next(), 'two');
});

/**
 * Opens a page with an application, and a client of the server in fanfare.js.
 * @param {TestContext} t @param {Awaited<ReturnType<typeof openBrowser>>} browser
 * @param {number} port
 * @param {Record<string, string>} files by name; `app`: the application
 */
async function openApp(t, browser, port, { app, ...files }) {
  const folder = temporaryFolder(t);
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  const fanfareJs = `
    import { Fanfare } from ${JSON.stringify(`${root}src/client/index.js`)};
    export const fanfare = new Fanfare('ws://127.0.0.1:${port}');`;
  const all = { ...files, 'fanfare.js': fanfareJs, 'app.jsx': app };
  for (const [name, text] of Object.entries(all)) writeFileSync(join(folder, name), text);
  const bundled = await build({
    entryPoints: [join(folder, 'app.jsx')],
    bundle: true,
    write: false,
    jsx: 'automatic',
    define: { 'process.env.NODE_ENV': '"development"' },
  });
  const page = await browser.newPage();
  /** Joins and leaves that the page has sent. @type {[string, string][]} */
  const sent = [];
  page.on('websocket', (socket) =>
    socket.on('framesent', ({ payload }) => {
      const { type, room: name } = JSON.parse(String(payload));
      if (type === 'join' || type === 'leave') sent.push([type, name]);
    }),
  );
  await page.goto(`http://127.0.0.1:${port}/livez`);
  await page.addScriptTag({ content: bundled.outputFiles[0].text });
  return { page, sent };
}

test('the recipes for React and Vue show a room in two components, also when its name changes', {
  timeout: 90_000,
  skip: withoutChromium,
}, async (t) => {
  const { server, code, api } = await openToAll();
  const browser = await openBrowser(t);
  const apps = /** @type {const} */ ({
    react: {
      file: 'useRoom.jsx',
      text: 'useState<{ name: string; messages',
      app: `
        import { StrictMode, useCallback, useState } from 'react';
        import { createRoot } from 'react-dom/client';
        import { useRoom } from './useRoom.jsx';
        window.renders = [];
        function List({ name }) {
          const load = useCallback(async () => [], []);
          const texts = useRoom(name, load).map(({ payload }) => payload);
          window.renders.push([name, ...texts]);
          return <ul title={name}>{texts.map((text) => <li key={text}>{text}</li>)}</ul>;
        }
        function App() {
          const [name, setName] = useState('chat.a');
          const [isTwice, setTwice] = useState(true);
          window.go = setName;
          window.twice = setTwice;
          return <><List name={name} />{isTwice && <List name={name} />}</>;
        }
        const root = createRoot(document.body);
        window.end = () => root.unmount();
        root.render(<StrictMode><App /></StrictMode>);`,
    },
    vue: {
      file: 'useRoom.js',
      text: 'messages = shallowRef<',
      app: `
        import { createApp, h, ref } from 'vue';
        import { useRoom } from './useRoom.js';
        window.renders = [];
        const name = ref('chat.a');
        const isTwice = ref(true);
        window.go = (next) => { name.value = next; };
        window.twice = (next) => { isTwice.value = next; };
        const List = {
          setup() {
            const messages = useRoom(name, async () => []);
            return () => {
              const texts = messages.value.map(({ payload }) => payload);
              window.renders.push([name.value, ...texts]);
              return h('ul', { title: name.value }, texts.map((text) => h('li', text)));
            };
          },
        };
        const app = createApp(() => [h(List), isTwice.value ? h(List) : null]);
        window.end = () => app.unmount();
        app.mount(document.body);`,
    },
  });
  for (const [name, { file, text, app }] of Object.entries(apps)) {
    await t.test(name, async (t) => {
      for (const room of ['chat.a', 'chat.b']) {
        await api(`/rooms/${room}/history`, { method: 'DELETE' });
        for (const number of [1, 2]) {
          const body = { room, payload: `${room.at(-1)}${number}` };
          assert.equal((await api('/publish', { body })).status, 200);
        }
      }
      const { page, sent } = await openApp(t, browser, server.port, { [file]: code(text), app });
      /** The texts of each list on the page, below the name of its room. */
      const show = async (/** @type {[string, ...string[]][]} */ ...lists) => {
        const shown = () =>
          page.evaluate(`[...document.querySelectorAll('ul')].map((list) =>
            [list.title, ...[...list.children].map((each) => each.textContent)])`);
        await until(async () => JSON.stringify(await shown()) === JSON.stringify(lists)).catch(
          async () => assert.deepEqual(await shown(), lists),
        );
      };
      const go = (/** @type {string} */ room) => page.evaluate(`window.go('${room}')`);
      const members = async (/** @type {string} */ room) =>
        (await api(`/rooms/${room}`)).body.connections;
      await show(['chat.a', 'a1', 'a2'], ['chat.a', 'a1', 'a2']);
      // React's StrictMode mounts, unmounts and mounts each component.
      assert.deepEqual(sent, [['join', 'chat.a']]);
      await page.evaluate('window.twice(false)');
      await show(['chat.a', 'a1', 'a2']);
      const body = { room: 'chat.a', payload: `a-${name}` };
      assert.equal((await api('/publish', { body })).status, 200);
      await show(['chat.a', 'a1', 'a2', `a-${name}`]);
      await page.evaluate('window.twice(true)');
      const both = /** @type {[string, ...string[]]} */ (['chat.a', 'a1', 'a2', `a-${name}`]);
      await show(both, both);
      assert.equal(await members('chat.a'), 1);
      assert.deepEqual(
        sent.filter(([type]) => type === 'leave'),
        [],
      );
      await go('chat.b');
      await show(['chat.b', 'b1', 'b2'], ['chat.b', 'b1', 'b2']);
      for (let i = 0; i < 5; i++) for (const room of ['chat.a', 'chat.b']) await go(room);
      await show(['chat.b', 'b1', 'b2'], ['chat.b', 'b1', 'b2']);
      await until(async () => (await members('chat.a')) === 0);
      assert.equal(await members('chat.b'), 1);
      /** @type {[string, ...string[]][]} */
      const renders = await page.evaluate('window.renders');
      const mixed = renders.filter(([room, ...texts]) =>
        texts.some((each) => each[0] !== room.at(-1)),
      );
      assert.deepEqual(mixed, [], 'no render shows a message below the name of another room');
      await page.evaluate('window.end()');
      await until(async () => (await members('chat.b')) === 0);
      await page.close();
    });
  }
});

test('the recipes for a room with state in React and Vue show its values in two components', {
  timeout: 90_000,
  skip: withoutChromium,
}, async (t) => {
  const { server, code, api } = await openToAll();
  const browser = await openBrowser(t);
  const apps = /** @type {const} */ ({
    react: {
      file: 'useRoomState.jsx',
      text: 'useState<{ name: string; state',
      app: `
        import { StrictMode, useState } from 'react';
        import { createRoot } from 'react-dom/client';
        import { useRoomState } from './useRoomState.jsx';
        function List({ name }) {
          const texts = [...useRoomState(name)].map(([key, value]) => key + '=' + value).sort();
          return <ul title={name}>{texts.map((text) => <li key={text}>{text}</li>)}</ul>;
        }
        function App() {
          const [name, setName] = useState('price.a');
          const [isTwice, setTwice] = useState(false);
          window.go = setName;
          window.twice = setTwice;
          return <><List name={name} />{isTwice && <List name={name} />}</>;
        }
        const root = createRoot(document.body);
        window.end = () => root.unmount();
        root.render(<StrictMode><App /></StrictMode>);`,
    },
    vue: {
      file: 'useRoomState.js',
      text: 'state = shallowRef<',
      app: `
        import { createApp, h, ref } from 'vue';
        import { useRoomState } from './useRoomState.js';
        const name = ref('price.a');
        const isTwice = ref(false);
        window.go = (next) => { name.value = next; };
        window.twice = (next) => { isTwice.value = next; };
        const List = {
          setup() {
            const state = useRoomState(name);
            return () => {
              const texts = [...state.value].map(([key, value]) => key + '=' + value).sort();
              return h('ul', { title: name.value }, texts.map((text) => h('li', text)));
            };
          },
        };
        const app = createApp(() => [h(List), isTwice.value ? h(List) : null]);
        window.end = () => app.unmount();
        app.mount(document.body);`,
    },
  });
  for (const [name, { file, text, app }] of Object.entries(apps)) {
    await t.test(name, async (t) => {
      const publish = async (
        /** @type {string} */ room,
        /** @type {string} */ key,
        /** @type {unknown} */ payload,
      ) => assert.equal((await api('/publish', { body: { room, key, payload } })).status, 200);
      for (const [key, value] of Object.entries({ x: 1, y: 2, z: null }))
        await publish('price.a', key, value);
      await publish('price.b', 'x', 7);
      const { page, sent } = await openApp(t, browser, server.port, { [file]: code(text), app });
      /** The texts of each list on the page, below the name of its room. */
      const show = async (/** @type {string[][]} */ ...lists) => {
        const shown = () =>
          page.evaluate(`[...document.querySelectorAll('ul')].map((list) =>
            [list.title, ...[...list.children].map((each) => each.textContent)])`);
        await until(async () => JSON.stringify(await shown()) === JSON.stringify(lists)).catch(
          async () => assert.deepEqual(await shown(), lists),
        );
      };
      await show(['price.a', 'x=1', 'y=2']);
      // React's StrictMode mounts, unmounts and mounts each component.
      assert.deepEqual(sent, [['join', 'price.a']]);
      await publish('price.a', 'x', 3);
      await publish('price.a', 'y', null);
      await show(['price.a', 'x=3']);
      await page.evaluate('window.twice(true)');
      await show(['price.a', 'x=3'], ['price.a', 'x=3']);
      await publish('price.a', 'z', 4);
      await show(['price.a', 'x=3', 'z=4'], ['price.a', 'x=3', 'z=4']);
      assert.equal(sent.length, 1);
      await page.evaluate(`window.go('price.b')`);
      await show(['price.b', 'x=7'], ['price.b', 'x=7']);
      await page.evaluate(`window.end()`);
      await until(async () => (await api('/rooms/price.b')).body.connections === 0);
      await page.close();
    });
  }
});
