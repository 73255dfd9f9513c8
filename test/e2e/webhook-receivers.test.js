// webhook-receivers.test.js: the receivers of docs/webhooks.md, as they stand, with real requests.

import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { loadConfig } from '../../src/config/config.js';
import { AddressGuard } from '../../src/outgoing/addresses.js';
import { messageOf } from '../../src/webhooks/message.js';
import { Requester } from '../../src/webhooks/request.js';
import { freePort } from '../harness/redis.js';
import { blocksOf } from '../helpers/doc-code.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const MODULES = fileURLToPath(new URL('../../node_modules/', import.meta.url));
const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const blocks = blocksOf('docs/webhooks.md');
/** @param {string} heading @param {string} language */
const codeOf = (heading, language) =>
  blocks.find((one) => one.heading === heading && one.language === language)?.code ?? '';
const EVENT = JSON.parse(codeOf('Events', 'json'));

/**
 * Runs a receiver, sends it an event with the right and with a wrong secret, and reads its output.
 * @param {import('node:test').TestContext} t
 * @param {string} command @param {string[]} args @param {string} cwd
 */
async function receive(t, command, args, cwd) {
  const port = await freePort();
  const env = { ...process.env, PORT: String(port), WEBHOOK_SECRET: SECRET };
  const child = spawn(command, args, { cwd, env, stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => child.kill());
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text) => {
    output += text;
  });
  const requester = new Requester(new AddressGuard({ publicOnly: false }));
  t.after(() => requester.close());
  const { data, timestamp, type } = EVENT;
  const { sequence: seq, ...rest } = data;
  const message = messageOf({ ...rest, type, seq, at: Date.parse(timestamp) });
  assert.deepEqual(JSON.parse(message.body), EVENT, 'the event of the page is as it is sent');
  const post = (/** @type {string} */ secret) =>
    requester.post(
      /** @type {any} */ ({
        url: `http://127.0.0.1:${port}/fanfare`,
        secrets: [secret],
        timeoutMs: 5000,
      }),
      message,
    );
  let result = await post(SECRET);
  for (let i = 0; i < 200 && result.error === 'ECONNREFUSED'; i++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    result = await post(SECRET);
  }
  assert.deepEqual([result.outcome, result.error], ['delivered', '']);
  const wrong = await post('whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=');
  assert.equal(wrong.error, 'status 401');
  while (!output.includes('\n')) await new Promise((resolve) => child.stdout.once('data', resolve));
  assert.equal(output, 'member.joined chat.lobby ann\n');
}

test('the receiver for Express verifies and prints an event', { timeout: 30_000 }, async (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(join(MODULES, 'express'), join(folder, 'node_modules/express'));
  symlinkSync(join(MODULES, '../src/sdk'), join(folder, 'node_modules/fanfare-server'));
  writeFileSync(join(folder, 'receiver.mjs'), codeOf('Receive', 'js'));
  await receive(t, process.execPath, ['receiver.mjs'], folder);
});

const noPython =
  spawnSync('python3', ['-c', 'import venv']).status !== 0 && 'python3 is not installed';

test('the receiver in Python verifies and prints an event', {
  timeout: 120_000,
  skip: noPython,
}, async (t) => {
  const folder = temporaryFolder(t);
  const pip = ['-m', 'pip', 'install', '-q', '--target', folder, 'standardwebhooks==1.1.0'];
  const installed = spawnSync('python3', pip, { timeout: 90_000, encoding: 'utf8' });
  if (installed.status !== 0) return t.skip(`PyPI is not reachable: ${installed.stderr}`);
  writeFileSync(join(folder, 'receiver.py'), codeOf('Receive', 'python'));
  await receive(t, 'python3', ['receiver.py'], folder);
});

test('the file of endpoints of the page is valid, and so is a secret that it makes', (t) => {
  const secret = execFileSync('sh', ['-c', codeOf('In two minutes', 'sh')], { encoding: 'utf8' });
  const path = join(temporaryFolder(t), 'webhooks.json');
  const [endpoint] = JSON.parse(codeOf('In two minutes', 'json'));
  const fresh = { ...endpoint, name: 'fresh', secret: secret.trim() };
  writeFileSync(path, JSON.stringify([endpoint, fresh]));
  const { config, faults } = loadConfig({ FANFARE_WEBHOOKS: path });
  assert.deepEqual(faults, []);
  assert.equal(config?.webhooks?.endpoints.length, 2);
});
