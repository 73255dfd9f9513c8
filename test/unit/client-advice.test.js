// client-advice.test.js: mistakes of a front-end developer, and what `fanfare/client` says.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Fanfare } from '../../src/client/index.js';
import { Fanfare as Listener } from '../../src/client/sse/index.js';
import { clientScripts } from '../helpers/client-script.js';
import { setUp } from '../helpers/fake-client.js';

/** @type {any} */
const Client = Fanfare;

/** @type {[what: string, act: () => unknown, message: string][]} */
const THROWN = [
  [
    'no URL',
    () => new Client(),
    "new Fanfare: the URL is missing, such as new Fanfare('wss://chat.example')",
  ],
  [
    'options for the URL',
    () => new Client({ url: 'wss://chat.example' }),
    "new Fanfare: the URL is missing, such as new Fanfare('wss://chat.example')",
  ],
  [
    'no scheme',
    () => new Client('localhost:3000'),
    "new Fanfare: localhost:3000 begins with none of ws://, wss://, http://, https://; a URL is such as new Fanfare('wss://chat.example')",
  ],
  ['no scheme and no port', () => new Client('chat.example'), 'Invalid URL'],
  [
    'another scheme',
    () => new Listener('wss://chat.example'),
    "new Fanfare: wss://chat.example begins with none of http://, https://; a URL is such as new Fanfare('https://chat.example/sse')",
  ],
  [
    'a token for the options',
    () => new Client('wss://chat.example', 'eyJ'),
    'new Fanfare: the options are an object, such as { token }',
  ],
  [
    'no room',
    () => new Client('wss://chat.example').join(),
    "join: the name of the room is missing, such as join('lobby')",
  ],
  [
    'an empty room',
    () => new Listener('https://chat.example/sse').join(''),
    "join: the name of the room is missing, such as join('lobby')",
  ],
];

for (const [what, act, message] of THROWN)
  test(`${what} is an error`, () => {
    assert.throws(act, { name: 'TypeError', message });
  });

test('misspelt options and events are warned of, others are not', (t) => {
  const { mock } = t.mock.method(console, 'warn', () => {});
  const client = new Client('wss://chat.example', { tokn: 'x', verbose: true });
  client.on('stat', () => {});
  const room = client.join('a');
  room.on('mesage', () => {});
  room.on('foo', () => {});
  for (const event of ['message', 'joined', 'change', 'error']) room.on(event, () => {});
  room.presence.on('change', () => {});
  client.close();
  assert.deepEqual(
    mock.calls.map(({ arguments: [text] }) => text),
    [
      'new Fanfare: unknown option "tokn"; did you mean "token"?',
      'new Fanfare: unknown option "verbose"; there are token, offline, maxPending, firstDelayMs, maxDelayMs, WebSocket, name, heartbeatMs',
      'on: there is no event "stat"; did you mean "state"?',
      'on: there is no event "mesage"; did you mean "message"?',
      'on: there is no event "foo"; there are state, welcome, broadcast, degraded, error, message, joined, resync, change, synced, reset, left, join, leave',
    ],
  );
});

test("a token function's error is the cause, and in the message", async (t) => {
  const cause = new Error('401 from /token');
  const client = setUp(t, {
    token: () => {
      throw cause;
    },
  });
  client.fanfare.connect();
  await turn();
  const [error] = client.errors;
  assert.equal(error.cause, cause);
  assert.equal(
    error.message,
    'The token function failed: 401 from /token. See docs/client.md#TOKEN_UNAVAILABLE',
  );
});

test('without a WebSocket, the client says what to install', async (t) => {
  const { WebSocket } = globalThis;
  t.after(() => Object.assign(globalThis, { WebSocket }));
  Object.assign(globalThis, { WebSocket: undefined });
  const client = new Client('wss://chat.example');
  client.on('error', () => {});
  await assert.rejects(client.connect(), /There is no global WebSocket\. In Node 20, .*"ws"/);
});

test('the plain scripts have none of these texts', () => {
  for (const [name, text] of clientScripts())
    assert.doesNotMatch(text, /did you mean|is missing/, name);
});
