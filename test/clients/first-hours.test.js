// first-hours.test.js: the first hour of five developers, each by a script, as a new user would do
// it. Each works, or is told in one sentence what to do.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import Pusher from 'pusher';
import { Fanfare } from '../../src/client/node.js';
import { startServer } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { connect } from '../helpers/clients.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { token } from '../helpers/tokens.js';

const PusherClient = createRequire(import.meta.url)('pusher-js');

const OPTIONS = { timeout: 120_000 };
const here = fileURLToPath(new URL('.', import.meta.url));
const run = promisify(execFile);
const hasNo = (/** @type {string} */ command) =>
  spawnSync(command, ['-version']).error !== undefined && `${command} is not installed`;

/**
 * A server as a developer starts it: with defaults, and an API key.
 * @param {import('node:test').TestContext} t @param {Record<string, string>} [env]
 */
async function start(t, env = {}) {
  const secret = newSecret();
  // Empty: the default.
  const defaults = { FANFARE_LIMITS: '', WORKERS: '2' };
  const server = await startServer(t, { ...defaults, API_KEYS: `web ${secret} all`, ...env });
  return { port: server.port, secret, url: `http://127.0.0.1:${server.port}` };
}

test('Python publishes a list of 500 rows', { ...OPTIONS, skip: hasNo('python3') }, async (t) => {
  const { port, url, secret } = await start(t);
  const member = await connect(t, port);
  await member.join('table');
  const { stdout } = await run('python3', [join(here, 'first_publish.py'), url, secret, 'table']);
  assert.match(stdout, /^200 /);
  const { payload } = await member.next('message');
  assert.equal(payload.length, 500);
  assert.equal(payload[499].constructor, 'Ferrari');
});

test('a token with an integer sub, then one with the wrong secret', OPTIONS, async (t) => {
  const key = newSecret();
  const { port } = await start(t, { JWT_SECRET: key, FANFARE_TOKEN_REASONS: 'on' });
  // As Laravel, Django and Rails have it: the number of a row.
  const claims = { sub: 42, rooms: { join: ['chat.*'], publish: ['chat.*'] } };
  const signed = (/** @type {string} */ secret) => token(claims, secret);
  const right = await connect(t, `ws://127.0.0.1:${port}/?token=${signed(key)}`);
  const welcome = await right.ask({ type: 'hello' }, 'welcome');
  assert.equal(welcome.userId, '42', JSON.stringify(welcome));
  await right.join('chat.1');
  const wrong = await connect(t, `ws://127.0.0.1:${port}/?token=${signed(newSecret())}`);
  const { error, message } = await wrong.next('error');
  assert.equal(error, 'INVALID_TOKEN');
  assert.match(message, /was not signed with a configured key/);
});

test('two tabs share their cursors at 20 a second, on the defaults', OPTIONS, async (t) => {
  const { port } = await start(t);
  let received = 0;
  const tabs = [0, 1].map(() => new Fanfare(`ws://127.0.0.1:${port}`));
  t.after(() => Promise.all(tabs.map((tab) => tab.close())));
  const rooms = tabs.map((tab) => tab.join('cursors'));
  await Promise.all(tabs.map((tab) => tab.connect()));
  rooms[1].on('message', () => received++);
  let sent = 0;
  /** @type {Promise<unknown>[]} */
  const acks = [];
  for (; sent < 1200; sent += 2) {
    for (const room of rooms) acks.push(room.publish({ x: sent, y: sent }));
    await pause(25); // twice as fast: half the time
  }
  await Promise.all(acks);
  assert.ok(received >= sent * 0.99, `${received} of ${sent}`);
});

test(
  "soketi's configuration as it is, with pusher-js and Pusher's server library",
  OPTIONS,
  async (t) => {
    const path = join(temporaryFolder(t), 'apps.json');
    // soketi's own default, appManager.array.apps.
    const app = { id: 'app-id', key: 'app-key', secret: 'app-secret', enableClientMessages: true };
    writeFileSync(path, JSON.stringify([{ ...app, maxConnections: -1, maxEventPayloadInKb: 100 }]));
    const { port } = await start(t, { FANFARE_PUSHER_APPS: path });
    const client = new PusherClient('app-key', {
      cluster: '',
      wsHost: '127.0.0.1',
      wsPort: port,
      forceTLS: false,
      enabledTransports: ['ws'],
    });
    t.after(() => client.disconnect());
    const channel = client.subscribe('orders');
    await new Promise((resolve) => channel.bind('pusher:subscription_succeeded', resolve));
    const shipped = new Promise((resolve) => channel.bind('shipped', resolve));
    const { id: appId, key, secret } = app;
    const backend = new Pusher({
      appId,
      key,
      secret,
      host: '127.0.0.1',
      port: `${port}`,
      useTLS: false,
    });
    await backend.trigger('orders', 'shipped', { id: 7 });
    assert.deepEqual(await shipped, { id: 7 });
  },
);

test('Java publishes with the client of the JDK', {
  ...OPTIONS,
  skip: hasNo('java'),
}, async (t) => {
  const { port, url, secret } = await start(t);
  const member = await connect(t, port);
  await member.join('jobs');
  const { stdout } = await run('java', [join(here, 'FirstPublish.java'), url, secret, 'jobs']);
  assert.match(stdout, /^200 /);
  assert.deepEqual((await member.next('message')).payload, { from: 'java' });
});
