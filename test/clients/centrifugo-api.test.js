// centrifugo-api.test.js: Centrifugo's server API by its SDK for Python, `cent`, unchanged.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { NO_LIMITS, startServer } from '../harness/server.js';
import { connectionToken, connectRaw, WITH_TOKENS } from '../helpers/centrifugo.js';
import { KEY } from '../helpers/centrifugo-api.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const VERSION = '5.2.0';
const script = fileURLToPath(new URL('centrifugo/server_api.py', import.meta.url));
const run = promisify(execFile);

test(`cent ${VERSION} (PyPI): every method`, { timeout: 300_000 }, async (t) => {
  const folder = temporaryFolder(t);
  const install = ['-m', 'pip', 'install', '-q', '--target', folder, `cent==${VERSION}`];
  await run('python3', install, { timeout: 200_000 });
  const { port } = await startServer(t, {
    ...NO_LIMITS,
    ...WITH_TOKENS,
    FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*',
    FANFARE_CENTRIFUGO_API_KEY: KEY,
    FANFARE_HISTORY: 'h=10/60s',
    FANFARE_PRESENCE: 'p',
  });
  const client = await connectRaw(t, port, { token: connectionToken({ sub: 'ann' }) });
  await client.call('subscribe', { channel: 'p' });
  const address = `http://127.0.0.1:${port}/centrifugo/api`;
  const env = { ...process.env, PYTHONPATH: folder };
  const { stdout } = await run('python3', [script, address, KEY, 'ann'], { env, timeout: 60_000 });
  assert.equal(stdout.trim(), 'done');
  assert.equal(await client.closeCode(), 4200);
  assert.equal(client.close?.reason, 'bye');
});
