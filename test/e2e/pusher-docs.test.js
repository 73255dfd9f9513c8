// pusher-docs.test.js: the code of docs/pusher.md, as it stands, against a real server.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { Fanfare } from '../../src/client/node.js';
import { startServer, until } from '../harness/server.js';
import { codeWith, runCode } from '../helpers/doc-code.js';
import { apiOf } from '../helpers/pusher.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const OPTIONS = { timeout: 60_000 };
const PAGE = 'docs/pusher.md';
const require = createRequire(import.meta.url);

/** @typedef {import('node:test').TestContext} TestContext */

/**
 * Starts a server with the file of the page.
 * @param {TestContext} t @param {Record<string, unknown>} [settings] more of them
 */
async function start(t, settings = {}) {
  const [app] = JSON.parse(codeWith(PAGE, '"clientEvents"'));
  const file = join(temporaryFolder(t), 'apps.json');
  writeFileSync(file, JSON.stringify([{ ...app, ...settings }]));
  const { port } = await startServer(t, { FANFARE_PUSHER_APPS: file, WORKERS: '1' });
  return { port, api: apiOf(port, { id: app.id, key: app.key, secret: app.secret }) };
}

/**
 * A block for a server at another port, with its own console.
 * @param {string} text in it @param {number} port @param {Record<string, unknown>} names
 * @param {string[]} [results]
 */
async function run(text, port, names, results) {
  /** @type {string[]} */
  const lines = [];
  const console = { log: (/** @type {unknown[]} */ ...words) => lines.push(words.join(' ')) };
  const code = codeWith(PAGE, text).replaceAll('3000', String(port));
  const values = await runCode(code, { console, ...names }, results);
  return { lines, values };
}

/** The backend of the page. @param {number} port */
const publish = (port) => run("from 'pusher';", port, { Pusher: require('pusher') });

/** Waits until the channel is occupied, publishes by the backend of the page, and waits for its text. */
async function greets(
  /** @type {Awaited<ReturnType<typeof start>>} */ { port, api },
  /** @type {string[]} */ lines,
) {
  await until(async () => (await api('/channels/news')).body.occupied, 10_000, 'a subscription');
  await publish(port);
  await until(() => lines.length > 0, 10_000, 'a greeting');
}

test('a page with pusher-js hears the backend', OPTIONS, async (t) => {
  const server = await start(t);
  const names = { Pusher: require('pusher-js') };
  const { lines, values } = await run(
    "import Pusher from 'pusher-js';\n\nconst",
    server.port,
    names,
    ['pusher'],
  );
  t.after(() => values.pusher.disconnect());
  await greets(server, lines);
  assert.deepEqual(lines, ['Hello!']);
});

test('a page with Echo hears the backend', OPTIONS, async (t) => {
  const server = await start(t);
  /** @type {any} */
  const window = {};
  Object.assign(globalThis, { window });
  t.after(() => {
    window.Echo.disconnect();
    Object.assign(globalThis, { window: undefined });
  });
  const { default: Echo } = await import('laravel-echo');
  const names = { Echo, Pusher: require('pusher-js'), window };
  const { lines } = await run('window.Echo', server.port, names);
  await greets(server, lines);
  assert.deepEqual(lines, ['Hello!']);
});

test("Fanfare's own client in a shared app hears the backend", OPTIONS, async (t) => {
  const server = await start(t, { shared: true });
  const { lines, values } = await run('fanfare/client', server.port, { Fanfare }, [
    'fanfare',
    'room',
  ]);
  t.after(() => values.fanfare.close());
  await values.room.joined;
  await until(async () => {
    await publish(server.port);
    return lines.length > 0;
  });
  assert.equal(lines[0], 'greeting Hello!');
});

describe('Python', () => {
  let skip = /** @type {string|false} */ (false);
  const folder = temporaryFolder({ after: (fn) => process.once('exit', fn) });
  before(() => {
    const flags = ['-m', 'pip', 'install', '-q', '--target', folder, 'pusher==3.3.4'];
    const { error, status, stderr } = spawnSync('python3', flags, {
      timeout: 90_000,
      encoding: 'utf8',
    });
    if (error) skip = 'there is no python3 here';
    else if (status !== 0) skip = `PyPI is not reachable: ${stderr}`;
  });

  test('the Python backend publishes', { timeout: 120_000 }, async (t) => {
    if (skip) return t.skip(skip);
    const server = await start(t);
    const names = { Pusher: require('pusher-js') };
    const { lines, values } = await run(
      "import Pusher from 'pusher-js';\n\nconst",
      server.port,
      names,
      ['pusher'],
    );
    t.after(() => values.pusher.disconnect());
    await until(async () => (await server.api('/channels/news')).body.occupied);
    writeFileSync(
      join(folder, 'publish.py'),
      codeWith(PAGE, 'import pusher').replace('3000', String(server.port)),
    );
    const { status, stderr } = spawnSync('python3', [join(folder, 'publish.py')], {
      encoding: 'utf8',
    });
    assert.equal(status, 0, stderr);
    await until(() => lines.length > 0);
    assert.deepEqual(lines, ['Hello!']);
  });
});
