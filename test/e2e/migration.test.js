// migration.test.js: the code of docs/migration.md, as it stands, against a real server.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { startServer } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET, token } from '../helpers/tokens.js';

const ROOT = new URL('../../', import.meta.url);
const PAGE = readFileSync(new URL('docs/migration.md', ROOT), 'utf8');
const API_KEY = 'key-for-the-test-of-the-migration-page';
const RIGHTS = { rooms: { join: ['chat.*'], publish: ['chat.*'] } };

/**
 * A block of the page, for a server at another address.
 * @param {string} name @param {number} port
 */
function blockOf(name, port) {
  const [, code] =
    new RegExp(`<!-- test: ${name} -->\n\`\`\`js\n(.*?)^\`\`\`$`, 'ms').exec(PAGE) ?? [];
  assert.ok(code, `docs/migration.md has no block ${name}`);
  return code.replace(/(wss|https):\/\/chat\.example/, (_, scheme) =>
    scheme === 'wss' ? `ws://127.0.0.1:${port}` : `http://127.0.0.1:${port}`,
  );
}

/**
 * Runs a module, and ends it with the test.
 * @param {import('node:test').TestContext} t @param {string} code
 */
function start(t, code) {
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
    cwd: fileURLToPath(ROOT),
    env: { ...process.env, API_KEY },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => child.kill('SIGKILL'));
  return child;
}

test('docs/migration.md: page, hook and backend replace those of Socket.IO', {
  timeout: 60_000,
}, async (t) => {
  const hooks = join(temporaryFolder(t), 'hooks.mjs');
  writeFileSync(hooks, blockOf('hook', 0));
  const { port } = await startServer(t, {
    WORKERS: '1',
    JWT_SECRET: SECRET,
    API_KEYS: `web ${API_KEY} all`,
    FANFARE_HOOKS: hooks,
  });
  const bob = await connect(
    t,
    `ws://127.0.0.1:${port}/ws?token=${token({ sub: 'bob', ...RIGHTS })}`,
  );
  await bob.ask({ type: 'join', room: 'chat.42' }, 'joined');

  const page = start(
    t,
    `const getToken = () => '${token({ sub: 'ann', ...RIGHTS })}';
     const showMessage = (from, text) => console.log(from + ': ' + text);
     const showTyping = (from) => console.log(from + ' is typing');
     ${blockOf('page', port)}`,
  );
  const lines = createInterface({ input: page.stdout })[Symbol.asyncIterator]();
  assert.equal((await lines.next()).value, 'ann: Hello!');

  const seen = [await bob.next('message'), await bob.next('message')];
  assert.deepEqual(
    seen.map(({ from, payload }) => ({ from, payload })),
    [
      { from: 'ann', payload: { event: 'chat', text: 'Hello!' } },
      { from: 'ann', payload: { event: 'typing' } },
    ],
  );

  const refused = { type: 'message', room: 'chat.42', payload: { event: 'chat' }, id: 1 };
  assert.equal((await bob.ask(refused, 'ack')).message, 'A chat message has a text.');

  const backend = start(t, blockOf('backend', port));
  assert.deepEqual(await once(backend, 'exit'), [0, null]);
  assert.equal((await lines.next()).value, ': from the backend', 'and no typing notice of her own');
});
