// docs-client.test.js: the code of docs/client.md as it stands, in Node against a real server.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
import { Fanfare } from '../../src/client/node.js';
import { Fanfare as Listener } from '../../src/client/sse/index.js';
import { NO_LIMITS, startServer, until } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
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
  const store = `
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
const loadPosition = async () =>
  existsSync('position') ? JSON.parse(readFileSync('position', 'utf8')) : undefined;
const savePosition = async (position) => writeFileSync('position', JSON.stringify(position));
const handle = async (payload) => console.log(payload);
`;
  const source = code('fanfare/server').replace(/^const claims/m, `${store}$&`);
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
