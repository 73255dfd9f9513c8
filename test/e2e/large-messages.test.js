// large-messages.test.js: payloads in a bucket, on real servers and s3rver.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';

import { NO_LIMITS, startServer } from '../../loadtest/lib/server.js';
import { apiOf, newSecret } from '../helpers/api.js';
import { sha256, startBucket } from '../helpers/bucket.js';
import { connect } from '../helpers/clients.js';

/** @typedef {import('node:test').TestContext} TestContext */

/**
 * A server with a bucket, and a key for its API.
 * @param {TestContext} t
 * @param {Record<string, string>} [env]
 */
async function start(t, env = {}) {
  const bucket = await startBucket(t);
  const secret = newSecret();
  const server = await startServer(t, {
    ...NO_LIMITS,
    WORKERS: '1',
    FANFARE_HISTORY: 'h.*=100/60s',
    API_KEYS: `main ${secret} all; poor ${newSecret()} history`,
    ...bucket.env,
    ...env,
  });
  const api = apiOf(server, secret);
  /**
   * @param {string} query
   * @param {Buffer|string} body
   * @param {Record<string, string>} [headers]
   */
  const upload = (query, body, headers = { 'Content-Type': 'image/png' }) =>
    api(`/publish?${query}`, { method: 'POST', body: Buffer.from(body), headers });
  return { bucket, server, secret, api, upload };
}

/** Downloads an object. @param {{url: string}} ref */
async function download({ url }) {
  const response = await fetch(url);
  const body = Buffer.from(await response.arrayBuffer());
  return { status: response.status, type: response.headers.get('content-type'), body };
}

test('a raw body goes into the bucket, and members get a reference to it', async (t) => {
  const { server, upload } = await start(t);
  const member = await connect(t, server.port);
  await member.join('a');
  const image = randomBytes(3_000_000);
  const answer = await upload('room=a', image);
  assert.deepEqual([answer.status, answer.body], [200, {}]);
  const { payload, from } = await member.next('message');
  assert.equal(from, '');
  const { ref } = payload;
  assert.deepEqual(Object.keys(ref), ['url', 'bytes', 'sha256', 'contentType', 'expires']);
  assert.deepEqual([ref.bytes, ref.contentType], [image.length, 'image/png']);
  assert.equal(ref.sha256, sha256(image));
  assert.ok(ref.expires > Date.now() + 3_500_000 && ref.expires < Date.now() + 4_000_000);
  const object = await download(ref);
  assert.deepEqual([object.status, object.type], [200, 'image/png']);
  assert.ok(object.body.equals(image));
});
