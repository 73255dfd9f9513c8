// server-sdk-edge.test.js: fanfare/server as one script: its size, and that it runs where only the web
// platform exists, as edge runtimes have it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { EdgeVM } from '@edge-runtime/vm';
import { buildSync } from 'esbuild';
import { signedHeaders } from '../../src/protocol/webhook-signature.js';
import { SECRET } from '../helpers/tokens.js';

/** docs/server-sdk.md names this size. A change that needs more says why. */
const MAX_BYTES = 6 * 1024;
const WEBHOOK_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

/** @param {import('esbuild').BuildOptions} options */
function bundle(options) {
  const { outputFiles } = buildSync({
    entryPoints: [new URL('../../src/sdk/index.js', import.meta.url).pathname],
    ...{ bundle: true, minify: true, write: false, platform: 'browser', target: 'es2022' },
    ...{ tsconfigRaw: '{}', ...options },
  });
  return /** @type {import('esbuild').OutputFile[]} */ (outputFiles)[0].text;
}

test(`fanfare/server has at most ${MAX_BYTES} bytes, gzipped, and imports nothing`, (t) => {
  const text = bundle({ format: 'esm' });
  const bytes = gzipSync(text, { level: 9 }).length;
  t.diagnostic(`${bytes} bytes`);
  assert.ok(bytes > 1000 && bytes <= MAX_BYTES, `${bytes} bytes`);
  const page = readFileSync(new URL('../../docs/server-sdk.md', import.meta.url), 'utf8');
  assert.ok(page.includes(`less than ${MAX_BYTES / 1024} KB, gzipped`));
  assert.doesNotMatch(text, /\bimport\b|\brequire\b|\bprocess\b|\bBuffer\b/);
});

test('an edge runtime publishes, signs a token and verifies a webhook', async () => {
  const vm = new EdgeVM();
  vm.evaluate(bundle({ format: 'iife', globalName: 'sdk' }));
  for (const name of ['process', 'Buffer', 'require'])
    assert.equal(vm.evaluate(`typeof ${name}`), 'undefined', name);
  const body = '{"type":"webhook.test","timestamp":"","data":{"endpoint":"edge"}}';
  const headers = signedHeaders([WEBHOOK_SECRET], 'evt_1', body, Math.floor(Date.now() / 1000));
  const run = vm.evaluate(`(async ({ secret, webhookSecret, body, headers }) => {
    const requests = [];
    const server = sdk.createServer({
      url: 'https://chat.example/',
      apiKey: 'key',
      async fetch(url, { body, headers }) {
        requests.push([url, body, headers.get('authorization')]);
        return new Response('{"epoch":"e","offset":1}');
      },
    });
    const published = await server.publish('chat.42', { text: 'hi' });
    const token = await sdk.sign({ user: 7, rooms: ['chat.*'] }, secret);
    const request = new Request('https://app.example/fanfare', { method: 'POST', body, headers });
    const event = await sdk.verifyWebhook(request, webhookSecret);
    return JSON.stringify({ requests, published, token, event });
  })`);
  const result = await run({ secret: SECRET, webhookSecret: WEBHOOK_SECRET, body, headers });
  const { requests, published, token, event } = JSON.parse(result);
  const url = 'https://chat.example/api/publish';
  assert.deepEqual(requests, [[url, '{"room":"chat.42","payload":{"text":"hi"}}', 'Bearer key']]);
  assert.deepEqual(published, { epoch: 'e', offset: 1 });
  const claims = JSON.parse(Buffer.from(token.split('.')[1], 'base64url').toString());
  assert.equal(claims.sub, '7');
  assert.deepEqual([event.id, event.type], ['evt_1', 'webhook.test']);
});

test('docs/server-sdk.md names the size', () => {
  const page = readFileSync(new URL('../../docs/server-sdk.md', import.meta.url), 'utf8');
  assert.ok(page.includes(`less than ${MAX_BYTES / 1024} KB, gzipped`));
});
