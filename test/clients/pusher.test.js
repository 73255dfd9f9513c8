// pusher.test.js: the SDKs of Pusher's protocol that need the network, unchanged, against a real
// server: `node test/run.js clients`. e2e/pusher-js runs those that are dev dependencies.
//
// The suites of the SDKs come from their packages into a temporary folder. No file of theirs is in
// this repository.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { Agent } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';
import express from 'express';
import { until } from '../harness/server.js';
import { makeServerCertificate } from '../helpers/certificates.js';
import { APP, sdkOf, startPusher, startReceiver } from '../helpers/pusher.js';

const INSTALL_TIMEOUT_MS = 300_000;
const CLIENT_TIMEOUT_MS = 120_000;
/** The spec waits 5 s for each message that must not come. */
const SPEC_TIMEOUT_MS = 300_000;
/** The key that pusher-js's spec names, and how many tests it has, with two steps of set-up. */
const SPEC_KEY = 'c49a449b916bb4246729';
const SPEC_TESTS = 33;
const REMOTE_TESTS = 7;
const MODULE = 'github.com/pusher/pusher-http-go/v5';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const here = fileURLToPath(new URL('./pusher/', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'fanfare-pusher-'));
after(() => rmSync(folder, { recursive: true, force: true }));

/**
 * @param {string} command
 * @param {string[]} args
 * @param {{timeout?: number, env?: Record<string, string>, cwd?: string}} [options]
 * @returns {Promise<string>} its output
 */
async function run(command, args, { timeout = CLIENT_TIMEOUT_MS, env = {}, cwd = folder } = {}) {
  const child = spawn(command, args, { cwd, timeout, env: { ...process.env, ...env } });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text) => {
      output += text;
    });
  const [code] = await once(child, 'close');
  assert.equal(code, 0, `${command} ${args.join(' ')}\n${output}`);
  return output;
}

/**
 * The auth server of pusher-js's spec.
 * @param {import('node:test').TestContext} t @param {import('pusher')} pusher
 * @returns {Promise<string>} its address
 */
async function startAuth(t, pusher) {
  const app = express();
  app.use(express.urlencoded({ extended: true }));
  app.post('/auth', (req, res) => {
    const { socket_id: id, channel_name: channel } = req.body;
    const user_info = { name: `Integration ${id}`, email: `integration-${id}@example.com` };
    res.send(pusher.authorizeChannel(id, channel, { user_id: id, user_info }));
  });
  app.get('/v2/send/:id', async (req, res) => {
    const decode = (/** @type {unknown} */ text) =>
      Buffer.from(String(text), 'base64').toString('utf8');
    const { channel, event, data } = req.query;
    await pusher.trigger(decode(channel), decode(event), JSON.parse(decode(data)));
    res.send('');
  });
  const server = createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return `http://127.0.0.1:${Object(server.address()).port}`;
}

/** Bundles pusher-js's spec with its sources. @returns {Promise<string>} the path of the bundle */
async function bundleSpec() {
  const outfile = join(folder, 'spec-bundle.cjs');
  // Below node_modules, esbuild would take pusher.js for the import of pusher.ts.
  const pusherJs = join(folder, 'pusher-js');
  cpSync(join(ROOT, 'node_modules/pusher-js'), pusherJs, { recursive: true });
  await esbuild.build({
    entryPoints: [join(here, 'spec.cjs')],
    outfile,
    bundle: true,
    platform: 'node',
    logLevel: 'error',
    // The spec has an undeclared variable, so it is no strict code.
    tsconfigRaw: '{}',
    external: ['dom/*', 'jasmine-core'],
    nodePaths: [
      ...['src', 'src/runtimes', 'src/runtimes/node', 'spec/javascripts'].map((path) =>
        join(pusherJs, path),
      ),
      join(pusherJs, 'spec/javascripts/integration'),
      join(folder, 'node_modules'),
    ],
    alias: {
      pusher_integration: join(here, 'spec-pusher.cjs'),
      integration: join(here, 'spec-helper.cjs'),
      testenv: join(here, 'spec-env.cjs'),
    },
    define: {
      VERSION: '"8.6.0"',
      CDN_HTTP: '""',
      CDN_HTTPS: '""',
      DEPENDENCY_SUFFIX: '""',
      RUNTIME: '"node"',
    },
  });
  return outfile;
}

describe('suites of the SDKs', () => {
  before(async () => {
    copyFileSync(join(here, 'package.json'), join(folder, 'package.json'));
    const flags = ['--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'];
    await run('npm', ['install', ...flags], { timeout: INSTALL_TIMEOUT_MS });
  });

  for (const transport of ['TCP', 'TLS']) {
    test(`the integration spec of pusher-js 8.6.0 over ${transport}`, {
      timeout: SPEC_TIMEOUT_MS,
    }, async (t) => {
      const certificate = await makeServerCertificate(t);
      const env = transport === 'TLS' ? certificate.env : {};
      const { port } = await startPusher(t, { key: SPEC_KEY }, env);
      const agent = transport === 'TLS' ? new Agent({ ca: certificate.ca }) : undefined;
      const sdk = sdkOf(port, { key: SPEC_KEY, useTLS: agent !== undefined, agent });
      const output = await run(process.execPath, [await bundleSpec()], {
        timeout: SPEC_TIMEOUT_MS,
        env: {
          WS_PORT: String(port),
          TRANSPORT_TLS: transport === 'TLS' ? 'on' : 'off',
          AUTH_URL: await startAuth(t, sdk),
          NODE_PATH: join(folder, 'node_modules'),
          NODE_EXTRA_CA_CERTS: certificate.authority.cert,
        },
      });
      assert.match(output, new RegExp(`"passed":${SPEC_TESTS},"failed":0,"pending":0`));
    });
  }

  test('the remote tests of pusher 5.3.4', { timeout: CLIENT_TIMEOUT_MS }, async (t) => {
    const { port } = await startPusher(t);
    const { id, key, secret } = APP;
    const mocha = join(folder, 'node_modules/.bin/mocha');
    const tests = ['get', 'proxy', 'trigger'].map(
      (name) => `node_modules/pusher/tests/remote/pusher/${name}.js`,
    );
    const output = await run(mocha, tests, {
      env: { PUSHER_URL: `http://${key}:${secret}@127.0.0.1:${port}/apps/${id}` },
    });
    assert.match(output, new RegExp(`${REMOTE_TESTS} passing`));
  });
});

/**
 * A server that the SDKs of other languages ask: ann is in a presence channel and signed in, and a
 * webhook has been received.
 * @param {import('node:test').TestContext} t
 */
async function startScene(t) {
  const { url, received } = await startReceiver(t);
  const webhooks = [{ url, events: ['channel_occupied'] }];
  const pusher = await startPusher(t, { webhooks });
  const ann = await pusher.connect();
  await ann.signin({ id: 'ann' });
  await ann.subscribe('news');
  await ann.subscribe('private-encrypted-news');
  await ann.subscribe('presence-room', { user_id: 'ann', user_info: { name: 'Ann' } });
  await until(() => received.length > 0, 10_000, 'a webhook');
  const webhook = join(folder, `webhook-${pusher.port}.json`);
  writeFileSync(webhook, JSON.stringify(received[0]));
  return { ...pusher, ann, args: [String(pusher.port), APP.key, APP.secret, webhook] };
}

/** The SDKs publish to the channel `news`. @param {import('../helpers/pusher.js').PusherClient} ann */
const newsOf = (ann) =>
  ann.of('news').flatMap(({ event, data }) => (event.startsWith('pusher') ? [] : [[event, data]]));

const TEXT = '{"text":"über+a&b c=d %20"}';

describe('Python', () => {
  const venv = join(folder, 'python');
  const python = join(venv, 'bin/python');

  before(async () => {
    if (spawnSync('python3', ['--version']).error)
      throw new Error('there is no python3 here: install Python 3.9 or later');
    await run('python3', ['-m', 'venv', venv], { timeout: INSTALL_TIMEOUT_MS });
    const packages = ['-m', 'pip', 'install', '--quiet', '-r', join(here, 'requirements.txt')];
    await run(python, packages, { timeout: INSTALL_TIMEOUT_MS });
  });

  test('pusher 3.3.4', { timeout: CLIENT_TIMEOUT_MS }, async (t) => {
    const { ann, args } = await startScene(t);
    assert.match(await run(python, [join(here, 'sdk.py'), ...args]), /^ok$/m);
    const [[, greeting], ...rest] = newsOf(ann);
    assert.deepEqual(JSON.parse(greeting), JSON.parse(TEXT));
    assert.deepEqual(rest, [
      ['to both', 'plain'],
      ['first', '{"n": 1}'],
      ['second', '2'],
    ]);
    const [{ data }] = ann.of('private-encrypted-news', 'secret');
    assert.deepEqual(Object.keys(JSON.parse(data)).sort(), ['ciphertext', 'nonce']);
    await until(() => ann.close?.code === 4009, 5000, 'the end of her connection');
  });

  test('pysher 1.0.8', { timeout: CLIENT_TIMEOUT_MS }, async (t) => {
    const pusher = await startPusher(t);
    const ann = await pusher.connect();
    await ann.subscribe('private-room');
    await ann.subscribe('presence-room', { user_id: 'ann' });
    const client = join(here, 'pysher_client.py');
    const output = run(python, [client, String(pusher.port), APP.key, APP.secret]);
    const { data: member } = await ann.event('pusher_internal:member_added', undefined, 60_000);
    assert.deepEqual(JSON.parse(member), { user_id: 'pysher', user_info: { name: 'P' } });
    await sdkOf(pusher.port).trigger('news', 'greeting', { text: 'hello' });
    ann.send({ event: 'client-question', channel: 'private-room', data: { from: 'ann' } });
    assert.deepEqual(JSON.parse((await ann.event('client-answer')).data), { to: 'ann' });
    await ann.event('pusher_internal:member_removed');
    const lines = (await output).trim().split('\n');
    // Channels are answered in any order.
    const [news, presence, room] = lines.filter((line) => line.startsWith('subscribed')).sort();
    assert.deepEqual([news, room], ['subscribed news {}', 'subscribed private-room {}']);
    assert.deepEqual(JSON.parse(presence.replace('subscribed presence-room ', '')).presence.ids, [
      'ann',
      'pysher',
    ]);
    const others = lines.filter((line) => !line.startsWith('subscribed'));
    assert.deepEqual(others, ['event {"text":"hello"}', 'client {"from":"ann"}', 'ok']);
  });
});

test('pusher-http-go v5.1.1', { timeout: INSTALL_TIMEOUT_MS }, async (t) => {
  if (spawnSync('go', ['version']).error) return t.skip('there is no Go here');
  const module = join(folder, 'go');
  mkdirSync(module);
  copyFileSync(join(here, 'go/main.go'), join(module, 'main.go'));
  const { FANFARE_TEST_PUSHER_GO: checkout } = process.env;
  const replace = checkout === undefined ? '' : `replace ${MODULE} => ${checkout}\n`;
  writeFileSync(join(module, 'go.mod'), `module sdk\n\ngo 1.21\n\n${replace}`);
  const tidy = spawnSync('go', ['get', `${MODULE}@v5.1.1`], { cwd: module, encoding: 'utf8' });
  if (tidy.status !== 0) return t.skip(`the module is not to be had: ${tidy.stderr}`);
  await run('go', ['build', '-o', 'sdk', '.'], { cwd: module, timeout: INSTALL_TIMEOUT_MS });
  const { ann, args } = await startScene(t);
  assert.match(await run(join(module, 'sdk'), args), /^ok$/m);
  assert.deepEqual(newsOf(ann), [
    ['greeting', TEXT.replace('&', '\\u0026')],
    ['to both', 'plain'],
    ['first', '1'],
    ['second', '2'],
  ]);
  assert.equal((await ann.event('hello', '#server-to-user-ann')).data, '2');
});
