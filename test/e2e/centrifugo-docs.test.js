// centrifugo-docs.test.js: the code of docs/centrifugo.md, as it stands, against a real server.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { Centrifuge } from 'centrifuge';
import { SignJWT } from 'jose';
import { WebSocket } from 'ws';
import { startServer, until } from '../harness/server.js';
import { codeWith, runCode } from '../helpers/doc-code.js';

const OPTIONS = { timeout: 60_000 };
const PAGE = 'docs/centrifugo.md';
const run = promisify(execFile);

/** The variables that the first block of the page sets. @returns {Record<string, string>} */
function settings() {
  const words = codeWith(PAGE, 'npx fanfare').matchAll(/([A-Z_]+)=('[^']*'|\S+)/g);
  const env = Object.fromEntries(
    [...words].map(([, name, value]) => [name, value.replaceAll("'", '')]),
  );
  return { ...env, FANFARE_CENTRIFUGO_API_KEY: env.API_KEY };
}

/** For Node 20, which has no WebSocket of its own. */
class NodeCentrifuge extends Centrifuge {
  /** @param {ConstructorParameters<typeof Centrifuge>[0]} url @param {object} options */
  constructor(url, options) {
    super(url, { ...options, websocket: WebSocket });
  }
}

test('a page with centrifuge-js hears the backend, and what it missed', OPTIONS, async (t) => {
  const { API_KEY, ...env } = settings();
  const { port } = await startServer(t, { ...env, WORKERS: '1' });
  const { token } = await runCode(codeWith(PAGE, 'SignJWT'), { SignJWT }, ['token']);
  /** @type {string[]} */
  const lines = [];
  const names = {
    Centrifuge: NodeCentrifuge,
    token,
    console: { log: (/** @type {string} */ line) => lines.push(line) },
  };
  const page = codeWith(PAGE, 'newSubscription').replaceAll('3000', String(port));
  const { centrifuge, subscription } = await runCode(page, names, ['centrifuge', 'subscription']);
  t.after(() => centrifuge.disconnect());
  await subscription.ready(10_000);
  const curl = codeWith(PAGE, 'curl').replaceAll('3000', String(port));
  const publish = async () => {
    const { stdout } = await run('sh', ['-c', curl], { env: { ...process.env, API_KEY } });
    return JSON.parse(stdout).result;
  };
  assert.equal((await publish()).offset, 1);
  await until(() => lines.length > 0, 10_000, 'a publication');
  const { clients } = await subscription.presence();
  assert.deepEqual(
    Object.values(clients).map(({ user, connInfo }) => [user, connInfo]),
    [['ann', { name: 'Ann' }]],
  );
  // What comes while the page is away.
  centrifuge.disconnect();
  assert.equal((await publish()).offset, 2);
  centrifuge.connect();
  await until(() => lines.length > 1, 10_000, 'the recovery');
  assert.deepEqual(lines, ['Hello!', 'Hello!']);
});

test('without WebSockets the page goes on with HTTP streaming', OPTIONS, async (t) => {
  const { API_KEY: _, ...env } = settings();
  const { port } = await startServer(t, { ...env, WORKERS: '1' });
  const { token } = await runCode(codeWith(PAGE, 'SignJWT'), { SignJWT }, ['token']);
  // Nobody listens at port 1.
  const code = codeWith(PAGE, 'emulationEndpoint')
    .replace('ws://localhost:3000', 'ws://127.0.0.1:1')
    .replaceAll('3000', String(port));
  const { centrifuge } = await runCode(code, { Centrifuge: NodeCentrifuge, token }, ['centrifuge']);
  t.after(() => centrifuge.disconnect());
  const connected = new Promise((resolve) => centrifuge.on('connected', resolve));
  centrifuge.connect();
  assert.equal((await connected).transport, 'http_stream');
  // It is sent by `/emulation`.
  const subscription = centrifuge.newSubscription('chat:1');
  subscription.subscribe();
  await subscription.ready(10_000);
});
