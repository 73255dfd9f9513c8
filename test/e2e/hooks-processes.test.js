// hooks-processes.test.js: hooks and the processes of a server: reload, a file that does not load, a
// hook that never returns. It takes 8 s, because servers start, reload, and one hangs.

import assert from 'node:assert/strict';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { NO_LIMITS, spawnServer, startServer, until } from '../harness/server.js';
import { connect, connectInTurn } from '../helpers/clients.js';
import { HOOKS_SECRET, hookBackend } from '../helpers/hooks/backend.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const limit = { timeout: 60_000 };
const HOOKS = fileURLToPath(new URL('../helpers/hooks/all.js', import.meta.url));
const ENV = { ...NO_LIMITS, WORKERS: '1', FANFARE_HOOKS: HOOKS };

test(
  'a reload loads the file again, or turns to a backend; a broken file keeps the old workers',
  limit,
  async (t) => {
    const folder = temporaryFolder(t);
    const file = join(folder, 'hooks.mjs');
    /** @param {string} body */
    const write = (body) => writeFile(file, `export function onPublish() { ${body} }\n`);
    await write("return { payload: 'first' };");
    const settings = join(folder, 'fanfare.conf');
    await writeFile(settings, `FANFARE_HOOKS=${file}\n`);
    const { FANFARE_HOOKS: _, ...env } = ENV;
    const where = await startServer(t, { ...env, FANFARE_CONFIG_FILE: settings });
    const reloaded = (/** @type {number} */ times) =>
      until(() => where.lines.filter(({ msg }) => msg === 'reload complete').length === times);
    const says = async () => {
      const client = await connect(t, where.port);
      await client.ask({ type: 'join', room: 'a' }, 'joined');
      client.send({ type: 'message', room: 'a', payload: 0 });
      const { payload } = await client.next('message');
      client.socket.terminate();
      return payload;
    };
    assert.equal(await says(), 'first');
    await write("return { payload: 'second' }; }}}");
    where.kill('SIGHUP');
    await where.line(({ msg }) => String(msg).startsWith('reload aborted'), 20_000);
    assert.equal(await says(), 'first');
    await write("return { payload: 'third' };");
    where.kill('SIGHUP');
    await reloaded(1);
    assert.equal(await says(), 'third');
    const { url } = await hookBackend(t, { onPublish: () => ({ payload: 'a backend' }) });
    const list = join(folder, 'hooks.json');
    await writeFile(list, JSON.stringify([{ url, hooks: ['onPublish'], secret: HOOKS_SECRET }]));
    await writeFile(settings, `FANFARE_HOOKS=${list}\n`);
    where.kill('SIGHUP');
    await reloaded(2);
    assert.equal(await says(), 'a backend');
    await rm(list);
    where.kill('SIGHUP');
    await until(
      () => where.lines.filter(({ msg }) => String(msg).startsWith('reload aborted')).length === 2,
    );
    assert.equal(await says(), 'a backend');
  },
);

test(
  'a server does not start with a broken file, or with a hook of another name',
  limit,
  async (t) => {
    const folder = temporaryFolder(t);
    for (const [name, text, fault, code] of /** @type {[string, string, RegExp, number][]} */ ([
      ['syntax.mjs', '\nexport function onPublish( {}', /syntax\.mjs:2: SyntaxError/, 78],
      ['name.mjs', 'export function onMessage() {}', /onMessage is not one of onConnect/, 78],
      ['none.mjs', 'export const x = 1;', /exports none of onConnect/, 78],
      // At the next start the database may be there.
      ['throws.mjs', 'throw new Error("no database")', /throws\.mjs:1: Error: no database/, 1],
    ])) {
      const file = join(folder, name);
      await writeFile(file, text);
      const { exited, lines, stderr } = spawnServer(t, { ...ENV, FANFARE_HOOKS: file });
      assert.equal((await exited).code, code);
      assert.match(lines.map(({ msg }) => msg).join('\n') + stderr(), fault);
      const stacks = lines.filter(({ err }) => err !== undefined).length;
      assert.equal(stacks, code === 78 ? 0 : 1, 'a stack has nothing to add to a syntax error');
    }
    const { exited, stderr } = spawnServer(t, { ...ENV, FANFARE_HOOKS: join(folder, 'absent.js') });
    assert.equal((await exited).code, 78);
    assert.match(stderr(), /FANFARE_HOOKS: cannot read .*absent\.js: ENOENT/);
  },
);

test(
  'an endless loop in a hook costs its worker, and the supervisor starts another',
  limit,
  async (t) => {
    const env = {
      ...ENV,
      WORKERS: '2',
      FANFARE_SCHEDULING: 'round-robin',
      FANFARE_WORKER_TIMEOUT_MS: '1000',
    };
    const where = await startServer(t, env);
    const [client, other] = await connectInTurn(t, where.port, 2);
    client.send({ type: 'message', room: 'news', payload: { do: 'loop' } });
    assert.equal((await other.ask({ type: 'ping' }, 'pong')).type, 'pong');
    await until(() => client.close !== null);
    await where.line(({ msg }) => msg === 'worker hung: killed');
    assert.equal(other.close, null);
    const isReady = (/** @type {{msg?: string}} */ { msg }) => msg === 'worker ready';
    await until(() => where.lines.filter(isReady).length === 3);
  },
);
