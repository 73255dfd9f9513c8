// client-phones.test.js: the client in the surroundings of React Native, against a real server. The
// globals of Node and of pages do not exist there.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createContext, runInContext } from 'node:vm';
import { build } from 'esbuild';
import { WebSocket } from 'ws';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { apiOf, newSecret } from '../helpers/api.js';

const FOLDER = fileURLToPath(new URL('../clients/phone/', import.meta.url));

/** What an app has besides the language itself: its timers and its console. */
const TIMERS = { setTimeout, clearTimeout, setInterval, clearInterval, queueMicrotask };

test('an app on a phone recovers from a lost network and from the background', {
  timeout: 60_000,
}, async (t) => {
  const secret = newSecret();
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_HISTORY: 'chat.*=100/300s',
    FANFARE_PRESENCE: 'chat.*',
    FANFARE_STATE: 'price.*=100/1h',
    API_KEYS: `main ${secret} all`,
  });
  const api = apiOf(server, secret);
  const { outputFiles } = await build({
    stdin: {
      contents: "export * from './journey.js'; export * from './surroundings.js';",
      resolveDir: FOLDER,
    },
    bundle: true,
    write: false,
    format: 'iife',
    globalName: 'app',
  });
  const global = createContext({ ...TIMERS, console, performance, AbortController });
  runInContext(outputFiles[0].text, global);
  const { journey, surround, appStates } = /** @type {any} */ (global).app;
  /** @type {{socket: WebSocket, fail: (message: string) => void}[]} */
  const open = [];
  /** @type {[path: string, headers: Record<string, string>][]} */
  const dialled = [];
  surround(global, {
    connect: (
      /** @type {string} */ url,
      /** @type {string[]} */ protocols,
      /** @type {any} */ headers,
      /** @type {any} */ events,
    ) => {
      const socket = new WebSocket(url, protocols, { headers: { ...headers } });
      dialled.push([new URL(url).pathname, headers]);
      socket.on('open', events.opened);
      socket.on('message', (data) => events.received(String(data)));
      socket.on('close', (code, reason) => events.closed(code, String(reason)));
      socket.on('error', () => {});
      const fail = (/** @type {string} */ message) => {
        socket.removeAllListeners('close').terminate();
        events.failed(message);
      };
      open.push({ socket, fail });
      return {
        send: (/** @type {string} */ data) => socket.send(data),
        close: (/** @type {number} */ code, /** @type {string} */ reason) =>
          socket.close(code, reason),
      };
    },
  });
  for (const name of ['TextEncoder', 'document', 'location', 'BroadcastChannel', 'Event', 'crypto'])
    assert.equal(runInContext(`typeof ${name}`, global), 'undefined', name);
  const seen = await journey({
    url: `ws://127.0.0.1:${server.port}/ws`,
    WebSocket: /** @type {any} */ (global).WebSocket,
    appStates: appStates(),
    cut: (/** @type {string} */ reason) => open.at(-1)?.fail(reason),
    publish: async (/** @type {unknown} */ payload, /** @type {string|undefined} */ key) => {
      const room = key ? 'price.phone' : 'chat.phone';
      const { status } = await api('/publish', { body: { room, payload, key } });
      assert.equal(status, 200);
    },
  });
  // The objects of the app have prototypes of its own.
  assert.deepEqual(JSON.parse(JSON.stringify(seen)), {
    received: ['one', 'two', 'three'],
    reasons: ['The network connection was lost.'],
    inBackground: 'sleeping',
    offset: 1,
    tooLarge: 'MESSAGE_TOO_LARGE',
    states: ['connecting', 'connected', 'waiting', 'sleeping', 'closed'],
  });
  assert.ok(dialled.every(([path]) => path === '/ws'));
  assert.deepEqual(
    dialled.map(([, headers]) => headers['x-phone']),
    ['yes', 'yes', 'yes', undefined],
  );
});
